"""PLDP-FL: algorithm 1 written again, noise measured, budgets never exceeded, sampling as it should be.

Most of it runs on linear models, which need no PyTorch: the algorithm knows a model only as a flat vector.
"""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import stats

from archipel.algorithms.pldp_fl import PldpFl
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.generators import generator, poisson_batch
from archipel.node import Edge, Moment, emptied, row
from archipel.parts.ask.drawn import norms_of
from archipel.parts.ask.sampling import known_chances, ladder_of, solve_p2
from archipel.parts.protect import personal as at_steps
from archipel.parts.protect.openly import Openly
from archipel.privacy import personal
from archipel.privacy.accounting import record
from archipel.privacy.gaussian import mu_of
from archipel.privacy.ledger import EpsilonBudget
from archipel.privacy.policy import Privacy, Range
from archipel.privacy.releases import Gaussian, Sampled
from archipel.problems.linear import Linear
from archipel.problems.losses.supervised import LOSSES, slope
from archipel.problems.models.learners import Batch
from archipel.problems.models.learners import Linear as LinearLearner
from archipel.problems.synthetic import Synthetic
from archipel.testing import check_algorithm
from archipel.theory.pldp import noise_scale
from reference.sampling import sampled

SMALL = Linear(clients=5, size=6, samples=80, test=50)
FAST = {"batch": 80, "draws": 2, "step": 0.05}  # whole batches: Gaussian releases, whose accounting is instant


def prepared(problem, algorithm, rounds, seed=1, precision="float64"):
    federation = Federation(problem, algorithm, rounds=rounds, every=rounds, precision=precision)
    instance = federation.instance(seed)
    return instance, federation.engine_of(instance)


# --- algorithm 1 --------------------------------------------------------------------------------------------


def clipped(x, y, model, bound):
    """The sum of clipped gradients of (y - x^T w)^2, example by example."""
    total = np.zeros(len(model))
    for a, b in zip(x, y):
        gradient = 2 * (a @ model - b) * a
        total += gradient / max(1.0, np.linalg.norm(gradient) / bound)
    return total


def by_hand(source, algorithm, mus, chance, rounds, seed):
    """Algorithm 1 as it is printed, with the same draws; returns the model after each round."""
    sizes, starts = np.diff(source.starts), source.starts
    weight, model, course = sizes / sizes.sum(), np.zeros(source.x.shape[1]), []
    for r in range(rounds):
        counts = sampled(chance, algorithm.draws, seed, r)
        new = model.copy()
        for k in np.flatnonzero(counts):
            x, y = source.x[starts[k] : starts[k + 1]], source.y[starts[k] : starts[k + 1]]
            local = model.copy()
            for j in range(algorithm.local_steps):
                rows = poisson_batch(sizes[k], algorithm.batch / sizes[k], key_of(seed, k, r), j)
                noise = generator(key_of(seed, k, r), 9, j).standard_normal(len(model)) * algorithm.clip / mus[k]
                total = clipped(x[rows], y[rows], local, algorithm.clip) + noise
                local = local - algorithm.step * total / algorithm.batch
            new += counts[k] * weight[k] / (algorithm.draws * chance[k]) * (local - model)
        model = new
        course.append(model)
    return course


@pytest.mark.parametrize("sampling", ["uniform", "weight"])
def test_rounds_are_those_of_algorithm_1(sampling, monkeypatch):
    monkeypatch.setattr(at_steps, "affordable_mu", lambda epsilon, *_: epsilon / 10)  # not this test's subject
    monkeypatch.setattr("archipel.privacy.ledger.Ledger.affords", lambda *_: True)
    algorithm = PldpFl(sampling, budgets=(16, 32), draws=3, batch=20, step=0.1, local_steps=4, pretrain=0)
    instance, engine = prepared(SMALL, algorithm, 6)
    mus = [ledger.budget.epsilon / 10 for ledger in instance.plan.accountant.ledgers]
    chance = np.full(5, 0.2)  # weights are equal here: both samplings are uniform
    course = by_hand(instance.task.source, algorithm, mus, chance, 6, 1)
    for r in range(6):
        engine.advance(r, r + 1)
        assert instance.plan.tables["server"].model[0] == pytest.approx(course[r], abs=1e-12)
    assert np.abs(course[-1]).max() > 0.1


def test_everyone_asked_without_noise_is_gradient_descent(monkeypatch):
    """Whole batches, one local step, no noise, no clipping: descent on the mean of all samples."""
    monkeypatch.setattr(at_steps, "add_gaussian", lambda *_: None)
    algorithm = PldpFl("uniform", **FAST, local_steps=1, pretrain=30, clip=1e6)
    instance, engine = prepared(SMALL, algorithm, 30)
    x, y, model = instance.task.source.x, instance.task.source.y, np.zeros(6)
    for _ in range(30):
        model -= 0.05 * 2 * x.T @ (x @ model - y) / len(y)
    engine.advance(0, 30)
    assert instance.plan.tables["server"].model[0] == pytest.approx(model, abs=1e-10)


def test_the_noise_is_as_large_as_its_budget_asks():
    """Where there is no gradient, what is said is noise: E steps of deviation step sigma / batch each."""
    problem = Linear(clients=5, size=4000, samples=80, test=5, noise=0.0)
    instance, engine = prepared(problem, PldpFl("uniform", **FAST, local_steps=3, pretrain=0), 1)
    instance.task.source.x[:] = 0
    engine.advance(0, 1)
    asked = [k for k in range(5) if instance.plan.tables["client"].share.asked[k, 0]]
    assert asked
    for k in asked:
        mu = instance.plan.tables["client"].protect.mu[k, 0]
        expected = 3 * (0.05 * 1.0 / mu / 80) ** 2
        statistic = np.sum(instance.plan.tables["client"].model[k] ** 2) / expected
        assert 1e-4 < stats.chi2(4000).sf(statistic) < 1 - 1e-4
        # and sigma is the exact Gaussian one for the planned number of releases
        count = int(personal.by_binomial(1, 2, 0.2, 2.5e-6))
        budget = instance.plan.accountant.ledgers[k].budget
        assert (record(Gaussian(mu)) * (3 * count)).epsilon(1e-5).epsilon == pytest.approx(budget.epsilon, rel=1e-6)


@pytest.mark.parametrize("sampling", ["uniform", "weight", "optimal"])
def test_questions_and_answers_merge_without_bias(sampling):
    """Through tell, hear and merge: the mean of many rounds against the full average."""
    problem = Linear(clients=6, size=4, samples=40, test=5)
    instance, _ = prepared(problem, PldpFl(sampling, draws=3, batch=40, pretrain=int(sampling == "optimal")), 2)
    settings, server = instance.plan.settings, row(instance.plan.tables["server"], 0)
    weights = settings.asked.weights
    weights[:] = np.array([1, 2, 3, 4, 5, 6]) / 21
    optimal = solve_p2(weights, np.array([3, 1, 2, 1, 1, 4.0]), np.ones(6), 1.0, 3)
    chance = optimal if sampling == "optimal" else known_chances(sampling, weights, 3)
    server.share.chance[:] = chance
    server.share.ladder[:] = ladder_of(chance)
    updates = np.random.default_rng(3).standard_normal((6, 4)) + np.arange(4)
    merged, (question, answering) = np.zeros((4000, 4)), instance.plan.turns
    for n in range(4000):
        inbox, word, answer = (emptied(record) for record in (answering.inbox, question.word, answering.word))
        server.model[:] = 0
        for k in range(6):
            moment = Moment(0, n + 1, 0, k, 6, True, 1.0)
            if question.tell(server, word, settings, moment):
                answer.word.values[:], answer.share[0] = updates[k], word.share[0]
                answering.hear(inbox, answer, settings, Edge(k, 1.0, 0, n))
        answering.merge(server, inbox, settings, Moment(0, n + 1, 0, -1, 6, True, 1.0))
        merged[n] = server.model
    full = weights @ updates
    spread = ((weights**2 / chance)[:, None] * updates).T @ updates - np.outer(full, full)
    off = merged.mean(0) - full
    assert stats.chi2(4).sf(off @ np.linalg.solve(spread / 3 / 4000, off)) > 1e-4


def test_what_every_algorithm_keeps_to():
    check_algorithm(Federation(SMALL, PldpFl("uniform", **FAST), rounds=6))


def test_with_another_protection_it_says_who_was_asked_and_no_noise_that_there_is_not():
    found = Federation(SMALL, PldpFl("uniform", **FAST, protect=Openly()), rounds=3, every=3).run()
    assert "asked.node" in found.metrics() and "noise.node" not in found.metrics()


def test_what_the_choice_is_worth_and_who_was_asked_is_in_the_report(tmp_path):
    """The ratio of (6) under other chances, by a sum written again; and a table of clients in the page."""
    problem = Linear(clients=6, size=6, samples=60, test=50)
    algorithm = PldpFl("optimal", draws=2, batch=60, step=0.05, budgets=(1.0, 2.0, 4.0, 8.0, 8.0, 8.0), tradeoff=2.0)
    federation = Federation(problem, algorithm, rounds=12, every=12)
    result = federation.run()
    instance = federation.instance()
    last = {m: [v for _, n, name, v, _ in result.rows if (n, name) == (12, m)] for m in result.metrics()}
    norms, chance, noise = last["norm.node"], last["chance.node"], instance.plan.settings.asked.noise
    by_hand = {
        name: sum(g**2 / x + 2.0 * b**2 / x**0.5 for g, b, x in zip(norms, noise, q))
        for name, q in (("ours", chance), ("uniform", [1 / 6] * 6))
    }
    assert (
        last["worth.uniform"] == pytest.approx([by_hand["uniform"] / by_hand["ours"]]) and last["worth.uniform"][0] > 1
    )
    assert last["worth.weight"] == pytest.approx(last["worth.uniform"])  # equal shares here
    assert sum(last["asked.node"]) > 12
    page = (result.save(tmp_path) / "report.html").read_text()
    assert "Whom the server asked" in page and "With uniform sampling" in page and "rounds asked" in page
    assert "Privacy: what each client has paid" in page and "epsilon 8" in page
    assert "worth.uniform</h2>" not in page


def test_a_client_drawn_twice_answers_once_and_counts_twice():
    instance, engine = prepared(SMALL, PldpFl("uniform", **FAST, pretrain=0), 12)
    tables, asked = instance.plan.tables, np.zeros(5)
    twice = False
    for r in range(12):
        counts = sampled(np.full(5, 0.2), 2, 1, r)
        engine.advance(r, r + 1)
        asked += counts > 0
        for k in np.flatnonzero(counts):
            assert tables["client"].share.share[k, 0] == pytest.approx(counts[k] * 0.2 / (2 * 0.2))
        twice |= counts.max() == 2
    assert twice
    assert tables["client"].share.asked[:, 0].tolist() == asked.tolist()
    paid = [ledger.history().releases for ledger in instance.plan.accountant.ledgers]
    assert paid == (5 * asked).tolist()  # five local steps each time, drawn twice or not
    assert engine.messages[1] == asked.sum()


@pytest.mark.parametrize("loss", LOSSES)
def test_clipping_of_linear_models_is_that_of_a_loop(loss):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((30, 4)), np.sign(rng.standard_normal(30))
    model, out, rows = rng.standard_normal(4), np.zeros(4), np.arange(3, 25)
    LinearLearner(4, LOSSES[loss], float).clipped_sum(out, model, Batch(x, y), rows, 0.7)
    gradients = [slope(LOSSES[loss], x[i] @ model, y[i]) * x[i] for i in rows]
    expected = sum(g * min(1.0, 0.7 / np.linalg.norm(g)) for g in gradients)
    assert out == pytest.approx(expected, rel=1e-10)


# --- optimal sampling ---------------------------------------------------------------------------------------


def test_pre_training_estimates_norms_charges_them_and_solves_p2():
    problem = Linear(clients=8, size=6, samples=200, test=50)
    algorithm = PldpFl("optimal", draws=2, batch=200, step=0.05, pretrain=2, tradeoff=3.0, norm_share=0.02)
    instance, engine = prepared(problem, algorithm, 8)
    tables, settings, source = instance.plan.tables, instance.plan.settings, instance.task.source
    true, released = np.zeros(8), np.zeros(8)
    for r in range(2):
        model = tables["server"].model[0].copy()
        for k in range(8):
            mine = slice(source.starts[k], source.starts[k + 1])
            true[k] += np.linalg.norm(clipped(source.x[mine], source.y[mine], model, 1.0) / 200) ** 2
        engine.advance(r, r + 1)
    assert (tables["server"].share.heard[0] == 2).all()
    released = np.sqrt(tables["server"].share.norms[0] / 2)
    assert released == pytest.approx(np.sqrt(true / 2), rel=0.05) and (released != np.sqrt(true / 2)).all()
    weight, noise, ledgers = np.full(8, 1 / 8), settings.asked.noise, settings.protect.ledgers
    budgets = [ledger.budget.epsilon for ledger in ledgers]
    assert noise == pytest.approx(noise_scale(budgets, np.ones(8), 1e-5, 16))
    assert tables["server"].share.chance[0] == pytest.approx(solve_p2(weight, released, noise, 3.0, 2), rel=1e-9)
    for ledger in ledgers:
        norm = [c for c in ledger.charges if c.times == 1]
        share = EpsilonBudget(ledger.budget.epsilon, 1e-5).gaussian_rho() * 0.02
        assert len(norm) == 2 and norm[0].release.mu ** 2 / 2 == pytest.approx(share)
    engine.advance(2, 8)
    assert all(ledger.epsilon(1e-5).epsilon <= ledger.budget.epsilon for ledger in ledgers)


def test_someone_who_was_away_counts_as_the_mean_of_the_others():
    norms, heard = np.array([4.0, 1.0, 0.0, 1.0, 2.0]), np.array([1, 1, 0, 1, 2.0])
    squares = np.array([4.0, 1.0, 7 / 4, 1.0, 1.0])
    assert norms_of(norms, heard, 1.0) == pytest.approx(np.sqrt(squares))
    assert norms_of(np.zeros(3), np.zeros(3), 0.5) == pytest.approx(np.full(3, 0.5))


# --- budgets ------------------------------------------------------------------------------------------------


def google_epsilon(history, delta):
    """What dp-accounting's own accountant says of a history."""
    accountant = PLDAccountant(value_discretization_interval=2e-3)
    for release, times in history.counts:
        rate, inner = (release.rate, release.release) if isinstance(release, Sampled) else (1.0, release)
        event = dp_accounting.GaussianDpEvent(1 / inner.mu)
        accountant.compose(event if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, event), times)
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("budgets", [(16.0, 32.0), (0.5, 4.0)])
@pytest.mark.parametrize("sampling", ["uniform", "weight", "optimal"])
def test_no_ledger_exceeds_its_budget(budgets, sampling):
    """Whole runs, and on beyond the rounds that were planned for, until everyone is silent."""
    instance, engine = prepared(SMALL, PldpFl(sampling, **FAST, budgets=budgets), 20)
    ledgers = instance.plan.accountant.ledgers
    most = [mu_of(ledger.budget.epsilon, 1e-5) ** 2 / 2 for ledger in ledgers]
    for n in range(150):
        engine.advance(n, n + 1)
        assert all(ledger.rho() <= limit for ledger, limit in zip(ledgers, most))
        if n == 19:
            assert (instance.plan.tables["client"].protect.stopped == 0).all()
    assert (instance.plan.tables["client"].protect.stopped > 0).all()  # the brake was needed
    for ledger in ledgers:  # and was not pulled too early
        assert 0.9 < ledger.epsilon(1e-5).epsilon / ledger.budget.epsilon <= 1


def sampled_budgets_hold(problem, algorithm, rounds, beyond, seed=1):
    """As above with batches drawn in secret, whose accounting takes its time, and by another accountant too."""
    instance, engine = prepared(problem, algorithm, rounds, seed, precision="float32")
    ledgers = instance.plan.accountant.ledgers
    for first, last in ((0, rounds), (rounds, beyond)):
        engine.advance(first, last)
        assert all(ledger.epsilon(1e-5).epsilon <= ledger.budget.epsilon for ledger in ledgers)
    for ledger in ledgers:
        assert google_epsilon(ledger.history(), 1e-5) <= ledger.budget.epsilon * 1.002 + 2e-3
    return instance, ledgers


def test_no_ledger_exceeds_its_budget_with_secret_batches():
    algorithm = PldpFl("optimal", draws=1, batch=40, budgets=(16.0, 32.0), local_steps=4)
    instance, ledgers = sampled_budgets_hold(Linear(clients=2, size=5, samples=200, test=5), algorithm, 4, 14)
    assert (instance.plan.tables["client"].protect.stopped > 0).all()
    assert max(ledger.epsilon(1e-5).epsilon / ledger.budget.epsilon for ledger in ledgers) > 0.9


@pytest.mark.long
@pytest.mark.parametrize("budgets", [(16.0, 32.0), (0.5, 4.0)])
@pytest.mark.parametrize("sampling", ["uniform", "weight", "optimal"])
def test_no_ledger_exceeds_its_budget_in_the_papers_setting(budgets, sampling):
    """10 clients, K = 3, R = 70, E = 5, a batch of an eighth or so; then as many rounds again."""
    algorithm = PldpFl(sampling, batch=25, budgets=budgets)
    problem = Linear(clients=10, size=5, samples=200, test=5)
    instance, _ = sampled_budgets_hold(problem, algorithm, 70, 140)
    assert instance.plan.tables["client"].share.asked.sum() > 300


@pytest.mark.long
@pytest.mark.parametrize("budgets", [(16.0, 32.0), (0.5, 4.0)])
def test_in_95_of_100_runs_nobody_is_stopped_early(budgets):
    """10 clients, K = 3, R = 70, the whole algorithm with its pre-training; whole batches, exact accounting."""
    problem = Linear(clients=10, size=4, samples=20, test=5)
    algorithm = PldpFl("optimal", batch=20, step=0.05, budgets=budgets, local_steps=1)
    early, spent = 0, []
    for seed in range(100):
        instance, engine = prepared(problem, algorithm, 70, seed)
        engine.advance(0, 70)
        early += bool((instance.plan.tables["client"].protect.stopped > 0).any())
        for ledger in instance.plan.accountant.ledgers:
            spent.append(ledger.rho() / (mu_of(ledger.budget.epsilon, 1e-5) ** 2 / 2))
    assert early <= 5
    assert max(spent) <= 1 and np.mean(spent) > 0.4  # noise for what is likely, not for what could be


def test_a_client_whose_budget_is_spent_says_nothing(monkeypatch):
    monkeypatch.setitem(personal.COUNTS, "binomial", lambda *_: 1)
    instance, engine = prepared(SMALL, PldpFl("uniform", **FAST, pretrain=0), 30)
    engine.advance(0, 30)
    clients = instance.plan.tables["client"]
    asked = clients.share.asked
    assert (asked > 3).all() and (clients.protect.stopped == asked - 1).all()
    assert engine.updates == 5
    assert engine.messages[1] == 5
    before = instance.plan.tables["server"].model.copy()
    engine.advance(30, 35)
    assert (instance.plan.tables["server"].model == before).all()
    for ledger in instance.plan.accountant.ledgers:
        assert 0.999 < ledger.epsilon(1e-5).epsilon / ledger.budget.epsilon <= 1


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "key", "sentence"),
    [
        ({"draws": 5}, "algorithm.draws", "fewer draws a round than clients"),
        ({"batch": 81}, "algorithm.batch", "1 to 80, the samples of client-0"),
        ({"batch": 0}, "algorithm.batch", "at least 1|positive"),
        ({"sampling": "optimum"}, "algorithm.sampling", '"optimal"'),
        ({"participations": "binomal"}, "algorithm.participations", '"binomial"'),
        ({"budgets": (32.0, 16.0)}, "algorithm.budgets", "a range"),
        ({"budgets": (1.0, 2.0, 3.0)}, "algorithm.budgets", "or 5 numbers"),
        ({"budgets": (0.0, 1.0)}, "algorithm.budgets", "positive"),
        ({"budgets": (1e308, 1e308)}, "algorithm.budgets", "at most"),
        ({"delta": 0.0}, "algorithm.delta", "between 0 and 1"),
        ({"delta": 1e-20}, "algorithm.delta", "batches are sampled"),
        ({"pretrain": 0}, "algorithm.pretrain", "P2 needs gradient norms"),
        ({"pretrain": 9}, "algorithm.pretrain", "to 4 rounds"),
        ({"relation": "replace"}, "algorithm.relation", "replace-one"),
        ({"clip": 0.0}, "algorithm.clip", "positive"),
        ({"step": -1.0}, "algorithm.step", "at least 0"),
        ({"norm_share": 1.0}, "algorithm.norm_share", "between 0 and 1"),
        ({"norm_share": 0.5, "pretrain": 2}, "algorithm.norm_share", "a small share"),
    ],
)
def test_bad_input(change, key, sentence):
    with pytest.raises(BadInput, match=sentence) as caught:
        prepared(SMALL, PldpFl(**({"draws": 2, "batch": 20} | change)), 4)
    assert caught.value.key == key


def test_a_stream_is_refused():
    with pytest.raises(BadInput, match="data that is stored"):
        prepared(Synthetic(clients=5, features=8), PldpFl(draws=2), 4)


def test_own_budgets_and_the_papers_step():
    instance, _ = prepared(SMALL, PldpFl(draws=2, batch=20, budgets=(1.0, 2.0, 3.0, 4.0, 5.0)), 4)
    assert [ledger.budget.epsilon for ledger in instance.plan.accountant.ledgers] == [1, 2, 3, 4, 5]
    assert instance.plan.settings.learn.step == pytest.approx(16 * 8**-0.75)
    drawn = [prepared(SMALL, PldpFl(draws=2, batch=20), 4, seed)[0].plan.accountant.ledgers for seed in (1, 2)]
    assert drawn[0][0].budget != drawn[1][0].budget
    assert all(16 <= ledger.budget.epsilon <= 32 for ledgers in drawn for ledger in ledgers)


def test_the_check_tells_how_often_a_client_is_planned_to_take_part():
    told = Federation(SMALL, PldpFl(draws=2, batch=20), rounds=50).check()
    exact, printed, every = (told[f"participations, {name}"] for name in ("binomial", "lemma-1", "all"))
    assert stats.binom(50, 1 - 0.8**2).sf(exact) <= 2.5e-6 < stats.binom(50, 1 - 0.8**2).sf(exact - 1)
    assert exact < printed < every == 100


# --- with a network -----------------------------------------------------------------------------------------


def test_a_network_learns_within_everyones_budget():
    pytest.importorskip("torch")
    from archipel.problems.deep import Deep

    problem = Deep(model="mlp", widths=(16,), split="iid", clients=4, samples=1200)
    algorithm = PldpFl("optimal", draws=2, batch=300, step=1.0, budgets=(100.0, 200.0), local_steps=2, clip=0.5)
    result = Federation(problem, algorithm, rounds=20, every=20).run()
    nodes = result.ledgers[0]["nodes"]
    assert all(0 < node["spent"]["epsilon"] <= node["budget"]["epsilon"] for node in nodes)
    assert result.ledgers[0]["guarantee"] == "assumed" and nodes[0]["unit"] == "sample"
    asked = [value for _, n, metric, value, _ in result.rows if metric == "asked.node" and n == 20]
    assert [node["releases"] for node in nodes] == [2 * times + 1 for times in asked]  # and one norm each
    assert result.final("accuracy") > 0.5
    again = Federation(problem, algorithm, rounds=20, every=20).run()
    assert (again.models[0]["server"] == result.models[0]["server"]).all()


def test_budgets_from_the_privacy_table():
    privacy = Privacy(epsilon=Range(1.0, 3.0), delta=1e-6, relation="add-remove", clip=0.5)
    own = PldpFl("uniform", **FAST, budgets=(1.0, 3.0), delta=1e-6, clip=0.5, local_steps=2)
    with_table = Federation(SMALL, PldpFl("uniform", **FAST, local_steps=2), privacy=privacy, rounds=6, every=3)
    one, two = with_table.run(), Federation(SMALL, own, rounds=6, every=3).run()
    assert (one.models[0]["server"] == two.models[0]["server"]).all()
    assert one.ledgers[0] == two.ledgers[0]
    paid = [value for *_, metric, value, _ in one.rows if metric == "epsilon.node"]
    assert max(paid) <= 3.0 and len(paid) == 15
    with pytest.raises(BadInput, match="follows from everyone's epsilon"):
        Federation(SMALL, own, privacy=Privacy(epsilon=1.0, noise=1.0), rounds=6).instance()


def test_who_spent_nearly_all_in_pre_training_falls_silent():
    """Nothing is left that any noise would protect: no error, no release, nobody above its budget."""
    own = PldpFl(budgets=(1.0, 8.0), pretrain=45, batch=20, draws=2, step=0.05, local_steps=2)
    result = Federation(SMALL, own, rounds=50, every=50).run()
    for node in result.ledgers[0]["nodes"]:
        assert node["spent"]["epsilon"] <= node["budget"]["epsilon"]
