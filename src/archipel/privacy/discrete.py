"""Integers with discrete Gaussian noise: what is summed where nobody sees the parts.

A client clips its update, rounds it to a grid and adds its share of the noise, an exact discrete Gaussian. The sum of n
shares of deviation sigma has the noise of one Gaussian of deviation sqrt(n) sigma: local noise would need that from
every client. Kairouz, Liu, Steinke, ICML 2021 (the distributed discrete Gaussian); Canonne, Kamath, Steinke, NeurIPS
2020 (the sampler).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.draws import PRIVACY, uniform
from archipel.errors import BadInput
from archipel.node import fast, kernel
from archipel.privacy import noise
from archipel.privacy.coding import PRIMES

LEAST = 4.0  # deviation of a share, in steps of the grid: below it a sum of shares is no longer a discrete Gaussian
TAILS = 12.0  # deviations of the sum's noise that are kept apart from a wrap
TRIES = 64  # draws that are set aside for a value; each is taken with a chance above 0.7
COVER = 1.001  # more noise, for what a discrete Gaussian may lose more than a Gaussian: see `closeness`
CLOSE = 1e-4  # and how much that may be, in epsilon, over all rounds


class Grid(NamedTuple):
    """How numbers become integers modulo a prime."""

    step: float
    prime: int
    sensitivity: float  # L2, in steps, of what one client adds: its clip, and what rounding adds to it
    deviation: float  # of a client's share of the noise, in steps


def grid(clip: float, size: int, clients: int, share: float, bits: int = 32) -> Grid:
    """The finest grid on which the sum of all clients and its noise does not wrap.

    `share` is the deviation of a client's noise; 0: there is none. Rounding moves an update by sqrt(size) / 2 steps.
    """
    most = (PRIMES[bits] - 1) / 2
    step = (clients * clip + TAILS * math.sqrt(clients) * share) / (most - clients * math.sqrt(size) / 2)
    if step <= 0 or 0 < share / step < LEAST:
        right = f"more: the sum of {clients} clients and its noise has no room in {bits} bits"
        raise BadInput("algorithm.protect.bits", bits, right)
    return Grid(step, PRIMES[bits], clip / step + math.sqrt(size) / 2, share / step)


def closeness(variance: float, least: float, parts: int, size: int) -> float:
    """By how much, in epsilon, a sum of so many draws may lose more than a Gaussian of its variance.

    `least` is the smallest deviation of a draw. A Gaussian that is rounded loses no more than one that is not. It
    differs from a discrete Gaussian of variance v, in the logarithm of the chance of x, by (|x|^2 / v - size) / (24 v)
    to first order, where |x| is hardly ever beyond 12 deviations of its own. A sum of draws differs from that by 10
    exp(-2 pi^2 / (1 / a + 1 / b)) a value for each that is added, b its variance and a that of those before (Kairouz et
    al., Theorem 1): at most with a = b = least^2. Each counts once for each of two neighbours.
    """
    tau = 10 * (parts - 1) * math.exp(-((math.pi * least) ** 2))
    return 2 * ((TAILS * math.sqrt(2 * size) + TAILS**2 / 2) / (24 * variance) + tau * size)


def rejected(values: Any, deviation: float, uniforms: Any) -> None:
    """Add a discrete Gaussian to every value: `discrete_normal`, of `uniforms(count)`, (3, count) numbers in (0, 1)."""
    scale, waiting = np.floor(deviation) + 1.0, np.arange(len(values))
    while len(waiting):
        first, second, coin = uniforms(len(waiting))
        far, minus = np.floor(-scale * np.log(first)), second < 0.5
        gap = (far - deviation**2 / scale) / deviation
        taken = (coin < np.exp(-0.5 * gap**2)) & ~(minus & (far == 0))
        values[waiting[taken]] += np.where(minus, -far, far)[taken].astype(np.int64)
        waiting = waiting[~taken]


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
    """values plus an exact discrete Gaussian that nobody can foresee."""
    return noise.secure_sum(values, noise.DISCRETE, deviation).astype(np.int64)
