"""Accounts: paid before anything is released, never more than the limit, the same when compiled."""

import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archipel.node import Moment, row
from archipel.privacy.account import Spending, accounts, pay, release_cost, release_of, scale_of
from archipel.privacy.ledger import Ledger, Terms, ZcdpBudget
from archipel.privacy.noise import GAUSSIAN, LAPLACE, NONE
from archipel.privacy.policy import release_costs
from archipel.privacy.releases import Gaussian, Laplace, rho_of
from archipel.simulate.compile import enable

LAWS = {GAUSSIAN: Gaussian, LAPLACE: Laplace}
COSTS = st.lists(st.floats(0, 2), max_size=40)


def account(limit, noise=1.0):
    return row(accounts(noise, [limit]), 0)


def moment(n):
    return Moment(0, n, 0, -1, 0, True, 0.0)


@given(COSTS, st.floats(0, 5))
def test_an_account_never_holds_more_than_its_limit(costs, limit):
    mine, taken = account(limit), []
    for cost in costs:
        before = mine.spent[0]
        if pay(mine, cost, 0):
            taken.append(cost)
        else:
            assert mine.spent[0] == before and before + cost > limit
    assert mine.spent[0] <= limit and mine.releases[0] == len(taken)
    assert mine.spent[0] == mine.summed[0] == pytest.approx(sum(taken))
    assert mine.dearest[0] == max(taken, default=0.0)


@given(COSTS, st.floats(0, 5))
def test_of_samples_that_are_used_once_the_dearest_counts(costs, limit):
    mine = account(limit)
    taken = [cost for cost in costs if pay(mine, cost, 1)]
    assert taken == [cost for cost in costs if cost <= limit]
    assert mine.spent[0] == mine.dearest[0] == max(taken, default=0.0)
    assert mine.summed[0] == pytest.approx(sum(taken))


@given(st.lists(st.floats(0.001, 0.5), min_size=1, max_size=30), st.floats(0.01, 2))
def test_an_account_and_a_ledger_agree(mus, limit):
    mine = account(ZcdpBudget(limit).gaussian_rho())
    ledger = Ledger("k", Terms("sample", "replace-one"), ZcdpBudget(limit))
    for n, mu in enumerate(mus):
        afforded = ledger.affords(Gaussian(mu))
        near = abs(ledger.rho() + mu * mu / 2 - limit) < 1e-11
        assert pay(mine, release_cost(GAUSSIAN, mu, 1.0), 0) == afforded or near
        if afforded:
            ledger.charge(n, Gaussian(mu))
        if near:
            return
    assert mine.spent[0] == pytest.approx(ledger.rho(), rel=1e-12)


@pytest.mark.parametrize(("sensitivity", "scale"), [(0.1, 1.0), (1.0, 0.3), (5.0, 1.0), (0.0, 1.0)])
@pytest.mark.parametrize("law", LAWS)
def test_costs_are_the_accountants(law, sensitivity, scale):
    assert release_cost(law, sensitivity, scale) == pytest.approx(rho_of(LAWS[law](sensitivity / scale)))
    assert release_costs(law, sensitivity, scale) == pytest.approx(release_cost(law, sensitivity, scale))


@given(st.sampled_from(sorted(LAWS)), st.floats(1e-6, 50), st.floats(0, 5))
def test_a_release_is_found_again_by_its_cost(law, ratio, before):
    """Within a billionth and never below, though all that is known is what the account held before and after."""
    mine = account(math.inf)
    mine.spent[0] = before
    pay(mine, release_cost(law, ratio, 1.0), 0)
    found = release_of(law, float(mine.spent[0]) - before)
    lost = 1e-15 * (1 + before)  # in the difference of two totals
    cost = rho_of(LAWS[law](ratio))
    assert isinstance(found, LAWS[law]) and cost - lost <= rho_of(found) <= cost * (1 + 3e-11) + lost


def test_without_noise_the_cost_is_infinite():
    for law in (NONE, GAUSSIAN, LAPLACE):
        assert release_cost(law, 1.0, 0.0) == math.inf
    assert not pay(account(1e9), release_cost(NONE, 1.0, 0.0), 0) and not pay(account(1e9), math.nan, 0)
    assert pay(account(math.inf), release_cost(GAUSSIAN, 1.0, 0.1), 0)


def test_a_scale_is_the_schedules_until_it_cannot_be_paid():
    """Noise 4 against a change of 2 costs 1/8 of zCDP; halved, 1/2. Round 1 is silent, and all after round 3."""
    mine, settings = account(0.8, 4.0), Spending(GAUSSIAN, np.array([1.0, -1.0, 1.0, 0.5, 1.0]), 0)
    assert [scale_of(mine, settings, 2.0, moment(n)) for n in range(7)] == [4.0, -1.0, 4.0, 2.0, -1.0, -1.0, -1.0]
    assert mine.spent[0] == 0.75 and mine.releases[0] == 3 and mine.dearest[0] == 0.5


@pytest.mark.parametrize("law", (NONE, GAUSSIAN, LAPLACE))
@pytest.mark.parametrize("per_sample", (0, 1))
def test_it_is_the_same_when_compiled(law, per_sample):
    enable()

    @numba.njit
    def compiled(mine, settings, sensitivity, moment):
        return scale_of(mine, settings, sensitivity, moment)

    settings = Spending(law, 0.9 ** np.arange(40.0), per_sample)
    plain, fast = account(0.1, 7.0), account(0.1, 7.0)
    for n in range(50):
        assert scale_of(plain, settings, 1.0, moment(n)) == compiled(fast, settings, 1.0, moment(n))
        assert all(a[0] == b[0] for a, b in zip(plain, fast))
    assert (plain.releases[0] > 0) == (law != NONE) and plain.spent[0] <= 0.1
