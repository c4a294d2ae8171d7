"""Rounds by quorum, deadline and clock; nodes that come late or stay away."""

import time

import numpy as np
import pytest
from harness import Village, assert_same, simulated

from archipel import Federation, PaoFed, Synthetic
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.deploy import pace, wire
from archipel.deploy.pace import HERE, REPORTS, TOLD, Clock, Quorum
from archipel.deploy.store import Halted
from archipel.deployment import Deployment
from archipel.errors import BadInput
from archipel.problems.networked import Regression
from archipel.topology import Peers

STREAM = Synthetic(clients=4, features=12, test=50, samples=(80,), horizon=80)
STAR = Federation(STREAM, PaoFed(step=0.3), rounds=80)
PEERS = Federation(Regression(clients=5), ZcdpNfl(), Peers(shape="ring"), rounds=30)


def error(village, federation):
    tables = {role: village.table(role) for role in village.roster.names}
    models = federation.algorithm.models(tables)
    return float(np.mean(federation.instance().task.score(models, federation.rounds)["mse"]))


@pytest.mark.parametrize("federation", [STAR, PEERS], ids=["star", "peers"])
def test_with_everyone_there_a_quorum_is_a_simulation_in_good_conditions(federation):
    village = Village(federation, pace="quorum")
    village.run()
    assert_same(village, simulated(federation))


def test_a_quorum_waits_for_a_share_and_a_deadline_for_the_rest():
    half, now = Quorum(0.5, 500.0), time.monotonic()
    assert not half.enough(REPORTS, 0, [0, 1, 2], 4, now)
    assert half.enough(REPORTS, 0, [0, 1], 4, now)
    whole = Quorum(1.0, 500.0)
    assert not whole.enough(REPORTS, 0, [3], 4, now)
    assert whole.enough(REPORTS, 0, [3], 4, now - 501) and whole.away == {3}
    assert whole.enough(REPORTS, 1, [3], 4, now), "who was away is not waited for again"
    whole.heard({3})
    assert not whole.enough(REPORTS, 1, [3], 4, now)
    assert not whole.enough(TOLD, 1, [0], 1, now - 100), "without a server there is nothing to do"
    assert not Quorum(1.0, 5.0).enough(REPORTS, 0, [0, 1], 2, now - 6), "alone, a round does not end"


def test_a_clock_does_not_wait():
    clock = Clock(10.0, time.time() - 25.0, True)
    assert clock.begin(0) == 2 and clock.begin(2) == 2 and clock.begin(3) is None
    assert clock.enough(REPORTS, 1, [1, 2], 2, 0.0) and not clock.enough(REPORTS, 2, [], 2, 0.0)
    assert clock.enough(HERE, 2, [1], 2, 0.0) and not clock.enough(TOLD, 2, [1], 1, 0.0)
    assert 0 < clock.wakes(2, 0.0) - time.monotonic() <= 5.0


@pytest.mark.parametrize("federation", [STAR, PEERS], ids=["star", "peers"])
def test_a_node_that_is_away_for_a_while_is_not_waited_for_and_catches_up(federation, tmp_path):
    """It comes back with its old state, far behind; the others went on, and it ends with them."""
    village = Village(federation, tmp_path, pace="quorum", deadline=0.05)
    gone = village.roster.members[-1].name
    others = [name for name in village.nodes if name != gone]

    def until(n):
        end = time.monotonic() + 60
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
    models = federation.algorithm.models(engine.instance.plan.tables)
    return float(np.mean(federation.instance().task.score(models, federation.rounds)["mse"]))


def test_late_words_reach_the_algorithm_with_their_age():
    """By the clock: what was said in round n and merged in round m is heard with age m - n; beyond the limit, not."""
    federation = STAR.with_(algorithm=PaoFed(step=0.3, limit=2))
    village = Village(federation, pace="clock", period=1000.0)
    server = village.nodes["server"].player
    heard = []
    turn = server.plan.turns[1]._replace(hear=lambda inbox, said, settings, edge: heard.append(edge))
    server.plan = server.plan._replace(turns=(server.plan.turns[0], turn))
    for said in (10, 9, 8, 7):
        server.mailbox.words[1].append(type_of_said(server)(said, said, said - 7, bytes(20)))
    server.round = 10
    server.merge(1)
    assert [(edge.sender, edge.age, edge.round) for edge in heard] == [(1, 2, 8), (2, 1, 9), (3, 0, 10)]
    assert server.too_late == 1
    village.close()


def type_of_said(player):
    from archipel.deploy.mailbox import Said

    return Said


class Ticking:
    """A clock of which every look takes a hundredth of a second, on slow machines too."""

    def __init__(self, tick=0.01):
        self.now, self.tick, self.offset = 0.0, tick, 1e9

    def monotonic(self):
        self.now += self.tick
        return self.now

    def time(self):
        return self.now + self.offset


@pytest.mark.parametrize("by", [-3600.0, 86_400.0], ids=["an hour back", "a day ahead"])
def test_a_system_clock_that_is_set_moves_no_round(by, monkeypatch, caplog):
    ticking = Ticking(0.0)
    monkeypatch.setattr(pace, "time", ticking)
    server, client = Clock(10.0, 0.0, True), Clock(10.0, 0.0, False)
    ticking.now = 25.0
    client.answered(2)
    ticking.offset += by
    for clock in (server, client):
        assert clock.begin(2) == 2 and clock.begin(3) is None
        assert 0 < clock.wakes(2, 0.0) - ticking.now <= 10.0
        clock.wakes(2, 0.0)
    assert caplog.text.count(f"the system's clock was moved by {by:+.0f} seconds") == 2, "once each"


def test_a_start_that_is_given_holds_after_a_restart():
    """`archipel up` gives another one when it goes on after an interruption."""
    clock = Clock(10.0, time.time() - 25.0, False)
    clock.restore({"start": 1.0})
    assert clock.begin(0) == 2
    clock = Clock(10.0, 0.0, True)
    clock.restore({"start": time.time() - 25.0})
    assert clock.begin(0) == 2


def test_by_the_clock_a_client_learns_alone_while_the_server_is_away(monkeypatch):
    monkeypatch.setattr(pace, "time", Ticking())
    federation = STAR.with_(rounds=12)
    village = Village(federation, pace="clock", period=1.0)
    for name in village.nodes:
        village.nodes[name].turn(longest=0.0)
    client, end = village.nodes["client-1"], time.monotonic() + 60
    client.pace.start = village.nodes["server"].pace.start
    while not client.player.finished and time.monotonic() < end:
        client.turn(longest=0.0)
    assert client.player.updates >= 10 and client.player.messages[1] <= 1
    assert np.any(client.player.me.model != 0)
    village.close()


def test_clocks_without_one_server_must_be_told_the_first_moment():
    """Peers that start their own clocks would never be in the same round."""
    with pytest.raises(BadInput, match=r"deploy\.start"):
        Village(PEERS, pace="clock", period=1.0)
    village = Village(PEERS.with_(rounds=3), pace="clock", period=0.3, start=time.time() + 0.2)
    village.run(120)
    village.close()


def test_a_node_that_is_done_before_it_met_anybody_still_reports():
    """All its rounds were without data; the greeting comes while it does its last step, and nothing after it."""
    village = Village(STAR.with_(rounds=3), pace="replay")
    client, heard = village.nodes["client-0"], []
    client.office.post("server", wire.QUIET, 1, 2)
    client.player.round = 3
    client.save()
    assert client.player.finished and client.office.neighbours["server"].sent == 0
    client.office.arrived("server", wire.greet(wire.Greeting(7, client.office.mine, 0, client.view.digest)))
    client.link.send = lambda to, data: heard.append(client.view.vocabulary.read(data).kind)
    client.wait_for_answers(lambda: wire.QUIET in heard, linger=0.5)
    assert wire.QUIET in heard
    village.close()


@pytest.mark.parametrize("how", ["replay", "quorum"])
def test_a_missing_peer(how, caplog):
    """In a replay nothing goes on without it: one sentence. By quorum the others go on, and say so."""
    village = Village(PEERS.with_(rounds=5), pace=how, patience=0.3, deadline=0.1)
    gone, *others = village.nodes
    village.kill(gone)
    neighbours = [name for name in others if (gone, name) in village.hub.edges]
    end = time.monotonic() + 60

    def until_all(done):
        while not all(map(done, neighbours)) and time.monotonic() < end:
            for name in others:
                village.nodes[name].turn(longest=0.0)
                village.nodes[name].check_patience()

    if how == "replay":
        with pytest.raises(Halted, match=f"no answer from {gone} for 0.3 seconds"):
            until_all(lambda name: village.nodes[name].player.finished)
    else:
        until_all(lambda name: village.nodes[name].player.finished and not village.nodes[name].anxious)
        assert caplog.text.count(f"no answer from {gone} so far") == len(neighbours) == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pace", "slow"),
        ("quorum", 0.0),
        ("deadline", -1.0),
        ("addresses", {"server": "nowhere"}),
        ("start", float("nan")),
        ("start", -1.0),
    ],
)
def test_bad_deployments_are_refused(key, value):
    with pytest.raises(BadInput, match=f"deploy.{key}"):
        Deployment(**{key: value})
