"""The regret bounds that figure 4.1 of the dissertation draws, as printed, and what holds for the sound form.

Orders of growth are computed with constant one, as the figure does. The `sound_*` bounds belong to the
form that `parts.learn.maps` describes; a test runs it against them.
"""

from typing import Any

import numpy as np

# --- figure 4.1 --------------------------------------------------------------------------------------------


def regret_4_17(rounds: Any, window: float, caution: float, epsilon: float) -> Any:
    """(4.17): K T / (V eps) + sqrt(T), as printed.

    Linear in T for a fixed V: regret / T tends to K / (V eps), not to zero. Figure 4.1 draws it with K = V = 1, and
    1 is not in the (K, T) that theorem 1 asks for. With V = sqrt(T) it is sqrt(T). It comes from (6.19), where
    K V / T is printed for K T / V; eps is "inserted", and alpha, which sets the step, does not know the noise.
    """
    rounds = np.asarray(rounds, dtype=float)
    return window * rounds / (caution * epsilon) + np.sqrt(rounds)


def regret_4_1_first_other(rounds: Any, caution: float, epsilon: float) -> Any:
    """Figure 4.1's first comparison, sqrt(T)/eps + T/(eps V), the dissertation's [91] "made private"."""
    rounds = np.asarray(rounds, dtype=float)
    return np.sqrt(rounds) / epsilon + rounds / (epsilon * caution)


def regret_4_1_second_other(rounds: Any, epsilon: float) -> Any:
    """Figure 4.1's second comparison, T/eps, the dissertation's [76] "made private"."""
    return np.asarray(rounds, dtype=float) / epsilon


# --- the sound form ---------------------------------------------------------------------------------------


def sound_static(steps: Any, divergence: float, length: float, rarity: Any = 1.0) -> Any:
    """A client's share of the regret (2.6) of the sound form for T = 1 .. len(steps), steps eta_1, eta_2, ...

    max B / eta_T + sum_t eta_t length^2 rarity_t / 2, with length^2 = G^2 + E||noise||_*^2, and rarity_t the mean over
    clients of 1 / w_{u,t}, their push-sum weights; 1 on a balanced graph. From the mirror step, (5.15), and the
    convexity of B in its second argument. No term for disagreement is needed: (2.6) takes each client's loss
    at its own model. With `maps.fitted_step` it grows as sqrt(T).
    """
    return sound_dynamic(steps, divergence, length, 0.0, 0.0, rarity)


def sound_dynamic(
    steps: Any, divergence: float, length: float, path: Any, path_constant: float, rarity: Any = 1.0
) -> Any:
    """The same for the dynamic regret (5.7): + M A_T / eta_T, where |B(x || z) - B(y || z)| <= M ||x - y||."""
    steps = np.asarray(steps, dtype=float)
    noise = np.cumsum(steps * rarity) * length**2 / 2
    return (divergence + path_constant * np.asarray(path)) / steps + noise


def sound_averaged(steps: Any, divergence: float, length: float, gradient: float, apart: Any) -> Any:
    """A client's share of the regret (2.6) of `parts.learn.dual_averaging` for T = 1 .. len(steps).

    B / eta_T + sum_t eta_t (length^2 / 2 + gradient apart_t), with B the most that B(x || start) is, length^2 = G^2 +
    E||noise||_*^2 / n, and apart_t how far clients' means of all gradients are from the common one when round t begins
    (`topology.push_sum.disagreement`). The first part is follow-the-regularised-leader on the mean gradient; the second
    the losses of clients that are not where the mean is, which moves them by eta_t apart_t at most.
    """
    steps = np.asarray(steps, dtype=float)
    return divergence / steps + np.cumsum(steps * (length**2 / 2 + gradient * np.asarray(apart)))
