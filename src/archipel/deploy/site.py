"""What the data of a site has paid, in all federations together: one file, one budget.

Several nodes charge it, each in a process of its own: the file is locked while one of them does, and what the others
wrote meanwhile is read first. A node charges the site before its own ledger, and both before anything leaves; so the
site's ledger may be ahead of what left, never behind it.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from archipel.deploy.permit import Permit, budget_of
from archipel.deploy.world import World
from archipel.errors import BadInput
from archipel.privacy.journal import SEED, FileJournal
from archipel.privacy.ledger import Charge, Ledger, Overspent, Terms
from archipel.privacy.releases import as_json, from_json

LEDGER = "ledger.journal"


class SiteLedger:
    """The ledger of a site, as one of its nodes sees it."""

    def __init__(self, world: World, permit: Permit, terms: Terms):
        assert world.site is not None
        self.world, self.disk, self.permit, self.terms = world, world.site, permit, terms
        self.limits = permit.policy.privacy
        self.ledger = Ledger("this site", terms, budget_of(permit.policy))
        self.known = 0, SEED
        self.counts: Counter[int] = Counter()  # charges of each node's ledger, by its number

    @contextmanager
    def locked(self) -> Iterator[FileJournal]:
        """The file, for one charge: with all that the others have charged so far."""
        file = self.disk.open(LEDGER)
        journal = FileJournal(Path(self.disk.path) / LEDGER, file, self.known)
        try:
            if self.known[0] == 0:
                self.disk.sync()  # its name is there for good before anything is charged to it
            for entry in journal.entries:
                self.enter(entry)
            self.known = journal.size, journal.check
            yield journal
            self.known = journal.size, journal.check
        finally:
            journal.close()

    def enter(self, entry: dict[str, Any]) -> None:
        """A charge that is in the file. Of what cannot be added to this node's, no budget can be kept."""
        self.counts[entry["ledger"]] += 1
        unit, relation = entry["unit"], entry["relation"]
        if (unit, relation) == (self.terms.unit, self.terms.relation):
            self.ledger._enter(Charge(entry["round"], from_json(entry["release"]), entry["times"]))
        elif self.limits.key:
            right = (
                f"no limit, or one kind of promise at this site: {self.permit.name} would pay for a {self.terms.unit} "
                f"({self.terms.relation}), and {entry['node']} has paid for a {unit} ({relation})"
            )
            raise BadInput(self.limits.key, self.limits.value, right)

    def charge(self, number: int, charge: Charge) -> None:
        """Charge the site for a release of the ledger of a number, or refuse it: then nothing may leave."""
        with self.locked() as journal:
            if not self.ledger.affords(charge.release, charge.times):
                raise Overspent(
                    f"{BadInput(self.limits.key, self.limits.value, self.exceeded(charge))} Nothing more leaves."
                )
            self.write(journal, number, charge)

    def exceeded(self, charge: Charge) -> str:
        return (
            f"more: what {self.permit.name} would pay for round {charge.round} exceeds it, in all federations together"
        )

    def take_up(self, number: int, charges: list[Charge]) -> int:
        """Count what a node's ledger was charged without the site's knowledge; returns how many of it are known."""
        with self.locked() as journal:
            known = self.counts[number]
            for charge in charges[known:]:
                self.write(journal, number, charge)
            return known

    def write(self, journal: FileJournal, number: int, charge: Charge) -> None:
        entry = {"federation": self.permit.approval, "node": self.permit.name, "ledger": number}
        entry |= {"unit": self.terms.unit, "relation": self.terms.relation, "time": round(self.world.clock())}
        entry |= {"round": charge.round, "release": as_json(charge.release), "times": charge.times}
        journal.write(entry)
        self.enter(entry)


class Both:
    """The journal of a node's own ledger, behind that of its site."""

    def __init__(self, own: FileJournal, site: SiteLedger, charges: list[Charge]):
        self.own, self.site = own, site
        joined = [entry for entry in own.entries if "site" in entry]
        self.number: int = joined[-1]["site"] if joined else self.join(0)
        first = joined[-1]["from"] if joined else 0
        if site.take_up(self.number, charges[first:]) > len(charges) - first:
            self.number = self.join(len(charges))  # an older copy, or a crash kept it from its last charge

    def join(self, first: int) -> int:
        """A number under which the site counts this ledger's charges, from the given one on."""
        number = self.site.world.chance()
        self.own.write({"site": number, "from": first})
        return number

    def append(self, charge: Charge) -> None:
        """First the site, then the node: what a crash leaves in the former alone has not left, and stays paid."""
        self.site.charge(self.number, charge)
        self.own.append(charge)

    def close(self) -> None:
        self.own.close()


def joined(world: World, permit: Permit, ledger: Ledger) -> None:
    """Let a node's ledger be charged only where its site's is."""
    assert isinstance(ledger.journal, FileJournal)
    ledger.journal = Both(ledger.journal, SiteLedger(world, permit, ledger.terms), ledger.charges)
