"""A ledger per node: what its data has paid so far, under which terms, and how much it may pay at most.

Nothing leaves a node before `charge` has returned; `charge` refuses what the budget does not cover, and the
node falls silent. With a `journal` (see `archipel.privacy.journal`) a charge is on disk before `charge`
returns.
"""

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from archipel.errors import BadInput, did_you_mean
from archipel.privacy.accounting import Conversion, History, check_delta, from_units, merged, to_units
from archipel.privacy.gaussian import mu_of
from archipel.privacy.releases import RELATIONS, Gaussian, Relation, Release, Sampled, rho_of

Unit = Literal["sample", "client"]
UNITS: tuple[Unit, ...] = ("sample", "client")
ENFORCED, ASSUMED = "enforced", "assumed"
ROUNDING = 1e-12  # ten releases of a tenth of a zCDP budget fit into it


class Overspent(RuntimeError):
    """A release that the budget does not cover. Nothing was charged, so nothing may be released."""


class Assumption(NamedTuple):
    """Something the guarantee rests on, and whether the code makes it true (`enforced`) or only hopes so
    (`assumed`).
    """

    what: str  # such as "per-example gradients have norm at most 1"
    how: str


@dataclass(frozen=True)
class Terms:
    """What a guarantee is about: whose data, which change of it, resting on what."""

    unit: Unit
    relation: Relation
    assumptions: tuple[Assumption, ...] = ()

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BadInput("privacy.unit", self.unit, did_you_mean(str(self.unit), UNITS))
        if self.relation not in RELATIONS:
            raise BadInput("privacy.relation", self.relation, did_you_mean(str(self.relation), RELATIONS))
        object.__setattr__(self, "assumptions", tuple(Assumption(*a) for a in self.assumptions))
        for what, how in self.assumptions:
            if how not in (ENFORCED, ASSUMED):
                raise BadInput(f'privacy assumption "{what}"', how, did_you_mean(str(how), (ENFORCED, ASSUMED)))

    @property
    def how(self) -> str:
        """`enforced` where every assumption is, else `assumed`."""
        return ASSUMED if any(a.how == ASSUMED for a in self.assumptions) else ENFORCED

    def assuming(self, further: Iterable[str]) -> "Terms":
        """The same terms, resting on more that nobody enforces."""
        return Terms(self.unit, self.relation, (*self.assumptions, *(Assumption(what, ASSUMED) for what in further)))

    def as_json(self) -> dict[str, Any]:
        held = [{"what": a.what, "how": a.how} for a in self.assumptions]
        return {"unit": self.unit, "relation": self.relation, "guarantee": self.how, "assumptions": held}


# --- budgets ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EpsilonBudget:
    """At most (epsilon, delta) over the whole life of the ledger."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise BadInput("privacy.epsilon", self.epsilon, "a positive, finite budget")
        check_delta(self.delta)

    def allows(self, history: History) -> bool:
        return history.epsilon(self.delta).epsilon <= self.epsilon

    def gaussian_rho(self) -> float:
        """The largest zCDP total of a history that is all Gaussian."""
        return mu_of(self.epsilon, self.delta) ** 2 / 2

    def as_json(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "delta": self.delta}


@dataclass(frozen=True)
class ZcdpBudget:
    """At most rho-zCDP over the whole life of the ledger."""

    rho: float

    def __post_init__(self) -> None:
        if not 0 < self.rho < math.inf:
            raise BadInput("privacy.rho", self.rho, "a positive, finite budget")

    def allows(self, history: History) -> bool:
        return history.rho() <= self.gaussian_rho()

    def gaussian_rho(self) -> float:
        return self.rho * (1 + ROUNDING)

    def as_json(self) -> dict[str, float]:
        return {"rho": self.rho}


Budget = EpsilonBudget | ZcdpBudget


class Charge(NamedTuple):
    """A line of the ledger; or several that became one, of which the round is the last one's."""

    round: int
    release: Release
    times: int
    lines: int = 1


class Journal(Protocol):
    """Where charges are kept; `append` returns when the line is safe."""

    @property
    def left(self) -> int:
        """Charges whose words have left, or may have."""
        ...

    def append(self, charge: Charge) -> None: ...
    def leave(self, count: int) -> None: ...
    def fold(self, charges: Iterable[Charge]) -> None: ...
    def close(self) -> None: ...


# --- the ledger ---------------------------------------------------------------------------------------------


AHEAD = (1.0, 0.5, 0.25, 0.125)  # how much more of the same a ledger asks its budget for at once


def contains(larger: dict[Release, int], part: dict[Release, int]) -> bool:
    """Whether a history has all that another has."""
    return all(larger.get(release, 0) >= count for release, count in part.items())


class Ledger:
    """What one node has paid. Without a budget it only counts.

    >>> ledger = Ledger("client 0", Terms("sample", "replace-one"), ZcdpBudget(0.02))
    >>> for n in range(4):
    ...     ledger.charge(n, Gaussian(0.1))
    >>> ledger.affords(Gaussian(0.1)), round(ledger.rho(), 6)
    (False, 0.02)
    """

    def __init__(
        self,
        node: str,
        terms: Terms,
        budget: Budget | None = None,
        charges: Iterable[Charge] = (),
        journal: Journal | None = None,
    ):
        self.node, self.terms, self.budget, self.journal = str(node), terms, budget, journal
        self.charges: list[Charge] = []
        self.lines = 0  # that were ever written
        self._gaussian_rho = 0  # exact, as long as everything is Gaussian
        self._limit = to_units(budget.gaussian_rho()) if budget else 0
        self._others = 0
        self._lock = threading.Lock()
        self._counts: dict[Release, int] = {}
        self._approved: dict[Release, int] = {}  # a history that was found to fit: so does every part of it
        for charge in charges:
            self._enter(charge)

    def affords(self, release: Release, times: int = 1) -> bool:
        """Whether `charge` would accept this."""
        self._check(release, times)
        if self.budget is None:
            return True
        if isinstance(release, Gaussian) and not self._others:
            return self._gaussian_rho + to_units(rho_of(release)) * times <= self._limit
        wanted = self._counts | {release: self._counts.get(release, 0) + times}
        return contains(self._approved, wanted) or self._look_ahead(wanted)

    def _look_ahead(self, wanted: dict[Release, int]) -> bool:
        """Whether a history fits, and if it can be with more of the same, so that not every charge needs a loss
        distribution.
        """
        assert self.budget is not None
        both = {release: max(count, self._approved.get(release, 0)) for release, count in wanted.items()}
        more = [{release: count + int(count * share) for release, count in wanted.items()} for share in AHEAD]
        for ahead in (self._approved | both, *more, wanted):
            if self.budget.allows(merged(ahead.items())):
                self._approved = ahead
                return True
        return False

    def charge(self, moment: int, release: Release, times: int = 1) -> None:
        """Enter a release of round `moment`, or raise `Overspent` and enter nothing. Call it before anything
        is shared.
        """
        with self._lock:  # between asking and entering nobody else may enter
            if not self.affords(release, times):
                raise Overspent(
                    f"{self.node} has spent its privacy budget: round {moment} would exceed "
                    f"{self.budget}. It stays silent."
                )
            charge = Charge(int(moment), release, int(times))
            if self.journal is not None:
                self.journal.append(charge)
            self._enter(charge)

    def _check(self, release: Release, times: int) -> None:
        if int(times) != times or times < 1:
            raise BadInput("times", times, "a whole number, at least 1")
        if isinstance(release, Sampled) and release.relation != self.terms.relation:
            raise BadInput("privacy.relation", release.relation, f'"{self.terms.relation}", as the ledger says')

    def _enter(self, charge: Charge) -> None:
        self._check(charge.release, charge.times)
        self.charges.append(charge)
        self.lines += charge.lines
        if isinstance(charge.release, Gaussian):
            self._gaussian_rho += to_units(rho_of(charge.release)) * charge.times
        else:
            self._others += charge.times
        self._counts[charge.release] = self._counts.get(charge.release, 0) + charge.times

    def fold(self, lines: int) -> None:
        """Of the first lines, put those of the same release together: an accountant asks which, and how often."""
        together: dict[Release, Charge] = {}
        kept, at = [], 0
        for charge in self.charges:
            at += charge.lines
            if at > lines:
                kept.append(charge)
                continue
            last, release, times, count = charge
            before = together.get(release, Charge(last, release, 0, 0))
            together[release] = Charge(max(before.round, last), release, before.times + times, before.lines + count)
        self.charges = [*together.values(), *kept]

    def history(self) -> History:
        """Everything that was charged, as one history."""
        return merged(self._counts.items())

    def rho(self) -> float:
        """The zCDP total so far."""
        return from_units(self._gaussian_rho) if not self._others else self.history().rho()

    def epsilon(self, delta: float) -> Conversion:
        """The (epsilon, delta) so far, and how it was found."""
        return self.history().epsilon(delta)
