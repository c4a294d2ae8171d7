"""From what a client is willing to pay back to the noise it must add. Vectorised: one number a client, or
arrays of them.

Noise comes out larger by a relative SPARE than the formula says, so that rounding in a running sum never refuses the
last release that was planned.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from archipel.errors import BadInput
from archipel.privacy.accounting import History, check_delta, record
from archipel.privacy.gaussian import mu_of
from archipel.privacy.releases import Laplace

SPARE = 1e-9


def _all(key: str, values: Any, good: Callable[[Any], Any], right: str) -> Any:
    """An array of numbers that are all good, or a sentence about the first that is not."""
    array = np.asarray(values, float)
    bad = ~np.asarray(good(array))
    if np.any(bad):
        raise BadInput(key, float(array[bad].flat[0]) if array.ndim else float(array), right)
    return array


def gaussian_budget(epsilon: Any, delta: Any) -> Any:
    """mu of all Gaussian releases together that (epsilon, delta) allows, per client."""
    epsilon = _all("privacy.epsilon", epsilon, lambda e: (e > 0) & np.isfinite(e), "a positive, finite budget")
    delta = _all("privacy.delta", delta, lambda d: (d > 0) & (d < 1), "a probability strictly between 0 and 1")
    return mu_of(epsilon, delta)


def zcdp_budget(rho: Any) -> Any:
    """mu of all Gaussian releases together that a zCDP total allows: sqrt(2 rho)."""
    return np.sqrt(2 * _all("privacy.rho", rho, lambda r: (r > 0) & np.isfinite(r), "a positive, finite budget"))


def first_sigma(mu: Any, sensitivities: Any, shape: Any) -> Any:
    """sigma(0) where the sensitivity changes too: sigma(n) = sigma(0) shape[n] against sensitivities[n]
    spends mu in total.

    The last axis runs over the releases: sigma(0)^2 = sum (sensitivities / shape)^2 / mu^2. For the dynamic
    zCDP of the thesis shape[n] = zeta^(n/2), and sensitivities[n] is (3.12) with its step eta(n).
    """
    shape = _all("privacy.schedule", shape, lambda s: (s > 0) & np.isfinite(s), "positive, finite noise")
    sizes = _all("privacy.sensitivity", sensitivities, lambda s: (s >= 0) & np.isfinite(s), "a finite sensitivity")
    return np.sqrt(np.sum((sizes / shape) ** 2, -1)) / mu * (1 + SPARE)


def laplace_per_release(epsilon: float, delta: float, releases: int) -> float:
    """The epsilon of each of `releases` Laplace releases that together stay within (epsilon, delta).

    At delta = 0 it is epsilon / releases.
    """
    even = epsilon / releases * (1 - SPARE)
    if delta == 0:
        return even
    return largest(lambda e: record(Laplace(e)) * releases, epsilon, delta, even)


def largest(
    history: Callable[[float], History], epsilon: float, delta: float, start: float, within: float = 1e-3
) -> float:
    """The largest size, to a relative `within`, whose history stays within (epsilon, delta). `start` must be
    small enough.
    """
    check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise BadInput("privacy.epsilon", epsilon, "a positive, finite budget")

    def excess(size: float) -> float:
        """log of cost over budget: nearly a line in the log of the size."""
        return math.log(max(history(size).epsilon(delta).epsilon, 1e-300) / epsilon)

    low, high, under = start, start, -math.inf
    while (over := excess(high)) <= 0:
        low, high, under = high, high * 2, over
    while high / low > 1 + within:
        share = -under / (over - under) if math.isfinite(under) else 0.5
        share = min(max(share, 0.05), 0.95)
        # a little short of the line's root, so that the answer's side of the bracket closes in
        middle = low * (high / low) ** share * (1 - within / 3 if share > 0.05 else 1.0)
        middle = min(max(middle, low * (1 + within / 4)), high / (1 + within / 4))
        value = excess(middle)
        if value <= 0:
            low, under = middle, value
            if -value < within / 2:
                break
        else:
            high, over = middle, value
    return low


def participations(rounds: Any, rate: Any, failure: Any) -> Any:
    """How often a client takes part at most, except with probability `failure`: the exact binomial quantile.

    The smallest m with P(Binomial(rounds, rate) > m) <= failure. For clients that are chosen by draws with
    replacement, `rounds` counts draws. Calibrate for it, and let the ledger refuse what goes beyond: then the
    guarantee is hard.

    >>> int(participations(100, 0.1, 1e-3))
    20
    """
    from scipy.stats import binom

    rate = _all("rate", rate, lambda q: (q >= 0) & (q <= 1), "a probability")
    failure = _all("failure", failure, lambda f: (f > 0) & (f < 1), "a probability strictly between 0 and 1")
    count = binom.isf(failure, rounds, rate)
    below = np.maximum(count - 1, 0)  # isf can be one too high where the tail equals `failure`
    return np.where(binom.sf(below, rounds, rate) <= failure, below, count).astype(int)


def participations_by_lemma_1(draws: Any, rate: Any, failure: Any, constant: float = 1.702) -> Any:
    """Lemma 1 of the personalised local DP paper, (4), for comparison:

        T q + ln((1 - failure) / failure) sqrt(T q (1 - q)) / k.

    The paper does not give k. 1.702 is that of the logistic function that comes nearest to the normal
    distribution, which the form suggests; it is an approximation, not a bound. Use `participations`.
    """
    spread = np.sqrt(np.asarray(draws) * np.asarray(rate) * (1 - np.asarray(rate)))
    return np.asarray(draws) * rate + np.log((1 - np.asarray(failure)) / failure) * spread / constant
