"""Integers with discrete Gaussian noise: what is summed where nobody sees the parts.

A client clips its update, rounds it to a grid and adds its share of the noise, an exact discrete Gaussian. The sum of n
shares of deviation sigma has the noise of one Gaussian of deviation sqrt(n) sigma: local noise would need that from
every client. Kairouz, Liu, Steinke, ICML 2021 (the distributed discrete Gaussian); Canonne, Kamath, Steinke, NeurIPS
2020 (the sampler).
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from archipel.draws import PRIVACY, uniform
from archipel.errors import BadInput
from archipel.node import fast, kernel
from archipel.privacy import noise

LEAST = 4.0  # deviation of a share, in steps of the grid: below it a sum of shares is no longer a discrete Gaussian
TAILS = 12.0  # deviations of the sum's noise that are kept apart from a wrap
TRIES = 64  # draws that are set aside for a value; each is taken with a chance above 0.7


class Grid(NamedTuple):
    """How numbers become integers modulo 2^bits."""

    step: float
    bits: int
    sensitivity: float  # L2, in steps, of what one client adds: its clip, and what rounding adds to it
    deviation: float  # of a client's share of the noise, in steps


def grid(clip: float, size: int, clients: int, share: float, bits: int = 32) -> Grid:
    """The finest grid on which the sum of all clients and its noise does not wrap.

    `share` is the deviation of a client's noise. Rounding moves an update by sqrt(size) / 2 steps at most.
    """
    most = 2.0 ** (bits - 1) - 1
    step = (clients * clip + TAILS * math.sqrt(clients) * share) / (most - clients * math.sqrt(size) / 2)
    if step <= 0 or share / step < LEAST:
        right = f"more than {bits}: the sum of {clients} clients and its noise has no room"
        raise BadInput("privacy.bits", bits, right)
    return Grid(step, bits, clip / step + math.sqrt(size) / 2, share / step)


def rounded(values: Any, made: Grid) -> Any:
    """Integers, nearest on the grid."""
    return np.rint(np.asarray(values, float) / made.step).astype(np.int64)


def wrapped(integers: Any, bits: int) -> Any:
    """Modulo 2^bits, as unsigned integers of so many."""
    return integers.astype(np.uint64).astype(f"u{bits // 8}")


def unwrapped(total: Any, made: Grid) -> Any:
    """The sum as numbers again: what is above the middle is negative."""
    return total.astype(f"u{made.bits // 8}").view(f"i{made.bits // 8}").astype(float) * made.step


def sum_cost(sensitivity: float, deviation: float, shares: int, size: int) -> float:
    """The zCDP of a sum with so many shares of discrete Gaussian noise: Kairouz et al., Proposition 1 and Theorem 1.

    The sum is within tau = 10 sum_k exp(-2 pi^2 deviation^2 k / (k + 1)) of a discrete Gaussian, whose zCDP is that of
    a Gaussian. rho is the square of epsilon over 2.

    >>> round(sum_cost(1.0, 4.0, 100, 200) * 2 * 1600, 9)
    1.0
    """
    if shares < 1 or deviation <= 0:
        return math.inf
    bare = sensitivity / (math.sqrt(shares) * deviation)
    tau = 10 * (shares - 1) * math.exp(-((math.pi * deviation) ** 2))  # the first term of the sum is its largest
    return min(bare**2 + tau * size / 2, (bare + tau * math.sqrt(size)) ** 2) / 2


# --- the noise ------------------------------------------------------------------------------------------------------


@kernel
def discrete_normal(key: Any, index: Any, deviation: Any) -> Any:
    """A keyed draw: a discrete Laplace of scale t, taken with the chance that makes it a discrete Gaussian."""
    scale = math.floor(deviation) + 1.0
    for i in range(TRIES):
        at = (index * TRIES + i) * 3
        far = math.floor(-scale * math.log(uniform(key, PRIVACY, at)))  # geometric
        minus = uniform(key, PRIVACY, at + 1) < 0.5
        if minus and far == 0:
            continue
        gap = far - deviation * deviation / scale
        if uniform(key, PRIVACY, at + 2) < math.exp(-0.5 * (gap / deviation) ** 2):
            return -far if minus else far
    return 0.0


def disturb_integers(values: Any, deviation: Any, key: Any) -> None:
    """Add discrete Gaussian noise to integers, in place: keyed in a simulation, secure on a device."""
    if deviation == 0:
        return
    if noise.noise_is_secure():
        values[:] = secure_integers(values, float(deviation))
        return
    for j in range(values.shape[0]):
        values[j] += int(discrete_normal(key, j, deviation))


@fast(disturb_integers)
def disturb_integers_loop(values: Any, deviation: Any, key: Any) -> None:
    if deviation == 0:
        return
    for j in range(values.shape[0]):
        values[j] += int(discrete_normal(key, j, deviation))


def secure_integers(values: Any, deviation: float) -> Any:
    """values plus opendp's exact discrete Gaussian."""
    return np.asarray(_sampler(deviation)(values.tolist()), np.int64)


@lru_cache(maxsize=64)
def _sampler(deviation: float) -> Any:
    dp = noise.opendp()
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float), deviation)
