"""Rounds by quorum, deadline and clock; data from outside; nodes that come late or stay away."""

import time

import numpy as np
import pytest
from harness import Village, assert_same, simulated

from archipel import Federation, Linear, OnlineFed, PaoFed, Synthetic
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.deploy.pace import HERE, REPORTS, TOLD, Clock, Quorum
from archipel.deploy.part import part_of
from archipel.deploy.sources import source_of
from archipel.deployment import Deployment
from archipel.errors import BadInput, Missing
from archipel.problems.networked import Regression
from archipel.topology import Peers

STREAM = Synthetic(clients=4, features=12, test=50, samples=(80,), horizon=80)
STAR = Federation(STREAM, PaoFed(step=0.3), rounds=80)
PEERS = Federation(Regression(clients=5), ZcdpNfl(), Peers(shape="ring"), rounds=30)


def error(village, federation):
    tables = {role: village.table(role) for role in village.roster.names}
    models = federation.algorithm.models(tables)
    return float(np.mean(federation.stage().task.score(models, federation.rounds)["mse"]))


@pytest.mark.parametrize("federation", [STAR, PEERS], ids=["star", "peers"])
def test_with_everyone_there_a_quorum_is_a_simulation_in_good_weather(federation):
    village = Village(federation, pace="quorum")
    village.run()
    assert_same(village, simulated(federation))


def test_a_quorum_waits_for_a_share_and_a_deadline_for_the_rest():
    pace, now = Quorum(0.5, 5.0), time.monotonic()
    assert not pace.enough(REPORTS, 0, [0, 1, 2], 4, now)
    assert pace.enough(REPORTS, 0, [0, 1], 4, now)
    pace = Quorum(1.0, 5.0)
    assert not pace.enough(REPORTS, 0, [3], 4, now)
    assert pace.enough(REPORTS, 0, [3], 4, now - 6) and pace.away == {3}
    assert pace.enough(REPORTS, 1, [3], 4, now), "who was away is not waited for again"
    pace.heard({3})
    assert not pace.enough(REPORTS, 1, [3], 4, now)
    assert not pace.enough(TOLD, 1, [0], 1, now - 100), "without a server there is nothing to do"
    assert not Quorum(1.0, 5.0).enough(REPORTS, 0, [0, 1], 2, now - 6), "alone, a round does not end"


def test_a_clock_does_not_wait():
    pace = Clock(10.0, time.time() - 25.0, True)
    assert pace.begin(0) == 2 and pace.begin(2) == 2 and pace.begin(3) is None
    assert pace.enough(REPORTS, 1, [1, 2], 2, 0.0) and not pace.enough(REPORTS, 2, [], 2, 0.0)
    assert pace.enough(HERE, 2, [1], 2, 0.0) and not pace.enough(TOLD, 2, [1], 1, 0.0)
    assert 0 < pace.wakes(2, 0.0) - time.monotonic() <= 5.0


@pytest.mark.parametrize("federation", [STAR, PEERS], ids=["star", "peers"])
def test_a_node_that_is_away_for_a_while_is_not_waited_for_and_catches_up(federation, tmp_path):
    """It comes back with its old state, far behind; the others went on, and it ends with them."""
    village = Village(federation, tmp_path, pace="quorum", deadline=0.05)
    gone = village.roster.members[-1].name
    others = [name for name in village.nodes if name != gone]

    def until(n):
        end = time.monotonic() + 20
        while min(village.nodes[name].player.round for name in others) < n:
            assert time.monotonic() < end
            for name in others if n > 5 else village.nodes:
                village.nodes[name].turn(longest=0.0)

    until(5)
    village.kill(gone)
    until(20)
    village.start(gone)
    assert village.nodes[gone].player.round < 10
    village.run()
    assert village.nodes[gone].player.updates < federation.rounds - 5
    assert error(village, federation) < 1.5 * good_error(federation)
    village.close()


def good_error(federation):
    engine = simulated(federation)
    models = federation.algorithm.models(engine.stage.plan.tables)
    return float(np.mean(federation.stage().task.score(models, federation.rounds)["mse"]))


def test_late_words_reach_the_algorithm_with_their_age():
    """By the clock: what was said in round n and merged in round m is heard with age m - n; beyond the limit, not."""
    federation = STAR.with_(algorithm=PaoFed(step=0.3, limit=2))
    village = Village(federation, pace="clock", period=1000.0)
    server = village.nodes["server"].player
    heard = []
    turn = server.plan.turns[1]._replace(hear=lambda inbox, said, settings, edge: heard.append(edge))
    server.plan = server.plan._replace(turns=(server.plan.turns[0], turn))
    for said in (10, 9, 8, 7):
        server.desk.words[1].append(type_of_said(server)(said, said, said - 7, bytes(20)))
    server.round = 10
    server.merge(1)
    assert [(edge.sender, edge.age, edge.round) for edge in heard] == [(1, 2, 8), (2, 1, 9), (3, 0, 10)]
    assert server.too_late == 1
    village.close()


def type_of_said(player):
    from archipel.deploy.desk import Said

    return Said


def test_by_the_clock_a_client_learns_alone_while_the_server_is_away():
    federation = STAR.with_(rounds=12)
    village = Village(federation, pace="clock", period=0.05)
    for name in village.nodes:
        village.nodes[name].turn(longest=0.0)
    end = time.monotonic() + 10
    client = village.nodes["client-1"]
    client.pace.start = village.nodes["server"].pace.start
    while not client.player.finished and time.monotonic() < end:
        client.turn(longest=0.01)
    assert client.player.updates >= 8 and client.player.messages[1] <= 1
    assert np.any(client.player.me.model != 0)
    village.close()


# --- data on a device -----------------------------------------------------------------------------------------------


def line_part():
    """A client of a linear problem with two inputs."""
    return part_of(Federation(Linear(clients=2, size=2, samples=10, test=5), OnlineFed(step=0.1), rounds=9), "client-0")


def test_a_csv_file_that_grows(tmp_path):
    path = tmp_path / "sensor.csv"
    path.write_text("a,target,b\n1,10,2\n3,30,")
    source = source_of(line_part(), "sensor.csv", tmp_path)
    fresh, data = source.look(None)
    assert fresh and data.features.tolist() == [1, 2] and data.target[0] == 10
    assert not source.ready(), "a row that is not written to its end"
    with path.open("a") as file:
        file.write("4\n5,50,6\n")
    kept = source.state()
    assert source.look(None)[1].features.tolist() == [3, 4]
    again = source_of(line_part(), "sensor.csv", tmp_path)
    again.restore(kept)
    assert again.look(None)[1].features.tolist() == [3, 4], "after a crash it goes on where the checkpoint was"
    path.write_text("a,target,b\n1,x,2\n")
    with pytest.raises(BadInput, match="row of numbers"):
        source_of(line_part(), "sensor.csv", tmp_path).look(None)


def test_a_users_generator(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def samples(name):\n    for i in range(5):\n        yield None\n        yield [i, len(name)], 2.0 * i\n"
    )
    source = source_of(line_part(), "mine.py:samples", tmp_path)
    seen = [source.look(None) for _ in range(6)]
    assert [fresh for fresh, _ in seen] == [False, True] * 3
    again = source_of(line_part(), "mine.py:samples", tmp_path)
    again.restore(source.state())
    assert not again.look(None)[0] and again.look(None)[1].features.tolist() == [3, 8]
    with pytest.raises(BadInput, match="a function of"):
        source_of(line_part(), "mine.py:nothing", tmp_path)
    with pytest.raises(BadInput, match="2 finite inputs"):
        source.sample_of(np.ones(3), 1.0)


def test_mqtt_without_its_package_is_said(tmp_path):
    try:
        import paho.mqtt  # noqa: F401
    except ImportError:
        with pytest.raises(Missing, match="paho-mqtt"):
            source_of(line_part(), "mqtt://broker/room/{name}", tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("pace", "slow"), ("quorum", 0.0), ("deadline", -1.0), ("addresses", {"server": "nowhere"})],
)
def test_bad_deployments_are_refused(key, value):
    with pytest.raises(BadInput, match=f"deploy.{key}"):
        Deployment(**{key: value})
