"""Exact local solvers: what a client computes when its step is a minimisation, as the primal step of ADMM is.

    argmin over w of  loss(X, y; w) / D + weight/2 ||w||^2 - <pull, w>

with a squared or a logistic loss. All of it happens in the space of the client's own samples: with X = U S V^T,
only V w meets the data. V is computed once per client, and has as many rows as the client has samples, or the model
parameters, whichever is less. Ridge then takes two thin products whatever the weight; the logistic loss takes a few
small Newton steps.

For privacy the minimiser is taken in a ball, ||w|| <= R, of data whose rows and targets are bounded. Then replacing
one of D samples moves it by at most 2 C / (D weight), with C the longest gradient of a sample in that ball. Proof: let
w minimise F = G + h, and v minimise G, with h = (l_1 - l_2) / D. In a ball <F'(w), w - v> <= 0 <= <G'(v), w - v>, so

    weight ||w - v||^2  <=  <F'(w) - F'(v), w - v>  <=  -<G'(v) + h'(v), w - v>  <=  ||h'(v)|| ||w - v||

by strong convexity, and ||h'(v)|| <= 2 C / D. Whatever else is in the pull, duals and what neighbours said, is made of
what was released, and is the same for both.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import add_matvec_transposed, add_scaled, assign, dot, fast, kernel, matvec, table_of
from archipel.parts.learn.bounded import ROOM
from archipel.privacy.policy import Guard
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


def factors(
    task: Task, features: float = math.inf, target: float = math.inf, train: list[Shards] | None = None
) -> tuple[Factors, int]:
    """Every client's data, factorised once, and the round in which the second segment begins.

    Features longer than a bound are shortened, and targets beyond one cut off, for privacy that rests on it. `train`
    is what is learned from in each segment, if not all.
    """
    if task.loss not in (SQUARED, LOGISTIC):
        name = next(name for name, code in LOSSES.items() if code == task.loss)
        raise BadInput("problem.loss", name, '"squared" or "logistic", which have an exact local solver')
    whole, change = segments(task)
    parts = whole if train is None else train
    most = max(int(shards.sizes.max()) for shards in parts)
    rank, size, shape = min(most, task.size), task.size, (task.clients, len(parts))
    rows = (*shape, most, rank) if task.loss == LOGISTIC else (*shape, 1, 1)
    drawn = Factors(*map(table_of, ((*shape, rank, size), (*shape, rank), (*shape, size), rows)))
    for p, shards in enumerate(parts):
        for k, (x, y) in enumerate(shards):
            x, y = bounded(np.asarray(x, float), np.asarray(y, float), features, target)
            factorise(Factors(*(table[k, p] for table in drawn)), x, y, task.loss)
    return drawn, change


def bounded(x: Any, y: Any, features: float, target: float) -> tuple[Any, Any]:
    """Rows of at most a length, targets of at most a size; what is no number counts as zero where there is a bound."""
    if features < math.inf:
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        x = np.where(np.isfinite(lengths), x * np.minimum(1.0, features * ROOM / np.maximum(lengths, 1e-300)), 0.0)
    return x, np.clip(np.where(np.isnan(y), 0.0, y), -target, target) if target < math.inf else y


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
def ridge(out: Any, basis: Any, curve: Any, along: Any, pull: Any, weight: Any) -> None:
    """out = (V^T diag(curve) V + weight I)^-1 pull; `pull` has the moment in it, may be `out`; `along` is scratch."""
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
    rows = rows[: len(bends)]
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
        label = min(max(y[i], -1.0), 1.0)  # a class, whatever a file says
        down = slope(LOGISTIC, offset[i] + dot(rows[i], at), label)
        wrong = -down * label  # how far from sure
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
    for i in range(samples):
        offset[i] = dot(rows[i], trial)
    gradient, step, hessian = np.zeros(rank), np.zeros(rank), np.zeros((rank, rank))
    norm = logistic_gradient(gradient, bends, at, rows, offset, y, weight)
    for _ in range(STEPS):
        if norm <= PRECISE:
            break
        curvature(hessian, rows, bends, weight)
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


# --- the solver of a setup ----------------------------------------------------------------------------------


class Solving(NamedTuple):
    """What a node keeps that solves: its data, and scratch."""

    data: Factors
    shrinkage: Any  # (1,): what the regulariser adds to the weight
    pull: Any  # (size,)
    along: Any  # (rank,)


def solving_state(data: Factors, shrinkage: Any) -> Solving:
    """A table of them."""
    clients, _, rank, size = data.basis.shape
    column = np.broadcast_to(np.asarray(shrinkage, float), clients).reshape(-1, 1).copy()
    return Solving(data, column, table_of((clients, size)), table_of((clients, rank)))


@kernel
def minimise_squared(out: Any, mine: Any, data: Any, pull: Any, weight: Any, segment: Any) -> None:
    ridge(out, mine.data.basis[segment], mine.data.curve[segment], mine.along, pull, weight)


@kernel
def minimise_logistic(out: Any, mine: Any, data: Any, pull: Any, weight: Any, segment: Any) -> None:
    logistic(out, mine.data.basis[segment], mine.data.rows[segment], data.y, pull, weight)


@cache
def anywhere(minimise: Any) -> Any:
    @kernel
    def solve(out: Any, mine: Any, data: Any, pull: Any, weight: Any, segment: Any, radius: Any) -> None:
        """The minimiser, for a pull with the data's part, the moment, in it; a logistic loss has none."""
        minimise(out, mine, data, pull, weight, segment)

    return solve


@cache
def within(minimise: Any) -> Any:
    @kernel
    def solve(out: Any, mine: Any, data: Any, pull: Any, weight: Any, segment: Any, radius: Any) -> None:
        """The minimiser in the ball of a radius: that of more weight, just enough of it.

        More weight is doubled until it is enough, then halved in on; one place that minimises compiles fastest.
        """
        low, high, more, length = 0.0, -1.0, 0.0, 0.0
        for _ in range(2 * HALVINGS):
            minimise(out, mine, data, pull, weight + more, segment)
            length = math.sqrt(dot(out, out))
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

    return solve


def solver_of(loss: int, radius: float) -> Any:
    """solve(out, mine, data, pull, weight, segment, radius) for a loss, in a ball if the radius is finite."""
    minimise = minimise_squared if loss == SQUARED else minimise_logistic
    return within(minimise) if radius < math.inf else anywhere(minimise)


def guard_of(setup: Any) -> Guard:
    """What is enforced on data and models. A minimiser's gradients cannot be clipped: bounds must imply their size."""
    if setup.privacy is None:
        return Guard()
    guard = setup.privacy.guard()
    if guard.clip < np.inf:
        right = "none, but privacy.bounds on features, target and model (or enforce = false): the steps are minimisers"
        raise BadInput("privacy.clip", guard.clip, right)
    return guard
