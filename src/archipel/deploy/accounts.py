"""The ledger of a real node: charged and on disk before the bytes leave, and not charged again after a crash.

What the node function charges goes into an append-only file (`privacy.journal`). A crash may fall between a charge and
the checkpoint with the words it paid for: these never left, so when the node, back at its last checkpoint, makes the
same release again, the charge that is already in the file counts for it.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from archipel.deploy.store import ANEW, Halted
from archipel.deploy.world import Disk, File
from archipel.parts.protect.individual import Secret
from archipel.privacy.accountant import account_of as spending
from archipel.privacy.journal import Damaged, FileJournal, open_ledger
from archipel.privacy.ledger import ASSUMED, ENFORCED, Assumption, Charge, Ledger, Overspent, Terms
from archipel.privacy.personal import PersonalLedgers
from archipel.privacy.releases import rho_of

JOURNAL = "ledger.journal"
Join = Callable[[Ledger], None]
SECRET = "noise and batches are drawn in secret, not from the description's seed"


def stated(terms: Terms, secret: bool) -> Terms:
    """The terms of a node's ledger. In a replay everyone can compute the noise: it protects nothing."""
    held = Assumption(SECRET, ENFORCED if secret else ASSUMED)
    return Terms(terms.unit, terms.relation, (*terms.assumptions, held))


class Account:
    """The account of a node whose algorithm is not private: nothing is counted."""

    private = False
    limited = False  # by a site's budget, which covers no release without noise
    most = 1024  # charges of a ledger that are lines of their own

    def paid(self, n: int, me: Any) -> None:
        """Called after a node acted, before anything that it said leaves."""

    def pay(self, n: int, release: Any, me: Any) -> None:
        """Pay for a release that no node function pays for, before it leaves."""

    def count(self) -> int:
        """How many charges a checkpoint covers."""
        return 0

    def resume(self, count: int, me: Any) -> None:
        """Back at a checkpoint that covers so many charges."""

    def reached(self) -> int:
        """The round that was paid for and not played: one before it would be another order, and paid beside it."""
        return 0

    def leaving(self) -> None:
        """What the last checkpoint covers leaves: no older state may make these releases again."""

    def settle(self) -> None:
        """A checkpoint covers all charges so far: none will be looked for one by one."""

    def total(self, me: Any) -> float | None:
        """What was paid, in zCDP, as it may be told."""
        return None

    def close(self) -> None:
        pass


class SpendingAccount(Account):
    """For node functions that pay from an `Account` in their row (`privacy.account`)."""

    private = True

    def __init__(self, disk: Disk, name: str, accountant: Any, number: int, secret: bool, me: Any, join: Join):
        self.path, self.ledger = kept_in(disk), opened(disk, name, stated(accountant.terms, secret), join)
        self.accountant, self.number = accountant, number
        self.before: list[Charge] = []  # charged before the crash, for words that never left
        self.together = 0  # lines that were left when some were put together last
        self.spent, self.releases = float(spending(me).spent[0]), float(spending(me).releases[0])
        if self.ledger.charges:  # the state was lost, the ledger was not
            spending(me).releases[0] = self.releases = self.ledger.lines
            if accountant.per_sample:  # samples that have paid may be used again, and pay again
                spending(me).limit[0] = accountant.left(float(spending(me).limit[0]), self.ledger.rho())
            else:
                spending(me).spent[0] = self.spent = self.ledger.rho()
                made = [charge.release for charge in self.ledger.charges]
                spending(me).limit[0] = accountant.most(number, float(spending(me).limit[0]), made)

    def paid(self, n: int, me: Any) -> None:
        cost, count = float(spending(me).spent[0]) - self.spent, float(spending(me).releases[0]) - self.releases
        self.spent, self.releases = float(spending(me).spent[0]), float(spending(me).releases[0])
        if count > 0 and self.limited and not cost < float("inf"):
            raise Overspent(f"{self.ledger.node}: round {n} would leave without noise, which no budget covers.")
        if count <= 0 or not cost < float("inf"):  # without noise nothing is promised, and nothing counted
            return
        self.enter(Charge(n, self.accountant.release(self.number, cost, self.earlier(n)), 1))

    def earlier(self, n: int) -> float:
        """What was paid before the next release of round n, which may itself have been charged before a crash."""
        if not self.before:
            return self.ledger.rho()
        at = next((i for i, charge in enumerate(self.before) if charge.round == n), len(self.before))
        charges = self.ledger.charges
        return sum(rho_of(charge.release) for charge in charges[: len(charges) - len(self.before) + at])

    def pay(self, n: int, release: Any, me: Any) -> None:
        if spending(me).spent[0] > spending(me).limit[0]:  # a state was lost: it was paid for before
            raise Overspent(f"{self.ledger.node} has spent its privacy budget, and cannot pay for units once more.")
        self.enter(Charge(n, release, 1))

    def enter(self, charge: Charge) -> None:
        """Charge it, unless it was before a crash."""
        if charge in self.before:  # what lies before it was for a round that is not played again, and stays charged
            del self.before[: self.before.index(charge) + 1]
            return
        self.before = []  # another release than before the crash: what was charged stays charged
        self.ledger.charge(charge.round, charge.release, charge.times)

    def count(self) -> int:
        return self.ledger.lines - len(self.before)

    def reached(self) -> int:
        return self.before[0].round if self.before else 0

    def leaving(self) -> None:
        leave(self.ledger, self.count())

    def resume(self, count: int, me: Any) -> None:
        check_whole(self.path, self.ledger, self.ledger.lines, count)
        single = [charge for charge in self.ledger.charges if charge.lines == 1]
        behind = self.ledger.lines - count  # of an older state some are together already: they stay charged
        self.before = single[len(single) - min(behind, len(single)) :]
        self.spent, self.releases = float(spending(me).spent[0]), float(spending(me).releases[0])

    def settle(self) -> None:
        if len(self.ledger.charges) >= self.most + 2 * self.together:
            self.ledger.fold(self.count())
            self.together = len(self.ledger.charges)
            if self.ledger.journal is not None:
                self.ledger.journal.fold(self.ledger.charges)

    def total(self, me: Any) -> float | None:
        if isinstance(self.accountant, Secret):  # what it paid tells of its data; that it has a budget does not
            return float(self.accountant.planned[self.number]) if self.ledger.lines else 0.0
        return self.ledger.rho()

    def close(self) -> None:
        close(self.ledger)


class Resumed(Ledger):
    """A ledger, back at a checkpoint: charges made before the crash count for the releases that are made again."""

    before: list[Charge]

    def charge(self, moment: int, release: Any, times: int = 1) -> None:
        again = Charge(int(moment), release, int(times))
        while self.before:  # another release than before the crash: what was charged stays charged
            charged = self.before.pop(0)
            with self._lock:
                self._enter(charged)
            if charged == again:
                return
        super().charge(moment, release, times)


class LedgerAccount(Account):
    """For node functions that charge a `Ledger` themselves (`PersonalLedgers`)."""

    private = True

    def __init__(self, disk: Disk, name: str, ledgers: list[Ledger], number: int, secret: bool, join: Join):
        self.path, self.name, self.ledgers, self.number = kept_in(disk), name, ledgers, number
        self.own = opened(disk, name, stated(ledgers[number].terms, secret), join, ledgers[number].budget)
        ledgers[number] = self.own

    def count(self) -> int:
        return len(self.own.charges)

    def reached(self) -> int:
        return self.own.before[0].round if isinstance(self.own, Resumed) and self.own.before else 0

    def leaving(self) -> None:
        leave(self.own, self.count())

    def resume(self, count: int, me: Any) -> None:
        journal, charges = self.own.journal, self.own.charges
        check_whole(self.path, self.own, len(charges), count)
        self.own = Resumed(self.name, self.own.terms, self.own.budget, charges[:count], journal)
        self.own.before = charges[count:]
        self.ledgers[self.number] = self.own

    def total(self, me: Any) -> float | None:
        return self.own.rho()

    def close(self) -> None:
        close(self.own)


def check_whole(path: Path, ledger: Ledger, found: int, count: int) -> None:
    """A ledger may be ahead of the checkpoint, never behind it: each charge was on disk first.

    But what it is ahead by must not have left: the same round would be released again, and paid for once.
    """
    if found < count:
        sentence = f"{path} has {found} charges, the checkpoint {count}: restore it, or what was spent is forgotten."
        raise Damaged(sentence)
    left = ledger.journal.left if ledger.journal is not None else 0
    if left > count:
        older = f"this state is older than what has left it: {left} releases by {path.name}, and it knows of {count}"
        raise Halted(f"{ledger.node}: {older}. Restore the last one ({path.parent}), or, {ANEW}.")
    leave(ledger, count)


def leave(ledger: Ledger, count: int) -> None:
    if ledger.journal is not None:
        ledger.journal.leave(count)


def close(ledger: Ledger) -> None:
    if ledger.journal is not None:
        ledger.journal.close()


def kept_in(disk: Disk) -> Path:
    """Where a ledger is, for sentences."""
    return Path(disk.path) / JOURNAL


def opened(disk: Disk, name: str, terms: Terms, join: Join, budget: Any = None) -> Ledger:
    """The ledger on a node's disk. Its name is there for good before anything is charged to it."""
    file = disk.open(JOURNAL)
    disk.sync()
    ledger = open_ledger(kept_in(disk), name, terms, budget, file)
    try:
        assert isinstance(ledger.journal, FileJournal)
        ledger.journal.renew = partial(renewed, disk)
        join(ledger)
    except BaseException:
        close(ledger)
        raise
    return ledger


def renewed(disk: Disk, content: bytes) -> File:
    """Another file in the place of the ledger."""
    disk.replace(JOURNAL, content, durable=True)
    return disk.open(JOURNAL)


def account_of(view: Any, disk: Disk | None, secret: bool, join: Join = lambda ledger: None) -> Account:
    """The account of a node: kept on its disk, or of this process only where there is none.

    `join` puts a ledger behind that of the site (`site.joined`).
    """
    accountant, member = view.plan.accountant, view.member
    if disk is None or accountant is None or member.role != accountant.role:
        return Account()
    if isinstance(accountant, PersonalLedgers):
        return LedgerAccount(disk, member.name, accountant.ledgers, member.number, secret, join)
    return SpendingAccount(disk, member.name, accountant, member.number, secret, view.me, join)
