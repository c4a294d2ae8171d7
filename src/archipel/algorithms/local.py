"""Exact local solvers: what a client computes when its step is a minimisation, as the primal step of ADMM is.

    argmin over w of  loss(X, y; w) / D + weight/2 ||w||^2 - <pull, w>

with a squared or a logistic loss. All of it happens in the space of the client's own samples: with X = U S V^T,
only V w meets the data. V is computed once per client, and has as many rows as the client has samples, or the model
parameters, whichever is less. Ridge then takes two thin products whatever the weight; the logistic loss takes a few
small Newton steps.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.algorithms.bounded import ROOM
from archipel.errors import BadInput
from archipel.node import add_matvec_transposed, add_scaled, assign, dot, fast, kernel, matvec
from archipel.problems.clustered import segments
from archipel.problems.losses.supervised import LOGISTIC, LOSSES, SQUARED, slope
from archipel.problems.splits.shards import Shards
from archipel.problems.task import Task

PRECISE = 1e-15  # of the gradient's norm, at which a Newton search ends
STEPS = 60
HALVINGS = 60
SHARP = 1e-14  # of the weight that keeps a model in its ball


class Factors(NamedTuple):
    """All clients' data as the solvers take them; the second axis is the segment, where data change in mid-run."""

    basis: Any  # (clients, segments, rank, size): V
    curve: Any  # (clients, segments, rank): 2 S^2 / D, the curvature of the squared loss along V
    moment: Any  # (clients, segments, size): 2 X^T y / D
    rows: Any  # (clients, segments, samples, rank): X V^T, for the logistic loss


def factors(task: Task, features: float = math.inf, target: float = math.inf) -> tuple[Factors, int]:
    """Every client's data, factorised once, and the round in which the second segment begins.

    Features longer than a bound are shortened, and targets beyond one cut off, for privacy that rests on it.
    """
    parts, change = segments(task)
    return factorised(parts, task, features, target), change


def factorised(parts: list[Shards], task: Task, features: float = math.inf, target: float = math.inf) -> Factors:
    """The factors of some segments."""
    if task.loss not in (SQUARED, LOGISTIC):
        name = next(name for name, code in LOSSES.items() if code == task.loss)
        raise BadInput("problem.loss", name, '"squared" or "logistic", which have an exact local solver')
    most = max(int(shards.sizes.max()) for shards in parts)
    rank, size = min(most, task.size), task.size
    shape = (task.clients, len(parts))
    drawn = Factors(
        np.zeros((*shape, rank, size)),
        np.zeros((*shape, rank)),
        np.zeros((*shape, size)),
        np.zeros((*shape, most, rank) if task.loss == LOGISTIC else (*shape, 1, 1)),
    )
    for p, shards in enumerate(parts):
        for k, (x, y) in enumerate(shards):
            x, y = bounded(np.asarray(x, float), np.asarray(y, float), features, target)
            factorise(Factors(*(table[k, p] for table in drawn)), x, y, task.loss)
    return drawn


def bounded(x: Any, y: Any, features: float, target: float) -> tuple[Any, Any]:
    """Rows of at most a length, targets of at most a size."""
    if features < math.inf:
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        x = x * np.minimum(1.0, features * ROOM / np.maximum(lengths, 1e-300))
    return x, np.clip(y, -target, target)


def factorise(mine: Factors, x: Any, y: Any, loss: int) -> None:
    """One client's data."""
    if not len(y):
        return
    _, lengths, basis = np.linalg.svd(x, full_matrices=False)
    mine.basis[: len(basis)] = basis
    mine.curve[: len(lengths)] = 2 * lengths**2 / len(y)
    mine.moment[:] = 2 * x.T @ y / len(y)
    if loss == LOGISTIC:
        mine.rows[: len(y), : len(basis)] = x @ basis.T


# --- the squared loss ---------------------------------------------------------------------------------------


@kernel
def ridge(out: Any, basis: Any, curve: Any, pull: Any, weight: Any) -> None:
    """out = (V^T diag(curve) V + weight I)^-1 pull; `pull` has the moment in it."""
    along = np.zeros(curve.shape[0])
    matvec(along, basis, pull)
    for i in range(curve.shape[0]):
        along[i] *= -curve[i] / (curve[i] + weight)
    assign(out, pull)
    add_matvec_transposed(out, 1.0, basis, along)
    for j in range(out.shape[0]):
        out[j] /= weight


# --- the logistic loss --------------------------------------------------------------------------------------


def solve_positive(matrix: Any, vector: Any) -> None:
    """vector = matrix^-1 vector, for a positive definite matrix, which is used up."""
    vector[:] = np.linalg.solve(matrix, vector)


@fast(solve_positive)
def solve_positive_loop(matrix: Any, vector: Any) -> None:
    """Cholesky's factors, in the lower half."""
    size = vector.shape[0]
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for m in range(j):
                total -= matrix[i, m] * matrix[j, m]
            matrix[i, j] = math.sqrt(total) if i == j else total / matrix[j, j]
    for i in range(size):
        for m in range(i):
            vector[i] -= matrix[i, m] * vector[m]
        vector[i] /= matrix[i, i]
    for i in range(size - 1, -1, -1):
        for m in range(i + 1, size):
            vector[i] -= matrix[m, i] * vector[m]
        vector[i] /= matrix[i, i]


def curvature(out: Any, rows: Any, bends: Any, weight: Any) -> None:
    """out = rows^T diag(bends) rows + weight I: a Hessian."""
    out[...] = (rows.T * bends) @ rows
    out[np.diag_indices(len(out))] += weight


@fast(curvature)
def curvature_loop(out: Any, rows: Any, bends: Any, weight: Any) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = weight if i == j else 0.0
    for n in range(bends.shape[0]):
        for i in range(out.shape[0]):
            scaled = bends[n] * rows[n, i]
            for j in range(out.shape[1]):
                out[i, j] += scaled * rows[n, j]


@kernel
def logistic_gradient(out: Any, bends: Any, at: Any, rows: Any, offset: Any, y: Any, weight: Any) -> Any:
    """The gradient at `at` of mean log(1 + exp(-y (offset + rows at))) + weight/2 ||at||^2; its norm, returned."""
    samples = y.shape[0]
    for j in range(out.shape[0]):
        out[j] = weight * at[j]
    for i in range(samples):
        down = slope(LOGISTIC, offset[i] + dot(rows[i], at), y[i])
        wrong = -down * y[i]  # how far from sure
        bends[i] = wrong * (1.0 - wrong) / samples
        add_scaled(out, down / samples, rows[i])
    return math.sqrt(dot(out, out))


@kernel
def logistic(out: Any, basis: Any, rows: Any, y: Any, pull: Any, weight: Any) -> None:
    """Damped Newton to machine precision: out = centre + V^T u with centre = pull / weight, u small."""
    samples, rank = y.shape[0], basis.shape[0]
    for j in range(out.shape[0]):
        out[j] = pull[j] / weight
    offset, bends = np.zeros(samples), np.zeros(samples)
    at, trial = np.zeros(rank), np.zeros(rank)
    matvec(trial, basis, out)
    matvec(offset, rows[:samples], trial)
    gradient, step, hessian = np.zeros(rank), np.zeros(rank), np.zeros((rank, rank))
    norm = logistic_gradient(gradient, bends, at, rows, offset, y, weight)
    for _ in range(STEPS):
        if norm <= PRECISE:
            break
        curvature(hessian, rows[:samples], bends, weight)
        assign(step, gradient)
        solve_positive(hessian, step)
        share, best = 1.0, norm
        while share > 1e-6:  # the norm of the gradient falls along a Newton step, if that is short enough
            for j in range(rank):
                trial[j] = at[j] - share * step[j]
            best = logistic_gradient(gradient, bends, trial, rows, offset, y, weight)
            if best <= (1.0 - 0.25 * share) * norm:
                break
            share *= 0.5
        if best >= norm:  # as near as numbers go
            break
        assign(at, trial)
        norm = best
    add_matvec_transposed(out, 1.0, basis, at)


@kernel
def attract(pull: Any, me: Any, loss: Any, segment: Any) -> None:
    """The part of the pull that comes from the data: that of a squared loss."""
    if loss == SQUARED:
        add_scaled(pull, 1.0, me.moment[segment])


@kernel
def learn(out: Any, me: Any, data: Any, pull: Any, weight: Any, loss: Any, segment: Any) -> Any:
    """The minimiser, for a state with `Factors` in it and a pull with the data's part in it; its norm, returned."""
    if loss == SQUARED:
        ridge(out, me.basis[segment], me.curve[segment], pull, weight)
    else:
        logistic(out, me.basis[segment], me.rows[segment], data.y, pull, weight)
    return math.sqrt(dot(out, out))


@kernel
def learn_within(out: Any, me: Any, data: Any, pull: Any, weight: Any, loss: Any, segment: Any, radius: Any) -> None:
    """The minimiser in the ball of a radius: that of more weight, just enough of it.

    More weight is doubled until it is enough, then halved in on; one place that calls `learn` compiles fastest.
    """
    low, high, more = 0.0, -1.0, 0.0
    for _ in range(2 * HALVINGS):
        length = learn(out, me, data, pull, weight + more, loss, segment)
        if length <= radius:
            if more == 0.0 or more - low <= SHARP * more:
                return
            high = more
        else:
            low = more
        more = max(2.0 * low, weight) if high < 0.0 else 0.5 * (low + high)
    if length > radius:  # by the last bits
        for j in range(out.shape[0]):
            out[j] *= radius / length
