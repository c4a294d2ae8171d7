"""An accountant of accounts whose releases are all alike: amplified by secret sampling, or priced in zCDP alone.

An account counts releases and their zCDP, which sampling does not make smaller. How many releases a budget covers is
therefore found before the run, by loss distributions (`personal.affordable_mu`), and is the account's limit; what they
cost together is found here, by the same.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from archipel.privacy.account import Account, accounts, release_of
from archipel.privacy.accountant import Paid, account_of, written
from archipel.privacy.accounting import EXACT, NOTHING, RDP, record, zcdp_epsilon
from archipel.privacy.ledger import EpsilonBudget, Terms
from archipel.privacy.noise import GAUSSIAN, LAPLACE
from archipel.privacy.personal import UPPER, quick_epsilon
from archipel.privacy.policy import bare_limit
from archipel.privacy.releases import Laplace, Release, Sampled, Zcdp, rho_of

HALF = 0.5  # of a release: room for the rounding of a sum
ROUNDED = 1e-9  # relative: what the cost of a release may differ by that is the planned one


def counted(scales: Any, releases: tuple[Release, ...], planned: int, limited: bool = True) -> Account:
    """Empty accounts that cover so many releases each."""
    costs = np.array([rho_of(release) for release in releases])
    return accounts(scales, (planned + HALF) * costs if limited else np.full(len(costs), np.inf))


def costing(release: Release, cost: float) -> Release:
    """A release of the same kind that costs so much zCDP: a run that goes on has the noise that it began with."""
    if abs(cost - rho_of(release)) <= ROUNDED * cost:
        return release
    if isinstance(release, Sampled):
        return Sampled(release.rate, costing(release.release, cost), release.relation)  # type: ignore[arg-type]
    if isinstance(release, Zcdp):
        return Zcdp(cost)
    return release_of(LAPLACE if isinstance(release, Laplace) else GAUSSIAN, cost)


class AlikeAccountant(NamedTuple):
    """Where the accounts are, and what one release of each is."""

    releases: tuple[Release, ...]
    terms: Terms
    delta: float
    names: tuple[str, ...]
    planned: int  # releases, at most
    role: str
    budget: float | None  # epsilon; none: they only count
    per_sample: bool = False  # costs add up

    def assuming(self, further: tuple[str, ...]) -> "AlikeAccountant":
        """The same accountant, resting on more that nobody enforces."""
        return self._replace(terms=self.terms.assuming(further))

    def release(self, number: int, cost: float, paid: float) -> Release:
        """What a node writes down when it pays."""
        return costing(self.releases[number], cost)

    def most(self, number: int, limit: float, made: Iterable[Release]) -> float:
        """The zCDP that a node may pay in all, of which these releases are a part.

        The limit is for releases that are all alike: what sampling saves is not the same in zCDP for others. If some
        are other ones, as of another description, it is what suffices whatever was released.
        """
        planned = self.releases[number]
        if self.budget is None or not isinstance(planned, Sampled) or all(release == planned for release in made):
            return limit
        return min(limit, bare_limit(self.budget, self.delta))

    def paid(self, tables: dict[str, Any]) -> Paid:
        """What was paid so far; the zCDP total is without the amplification by sampling."""
        table = account_of(tables[self.role])
        pairs = zip(self.releases, table.spent[:, 0].tolist(), table.releases[:, 0].tolist())
        made = tuple(costing(planned, spent / count) if count else planned for planned, spent, count in pairs)
        return self._replace(releases=made).priced(table.releases[:, 0])

    def forecast(self) -> Paid:
        """What will have been paid at most, before anything runs."""
        return self.priced(np.full(len(self.releases), self.planned))

    def priced(self, counts: Any) -> Paid:
        found = [self.epsilon(release, int(count)) for release, count in zip(self.releases, counts)]
        rho = np.array([rho_of(release) * count for release, count in zip(self.releases, counts)])
        epsilon = np.array([one for one, _ in found])
        return Paid(rho, np.array(counts), epsilon, np.array([how for _, how in found], object))

    def epsilon(self, release: Release, count: int) -> tuple[float, str]:
        if count == 0:
            return 0.0, NOTHING
        if isinstance(release, Zcdp):
            return zcdp_epsilon(count * release.rho, self.delta), RDP
        total = record(release) * count
        found = quick_epsilon(total, self.budget or 1.0, self.delta)
        return (found if self.budget is None else min(found, self.budget)), EXACT if total.all_gaussian else UPPER

    def budgets(self) -> Any:
        """Everyone's epsilon; NaN without a budget."""
        return np.full(len(self.releases), np.nan if self.budget is None else self.budget)

    def limit(self, value: float) -> EpsilonBudget:
        """What a number is a budget of."""
        return EpsilonBudget(value, self.delta)

    def name(self, k: int) -> str:
        return self.names[k]

    def ledger(self, tables: Any, over_time: list[tuple[int, Paid]]) -> dict[str, Any]:
        """The whole of ledger.json."""
        return written(self, self.paid(tables), over_time)

    def outlook(self) -> dict[str, Any]:
        """What ledger.json will say at most."""
        return written(self, self.forecast(), [])
