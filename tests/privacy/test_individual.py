"""Individual accounting: nobody above its budget by an exact accountant, and a budget that buys more rounds."""

import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from archipel.privacy.accounting import record
from archipel.privacy.gaussian import mu_of
from archipel.privacy.individual import filters, left, own_factor
from archipel.privacy.releases import Gaussian
from archipel.simulate.compile import enable


@given(st.lists(st.floats(0, 3), min_size=1, max_size=50), st.floats(0.01, 2), st.floats(0.1, 10))
def test_nobody_pays_more_than_its_budget_whatever_it_says(norms, limit, scale):
    mine, said = filters([limit]), []
    for norm in norms:
        said.append(norm * own_factor(mine, 0, norm, 1.0, scale))
    assert all(one <= min(norm, 1.0) * (1 + 1e-12) for one, norm in zip(said, norms))
    paid = record(*[Gaussian(one / scale) for one in said]).rho()
    assert paid <= limit * (1 + 1e-9) and mine.spent[0] == pytest.approx(min(paid, limit), rel=1e-9, abs=1e-12)
    if mine.spent[0] < limit * (1 - 1e-9):  # nobody is shortened before its time
        assert said == pytest.approx([min(norm, 1.0) for norm in norms])


def test_what_is_no_number_adds_nothing_and_pays_nothing():
    mine = filters([1.0])
    assert [own_factor(mine, 0, bad, 1.0, 2.0) for bad in (math.nan, math.inf, 0.0)] == [0.0] * 3
    assert own_factor(mine, 0, 1.0, 1.0, 0.0) == 0.0 and mine.spent[0] == 0


def test_it_is_the_same_when_compiled():
    enable()
    compiled = numba.njit(lambda f, i, norm, clip, scale: own_factor(f, i, norm, clip, scale))
    plain, fast = filters([0.05, 1.0]), filters([0.05, 1.0])
    for n in range(40):
        for i in (0, 1):
            norm = 0.1 + 0.05 * n
            assert own_factor(plain, i, norm, 1.0, 3.0) == compiled(fast, i, norm, 1.0, 3.0)
    assert np.array_equal(plain.spent, fast.spent)


def trained(x, y, scale, limits, rounds, step=0.5, clip=1.0, seed=0):
    """Private gradient descent of logistic regression, whole batches; who is out adds nothing. Accuracy, and norms."""
    draw, model, mine = np.random.default_rng(seed), np.zeros(x.shape[1]), filters(limits)
    history = []
    for _ in range(rounds):
        gradients = -(y / (1 + np.exp(y * (x @ model))))[:, None] * x
        norms = np.linalg.norm(gradients, axis=1)
        factors = np.array([own_factor(mine, i, float(norm), clip, scale) for i, norm in enumerate(norms)])
        history.append(norms * factors / scale)
        total = (gradients * factors[:, None]).sum(0) + scale * draw.normal(size=model.shape)
        model -= step * total / len(y)
    return float(np.mean(np.sign(x @ model) == y)), np.array(history), mine


def test_the_same_budget_buys_more_rounds_where_gradients_are_unequal():
    """Digits, even against odd, at epsilon 2: as many rounds as the worst case pays for, and then 1.5 times as many.

    With the same noise, four of five records still speak after 1.5 times the rounds, and no record is above its budget
    by an exact accountant.
    """
    x, digits = load_digits(return_X_y=True)
    x, y = x / np.linalg.norm(x, axis=1, keepdims=True), np.where(digits % 2, 1.0, -1.0)
    x *= 0.3 + 1.4 * np.random.default_rng(1).random((len(x), 1))  # of different lengths
    epsilon, delta, planned = 2.0, 1e-5, 60
    budget = mu_of(epsilon, delta) ** 2 / 2
    scale = math.sqrt(planned / (2 * budget))  # the worst case: a clip of 1 in each of the planned rounds
    limits = np.full(len(y), budget)
    _, history, mine = trained(x, y, scale, limits, planned * 3 // 2)
    assert left(mine) > 0.8
    for own in history.T[:: len(y) // 40]:
        assert record(*[Gaussian(float(mu)) for mu in own]).epsilon(delta).epsilon <= epsilon * (1 + 1e-9)
    _, late, _ = trained(x, y, scale, limits, planned * 4)
    assert np.abs(late**2 / 2).sum(0).max() <= budget * (1 + 1e-9)
    still = [float((row > 0).mean()) for row in late]
    assert sum(share > 0.5 for share in still) >= 1.5 * planned  # rounds in which most still speak
