"""What the PGFL article proves, where only tests need it: theorem 1's rate, (41), (43)."""

from typing import Any, NamedTuple

import numpy as np


class Rate(NamedTuple):
    """A line through the logarithm of a curve."""

    factor: float  # by which the deviation (squared) falls each round
    decibels: float  # per round, negative
    fit: float  # R^2 of the line


def linear_rate(rounds: Any, deviation: Any, floor: float = 1e-25) -> Rate:
    """Fit deviation = c factor^round to what is above the floor of the arithmetic: linear convergence, theorem 1.

    >>> linear_rate([0, 1, 2, 3], [1.0, 0.5, 0.25, 0.125]).factor
    0.5
    """
    rounds, deviation = np.asarray(rounds, float), np.asarray(deviation, float)
    above = deviation > floor
    x, y = rounds[above], np.log10(deviation[above])
    slope, start = np.polyfit(x, y, 1)
    left = y - (slope * x + start)
    spread = np.sum((y - y.mean()) ** 2)
    return Rate(round(float(10**slope), 12), float(10 * slope), float(1 - np.sum(left**2) / spread))


def single_bound(tau: float, eta: float) -> float:
    """(41): one round of inter-cluster learning after many without."""
    return tau * eta


def sensitivity(gradient: float, penalty: float, samples: Any) -> Any:
    """(43): 2 C_k / (rho D_k), where no sample's gradient is longer than C_k.

    >>> sensitivity(1.0, 2.0, 5)
    0.2
    """
    return 2 * gradient / (penalty * samples)
