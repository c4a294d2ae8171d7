"""Large stars in blocks: as the plain engine has it, and the same bits on any number of threads."""

import numpy as np
import pytest

from archipel import Delay, Environment, Federation, Linear, OnlineFed, PaoFed, Synthetic
from archipel.algorithms.fedavg import FedAvg
from archipel.environment import Failure
from archipel.node import leaves
from archipel.parts.mix.robust import TrimmedMean
from archipel.simulate import blocks
from archipel.simulate.blocks import BlockEngine, in_blocks

LATE = Environment(availability=(0.9, 0.5, 0.3), delay=Delay(delta=0.4, limit=3))
FEDERATIONS = {
    "pao-fed": Federation(Synthetic(clients=83, features=12), PaoFed(portion=3), environment=LATE, rounds=40),
    "online-fed": Federation(Linear(clients=83, size=5), OnlineFed(step=0.1, asked=0.7), environment=LATE, rounds=40),
    "fedavg": Federation(Linear(clients=83, size=5), FedAvg(), rounds=8),
}


@pytest.fixture
def blocked(monkeypatch):
    monkeypatch.setattr(blocks, "LARGE", 20)


def played(federation, engine, precision="float64"):
    described = federation.with_(engine=engine, precision=precision)
    instance = described.instance(1)
    player = described.engine_of(instance)
    player.advance(0, federation.rounds // 2)
    player.advance(federation.rounds // 2, federation.rounds)
    return instance.plan.tables, player


@pytest.mark.parametrize("name", FEDERATIONS)
def test_blocks_are_the_plain_run(name, blocked):
    plain, slow = played(FEDERATIONS[name], "plain")
    quick, fast = played(FEDERATIONS[name], "serial")
    assert isinstance(fast, BlockEngine)
    assert (slow.updates, slow.messages) == (fast.updates, fast.messages)
    for role, table in plain.items():
        for a, b in zip(leaves(table), leaves(quick[role])):
            assert a == pytest.approx(b, abs=1e-10)
    assert np.abs(plain["server"].model).max() > 1e-3


def test_threads_never_change_a_bit(blocked):
    one, _ = played(FEDERATIONS["pao-fed"], "serial", "float32")
    two, threaded = played(FEDERATIONS["pao-fed"], "parallel", "float32")
    assert threaded.pool is not None
    for role, table in one.items():
        for a, b in zip(leaves(table), leaves(two[role])):
            assert np.array_equal(a, b)


def test_small_stars_and_what_cannot_be_added_are_not_in_blocks(monkeypatch):
    assert not in_blocks(FEDERATIONS["pao-fed"].instance(1))
    monkeypatch.setattr(blocks, "LARGE", 20)
    assert in_blocks(FEDERATIONS["pao-fed"].instance(1))
    robust = Federation(Linear(clients=83, size=5), OnlineFed(step=0.1, mix=TrimmedMean()))
    assert not in_blocks(robust.instance(1))


AWAY = {
    "chances": Environment(availability=(0.5, 0.1, 0.02), delay=Delay(delta=0.4, limit=3)),
    "failures": Environment(availability=0.3, failure=Failure(share=0.5, start=20, until=70)),
}


@pytest.mark.parametrize("name", AWAY)
@pytest.mark.parametrize("engine", ["serial", "parallel"])
def test_rounds_that_clients_play_alone_may_be_played_later(name, engine):
    """One stretch, in which whoever is away waits, has the bits of rounds one by one, in which nobody does."""
    federation = Federation(
        Synthetic(clients=300, features=6, horizon=50, samples=(10, 50)), PaoFed(portion=3), environment=AWAY[name],
        rounds=120, engine=engine,
    )  # fmt: skip
    played = []
    for step in (120, 1, 7):
        instance = federation.instance(1)
        player = federation.engine_of(instance)
        assert player.rounds.defers
        for n in range(0, 120, step):
            player.advance(n, min(n + step, 120))
        arrays = [*leaves(tuple(instance.plan.tables.values())), *leaves(instance.task.source)]
        played.append([np.array([player.updates, *player.messages]), *arrays])
    for other in played[1:]:
        assert all(map(np.array_equal, played[0], other))
