"""From a budget back to the noise: the ledger accepts exactly what was planned."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.node import row
from archipel.privacy import calibration
from archipel.privacy.account import accounts, pay
from archipel.privacy.accounting import record
from archipel.privacy.ledger import EpsilonBudget, Ledger, Overspent, Terms, ZcdpBudget
from archipel.privacy.releases import Gaussian, Laplace

TERMS = Terms("sample", "replace-one")


def first_of(mu, releases, zeta=1.0):
    """The noise of the first of so many releases of sensitivity one, the variance multiplied by zeta after each."""
    return calibration.first_sigma(mu, np.ones(releases), zeta ** (np.arange(releases) / 2))


def spend(ledger, costs):
    for n, mu in enumerate(costs):
        ledger.charge(n, Gaussian(mu))


@settings(max_examples=40, deadline=None)
@given(
    epsilon=st.floats(0.01, 50),
    delta=st.sampled_from([1e-9, 1e-5, 1e-2]),
    releases=st.integers(1, 200),
    zeta=st.sampled_from([1.0, 0.999, 0.98, 0.9]),
)
def test_the_planned_releases_fit_and_no_further_one(epsilon, delta, releases, zeta):
    first = first_of(calibration.gaussian_budget(epsilon, delta), releases, zeta)
    mus = [1 / (first * zeta ** (n / 2)) for n in range(releases)]
    ledger = Ledger("client", TERMS, EpsilonBudget(epsilon, delta))
    spend(ledger, mus)
    assert 0.999 * epsilon < ledger.epsilon(delta).epsilon <= epsilon
    with pytest.raises(Overspent):
        ledger.charge(releases, Gaussian(mus[-1]))
    account = row(accounts(1.0, [ledger.budget.gaussian_rho()]), 0)
    assert sum([pay(account, mu * mu / 2, 0) for mu in mus]) == releases  # the running sum of a simulation agrees
    assert not pay(account, mus[-1] ** 2 / 2, 0)


@settings(max_examples=40, deadline=None)
@given(rho=st.floats(1e-4, 100), releases=st.integers(1, 200), zeta=st.sampled_from([1.0, 0.95]))
def test_a_zcdp_budget_is_met(rho, releases, zeta):
    first = first_of(calibration.zcdp_budget(rho), releases, zeta)
    ledger = Ledger("client", TERMS, ZcdpBudget(rho))
    spend(ledger, [1 / (first * zeta ** (n / 2)) for n in range(releases)])
    assert ledger.rho() == pytest.approx(rho, rel=1e-8)


def test_every_client_has_its_own_noise():
    epsilons, times = np.array([0.5, 2.0, 16.0]), np.array([10, 200, 7])
    budgets = calibration.gaussian_budget(epsilons, 1e-5)
    noise = [first_of(mu, releases) for mu, releases in zip(budgets, times)]
    for k in range(3):
        spent = record(Gaussian(1 / noise[k])) * int(times[k])
        assert spent.epsilon(1e-5).epsilon == pytest.approx(epsilons[k], rel=1e-6)
        assert budgets[k] == calibration.gaussian_budget(epsilons[k], 1e-5)


def test_a_changing_sensitivity_is_counted_release_by_release():
    sensitivities = np.array([[1.0, 0.5, 0.25], [2.0, 2.0, 2.0]])
    shape = 0.9 ** (np.arange(3) / 2)
    mu = calibration.gaussian_budget(1.0, 1e-5)
    sigmas = calibration.first_sigma(mu, sensitivities, shape)[:, None] * shape
    assert np.sqrt(((sensitivities / sigmas) ** 2).sum(1)) == pytest.approx([mu, mu], rel=1e-8)


def test_laplace_and_sampled_releases_use_the_budget_up():
    each = calibration.laplace_per_release(1.0, 1e-5, 200)
    assert each > 2.5 * calibration.laplace_per_release(1.0, 0, 200)
    assert 0.99 < (record(Laplace(each)) * 200).epsilon(1e-5).epsilon <= 1


def tail(n, q, m):
    """P(Binomial(n, q) > m), exactly."""
    q = Fraction(q)
    return sum(math.comb(n, i) * q**i * (1 - q) ** (n - i) for i in range(m + 1, n + 1))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 60),
    q=st.integers(0, 32).map(lambda i: i / 32),
    failure=st.sampled_from([0.25, 0.05, 1e-3, 1e-6]),
)
def test_participations_are_the_exact_quantile(n, q, failure):
    most = int(calibration.participations(n, q, failure))
    assert tail(n, q, most) <= failure * (1 + Fraction(1, 10**9))
    assert most == 0 or tail(n, q, most - 1) > failure * (1 - Fraction(1, 10**9))


def test_lemma_1_is_near_the_quantile_and_not_always_above_it():
    """With k of the logistic approximation: 210 draws of 1/10 are the paper's MNIST runs."""
    for failure in (0.05, 1e-3):
        lemma = calibration.participations_by_lemma_1(210, 0.1, failure)
        assert lemma == pytest.approx(float(calibration.participations(210, 0.1, failure)), abs=4)
    few = calibration.participations_by_lemma_1(30, 0.01, 0.01)
    assert few < calibration.participations(30, 0.01, 0.01)


def test_a_fixed_plan_with_the_quantile_is_cheaper_than_planning_for_every_round():
    mu = calibration.gaussian_budget(16.0, 1e-5)
    planned = calibration.participations(np.full(3, 70), np.array([0.1, 0.3, 1.0]), 1e-6)
    noise = [first_of(mu, int(releases)) for releases in planned]
    assert planned[2] == 70 and noise[0] < noise[1] < noise[2]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: calibration.gaussian_budget(-1.0, 1e-5),
        lambda: calibration.gaussian_budget([1.0, math.inf], 1e-5),
        lambda: calibration.gaussian_budget(1.0, 0.0),
        lambda: calibration.gaussian_budget(1.0, 1.0),
        lambda: calibration.zcdp_budget(0.0),
        lambda: calibration.first_sigma(1.0, [1.0, 1.0], [1.0, 0.0]),
        lambda: calibration.first_sigma(1.0, [1.0, math.inf], [1.0, 1.0]),
        lambda: calibration.participations(10, 1.2, 0.1),
        lambda: calibration.laplace_per_release(math.inf, 1e-5, 3),
    ],
)
def test_impossible_plans_are_refused(wrong):
    with pytest.raises(BadInput, match="expected"):
        wrong()
