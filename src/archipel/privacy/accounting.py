"""What a history of releases costs: in zCDP, and in (epsilon, delta) by the best method that holds for it.

A `History` is an immutable multiset of releases; composing two histories is adding them, in any order and any
split. Sums are exact (in whole numbers, rounded once), so the same releases always print the same total,
bit by bit.

| history | method | how good |
|---|---|---|
| all Gaussian | `EXACT`: one Gaussian with mu^2 = sum mu_i^2 | exact, never below, within 1e-8 above |
| Gaussian, Laplace, secretly sampled | `PLD`: loss distributions of dp-accounting, rounded up | within 0.1 %
|
| with a bare zCDP part | `RDP`: Canonne, Kamath, Steinke (NeurIPS 2020), Proposition 12 | 4-50 % above a
Gaussian |
| all Laplace | `PURE` where the sum of the epsilons is no worse | exact for one release at delta 0 |

What has no method is refused, see `Sampled`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from archipel.errors import BadInput
from archipel.privacy.gaussian import epsilon_of
from archipel.privacy.releases import Gaussian, Laplace, Release, Sampled, Zcdp, order_of, rho_of

EXACT = "exact: one Gaussian with mu^2 = sum of sensitivity^2 / sigma^2"
PLD = "privacy loss distributions, rounded up"
RDP = "zCDP total, converted by Canonne-Kamath-Steinke over all orders"
PURE = "sum of pure epsilons"
NOTHING = "nothing released"


class Conversion(NamedTuple):
    """An (epsilon, delta) guarantee and how it was found."""

    epsilon: float
    delta: float
    method: str


def check_delta(delta: float, key: str = "privacy.delta") -> float:
    """A delta strictly between 0 and 1, or a sentence."""
    if not 0 < delta < 1:
        raise BadInput(key, delta, "a probability strictly between 0 and 1, such as 1e-5")
    return float(delta)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """epsilon of a bare zCDP total: the least over all orders alpha > 1 of Proposition 12 of Canonne, Kamath,
    Steinke:

        rho alpha + log(1 - 1/alpha) + (log(1/delta) - log(alpha)) / (alpha - 1).

    0 where the total variation is at most delta (Pinsker; Bretagnolle and Huber).

    >>> zcdp_epsilon(0.1, 1e-5) < 0.1 + 2 * math.sqrt(0.1 * math.log(1e5))
    True
    """
    if rho == 0 or delta >= min(math.sqrt(rho / 2), math.sqrt(-math.expm1(-rho))):
        return 0.0

    def bound(log_order: float) -> float:  # of alpha - 1
        extra = math.exp(log_order)
        return rho * (1 + extra) - math.log1p(1 / extra) + (-math.log(delta) - math.log1p(extra)) / extra

    # any order is valid, so the search only has to be good, not certain
    return max(_least(bound, -140.0, 140.0), 0.0)


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """The least value found on a grid and by golden section around it."""
    grid = [low + (high - low) * i / 400 for i in range(401)]
    best = min(range(401), key=lambda i: function(grid[i]))
    left, right = grid[max(best - 1, 0)], grid[min(best + 1, 400)]
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        a, b = right - ratio * (right - left), left + ratio * (right - left)
        if function(a) <= function(b):
            right = b
        else:
            left = a
    return min(function((left + right) / 2), function(grid[best]))


@dataclass(frozen=True)
class History:
    """Everything a node released: (release, how often), sorted, without repeats. Build it with `record` and
    `+`.

    >>> record(Gaussian(0.3)) * 4 + Gaussian(0.8) == record(Gaussian(0.8), *[Gaussian(0.3)] * 4)
    True
    """

    counts: tuple[tuple[Release, int], ...] = ()

    def __add__(self, other: "History | Release") -> "History":
        return merged(self.counts, other.counts if isinstance(other, History) else ((other, 1),))

    def __mul__(self, count: int) -> "History":
        if int(count) != count or count < 0:
            raise BadInput("releases", count, "a whole number, at least 0")
        return merged([(release, times * int(count)) for release, times in self.counts])

    __rmul__ = __mul__

    @cached_property
    def releases(self) -> int:
        """How many releases there were."""
        return sum(times for _, times in self.counts)

    def rho(self) -> float:
        """The zCDP total: the thesis' sum of phi(n)."""
        return self._rho

    @cached_property
    def _rho(self) -> float:
        return exact_sum((rho_of(release), times) for release, times in self.counts)

    def mu(self) -> float:
        """mu of the Gaussian releases, as if of one."""
        return math.sqrt(exact_sum((r.mu * r.mu, times) for r, times in self.counts if isinstance(r, Gaussian)))

    @property
    def all_gaussian(self) -> bool:
        return all(isinstance(release, Gaussian) for release, _ in self.counts)

    def _pure(self) -> float:
        """The sum of the pure epsilons; infinite where a release has none. Sampling only lowers it."""
        inner = [(r.release if isinstance(r, Sampled) else r, times) for r, times in self.counts]
        pure = [(release.epsilon, times) for release, times in inner if isinstance(release, Laplace)]
        return exact_sum(pure) * (1 + 1e-15) if len(pure) == len(inner) else math.inf

    @property
    def _has_zcdp(self) -> bool:
        return any(isinstance(release, Zcdp) for release, _ in self.counts)

    def epsilon(self, delta: float) -> Conversion:
        """The guarantee at this delta, and the method it rests on: the least of all that hold.

        >>> record(Gaussian(1.0)).epsilon(1e-5).method == EXACT
        True
        """
        check_delta(delta)
        if self.rho() == 0:
            return Conversion(0.0, delta, NOTHING)
        if self.all_gaussian:
            return Conversion(epsilon_of(self.mu(), delta), delta, EXACT)
        found = [(zcdp_epsilon(self.rho(), delta) * (1 + 1e-12), RDP), (self._pure(), PURE)]
        if not self._has_zcdp:
            from archipel.privacy.loss_distribution import epsilon_by_pld

            found.append((epsilon_by_pld(self, delta, min(found)[0]), PLD))
        return Conversion(min(found)[0], delta, min(found)[1])


def record(*releases: Release) -> History:
    """The history of these releases."""
    return merged([(release, 1) for release in releases])


def exact_sum(terms: Iterable[tuple[float, int]]) -> float:
    """sum of value * times, rounded once: no order and no split of the terms changes a bit."""
    return from_units(sum(to_units(value) * times for value, times in terms))


_FINEST = 1074  # every double is a whole multiple of 2^-1074


def to_units(value: float) -> int:
    """A double as a whole number of 2^-1074: sums of these are exact, and fast."""
    over, under = value.as_integer_ratio()  # under is a power of two
    return over << (_FINEST + 1 - under.bit_length())


def from_units(units: int) -> float:
    """The nearest double."""
    return units / (1 << _FINEST)


def merged(*parts: Iterable[tuple[Release, int]]) -> History:
    """One history of all these (release, times)."""
    total: Counter[Release] = Counter()
    for part in parts:
        for release, times in part:
            if not isinstance(release, (Gaussian, Laplace, Zcdp, Sampled)):
                raise BadInput("release", release, "a Gaussian, Laplace, Zcdp or Sampled release")
            total[release] += times
    relations = {release.relation for release in total if isinstance(release, Sampled)}
    if len(relations) > 1:
        raise BadInput("privacy.relation", sorted(relations), "one neighbouring relation for a whole history")
    return History(tuple(sorted(((r, n) for r, n in total.items() if n), key=lambda item: order_of(item[0]))))
