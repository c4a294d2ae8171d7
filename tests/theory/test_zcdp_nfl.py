"""The theory of zCDP-NFL against sums, worst cases and graphs with known eigenvalues."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.privacy.accounting import record, zcdp_epsilon
from archipel.privacy.ledger import Ledger, Terms
from archipel.privacy.releases import Gaussian
from archipel.theory import zcdp_nfl as theory
from reference import zcdp_nfl as proved


def primal(told, around, dual, gradient, penalty, degree, step):
    """The primal step in closed form: what (3.8) minimises, solved for w."""
    pull = told / step + penalty * (degree * told + around) - dual - gradient
    return pull / (1 / step + 2 * penalty * degree)


def test_the_sensitivity_is_reached_by_the_worst_replacement_and_never_exceeded():
    rng = np.random.default_rng(0)
    samples, penalty, degree, step, bound = 20, 0.7, 3, 0.2, 1.5
    told, around, dual = rng.normal(size=(3, 4))
    others = rng.normal(size=4) * samples
    limit = proved.sensitivity(bound, samples, penalty, degree, step)
    gaps = []
    for _ in range(200):
        old, new = rng.normal(size=(2, 4))
        old, new = bound * old / np.linalg.norm(old), bound * new / np.linalg.norm(new)
        steps = [primal(told, around, dual, (others + g) / samples, penalty, degree, step) for g in (old, new, -old)]
        gaps.append(np.linalg.norm(steps[0] - steps[1]))
        assert np.linalg.norm(steps[0] - steps[2]) == pytest.approx(limit, rel=1e-12)
    assert max(gaps) <= limit


def test_noise_and_its_cost_are_each_others_inverse():
    assert proved.phi(0.3, math.sqrt(proved.variance(0.3, 0.01))) == pytest.approx(0.01, rel=1e-14)


histories = {
    "first": st.floats(1e-6, 1.0),
    "zeta": st.floats(0.5, 0.99999),
    "rounds": st.integers(1, 150),
    "delta": st.sampled_from([1e-12, 1e-5, 1e-2, 0.4]),
}


@settings(max_examples=50, deadline=None)
@given(**histories)
def test_the_corollary_is_reproduced(first, zeta, rounds, delta):
    """Its formula, in exact arithmetic, and the sum of T terms that it stands for."""
    z = Fraction(zeta)
    formula = Fraction(first) * (1 - z**rounds) / (z ** (rounds - 1) - z**rounds)
    assert formula == sum(Fraction(first) / z**n for n in range(rounds))
    if formula < 10**300:
        total = proved.corollary_phi(first, zeta, rounds)
        assert total == pytest.approx(float(formula), rel=1e-9)
        published = float(formula) + 2 * math.sqrt(float(formula) * math.log(1 / delta))
        assert proved.corollary_epsilon(first, zeta, rounds, delta) == pytest.approx(published, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(**histories)
def test_the_corollary_is_never_smaller_than_what_the_ledger_prints(first, zeta, rounds, delta):
    if proved.corollary_phi(first, zeta, rounds) > 1e6:
        return  # beyond an epsilon of a million the two differ by less than rounding
    ledger = Ledger("peer", Terms("sample", "replace-one"))
    for n in range(rounds):
        ledger.charge(n, Gaussian(math.sqrt(2 * first / zeta**n)))
    published = proved.corollary_epsilon(first, zeta, rounds, delta)
    assert ledger.epsilon(delta).epsilon <= published
    assert zcdp_epsilon(ledger.rho(), delta) <= published
    assert ledger.rho() == pytest.approx(proved.corollary_phi(first, zeta, rounds), rel=1e-9)


def test_the_proof_forgets_the_last_and_dearest_round():
    """The proof sums 0 < n < T, the formula T terms: 2 % of the total at zeta = 0.98 and 200 rounds."""
    formula, proof = (proved.corollary_phi(0.001, 0.98, rounds) for rounds in (200, 199))
    assert 1 - proof / formula == pytest.approx(0.02, abs=0.001)


def test_how_much_the_corollary_gives_away():
    """For figure 3.1's kind of run: published, the best conversion of the zCDP total, exact."""
    mus = [math.sqrt(2 * 1e-4 / 0.98**n) for n in range(200)]
    published = proved.corollary_epsilon(1e-4, 0.98, 200, 1e-5)
    exact = record(*[Gaussian(mu) for mu in mus]).epsilon(1e-5).epsilon
    bare = zcdp_epsilon(proved.corollary_phi(1e-4, 0.98, 200), 1e-5)
    assert exact < bare < published
    assert 1.04 < bare / exact < 1.5 and published / exact > 1.1


def ring(size):
    return np.roll(np.eye(size), 1, 1) + np.roll(np.eye(size), -1, 1)


def test_the_spectrum_of_graphs_that_are_known():
    complete = theory.spectrum(np.ones((6, 6)) - np.eye(6))
    assert complete == pytest.approx((6.0, 10.0, 6.0))
    circle = theory.spectrum(ring(8))
    assert circle == pytest.approx((4.0, 4.0, 2 - 2 * math.cos(2 * math.pi / 8)))
    with pytest.raises(BadInput, match="connected"):
        theory.spectrum(np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3)))


def test_the_noise_term_in_its_three_forms():
    factor = theory.noise_factor(theory.spectrum(ring(8)), penalty=2.0, size=5)
    assert factor == pytest.approx(4 * 2 * 5 * 32 / (2 - math.sqrt(2)))
    sensitivities = np.linspace(0.1, 0.8, 8)
    direct = theory.noise_term(factor, proved.variance(sensitivities, 0.01), zeta=0.95, rounds=100)
    assert direct == pytest.approx(factor / 100 * np.sum(sensitivities**2 / 0.02) / 0.05)
    assert proved.noise_term_of_phi(factor, sensitivities, np.full(8, 0.01), 0.95, 100) == pytest.approx(direct)
    printed = proved.noise_term_as_printed(factor, sensitivities, 0.01, 0.95, 100)
    assert 8 * printed == pytest.approx(direct)  # (3.23) has an extra 1/K
    assert theory.noise_term(factor, [0.0] * 8, 0.95, 100) == 0
    assert theory.noise_term(factor, [1.0], 0.95, 200) == pytest.approx(theory.noise_term(factor, [1.0], 0.95, 100) / 2)


def test_the_declared_rate_is_one_over_n():
    assert theory.RATE.order == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: proved.sensitivity(math.inf, 50, 1.0, 3, 0.1),
        lambda: proved.sensitivity(1.0, 0, 1.0, 3, 0.1),
        lambda: proved.sensitivity(1.0, 50, 1.0, 3, 0.0),
        lambda: proved.corollary_phi(0.1, 1.0, 10),
        lambda: proved.corollary_epsilon(0.1, 0.9, 10, 0.0),
        lambda: proved.corollary_epsilon(0.1, 0.9, 10, 1.0),
    ],
)
def test_what_has_no_guarantee_is_refused(wrong):
    with pytest.raises(BadInput, match="expected"):
        wrong()
