"""NPFL and NPFL-RL: against slow loops, closed forms and finite differences; what is refused."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from archipel import Delay, Environment, Federation
from archipel.algorithms.npfl import Nfl, Npfl, NpflRl, held_back
from archipel.draws import ACTION, key_of, uniform
from archipel.errors import BadInput
from archipel.node import Moment, row
from archipel.parts.learn import tau as borrowing
from archipel.parts.learn.primal import pulled
from archipel.parts.learn.solve import solver_of
from archipel.privacy.bounding import Bounds
from archipel.privacy.policy import Guard, Privacy
from archipel.problems.clustered import Related, segments
from archipel.problems.stored import Shard
from archipel.testing import check_algorithm
from archipel.theory.pgfl import centralised
from archipel.topology import Peers

SMALL = Related(clients=12, size=5, samples=(6, 20), spread=0.5, noise=(0.1, 0.4), test=20)
GRAPH = Peers(mean_degree=5.0, clusters=3)


def played(algorithm, topology=GRAPH, rounds=40, problem=SMALL, seed=2):
    federation = Federation(problem, algorithm, topology, rounds=rounds, seed=seed, engine="plain")
    instance = federation.instance()
    federation.engine_of(instance).advance(0, rounds)
    return instance.plan.tables["peer"], federation.setup()


def slow(setup, train, penalty, tau, regularisation, rounds, sign=1.0, cluster=None):
    """(6.11), (6.3) and the dual step, in matrices; sign = -1 is (6.6) as printed."""
    links = setup.graph.links()
    near = np.zeros((setup.task.clients,) * 2, bool)
    near[links.receivers, links.senders] = True
    cluster = setup.graph.cluster if cluster is None else cluster
    peers, size = setup.task.clients, setup.task.size
    model, dual = np.zeros((peers, size)), np.zeros((peers, size))
    share = regularisation / np.bincount(cluster)[cluster]
    for _ in range(rounds):
        new = np.zeros_like(model)
        for k in range(peers):
            x, y = train.of(k)
            same = [j for j in range(peers) if near[k, j] and cluster[j] == cluster[k]]
            lent = []
            for r in sorted(set(cluster) - {cluster[k]}):
                theirs = [model[j] for j in range(peers) if near[k, j] and cluster[j] == r]
                if theirs:
                    lent.append(np.mean(theirs, 0))
            borrowed = tau if lent else 0.0
            left = x.T @ x / len(y) + (share[k] + borrowed + penalty * len(same)) * np.eye(size)
            right = x.T @ y / len(y) + penalty / 2 * sum((model[k] + model[j] for j in same), np.zeros(size))
            right = right - dual[k] / 2 + (tau * np.mean(lent, 0) if lent else 0.0)
            new[k] = np.linalg.solve(left, right)
        for k in range(peers):
            same = [j for j in range(peers) if near[k, j] and cluster[j] == cluster[k]]
            dual[k] += sign * penalty * sum((new[k] - new[j] for j in same), np.zeros(size))
        model = new
    return model


@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_npfl_is_a_slow_loop(tau):
    peers, setup = played(Npfl(tau=tau), rounds=25)
    assert np.allclose(peers.model, slow(setup, segments(setup.task)[0][0], 3.0, tau, 0.01, 25), atol=1e-10)


def test_the_printed_sign_diverges_and_ours_does_not():
    """(6.6) as printed: the same loop with the other sign."""
    peers, setup = played(Npfl(tau=0.0), rounds=150)
    printed = slow(setup, segments(setup.task)[0][0], 3.0, 0.0, 0.01, 150, sign=-1.0)
    assert np.max(np.abs(printed)) > 1e6 and np.max(np.abs(peers.model)) < 10


def test_a_connected_cluster_reaches_its_solution():
    algorithm = Npfl(tau=0.0, penalty=0.5, regularisation=0.1)
    peers, setup = played(algorithm, replace(GRAPH, shape="complete"), rounds=250)
    cluster, weight = setup.graph.cluster, algorithm.weights(setup, setup.graph.cluster)
    best = centralised(segments(setup.task)[0][0], 0, weight, cluster, 3)
    assert np.allclose(peers.model, best[cluster], atol=1e-6)


def test_without_edges_everyone_has_its_own_ridge_solution():
    algorithm = Npfl(tau=0.3, regularisation=0.2)
    alone = replace(GRAPH, shape="none", force=True)
    with pytest.raises(BadInput, match="one piece"):
        played(algorithm, replace(alone, force=False))
    peers, setup = played(algorithm, alone, rounds=3)
    for k, (x, y) in enumerate(segments(setup.task)[0][0]):
        share = 0.2 / np.sum(setup.graph.cluster == setup.graph.cluster[k])
        own = np.linalg.solve(x.T @ x / len(y) + share * np.eye(5), x.T @ y / len(y))
        assert np.allclose(peers.model[k], own, atol=1e-8)


def test_nfl_is_npfl_of_one_cluster():
    nfl, setup = played(Nfl(), rounds=20)
    one, _ = played(Npfl(tau=0.4), replace(GRAPH, clusters=1), rounds=20)
    assert np.allclose(nfl.model, one.model, atol=1e-8)
    everyone = np.zeros(12, np.int64)
    assert np.allclose(
        nfl.model, slow(setup, segments(setup.task)[0][0], 3.0, 0.0, 0.01, 20, cluster=everyone), atol=1e-8
    )


@pytest.mark.parametrize("policy", ["dpg", "sac"])
def test_a_zero_learning_rate_is_npfl(policy):
    fixed, setup = played(Npfl(tau=0.2, validation=0.5), rounds=15)
    learned, _ = played(NpflRl(tau=0.2, policy=policy, rate=0.0), rounds=15)
    assert np.allclose(fixed.model, learned.model, atol=1e-8) and np.all(learned.mix.tau == 0.2)
    train = held_back(setup, 0.5)[0][0]
    assert np.allclose(fixed.model, slow(setup, train, 3.0, 0.2, 0.01, 15), atol=1e-8)


# --- learning tau -------------------------------------------------------------------------------------------


NOW = Moment(0, 5, key_of(2, 0, 5), -1, 1, True, 1.0)


def somebody(algorithm, rounds=3):
    """A peer after some rounds, with what it needs to act."""
    federation = Federation(SMALL, algorithm, GRAPH, rounds=rounds, engine="plain", seed=2)
    instance = federation.instance()
    federation.engine_of(instance).advance(0, rounds)
    peers = instance.plan.tables["peer"]
    k = int(np.argmax(peers.mix.lenders[:, 0] * peers.mix.degree[:, 0] > 0))
    me, (x, y) = row(peers, k), segments(instance.task)[0][0].of(k)
    pulled(me, instance.plan.settings, 0)
    return me, Shard(x, y), instance.plan.settings, k


SOLVE = solver_of(0, np.inf)
PRIMAL = borrowing.borrowing(SOLVE)


def judged(me, data, settings, tau):
    out = np.zeros(5)
    PRIMAL(out, me, data, settings, NOW, 0, tau)
    x, y = data.x[me.learn.cut[0] :], data.y[me.learn.cut[0] :]
    return np.sum((y - x @ out) ** 2) / len(y) + me.learn.shrinkage[0] / 2 * out @ out


def test_the_policy_gradient_is_the_derivative():
    """(6.13) against finite differences of (6.12)."""
    me, data, settings, _ = somebody(NpflRl(policy="dpg", tau=0.3))
    tau, h = me.mix.tau[0], 1e-5
    slope = (judged(me, data, settings, tau + h) - judged(me, data, settings, tau - h)) / (2 * h)
    assert np.isclose(borrowing.slope_of_value(PRIMAL)(me, data, settings, NOW, 0), slope, rtol=1e-6)


def test_the_actor_goes_where_it_is_better():
    """(6.14), action by action."""
    me, data, settings, k = somebody(NpflRl(policy="sac", tau=0.3, epochs=3, range=0.4))
    learn_tau = borrowing.tau_learner("sac", SOLVE, Guard(), False)
    for n in range(4, 10):
        moment = moment_of(k, n)
        expected = me.mix.tau[0]
        for epoch in range(3):
            alpha = 0.4 * (uniform(moment.key, ACTION, epoch) - 0.5)
            before = judged(me, data, settings, expected)
            after = judged(me, data, settings, min(max(expected + alpha, 0), 1))
            expected = min(max(expected - 0.04 * np.sign(after - before) * alpha, 0), 1)
        learn_tau(me, data, settings, moment, 0, 0.0)
        assert np.isclose(me.mix.tau[0], expected, atol=1e-14)


def moment_of(k, n):
    return Moment(k, n, key_of(2, k, n), -1, 1, True, 1.0)


def test_validation_data_are_never_learned_from():
    """Other validation data change tau, but the model for a given tau not at all."""
    algorithm = Npfl(tau=0.2, validation=0.4)
    peers, setup = played(algorithm, rounds=10)
    place = np.arange(len(setup.task.source.y)) - np.repeat(
        setup.task.source.starts[:-1], np.diff(setup.task.source.starts)
    )
    cut = np.repeat(peers.learn.cut[:, 0], np.diff(setup.task.source.starts))
    setup.task.source.y[place >= cut] = 1e6
    plan = algorithm.plan(setup)
    assert np.array_equal(plan.tables["peer"].learn.data.moment, peers.learn.data.moment)
    assert np.array_equal(plan.tables["peer"].learn.data.basis, peers.learn.data.basis)


def test_tau_learns_to_help():
    """Very similar clusters and little data: tau grows; very different ones: it falls."""
    few = replace(SMALL, samples=(8, 8), noise=1.0, clients=18)
    close, _ = played(NpflRl(policy="dpg", rate=0.05, tau=0.2), GRAPH, 80, replace(few, gammas=(0.0, 0.001, -0.001)))
    turned = replace(few, relation="turned", gammas=(5.0, 5.0, 5.0))
    apart, _ = played(NpflRl(policy="dpg", rate=0.05, tau=0.2), GRAPH, 80, turned)
    assert np.mean(close.mix.tau) > 0.2 > np.mean(apart.mix.tau) and np.median(close.mix.tau) > 0.2
    assert np.median(apart.mix.tau) < 0.2


# --- refusals and engines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm, key",
    [
        (partial(Npfl, penalty=0.0), "algorithm.penalty"),
        (partial(Npfl, penalty=np.inf), "algorithm.penalty"),
        (partial(Npfl, penalty=np.nan), "algorithm.penalty"),
        (partial(Npfl, regularisation=np.inf), "algorithm.regularisation"),
        (partial(Npfl, regularisation=np.nan), "algorithm.regularisation"),
        (partial(Npfl, curvature=np.nan), "algorithm.curvature"),
        (partial(NpflRl, rate=np.nan), "algorithm.rate"),
        (partial(NpflRl, rate=np.inf), "algorithm.rate"),
        (partial(Npfl, tau=-0.1), "algorithm.tau"),
        (partial(Npfl, regularisation=0.0), "algorithm.regularisation"),
        (partial(NpflRl, policy="ppo"), "algorithm.policy"),
        (partial(NpflRl, validation=0.0), "algorithm.validation"),
        (partial(NpflRl, epochs=0), "algorithm.epochs"),
        (partial(NpflRl, range=0.0), "algorithm.range"),
    ],
)
def test_bad_numbers_are_sentences(algorithm, key):
    with pytest.raises(BadInput) as caught:
        Federation(SMALL, algorithm(), GRAPH, rounds=3, engine="plain").run()
    assert caught.value.key == key


def test_a_look_at_validation_data_needs_bounds():
    policy = Privacy(rho=1.0, clip=1.0, enforce=False)
    with pytest.raises(BadInput, match="what tau learns from"):
        Federation(SMALL, NpflRl(), GRAPH, rounds=3, privacy=policy, engine="plain").run()
    result = Federation(SMALL, Npfl(), GRAPH, rounds=3, privacy=policy, engine="plain").run()
    assert result.ledger()["private"]


def test_messages_that_may_be_late_are_refused():
    """A dual step would take place at one end of a link only, and everyone would tend to a wrong point."""
    with pytest.raises(BadInput, match="must not be late"):
        Federation(SMALL, Npfl(), GRAPH, Environment(delay=Delay(delta=0.2, limit=3)), rounds=3).instance()


def test_a_peer_that_is_silent_does_not_drift_away():
    """Its privacy is spent early, and it still hears the others: duals sum to zero, and it stays near them."""
    policy = Privacy(epsilon=(9999.0,) * 7 + (3.0,), noise=0.05, enforce=False, bounds=Bounds(1.0, 1.0, radius=1.0))
    problem = Related(clients=8, tasks=2, gammas=(-0.2, 0.2), size=4, samples=(30, 40), test=20)
    federation = Federation(problem, Nfl(), Peers(shape="complete"), privacy=policy, rounds=200, engine="plain")
    instance = federation.instance()
    federation.engine_of(instance).advance(0, 200)
    peers = instance.plan.tables["peer"]
    assert np.all(peers.protect.releases[:7, 0] == 200) and peers.protect.releases[7, 0] < 100
    assert np.allclose(peers.mix.dual.sum(0), 0.0, atol=1e-8)
    assert np.linalg.norm(peers.model[7] - peers.model[:7].mean(0)) < 1.0


SPENT = Privacy(epsilon=(9999.0,) * 11 + (1.0,), noise=0.05, clip=1.0, enforce=False)  # the last falls silent
TABLE = {
    "npfl": Federation(SMALL, Npfl(), GRAPH, rounds=15),
    "npfl-rough": Federation(SMALL, Npfl(), GRAPH, environment=Environment(availability=0.6), rounds=15),
    "npfl-rl-dpg": Federation(SMALL, NpflRl(policy="dpg", epochs=3), GRAPH, rounds=15),
    "npfl-rl-sac": Federation(SMALL, NpflRl(policy="sac"), GRAPH, rounds=15),
    "nfl": Federation(SMALL, Nfl(), GRAPH, rounds=15),
    "nfl-silent": Federation(SMALL, Nfl(), GRAPH, privacy=SPENT, rounds=15),
}


@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_engines_agree(name):
    check_algorithm(TABLE[name], parallel=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", [3, 4])
def test_a_clipped_action_is_a_tie_in_every_engine(seed):
    """At tau = 0 half of the actions are cut off: the two models are one, and so must their values be."""
    federation = Federation(SMALL, NpflRl(rate=1.0, range=0.2), GRAPH, rounds=60, seed=seed)
    check_algorithm(federation)
