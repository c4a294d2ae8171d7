"""A replay follows the simulation to the last bit, on every topology, also when nodes are killed on the way."""

import random

import numpy as np
import pytest
from harness import Village, assert_same, simulated

from archipel import Delay, Environment, Federation, Linear, OnlineFed, PaoFed, SignSgd, Synthetic
from archipel.algorithms.deep import DpFedAvgDeep, FedAvgDeep, MirrorDeep
from archipel.algorithms.fedavg import FedAdam, FedAvg, FedBuff, Scaffold
from archipel.algorithms.gossip import Gossip
from archipel.algorithms.mirror import DualAveraging, MirrorDescent, OnlinePushSum, SaddleMirrorDescent
from archipel.algorithms.npfl import Npfl, NpflRl
from archipel.algorithms.pgfl import Pgfl
from archipel.algorithms.pldp_fl import PldpFl
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.environment import schedule
from archipel.parts.protect.correlated import Correlated
from archipel.parts.protect.in_turn import InTurn
from archipel.parts.share.top_k import TopK
from archipel.privacy.policy import Privacy
from archipel.problems.clustered import Related
from archipel.problems.drifting import Drifting
from archipel.problems.networked import Regression
from archipel.topology import Digraph, Peers, Servers, Star

STREAM = Synthetic(clients=6, features=20, test=20, horizon=60, samples=(15, 30, 45, 60))
LATE = Environment(availability=(0.6, 0.3, 0.1, 1.0), delay=Delay(delta=0.5, limit=4))
AWAY = Environment(availability=(0.6, 0.9, 0.5))
SOME = Environment(availability=(0.9, 0.7), delay=Delay(delta=0.4, limit=4))
SURE = Environment(availability=(0.9, 0.7), delay=Delay("fixed", rounds=2))  # late, and never lost
FULL = Synthetic(clients=6, features=20, test=20, horizon=60, samples=(60,))
RELATED = Related(clients=9, tasks=2, size=4, samples=(2, 6), test=9)
RING = Servers(servers=3, shape="ring", clusters=2)
STORED = Linear(clients=5, size=6, samples=30, test=20)

FADING = Digraph(phases=4, fade=0.2, window=8)

TABLE = {
    "pao-fed-c2": Federation(STREAM, PaoFed(step=0.2, limit=4), environment=LATE, rounds=60),
    "pao-fed-u1": Federation(STREAM, PaoFed(step=0.2, variant="U1", order="random"), environment=LATE, rounds=40),
    "pso-fed": Federation(STREAM, PaoFed(step=0.2, asked=0.4, autonomous=False), environment=LATE, rounds=40),
    "online-fed": Federation(STREAM, OnlineFed(step=0.2, asked=0.5, limit=4), environment=LATE, rounds=40),
    "sign-sgd": Federation(STREAM, SignSgd(), environment=LATE, rounds=30),
    "fedavg-clusters": Federation(RELATED, FedAvg(batch=2, tau=0.3, limit=3), Star(clusters=2), LATE, rounds=12),
    "scaffold": Federation(STORED, Scaffold(batch=7, limit=2), Star(), SURE, rounds=12),
    "scaffold-peers": Federation(STORED, Scaffold(batch=7, limit=2), Peers(shape="ring"), SOME, rounds=12),
    "fedadam": Federation(STORED, FedAdam(limit=2), Servers(servers=2, shape="ring"), SOME, rounds=12),
    "fedbuff-top-k": Federation(STORED, FedBuff(buffer=3, share=TopK(2)), Star(), SOME, rounds=12),
    "gossip": Federation(FULL, Gossip(step=0.2), Digraph(), SOME, rounds=30),
    "zcdp-nfl": Federation(
        Regression(clients=6), ZcdpNfl(), Peers(mean_degree=2.5), AWAY, Privacy(epsilon=2.0, clip=1.0), rounds=25
    ),
    "zcdp-nfl-servers": Federation(Regression(clients=6), ZcdpNfl(), Servers(servers=3, shape="ring"), AWAY, rounds=15),
    "npfl-discover": Federation(
        Related(clients=3, tasks=2, size=4, samples=(3, 6), test=9),
        Npfl(look=2),
        Peers(shape="complete", clusters="discover"),
        rounds=12,
    ),
    "npfl-rl": Federation(RELATED, NpflRl(), Peers(mean_degree=4.0, clusters=2), AWAY, rounds=12),
    "pgfl": Federation(RELATED, Pgfl(some=2, tau=0.3), RING, AWAY, rounds=12),
    "pgfl-published": Federation(RELATED, Pgfl(form="published", tau=0.3), RING, AWAY, rounds=12),
    "mirror-descent": Federation(
        FULL, MirrorDescent(limit=3), Digraph(), SOME, Privacy(epsilon=2.0, clip=1.0), rounds=40
    ),
    "mirror-correlated": Federation(
        FULL, MirrorDescent(protect=Correlated()), Digraph(), SOME, Privacy(epsilon=2.0, clip=1.0), rounds=20
    ),
    "pao-fed-correlated": Federation(
        STREAM,
        PaoFed(step=0.2, limit=4, protect=Correlated("tree")),
        environment=LATE,
        privacy=Privacy(epsilon=4.0, clip=1.0),
        rounds=20,
    ),
    "mirror-fading": Federation(FULL, MirrorDescent(limit=3), FADING, SOME, rounds=40),
    "dual-averaging": Federation(
        FULL,
        DualAveraging(limit=3),
        Digraph(phases=4, fade=0.2, window=8),
        SOME,
        Privacy(epsilon=2.0, clip=1.0),
        rounds=40,
    ),
    "fedavg-deep": Federation(STORED, FedAvgDeep(0.05, 30, sampling="optimal", draws=2), environment=LATE, rounds=12),
    "fedavg-deep-peers": Federation(STORED, FedAvgDeep(0.05, 10), Peers(shape="ring"), SOME, rounds=8),
    "fedavg-deep-digraph": Federation(STORED, FedAvgDeep(0.05, 10), Digraph(), SOME, rounds=8),
    "fedavg-in-turn": Federation(
        Linear(clients=6, size=4, samples=8),
        FedAvg(protect=InTurn(every=3)),
        environment=AWAY,
        privacy=Privacy(epsilon=4.0, unit="client", clip=0.5),
        rounds=14,
    ),
    "dp-fedavg-deep": Federation(STORED, DpFedAvgDeep(0.05, 10, epsilon=4.0), RING, AWAY, rounds=8),
    "mirror-deep": Federation(STORED, MirrorDeep(batch=30, step=0.05), Digraph(), SOME, rounds=8),
    "pldp-fl": Federation(STORED, PldpFl(batch=30, draws=2, step=0.05), environment=AWAY, rounds=8),
}


@pytest.fixture(scope="module")
def engines():
    return {}


def engine_of(engines, name):
    if name not in engines:
        engines[name] = simulated(TABLE[name])
    return engines[name]


@pytest.mark.parametrize("name", TABLE)
def test_the_same_model_as_simulated(name, engines):
    village = Village(TABLE[name])
    village.run()
    assert_same(village, engine_of(engines, name))
    assert sum(engine_of(engines, name).messages) > 20


@pytest.mark.parametrize("name", ["pao-fed-c2", "zcdp-nfl", "pgfl", "mirror-descent", "pldp-fl", "dp-fedavg-deep"])
def test_the_same_model_when_nodes_are_killed_and_letters_get_lost(name, engines):
    """Any node may die at any moment; links lose and repeat. Nothing of it shows in the end."""
    draw, village = random.Random(name), Village(TABLE[name])
    village.lossy(loss=0.05, repeat=0.05, late=0.05)

    def each(who):
        if draw.random() < 0.05 and sum(host.lives for host in village.hosts.values()) < 60:
            village.kill_soon(who, draw.random())

    village.run(each)
    assert sum(host.lives for host in village.hosts.values()) > len(village.nodes) + 5
    assert_same(village, engine_of(engines, name))


@pytest.mark.parametrize(
    ("algorithm", "topology"),
    [(SaddleMirrorDescent(), Peers(shape="ring")), (OnlinePushSum(), Star())],
    ids=["peers", "star"],
)
def test_in_float32_numbers_are_rounded_where_a_simulation_rounds_them(algorithm, topology):
    """A float32 times a number of Python's is rounded at once, times one of NumPy's it is not."""
    problem = Drifting(clients=4, size=4, test=10)
    village = Village(Federation(problem, algorithm, topology, precision="float32", rounds=22))
    village.run()
    assert_same(village, simulated(village.federation))


def test_a_recorded_schedule_is_followed(tmp_path, engines):
    """What `archipel run --record` wrote, as the conditions of the deployment."""
    drawn = TABLE["pao-fed-c2"]
    instance = drawn.instance()
    np.savez(tmp_path / "schedule.npz", schedule=schedule(instance.conditions, drawn.rounds, drawn.seed))
    recorded = drawn.with_(environment=Environment(replay=str(tmp_path / "schedule.npz"), delay=Delay(limit=4)))
    village = Village(recorded)
    village.run()
    assert_same(village, engine_of(engines, "pao-fed-c2"))


SMALL = {
    "pao-fed-c2": TABLE["pao-fed-c2"].with_(
        problem=Synthetic(clients=2, features=8, samples=(6,), horizon=6), rounds=6
    ),
    "zcdp-nfl": TABLE["zcdp-nfl"].with_(problem=Regression(clients=3), topology=Peers(shape="ring"), rounds=3),
}


@pytest.mark.parametrize("most", [25, pytest.param(10**6, marks=pytest.mark.long)], ids=["some points", "every point"])
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("name", SMALL)
def test_a_crash_at_any_point_changes_nothing(name, power, most):
    """Every write, every half of one, every sync and every message, one after the other, is a node's last."""
    engine = simulated(SMALL[name])

    def played(point):
        village = Village(SMALL[name])
        for host in village.hosts.values():
            host.powerless, host.back = power, 0.1
        village.world.crash_at = point
        village.run()
        assert_same(village, engine)
        return village.world.points

    points = range(1, played(-1) + 1)
    assert len(points) > 60
    for point in points[:: 1 + len(points) // most]:
        played(point)


def test_a_ledger_is_charged_once_for_what_left_and_survives(engines):
    """Each peer's ledger holds exactly what a simulation pays, crashes or not."""
    draw, village = random.Random(5), Village(TABLE["zcdp-nfl"])
    village.run(lambda who: village.kill_soon(who, 0.5) if draw.random() < 0.02 else None)
    paid = engine_of(engines, "zcdp-nfl").instance.plan.tables["peer"]
    for k, name in enumerate(village.roster.names["peer"]):
        charges = village.charges(name)
        assert len(charges) == paid.protect.releases[k, 0] > 0
        assert sum(charges) == pytest.approx(paid.protect.spent[k, 0], rel=1e-10)
