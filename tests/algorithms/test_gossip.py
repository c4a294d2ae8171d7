"""Gossip: the rate of consensus, the fixed point of D-PSGD, and push-sum's exact mean."""

import numpy as np
import pytest

from archipel import Federation, Linear
from archipel.algorithms.gossip import Gossip
from archipel.parts.mix.push_sum import PushSum
from archipel.parts.share.portions import Portions
from archipel.problems.stored import Seen
from archipel.testing import check_algorithm
from archipel.topology import Digraph, Peers, Servers, Star, matrix

STORED = Linear(clients=8, size=3, samples=6, noise=0.5)
STILL = Gossip(step=1e-30, data="stored")


def matrix_of(instance):
    """The mixing matrix W of the links, what stays at home on the diagonal."""
    (edges,) = instance.links["peer", "peer"]
    mixing = np.zeros((instance.task.clients,) * 2)
    for k in range(len(mixing)):
        mine = slice(edges.starts[k], edges.starts[k + 1])
        mixing[k, edges.senders[mine]] = edges.weights[mine]
    return mixing + np.diag(1 - mixing.sum(1))


@pytest.mark.parametrize("topology", [Peers(shape="ring"), Peers(mean_degree=3.0), Peers(shape="complete")])
def test_consensus_is_reached_at_the_second_eigenvalue(topology):
    """Disagreement falls by |lambda_2| of the Metropolis matrix a round: its gap is 1 - lambda_2."""
    described = Federation(STORED, STILL, topology, rounds=300, precision="float64", engine="plain")
    instance = described.instance()
    mixing, models = matrix_of(instance), instance.plan.tables["peer"].model
    assert np.allclose(mixing, mixing.T) and np.allclose(mixing.sum(1), 1) and (mixing >= 0).all()
    second = np.sort(np.abs(np.linalg.eigvalsh(mixing)))[-2]
    models[:] = np.random.default_rng(3).standard_normal(models.shape)
    mean, far = models.mean(0), []
    engine = described.engine_of(instance)
    for n in range(25):
        engine.advance(n, n + 1)
        far.append(np.linalg.norm(models - mean))
    assert np.allclose(models.mean(0), mean, atol=1e-12)
    if second < 1e-9:
        assert far[0] < 1e-12
    else:
        assert (far[-1] / far[-6]) ** (1 / 5) == pytest.approx(second, rel=2e-3)


def test_the_fixed_point_of_d_psgd_solves_its_linear_equations():
    """x = W (x - gamma (A x - b)), blockwise: what plain gradient descent with gossip converges to."""
    gamma = 0.1
    described = Federation(
        STORED, Gossip(step=gamma, data="stored"), Peers(shape="ring"), rounds=1500, every=1500, precision="float64",
        engine="plain",
    )  # fmt: skip
    instance, source = described.instance(), described.instance().task.source
    x, y = source.x.reshape(8, 6, 3), source.y.reshape(8, 6)
    hessians = 2 * np.einsum("kni,knj->kij", x, x) / 6
    ends = 2 * np.einsum("kni,kn->ki", x, y) / 6
    mixing = np.kron(matrix_of(instance), np.eye(3))
    block = np.zeros((24, 24))
    for k in range(8):
        block[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] = hessians[k]
    expected = np.linalg.solve(np.eye(24) - mixing @ (np.eye(24) - gamma * block), gamma * mixing @ ends.ravel())
    np.testing.assert_allclose(described.run().models[0]["clients"].ravel(), expected, atol=1e-9)


def test_on_a_digraph_everyone_finds_the_exact_mean():
    """Push-sum: links go one way, no matrix is doubly stochastic, and the mean is exact all the same."""
    described = Federation(STORED, STILL, Digraph(mean_degree=3.0), rounds=200, precision="float64", engine="plain")
    instance = described.instance()
    models = instance.plan.tables["peer"].model
    models[:] = np.random.default_rng(4).standard_normal(models.shape)
    mean = models.mean(0)
    described.engine_of(instance).advance(0, 200)
    np.testing.assert_allclose(models, np.tile(mean, (8, 1)), atol=1e-10)
    assert instance.plan.tables["peer"].mix.mass.sum(0) == pytest.approx(8.0)


@pytest.mark.parametrize("share", [None, Portions(3)])
@pytest.mark.parametrize("least", [0.5, 0.01])
def test_the_fixed_point_of_gradient_push_solves_its_linear_equations(least, share):
    """M z = W (M z - gamma M / max(M, least) (A z - b)): the optimum up to gamma, if nobody is lighter than `least`."""
    gamma = 0.02
    algorithm = Gossip(step=gamma, data="stored", mix=PushSum(least=least), share=share)
    one_way = Digraph(mean_degree=2.0)
    described = Federation(STORED, algorithm, one_way, rounds=1200, every=1200, precision="float64", engine="plain")
    graph, source = matrix(one_way.build(8, described.seed).across[0]), described.instance().task.source
    values, vectors = np.linalg.eig(graph)
    mass = np.real(vectors[:, np.argmax(np.real(values))])
    mass *= 8 / mass.sum()
    assert 0.02 < mass.min() < 0.4
    x, y = source.x.reshape(8, 6, 3), source.y.reshape(8, 6)
    hessians, ends = 2 * np.einsum("kni,knj->kij", x, x) / 6, 2 * np.einsum("kni,kn->ki", x, y) / 6
    block = np.zeros((24, 24))
    for k in range(8):
        block[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] = hessians[k]
    heavy, counts = np.diag(np.repeat(mass, 3)), np.diag(np.repeat(mass / np.maximum(mass, least), 3))
    mixing = np.kron(graph, np.eye(3))
    left = heavy - mixing @ (heavy - gamma * counts @ block)
    expected = np.linalg.solve(left, gamma * mixing @ counts @ ends.ravel()).reshape(8, 3)
    found = described.run().models[0]["clients"]
    np.testing.assert_allclose(found, expected, atol=1e-8)
    best = np.linalg.solve(hessians.sum(0), ends.sum(0))
    assert (np.abs(found.mean(0) - best).max() < 0.02) == (least < 0.1)


def test_on_a_stream_it_is_lms_with_neighbours():
    described = Federation(
        STORED, Gossip(step=0.05), Peers(shape="ring"), rounds=6, precision="float64", engine="plain"
    )
    instance = described.instance()
    mixing, models, source = matrix_of(instance), np.zeros((8, 3)), instance.task.source
    from archipel.draws import key_of
    from archipel.node import Moment

    for n in range(6):
        for k in range(8):
            moment = Moment(k, n, key_of(1, k, n), -1, 1, True, 1.0)
            fresh, data = instance.task.observe(source, Seen(np.zeros(3), np.zeros(1)), moment)
            assert fresh
            models[k] += 0.05 * (data.target[0] - models[k] @ data.features) * data.features
        models = mixing @ models
    np.testing.assert_allclose(described.run().models[0]["clients"], models, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("topology", [Peers(shape="ring"), Digraph(), Star(), Servers(servers=3, shape="ring")])
@pytest.mark.parametrize("data", ["stream", "stored"])
def test_engines_agree(topology, data):
    check_algorithm(Federation(STORED, Gossip(data=data, batch=4), topology, rounds=8), parallel=True)
