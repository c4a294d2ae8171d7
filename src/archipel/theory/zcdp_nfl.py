"""What chapter 3 of the thesis and its appendix P2 prove about zCDP-NFL, as far as a run can compute it.

Of (3.21) only the noise term, alpha_xi, is computable; alpha depends on the whole trajectory. Theorem IV's proof needs
Q w* != 0, but Q w* = 0 at consensus, and assumptions 3 and 4 exclude each other (eta -> 0 makes ||D||^2 = 1 / (2 eta)
diverge): the O(1/n) rate is a claim to be fitted, not a proven bound. See also docs/errata.md.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput


class Rate(NamedTuple):
    """A declared rate of convergence: the error falls like n^-order."""

    order: float
    of: str
    source: str


RATE = Rate(
    1.0, "f(average of the told models up to n) - f(optimum), in expectation", "thesis, theorem IV (as claimed)"
)


class Spectrum(NamedTuple):
    """The eigenvalues of a connected graph that (3.21) needs."""

    signed: float  # Phi_max(L-), of the Laplacian D - A
    signless: float  # Phi_max(L+), of D + A
    connectivity: float  # Phi_min(L-): the smallest that is not zero


def spectrum(adjacency: Any) -> Spectrum:
    """The eigenvalues, from a symmetric 0-1 matrix."""
    matrix = np.asarray(adjacency, float)
    degrees = np.diag(matrix.sum(1))
    signed = np.linalg.eigvalsh(degrees - matrix)
    if len(signed) < 2 or signed[1] <= 1e-9 * max(signed[-1], 1e-300):
        raise BadInput("topology", "a graph in several pieces", "a connected graph of at least two nodes")
    return Spectrum(float(signed[-1]), float(np.linalg.eigvalsh(degrees + matrix)[-1]), float(signed[1]))


def noise_factor(graph: Spectrum, penalty: float, size: int) -> float:
    """alpha_xi of (3.21): 4 rho P (Phi_max(L-)^2 + Phi_max(L+)^2) / Phi_min(L-)."""
    return 4 * penalty * size * (graph.signed**2 + graph.signless**2) / graph.connectivity


def noise_term(factor: float, variances: Any, zeta: float, rounds: int) -> float:
    """The second term of (3.21): alpha_xi / T * sum_k sigma_k^2(0) / (1 - zeta), with one variance a node."""
    return factor / rounds * float(np.sum(variances)) / (1 - zeta)
