"""The accountant: what nodes have paid (`account`), as a ledger, in a simulation."""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from archipel.privacy.account import release_of
from archipel.privacy.accounting import EXACT, NOTHING, PURE, RDP, record, zcdp_epsilon
from archipel.privacy.gaussian import epsilon_of
from archipel.privacy.ledger import EpsilonBudget, Terms, ZcdpBudget
from archipel.privacy.noise import LAPLACE
from archipel.privacy.pieces import pieces, rows_of
from archipel.privacy.policy import Noise, Privacy, amounts, bare_limit, laplace_epsilon, release_costs
from archipel.privacy.releases import Laplace, Release, Zcdp, rho_of

MANY = 1000  # clients, beyond which a ledger shows totals only
UNPROTECTED = "no noise: nothing is protected"
ALIKE = 1e-9  # relative: what costs of releases may differ by that are alike
CONVERTED = 64  # different Laplace histories that are worth a loss distribution each


class Paid(NamedTuple):
    """What every client has paid at some moment."""

    rho: Any  # (clients,)
    releases: Any  # (clients,)
    epsilon: Any  # (clients,), at the accountant's delta
    methods: Any  # (clients,): how the epsilon was found


class Accountant(NamedTuple):
    """Where the clients' accounts are, and what their payments mean.

    A plan may have its own in place of it, with `paid(tables)`, `forecast()` and what `written` asks for.
    """

    policy: Privacy
    terms: Terms
    seed: int
    names: tuple[str, ...]
    planned: Any  # (clients,): zCDP that will have been paid at most
    planned_releases: Any  # (clients,): and in how many releases
    alike: bool = True  # all releases of a client cost the same
    role: str = "client"
    per_sample: bool = False  # every sample pays for itself, and the dearest one counts
    before: float = 0.0  # zCDP that every client has paid before the first round, by one release

    @property
    def delta(self) -> float:
        return self.policy.delta

    def assuming(self, further: tuple[str, ...]) -> "Accountant":
        """The same accountant, resting on more that nobody enforces."""
        return self._replace(terms=self.terms.assuming(further))

    def release(self, number: int, cost: float, paid: float) -> Release:
        """What a node writes down. Where every sample pays for itself, what a dearer one costs more is no release."""
        more = self.policy.law == LAPLACE and self.per_sample and paid > 0
        return Zcdp(cost) if more else release_of(self.policy.law, cost)

    def left(self, limit: float, paid: float) -> float:
        """What of a limit is left for samples that have paid for themselves, and are used again.

        An epsilon that Laplace noise was fitted to is that of one release, without a delta. Several add up as epsilons
        do, not as zCDP does: nothing is left.
        """
        fitted = self.policy.law == LAPLACE and self.policy.epsilon is not None and self.policy.noise is None
        return min(limit - paid, 0.0) if fitted else limit - paid

    def most(self, number: int, limit: float, made: Iterable[Release]) -> float:
        """The zCDP that a node may pay in all, of which these releases are a part.

        For Laplace noise and an epsilon the limit is for so many releases that are alike. If some are other ones, as of
        another description, it is what suffices whatever was released.
        """
        if self.policy.law != LAPLACE or self.policy.epsilon is None:
            return limit
        each = float(self.planned[number] / max(self.planned_releases[number], 1))
        if self.alike and all(abs(rho_of(release) - each) <= ALIKE * each for release in made):
            return limit
        return min(limit, bare_limit(float(self.budgets()[number]), self.delta))

    def paid(self, tables: dict[str, Any]) -> Paid:
        """What was paid so far."""
        table = account_of(tables[self.role])
        return self.priced(table.spent[:, 0] + self.before, table.releases[:, 0] + (self.before > 0))

    def forecast(self) -> Paid:
        """What will have been paid at most when all rounds are over, before anything runs."""
        return self.priced(
            np.asarray(self.planned) + self.before, np.asarray(self.planned_releases) + (self.before > 0)
        )

    def priced(self, rho: Any, releases: Any) -> Paid:
        """zCDP totals with their (epsilon, delta)."""
        epsilon = np.full(rho.shape, np.inf)
        methods = np.full(rho.shape, UNPROTECTED, object)
        counted = np.isfinite(rho)
        if self.policy.mechanism == "gaussian":
            different, which = np.unique(rho[counted], return_inverse=True)  # of a million clients most paid the same
            epsilon[counted] = np.atleast_1d(epsilon_of(np.sqrt(2 * different), self.delta))[which]
            methods[counted] = EXACT
        else:
            for pair in {*zip(rho[counted].tolist(), releases[counted].tolist())}:
                same = (rho == pair[0]) & (releases == pair[1])
                epsilon[same], methods[same] = self.laplace_epsilon(*pair, len(rho) <= CONVERTED)
        methods[rho == 0] = NOTHING
        return Paid(rho, releases.copy(), epsilon, methods)

    def laplace_epsilon(self, rho: float, releases: int, exactly: bool) -> tuple[float, str]:
        """epsilon of Laplace releases: all alike by the best accountant, else by their zCDP total, or by their sum.

        By Cauchy and Schwarz the sum of n epsilons, each at most 2, is at most sqrt(2 n rho).
        """
        if releases == 0 or rho == 0:
            return 0.0, NOTHING
        if self.per_sample:
            return laplace_epsilon(rho), PURE
        alike, each = self.alike, laplace_epsilon(rho / releases)
        if alike and exactly:
            return alike_epsilon(each, int(releases), self.delta)
        bare = (zcdp_epsilon(rho, self.delta), RDP)
        if alike:
            return min(bare, (each * releases, PURE))
        return min(bare, (math.sqrt(2 * releases * rho), PURE)) if rho <= 2 else bare

    def budgets(self) -> Any:
        """Every client's budget: its epsilon or its rho, and NaN without one."""
        target = self.policy.epsilon if self.policy.epsilon is not None else self.policy.rho
        return amounts(math.nan if target is None else target, "privacy", len(self.planned), self.seed)

    def limit(self, value: float) -> EpsilonBudget | ZcdpBudget:
        """What a number is a budget of."""
        return EpsilonBudget(value, self.delta) if self.policy.epsilon is not None else ZcdpBudget(value)

    def ledger(self, tables: dict[str, Any], over_time: list[tuple[int, Paid]]) -> dict[str, Any]:
        """The whole of ledger.json."""
        return written(self, self.paid(tables), over_time)

    def outlook(self) -> dict[str, Any]:
        """What ledger.json will say at most."""
        return written(self, self.forecast(), [])

    def name(self, k: int) -> str:
        return self.names[k] if self.names else f"{self.role} {k}"


def written(accountant: Any, paid: Paid, over_time: list[tuple[int, Paid]]) -> dict[str, Any]:
    """ledger.json of any accountant: `{"delta", "guarantee", "worst", "nodes": [...]}`.

    A node a client; of many clients, one for all whose numbers are the same.
    """
    budgets, terms, delta = np.asarray(accountant.budgets(), float), accountant.terms.as_json(), accountant.delta
    few = len(paid.rho) <= MANY
    first, counts = np.arange(len(paid.rho)), np.ones(len(paid.rho), np.int64)
    if not few:
        alike = np.stack([np.nan_to_num(budgets, nan=-1.0), paid.rho, paid.releases])
        _, first, counts = np.unique(alike, axis=1, return_index=True, return_counts=True)
    nodes = []
    for k, count in zip(first.tolist(), counts.tolist()):
        budget = None if math.isnan(budgets[k]) else accountant.limit(float(budgets[k])).as_json()
        node: dict[str, Any] = {"node": accountant.name(k), "budget": budget}
        node |= {"spent": spent(paid, k, delta), "releases": int(paid.releases[k])}
        nodes.append(node | (terms | {"over_time": history(over_time, k)} if few else {"clients": count}))
    worst = {"epsilon": finite(paid.epsilon.max(initial=0.0)), "delta": delta}
    return {"delta": delta, **terms, "worst": worst, "nodes": nodes}


def account_of(table: Any) -> Any:
    """Where a node's account is: in the part that protects it."""
    return getattr(table, "protect", table)


@lru_cache(maxsize=4096)
def alike_epsilon(each: float, releases: int, delta: float) -> tuple[float, str]:
    """epsilon of so many Laplace releases of the same epsilon."""
    found = (record(Laplace(each)) * releases).epsilon(delta)
    return found.epsilon, found.method


def finite(value: float) -> float | None:
    """JSON has no infinity."""
    return float(value) if math.isfinite(value) else None


def spent(paid: Paid, k: int, delta: float) -> dict[str, Any]:
    """One client's total."""
    return {
        "rho": finite(paid.rho[k]),
        "epsilon": finite(paid.epsilon[k]),
        "delta": delta,
        "method": str(paid.methods[k]),
    }


def history(over_time: list[tuple[int, Paid]], k: int) -> dict[str, list[Any]]:
    """One client's total at every measurement."""
    return {
        "round": [moment for moment, _ in over_time],
        "rho": [finite(paid.rho[k]) for _, paid in over_time],
        "epsilon": [finite(paid.epsilon[k]) for _, paid in over_time],
    }


def planned_of(drawn: Noise, changes: Any, per_sample: bool = False) -> tuple[Any, Any]:
    """What every client pays at most, and how often, for releases that move by `changes`, as in `Privacy.noise_of`."""
    heard, clients = drawn.shape >= 0, len(drawn.first)
    total, count = np.zeros(clients), np.zeros(clients, np.int64)
    for part in pieces(clients, len(heard)):
        rows = np.broadcast_to(found := rows_of(changes, part), (len(found), len(heard)))[:, heard]
        costs = release_costs(drawn.law, rows, drawn.first[part] * drawn.shape[heard])
        total[part], count[part] = spend_all(costs, drawn.limit[part], per_sample)
    return total, count


def spend_all(costs: Any, limits: Any, per_sample: bool = False) -> tuple[Any, Any]:
    """What a client pays at most, and how often: (clients, rounds) of costs, against limits.

    That is what it pays who releases in every round that the limit covers. But where rounds cost differently and the
    limit binds, who misses some may pay more, as cheap early rounds leave room for a dear one: up to the limit.
    """
    limits = np.asarray(limits, float).reshape(-1)
    total, whole, dearest = (np.zeros(len(limits)) for _ in range(3))
    count, cheapest = np.zeros(len(limits), np.int64), np.full(len(limits), np.inf)
    for n in range(costs.shape[1]):
        cost = np.broadcast_to(costs[:, n], limits.shape)
        single = cost <= limits
        covered = single if per_sample else total + cost <= limits
        total = np.where(covered, np.maximum(total, cost) if per_sample else total + cost, total)
        count += covered
        whole += np.where(single, cost, 0.0)
        dearest = np.where(single, np.maximum(dearest, cost), dearest)
        cheapest = np.where(single, np.minimum(cheapest, cost), cheapest)
    for k in [] if per_sample else np.flatnonzero((whole > total) & (dearest > cheapest)):
        total[k] = min(limits[k], whole[k])
        cheap_first = np.cumsum(np.sort(costs[k % len(costs)]))
        count[k] = np.searchsorted(cheap_first, limits[k] * (1 + 1e-12), "right")  # in any order
    return total, count
