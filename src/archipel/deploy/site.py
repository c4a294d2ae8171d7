"""What the data of a site has paid, in all federations together: one file, one budget.

Several nodes charge it, each in a process of its own: the file is locked while one of them does, and what the others
wrote meanwhile is read first. A node charges the site before its own ledger, and both before anything leaves; so the
site's ledger may be ahead of what left, never behind it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from archipel.deploy.permit import Permit, budget_of
from archipel.deploy.world import World
from archipel.errors import BadInput
from archipel.privacy.journal import SEED, FileJournal, chained, charge_of, entry_of, parse
from archipel.privacy.ledger import Charge, Ledger, Overspent, Terms

LEDGER = "ledger.journal"
WIDTH = 256  # bytes of the first line, at most, where it says that lines were put together
ALIKE = ("federation", "node", "ledger", "unit", "relation", "release")  # what lines that become one share


class SiteLedger:
    """The ledger of a site, as one of its nodes sees it."""

    most = 1024  # lines of their own
    together = 0  # lines that were left when some were put together last

    def __init__(self, world: World, permit: Permit, terms: Terms):
        assert world.site is not None
        self.world, self.disk, self.terms = world, world.site, terms
        self.obey(permit)
        self.known, self.folded = (0, SEED), 0  # how often lines were put together
        self.counts: Counter[int] = Counter()  # charges of each node's ledger, by its number

    def obey(self, permit: Permit, charges: Iterable[Charge] = ()) -> None:
        """The rules that hold from here on, for what was charged so far too."""
        self.permit, self.limits = permit, permit.policy.privacy
        self.ledger = Ledger("this site", self.terms, budget_of(permit.policy), charges)

    @contextmanager
    def locked(self) -> Iterator[FileJournal]:
        """The file, for one charge: with all that the others have charged so far."""
        file = self.disk.open(LEDGER)
        self.notice(file.read(0, WIDTH))
        journal = FileJournal(Path(self.disk.path) / LEDGER, file, self.known)
        try:
            if self.known[0] == 0:
                self.disk.sync()  # its name is there for good before anything is charged to it
            for entry in journal.entries:
                self.enter(entry)
            self.known = journal.size, journal.check
            yield journal
            self.known = journal.size, journal.check
            if len(self.ledger.charges) >= self.most + 2 * self.together:
                self.fold(file.read())
        finally:
            journal.close()

    def notice(self, head: bytes) -> None:
        """Whether another file is there than was read: one in which lines were put together is read anew."""
        if not self.known[0]:
            return
        try:
            folded = json.loads(head.partition(b"\n")[0][17:]).get("folded", 0)
        except ValueError:
            return  # it will be found damaged
        if folded > self.folded:
            self.known, self.counts = (0, SEED), Counter()
            self.ledger = Ledger(self.ledger.node, self.terms, self.ledger.budget)

    def fold(self, content: bytes) -> None:
        """Put lines that are alike together, in a file that takes this one's place: the last that is done to it."""
        together: dict[str, dict[str, Any]] = {}
        for entry in parse(content, Path(self.disk.path) / LEDGER)[0]:
            if "folded" in entry:
                continue
            alike = json.dumps([entry[name] for name in ALIKE])
            last = together.setdefault(alike, {**entry, "from": entry["round"], "times": 0, "lines": 0})
            last |= {"time": entry["time"], "round": max(last["round"], entry["round"])}
            last["from"] = min(last["from"], entry.get("from", entry["round"]))
            last["times"] += entry["times"]
            last["lines"] += entry.get("lines", 1)
        self.ledger.fold(self.ledger.lines)
        self.folded, self.together = self.folded + 1, len(self.ledger.charges)
        content, check = chained([{"folded": self.folded}, *together.values()])
        self.disk.replace(LEDGER, content, durable=True)
        self.known = len(content), check

    def enter(self, entry: dict[str, Any]) -> None:
        """A charge that is in the file. Of what cannot be added to this node's, no budget can be kept."""
        if "folded" in entry:
            self.folded = entry["folded"]
            return
        self.counts[entry["ledger"]] += entry.get("lines", 1)
        unit, relation = entry["unit"], entry["relation"]
        if (unit, relation) == (self.terms.unit, self.terms.relation):
            self.ledger._enter(charge_of(entry))
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

    def take_up(self, number: int, charges: list[Charge], first: int = 0) -> int:
        """Count what a node's ledger was charged, from a line on, without the site's knowledge; how many are known."""
        with self.locked() as journal:
            known, at = self.counts[number], 0
            for charge in charges:
                at += charge.lines
                if at > first + known:
                    self.write(journal, number, charge)
            return known

    def write(self, journal: FileJournal, number: int, charge: Charge) -> None:
        entry = {"federation": self.permit.approval, "node": self.permit.name, "ledger": number}
        entry |= {"unit": self.terms.unit, "relation": self.terms.relation, "time": round(self.world.clock())}
        entry |= entry_of(charge)
        journal.write(entry)
        self.enter(entry)


class Both:
    """The journal of a node's own ledger, behind that of its site."""

    def __init__(self, own: FileJournal, site: SiteLedger, charges: list[Charge]):
        self.own, self.site = own, site
        joined = [entry for entry in own.entries if "site" in entry]
        self.number: int = joined[-1]["site"] if joined else self.join(0)
        first, lines = joined[-1]["from"] if joined else 0, sum(charge.lines for charge in charges)
        if site.take_up(self.number, charges, first) > lines - first:
            self.number = self.join(lines)  # an older copy, or a crash kept it from its last charge

    def join(self, first: int) -> int:
        """A number under which the site counts this ledger's charges, from the given one on."""
        number = self.site.world.chance()
        self.own.write({"site": number, "from": first})
        return number

    def append(self, charge: Charge) -> None:
        """First the site, then the node: what a crash leaves in the former alone has not left, and stays paid."""
        self.site.charge(self.number, charge)
        self.own.append(charge)

    @property
    def left(self) -> int:
        return self.own.left

    def leave(self, count: int) -> None:
        self.own.leave(count)

    def fold(self, charges: Iterable[Charge]) -> None:
        self.own.fold(charges)

    def close(self) -> None:
        self.own.close()


def joined(world: World, permit: Permit, ledger: Ledger) -> SiteLedger:
    """Let a node's ledger be charged only where its site's is."""
    assert isinstance(ledger.journal, FileJournal)
    site = SiteLedger(world, permit, ledger.terms)
    ledger.journal = Both(ledger.journal, site, ledger.charges)
    return site
