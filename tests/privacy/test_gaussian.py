"""The Gaussian mechanism against high-precision arithmetic."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.privacy.gaussian import epsilon_of, mills, mu_of


def analytic_delta(mu, epsilon):
    """Balle and Wang's theorem 8, with enough digits that the difference does not cancel."""
    with mpmath.workdps(80):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        near, far = mpmath.ncdf(mu / 2 - epsilon / mu), mpmath.ncdf(-mu / 2 - epsilon / mu)
        return near - mpmath.exp(epsilon) * far


def test_mills_ratio_is_that_of_the_normal_distribution():
    for x in (-8.0, -1.0, -1e-9, 0.0, 1e-9, 0.3, 1.0, 4.4, 8.8, 8.9, 30.0, 1e5):
        with mpmath.workdps(40):
            root = mpmath.mpf(x) / mpmath.sqrt(2)
            exact = mpmath.sqrt(mpmath.pi / 2) * mpmath.exp(root**2) * mpmath.erfc(root)
        assert float(mills(x)) == pytest.approx(float(exact), rel=2e-14)


@pytest.mark.parametrize("mu", [1e-12, 1e-6, 1e-3, 0.03, 0.3, 0.99, 1.01, 3.0, 30.0, 1e3, 1e5, 1e8])
@pytest.mark.parametrize("delta", [1e-100, 1e-20, 1e-9, 1e-5, 1e-2, 0.5, 0.97])
def test_epsilon_is_never_below_the_analytic_value_and_hardly_above(mu, delta):
    epsilon = epsilon_of(mu, delta)
    assert analytic_delta(mu, epsilon) <= delta
    if epsilon > 0:
        assert analytic_delta(mu, epsilon * (1 - 1e-7)) > delta


@settings(max_examples=80, deadline=None)
@given(st.floats(-6, 3), st.floats(-30, -0.01))
def test_epsilon_anywhere_is_within_a_percent(log_mu, log_delta):
    mu, delta = 10**log_mu, 10**log_delta
    epsilon = epsilon_of(mu, delta)
    assert analytic_delta(mu, epsilon) <= delta
    if epsilon > 1e-9:
        assert analytic_delta(mu, epsilon / 1.01) > delta


@settings(max_examples=80, deadline=None)
@given(st.floats(-5, 6), st.floats(-30, -0.01))
def test_mu_spends_the_whole_budget_and_no_more(log_epsilon, log_delta):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    mu = mu_of(epsilon, delta)
    assert epsilon_of(mu, delta) <= epsilon
    assert epsilon_of(mu * (1 + 1e-7), delta) > epsilon * (1 - 1e-7)


def test_arrays_give_what_numbers_give():
    mus, deltas = np.array([[0.0, 0.2], [1.0, 7.0]]), np.array([1e-5, 1e-3])
    table = epsilon_of(mus, deltas)
    assert table.shape == (2, 2) and table[0, 0] == 0
    assert all(table[i, j] == epsilon_of(mus[i, j], deltas[j]) for i in range(2) for j in range(2))
    assert mu_of(np.array([1.0, 16.0]), 1e-5)[1] == mu_of(16.0, 1e-5)


def test_it_agrees_with_dp_accounting():
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian, get_sigma_gaussian

    for sigma in (0.3, 1.0, 4.0, 20.0):
        assert epsilon_of(1 / sigma, 1e-6) == pytest.approx(get_epsilon_gaussian(sigma, 1e-6), rel=1e-8)
    for epsilon in (0.5, 1.0, 4.0, 32.0):
        assert 1 / mu_of(epsilon, 1e-6) == pytest.approx(get_sigma_gaussian(epsilon, 1e-6), rel=1e-8)


def test_the_textbook_noise_breaks_its_promise_beyond_epsilon_eight():
    """sqrt(2 ln(1.25/delta)) / epsilon at the personalised paper's budgets, delta 1e-5."""
    real = [epsilon_of(epsilon / np.sqrt(2 * np.log(1.25e5)), 1e-5) for epsilon in (1, 8, 16, 32)]
    assert real[0] < 1 and real[1] < 8.1
    assert real[2] == pytest.approx(18.9, abs=0.1) and real[3] == pytest.approx(49, abs=0.5)
