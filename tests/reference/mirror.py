"""What the dissertation on private online mirror descent prints and a test weighs. Each docstring says what is wrong.

Orders of growth are computed with constant one.
"""

import math
from typing import Any

import numpy as np


def laplace_width_on_simplex(epsilon: float, size: int) -> float:
    """D_Lap of (2.10) on the simplex: E[max_i Z_i - min_i Z_i] for Z of `size` draws of Laplace(1 / epsilon)."""
    from scipy.integrate import quad

    def not_below(z: float) -> float:
        return 1 - (1 - math.exp(-z) / 2) ** size - (math.exp(-z) / 2) ** size

    return 2 / epsilon * quad(not_below, 0, math.inf)[0]  # E max = -E min = int P(Z > z) - P(Z < -z)


def laplace_width_on_ball(epsilon: float, size: int, radius: float = 1.0) -> float:
    """D_Lap of (2.10) on a ball: 2 radius E||Z||_2."""
    from scipy.integrate import quad
    from scipy.special import erfcx

    def per_scale(v: float) -> float:
        # E sqrt(S) = int (1 - E exp(-S v^2)) / (sqrt(pi) v^2) dv, and E exp(-Z^2 v^2) is a scaled erfc
        return float((1 - (math.sqrt(math.pi) / (2 * v) * erfcx(1 / (2 * v))) ** size) / v**2)

    parts = quad(per_scale, 1e-6, 1, limit=200)[0] + quad(per_scale, 1, math.inf, limit=200)[0]
    return 2 * radius / epsilon * (parts + 2 * size * 1e-6) / math.sqrt(math.pi)


def regret_2_11(rounds: Any, size: int, epsilon: float) -> Any:
    """(2.11): sqrt(T log d) + log T log d / eps, as printed.

    Wrong: log T / eps is the price of tree aggregation (Agarwal, Singh, ICML 2017), which the dissertation says it
    leaves out. And algorithm 3, for which it is stated, rescales the noisy gradient to [0, 1] and normalises it,
    which all but removes the gradient: the proof knows nothing of that. V is missing.
    """
    rounds = np.asarray(rounds, dtype=float)
    return np.sqrt(rounds * math.log(size)) + np.log(rounds) * math.log(size) / epsilon


def step_chapter_3(rounds: Any, divergence: float, constraint: float, gradient: float, convexity: float = 1.0) -> Any:
    """eta_t = sqrt(b / (t (D^2 + G^2 / alpha))): b bounds the divergence, D the constraint, G both gradients."""
    return np.sqrt(divergence / (np.asarray(rounds, dtype=float) * (constraint**2 + gradient**2 / convexity)))


def regret_3_5(rounds: Any, clients: int, epsilon: float, own_weight: float) -> Any:
    """(3.5): V T / (eps max W_uu), as printed: linear in T, so that it says nothing."""
    return clients * np.asarray(rounds, dtype=float) / (epsilon * own_weight)


def regret_6_14(
    rounds: Any, clients: int, divergence: float, constraint: float, gradient: float, convexity: float = 1.0
) -> Any:
    """(6.14), what (3.5) abbreviates, without noise: V (sqrt(b T (D^2 + G^2/a)) + T sqrt(b (D^2 + G^2/a))).

    Wrong: (6.13) bounds sum eta_t by T eta_1. It is below 2 sqrt(T) eta_1, which makes all of it 3 sqrt(T): see
    `regret_6_14_summed`. (6.8) takes (c - h)^2 for less than c^2 + h^2, false where c < 0. "The effect of" eps and
    the weight matrix is then multiplied in without a proof.
    """
    rounds = np.asarray(rounds, dtype=float)
    scale = clients * math.sqrt(divergence * (constraint**2 + gradient**2 / convexity))
    return scale * (np.sqrt(rounds) + rounds)


def regret_6_14_summed(
    rounds: Any, clients: int, divergence: float, constraint: float, gradient: float, convexity: float = 1.0
) -> Any:
    """(6.13) with sum_t eta_t <= 2 sqrt(T) eta_1 in place of T eta_1: sublinear."""
    scale = clients * math.sqrt(divergence * (constraint**2 + gradient**2 / convexity))
    return 3 * scale * np.sqrt(np.asarray(rounds, dtype=float))


def violation_6_17(
    rounds: Any,
    clients: int,
    divergence: float,
    constraint: float,
    gradient: float,
    loss: float,
    convexity: float = 1.0,
) -> Any:
    """(6.17), the sum of violations over T rounds; J = loss bounds |f|, gamma = 2 G^2 / alpha.

    Wrong: with eta_1 constant it grows as T, so the average does not decay as T^(-1/4), which (3.5)'s sentence says
    of it; and V inside the root should be V^2. With sum eta_t in place of T eta_1 it is T^(3/4), as claimed.
    """
    rounds = np.asarray(rounds, dtype=float)
    first = step_chapter_3(1, divergence, constraint, gradient, convexity)
    last = step_chapter_3(rounds, divergence, constraint, gradient, convexity)
    slope = 2 * gradient**2 / convexity
    lost = divergence / first + rounds * first / 2 * (slope + constraint**2) + 2 * loss * rounds
    return np.sqrt(clients * lost * (2 / last + 2 * rounds * slope * first))


def violation_4_17(rounds: Any, caution: Any) -> Any:
    """(4.17): sqrt(V T), the sum over T rounds. With V = sqrt(T), T^(3/4)."""
    return np.sqrt(np.asarray(caution, dtype=float) * np.asarray(rounds, dtype=float))


def mixing_5_22(clients: int, connected_within: int) -> float:
    """lambda = (1 - V^(-V B))^(1/B), (5.22). For V = 10, B = 1 it is 1 - 1e-10: a bound times 1e10."""
    return math.exp(math.log1p(-(float(clients) ** (-clients * connected_within))) / connected_within)


def gap_5_22(clients: int, connected_within: int) -> float:
    """1 - lambda, exact where lambda itself rounds to one."""
    return -math.expm1(math.log1p(-(float(clients) ** (-clients * connected_within))) / connected_within)


def spread_5_23(first_step: float, lipschitz: float, clients: int, gap: float, constant: float = 1.0) -> float:
    """(5.23): eta_0 L (2 + C V / (1 - lambda)), how far a client's model is from the mean.

    Wrong: it puts phi_j = 1/V into (5.22), which only holds where rows sum to one as well. On an unbalanced graph the
    models of (5.13) do not come together at all: `algorithms.mirror` says what does.
    """
    return first_step * lipschitz * (2 + constant * clients / gap)


def regret_5_25(
    steps: Any,
    clients: int,
    lipschitz: float,
    divergence: float,
    path: Any,
    gap: float,
    path_constant: float = 1.0,
    mixing_constant: float = 1.0,
) -> Any:
    """(5.25) for T = 1 .. len(steps) - 2, where steps is eta_0, eta_1, ..., and path is A_T for these T:

    2 T L^2 V eta_0 (2 + C V / (1 - lambda)) + sum L^2 eta_t / 2 + 2 V R^2 / eta_{T+1} + M V A_T / eta_{T+1}.

    Wrong: its first term is linear in T whatever the steps, since (6.23) puts eta_0 for eta_s; L bounds the gradient
    and not the noisy gradient, so that epsilon does not appear; the second term has lost its V (see 6.36). (6.26) uses
    rows that sum to one, when only columns do. Assumption 4's M does not exist for entropy on the whole simplex.
    """
    steps = np.asarray(steps, dtype=float)
    rounds = np.arange(1, steps.size - 1)
    later = steps[2:]
    apart = 2 * rounds * lipschitz * clients * spread_5_23(steps[0], lipschitz, clients, gap, mixing_constant)
    learned = np.cumsum(lipschitz**2 * steps[1:-1] / 2)
    return apart + learned + (2 * clients * divergence + path_constant * clients * np.asarray(path)) / later
