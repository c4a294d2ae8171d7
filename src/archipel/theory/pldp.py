"""What the paper on personalised local privacy with adaptive sampling proves, computable.

Chen et al., ICASSP. Equation numbers are the paper's; names are those of `parts.ask.sampling`. Bounds are
orders of growth: the paper gives no constant, and here it is one.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput


class Course(NamedTuple):
    """What (5) needs to know of a run."""

    step: float  # eta
    smoothness: float  # L
    local_steps: int  # E
    rounds: int  # R
    draws: int  # K
    sensitivity: float  # S, of one noised gradient
    gap: float = 0.0  # f(x_0) - f*


def noise_scale(budget: Any, data_rate: Any, delta: float, total_draws: int) -> Any:
    """B_i of theorem 2: sqrt(ln(1/delta') ln(1/delta'') ln(1/delta''')) s_i / epsilon_i.

    delta is split as below (6): delta' = delta / (2T), delta'' = delta''' = delta / 4, with T = K R.
    """
    if not 0 < delta < 1:
        raise BadInput("privacy.delta", delta, "a probability between 0 and 1")
    if total_draws < 1:
        raise BadInput("rounds", total_draws, "at least 1 draw in the whole run")
    budget, data_rate = np.asarray(budget, float), np.asarray(data_rate, float)
    if not (np.isfinite(budget) & (budget > 0)).all():
        raise BadInput("privacy.epsilon", budget.min(), "a number above 0 for every client")
    if not ((data_rate > 0) & (data_rate <= 1)).all():
        raise BadInput("data_rate", data_rate.min(), "a share of the data above 0 and at most 1")
    logs = np.log(2 * total_draws / delta) * np.log(4 / delta) ** 2
    return np.sqrt(logs) * data_rate / budget


def sampling_term(chance: Any, weight: Any, gradient: Any, course: Course) -> float:
    """The term of phi in (5) that depends on q: eta L N / K sum_i (K - 1 + 1 / q_i) p_i^2 G_i^2."""
    chance, size = np.asarray(chance, float), np.asarray(weight, float) * gradient
    scale = course.step * course.smoothness * len(size) / course.draws
    return float(scale * ((course.draws - 1 + 1 / chance) @ size**2))


def privacy_term(chance: Any, weight: Any, noise: Any, course: Course) -> float:
    """The second term of (5): psi sum_i p_i^2 B_i^2 / sqrt(q_i), psi = eta S^2 L N E sqrt(R / K)."""
    chance, size = np.asarray(chance, float), np.asarray(weight, float) * noise
    psi = course.step * course.sensitivity**2 * course.smoothness * len(size) * course.local_steps
    return float(psi * np.sqrt(course.rounds / course.draws) * (size**2 @ chance**-0.5))


def convergence_bound(chance: Any, weight: Any, gradient: Any, noise: Any, course: Course) -> float:
    """Theorem 2, (5): what bounds the mean squared gradient of a run, up to a constant."""
    start = 2 * course.gap / (course.step * course.local_steps * course.draws * course.rounds)
    square = (course.step * course.smoothness * (course.local_steps - 1)) ** 2
    drift = square * len(np.asarray(gradient)) * float(np.sum(np.square(gradient)))
    return start + drift + sampling_term(chance, weight, gradient, course) + privacy_term(chance, weight, noise, course)


def out_of_order(chance: Any, weight: Any, gradient: Any, noise: Any) -> Any:
    """Theorem 3: pairs (n, m) with p_n G_n >= p_m G_m and p_n B_n >= p_m B_m, but q_n < q_m. None at the
    optimum.
    """
    chance, weight = np.asarray(chance, float), np.asarray(weight, float)
    spread, cost = weight * gradient, weight * noise
    above = (spread[:, None] >= spread) & (cost[:, None] >= cost)
    return np.argwhere(above & (chance[:, None] < chance * (1 - 1e-12)))
