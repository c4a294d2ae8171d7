"""Runs that outlive their nodes: who joins late, who leaves, who is never heard again, and descriptions that grow."""

from typing import Any

import numpy as np
import pytest
from harness import Village, assert_same, simulated

from archipel import Federation, PaoFed, Synthetic
from archipel.algorithms.fedavg import FedAvg, Scaffold
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.deploy import grow, wire
from archipel.deploy.post import LOG
from archipel.deploy.run_node import ending
from archipel.deploy.store import Halted
from archipel.deploy.torture.simulation import Door
from archipel.deploy.trace import entries
from archipel.deploy.view import view_of
from archipel.deployment import Deployment
from archipel.environment import Environment, Failure
from archipel.errors import BadInput
from archipel.privacy.policy import Privacy
from archipel.problems.linear import Linear
from archipel.topology import Peers

ROUNDS = 60


def stream(clients: int, rounds: int = ROUNDS, **further: Any) -> Federation:
    problem = Synthetic(clients=clients, features=12, test=50, horizon=400, samples=(400,))
    return Federation(problem, PaoFed(step=0.2, limit=4), rounds=rounds, **further)


def village(federation: Federation, **deploy: Any) -> Village:
    return Village(federation, **{"pace": "quorum", "deadline": 5.0} | deploy)


def leaves(here: Village, name: str) -> None:
    here.world.at(here.world.time, lambda: (here.hosts[name].node.leave(), here.world.beat(here.hosts[name])))


# --- leaving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pace", ["quorum", "clock", "replay"])
def test_who_says_goodbye_is_not_waited_for_and_nothing_is_kept_for_it(pace):
    here = village(stream(4), pace=pace, deadline=1e6)
    here.until(lambda: here.nodes["server"].player.round >= 10)
    leaves(here, "client-2")
    here.until(lambda: here.hosts["client-2"].done)
    server = here.nodes["server"]
    other = server.office.neighbours["client-2"]
    assert other.left and not other.letters and not here.nodes["client-2"].office.neighbours["server"].letters
    here.until(lambda: server.player.finished, 600)  # no deadline went by
    assert other.left and not other.letters and other.next_out == other.acked
    assert opened(here.federation, "server", here).office.neighbours["client-2"].left, "it is remembered"


def test_a_line_says_who_left_for_good_and_none_that_it_is_silent(caplog):
    with caplog.at_level("INFO", LOG.name):
        here = village(stream(3), pace="clock", period=1.0)
        here.nodes["server"].report_every = 0.5
        here.until(lambda: here.nodes["server"].player.round >= 5)
        leaves(here, "client-1")
        here.until(lambda: here.nodes["server"].player.finished)
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "left" in line] == ["server: client-1 left for good; nobody waits for it"]
    assert not any("no answer" in line for line in lines)


def test_who_is_stopped_says_so(caplog):
    """A person who looks into the log the next morning finds why it is not there."""
    here = village(stream(2))
    with caplog.at_level("INFO", LOG.name):
        here.nodes["client-0"].run(lambda: True)
    assert "client-0: stopped in round 0 of " in caplog.text


def test_the_last_words_of_who_leaves_count_and_it_cannot_come_back_by_mistake():
    here = village(stream(3))
    here.until(lambda: here.nodes["client-1"].player.round >= 5)
    client = here.hosts["client-1"]
    leaves(here, "client-1")
    here.until(lambda: client.done)
    said = client.last.player.messages[1]
    client.done = False
    here.start("client-1")
    assert "client-1 has left this federation" in client.sentence
    client.disk.put({})  # as a new one
    here.start("client-1")
    here.run()
    other = here.nodes["server"].office.neighbours["client-1"]
    assert client.last.player.finished and not other.left
    assert said >= 5 and here.nodes["client-1"].player.messages[1] >= 5


def test_a_server_that_leaves_ends_the_run_of_its_clients():
    here = village(stream(3))
    here.until(lambda: here.nodes["server"].player.round >= 5)
    leaves(here, "server")
    here.until(lambda: all(host.done for host in here.hosts.values()))
    assert all(here.nodes[f"client-{k}"].player.finished for k in range(3))


def test_peers_leave_too():
    federation = Federation(Linear(clients=4, size=4, samples=20, test=5), ZcdpNfl(), Peers(shape="ring"), rounds=30)
    here = village(federation, deadline=1e6)
    first, second, *others = here.hosts
    here.until(lambda: here.nodes[second].player.round >= 5)
    leaves(here, second)
    here.until(lambda: all(here.nodes[name].player.finished for name in (first, *others)), 600)
    assert here.nodes[first].office.neighbours[second].left
    assert not here.nodes[first].office.neighbours[second].letters


def test_who_is_never_heard_again_is_forgotten_and_taken_back_if_it_returns():
    here = village(stream(3, 400), deadline=1.0, forget=100.0, pace="clock", period=1.0)
    here.until(lambda: here.nodes["server"].player.round >= 10)
    here.kill("client-2")
    other = here.nodes["server"].office.neighbours["client-2"]
    most = [0]
    here.until(lambda: most.append(max(most.pop(), len(other.letters))) or here.world.time > 90)
    traffic = here.nodes["server"].office.traffic
    assert other.letters and not traffic["letters dropped"]
    here.until(lambda: not other.letters, 60)
    assert traffic["letters dropped"] == most[0] <= 4
    here.until(lambda: here.world.time > 200)
    assert not other.letters
    here.start("client-2")
    here.run()
    assert len(other.letters) <= 1 and here.nodes["client-2"].player.messages[1] > 100


# --- behind -----------------------------------------------------------------------------------------------------------


def test_a_client_that_asks_for_a_far_round_is_not_followed():
    """Once it was enough to end a run: the server took itself for one that had lost its state."""
    here = village(stream(3), deadline=50.0)
    here.until(lambda: here.nodes["server"].player.round >= 10)
    liar = here.hosts["client-1"].node
    here.world.at(here.world.time, lambda: (liar.office.post("server", wire.ASK, 0, 10**6), liar.save()))
    here.run(seconds=ROUNDS * 50)
    assert [here.nodes[f"client-{k}"].player.updates for k in (0, 2)] == [ROUNDS, ROUNDS]


@pytest.mark.parametrize("away", [False, True])
def test_a_server_that_lost_its_disk_goes_on_where_its_clients_are(away):
    """As soon as all of them ask; if one does not come, after a deadline. All that they had said was answered."""
    here = village(stream(3, 400), deadline=50.0, first=[])
    here.world.interval = 20.0
    for name in here.hosts:
        here.start(name)
    clients = [here.nodes[f"client-{k}"] for k in range(3)]
    server = here.hosts["server"]
    here.until(
        lambda: server.node.player.round >= 100 and not any(c.office.neighbours["server"].letters for c in clients)
    )
    if away:
        here.kill("client-2")
    here.kill("server")
    server.disk.put({})
    here.start("server")
    begun = here.world.time
    here.until(lambda: server.node.player.round >= 100, 300)
    assert (here.world.time - begun >= 50) == away


def test_a_server_that_is_behind_the_last_round_tells_nothing_of_it():
    server = village(stream(3, 20)).nodes["server"]
    server.player.mailbox.asks = dict.fromkeys(range(3), (0, 20))
    server.player.offer(0)
    assert server.player.finished and not any(other.letters for other in server.office.neighbours.values())


def test_who_restarts_in_a_replay_does_not_wait_for_clients_that_have_said_all():
    """Who never works again has no samples to wait for, and is done long before the others."""
    broken = Environment(failure=Failure(share=0.5, start=2))
    here = village(stream(6, 20, environment=broken, seed=3), pace="replay", first=[])
    here.world.interval = 3 * here.federation.deploy.patience
    for name in here.hosts:
        here.start(name)
    here.until(lambda: any(host.done for host in here.hosts.values()))
    here.kill("server", 1.0)
    here.run()
    assert not here.seen.sentences
    assert_same(here, simulated(here.federation))


# --- growing ----------------------------------------------------------------------------------------------------------


def opened(federation: Federation, name: str, here: Village) -> Any:
    """A node with the disk of another life."""
    from archipel.deploy.node import Node
    from archipel.deploy.sources import source_of

    view = view_of(federation, name)
    return Node(view, Door(here.hosts[name]), federation.deploy, source_of(view, "", None))


def some_rounds(federation: Federation) -> Village:
    here = village(federation)
    here.until(lambda: here.nodes["server"].player.round >= 5)
    for name in list(here.hosts):
        here.kill(name)
    return here


def test_what_may_grow_and_what_may_not():
    here = some_rounds(stream(4))
    deploy = here.federation.deploy
    longer = opened(stream(6, ROUNDS + 20, deploy=deploy), "server", here)
    assert longer.player.round >= 5 and len(longer.office.neighbours) == 6
    assert longer.office.neighbours["client-3"].theirs and not longer.office.neighbours["client-4"].theirs
    assert opened(stream(4, ROUNDS + 20, deploy=deploy), "client-1", here).player.round >= 4
    for fewer, sentence in (
        (stream(4, ROUNDS - 1, deploy=deploy), "rounds can be added, not taken away"),
        (stream(3, deploy=deploy), "the 4 clients that there were"),
    ):
        with pytest.raises(BadInput, match=sentence):
            opened(fewer, "server", here)
    changed = stream(4, deploy=deploy).with_(algorithm=PaoFed(step=0.3, limit=4))
    with pytest.raises(BadInput, match="not of another one"):
        opened(changed, "server", here)


@pytest.mark.parametrize("pace", ["quorum", "clock"])
def test_a_run_that_was_over_goes_on_with_the_rounds_that_are_added(pace):
    """An hour later, although goodbye was said; who was killed before, or never there, takes part too."""
    here = village(stream(4, 20), pace=pace, first=["server", "client-0", "client-1", "client-2"])
    here.until(lambda: here.nodes["client-2"].player.round >= 10)
    here.kill("client-2")
    here.until(lambda: all(here.hosts[name].done for name in ("server", "client-0", "client-1")))
    assert here.nodes["client-0"].player.mailbox.over
    here.world.at(here.world.time + 3600, lambda: None)
    here.world.run(here.world.time + 3600)
    here.world.described = dict.fromkeys(here.hosts, stream(4, 50, deploy=here.federation.deploy))
    for name, host in here.hosts.items():
        host.done = False
        here.start(name)
    here.run(seconds=300)
    updates = [here.nodes[f"client-{k}"].player.updates for k in range(4)]
    assert updates[:2] == [50, 50] and min(updates[2], 10 + updates[3]) >= 38, updates


@pytest.mark.parametrize("short", ["client-1", "server"])
def test_who_meets_others_beyond_its_last_round_ends_there_with_its_last_row(short):
    """It was away while the others, who know of more rounds, went on: there is nothing left for it to do."""
    here = village(stream(3, 20))
    here.until(lambda: here.nodes[short].player.round >= 5)
    here.world.described = dict.fromkeys({*here.hosts} - {short}, stream(3, 60, deploy=here.federation.deploy))
    here.kill(short)
    if short == "server":  # its clients wait for it: they have come so far with another one, and it lost its disk
        here.world.described["server"] = stream(3, 60, deploy=here.federation.deploy)
    for name in {*here.hosts} - {short}:
        here.kill(name)
    for name in here.hosts:
        if name != short or short == "server":
            here.start(name)
    here.until(lambda: here.nodes["client-2"].player.round >= 40)
    if short == "server":
        here.kill("server")
        here.hosts["server"].disk.put({})
        del here.world.described["server"]
    here.start(short)
    here.until(lambda: here.hosts[short].done, 600)
    node, rows = here.hosts[short].last, entries(here.hosts[short].disk.open("rows").read())[0]
    assert node.player.finished and node.player.round == 20 and rows[-1]["round"] == 20
    assert node.player.updates <= 20
    assert short == "server" or node.player.messages[0] == node.player.messages[1], "it took what it cannot learn from"


def test_who_comes_when_all_is_over_has_learned_nothing_and_says_so():
    here = village(stream(3, 10), first=["server", "client-0", "client-1"])
    here.until(lambda: here.nodes["server"].player.finished)
    here.start("client-2")
    here.until(lambda: here.hosts["client-2"].done)
    assert "Its model: " in ending(here.nodes["server"]) and "Its model: " in ending(here.nodes["client-0"])
    assert ending(here.nodes["client-2"]).endswith("It took part in none of them: it has learned nothing.")


def test_where_numbers_enter_the_mathematics_nothing_grows():
    stored = Linear(clients=4, size=4, samples=20, test=5)
    more = Linear(clients=6, size=4, samples=20, test=5)
    deploy = Deployment()
    for algorithm in (ZcdpNfl(), Scaffold()):
        small, large = (Federation(problem, algorithm, rounds=9, deploy=deploy) for problem in (stored, more))
        assert grow.why_fixed(small)
        assert view_of(small, "server").digest != view_of(large, "server").digest
    small, large = (Federation(problem, FedAvg(), rounds=9, deploy=deploy) for problem in (stored, more))
    assert view_of(small, "server").digest == view_of(large, "server").digest
    private = Privacy(epsilon=4.0, clip=1.0)
    few, many = (view_of(stream(4, n, privacy=private), "server").digest for n in (30, 40))
    assert few != many, "noise was planned for so many rounds"
    assert view_of(stream(4, 30), "server").digest == view_of(stream(4, 40), "server").digest
    replay = Deployment(pace="replay")
    assert (
        view_of(stream(4, 30, deploy=replay), "server").digest != view_of(stream(4, 40, deploy=replay), "server").digest
    )


def test_a_state_whose_numbers_would_change_is_refused():
    """Whatever a kind says of itself: settings that are others for more clients or rounds are noticed."""
    view = view_of(stream(4), "server")
    before, now = grow.extent(view), grow.extent(view_of(stream(6), "server"))
    grow.check(before, now, view_of(stream(6), "server"))
    with pytest.raises(BadInput, match=r"clients.names = 6: expected 4, as it began"):
        grow.check(before, now | {"settings": "others"}, view_of(stream(6), "server"))


def test_two_nodes_agree_on_each_others_numbers_whatever_the_length():
    """A client of the shorter description and a server of the longer one; not one whose number is another."""
    short, long = view_of(stream(4), "client-1"), view_of(stream(6), "server")
    assert short.salt("server") == long.salt("client-1")
    other = long.roster.members[1]._replace(name="client-1", number=3)
    moved = type(long.roster)((*long.roster.members[:1], other), long.roster.edges)
    long.roster = moved
    assert short.salt("server") != long.salt("client-1")


def test_who_is_revoked_is_neither_heard_nor_waited_for():
    here = Village(stream(4, 200), 5, pace="quorum", quorum=1.0, deadline=30.0)
    here.until(lambda: here.nodes["server"].player.round >= 20)
    here.world.revoked = frozenset({"client-2"})
    here.until(lambda: here.nodes["server"].office.neighbours["client-2"].left)
    office, letters = here.nodes["server"].office, here.nodes["server"].office.neighbours["client-2"].letters
    taken, n = office.neighbours["client-2"].taken, here.nodes["server"].player.round
    begun = here.world.time
    here.until(lambda: here.nodes["server"].player.round >= n + 100)
    assert here.world.time - begun < 30.0  # no round waited for it until its deadline
    assert office.neighbours["client-2"].taken == taken and not letters
    assert "its certificate was revoked" in here.hosts["client-2"].sentence  # where the list has come there too


def test_a_node_that_knows_of_no_list_is_refused_letter_by_letter():
    here = Village(stream(3, 100), 6, pace="quorum")
    here.until(lambda: here.nodes["server"].player.round >= 10)
    node, other = here.nodes["server"], here.nodes["client-1"]
    node.world.revoked = lambda: frozenset({"client-1"})
    here.until(lambda: node.player.round >= 60)
    assert node.office.faults["of a certificate that was revoked"] > 0 and not other.player.finished


def test_thirty_join_and_thirty_leave_during_one_run():
    """The first 30 know of nobody else; the server restarts twice, each time with a longer roster."""
    rounds, first = 300, 30
    whole = stream(60, rounds)
    deploy = Deployment(pace="clock", period=1.0)
    here = Village(whole, 3, first=[], pace="clock", period=1.0)
    small, middle = (stream(k, rounds, deploy=deploy) for k in (first, 45))
    here.world.described = {f"client-{k}": small for k in range(first)} | {"server": small}
    here.start("server")
    for k in range(first):
        here.start(f"client-{k}")
    joined, left, most = first, 0, 0

    def outboxes() -> list[int]:
        letters = here.nodes["server"].office.neighbours.values()
        return [sum(len(letter.body) for letter in other.letters) for other in letters]

    for moment in range(10, 170, 5):
        here.world.run(moment)
        for longer, at in ((middle, 20), (here.federation, 90)):
            if moment == at:
                here.world.described["server"] = longer
                here.kill("server", 2.0)
        known = 60 if moment > 95 else 45 if moment > 25 else first
        if joined < known:
            here.start(f"client-{joined}")
            joined += 1
        if left < 30:
            if left % 3:
                leaves(here, f"client-{left}")
            else:
                here.kill(f"client-{left}")  # without a word
            left += 1
        if here.hosts["server"].node is not None:
            most = max(most, max(outboxes()))
    while joined < 60:
        here.start(f"client-{joined}")
        joined += 1
    here.world.described.clear()
    stay = [f"client-{k}" for k in range(30, 60)]
    here.until(lambda: all(here.nodes[name].player.finished for name in ["server", *stay]))
    score = here.world.instance.task.score
    errors = {name: score({"server": here.nodes[name].player.me.model}, rounds)["mse"] for name in stay}
    start = score({"server": np.zeros(12, np.float32)}, rounds)["mse"]
    server = score({"server": here.nodes["server"].player.me.model}, rounds)["mse"]
    early, late = (np.mean([errors[name] for name in names]) for names in (stay[:10], stay[-10:]))
    print(
        f"error at first {start:.3g}, server {server:.3g}, who joined first {early:.3g}, last {late:.3g}; {most} bytes"
    )
    assert joined == 60 and left == 30
    assert late < 1.3 * early and max(errors.values()) < 0.2 * start and server < 0.2 * start
    assert most <= 5 * 100, "what waits for one of them at the server is a few letters"
    gone = [here.nodes["server"].office.neighbours[f"client-{k}"] for k in range(30)]
    assert all(not other.letters for other in gone if other.left) and sum(other.left for other in gone) >= 18


def test_a_node_that_has_left_says_so():
    here = village(stream(2))
    here.until(lambda: here.nodes["client-0"].player.round >= 2)
    leaves(here, "client-0")
    here.until(lambda: here.hosts["client-0"].done)
    with pytest.raises(Halted, match="has left this federation"):
        opened(here.federation, "client-0", here)


def test_who_learns_while_it_waits_for_its_server_that_all_is_over_writes_its_last_row():
    """What `archipel up` measures are everyone's last rows: without this one, an earlier round would be the last."""
    problem = Synthetic(clients=3, features=4, test=5, samples=(12,), horizon=12)
    here = Village(Federation(problem, PaoFed(step=0.2), rounds=12, every=4), pace="quorum", quorum=0.5, deadline=5.0)
    server, late = here.nodes["server"], here.nodes["client-2"]
    here.until(lambda: server.player.round >= 6)
    here.world.cut = {("client-2", "server"), ("server", "client-2")}
    here.until(lambda: server.player.finished)
    assert late.player.round < 9, "it waits"
    here.world.cut = set()
    here.until(lambda: late.player.finished)
    rounds = [entry["round"] for entry in entries(here.hosts["client-2"].disk.copy()["rows"])[0]]
    assert late.player.round == 12 and rounds == [0, 4, 12], rounds
