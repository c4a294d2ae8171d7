"""Servers as nodes of ADMM that have no data: against the centralised solution, and against one graph in matrices."""

import math
from dataclasses import replace

import numpy as np
import pytest

from archipel.algorithms.npfl import Nfl
from archipel.algorithms.zcdp_nfl import DpNfl, PAdmm, ZcdpGradNfl, ZcdpNfl
from archipel.environment import Delay, Environment
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.parts.mix.dual import adjacency
from archipel.parts.mix.mean import Mean
from archipel.privacy.policy import Privacy
from archipel.problems.networked import Regression
from archipel.testing import check_algorithm
from archipel.topology import Digraph, Servers, Star

SMALL = Regression(clients=7, samples=6, size=3, test=5)
PLACES = {"star": Star(), "servers": Servers(servers=3, shape="ring"), "path": Servers(servers=3, mean_degree=1.34)}


def played(algorithm, topology, rounds, problem=SMALL, **parts):
    federation = Federation(problem, algorithm, topology, rounds=rounds, every=rounds, engine="plain", **parts)
    instance = federation.instance()
    federation.engine_of(instance).advance(0, rounds)
    return instance, federation.setup()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("algorithm", [ZcdpNfl(), PAdmm(), ZcdpNfl(proximal=False)])
def test_servers_reach_the_centralised_solution(place, algorithm):
    """By CVXPY or in closed form, with everyone there and with half of the clients away."""
    for availability, bound in ((1.0, -100), (0.6, -60)):
        away = Environment(availability=availability)
        federation = Federation(SMALL, algorithm, PLACES[place], away, rounds=300, every=300, engine="plain")
        assert 10 * math.log10(federation.run().final("deviation")) < bound


def test_the_l1_part_and_the_subgradient_method_on_a_star():
    sparse = replace(SMALL, objective="elastic-net", samples=20)
    federation = Federation(sparse, ZcdpNfl(), Star(), rounds=400, every=400, engine="plain")
    assert 10 * math.log10(federation.run().final("deviation")) < -80
    rough = federation.with_(algorithm=ZcdpGradNfl()).run()
    assert -80 < 10 * math.log10(rough.final("deviation")) < -5


def in_matrices(setup, fit, rounds):
    """(3.8) to (3.10) on one graph of clients and servers; a server's loss is zero, and its step exact."""
    links, source, clients = adjacency(setup.graph), setup.task.source, setup.task.clients
    degree, l2 = links.sum(1)[:, None], setup.task.regulariser[1] / setup.task.clients
    told, dual = np.zeros((2, len(links), setup.task.size))
    for n in range(1, rounds + 1):
        gradient, inertia = np.zeros_like(told), np.zeros((len(links), 1))
        for k in range(clients):
            x, y = (part[source.starts[k] : source.starts[k + 1]] for part in (source.x, source.y))
            gradient[k] = 2 * x.T @ (x @ told[k] - y) / len(y) + 2 * l2 * told[k]
        inertia[:clients] = n**fit.decay / fit.step
        pulled = inertia * told + fit.penalty * (degree * told + links @ told) - dual - gradient
        told = pulled / (inertia + 2 * fit.penalty * degree)
        dual = dual + fit.penalty * (degree * told - links @ told)
    return told, dual


@pytest.mark.parametrize("place", PLACES)
def test_servers_are_nodes_without_data(place):
    algorithm = ZcdpNfl(penalty=0.7, step=0.2, decay=0.1, proximal=False)
    instance, setup = played(algorithm, PLACES[place], 25)
    told, dual = in_matrices(setup, algorithm.fit(setup), 25)
    tables = instance.plan.tables
    ours = np.concatenate([tables["client"].protect.told, tables["server"].protect.told])
    assert np.allclose(ours, told, atol=1e-12)
    assert np.allclose(np.concatenate([tables["client"].mix.dual, tables["server"].mix.dual]), dual, atol=1e-11)


@pytest.mark.parametrize("privacy", [None, Privacy(noise=0.5, epsilon=2.0, clip=1.0)])
def test_all_duals_sum_to_zero(privacy):
    """Whoever is away, or has no more to spend."""
    away = Environment(availability=0.5)
    instance, _ = played(ZcdpNfl(), PLACES["servers"], 80, environment=away, privacy=privacy)
    tables = instance.plan.tables
    total = tables["client"].mix.dual.sum(0) + tables["server"].mix.dual.sum(0)
    assert np.abs(tables["client"].mix.dual).max() > 0.1 and np.abs(total).max() < 1e-9


def test_servers_pay_nothing_and_clients_what_they_were_told():
    privacy = Privacy(epsilon=1.5, delta=1e-6, clip=1.0)
    federation = Federation(SMALL, ZcdpNfl(), Star(), privacy=privacy, rounds=40, every=40, engine="plain")
    (ledger,) = federation.run().ledgers
    for node in ledger["nodes"]:
        assert node["node"].startswith("client") and node["releases"] == 40
        assert 1.5 * (1 - 1e-6) < node["spent"]["epsilon"] <= 1.5


def test_what_does_not_fit_is_a_sentence():
    late = Environment(delay=Delay(delta=0.2, limit=3))
    with pytest.raises(BadInput, match="must not be late"):
        Federation(SMALL, ZcdpNfl(), Star(), late, rounds=3).instance()
    with pytest.raises(BadInput, match="both ways and are never late"):
        Federation(SMALL, PAdmm(), Digraph(), rounds=3)
    with pytest.raises(BadInput, match="share a dual"):
        ZcdpNfl(mix=Mean())


TABLE = {
    "zcdp-nfl": Federation(SMALL, ZcdpNfl(), PLACES["servers"], Environment(availability=0.7), rounds=12),
    "dp-nfl": Federation(SMALL, DpNfl(), Star(), privacy=Privacy(epsilon=4.0, clip=1.0), rounds=12),
    "zcdp-grad-nfl": Federation(SMALL, ZcdpGradNfl(), PLACES["servers"], rounds=12),
    "p-admm": Federation(SMALL, PAdmm(), Star(), rounds=12),
    "nfl": Federation(SMALL, Nfl(), PLACES["servers"], Environment(availability=0.7), rounds=12),
}


@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_engines_agree(name):
    check_algorithm(TABLE[name], parallel=True)
