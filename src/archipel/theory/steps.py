"""How large a step may be: the bounds (22) and (34) of the PAO-Fed article, from data."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from archipel.errors import BadInput

Array = Any


def correlation(features: Array) -> Array:
    """R_k = E[z z^T] of one client, from its samples of z, one a row (Assumption 1)."""
    features = np.asarray(features)
    if features.ndim != 2 or len(features) == 0:
        raise BadInput("features", features.shape, "a table with one sample a row, at least one")
    return features.T @ features / float(len(features))


def largest_eigenvalue(correlations: Iterable[Array]) -> float:
    """The largest eigenvalue of any client's R_k; the matrices may come one at a time."""
    return max(float(np.linalg.eigvalsh(matrix)[-1]) for matrix in correlations)


def mean_step_bound(eigenvalue: float) -> float:
    """(22): below it the models converge in the mean. `eigenvalue`: the largest of any R_k."""
    return 2 / eigenvalue


def mean_square_step_bound(eigenvalue: float) -> float:
    """(34): below it the article expects a stable mean square. `eigenvalue`: the largest of any R_k."""
    return 1 / eigenvalue


def protective_step_bound(eigenvalue: float, largest_norm_squared: float) -> float:
    """min((34), 2 / max ||z||^2): (34) alone allows steps at which single samples blow the model up."""
    return min(mean_square_step_bound(eigenvalue), 2 / largest_norm_squared)


def step_bounds(shards: Iterable[Array]) -> dict[str, float]:
    """All bounds from data: `shards` yields each client's samples of z, one a row, one client at a time."""
    eigenvalue = norm = 0.0
    for features in shards:
        matrix = correlation(features)
        if np.linalg.norm(matrix) > eigenvalue:  # no eigenvalue exceeds it, so few clients need a decomposition
            eigenvalue = max(eigenvalue, largest_eigenvalue([matrix]))
        norm = max(norm, float(np.einsum("ij,ij->i", features, features).max()))
    if eigenvalue <= 0:
        raise BadInput("features", eigenvalue, "at least one client with a sample that is not zero")
    return {
        "largest_eigenvalue": eigenvalue,
        "largest_norm_squared": norm,
        "mean": mean_step_bound(eigenvalue),
        "mean_square": mean_square_step_bound(eigenvalue),
        "protective": protective_step_bound(eigenvalue, norm),
    }
