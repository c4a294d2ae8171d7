"""How far one sample moves what peers release: by trying, against what they pay for."""

import math
from dataclasses import replace

import numpy as np
import pytest

from archipel.algorithms.npfl import Nfl, Npfl, NpflRl
from archipel.algorithms.zcdp_nfl import PAdmm
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.node import Moment, row
from archipel.parts.learn import tau as borrowing
from archipel.parts.learn.primal import pulled, reach_of_exact
from archipel.parts.learn.solve import solver_of
from archipel.privacy.account import release_cost
from archipel.privacy.bounding import Bounds
from archipel.privacy.policy import Privacy
from archipel.problems.clustered import Related
from archipel.problems.losses.supervised import SQUARED
from archipel.problems.networked import Regression
from archipel.problems.stored import Shard
from archipel.testing import check_algorithm
from archipel.topology import Peers

BOUNDS = Bounds(features=1.0, target=1.0, radius=0.8)
POLICY = Privacy(rho=1.0, bounds=BOUNDS)
FEW = Related(clients=9, size=3, samples=(6, 10), spread=0.5, test=10)
GRAPH = Peers(mean_degree=5.0, clusters=3)
NOW = Moment(0, 3, 77, -1, 2, True, 1.0)


def replaced(task, k, place, rng):
    """The task with one of client k's samples replaced by any other, in place; what it was, to put it back."""
    i = task.source.starts[k] + place
    was = task.source.x[i].copy(), task.source.y[i]
    task.source.x[i] = rng.normal(size=task.source.x.shape[1]) * 10 ** rng.uniform(-1, 2)
    task.source.y[i] = rng.normal() * 10 ** rng.uniform(-1, 2)
    return i, was


def data_of(task, k):
    mine = slice(task.source.starts[k], task.source.starts[k + 1])
    return Shard(task.source.x[mine], task.source.y[mine])


def a_state(plan, k, rng):
    """Peer k in a public state of the same numbers for every plan."""
    me = row(plan.tables["peer"], k)
    for part in (me.protect.told, me.mix.dual, me.mix.around):
        part[:] = rng.normal(size=part.shape) * 0.5
    me.mix.heard[0] = me.mix.degree[0]
    return me


@pytest.mark.parametrize(
    ("algorithm", "problem"),
    [
        (Nfl(penalty=0.2), FEW),
        (Npfl(penalty=0.2, tau=0.3), FEW),
        (PAdmm(penalty=0.2), Regression(clients=6, samples=5)),
    ],
)
def test_one_sample_never_moves_a_minimiser_further_than_is_paid_for(algorithm, problem):
    """A search over neighbouring data sets and public states: the bound of `learn.solve` holds, and is not idle."""
    topology = GRAPH if problem is FEW else Peers()
    setup = Federation(problem, algorithm, topology, privacy=POLICY, rounds=5).setup()
    rng, ratios, k = np.random.default_rng(3), [], 1
    act = algorithm.plan(setup).turns[0].act
    for trial in range(60):
        models = []
        for _ in range(2):
            plan = algorithm.plan(setup)
            me = a_state(plan, k, np.random.default_rng(trial))
            open_ = plan.settings._replace(protect=plan.settings.protect._replace(law=0))
            act(me, data_of(setup.task, k), row_of(plan.turns[0].word), open_, NOW)
            models.append(me.model.copy())
            reach = reach_of_exact(me, plan.settings, NOW)
            replaced(setup.task, k, 0, rng)
        assert np.linalg.norm(models[0]) <= BOUNDS.radius * (1 + 1e-12)
        ratios.append(np.linalg.norm(models[0] - models[1]) / reach)
    assert 0.1 < max(ratios) <= 1 + 1e-9


def row_of(word):
    return type(word)(*(np.zeros_like(part) for part in word))


def test_one_sample_never_moves_what_tau_learns_from_further_than_is_paid_for():
    """V(w(t)) - V(w(s)) of neighbouring data, a training or a validation sample replaced: the bound of `learn.tau`."""
    algorithm = NpflRl(penalty=0.2, validation=0.5)
    setup = Federation(FEW, algorithm, GRAPH, privacy=POLICY, rounds=5).setup()
    solve, rng, k = solver_of(SQUARED, BOUNDS.radius), np.random.default_rng(5), 2
    value, primal = borrowing.validating(borrowing.bounded_error), borrowing.borrowing(solve)
    compare = borrowing.comparing(primal, value, borrowing.no_noise)
    first = int(algorithm.plan(setup).tables["peer"].learn.cut[k, 0])
    count = int(np.diff(setup.task.source.starts)[k])
    ratios = {"train": [], "validation": []}
    for trial in range(120):
        place = 0 if trial % 2 else count - 1
        s, t = rng.uniform(size=2) * (1.0 if trial % 3 else 0.1)
        seen = []
        for _ in range(2):
            plan = algorithm.plan(setup)
            me = a_state(plan, k, np.random.default_rng(trial))
            me.mix.lenders[0] = 1
            me.mix.lent[:] = np.random.default_rng(1000 + trial).normal(size=3)
            pulled(me, plan.settings, 0)
            data = data_of(setup.task, k)
            seen.append(compare(me, data, plan.settings, NOW, 0, 0.0, s, t, 0))
            reach = borrowing.reach_of_difference(me, plan.settings, NOW, abs(t - s), count - first)
            replaced(setup.task, k, place, rng)
        ratios["train" if place < first else "validation"].append(abs(seen[0] - seen[1]) / reach)
    assert all(0.01 < max(found) <= 1 for found in ratios.values()), {n: max(f) for n, f in ratios.items()}


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_round_that_learns_tau_costs_a_release_more_for_every_look(mechanism, epochs):
    policy = replace(POLICY, mechanism=mechanism, rho=None, noise=5.0)
    federation = Federation(FEW, NpflRl(epochs=epochs), GRAPH, privacy=policy, rounds=4, engine="plain")
    instance = federation.instance()
    engine, peers = federation.engine_of(instance), instance.plan.tables["peer"]
    reach = reach_of_exact(row(peers, 0), instance.plan.settings, NOW)
    learns = 1 + epochs
    together = learns * reach if mechanism == "laplace" else math.sqrt(learns) * reach
    law = instance.plan.settings.protect.law
    expected = [release_cost(law, reach, 5.0)] + [release_cost(law, together, 5.0)] * 3
    engine.advance(0, 4)
    assert peers.protect.spent[0, 0] == pytest.approx(sum(expected), rel=1e-12)
    assert instance.plan.accountant.terms.how == "enforced"
    assert instance.plan.accountant.forecast().rho[0] >= peers.protect.spent[0, 0]


def test_an_unpaid_peer_keeps_its_tau():
    """What it would learn from is not released, so it must not show in what it may say later."""
    policy = Privacy(rho=(1e6,) * 8 + (1e-9,), noise=0.1, bounds=BOUNDS)
    federation = Federation(FEW, NpflRl(rate=1.0, range=0.5), GRAPH, privacy=policy, rounds=6, engine="plain")
    instance = federation.instance()
    federation.engine_of(instance).advance(0, 6)
    tau = instance.plan.tables["peer"].mix.tau[:, 0]
    assert tau[8] == 0.05 and (tau[:8] != 0.05).any()


def test_discovery_among_peers_is_paid_for():
    """The common model is a second release: the two cost the sum of what each would."""
    topology = Peers(mean_degree=4.0, clusters="discover")
    policy = Privacy(noise=5.0, bounds=BOUNDS)
    problem = Related(clients=12, size=4, samples=(10, 10), gammas=(-0.6, 0.0, 0.6), test=10)
    federation = Federation(problem, Npfl(look=8), topology, privacy=policy, rounds=6, engine="plain")
    instance = federation.instance()
    peers, setup = instance.plan.tables["peer"], federation.setup()
    degree = np.diff(setup.graph.links().starts)
    change = 2 * policy.gradient_bound("squared", 4) / 10
    own, common = change / (2 * (0.01 / 12 + 3.0 * degree)), change / (2 * (0.01 / 12 + degree))
    federation.engine_of(instance).advance(0, 6)
    assert peers.protect.spent[:, 0] == pytest.approx(6 * (own**2 + common**2) / (2 * 25.0), rel=1e-12)
    gap = peers.across.common.protect.told - peers.across.common.model
    assert (
        2.0 < gap.std() < 8.0 and abs(np.corrcoef(gap.ravel(), (peers.protect.told - peers.model).ravel())[0, 1]) < 0.5
    )


def test_clipping_a_minimiser_is_refused():
    for algorithm in (Nfl(), Npfl(), PAdmm()):
        with pytest.raises(BadInput, match="minimisers"):
            Federation(Regression(clients=6), algorithm, Peers(), privacy=Privacy(rho=1.0, clip=1.0), rounds=3).run()


TABLE = {
    "nfl": Federation(FEW, Nfl(), GRAPH, privacy=POLICY, rounds=10),
    "npfl": Federation(FEW, Npfl(), GRAPH, privacy=POLICY, rounds=10),
    "npfl-rl-sac": Federation(FEW, NpflRl(epochs=2), GRAPH, privacy=POLICY, rounds=10),
    "npfl-rl-dpg": Federation(FEW, NpflRl(policy="dpg"), GRAPH, privacy=POLICY, rounds=10),
    "discovery": Federation(FEW, Npfl(look=6), replace(GRAPH, clusters="discover"), privacy=POLICY, rounds=15),
}


@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_engines_agree(name):
    check_algorithm(TABLE[name], parallel=True)
