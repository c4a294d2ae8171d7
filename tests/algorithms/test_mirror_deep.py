"""Mirror descent among peers for networks: the equations by matrices, noise measured, budgets kept, true costs.

Most of it runs on linear models: the algorithm knows a model only as a flat vector.
"""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import stats

from archipel.algorithms.deep import FedAvgDeep, MirrorDeep, true_cost
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.generators import shuffled_batches
from archipel.node import Moment
from archipel.parts.mix.push_whole import Mass
from archipel.parts.protect import batch as at_batch
from archipel.parts.protect.openly import Openly
from archipel.privacy.accounting import record
from archipel.privacy.personal import affordable_epsilon, sampled_laplace
from archipel.privacy.policy import Privacy
from archipel.problems.linear import Linear
from archipel.problems.models.learners import answered
from archipel.topology import Digraph, matrix

SMALL = Linear(clients=5, size=6, samples=80, test=50)
CHANGING = Digraph(mean_degree=2.0, phases=3, shares="random")


def prepared(algorithm, rounds, problem=SMALL, topology=CHANGING, seed=1, precision="float64"):
    federation = Federation(problem, algorithm, topology, rounds=rounds, every=rounds, precision=precision)
    instance = federation.instance(seed)
    return instance, federation.engine_of(instance)


def weights(instance):
    """Everyone's push-sum weight; one where nothing is divided by it."""
    mix = instance.plan.tables["peer"].mix
    return mix.mass[:, 0] if isinstance(mix, Mass) else np.ones(5)


# --- the equations ------------------------------------------------------------------------------------------


def slopes_by_hand(source, models, batch, n, seed):
    """The mean gradient of (y - x^T w)^2 over everyone's batch of round n, at its model."""
    found = []
    for k, model in enumerate(models):
        mine = slice(source.starts[k], source.starts[k + 1])
        x, y = source.x[mine], source.y[mine]
        rows = shuffled_batches(len(y), batch, key_of(seed, k, n), 0)[0]
        found.append(2 * x[rows].T @ (x[rows] @ model - y[rows]) / batch)
    return np.array(found)


@pytest.mark.parametrize("mixing", ["push-sum", "plain"])
def test_rounds_are_those_of_5_12_and_the_mixing(mixing):
    instance, engine = prepared(MirrorDeep("none", mixing, step=0.1, fall=0.5, batch=20), 7)
    y, w = np.zeros((5, 6)), np.ones(5)
    for n in range(7):
        mix = matrix(instance.graph.links(n))  # [u, v] is what u takes of what v says
        assert mix.sum(0) == pytest.approx(np.ones(5))
        x = y - 0.1 / np.sqrt(n + 1) / w[:, None] * slopes_by_hand(instance.task.source, y, 20, n, 1)
        if mixing == "plain":
            y = mix @ x
        else:
            y, w = mix @ (w[:, None] * x), mix @ w
            y /= w[:, None]
        engine.advance(n, n + 1)
        assert instance.plan.tables["peer"].model == pytest.approx(y, abs=1e-12)
        assert weights(instance) == pytest.approx(w, abs=1e-12)
    assert np.abs(y).max() > 0.1
    assert (np.ptp(w) > 0.1) == (mixing == "push-sum")


def test_with_everyone_heard_it_is_fedavg():
    peers, across = prepared(MirrorDeep("none", step=0.1, batch=20), 5, topology=Digraph("complete"))
    star = Federation(SMALL, FedAvgDeep(0.1, 20, local_steps=1), rounds=5, precision="float64")
    instance = star.instance(1)
    across.advance(0, 5)
    star.engine_of(instance).advance(0, 5)
    everyone = np.tile(instance.plan.tables["server"].model, (5, 1))
    assert peers.plan.tables["peer"].model == pytest.approx(everyone, abs=1e-12)


def test_a_ball_confines_everyone():
    instance, engine = prepared(MirrorDeep("none", step=0.5, batch=20, radius=0.3), 6)
    engine.advance(0, 6)
    lengths = np.linalg.norm(instance.plan.tables["peer"].model, axis=1)
    assert lengths.max() <= 0.3 + 1e-12 and lengths.min() > 0.2


# --- noise --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "published"])
def test_the_noise_is_as_large_as_its_budget_asks(noise):
    """Where there is no gradient, the first step is noise."""
    problem = Linear(clients=5, size=8000, samples=80, test=5, noise=0.0)
    instance, _ = prepared(MirrorDeep(noise, epsilon=2.0, step=0.5, batch=40, clip=0.7), 30, problem)
    settings, out = instance.plan.settings, np.zeros(8000)
    instance.task.source.x[:] = 0
    data = instance.task.observe(instance.task.source, None, Moment(2, 0, 0, -1, 1, True, 1.0))[1]
    scale = instance.plan.tables["peer"].protect.noise[2, 0]
    now = Moment(2, 0, key_of(1, 2, 0), -1, 1, True, 1.0)
    out /= answered(at_batch.GRADIENTS[noise](out, np.zeros(8000), data, scale, settings, now), settings.learn.learner)
    if noise == "published":
        expected = stats.laplace(scale=1 / 2.0)
    else:
        release = instance.plan.accountant.releases[2].release
        scale = 0.7 / 40 / (release.epsilon if noise == "laplace" else release.mu)
        expected = stats.laplace(scale=scale) if noise == "laplace" else stats.norm(scale=scale)
    assert stats.kstest(out, expected.cdf).pvalue > 1e-4
    assert stats.kstest(out * 1.2, expected.cdf).pvalue < 1e-4  # so it would see a fifth too much


@pytest.mark.parametrize(("noise", "norm"), [("gaussian", 2), ("laplace", 1)])
def test_one_record_moves_the_sum_by_the_clip_at_most(noise, norm, monkeypatch):
    """Add a record, however extreme, to a batch: the sum moves by C in the norm that the noise is made for."""
    instance, _ = prepared(MirrorDeep(noise, clip=0.3, batch=20), 4)
    settings, source = instance.plan.settings, instance.task.source
    assert settings.protect.order == norm
    rng = np.random.default_rng(3)
    source.x[:40] = rng.standard_normal((40, 6)) * 10.0 ** rng.integers(-3, 5, (40, 1))
    rows = {"now": np.arange(0)}
    monkeypatch.setattr(at_batch, "poisson_batch", lambda *_: rows["now"])
    data = instance.task.observe(source, None, Moment(0, 0, 0, -1, 1, True, 1.0))[1]
    moved = []
    for k in range(40):
        sums = []
        for rows["now"] in (np.arange(k), np.arange(k + 1)):
            out = np.zeros(6)
            asking = at_batch.clipped_batch(out, np.full(6, 0.1), data, settings, Moment(0, 0, 0, -1, 1, True, 1.0), 0)
            answered(asking, settings.learn.learner)
            sums.append(out)
        moved.append(np.linalg.norm(sums[1] - sums[0], norm))
    assert 0.29 < max(moved) <= 0.3


# --- what it costs ------------------------------------------------------------------------------------------


def google_epsilon(history, delta):
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for release, times in history.counts:
        event = dp_accounting.LaplaceDpEvent(1 / release.release.epsilon)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(release.rate, event), times)
    return accountant.get_epsilon(delta)


def test_affordable_laplace_noise_spends_the_budget_and_no_more():
    for epsilon, rate in ((0.5, 0.02), (4.0, 0.25)):
        history = record(sampled_laplace(affordable_epsilon(epsilon, 1e-5, 60, rate), rate)) * 60
        assert 0.99 * epsilon < history.epsilon(1e-5).epsilon <= epsilon
        assert google_epsilon(history, 1e-5) == pytest.approx(epsilon, rel=0.01)
    whole = affordable_epsilon(2.0, 1e-5, 10, 1.0)
    assert 1.98 < (record(sampled_laplace(whole, 1.0)) * 10).epsilon(1e-5).epsilon <= 2.0
    with pytest.raises(BadInput, match="at least one release"):
        affordable_epsilon(1.0, 1e-5, 0, 0.1)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_no_ledger_exceeds_its_budget_and_who_has_spent_it_falls_silent(noise):
    instance, engine = prepared(MirrorDeep(noise, epsilon=3.0, batch=40, step=0.01), 12)
    peers, accountant = instance.plan.tables["peer"], instance.plan.accountant
    engine.advance(0, 12)
    assert (peers.learn.stopped == 0).all() and (accountant.paid(instance.plan.tables).releases == 12).all()
    assert engine.updates == 60
    engine.advance(12, 40)
    assert (peers.learn.stopped > 0).all() and weights(instance).sum() == pytest.approx(5)
    assert engine.updates == 60
    for release, paid in zip(accountant.releases, accountant.paid(instance.plan.tables).epsilon):
        assert 2.9 < paid <= 3.0
        assert (record(release) * 12).epsilon(1e-5).epsilon == pytest.approx(paid, rel=2e-3)
    assert accountant.terms.relation == "add-remove" and accountant.terms.how == "assumed"  # sizes are public


def renyi_laplace(shift, order):
    """The Rényi divergence of Laplace noise of scale one, moved by `shift` (Mironov 2017, proposition 6)."""
    first, second = order / (2 * order - 1), (order - 1) / (2 * order - 1)
    return np.log(first * np.exp((order - 1) * shift) + second * np.exp(-order * shift)) / (order - 1)


def test_the_true_cost_of_published_noise():
    algorithm = MirrorDeep("published", epsilon=0.1, clip=1.0, batch=128)
    told = true_cost(algorithm, 10_000, 6_000, 150)
    assert told["epsilon of a round, truly, at most"] == pytest.approx(20.0)
    assert told["epsilon of the run, batches known, at least"] == pytest.approx(0.2 * 150 * 128 / 6000)
    secret = google_epsilon(record(sampled_laplace(0.2, 128 / 6000)) * 150, 1e-5)
    assert told["epsilon of the run, truly, at least"] == pytest.approx(secret, rel=0.02) and secret > 0.1
    # Laplace noise of scale 10 against a change of norm 2 is (2 / 10)^2 / 2-zCDP, whatever the direction
    rng = np.random.default_rng(0)
    for size in (1, 3, 1000):
        moved = rng.standard_normal(size) ** 3
        moved *= 0.2 / np.linalg.norm(moved)
        for order in (1.5, 2.0, 8.0, 64.0):
            assert renyi_laplace(np.abs(moved), order).sum() <= order * 0.2**2 / 2 * (1 + 1e-9)
    instance, engine = prepared(MirrorDeep("published", epsilon=0.1, batch=20), 6)
    engine.advance(0, 6)
    ledger = instance.plan.accountant.ledger(instance.plan.tables, [])
    assert ledger["nodes"][0]["spent"]["rho"] == pytest.approx(6 * 0.02)
    assert ledger["worst"]["epsilon"] > 0.1 and ledger["nodes"][0]["budget"] is None
    assert instance.plan.accountant.forecast().epsilon.max() == pytest.approx(ledger["worst"]["epsilon"])


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "key", "sentence"),
    [
        ({"noise": "gauss"}, "algorithm.noise", '"gaussian"'),
        ({"mixing": "pushsum"}, "algorithm.mixing", '"push-sum"'),
        ({"batch": 81}, "algorithm.batch", "1 to 80, the samples of client"),
        ({"batch": 0}, "algorithm.batch", "at least 1|positive"),
        ({"epsilon": 0.0}, "algorithm.epsilon", "a positive number"),
        ({"epsilon": float("nan")}, "algorithm.epsilon", "a positive number"),
        ({"delta": 1.0}, "algorithm.delta", "between 0 and 1"),
        ({"clip": float("inf")}, "algorithm.clip", "a positive number"),
        ({"step": -0.1}, "algorithm.step", "a positive number"),
        ({"fall": -1.0}, "algorithm.fall", "at least 0"),
        ({"radius": -1.0}, "algorithm.radius", "at least 0"),
    ],
)
def test_bad_input(change, key, sentence):
    with pytest.raises(BadInput, match=sentence) as caught:
        prepared(MirrorDeep(**({"batch": 20} | change)), 4)
    assert caught.value.key == key


def test_a_privacy_table_is_refused():
    with pytest.raises(BadInput, match="of its own in"):
        Federation(SMALL, MirrorDeep(batch=20), CHANGING, privacy=Privacy(epsilon=1.0), rounds=4).instance()


# --- with a network -----------------------------------------------------------------------------------------


def test_of_another_protection_it_promises_nothing():
    """What is said of the noise is said of its own: with another part in its place, the ledger says what holds."""
    assert Federation(SMALL, MirrorDeep(batch=10), CHANGING, rounds=4).check()["epsilon of the run"] == 1.0
    for other in (Openly(), at_batch.AtBatch(epsilon=8.0)):
        assert Federation(SMALL, MirrorDeep(batch=10, protect=other), CHANGING, rounds=4).check() == {}


def test_a_network_learns_among_peers_and_what_was_paid_is_told():
    pytest.importorskip("torch")
    from archipel.problems.deep import Deep

    problem = Deep(model="mlp", widths=(16,), clients=5, center=0.3, spread=0.4)
    algorithm = MirrorDeep(epsilon=20.0, batch=64, step=0.5, clip=1.0)
    result = Federation(problem, algorithm, CHANGING, rounds=40, every=20).run()
    assert result.final("accuracy") > 0.6
    assert 0 < result.ledgers[0]["worst"]["epsilon"] <= 20
    assert result.theory["epsilon of the run"] == 20
    again = Federation(problem, algorithm, CHANGING, rounds=40, every=20).run()
    assert (again.models[0]["clients"] == result.models[0]["clients"]).all()
