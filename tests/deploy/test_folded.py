"""Ledgers that do not grow for ever: lines that are alike become one, and a crash at any moment forgets nothing."""

import multiprocessing
from collections import Counter

import pytest
from harness import Village
from test_site import PRIVATE, TERMS, Judged, allowing, ledger_of

from archipel import Federation, Linear
from archipel.algorithms.fedavg import FedAvg
from archipel.deploy import wire
from archipel.deploy.accounts import JOURNAL
from archipel.deploy.site import LEDGER, SiteLedger
from archipel.deploy.torture import simulation
from archipel.deploy.torture.disk import SimulatedDisk
from archipel.disk import SharedFolder
from archipel.policy import Limits
from archipel.privacy.journal import Damaged, FileJournal, open_ledger, parse
from archipel.privacy.ledger import Charge, Ledger
from archipel.privacy.policy import Privacy
from archipel.privacy.releases import Gaussian, Laplace

OPEN_END = Federation(
    Linear(clients=2, size=4, samples=8), FedAvg(), privacy=Privacy(noise=0.5, clip=1.0, unit="client")
)


def lines_of(disk, name):
    return [entry for entry in parse(disk.open(name).read(), name)[0] if "release" in entry]


def test_a_folded_ledger_says_the_same_to_an_accountant():
    releases = [Gaussian(0.1), Gaussian(0.2), Laplace(0.3)]
    charges = [Charge(n, releases[n % 3], 1 + n % 2) for n in range(40)]
    plain, folded = Ledger("a", TERMS, None, charges), Ledger("a", TERMS, None, charges)
    folded.fold(31)
    assert len(folded.charges) == 3 + 9 and folded.charges[3:] == charges[31:] and folded.lines == 40
    assert folded.history() == plain.history() == Ledger("a", TERMS, None, folded.charges).history()
    folded.fold(40)
    counts = Counter()
    for charge in charges:
        counts[charge.release] += charge.times
    assert {charge.release: charge.times for charge in folded.charges} == counts


def grown(rounds):
    village = Village(OPEN_END.with_(rounds=rounds), pace="quorum", deadline=5.0)
    sizes = {}
    for mark in (rounds // 4, rounds):
        village.until(lambda mark=mark: all(node.player.round >= mark for node in village.nodes.values()))
        sizes[mark] = [len(village.hosts[name].disk.open(JOURNAL).read()) for name in ("client-0", "client-1")]
        charges = village.charges("client-0")
        node = village.nodes["client-0"]
        assert abs(len(charges) - node.player.round) <= 2 and len(node.account.ledger.charges) <= simulation.FEW + 4
        assert sum(charges) == pytest.approx(len(charges) * charges[0], rel=1e-12) == node.account.total(node.player.me)
    return sizes


@pytest.mark.parametrize("rounds", [200, pytest.param(5000, marks=pytest.mark.long)])
def test_a_ledger_does_not_grow_with_its_rounds(rounds):
    first, last = grown(rounds).values()
    assert all(size <= 3000 for size in (*first, *last))


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("most", [20, pytest.param(10**6, marks=pytest.mark.long)], ids=["some points", "every point"])
def test_a_crash_while_lines_are_put_together_never_forgets_what_left(power, most, monkeypatch):
    """As without putting together: both ledgers have all that left, and little more for a life."""
    monkeypatch.setattr(SiteLedger, "most", 2)
    monkeypatch.setattr(simulation, "FEW", 2)
    federation = PRIVATE.with_(rounds=4)

    def played(point):
        village = Judged(federation, 0, pace="quorum", deadline=2.0)
        name = village.roster.members[0].name
        host = village.hosts[name]
        host.policy = allowing(village.federation, name, privacy=Limits(rho=100.0, assumed=True))
        host.site = SimulatedDisk("site", True)
        host.powerless, host.back, host.crash_in = power, 0.1, point
        village.world.restarts = True
        for other in village.hosts.values():
            village.world.start(other)
        village.world.run(120.0, lambda: all(h.done for h in village.hosts.values()))
        left_over, host.crash_in = host.crash_in, 0
        words = {data[:2] + data[8:] for _, _, data in village.left[name] if data[0] & 15 == wire.WORD}
        for disk, file, more in ((host.site, LEDGER, 2), (host.disk, JOURNAL, 1)):
            paid = sum(entry.get("lines", 1) for entry in lines_of(disk, file))
            assert len(words) <= paid <= len(words) + more * (host.lives - 1), file
            assert sum(entry["times"] for entry in lines_of(disk, file)) == paid
        assert any("lines" in entry for entry in lines_of(host.site, LEDGER)) and host.done
        return left_over

    far = 10**9
    points = far - played(far)
    for point in sorted({1 + k * points // most for k in range(most)} if most < points else range(1, points)):
        played(point)


def test_a_failure_while_a_file_is_replaced_refuses_all_further_charges(tmp_path):
    ledger = open_ledger(tmp_path / "ledger", "a", TERMS)
    assert isinstance(ledger.journal, FileJournal)
    ledger.charge(0, Gaussian(0.1))

    def fails(content):
        raise OSError("the disk is gone")

    ledger.journal.renew = fails
    with pytest.raises(OSError, match="gone"):
        ledger.journal.fold(ledger.charges)
    with pytest.raises(Damaged):
        ledger.charge(1, Gaussian(0.1))


def charging(folder, name):
    """A process that charges a site a hundred times, while others put its lines together."""
    SiteLedger.most = 5
    ledger = ledger_of(SharedFolder(folder), TERMS, name=name)
    for n in range(100):
        ledger.charge(ord(name), Charge(n, Gaussian(0.1), 1))


def test_processes_that_charge_one_site_at_once_lose_nothing(tmp_path):
    workers = [multiprocessing.Process(target=charging, args=(tmp_path, name)) for name in "abc"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    entries = [entry for entry in parse((tmp_path / LEDGER).read_bytes(), LEDGER)[0] if "release" in entry]
    counts = Counter()
    for entry in entries:
        counts[entry["node"]] += entry["times"]
    assert counts == {"a": 100, "b": 100, "c": 100} and len(entries) < 40


def test_a_site_ledger_that_somebody_emptied_is_noticed(monkeypatch):
    monkeypatch.setattr(SiteLedger, "most", 3)
    site = SimulatedDisk("site", True)
    ledger = ledger_of(site, TERMS)
    for n in range(10):
        ledger.charge(1, Charge(n, Gaussian(0.1), 1))
    other = ledger_of(site, TERMS)
    other.charge(2, Charge(0, Gaussian(0.1), 1))
    assert other.counts == {1: 10, 2: 1}
    site.put({LEDGER: b""})
    with pytest.raises(Damaged):
        ledger.charge(1, Charge(10, Gaussian(0.1), 1))
