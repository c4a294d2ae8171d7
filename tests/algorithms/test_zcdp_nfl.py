"""zCDP-NFL against CVXPY, against the thesis' steps written again, and against its own sensitivity."""

import math
from dataclasses import replace

import numpy as np
import pytest

from archipel.algorithms.zcdp_nfl import DpNfl, PAdmm, ZcdpGradNfl, ZcdpNfl
from archipel.environment import Delay, Environment
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.node import Moment, row
from archipel.parts.ask.drawn import Drawn
from archipel.parts.learn.fitting import Fit
from archipel.parts.learn.gradient import Gradient
from archipel.parts.mix.dual import adjacency
from archipel.privacy.bounding import Bounds, project_ball
from archipel.privacy.policy import Privacy
from archipel.problems.linear import Linear
from archipel.problems.networked import Regression, centralised, solution
from archipel.problems.stored import Shard
from archipel.theory import zcdp_nfl as theory
from archipel.topology import Peers
from reference import zcdp_nfl as proved

SMALL = Regression(clients=6, samples=5, size=3, test=5)


def federation(problem=SMALL, algorithm=None, rounds=400, **parts):
    parts.setdefault("topology", Peers())
    return Federation(problem, algorithm or ZcdpNfl(), rounds=rounds, every=rounds, **parts)


def level(result):
    """The final normalised error, in dB."""
    return 10 * math.log10(result.final("deviation"))


# --- without noise it reaches the centralised solution --------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "bound"),
    [
        (Regression("ridge"), -100),
        (Regression("elastic-net"), -100),
        (Regression("elastic-net", zeros=3), -100),
        (Regression("least-absolute"), -35),
        (Regression("logistic"), -100),
        (Regression("huber"), -100),
    ],
    ids=["ridge", "elastic net", "elastic net with zeros", "least absolute", "logistic", "huber"],
)
def test_it_reaches_the_exact_solution_and_the_subgradient_method_does_not(problem, bound):
    exact = solution(problem, 1)
    if problem.zeros:
        assert np.sum(np.abs(exact) < 1e-9) == problem.zeros
    assert level(federation(problem).run()) < bound
    assert level(federation(problem, ZcdpGradNfl()).run()) > bound


def test_ridge_as_published_takes_no_proximal_step():
    assert level(federation(Regression(), ZcdpNfl(proximal=False)).run()) < -100


def test_the_published_subgradient_of_the_l1_part_misses_a_solution_with_zeros():
    assert level(federation(Regression("elastic-net", zeros=3), ZcdpNfl(proximal=False)).run()) > -60


def test_p_admm_reaches_ridge_exactly():
    assert level(federation(Regression(clients=12), PAdmm(), engine="plain").run()) < -100


def test_messages_that_may_be_late_are_refused():
    """The dual step moves both ends of a link or neither; a message that is lost on the way would move one."""
    for late in (Delay(delta=0.2, limit=3), Delay(kind="fixed", rounds=1, limit=2)):
        with pytest.raises(BadInput, match=r"environment\.delay"):
            federation(environment=Environment(delay=late)).instance()
    federation(environment=Environment(availability=0.5)).instance()


def test_a_graph_in_pieces_is_refused():
    with pytest.raises(BadInput, match="one piece"):
        federation(topology=Peers(shape="none")).run()


def test_ridge_in_closed_form_is_cvxpys():
    cp = pytest.importorskip("cvxpy")
    x, y = SMALL.drawn(3)
    model = cp.Variable(3)
    cp.Problem(cp.Minimize(cp.sum_squares(x @ model - y) / 5 + 0.7 * cp.sum_squares(model))).solve(solver="CLARABEL")
    assert centralised(x, y, 1 / 5, "squared", 0.0, 0.7) == pytest.approx(model.value, abs=1e-6)


def test_the_rate_of_theorem_4_is_met():
    """f(mean of the told models) - f(optimum) falls like n^-order at least, on a nonsmooth loss."""
    problem = Regression("least-absolute", clients=10, samples=30)
    instance = federation(problem, rounds=3200).instance()
    engine = federation(problem, rounds=3200, engine="serial").engine_of(instance)
    x, y = (part[: 10 * 30] for part in problem.drawn(1))
    best = np.abs(x @ solution(problem, 1) - y).sum() / 30
    total, gaps, moments = np.zeros((10, 8)), [], [200, 400, 800, 1600, 3200]
    for n in range(3200):
        engine.advance(n, n + 1)
        total += instance.plan.tables["peer"].protect.told
        if n + 1 in moments:
            means = total / (n + 1)
            local = zip(np.split(x, 10), np.split(y, 10), means)
            gaps.append(sum(np.abs(a @ w - b).sum() / 30 for a, b, w in local) - best)
    order = -np.polyfit(np.log(moments), np.log(np.abs(gaps)), 1)[0]
    assert order >= 0.95 * ZcdpNfl.rate.order


# --- the steps, written again ---------------------------------------------------------------------------------------


def fit_of(plan):
    """rho and eta(n) of a plan."""
    return Fit(plan.settings.mix.penalty, plan.settings.learn.step, plan.settings.learn.decay)


def written_again(instance, fit, rounds):
    """(3.8) to (3.10) with whole matrices, without noise."""
    links, source = adjacency(federation().setup().graph), instance.task.source
    degree = links.sum(1)[:, None]
    clients, l2 = len(degree), instance.task.regulariser[1]
    told, dual = np.zeros((2, clients, instance.task.size))
    for n in range(1, rounds + 1):
        gradient = np.empty_like(told)
        for k in range(clients):
            x, y = source.x[source.starts[k] : source.starts[k + 1]], source.y[source.starts[k] : source.starts[k + 1]]
            gradient[k] = 2 * x.T @ (x @ told[k] - y) / len(y) + 2 * l2 / clients * told[k]
        inertia = n**fit.decay / fit.step
        pulled = inertia * told + fit.penalty * (degree * told + links @ told) - dual - gradient
        told = pulled / (inertia + 2 * fit.penalty * degree)
        dual = dual + fit.penalty * (degree * told - links @ told)
    return told, dual


@pytest.mark.parametrize("engine", ["plain", "serial"])
@pytest.mark.parametrize("privacy", [None, Privacy(noise=0.0), Privacy(noise=0.0, mechanism="laplace")])
def test_zero_noise_and_no_bounds_are_the_plain_algorithm(engine, privacy):
    described = federation(rounds=40, engine=engine, privacy=privacy)
    instance = described.instance()
    described.engine_of(instance).advance(0, 40)
    told, dual = written_again(instance, fit_of(instance.plan), 40)
    assert np.abs(instance.plan.tables["peer"].model - told).max() < 1e-12
    assert np.abs(instance.plan.tables["peer"].mix.dual - dual).max() < 1e-12


@pytest.mark.parametrize("availability", [1.0, 0.5])
@pytest.mark.parametrize("privacy", [None, Privacy(epsilon=2.0, clip=1.0), Privacy(noise=0.5, epsilon=2.0, clip=1.0)])
def test_the_duals_sum_to_zero(availability, privacy):
    described = federation(rounds=200, privacy=privacy, environment=Environment(availability=availability))
    instance = described.instance()
    described.engine_of(instance).advance(0, 200)
    dual = instance.plan.tables["peer"].mix.dual
    assert np.abs(dual).max() > 0.1
    assert np.abs(dual.sum(0)).max() < 1e-9


# --- what one sample changes ----------------------------------------------------------------------------------------


def primal(described, data, seed):
    """A peer's primal step from a random public state, on its own data or another's."""
    plan, setup = described.instance().plan, described.setup()
    me = row(plan.tables["peer"], 0)
    rng = np.random.default_rng(seed)
    for part in (me.protect.told, me.mix.dual, me.mix.around):
        part[:] = rng.standard_normal(part.shape) * 3
    me.mix.degree[0] = 2
    project_ball(me.protect.told, plan.settings.protect.radius)  # what was told always is
    step = described.algorithm.stepping(setup, described.algorithm.fit(setup)).step
    step(me, data, plan.settings, Moment(0, 7, 1, -1, 2, True, 1.0), 0.0)
    return me.model.copy(), fit_of(plan)


@pytest.mark.parametrize("objective", ["ridge", "elastic-net", "least-absolute", "logistic", "huber"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("privacy", [Privacy(noise=1.0, clip=0.5), Privacy(noise=1.0, bounds=Bounds(2.0, 3.0, 1.5))])
def test_one_sample_never_changes_more_than_the_sensitivity(objective, mechanism, privacy):
    privacy = replace(privacy, mechanism=mechanism)
    described = federation(replace(SMALL, objective=objective), privacy=privacy, rounds=10)
    fit = fit_of(described.instance().plan)
    rng, gaps = np.random.default_rng(4), []
    names = {"ridge": "squared", "elastic-net": "squared", "least-absolute": "absolute"}
    bound = privacy.gradient_bound(names.get(objective, objective), 3)
    eta = fit.step / 8**fit.decay
    limit = proved.sensitivity(bound, 5, fit.penalty, 2, eta)
    for trial in range(40):
        x, y = rng.standard_normal((5, 3)) * 10 ** rng.uniform(-1, 3), rng.standard_normal(5) * 100
        y = np.sign(y) if objective == "logistic" else y
        other_x, other_y = x.copy(), y.copy()
        other_x[2], other_y[2] = rng.standard_normal(3) * 10 ** rng.uniform(-1, 4), -y[2]
        if trial % 2:
            other_x[2] = x[2] if objective != "logistic" else -x[2]
        ours, _ = primal(described, Shard(x, y), trial)
        theirs, _ = primal(described, Shard(other_x, other_y), trial)
        gaps.append(np.linalg.norm(ours - theirs, 1 if mechanism == "laplace" else 2))
    assert max(gaps) <= limit * (1 + 1e-12)
    if math.isinf(privacy.bounds.features) and objective != "elastic-net":
        assert max(gaps) > 0.5 * limit  # the bound is not idle


def test_an_unenforced_bound_is_exceeded_and_says_assumed():
    described = federation(privacy=Privacy(noise=1.0, clip=0.5, enforce=False), rounds=10)
    x, y = np.eye(5, 3) * 100, np.ones(5) * 100
    ours, settings = primal(described, Shard(x, y), 1)
    theirs, _ = primal(described, Shard(-x, y), 1)
    limit = proved.sensitivity(0.5, 5, settings.penalty, 2, settings.step / 8**settings.decay)
    assert np.linalg.norm(ours - theirs) > 10 * limit
    assert described.instance().plan.accountant.terms.how == "assumed"


# --- what is paid ---------------------------------------------------------------------------------------------------


def test_the_ledger_is_what_was_forecast_and_what_was_asked_for():
    result = federation(privacy=Privacy(epsilon=1.5, delta=1e-6, clip=1.0), rounds=100).run()
    (ledger,) = result.ledgers
    forecast = (
        federation(privacy=Privacy(epsilon=1.5, delta=1e-6, clip=1.0), rounds=100).instance().plan.accountant.forecast()
    )
    for k, node in enumerate(ledger["nodes"]):
        assert node["spent"]["epsilon"] == pytest.approx(forecast.epsilon[k], rel=1e-9)
        assert 1.5 * (1 - 1e-6) < node["spent"]["epsilon"] <= 1.5
        assert node["releases"] == 100
    assert ledger["guarantee"] == "enforced"


def test_a_peer_that_has_spent_its_budget_falls_silent():
    privacy = Privacy(noise=1.0, epsilon=(0.5, 1.0, 2.0, 4.0, 8.0, 100.0), clip=1.0)
    described = federation(algorithm=ZcdpNfl(penalty=2.0), privacy=privacy, rounds=150)
    instance = described.instance()
    engine = described.engine_of(instance)
    degrees = np.diff(described.setup().graph.links().starts)
    messages = 0
    for n in range(150):
        before = instance.plan.tables["peer"].protect.releases.copy()
        engine.advance(n, n + 1)
        spoke = (instance.plan.tables["peer"].protect.releases - before)[:, 0]
        messages += int((spoke * degrees).sum())
    assert engine.messages == [messages]
    paid = instance.plan.accountant.paid(instance.plan.tables)
    budgets = np.array(privacy.epsilon)
    assert (paid.epsilon <= budgets).all()
    assert 0 < paid.releases[0] < 100 and paid.releases[-1] == 150
    table = instance.plan.tables["peer"]  # and one more release of the poorest peer would have been too much
    next_one = proved.phi(proved.sensitivity(1.0, 5, 2.0, degrees[0], 0.4 / (paid.releases[0] + 1) ** 0.25), 1.0)
    assert table.protect.spent[0, 0] <= table.protect.limit[0, 0] < table.protect.spent[0, 0] + next_one


def test_the_corollary_is_the_ledgers_total_where_the_step_is_constant():
    zeta, rounds, first = 0.98, 60, 0.002
    algorithm = ZcdpNfl(penalty=2.0, step=0.3, decay=0.0)
    degrees = np.diff(federation().setup().graph.links().starts)
    sizes = proved.sensitivity(1.0, 5, 2.0, degrees, 0.3)
    noise = tuple(np.sqrt(proved.variance(sizes, first)).tolist())
    privacy = Privacy(noise=noise, schedule="geometric", zeta=zeta, clip=1.0, delta=1e-5)
    (ledger,) = federation(algorithm=algorithm, privacy=privacy, rounds=rounds).run().ledgers
    for node in ledger["nodes"]:
        assert node["spent"]["rho"] == pytest.approx(proved.corollary_phi(first, zeta, rounds), rel=1e-9)
        assert node["spent"]["epsilon"] <= proved.corollary_epsilon(first, zeta, rounds, 1e-5)


def test_only_what_was_really_sent_is_charged():
    """phi(n) = sensitivity(n)^2 / (2 sigma(n)^2) with the step of the round, over the rounds a peer was there."""
    privacy = Privacy(noise=0.3, schedule="geometric", zeta=0.99, clip=1.0)
    away = Environment(availability=0.6)
    described = federation(algorithm=ZcdpNfl(penalty=2.0), privacy=privacy, rounds=50, environment=away)
    instance = described.instance()
    engine = described.engine_of(instance)
    degrees = np.diff(described.setup().graph.links().starts)
    expected, releases = np.zeros(6), np.zeros(6)
    for n in range(50):
        before = instance.plan.tables["peer"].protect.told.copy()
        engine.advance(n, n + 1)
        there = (instance.plan.tables["peer"].protect.told != before).any(1)
        eta = 0.4 / (n + 1) ** 0.25
        expected += there * proved.phi(proved.sensitivity(1.0, 5, 2.0, degrees, eta), 0.3 * 0.99 ** (n / 2))
        releases += there
    assert 15 * 6 < releases.sum() < 45 * 6
    assert instance.plan.tables["peer"].protect.spent[:, 0] == pytest.approx(expected, rel=1e-12)


def test_noise_is_as_large_as_the_accountant_says():
    described = federation(Regression(clients=50, samples=5, size=20), privacy=Privacy(rho=0.5, clip=1.0), rounds=40)
    instance = described.instance()
    engine = described.engine_of(instance)
    table, scaled = instance.plan.tables["peer"], []
    for n in range(40):
        engine.advance(n, n + 1)
        scaled.append((table.protect.told - table.model) / table.protect.noise)
    scaled = np.array(scaled)
    assert scaled.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * scaled.size))
    assert abs(np.corrcoef(scaled[:-1].ravel(), scaled[1:].ravel())[0, 1]) < 4 / math.sqrt(scaled.size)


def test_more_privacy_costs_more_accuracy():
    errors = [level(federation(Regression(), privacy=Privacy(epsilon=e, clip=2.0)).run()) for e in (1.0, 4.0, 16.0)]
    assert errors[0] > errors[1] > errors[2]


def test_a_whole_client_costs_as_many_samples_as_it_has():
    one, all_ = (
        federation(privacy=Privacy(noise=1.0, clip=1.0, unit=unit), rounds=20).instance().plan.accountant.forecast().rho
        for unit in ("sample", "client")
    )
    assert all_ == pytest.approx(25 * one)


def test_per_round_rules_waste_noise():
    """(epsilon, delta)-DP-NFL is the same mechanism: under one accountant it pays less than what was asked for."""
    privacy = Privacy(epsilon=2.0, clip=1.0)
    waste, exact = (
        federation(algorithm=algorithm, privacy=privacy, rounds=100).instance().plan.accountant.forecast().epsilon.max()
        for algorithm in (DpNfl(), ZcdpNfl())
    )
    assert waste < 0.2 < exact == pytest.approx(2.0, rel=1e-6)


def test_the_theory_is_declared_beside_a_run():
    """(3.12), alpha_xi and the noise term of (3.21), the rate: as numbers of this very run."""
    privacy = Privacy(noise=0.2, schedule="geometric", zeta=0.95, clip=1.5)
    described = federation(algorithm=ZcdpNfl(penalty=2.0, step=0.3, decay=0.0), privacy=privacy, rounds=60)
    told, degrees = described.check(), np.diff(described.setup().graph.links().starts)
    assert told["sensitivity"] == pytest.approx(proved.sensitivity(1.5, 5, 2.0, degrees.min(), 0.3))
    spectrum = theory.spectrum(adjacency(described.setup().graph))
    assert told["noise_factor"] == pytest.approx(theory.noise_factor(spectrum, 2.0, 3))
    assert told["noise_term"] == pytest.approx(told["noise_factor"] / 60 * 6 * 0.2**2 / 0.05)
    assert told["order_of_rate"] == theory.RATE.order and (told["penalty"], told["step"]) == (2.0, 0.3)
    assert federation().check()["step"] <= federation().check()["step_bound"]


def test_a_class_that_is_none_is_bounded_too():
    """Labels of logistic regression are -1 and 1; whatever else a file says, the bound on the gradient holds."""
    described = federation(replace(SMALL, objective="logistic"), privacy=Privacy(noise=1.0, bounds=Bounds(2.0)))
    limit = proved.sensitivity(
        2.0, 5, fit_of(described.instance().plan).penalty, 2, fit_of(described.instance().plan).step
    )
    x, y = np.ones((5, 3)), np.ones(5)
    wild, more = x.copy(), y.copy()
    wild[0], more[0] = -5.0, 1000.0
    ours, theirs = (primal(described, Shard(*data), 3)[0] for data in ((x, y), (wild, more)))
    assert 0 < np.linalg.norm(ours - theirs) <= limit * (1 + 1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("objective", ["ridge", "least-absolute", "logistic", "huber"])
def test_a_sample_that_is_no_number_is_no_sample(bad, objective):
    described = federation(replace(SMALL, objective=objective), privacy=Privacy(noise=1.0, clip=1.0))
    x, y = np.ones((5, 3)), np.ones(5)
    wild, more = x.copy(), y.copy()
    wild[1, 2], more[2] = bad, bad
    with np.errstate(all="ignore"):
        ours, theirs = (primal(described, Shard(*data), 3)[0] for data in ((x, y), (wild, more)))
    limit = proved.sensitivity(1.0, 5, fit_of(described.instance().plan).penalty, 2, 1e9)
    assert np.linalg.norm(ours - theirs) <= 2 * limit  # two samples changed


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"privacy": Privacy(epsilon=1.0)}, "infinite sensitivity"),
        ({"privacy": Privacy(epsilon=1.0, bounds=Bounds(features=1.0, target=1.0))}, "infinite sensitivity"),
        ({"privacy": Privacy(epsilon=1.0, clip=1.0, relation="add-remove")}, "replace-one"),
        ({"privacy": Privacy(epsilon=(1.0, 2.0), clip=1.0)}, "one for each of the 6 clients"),
        ({"algorithm": {"penalty": -1.0}}, "positive"),
        ({"algorithm": {"decay": 2.0}}, "exponent"),
        ({"algorithm": ZcdpNfl(step=50.0, decay=0.0)}, "diverge"),
        ({"algorithm": PAdmm(), "privacy": Privacy(epsilon=1.0, clip=1.0)}, "minimisers"),
        ({"algorithm": PAdmm(), "problem": Regression("least-absolute")}, "ridge"),
    ],
)
def test_what_cannot_be_right_is_refused(parts, sentence):
    with pytest.raises(BadInput, match=sentence):
        if isinstance(parts.get("algorithm"), dict):
            parts = {"algorithm": ZcdpNfl(**parts["algorithm"])}
        federation(rounds=20, **parts).run()


@pytest.mark.parametrize("kind", [ZcdpNfl, DpNfl, ZcdpGradNfl, PAdmm])
def test_a_learn_part_is_refused_with_a_sentence_also_where_it_would_see_a_stream(kind):
    federation = Federation(Linear(clients=4, size=3, samples=5, features=6), kind(learn=Gradient()), rounds=2)
    with pytest.raises(BadInput, match="share a dual"):
        federation.run()


def test_who_is_asked_cannot_be_replaced_either():
    """Nobody asks in ADMM: the table was taken, and nothing came of it."""
    with pytest.raises(BadInput, match="share a dual"):
        Federation(SMALL, ZcdpNfl(ask=Drawn()), rounds=2).run()
