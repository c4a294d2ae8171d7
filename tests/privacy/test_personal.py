"""Noise for personal budgets: how often a client takes part, and how much noise that takes."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import stats

from archipel.errors import BadInput
from archipel.privacy import personal
from archipel.privacy.accounting import record
from archipel.privacy.ledger import Charge
from archipel.privacy.releases import Gaussian, Sampled
from reference.sampling import sampled


def test_counts_of_participations():
    chance = np.array([0.02, 0.1, 0.3])
    exact = personal.by_binomial(70, 3, chance, 2.5e-6)
    for q, count in zip(chance, exact):
        law = stats.binom(70, 1 - (1 - q) ** 3)
        assert law.sf(count) <= 2.5e-6 < law.sf(count - 1)
    printed = personal.by_lemma_1(70, 3, chance, 2.5e-6)
    assert printed == pytest.approx(
        210 * chance + math.log((1 - 2.5e-6) / 2.5e-6) * np.sqrt(210 * chance * (1 - chance)) / 1.702, abs=1
    )
    assert (exact < printed).all() and (printed < personal.by_all(70, 3, chance, 2.5e-6)).all()


def test_nobody_is_stopped_early_in_95_of_100_runs():
    rng = np.random.default_rng(2)
    early = 0
    for run in range(400):
        chance = rng.dirichlet(np.full(10, 5.0))
        limit = personal.by_binomial(70, 3, chance, 2.5e-6)
        counts = np.array([sampled(chance, 3, run, r) > 0 for r in range(70)]).sum(0)
        early += (counts > limit).any()
    assert early <= 0.05 * 400


@pytest.mark.parametrize(("epsilon", "rate"), [(0.5, 0.2), (4.0, 0.02), (24.0, 0.085), (1.0, 0.9)])
def test_affordable_noise_spends_the_budget_and_no_more(epsilon, rate):
    """By our own accountant on its fine grid, and by dp-accounting's with noise that was paid before."""
    before = record(Gaussian(0.02))
    mu = personal.affordable_mu(epsilon, 1e-5, 150, rate, "add-remove", before)
    paid = (before + record(Sampled(rate, Gaussian(mu))) * 150).epsilon(1e-5).epsilon
    assert 0.995 * epsilon < paid <= epsilon
    theirs = PLDAccountant(value_discretization_interval=epsilon / 4000)
    theirs.compose(dp_accounting.GaussianDpEvent(1 / 0.02))
    theirs.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(1 / mu)), 150)
    assert theirs.get_epsilon(1e-5) == pytest.approx(paid, rel=1e-3)


def test_whole_batches_are_exactly_gaussian():
    mu = personal.affordable_mu(3.0, 1e-5, 40, 1.0, "add-remove", record(Gaussian(0.1)))
    total = (record(Gaussian(mu)) * 40 + Gaussian(0.1)).epsilon(1e-5).epsilon
    assert 3.0 * (1 - 1e-6) < total <= 3.0


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_quick_epsilons_are_upper_bounds(rate):
    for mu in (0.2, 1.0):
        history = record(Sampled(rate, Gaussian(mu))) * 60
        exact = history.epsilon(1e-5).epsilon
        assert exact <= personal.quick_epsilon(history, exact, 1e-5) <= exact * 1.002


def test_the_binomial_count_saves_noise_for_the_papers_clients():
    """MNIST: 10 clients of about 6,000, batches of 512, R = 70, K = 3, E = 5: a third less noise."""
    count = int(personal.by_binomial(70, 3, 0.1, 2.5e-6))
    assert personal.saved_noise(24.0, 1e-5, 512 / 6000, (count, 210), 5) > 0.3


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "told"),
    [
        (1.0, 1e-20, 0.1, r"delta = 1e-20: expected a number from 1e-14 to 0\.1"),
        (1.0, 0.99, 0.1, "delta = 0.99"),
        (1e-300, 1e-5, 0.1, r"epsilon = 1e-300: expected a number from 0\.001 to 10000"),
        (1e12, 1e-5, 0.1, "epsilon"),
        (1e308, 1e-5, 1.0, r"epsilon = 1e\+308: .* at most 1e\+100"),
    ],
)
def test_a_budget_out_of_reach_is_refused(epsilon, delta, rate, told):
    """Tracebacks, and noise that was no number, came out of these."""
    with pytest.raises(BadInput, match=told):
        personal.affordable_mu(epsilon, delta, 10, rate, "add-remove")
    with pytest.raises(BadInput, match=told):
        personal.affordable_epsilon(epsilon, delta, 10, rate)


@pytest.mark.parametrize("epsilon", personal.EPSILONS)
def test_a_budget_at_the_ends_of_the_reach_is_met(epsilon):
    mu = personal.affordable_mu(epsilon, 1e-14, 10, 0.1, "add-remove")
    assert personal.quick_epsilon(record(Sampled(0.1, Gaussian(mu))) * 10, epsilon, 1e-14) <= epsilon
    each = personal.affordable_epsilon(epsilon, 1e-14, 20, 0.1)
    assert personal.quick_epsilon(record(personal.sampled_laplace(each, 0.1)) * 20, epsilon, 1e-14) <= epsilon
    with pytest.raises(BadInput, match="at most 500, for 1 Laplace release"):
        personal.affordable_epsilon(501.0, 1e-5, 1, 0.1)


def test_how_many_samples_someone_has_is_assumed_public_where_one_is_added():
    """The server weighs by these numbers, without noise; replacing a record leaves them as they are."""
    added = personal.personal_ledger("a", 1.0, 1e-5, "add-remove", 1.0).terms
    assert added.how == "assumed" and ("everyone's number of samples is public", "assumed") in added.assumptions
    replaced = personal.personal_ledger("a", 1.0, 1e-5, "replace-one", 1.0).terms
    assert replaced.how == "enforced" and len(replaced.assumptions) == 2


def test_a_budget_that_is_spent_already():
    assert personal.affordable_mu(2.0, 1e-5, 10, 0.1, "add-remove", record(Gaussian(1.0))) == 0.0


def test_where_nothing_fits_any_more_no_noise_is_enough():
    """What was spent leaves room for nothing: not even for a release that says next to nothing."""
    mu = personal.affordable_mu(2.0, 1e-5, 100, 0.1, "add-remove")
    spent = record(Sampled(0.1, Gaussian(mu))) * 100
    nearly = personal.quick_epsilon(spent, 2.0, 1e-5)
    assert personal.affordable_mu(nearly, 1e-5, 50, 0.1, "add-remove", spent) == 0.0
    assert personal.affordable_mu(nearly / 2, 1e-5, 50, 0.1, "add-remove", spent) == 0.0


def test_a_ledger_above_its_budget_says_so():
    ledger = personal.personal_ledger("a", 1.0, 1e-5, "add-remove", 1.0)
    ledger._enter(Charge(0, Gaussian(1.0), 1))  # behind the back of its budget
    paid = personal.PersonalLedgers([ledger], 1e-5).paid()
    assert paid.epsilon[0] == record(Gaussian(1.0)).epsilon(1e-5).epsilon > 4


def test_what_is_taken_from_everyones_data_is_assumed_by_personal_ledgers_too():
    ledgers = personal.PersonalLedgers([personal.personal_ledger("a", 1.0, 1e-5, "replace-one", 1.0)], 1e-5)
    assert ledgers.terms.how == "enforced"
    assert ledgers.assuming(("the scales are public",)).ledger(None, [])["nodes"][0]["guarantee"] == "assumed"
