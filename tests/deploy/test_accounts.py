"""What was spent is not forgotten: a ledger behind its checkpoint, and a state behind what left it, are refused."""

import re

import numpy as np
import pytest
from harness import Village, assert_same, simulated
from test_replay import TABLE

from archipel import Federation
from archipel.algorithms.fedavg import FedAvg
from archipel.algorithms.online import OnlineFedSgd
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.deploy import wire
from archipel.deploy.store import FILES
from archipel.deploy.torture.simulation import Crash
from archipel.parts.protect.individual import Individual
from archipel.parts.protect.mix import AtMix
from archipel.privacy.gaussian import mu_of
from archipel.privacy.policy import Privacy
from archipel.privacy.releases import Laplace, Sampled
from archipel.problems.linear import Linear
from archipel.problems.networked import Regression
from archipel.topology import Peers


def played(name):
    """A federation, one of whose nodes was killed after three charges, and the files it left."""
    village = Village(TABLE[name])
    who = village.roster.names["peer" if name == "zcdp-nfl" else "client"][0]
    village.until(lambda: village.nodes[who].account.count() >= 3)
    village.kill(who)
    return village, who, village.hosts[who].disk.copy()


@pytest.mark.parametrize("name", ["zcdp-nfl", "pldp-fl"])
@pytest.mark.parametrize("keep", [0, 2], ids=["gone", "cut"])
def test_a_ledger_behind_its_checkpoint_is_refused(name, keep):
    village, who, files = played(name)
    lines = files["ledger.journal"].splitlines(True)
    village.hosts[who].disk.put(files | {"ledger.journal": b"".join(lines[:keep])})
    village.start(who)
    assert re.search(r"has \d charges, the checkpoint \d+: restore it", village.hosts[who].sentence)


@pytest.mark.parametrize("name", ["zcdp-nfl", "pldp-fl"])
def test_without_checkpoints_a_kept_ledger_is_taken_up(name):
    """What the guide says to do to start anew: nothing that was spent is forgotten."""
    village, who, files = played(name)
    paid = village.nodes[who].account.total(None)
    village.hosts[who].disk.put({"ledger.journal": files["ledger.journal"]})
    village.start(who)
    assert village.nodes[who].player.round == 0 and village.nodes[who].account.total(None) == paid > 0


@pytest.mark.parametrize("budget", [{"epsilon": 1.0}, {"epsilon": 4.0, "noise": 4.0}], ids=["spent", "some left"])
def test_samples_that_are_used_again_pay_again(budget):
    """All begin anew, as the guide says, with the ledgers kept: the stored samples come from the first on again.

    A sample that has been in two releases has paid for both, whatever is due in each life.
    """
    private = Privacy(clip=0.5, **budget)
    village = Village(Federation(Linear(2, 3, 6, test=5), OnlineFedSgd(), privacy=private, rounds=6))
    village.run()
    clients = village.roster.names["client"]
    once = [village.nodes[name].account.total(None) for name in clients]
    everyone = [*village.nodes]
    for name in everyone:
        village.kill(name)
        disk = village.hosts[name].disk
        disk.put({file: content for file, content in disk.copy().items() if file == "ledger.journal"})
    for name in everyone:
        village.start(name)
    village.run()
    for name, paid in zip(clients, once):
        account, mine = village.nodes[name].account, village.nodes[name].player.me.protect
        lives = 1 + (mine.releases[0] - 6) / 6
        assert lives == (2 if "noise" in budget else 1)
        assert account.total(None) == pytest.approx(lives * paid) and account.ledger.epsilon(1e-5).epsilon <= 4.0


def test_samples_that_are_used_again_never_pay_more_than_a_pure_epsilon():
    """Epsilons of Laplace noise add up as they are; halves of the zCDP are 0.7 of the epsilon each."""
    private = Privacy(clip=0.5, epsilon=1.0, mechanism="laplace", schedule="geometric", zeta=0.5)
    village = Village(Federation(Linear(2, 3, 6, test=5), OnlineFedSgd(), privacy=private, rounds=6))
    village.until(lambda: all(node.player.round >= 5 for node in village.nodes.values()))
    clients, everyone = village.roster.names["client"], [*village.nodes]
    first = [village.nodes[name].player.me.protect.dearest[0] for name in clients]
    for name in everyone:
        village.kill(name)
        disk = village.hosts[name].disk
        disk.put({file: content for file, content in disk.copy().items() if file == "ledger.journal"})
    for name in everyone:
        village.start(name)
    village.run()
    for name, before in zip(clients, first):
        again = village.nodes[name].player.me.protect.dearest[0]
        assert 0.5 < np.sqrt(2 * before) + np.sqrt(2 * again) <= 1.0  # a release of rho is one of sqrt(2 rho)


@pytest.mark.parametrize(
    ("algorithm", "more", "who", "rounds"),
    [
        (FedAvg(asked=0.1, protect=AtMix()), {"relation": "add-remove"}, "server", (10, 100)),
        (FedAvg(), {"mechanism": "laplace"}, "client-0", (40, 4)),
    ],
    ids=["asked in secret", "laplace"],
)
def test_another_description_with_the_ledger_kept_pays_no_more_than_the_budget(algorithm, more, who, rounds):
    """What so many releases of one noise may pay in zCDP is another number than for more or fewer of another noise."""
    private = Privacy(epsilon=2.0, clip=0.5, unit="client", **more)
    first = Federation(Linear(3, 3, 20, test=5), algorithm, privacy=private, rounds=rounds[0])
    village, later = Village(first), Village(first.with_(rounds=rounds[1]), first=())
    village.run()
    once = village.nodes[who].account.ledger
    assert once.lines == rounds[0] and 1.9 < once.epsilon(1e-5).epsilon <= 2.0
    later.hosts[who].disk.put({"ledger.journal": village.hosts[who].disk.copy()["ledger.journal"]})
    for name in later.hosts:
        later.start(name)
    later.run()
    assert later.nodes[who].account.ledger.epsilon(1e-5).epsilon <= 2.0


def test_of_payments_that_are_secret_a_node_tells_the_budget():
    """Of individual accounting: what a client has paid says how long its changes were."""
    private = Privacy(epsilon=2.0, clip=0.5, unit="client", relation="add-remove")
    village = Village(Federation(Linear(3, 3, 20, test=5), FedAvg(protect=Individual()), privacy=private, rounds=3))
    for name in village.roster.names["client"]:
        assert village.nodes[name].account.total(None) == 0.0
    village.run()
    for name in village.roster.names["client"]:
        node = village.nodes[name]
        assert 0 < node.account.ledger.rho() < node.status()["paid"] == pytest.approx(mu_of(2.0, 1e-5) ** 2 / 2)


@pytest.mark.parametrize(("name", "who"), [("zcdp-nfl", "peer"), ("pao-fed-c2", "client")])
def test_a_state_older_than_what_has_left_it_sends_nothing_and_halts(name, who):
    """It would make again, with other noise, what its neighbours have got: a charge would count for two releases."""
    village = Village(TABLE[name])
    who = village.roster.names[who][0]

    def until_got(count):
        others = village.nodes[who].office.neighbours.values()
        village.until(lambda: min(other.acked for other in others) >= count)
        return max(other.next_out for other in others)

    posted = until_got(3)
    disk = village.hosts[who].disk
    old = {file: content for file, content in disk.copy().items() if file in FILES}
    until_got(posted + 1)
    village.kill(who)
    disk.put(disk.copy() | old)
    village.seen.sent.clear()
    village.start(who)
    village.until(lambda: village.hosts[who].sentence)
    assert re.search(r"this state is older than what has left it.*keep ledger\.journal", village.hosts[who].sentence)
    assert {data[0] & 15 for sender, _, data in village.seen.sent if sender == who} <= {wire.HELLO}


def test_one_of_many_who_lies_about_what_it_has_got_does_not_halt_a_server():
    village = Village(TABLE["pao-fed-c2"])
    village.until(lambda: village.nodes["server"].player.round >= 5)
    village.kill("server")
    village.start("server")
    server = village.nodes["server"]
    liar = server.office.neighbours["client-0"]
    server.office.arrived("client-0", wire.pack(wire.ACK, 0, False, liar.tags[1], 0, liar.safe_out + 5, 0))
    assert liar.ahead
    village.run()
    assert_same(village, simulated(TABLE["pao-fed-c2"]))


def test_a_laplace_release_is_journalled_as_one():
    """A device's ledger says what its simulation's does: the epsilon of Laplace releases, not of their zCDP."""
    private = Privacy(mechanism="laplace", epsilon=2.0, clip=1.0)
    problem = Regression(clients=3)
    federation = Federation(problem, ZcdpNfl(step=0.1, decay=0.0), Peers(shape="complete"), privacy=private, rounds=4)
    village = Village(federation)
    village.run()
    for node, told in zip(village.nodes.values(), federation.with_(engine="plain").run().ledgers[0]["nodes"]):
        history = node.account.ledger.history()
        assert {type(release) for release, _ in history.counts} == {Laplace}
        assert history.epsilon(1e-5).epsilon == pytest.approx(told["spent"]["epsilon"], rel=1e-9)


def test_a_first_laplace_release_that_is_made_again_after_a_crash_is_charged_once():
    private = Privacy(clip=0.5, epsilon=4.0, mechanism="laplace")
    village = Village(Federation(Linear(2, 3, 6, test=5), OnlineFedSgd(), privacy=private, rounds=6))
    who = village.roster.names["client"][0]
    node = village.nodes[who]
    save = node.store.save

    def killed_once_charged(state):
        if node.account.count():
            raise Crash
        save(state)

    node.store.save = killed_once_charged
    village.run()
    assert village.hosts[who].lives == 2 and len(village.charges(who)) == village.nodes[who].player.updates == 6


def test_a_server_that_noises_a_sum_keeps_a_ledger_and_its_clients_none():
    """Each of three servers writes down what its clients pay: amplified by asking in secret, as simulated."""
    federation = TABLE["dp-fedavg-deep"]
    village = Village(federation)
    village.run()
    nodes = federation.run().ledgers[0]["nodes"]
    for name, told in zip(village.roster.names["server"], nodes):
        account = village.nodes[name].account
        assert account.private
        history = account.ledger.history()
        assert [(type(release), times) for release, times in history.counts] == [(Sampled, federation.rounds)]
        assert history.epsilon(1e-5).epsilon == pytest.approx(told["spent"]["epsilon"], rel=2e-3)
    assert not any(village.nodes[name].account.private for name in village.roster.names["client"])
