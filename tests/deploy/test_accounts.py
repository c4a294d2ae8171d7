"""What was spent is not forgotten: a ledger behind its checkpoint, and a state behind what left it, are refused."""

import time
from collections import defaultdict

import pytest
from harness import Village, assert_same, simulated
from test_replay import TABLE

from archipel import Federation
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.deploy import wire
from archipel.deploy.store import FILES, Halted
from archipel.privacy.journal import Damaged
from archipel.privacy.policy import Privacy
from archipel.privacy.releases import Laplace
from archipel.problems.networked import Regression
from archipel.topology import Peers


def played(name, folder):
    """A federation, one of whose nodes was killed after three charges."""
    village = Village(TABLE[name], folder)
    who = village.roster.names["peer" if name == "zcdp-nfl" else "client"][0]
    while village.nodes[who].account.count() < 3:
        for node in village.nodes.values():
            node.turn(longest=0.0)
    village.kill(who)
    return village, who, folder / who / "ledger.journal"


@pytest.mark.parametrize("name", ["zcdp-nfl", "pldp-fl"])
@pytest.mark.parametrize("keep", [0, 2], ids=["gone", "cut"])
def test_a_ledger_behind_its_checkpoint_is_refused(name, keep, tmp_path):
    village, who, ledger = played(name, tmp_path)
    lines = ledger.read_bytes().splitlines(True)
    ledger.write_bytes(b"".join(lines[:keep]))
    with pytest.raises(Damaged, match=r"has \d charges, the checkpoint \d+: restore it"):
        village.start(who)


@pytest.mark.parametrize("name", ["zcdp-nfl", "pldp-fl"])
def test_without_checkpoints_a_kept_ledger_is_taken_up(name, tmp_path):
    """What the guide says to do to start anew: nothing that was spent is forgotten."""
    village, who, ledger = played(name, tmp_path)
    paid = village.nodes[who].account.total(None)
    for file in ("checkpoint.a", "checkpoint.b", "rows"):
        (ledger.parent / file).unlink()
    village.start(who)
    assert village.nodes[who].player.round == 0 and village.nodes[who].account.total(None) == paid > 0


class Spy:
    """A link, and the kinds of all frames that left through it."""

    def __init__(self, link, kinds):
        self.link, self.kinds = link, kinds

    def send(self, to, data):
        self.kinds.append(data[0] & 15)
        self.link.send(to, data)

    def __getattr__(self, name):
        return getattr(self.link, name)


@pytest.mark.parametrize(("name", "who"), [("zcdp-nfl", "peer"), ("pao-fed-c2", "client")])
def test_a_state_older_than_what_has_left_it_sends_nothing_and_halts(name, who, tmp_path):
    """It would make again, with other noise, what its neighbours have got: a charge would count for two releases."""
    kinds = defaultdict(list)
    village = Village(TABLE[name], tmp_path, lambda name, link: Spy(link, kinds[name]))
    who = village.roster.names[who][0]

    def until_got(count):
        others = village.nodes[who].office.neighbours.values()
        while min(other.acked for other in others) < count:
            for node in village.nodes.values():
                node.turn(longest=0.0)
        return max(other.next_out for other in others)

    posted = until_got(3)
    old = {file: (tmp_path / who / file).read_bytes() for file in FILES}
    until_got(posted + 1)
    village.kill(who)
    for file, content in old.items():
        (tmp_path / who / file).write_bytes(content)
    kinds[who].clear()
    village.start(who)
    node, end = village.nodes[who], time.monotonic() + 20
    with pytest.raises(Halted, match=r"this state is older than what has left it.*keep ledger\.journal"):
        while time.monotonic() < end:
            node.turn(longest=0.0)
            node.check_patience()
            for other in village.nodes.values():
                other.office.pump(0.0)
    assert set(kinds[who]) == {wire.HELLO}
    village.close()


def test_one_of_many_who_lies_about_what_it_has_got_does_not_halt_a_server(tmp_path):
    village = Village(TABLE["pao-fed-c2"], tmp_path)
    while village.nodes["server"].player.round < 5:
        for node in village.nodes.values():
            node.turn(longest=0.0)
    village.kill("server")
    village.start("server")
    server = village.nodes["server"]
    liar = server.office.neighbours["client-0"]
    server.office.arrived("client-0", wire.pack(wire.ACK, 0, False, liar.tags[1], 0, liar.safe_out + 5, 0))
    assert liar.ahead
    village.run(60, lambda name: village.nodes[name].check_patience())
    village.close()
    assert_same(village, simulated(TABLE["pao-fed-c2"]))


def test_a_laplace_release_is_journalled_as_one(tmp_path):
    """A device's ledger says what its simulation's does: the epsilon of Laplace releases, not of their zCDP."""
    private = Privacy(mechanism="laplace", epsilon=2.0, clip=1.0)
    problem = Regression(clients=3)
    federation = Federation(problem, ZcdpNfl(step=0.1, decay=0.0), Peers(shape="complete"), privacy=private, rounds=4)
    village = Village(federation, tmp_path)
    village.run()
    for node, told in zip(village.nodes.values(), federation.with_(engine="plain").run().ledgers[0]["nodes"]):
        history = node.account.ledger.history()
        assert {type(release) for release, _ in history.counts} == {Laplace}
        assert history.epsilon(1e-5).epsilon == pytest.approx(told["spent"]["epsilon"], rel=1e-9)
