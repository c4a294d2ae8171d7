"""The conditions for the optimum of (6), corollary 1, and the draws of a round."""

from typing import Any

import numpy as np

from archipel.draws import CHOICE, key_of, uniform
from archipel.parts.ask.sampling import _log_price, ladder_of, p2_terms


def choose(counts: Any, ladder: Any, draws: int, key: Any) -> None:
    """S_r ~ W(N, K, q): how often each client is drawn, K times with replacement."""
    numbers = [uniform(key, CHOICE, draw) for draw in range(draws)]
    places = np.minimum(np.searchsorted(ladder, numbers, side="right"), len(ladder) - 1)
    counts[:] = np.bincount(places, minlength=len(ladder))


def sampled(chance: Any, draws: int, seed: int, moment: int) -> Any:
    """The counts of one round, drawn by the server (node 0 of its role)."""
    counts = np.zeros(len(chance), np.int64)
    choose(counts, ladder_of(chance), draws, key_of(seed, 0, moment))
    return counts


def optimality_gap(chance: Any, weight: Any, gradient: Any, noise: Any, tradeoff: float, draws: int) -> float:
    """By how much chances miss the conditions for the minimum of (6), relative to what they compare.

    They sum to one, none is above 1 / K, those below it have one price, and those at it at least that.
    """
    spread, cost = p2_terms(weight, gradient, noise, tradeoff, draws)
    price = _log_price(spread, cost, np.log(chance))
    below = chance < (1 - 1e-12) / draws
    common = np.median(price[below])
    gaps = [
        abs(chance.sum() - 1),
        max(chance.max() * draws - 1, 0.0),
        np.abs(np.expm1(price[below] - common)).max(),
        np.maximum(-np.expm1(price[~below] - common), 0.0).max(initial=0.0),
    ]
    return float(max(gaps))


def optimal_by_gradient(weight: Any, gradient: Any) -> Any:
    """Corollary 1 where G_i >> B_i: q_i proportional to p_i G_i."""
    share = np.asarray(weight, float) * gradient
    return share / share.sum()


def optimal_by_noise(weight: Any, noise: Any) -> Any:
    """Corollary 1 where G_i << B_i: q_i proportional to (p_i B_i)^(4/3)."""
    share = (np.asarray(weight, float) * noise) ** (4 / 3)
    return share / share.sum()
