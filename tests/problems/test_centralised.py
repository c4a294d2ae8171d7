"""The exact solution that models are measured against, itself against CVXPY on other data."""

import numpy as np
import pytest

from archipel.errors import BadInput
from archipel.problems.scoring.centralised import by_newton, centralised, checked

cvxpy = pytest.importorskip("cvxpy")


def drawn(loss, seed):
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((60, 5)) * [1.0, 3.0, 0.2, 1.0, 1.0]
    y = x @ [1.0, -0.3, 2.0, 0.0, 0.0] + draw.standard_normal(60)
    return x, np.where(y > 0, 1.0, -1.0) if loss == "logistic" else y, draw.uniform(0.01, 0.5, 60)


def value(loss, x, y, weight, l1, l2, w):
    error = x @ w - y
    each = {
        "squared": error**2,
        "absolute": np.abs(error),
        "huber": np.where(np.abs(error) <= 1, error**2 / 2, np.abs(error) - 0.5),
        "logistic": np.logaddexp(0, -y * (x @ w)),
    }[loss]
    return weight @ each + l1 * np.abs(w).sum() + l2 * w @ w


def solved(loss, x, y, weight, l1, l2):
    """By CVXPY, with nothing of ours."""
    w = cvxpy.Variable(5)
    error = x @ w - y
    each = {
        "squared": lambda: cvxpy.square(error),
        "absolute": lambda: cvxpy.abs(error),
        "huber": lambda: cvxpy.huber(error, 1.0) / 2,
        "logistic": lambda: cvxpy.logistic(cvxpy.multiply(-y, x @ w)),
    }[loss]()
    cvxpy.Problem(cvxpy.Minimize(weight @ each + l1 * cvxpy.norm1(w) + l2 * cvxpy.sum_squares(w))).solve("CLARABEL")
    return w.value


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("l1", [0.0, 0.4])
@pytest.mark.parametrize("loss", ["squared", "absolute", "huber", "logistic"])
def test_it_is_cvxpys_or_better(loss, l1, l2):
    x, y, weight = drawn(loss, 7)
    found, theirs = centralised(x, y, weight, loss, l1, l2), solved(loss, x, y, weight, l1, l2)
    assert np.abs(found - theirs).max() < 1e-4
    ours, best = (value(loss, x, y, weight, l1, l2, w) for w in (found, theirs))
    assert ours <= best + 1e-9
    moved = np.random.default_rng(1).standard_normal((50, 5)) * 1e-3
    assert all(value(loss, x, y, weight, l1, l2, found + by) >= ours - 1e-12 for by in moved)


def test_newton_ends_where_the_slope_is_zero_however_far_the_start():
    x, y, weight = drawn("logistic", 3)
    w = by_newton(100 * x, y, weight, 1e-6)
    slope = 2e-6 * w - (100 * x).T @ (weight * y / (1 + np.exp(np.minimum(y * (100 * x @ w), 700))))
    assert np.abs(slope).max() < 1e-9


@pytest.mark.parametrize("found, status", [(None, "infeasible"), (np.zeros(5), "NumericalError")])
def test_what_was_not_solved_is_a_sentence(found, status):
    with pytest.raises(BadInput, match="was not found"):
        checked(found, status)
