"""What must be true of private online mirror descent, with the real engine. Settings were fixed beforehand.

Each setting is one run of ten seeds side by side: a run of ten peers spends its time between rounds, ten runs as one
spend it once. Copies have data, graphs and noise of their own. All tests are long but the first ones.
"""

from itertools import pairwise

import numpy as np
import pytest

from archipel import Federation
from archipel.algorithms.mirror import (
    DualAveraging,
    LagrangianDescent,
    MirrorDescent,
    PublishedMirrorDescent,
    SaddleMirrorDescent,
)
from archipel.figures.mirror import played, section_2_4
from archipel.node import leaves, mapped
from archipel.parts.learn import regret as counters
from archipel.parts.learn.constraints import Budget
from archipel.parts.learn.regret import Record
from archipel.privacy.policy import Privacy
from archipel.problems.drifting import Drifting, GrowingMean
from archipel.simulate.instance import Edges
from archipel.simulate.plain import PlainEngine
from archipel.theory.comparators import best
from archipel.topology import Digraph
from reference.regret import growth

SEEDS = range(101, 111)
MARKS = np.array([1000, 3162, 10_000, 31_623, 100_000])
MAPS = {
    "ball": {"region": "ball"},
    "simplex": {"region": "simplex"},
    "entropy": {"region": "simplex", "map": "entropy", "floor": 1e-3},
}
UNBALANCED = Digraph(shares="random", mean_degree=3.0)
CHANGING = Digraph(shares="random", mean_degree=3.0, phases=4)


def laplace(epsilon, clip):
    return None if epsilon is None else Privacy(mechanism="laplace", epsilon=epsilon, clip=clip)


# --- ten seeds in one run ---------------------------------------------------------------------------------------------


def together(federation, seeds):
    """The instances of some seeds as one, and the seeds' own: tables, links and streams one after the other."""
    instances = [federation.instance(seed) for seed in seeds]
    first, clients = instances[0], instances[0].task.clients
    columns = zip(*(leaves(s.plan.tables["peer"]) for s in instances))
    joined = mapped(lambda _: np.concatenate(next(columns)), first.plan.tables["peer"])
    source = first.task.source
    lean = np.concatenate([s.task.source.lean for s in instances])
    assert all(np.array_equal(s.task.source.centre, source.centre) for s in instances), "one path for all seeds"
    phases = tuple(
        chained([s.links["peer", "peer"][p] for s in instances], clients) for p in range(len(first.graph.across))
    )
    instance = first._replace(
        plan=first.plan._replace(tables={"peer": joined}),
        task=first.task._replace(source=source._replace(lean=lean), clients=clients * len(instances)),
        links={("peer", "peer"): phases},
        conditions=federation.environment.conditions(clients * len(instances), 0),
    )
    return instance, lean


def chained(edges, clients):
    """Links that do not meet, as one."""
    starts = [np.zeros(1, np.int64)]
    for each in edges:
        starts.append(each.starts[1:] + starts[-1][-1])
    senders = np.concatenate([each.senders + i * clients for i, each in enumerate(edges)])
    weights, fan_out = (np.concatenate([getattr(each, name) for each in edges]) for name in ("weights", "fan_out"))
    return Edges(np.concatenate(starts), senders, weights, fan_out)


def counted(federation, seeds, marks, columns):
    """{column: (seeds, marks)}: nodes' counters, a mean over each copy's peers, in one compiled run; and all leans."""
    instance, lean = together(federation, seeds)
    engine = federation.with_(engine="serial").engine_of(instance)
    found, done = {name: [] for name in columns}, 0
    for mark in marks:
        engine.advance(done, mark)
        done = mark
        for name in columns:
            values = instance.plan.tables["peer"].learn.played[:, name]
            found[name].append(values.reshape(len(seeds), -1).mean(1))
    return {name: np.array(values).T for name, values in found.items()}, instance, lean


def drawn_again(problem, instance, lean, marks):
    """(seeds, marks, ...) of features and targets, summed up or kept, for comparators: the stream that was played."""
    whole = Drifting(**{**vars(problem), "clients": len(lean)})
    source = instance.task.source._replace(lean=lean)
    return lambda first, last: whole.past(source, instance.seed, first, last)


def exponent(marks, curves):
    """The fitted exponent of the mean over seeds."""
    return growth(marks, curves).exponent


# --- push-sum ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixing", ["push-sum", "plain"])
def test_push_sum_finds_the_optimum_on_unbalanced_graphs_where_5_13_does_not(mixing):
    """Deterministic strongly convex losses, step 1/t, 2,000 rounds, ten graphs: under 1 % against more than 10 %."""
    problem = Drifting(clients=10, size=3, noise=0.0, lean=0.5)
    algorithm = MirrorDescent(region="anywhere", step=1.0, decay=1.0, mixing=mixing)
    away = []
    for seed in SEEDS:
        instance = Federation(problem, algorithm, UNBALANCED, rounds=2000).instance(seed)
        rows = whole_run(instance)
        optimum = (instance.task.source.centre + instance.task.source.lean).mean(0)
        away.append(np.linalg.norm(rows - optimum, axis=1).max() / np.linalg.norm(optimum))
    print(mixing, np.round(away, 4))
    assert max(away) < 0.01 if mixing == "push-sum" else min(away) > 0.10


def whole_run(instance):
    """The models after 2,000 rounds, by matrices: a round of all nodes at once. Equal to the engine's, see below."""
    links, count = instance.graph.links(), instance.task.clients
    graph = np.zeros((count, count))
    graph[np.repeat(np.arange(count), np.diff(links.starts)), links.senders] = links.weights
    graph[np.diag_indices(count)] = 1 - graph.sum(0)
    points, divided = (
        instance.task.source.centre + instance.task.source.lean,
        "weight" in instance.plan.turns[0].word._fields,
    )
    models, weights = np.zeros_like(points), np.ones(count)
    check, rows = PlainEngine(instance), instance.plan.tables["peer"]
    for t in range(1, 2001):
        moved = models - (models - points) / t / weights[:, None]
        mixed = graph @ (weights[:, None] * moved)
        weights = graph @ weights if divided else weights
        models = mixed / weights[:, None]
        if t <= 5:  # the engine does the same
            check.advance(t - 1, t)
            assert np.allclose(rows.model, models, rtol=0, atol=1e-12)
    return models


@pytest.mark.long
@pytest.mark.parametrize("mixing", ["push-sum", "plain"])
def test_push_sum_finds_the_optimum_in_the_engine(mixing):
    """All 2,000 rounds compiled, ten graphs in one run."""
    algorithm = MirrorDescent(region="anywhere", step=1.0, decay=1.0, mixing=mixing)
    federation = Federation(Drifting(size=3, noise=0.0, lean=0.5), algorithm, UNBALANCED, rounds=2000)
    instance, _ = together(with_one_path(federation), SEEDS)
    federation.with_(engine="serial").engine_of(instance).advance(0, 2000)
    optimum = instance.task.source.centre[0]  # clients' leans add up to zero
    apart = np.linalg.norm(instance.plan.tables["peer"].model.reshape(len(SEEDS), -1, 3) - optimum, axis=-1).max(1)
    away = apart / np.linalg.norm(optimum)
    print(mixing, np.round(away, 4))
    assert max(away) < 0.01 if mixing == "push-sum" else min(away) > 0.10


# --- as published -----------------------------------------------------------------------------------------------------


def test_as_published_the_gradient_is_not_needed(tmp_path):
    """Algorithm 3 in 2.4's setting: replacing the gradient by zero changes the mean regret by less than 1 %."""
    graph, regrets = section_2_4(tmp_path), {}
    for gradient in ("kept", "zero"):
        algorithm = PublishedMirrorDescent(gradient=gradient)
        federation = Federation(GrowingMean(), algorithm, graph, rounds=50, engine="plain")
        regrets[gradient] = np.mean([played(federation, seed).regret for seed in SEEDS])
    print(regrets)
    assert abs(regrets["zero"] / regrets["kept"] - 1) < 0.01


# --- static regret ----------------------------------------------------------------------------------------------------


def static(kind, loss, name, epsilon):
    """The exponent of the static regret.

    Logistic: (2.6), own losses against the best fixed model in hindsight. Linear: everyone's expected loss, since (2.6)
    falls below zero there (clients lean to their own data), and what is negative grows as no power.
    """
    space = "ball" if name == "ball" else "simplex"
    problem = Drifting(loss=loss, space=space, noise=0.3, lean=0.1, sharpness=8.0)
    longest = 2.0 if loss == "linear" else 1.0  # of a gradient; logistic features have L1 norm one
    halved = kind is DualAveraging and name == "entropy"  # of L1 norm one: components differ by one at most
    algorithm = kind(**MAPS[name], gradient=longest / 2 if halved else longest)
    federation = Federation(problem, algorithm, UNBALANCED, privacy=laplace(epsilon, longest), rounds=int(MARKS[-1]))
    found, instance, lean = counted(with_one_path(federation), SEEDS, MARKS, [counters.LOST, counters.BEHIND])
    past, region = drawn_again(problem, instance, lean, MARKS), algorithm.mapped(problem.size)
    own = found[counters.LOST] - best_fixed(past, problem, region, instance.task.loss)
    regrets = found[counters.BEHIND] if loss == "linear" else own
    print(kind.__name__, loss, name, epsilon, "own losses:", np.round(own.mean(0), 2))
    return exponent(MARKS, regrets), regrets.mean(0)


def with_one_path(federation):
    """What is best for all is the same in every seed (its angle is the first seed's): seeds differ in all else."""
    problem = federation.problem

    class OnePath(Drifting):
        def path(self, seed, rounds):
            return Drifting.path(self, SEEDS[0], rounds)

    return federation.with_(problem=OnePath(**vars(problem)))


def best_fixed(past, problem, region, loss):
    """(seeds, marks): the loss of each copy's best fixed model, a client's share, up to each mark."""
    records = [Record(None, loss, 0.0, problem.clients, problem.size) for _ in SEEDS]
    edges, found = sorted({*range(0, int(MARKS[-1]), 2000), *MARKS.tolist()}), []
    for first, last in pairwise(edges):
        features, targets = past(first, last)  # of all copies
        for copy, record in enumerate(records):
            mine = slice(copy * problem.clients, (copy + 1) * problem.clients)
            record.add(features[:, mine].reshape(-1, problem.size), targets[:, mine].reshape(-1))
            record.done = last
        if last in MARKS:
            totals = [record.until(last) for record in records]
            found.append([total.value(best(total, region)) / problem.clients for total in totals])
    return np.array(found).T


@pytest.mark.long
@pytest.mark.parametrize("loss", ["linear", "logistic"])
@pytest.mark.parametrize("name", MAPS)
def test_static_regret_is_sublinear(loss, name):
    """At most 0.65 without noise and for epsilon of 1 and more; for 0.1 what is measured is printed.

    Where a round is worth less than the noise hides, it is linear for long: with labels drawn by their features, which
    leaves 0.005 a round to learn on the simplex, the exponents at epsilon 1 were 0.74 (Euclidean) and 0.72 (entropy).
    """
    found = {epsilon: static(DualAveraging, loss, name, epsilon) for epsilon in (None, 10.0, 1.0, 0.1)}
    print(loss, name, {e: (round(x, 3), np.round(r, 1)) for e, (x, r) in found.items()})
    assert all(found[epsilon][0] <= 0.65 for epsilon in (None, 10.0, 1.0))


@pytest.mark.long
@pytest.mark.parametrize(("loss", "name"), [*[("linear", name) for name in MAPS], ("logistic", "simplex")])
def test_static_regret_of_mirror_descent_is_sublinear(loss, name):
    """The same where steps are projected before they are mixed.

    Not with entropy for logistic losses: 0.672 at epsilon 1. On the ball their regret (2.6) falls below zero.
    """
    found = {epsilon: static(MirrorDescent, loss, name, epsilon) for epsilon in (None, 10.0, 1.0)}
    print(loss, name, {e: (round(x, 3), np.round(r, 1)) for e, (x, r) in found.items()})
    assert all(growing <= 0.65 for growing, _ in found.values())


# --- dynamic regret ---------------------------------------------------------------------------------------------------


def dynamic(loss, name, drift, epsilon):
    """The exponent of the dynamic regret (5.7): everyone's expected loss against the best model of each round."""
    space = "ball" if name == "ball" else "simplex"
    problem = Drifting(loss=loss, space=space, noise=0.1, lean=0.1, drift=drift, speed=0.3)
    place = MirrorDescent(**MAPS[name]).mapped(problem.size)
    radius = (0.6 if loss == "distance" else 1.0) if name == "ball" else 0.6 / problem.size
    path = 0.3 * radius * (np.sqrt(problem.size) if place.geometry else 1.0) if drift else 0.0
    algorithm = MirrorDescent(**MAPS[name], gradient=1.5, path=path, drift=drift)
    federation = Federation(problem, algorithm, CHANGING, privacy=laplace(epsilon, 1.5), rounds=int(MARKS[-1]))
    found, _, _ = counted(with_one_path(federation), SEEDS, MARKS, [counters.BEHIND])
    return exponent(MARKS, found[counters.BEHIND]), found[counters.BEHIND].mean(0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("loss", "name"), [("distance", "ball"), ("distance", "simplex"), ("distance", "entropy"), ("linear", "ball")]
)
def test_dynamic_regret_follows_the_path(loss, name):
    """Where the path grows as T^a: at most (1 + a)/2 + 0.1, without noise and at epsilon 1, on a changing graph."""
    found = {(a, e): dynamic(loss, name, a, e) for a in (0.0, 0.25, 0.5) for e in (None, 1.0)}
    print(loss, name, {key: (round(x, 3), np.round(r, 1)) for key, (x, r) in found.items()})
    assert all(found[a, e][0] <= (1 + a) / 2 + 0.1 for a, e in found)


# --- budgets ----------------------------------------------------------------------------------------------------------

BUDGET_MARKS = np.array([100, 316, 1000, 3162, 10_000, 31_623, 100_000])


@pytest.mark.long
@pytest.mark.parametrize("kind", [SaddleMirrorDescent, LagrangianDescent])
@pytest.mark.parametrize("name", ["ball", "entropy"])
@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_violation_falls_while_regret_stays_sublinear(kind, name, epsilon):
    """The positive part of the signed average violation is below c T^-0.2, c from T = 100; regret below T^0.9.

    Square losses around a point that uses more than the budget has; caution 1.
    """
    space = "ball" if name == "ball" else "simplex"
    problem = Drifting(size=3, space=space, noise=0.5 if name == "ball" else 0.1, lean=0.1, reach=0.9)
    centre = Drifting.path(problem, SEEDS[0], 1)[0]
    cost = (1.0, 0.0, 0.0) if name == "entropy" else tuple(np.round(centre / np.linalg.norm(centre), 6))
    budget = -0.2 if name == "ball" else float(0.75 / 3)  # the start uses 0 on the ball, 1/3 on the simplex
    algorithm = kind(**MAPS[name], gradient=2.0, constraint=Budget("linear", cost, budget))
    federation = Federation(problem, algorithm, UNBALANCED, privacy=laplace(epsilon, 2.0), rounds=100_000)
    found, instance, _ = counted(with_one_path(federation), SEEDS, BUDGET_MARKS, [counters.OVERDRAWN, counters.BEHIND])
    violation = np.maximum(found[counters.OVERDRAWN] / BUDGET_MARKS, 0)
    region = algorithm.mapped(problem.size)
    within = best_within(centre, region, algorithm.constraint, problem.size)
    gap = 0.5 * (np.sum((within - centre) ** 2) - np.sum((instance.plan.settings.learn.known.minima[0] - centre) ** 2))
    regret = found[counters.BEHIND] - gap * BUDGET_MARKS
    print(
        kind.__name__, name, epsilon, "violation", np.round(violation.mean(0), 4), "regret", np.round(regret.mean(0), 1)
    )
    assert (violation.mean(0)[1:] <= violation.mean(0)[0] * (BUDGET_MARKS[1:] / 100) ** -0.2).all()
    assert (regret.max(0) < BUDGET_MARKS**0.9).all() and violation.mean(0)[0] > 0


def best_within(centre, region, constraint, size):
    """The best fixed model within the budget, for everyone's expected losses."""
    from archipel.theory.comparators import Quadratic

    total = Quadratic(np.eye(size), -centre, 0.0)
    return best(total, region, [constraint.constraint(size, float(constraint.budgets.mean()))])
