"""Lemma I, theorem I and the corollary of the thesis' chapter 3, and (3.22) and (3.23), where only tests need them.

Lemma I and theorem I hold, for the *gradient's* bound c1 and for what is really sent: phi(n) follows the step eta(n).
The corollary's formula sums T rounds, its proof T - 1. The formula is the safe one. Its conversion (Bun and Steinke) is
never below what the ledger prints for the same history. (3.23) has an extra 1/K: both forms are here.
"""

import math
from typing import Any

import numpy as np

from archipel.errors import BadInput
from archipel.theory.zcdp_nfl import noise_term


def sensitivity(bound: Any, samples: Any, penalty: Any, degree: Any, step: Any) -> Any:
    """Lemma I, (3.12): 2 c1 / (D_k (2 rho |N_k| + 1 / eta(n))), for one of D_k samples replaced by another.

    >>> sensitivity(bound=1.0, samples=50, penalty=1.0, degree=3, step=0.25)
    0.004
    """
    for key, value in (("bound", bound), ("samples", samples), ("step", step)):
        if not np.all((np.asarray(value) > 0) & np.isfinite(value)):
            raise BadInput(f"privacy.{key}", value, "a positive, finite number: else the sensitivity is infinite")
    return 2 * bound / (samples * (2 * penalty * degree + 1 / step))


def variance(sensitivity: Any, phi: Any) -> Any:
    """Theorem I, (3.13): sigma^2 = sensitivity^2 / (2 phi)."""
    return sensitivity**2 / (2 * phi)


def phi(sensitivity: Any, sigma: Any) -> Any:
    """Theorem I the other way round: what a release with this noise costs, in zCDP."""
    return (sensitivity / sigma) ** 2 / 2


def corollary_phi(first: float, zeta: float, rounds: int) -> float:
    """The corollary's zCDP total: phi(1) (1 - zeta^T) / (zeta^(T-1) - zeta^T).

    It is the sum of phi(1) zeta^-(n-1) over n = 1 .. T.

    >>> round(corollary_phi(0.001, 0.5, 3), 12)
    0.007
    """
    if not 0 < zeta < 1:
        raise BadInput("privacy.zeta", zeta, "a factor strictly between 0 and 1")
    rate = -math.log(zeta)
    # (1 - zeta^T) / (zeta^(T-1) (1 - zeta)), without the cancellation near zeta = 1
    return first * math.expm1(rounds * rate) / math.expm1(rate)


def corollary_epsilon(first: float, zeta: float, rounds: int, delta: float) -> float:
    """The corollary as published: phi + 2 sqrt(phi log(1/delta)), by Proposition 1.3 of Bun and Steinke."""
    if not 0 < delta < 1:
        raise BadInput("privacy.delta", delta, "a probability strictly between 0 and 1")
    total = corollary_phi(first, zeta, rounds)
    return total + 2 * math.sqrt(total * math.log(1 / delta))


def noise_term_of_phi(factor: float, sensitivities: Any, phis: Any, zeta: float, rounds: int) -> float:
    """The second term of (3.22): (3.21) with sigma_k^2(0) = sensitivity_k^2 / (2 phi_k)."""
    return noise_term(factor, variance(np.asarray(sensitivities), np.asarray(phis)), zeta, rounds)


def noise_term_as_printed(factor: float, sensitivities: Any, phi: float, zeta: float, rounds: int) -> float:
    """The second term of (3.23) as printed, for one phi for all: it divides by K once too often.

    (3.22) with phi_k = phi is K times this.
    """
    squares = np.asarray(sensitivities) ** 2
    return factor / rounds * float(np.sum(squares)) / (2 * len(squares) * phi * (1 - zeta))
