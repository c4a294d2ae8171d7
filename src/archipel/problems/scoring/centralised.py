"""The model that one would find who had everybody's samples: what others are measured against.

It minimises sum_i weight_i loss(x_i^T w, y_i) + l1 ||w||_1 + l2 ||w||^2: in closed form (ridge), by Newton's method
(logistic), as a quadratic program (absolute, Huber, l1) by Clarabel, and by CVXPY what is none of these.
"""

import warnings
from typing import Any

import numpy as np

from archipel.errors import BadInput, Missing
from archipel.problems.losses.supervised import HUBER, LOGISTIC, LOSSES, SQUARED

LACKING = "The centralised solution needs a solver: pip install 'archipel[exact]', or set problem.reference = false."
TOLERANCES = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
FOUND = ("Solved", "AlmostSolved", "optimal", "optimal_inaccurate")  # almost: a gap above 1e-12, far less would do


def centralised(x: Any, y: Any, weight: Any, loss: str, l1: float, l2: float) -> Any:
    """The exact solution."""
    weight = np.broadcast_to(np.asarray(weight, float), y.shape)
    kind = LOSSES[loss]
    if kind == SQUARED and l1 == 0:
        scaled = x * weight[:, None]
        return np.linalg.solve(x.T @ scaled + l2 * np.eye(x.shape[1]), scaled.T @ y)
    found = by_newton(x, y, weight, l2) if kind == LOGISTIC and l1 == 0 and l2 > 0 else None
    if found is not None:
        return found
    return by_cvxpy(x, y, weight, l1, l2) if kind == LOGISTIC else by_clarabel(x, y, weight, kind, l1, l2)


def by_newton(x: Any, y: Any, weight: Any, l2: float, steps: int = 100) -> Any:
    """Logistic regression by Newton's steps, halved until they go down; None if they do not end at the optimum."""

    def value(w: Any) -> float:
        return float(weight @ np.logaddexp(0, -y * (x @ w)) + l2 * w @ w)

    w, close = np.zeros(x.shape[1]), 0
    for _ in range(steps):
        wrong = np.exp(-np.logaddexp(0, y * (x @ w)))  # the probability of the other label
        slope = 2 * l2 * w - x.T @ (weight * y * wrong)
        curvature = x.T @ (x * (weight * wrong * (1 - wrong))[:, None]) + 2 * l2 * np.eye(w.size)
        step = np.linalg.solve(curvature, slope)
        close += slope @ step <= 1e-14 * max(1.0, value(w))  # values no longer differ; a step squares what is left
        while not close and value(w - step) > value(w):
            step = step / 2
        w = w - step
        if close == 2:
            return w
    return None


def by_clarabel(x: Any, y: Any, weight: Any, kind: int, l1: float, l2: float) -> Any:
    """As a quadratic program: |w| <= s, and |x^T w - u - y| <= t with a cost u^2 / 2 + t (Huber) or t (absolute)."""
    try:
        import clarabel
        from scipy import sparse
    except ImportError as lacking:
        raise Missing(LACKING) from lacking
    (samples, size), squared = x.shape, kind == SQUARED
    sizes = [size, size if l1 else 0, samples if kind == HUBER else 0, 0 if squared else samples]  # w, s, u, t
    none = [sparse.csc_matrix((samples, n)) for n in sizes]
    unit = [sparse.identity(n, format="csc") for n in sizes]

    scaled = x * weight[:, None]
    own = 2 * l2 * np.eye(size) + (2 * x.T @ scaled if squared else 0)
    cost = [np.zeros(n) for n in sizes]
    cost[0] = -2 * scaled.T @ y if squared else cost[0]
    cost[1] += l1
    cost[3] += weight[: sizes[3]]
    curvature = [sparse.csc_matrix(own), 0 * unit[1], sparse.diags_array(weight[: sizes[2]]), 0 * unit[3]]

    rows, limits = [], []
    for sign in (1.0, -1.0):
        if l1:
            rows.append(sparse.hstack([sign * unit[0], -unit[1], *(sparse.csc_matrix((size, n)) for n in sizes[2:])]))
            limits.append(np.zeros(size))
        if not squared:
            off = -sign * unit[2] if kind == HUBER else none[2]
            rows.append(sparse.hstack([sign * sparse.csc_matrix(x), none[1], off, -unit[3]]))
            limits.append(sign * y)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    for name, tolerance in TOLERANCES.items():
        setattr(settings, name, tolerance)
    limit = np.concatenate(limits)
    cones = [clarabel.NonnegativeConeT(len(limit))]
    upper = sparse.triu(sparse.block_diag(curvature), format="csc")
    solver = clarabel.DefaultSolver(
        upper, np.concatenate(cost), sparse.vstack(rows, format="csc"), limit, cones, settings
    )
    found = solver.solve()
    return checked(np.asarray(found.x)[:size], str(found.status))


def by_cvxpy(x: Any, y: Any, weight: Any, l1: float, l2: float) -> Any:
    """Logistic regression with an l1 part, or without a regulariser."""
    try:
        import cvxpy as cp
    except ImportError as lacking:
        raise Missing(LACKING) from lacking
    model = cp.Variable(x.shape[1])
    losses = cp.logistic(cp.multiply(-y, x @ model))
    task = cp.Problem(cp.Minimize(weight @ losses + l1 * cp.norm1(model) + l2 * cp.sum_squares(model)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what is almost solved
        try:
            task.solve(solver="CLARABEL", **TOLERANCES)
        except cp.error.SolverError as failed:
            return checked(None, str(failed).split(".")[0])
    return checked(model.value, task.status)


def checked(found: Any, status: str) -> Any:
    """A solution, or the sentence that there is none."""
    if found is None or status not in FOUND:
        right = f"false, or other weights (l1, l2): the centralised solution was not found ({status})"
        raise BadInput("problem.reference", True, right)
    return np.asarray(found)
