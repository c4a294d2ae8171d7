"""Histories with Laplace or secretly sampled releases, through the privacy loss distributions of
dp-accounting.

Pessimistic throughout: losses are rounded up ("connect the dots", Doroshenko et al., PETS 2022), cut tails
count as total loss. Laplace noise on a vector is no worse than on one component that changes by the whole L1
sensitivity (a test checks it), a Gaussian's worst case is one direction.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from archipel.errors import Missing
from archipel.privacy.releases import Gaussian, Laplace, Sampled, rho_of

POINTS = 8_000  # grid points per epsilon that is printed
MOST_POINTS = 400_000  # where one release is tiny against the total, or epsilon is, at a large delta
SAMPLED_POINTS = 20_000  # of one sampled Gaussian, which dp-accounting computes point by point
WIDE = 1e5  # an epsilon that no grid makes better
SAFETY = 1e-9  # against rounding in the Fourier transforms


def composed(history: Any, interval: float) -> Any:
    """The loss distribution of a whole history, on a grid of this interval."""
    try:
        from dp_accounting.pld import privacy_loss_distribution as plds
    except ImportError as problem:
        sentence = "This budget is counted by dp-accounting: pip install 'archipel[privacy]', or use Gaussian noise."
        raise Missing(sentence) from problem

    total = plds.identity(interval)
    mu = history.mu()
    if mu > 0:
        total = total.compose(plds.from_gaussian_mechanism(1.0, sensitivity=mu, value_discretization_interval=interval))
    for release, times in history.counts:
        if not isinstance(release, Gaussian):
            found = _several(plds, release, interval, times)
            total = total if found is None else total.compose(found)
    return total


@lru_cache(maxsize=32)  # of up to 3 MB each
def _several(plds: Any, release: Any, interval: float, times: int) -> Any:
    """A release so many times: what was paid before is looked at again with each that is planned."""
    one = _single(plds, release, interval)
    return None if one is None else one.self_compose(times)


def _single(plds: Any, release: Any, interval: float) -> Any:
    rate, relation = 1.0, None
    if isinstance(release, Sampled):
        rate, relation, release = release.rate, release.relation, release.release
    if isinstance(release, Laplace):
        if release.epsilon == 0:
            return None
        return plds.from_laplace_mechanism(
            1.0, sensitivity=release.epsilon, value_discretization_interval=interval, sampling_prob=rate
        )
    if release.mu == 0:
        return None
    kinds = plds.NeighborRel
    # the library's sensitivity is that of adding or removing a record; replacing one moves it twice as far
    kind, size = (
        (kinds.REPLACE_ONE, release.mu / 2) if relation == "replace-one" else (kinds.ADD_OR_REMOVE_ONE, release.mu)
    )
    return plds.from_gaussian_mechanism(
        1.0, sensitivity=size, value_discretization_interval=interval, sampling_prob=rate, neighboring_relation=kind
    )


def _smallest(history: Any) -> float:
    """The scale of the smallest loss that the grid should resolve."""
    sizes = [r.epsilon for r, _ in history.counts if isinstance(r, Laplace) and r.epsilon > 0]
    return min(sizes, default=math.inf)


def _coarsest(history: Any) -> float:
    """The interval below which a sampled Gaussian takes too long: its losses span about mu^2 + 20 mu."""
    mus = [r.release.mu for r, _ in history.counts if isinstance(r, Sampled) and isinstance(r.release, Gaussian)]
    return max((mu * (mu + 20) / SAMPLED_POINTS for mu in mus), default=0.0)


def _reach(history: Any) -> float:
    """Roughly how large a loss of the whole history gets: for the choice of a grid only."""
    rho = sum(rho_of(r) * times * (r.rate if isinstance(r, Sampled) else 1.0) for r, times in history.counts)
    return float(rho + 8 * math.sqrt(2 * rho))


def _interval(epsilon: float, history: Any) -> float:
    fine = min(epsilon / POINTS, _smallest(history) / 10)
    return max(fine, epsilon / MOST_POINTS, _reach(history) / MOST_POINTS, _coarsest(history))


def epsilon_by_pld(history: Any, delta: float, guess: float) -> float:
    """epsilon at delta; infinite where `guess`, an upper bound, is as good. The grid is refined until it is fine."""
    epsilon = guess
    sampled = any(isinstance(release, Sampled) for release, _ in history.counts)
    if guess == 0 or (guess > WIDE and not sampled):
        return math.inf  # all is hidden, or nothing: no grid says it better
    least = _reach(history) / MOST_POINTS  # an answer far below what is lost at most, as at a large delta, is rougher
    for _ in range(6):
        interval = max(_interval(max(epsilon, 1e-6), history), least)
        with np.errstate(over="ignore"):  # a quotient there may be infinite
            better = float(composed(history, interval).get_epsilon_for_delta(delta))
        if not math.isfinite(better):
            return math.inf
        epsilon = min(epsilon, better)
        if better > interval * POINTS / 4 or epsilon <= 1e-6:
            break
    return max(epsilon, 0.0) * (1 + SAFETY)
