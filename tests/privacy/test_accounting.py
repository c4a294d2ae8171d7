"""Histories: any order, any split, and conversions against numerical integrals of the definition."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import laplace, norm

from archipel.errors import BadInput
from archipel.privacy import accounting
from archipel.privacy.accounting import (
    EXACT,
    NOTHING,
    PLD,
    RDP,
    History,
    record,
    zcdp_epsilon,
)
from archipel.privacy.gaussian import epsilon_of
from archipel.privacy.releases import Gaussian, Laplace, Sampled, Zcdp, as_json, from_json

sizes = st.floats(0, 3, allow_subnormal=False)
gaussians = st.builds(Gaussian, sizes)
sampled = st.builds(Sampled, st.floats(0.01, 1), st.one_of(gaussians, st.builds(Laplace, sizes)))
releases = st.one_of(gaussians, st.builds(Laplace, sizes), st.builds(Zcdp, sizes), sampled)


# --- composition ------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(releases, max_size=12), st.randoms(use_true_random=False), st.integers(0, 12))
def test_any_order_and_any_split_is_the_same_history(entries, random, cut):
    shuffled = entries[:]
    random.shuffle(shuffled)
    whole, split = record(*entries), record(*shuffled[:cut]) + record(*shuffled[cut:])
    assert whole == split and hash(whole) == hash(split)
    assert whole.rho() == split.rho() and whole.mu() == split.mu()
    one_by_one = History()
    for release in shuffled:
        one_by_one = one_by_one + release
    assert one_by_one == whole


@settings(deadline=None)
@given(gaussians, st.integers(0, 50), st.integers(0, 50))
def test_repeats_add_up(release, first, second):
    assert record(release) * first + record(release) * second == (first + second) * record(release)
    assert (record(release) * first).releases == first


@settings(deadline=None)
@given(st.lists(gaussians, min_size=1, max_size=20))
def test_the_zcdp_total_is_the_sum(entries):
    exact = sum(Fraction(g.mu) ** 2 / 2 for g in entries)
    assert record(*entries).rho() == pytest.approx(float(exact), rel=1e-15)


@settings(deadline=None)
@given(releases)
def test_json_brings_back_the_same_bits(release):
    assert from_json(as_json(release)) == release


# --- all Gaussian -----------------------------------------------------------------------------------------


def analytic_delta(mu, epsilon):
    """Balle and Wang's theorem 8, with enough digits."""
    with mpmath.workdps(100):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        near, far = mpmath.ncdf(mu / 2 - epsilon / mu), mpmath.ncdf(-mu / 2 - epsilon / mu)
        return near - mpmath.exp(epsilon) * far


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1e-3, 2), min_size=1, max_size=30), st.sampled_from([1e-9, 1e-5, 1e-3]))
def test_gaussian_histories_convert_exactly(mus, delta):
    found = record(*[Gaussian(mu) for mu in mus]).epsilon(delta)
    mu = math.sqrt(math.fsum(m * m for m in mus))
    assert found.method == EXACT
    assert analytic_delta(mu, found.epsilon * (1 + 1e-15)) <= delta
    assert found.epsilon < 1e-9 or analytic_delta(mu, found.epsilon / 1.01) > delta


def test_loss_distributions_agree_with_the_exact_form():
    from archipel.privacy.loss_distribution import epsilon_by_pld

    for mu in (0.05, 3.0):
        by_pld = epsilon_by_pld(record(Gaussian(mu)), 1e-6, 100.0)
        assert by_pld == pytest.approx(epsilon_of(mu, 1e-6), rel=1e-4)


# --- Laplace, sampled, mixed: the definition, integrated --------------------------------------------------


def hockey_stick(p, q, epsilon, area):
    """delta by its definition: the integral of (p - e^epsilon q)+."""
    return float(np.sum(np.maximum(p - np.exp(epsilon) * q, 0.0)) * area)


def line(width, points):
    edges = np.linspace(-width, width, points + 1)
    return (edges[:-1] + edges[1:]) / 2, edges[1] - edges[0]


def test_one_laplace_release():
    for epsilon in (0.1, 1.0, 5.0):
        for delta in (1e-6, 0.01):
            found = record(Laplace(epsilon)).epsilon(delta).epsilon
            assert 0 <= found - (epsilon + 2 * math.log1p(-delta)) < 1e-3 * epsilon


def test_two_laplace_and_one_gaussian_by_brute_force():
    x, h = line(22, 1600)
    lap = [laplace.pdf(x, loc=shift, scale=1 / 0.7) for shift in (0, 1)]
    gauss = [norm.pdf(x, loc=shift) for shift in (0, 0.5)]
    for history, pair in (
        (record(Laplace(0.7)) * 2, (np.outer(lap[0], lap[0]), np.outer(lap[1], lap[1]))),
        (record(Laplace(0.7), Gaussian(0.5)), (np.outer(lap[0], gauss[0]), np.outer(lap[1], gauss[1]))),
    ):
        for epsilon in (0.2, 1.2):
            found = history.epsilon(hockey_stick(*pair, epsilon, h * h))
            assert found.method == PLD
            assert epsilon * 0.999 <= found.epsilon <= epsilon * 1.01


def test_many_laplace_releases_beat_the_pure_sum():
    history = record(Laplace(0.01)) * 400 + Gaussian(0.2)
    found = history.epsilon(1e-5)
    assert found.method == PLD and found.epsilon < 1.5 < 4
    assert found.epsilon < zcdp_epsilon(history.rho(), 1e-5)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_a_sampled_gaussian_by_brute_force(relation):
    rate, mu = 0.1, 1.4
    x, h = line(14, 40_000)
    here, there = (0, mu) if relation == "add-remove" else (-mu / 2, mu / 2)
    mixed = [(1 - rate) * norm.pdf(x) + rate * norm.pdf(x, loc=shift) for shift in (here, there)]
    history = record(Sampled(rate, Gaussian(mu), relation))
    for epsilon in (0.02, 0.1, 0.3):
        exact = max(hockey_stick(*mixed, epsilon, h), hockey_stick(*mixed[::-1], epsilon, h))
        assert epsilon * 0.999 <= history.epsilon(exact).epsilon <= epsilon * 1.01


def test_no_other_replacement_is_worse_than_the_one_the_accountant_takes():
    rate, bound = 0.2, 0.9
    x, h = line(12, 4000)
    rng = np.random.default_rng(0)
    history = record(Sampled(rate, Gaussian(2 * bound), "replace-one"))
    for epsilon in (0.05, 0.3):
        found = []
        for old, new in rng.uniform(-bound, bound, (100, 2)):
            pair = [(1 - rate) * norm.pdf(x) + rate * norm.pdf(x, loc=shift) for shift in (old, new)]
            found.append(hockey_stick(*pair, epsilon, h))
        assert history.epsilon(max(found)).epsilon >= epsilon


def test_one_component_is_the_worst_case_of_laplace_noise_on_a_vector():
    """The same L1 change, spread over components, is easier to hide at every epsilon."""
    for parts in (2, 8):
        for epsilon in (0.0, 0.3, 0.6, 0.95):
            spread = record(Laplace(1 / parts)) * parts
            assert spread.epsilon(1 - math.exp((epsilon - 1) / 2)).epsilon <= epsilon


def test_a_delta_that_is_nearly_all_there_is_needs_no_endless_grid():
    """Beyond this delta epsilon is 0, and just before it tiny: a grid that is fine for that had 8e9 points."""
    whole = 1 - math.exp(-1 / 2)
    for delta in (whole - 1e-3, whole):
        assert 0 <= (record(Laplace(0.5)) * 2).epsilon(delta).epsilon < 0.01


def test_only_a_secret_choice_amplifies():
    seen = record(Gaussian(1.0)) * 100
    secret = record(Sampled(0.1, Gaussian(1.0))) * 1000  # the same number of records used
    assert secret.epsilon(1e-5).epsilon < 0.5 * seen.epsilon(1e-5).epsilon
    assert record(Sampled(1.0, Gaussian(1.0))).epsilon(1e-5).epsilon == pytest.approx(epsilon_of(1.0, 1e-5), rel=1e-3)
    assert record(Sampled(0.1, Gaussian(1.0))).rho() == 0.5  # zCDP does not amplify


# --- bare zCDP --------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.floats(-8, 4), st.floats(-20, -0.05))
def test_the_zcdp_conversion_lies_between_the_exact_gaussian_and_bun_steinke(log_rho, log_delta):
    rho, delta = 10**log_rho, 10**log_delta
    epsilon = zcdp_epsilon(rho, delta)
    assert epsilon_of(math.sqrt(2 * rho), delta) <= epsilon * (1 + 1e-9)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


def test_the_zcdp_conversion_is_the_best_of_dp_accountings_orders():
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    orders = 1 + np.geomspace(1e-3, 1e4, 20_000)
    for rho in (1e-3, 0.1, 2.0, 50.0):
        theirs, _ = compute_epsilon(orders, rho * orders, 1e-6)
        assert zcdp_epsilon(rho, 1e-6) == pytest.approx(theirs, rel=1e-6)


def test_a_bare_total_says_how_it_was_converted():
    assert record(Zcdp(0.1), Gaussian(0.3)).epsilon(1e-5).method == RDP
    assert record(Gaussian(0.0), Laplace(0.0)).epsilon(1e-5) == (0.0, 1e-5, NOTHING)


def test_more_releases_never_cost_less():
    history, before = History(), 0.0
    for release in (Gaussian(0.2), Laplace(0.3), Sampled(0.3, Gaussian(0.5)), Laplace(0.01), Gaussian(0.1)):
        history = history + release
        now = history.epsilon(1e-5).epsilon
        assert now >= before
        before = now


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Gaussian(-0.1),
        lambda: Gaussian(math.inf),
        lambda: Gaussian(math.nan),
        lambda: Laplace(math.inf),
        lambda: Zcdp(-1.0),
        lambda: Zcdp("much"),
        lambda: Sampled(0.0, Gaussian(1.0)),
        lambda: Sampled(1.5, Gaussian(1.0)),
        lambda: Sampled(0.5, Zcdp(1.0)),
        lambda: Sampled(0.5, Sampled(0.5, Gaussian(1.0))),
        lambda: Sampled(0.5, Laplace(1.0), "replace-one"),
        lambda: Sampled(0.5, Gaussian(1.0), "swap"),
        lambda: record(Gaussian(1.0)).epsilon(0.0),
        lambda: record(Gaussian(1.0)).epsilon(1.0),
        lambda: record(Gaussian(1.0)) * -1,
        lambda: record(0.5),
        lambda: record(Sampled(0.5, Gaussian(1.0)), Sampled(0.5, Gaussian(1.0), "replace-one")),
        lambda: from_json({"law": "cauchy", "scale": 1.0}),
        lambda: from_json({"law": "gaussian", "sigma": 1.0}),
    ],
)
def test_what_is_not_known_is_refused_with_a_sentence(wrong):
    with pytest.raises(BadInput, match="expected"):
        wrong()


def test_huge_and_tiny_histories_stay_finite():
    assert math.isfinite(record(Gaussian(1e90)).epsilon(1e-5).epsilon)
    assert record(Gaussian(1e-90)).epsilon(1e-5).epsilon == 0.0
    assert 0 < record(Laplace(1e-6), Gaussian(1e-6)).epsilon(1e-8).epsilon < 1e-5
    assert accounting.exact_sum([(1e-300, 10)]) == 1e-299


@pytest.mark.parametrize(
    ("each", "times", "delta", "right"), [(1e-4, 1000, 0.1, 0.0), (1000.0, 1000, 1e-5, 1e6), (1e6, 1000, 1e-5, 1e9)]
)
def test_laplace_noise_that_hides_all_or_nothing_is_counted_on_a_small_grid(each, times, delta, right):
    """A grid of 10 GB for an epsilon of 0, an empty one for a million, a number too large for a double for more."""
    found = (record(Laplace(each)) * times).epsilon(delta).epsilon
    assert right <= found <= right * (1 + 1e-9)
