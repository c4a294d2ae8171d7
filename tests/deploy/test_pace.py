"""Rounds by quorum, deadline and clock; nodes that come late or stay away."""

import numpy as np
import pytest
from harness import Village, assert_same, simulated

from archipel import Federation, PaoFed, Synthetic
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.deploy import wire
from archipel.deploy.pace import HERE, REPORTS, TOLD, Clock, Quorum
from archipel.deploy.sources import ProblemSource
from archipel.deploy.torture.simulation import EPOCH
from archipel.deployment import Deployment
from archipel.environment import Delay, Environment
from archipel.errors import BadInput
from archipel.problems.networked import Regression
from archipel.topology import Peers, Servers

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


class Clocks:
    """A world that only has clocks, which somebody sets."""

    def __init__(self, moment=1000.0, offset=1e9):
        self.moment, self.offset = moment, offset

    def now(self):
        return self.moment

    def clock(self):
        return self.moment + self.offset


def test_a_quorum_waits_for_a_share_and_a_deadline_for_the_rest():
    world = Clocks()
    half, now = Quorum(0.5, 500.0, world), world.now()
    assert not half.enough(REPORTS, 0, [0, 1, 2], 4, now)
    assert half.enough(REPORTS, 0, [0, 1], 4, now)
    whole = Quorum(1.0, 500.0, world)
    assert not whole.enough(REPORTS, 0, [3], 4, now)
    assert whole.enough(REPORTS, 0, [3], 4, now - 501) and whole.away == {3}
    assert whole.enough(REPORTS, 1, [3], 4, now), "who was away is not waited for again"
    whole.heard({3})
    assert not whole.enough(REPORTS, 1, [3], 4, now)
    assert not whole.enough(TOLD, 1, [0], 1, now - 100), "without a server there is nothing to do"
    alone = Quorum(1.0, 5.0, world)
    assert not alone.enough(REPORTS, 0, [0, 1], 2, now - 6), "alone, a round does not end"
    assert alone.wakes(0, now - 3) == now + 2 and alone.wakes(0, now - 6) == float("inf"), (
        "nor does it look all the time"
    )
    assert alone.gave_up([0, 1], now - 6)
    alone.heard({1})
    assert not alone.enough(REPORTS, 0, [0, 1], 2, now - 6) and alone.away == {0}, "who is heard later is there"
    assert alone.gave_up([0, 1], now - 6) and not alone.gave_up([0, 1], now), "until the next one"


def test_a_clock_does_not_wait():
    world = Clocks()
    clock = Clock(10.0, world.clock() - 25.0, True, world)
    assert clock.begin(0) == 2 and clock.begin(2) == 2 and clock.begin(3) is None
    assert clock.enough(REPORTS, 1, [1, 2], 2, 0.0) and not clock.enough(REPORTS, 2, [], 2, 0.0)
    assert clock.enough(HERE, 2, [1], 2, 0.0) and not clock.enough(TOLD, 2, [1], 1, 0.0)
    assert 0 < clock.wakes(2, 0.0) - world.now() <= 5.0


@pytest.mark.parametrize("federation", [STAR, PEERS], ids=["star", "peers"])
def test_a_node_that_is_away_for_a_while_is_not_waited_for_and_catches_up(federation):
    """It comes back with its old state, far behind; the others went on, and it ends with them."""
    village = Village(federation, pace="quorum", deadline=0.5)
    gone = village.roster.members[-1].name
    others = [name for name in village.nodes if name != gone]
    village.until(lambda: min(village.nodes[name].player.round for name in others) >= 5)
    village.kill(gone)
    village.until(lambda: min(village.nodes[name].player.round for name in others) >= 20)
    village.start(gone)
    assert village.nodes[gone].player.round < 10
    village.run()
    assert village.nodes[gone].player.updates < federation.rounds - 5
    assert error(village, federation) < 1.5 * good_error(federation)


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


def type_of_said(player):
    from archipel.deploy.mailbox import Said

    return Said


@pytest.mark.parametrize("by", [-3600.0, 86_400.0], ids=["an hour back", "a day ahead"])
def test_a_system_clock_that_is_set_moves_no_round(by, caplog):
    world = Clocks(0.0)
    server, client = Clock(10.0, 0.0, True, world), Clock(10.0, 0.0, False, world)
    world.moment = 25.0
    client.answered(2)
    world.offset += by
    for clock in (server, client):
        assert clock.begin(2) == 2 and clock.begin(3) is None
        assert 0 < clock.wakes(2, 0.0) - world.moment <= 10.0
        clock.wakes(2, 0.0)
    assert caplog.text.count(f"the system's clock was moved by {by:+.0f} seconds") == 2, "once each"


def test_a_start_that_is_given_holds_after_a_restart():
    """`archipel up` gives another one when it goes on after an interruption."""
    world = Clocks()
    clock = Clock(10.0, world.clock() - 25.0, False, world)
    clock.restore({"start": 1.0})
    assert clock.begin(0) == 2
    clock = Clock(10.0, 0.0, True, world)
    clock.restore({"start": world.clock() - 25.0})
    assert clock.begin(0) == 2


def test_by_the_clock_a_client_learns_alone_while_the_server_is_away():
    village = Village(STAR.with_(rounds=12), pace="clock", period=1.0)
    client = village.nodes["client-1"]
    village.until(lambda: client.player.messages[1] == 1)
    village.kill("server")
    before = client.player.me.model.copy()
    village.until(lambda: client.player.finished)
    assert client.player.messages[1] == 1 and np.any(client.player.me.model != before)


def test_by_the_clock_no_round_goes_by_before_a_client_knows_the_clock():
    """Its first sample comes in round 10: all rounds were over at once, since none waited for anything."""

    class Later(ProblemSource):
        def ready(self):
            return village.world.time > 10.5

        def wakes(self, now):
            return now + 0.1

        def look(self, moment):
            return super().look(moment) if self.ready() else (False, None)

    village = Village(STAR.with_(rounds=30), pace="clock", period=1.0)
    client = village.nodes["client-1"].player
    client.source = Later(client.view)
    village.run()
    assert 15 < client.updates < 22


@pytest.mark.parametrize(("away", "said"), [(20.0, "2 rounds went by"), (400.0, "the last 29 rounds went by")])
def test_rounds_that_went_by_while_a_node_did_not_run_are_said(away, said, caplog):
    caplog.set_level("INFO", "archipel.deploy")
    village = Village(STAR.with_(rounds=30), pace="clock", period=10.0)
    village.until(lambda: village.nodes["server"].player.round == 1)
    village.kill("server", away)
    village.until(lambda: village.hosts["server"].node is not None)
    assert f"server: {said} on the clock while it did not run" in caplog.text


def test_clocks_without_one_server_must_be_told_the_first_moment():
    """Peers that start their own clocks would never be in the same round."""
    village = Village(PEERS, pace="clock", period=1.0)
    assert all("deploy.start" in host.sentence for host in village.hosts.values())
    village = Village(PEERS.with_(rounds=3), pace="clock", period=0.3, start=EPOCH + 0.2)
    village.run()


def test_a_node_that_is_done_before_it_met_anybody_still_reports():
    """All its rounds were without data; the greeting comes while it does its last step, and nothing after it."""
    village = Village(STAR.with_(rounds=3), pace="replay")
    client = village.nodes["client-0"]
    client.office.post("server", wire.QUIET, 1, 2)
    client.player.round = 3
    client.save()
    assert client.player.finished and client.office.neighbours["server"].sent == 0
    agreed = client.office.neighbours["server"].salted(client.view.digest)
    client.office.arrived("server", wire.greet(wire.Greeting(7, client.office.mine, 0, agreed)))
    village.seen.sent.clear()
    client.beat()
    assert wire.QUIET in {data[0] & 15 for sender, _, data in village.seen.sent if sender == "client-0"}


def test_a_server_without_the_other_one_goes_on_with_its_clients():
    servers = Servers(servers=2, shape="ring")
    village = Village(Federation(STREAM, PaoFed(step=0.3), servers, rounds=20), pace="quorum", deadline=5.0)
    village.until(lambda: village.nodes["server-1"].player.round >= 5)
    village.kill("server-0")
    village.until(lambda: village.nodes["server-1"].player.finished, seconds=1e4)
    assert village.nodes["server-1"].player.finished and village.world.time < 300


def test_who_restarts_in_a_replay_does_not_wait_for_one_that_was_revoked():
    village = Village(PEERS.with_(rounds=300), patience=1.0)
    here, gone = min(village.roster.edges)
    village.until(lambda: village.nodes[here].player.round >= 5)
    village.world.revoked = frozenset({gone})
    village.until(lambda: village.nodes[here].office.neighbours[gone].left)
    village.kill(here, back=1.0)
    village.until(lambda: village.hosts[here].done or village.hosts[here].sentence)
    assert village.nodes[here].player.finished, village.hosts[here].sentence


@pytest.mark.parametrize("how", ["replay", "quorum"])
def test_a_missing_peer(how, caplog):
    """In a replay nothing goes on without it: one sentence. By quorum the others go on, and say so."""
    village = Village(PEERS.with_(rounds=5), pace=how, patience=0.5, deadline=1.0)
    gone, *others = village.nodes
    village.kill(gone)
    neighbours = [name for name in others if (gone, name) in village.world.edges]
    if how == "replay":
        village.until(lambda: all(village.hosts[name].sentence for name in neighbours))
        assert all(f"no answer from {gone} for 0.5 seconds" in village.hosts[name].sentence for name in neighbours)
    else:
        village.until(lambda: all(village.nodes[name].player.finished for name in others))
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


def test_a_port_beyond_the_last_one_is_told_which_there_are():
    with pytest.raises(BadInput, match=r"deploy.addresses.server = .*from 1 to 65535"):
        Deployment(addresses={"server": "here:99999"})


def hearing(player, i):
    """The edges of the words that a player hears from here on, in a turn."""
    edges, turn = [], player.plan.turns[i]

    def hear(inbox, word, settings, edge):
        edges.append(edge)
        turn.hear(inbox, word, settings, edge)

    turns = [turn._replace(hear=hear) if n == i else other for n, other in enumerate(player.plan.turns)]
    player.plan = player.plan._replace(turns=tuple(turns))
    return edges


def word_to(player, n):
    """A word for a player's last turn, of its first neighbour, said in round n."""
    i = len(player.plan.turns) - 1
    body = player.view.vocabulary.write(i, player.words[i])
    return i, wire.Frame(wire.WORD, i, False, 0, 0, 0, n, body)


def test_a_word_that_waited_keeps_its_age_where_rounds_are_left_out():
    """It came two rounds late, and nobody was there to hear it; who comes back goes on many rounds later."""
    late = Environment(availability=(0.5,), delay=Delay("fixed", rounds=3))
    federation = Federation(STREAM, PaoFed(step=0.3), Peers(shape="ring"), late, rounds=80)
    player = Village(federation, pace="quorum").nodes["peer-0"].player
    i, frame = word_to(player, 4)
    edges = hearing(player, i)
    player.mailbox.stash(0, frame)
    player.was_there[i] = [4]
    player.round, player.present = 6, False
    player.merge(i)
    assert not edges and player.mailbox.words[i]
    state, player.mailbox.words[i] = player.mailbox.state(), []
    player.mailbox.restore(state)  # also after a crash
    for player.round, player.present in ((30, False), (60, True)):
        player.merge(i)
    assert [(edge.round, edge.age) for edge in edges] == [(4, 2)] and not player.too_late


def test_in_a_replay_a_word_later_than_any_may_be_does_not_count():
    """No honest node says it: conditions delay three rounds at most."""
    late = Environment(delay=Delay("fixed", rounds=3))
    player = Village(Federation(STREAM, PaoFed(step=0.3), environment=late, rounds=80)).nodes["server"].player
    i, frame = word_to(player, 4)
    edges = hearing(player, i)
    player.mailbox.report(0, i, 19)
    player.mailbox.stash(0, frame)
    player.round = 20
    player.merge(i)
    assert player.too_late == 1 and not edges and not player.mailbox.words[i]
