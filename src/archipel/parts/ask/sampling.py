"""Which clients a server asks, and how it merges what they answer without bias.

Chen et al., ICASSP: personalised local differential privacy with adaptive client sampling. Equation
numbers are the paper's. p_i is `weight`, q_i `chance`, G_i `gradient`, B_i `noise`, lambda `tradeoff`, K
`draws`.

Any algorithm with a server can take any of the three: a server draws K times with replacement, a client
that is drawn twice answers once with weight two; an answer counts p_i / (K q_i) each time (Algorithm 1, line 15).
"""

from typing import Any

import numpy as np

from archipel.errors import BadInput

SAMPLINGS = ("uniform", "weight", "optimal")


def known_chances(sampling: str, weight: Any, draws: int) -> Any:
    """Those that need no look at the clients: everyone's the same, q_i = 1 / N, or by weight, q_i = p_i."""
    weight = checked_weights(weight, draws)
    return weight if sampling == "weight" else np.full(len(weight), 1.0 / len(weight))


# --- problem P2 ---------------------------------------------------------------------------------------------


def solve_p2(weight: Any, gradient: Any, noise: Any, tradeoff: float, draws: int) -> Any:
    """(6): minimise sum_i p_i^2 G_i^2 / q_i + lambda p_i^2 B_i^2 / sqrt(q_i), sum_i q_i = 1, q_i <= 1 / K.

    The paper asks for q_i < 1 / K, which need not have a minimum: ours may lie on the border. For clients
    below it, p_i^2 G_i^2 / q_i^2 + lambda p_i^2 B_i^2 / (2 q_i^(3/2)), the price of (6) in q_i, is the same:
    the multiplier, at which the chances sum to one. It is found by Newton's method within a bracket, and by
    bisection where that does not halve the error. All in logarithms, so that no number overflows.
    """
    spread, cost = p2_terms(weight, gradient, noise, tradeoff, draws)
    cap = -np.log(draws)
    low = _log_price(spread, cost, cap).min()  # everyone at the cap: the chances sum to N / K > 1
    high = _log_price(spread, cost, -np.log(len(spread))).max()  # everyone at or below 1 / N
    price, error = (low + high) / 2, np.inf
    while True:
        log_chance, slope = _log_chance(spread, cost, price)
        chance = np.exp(np.minimum(log_chance, cap))
        before, error = error, np.log(chance.sum())
        low, high = (price, high) if error > 0 else (low, price)
        if abs(error) <= 1e-14 * (1 + abs(price)) or not low < (low + high) / 2 < high:
            return chance
        change = np.where(log_chance < cap, chance * slope, 0.0).sum()
        newton = price - error * chance.sum() / change if change < 0 else low
        price = newton if low < newton < high and 2 * abs(error) < abs(before) else (low + high) / 2


def p2_terms(weight: Any, gradient: Any, noise: Any, tradeoff: float, draws: int) -> tuple[Any, Any]:
    """The logarithms of p_i^2 G_i^2 and of lambda p_i^2 B_i^2, checked; one of the two may be 0."""
    weight = checked_weights(weight, draws)
    gradient = checked_sizes("sampling.gradient", gradient, len(weight))
    noise = checked_sizes("sampling.noise", noise, len(weight))
    if not 0 <= tradeoff < np.inf:
        raise BadInput("sampling.tradeoff", tradeoff, "a number of 0 or more")
    with np.errstate(divide="ignore"):
        spread = 2 * np.log(weight) + 2 * np.log(gradient)
        cost = 2 * np.log(weight) + 2 * np.log(noise) + np.log(tradeoff)
    nothing = np.flatnonzero(np.isneginf(spread) & np.isneginf(cost))
    if len(nothing):
        raise BadInput(f"sampling.gradient[{nothing[0]}]", 0.0, "a number above 0, as its noise counts nothing")
    return spread, cost


def _log_price(spread: Any, cost: Any, log_chance: Any) -> Any:
    """log of minus the derivative of a client's part of (6)."""
    return np.logaddexp(spread - 2 * log_chance, cost - np.log(2) - 1.5 * log_chance)


def _log_chance(spread: Any, cost: Any, price: float) -> tuple[Any, Any]:
    """The chance at which a client's log price is `price`, and how it changes with it, in logarithms.

    The start, where the larger of two terms alone makes the price, is at most log(2) / 1.5 too low. The slope
    of the log price lies between -2 and -1.5 and changes by at most 1/16: so Newton's method squares the
    error and divides it by 48, and four steps reach the last digit.
    """
    log_chance = np.maximum((spread - price) / 2, (cost - np.log(2) - price) / 1.5)
    for _ in range(4):
        reached = _log_price(spread, cost, log_chance)
        slope = -1.5 - 0.5 * np.exp(spread - 2 * log_chance - reached)
        log_chance = log_chance + (price - reached) / slope
    return log_chance, 1 / slope


def p2_value(chance: Any, weight: Any, gradient: Any, noise: Any, tradeoff: float) -> float:
    """What (6) minimises: sum_i p_i^2 G_i^2 / q_i + lambda p_i^2 B_i^2 / sqrt(q_i)."""
    weight, gradient, noise = (np.asarray(a, float) for a in (weight, gradient, noise))
    return float(np.sum((weight * gradient) ** 2 / chance + tradeoff * (weight * noise) ** 2 / np.sqrt(chance)))


# --- drawing and merging ------------------------------------------------------------------------------------


def ladder_of(chance: Any) -> Any:
    """The chances as rungs from 0 to 1: client i is drawn by a number in [ladder[i - 1], ladder[i])."""
    ladder = np.cumsum(chance)
    ladder /= ladder[-1]
    return ladder


# --- what is refused ----------------------------------------------------------------------------------------


def checked_weights(weight: Any, draws: int) -> Any:
    """Weights p_i above 0, scaled to sum to one. With no more clients than draws no q_i < 1 / K would."""
    weight = np.asarray(weight, float)
    if draws < 1:
        raise BadInput("algorithm.draws", draws, "at least 1 draw a round")
    if len(weight) <= draws:
        raise BadInput("algorithm.draws", draws, f"fewer draws a round than clients ({len(weight)})")
    bad = np.flatnonzero(~((weight > 0) & (weight < np.inf)))
    if len(bad):
        raise BadInput(f"sampling.weight[{bad[0]}]", float(weight[bad[0]]), "a number above 0")
    return weight / weight.sum()


def checked_sizes(key: str, values: Any, clients: int) -> Any:
    """One finite number of 0 or more for every client."""
    values = np.asarray(values, float)
    if values.shape != (clients,):
        raise BadInput(key, f"shape {values.shape}", f"one number for each of {clients} clients")
    bad = np.flatnonzero(~((values >= 0) & (values < np.inf)))
    if len(bad):
        raise BadInput(f"{key}[{bad[0]}]", float(values[bad[0]]), "a number of 0 or more")
    return values
