"""Local solvers against CVXPY, and the optimum of (16)."""

import cvxpy as cp
import numpy as np
import pytest

from archipel.errors import BadInput
from archipel.node import row
from archipel.parts.learn.solve import (
    Factors,
    bounded,
    curvature,
    curvature_loop,
    factors,
    logistic,
    ridge,
    solve_positive,
    solve_positive_loop,
    solver_of,
    solving_state,
)
from archipel.problems.losses.supervised import ABSOLUTE, LOGISTIC, SQUARED
from archipel.problems.splits.shards import join
from archipel.problems.stored import Shard, stored_task
from archipel.theory.pgfl import centralised


def task_of(parts, loss):
    return stored_task(join(parts), lambda models, round: {})._replace(loss=loss)


def drawn(sizes, size, loss, seed=0):
    rng = np.random.default_rng(seed)
    parts = [(rng.normal(size=(n, size)), rng.normal(size=n)) for n in sizes]
    return [(x, np.where(y > 0, 1.0, -1.0)) if loss == LOGISTIC else (x, y) for x, y in parts]


def by_cvxpy(x, y, loss, pull, weight):
    w = cp.Variable(x.shape[1])
    answers = x @ w
    term = cp.sum_squares(y - answers) if loss == SQUARED else cp.sum(cp.logistic(-cp.multiply(y, answers)))
    cp.Problem(cp.Minimize(term / len(y) + weight / 2 * cp.sum_squares(w) - pull @ w)).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13
    )
    return w.value


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC])
@pytest.mark.parametrize("samples", [3, 20])
def test_the_primal_step_is_cvxpys(loss, samples):
    """(4), with fewer samples than parameters and with more."""
    rng = np.random.default_rng(5)
    (x, y), size, penalty, shrinkage = drawn([samples], 6, loss)[0], 6, 1.7, 0.3
    data, _ = factors(task_of([(x, y)], loss))
    dual, base, out = rng.normal(size=size), rng.normal(size=size), np.zeros(size)
    pull = dual + penalty * base
    if loss == SQUARED:
        ridge(
            out,
            data.basis[0, 0],
            data.curve[0, 0],
            np.zeros(min(samples, size)),
            pull + data.moment[0, 0],
            penalty + shrinkage,
        )
    else:
        logistic(out, data.basis[0, 0], data.rows[0, 0], y, pull, penalty + shrinkage)
    # (4) as it is printed: f_k(w) - <phi, w - w_s> + rho/2 ||w - w_s||^2, up to a constant
    assert np.allclose(out, by_cvxpy(x, y, loss, pull, penalty + shrinkage), atol=2e-6)
    answers = x @ out
    slope = 2 * (answers - y) if loss == SQUARED else -y / (1 + np.exp(y * answers))
    assert np.linalg.norm(x.T @ slope / samples + (penalty + shrinkage) * out - pull) < 1e-13


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC])
def test_the_optimum_is_cvxpys(loss):
    """The minimiser of sum_k f_k over each cluster, (16)."""
    parts = drawn([3, 9, 5, 4], 4, loss)
    weight, cluster = np.array([0.1, 0.2, 0.05, 0.3]), np.array([0, 1, 0, 1])
    best = centralised(join(parts), loss, weight, cluster, 2)
    for q in range(2):
        w = cp.Variable(4)
        total = 0
        for k in np.flatnonzero(cluster == q):
            x, y = parts[k]
            answers = x @ w
            term = cp.sum_squares(y - answers) if loss == SQUARED else cp.sum(cp.logistic(-cp.multiply(y, answers)))
            total += term / len(y) + weight[k] * cp.sum_squares(w)
        cp.Problem(cp.Minimize(total)).solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12)
        assert np.allclose(best[q], w.value, atol=2e-6)


def test_verbs_have_one_meaning():
    rng = np.random.default_rng(2)
    rows, bends = rng.normal(size=(7, 4)), rng.random(7)
    plain, loop = np.zeros((4, 4)), np.zeros((4, 4))
    curvature(plain, rows, bends, 0.3)
    curvature_loop(loop, rows, bends, 0.3)
    assert np.allclose(plain, loop, atol=1e-14)
    a, b = rng.normal(size=4), np.zeros(4)
    b[:] = a
    solve_positive(plain, a)
    solve_positive_loop(loop, b)
    assert np.allclose(a, b, atol=1e-13)


def test_clients_of_any_size_have_a_row():
    data, _ = factors(task_of(drawn([1, 8, 3], 4, SQUARED), SQUARED))
    assert isinstance(data, Factors) and data.basis.shape == (3, 1, 4, 4)
    x, _ = drawn([1, 8, 3], 4, SQUARED)[2]
    assert np.allclose(data.basis[2, 0].T * data.curve[2, 0] @ data.basis[2, 0], 2 * x.T @ x / 3)


def test_other_losses_are_refused():
    with pytest.raises(BadInput, match="exact local solver"):
        factors(task_of(drawn([3], 2, SQUARED), ABSOLUTE))


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC])
def test_a_model_in_a_ball_is_cvxpys(loss):
    """For privacy that rests on a bounded model: the minimiser in the ball, not the minimiser cut off."""
    rng = np.random.default_rng(3)
    (x, y), weight, radius = drawn([5], 3, loss)[0], 0.2, 0.6
    data, _ = factors(task_of([(x, y)], loss), features=1.5, target=0.8)
    me = row(solving_state(data, 0.0), 0)
    x, y = bounded(x, y, 1.5, 0.8 if loss == SQUARED else 1.0)
    assert np.linalg.norm(x, axis=1).max() <= 1.5 and np.abs(y).max() <= 1.0
    start, out = rng.normal(size=3), np.zeros(3)
    pull = start.copy()
    pull += me.data.moment[0] if loss == SQUARED else 0.0
    solver_of(loss, radius)(out, me, Shard(x, y), pull, weight, 0, radius)
    w = cp.Variable(3)
    answers = x @ w
    term = cp.sum_squares(y - answers) if loss == SQUARED else cp.sum(cp.logistic(-cp.multiply(y, answers)))
    whole = term / len(y) + weight / 2 * cp.sum_squares(w) - start @ w
    cp.Problem(cp.Minimize(whole), [cp.norm(w) <= radius]).solve(solver=cp.CLARABEL)
    assert np.linalg.norm(out) <= radius * (1 + 1e-12) and np.allclose(out, w.value, atol=1e-5)
