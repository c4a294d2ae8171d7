"""The PLDP paper's bounds: term by term, and minimised where the sampling says."""

import numpy as np
import pytest
from scipy import stats

from archipel.errors import BadInput
from archipel.parts.ask.sampling import solve_p2
from archipel.theory import pldp
from reference import pldp as proved

COURSE = pldp.Course(step=0.05, smoothness=2.0, local_steps=5, rounds=70, draws=3, sensitivity=0.4, gap=1.5)


@pytest.fixture
def network():
    rng = np.random.default_rng(4)
    weight = rng.dirichlet(np.full(10, 3.0))
    noise = pldp.noise_scale(rng.uniform(16, 32, 10), 512 / rng.integers(2000, 9000, 10), 1e-5, 210)
    return weight, rng.uniform(0.5, 2, 10), noise


def test_noise_scale_as_printed():
    """Theorem 2 with the paper's split of delta, by hand for one client."""
    delta, draws = 1e-5, 210
    primed, double, triple = delta / (2 * draws), delta / 4, delta / 4
    expected = np.sqrt(np.log(1 / primed) * np.log(1 / double) * np.log(1 / triple)) * 0.1 / 16
    assert pldp.noise_scale([16.0], [0.1], delta, draws)[0] == pytest.approx(expected, rel=1e-12)


def test_bound_is_the_sum_that_is_printed(network):
    weight, gradient, noise = network
    chance = np.full(10, 0.1)
    total = 2 * 1.5 / (0.05 * 5 * 3 * 70) + 0.05**2 * 2**2 * 10 * 4**2 * sum(g * g for g in gradient)
    for p, g, b, q in zip(weight, gradient, noise, chance):
        total += 0.05 * 2 * 10 / 3 * (3 - 1 + 1 / q) * p * p * g * g
        total += 0.05 * 0.4**2 * 2 * 10 * 5 * (70 / 3) ** 0.5 * p * p * b * b / q**0.5
    assert pldp.convergence_bound(chance, weight, gradient, noise, COURSE) == pytest.approx(total, rel=1e-12)


def test_p2_with_the_matching_tradeoff_minimises_the_bound(network):
    weight, gradient, noise = network
    best = solve_p2(weight, gradient, noise, proved.matching_tradeoff(COURSE), COURSE.draws)
    least = pldp.convergence_bound(best, weight, gradient, noise, COURSE)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 0.3):
        for _ in range(200):
            other = best * np.exp(size * rng.standard_normal(10))
            other /= other.sum()
            if other.max() <= 1 / COURSE.draws:
                assert pldp.convergence_bound(other, weight, gradient, noise, COURSE) > least
    off = solve_p2(weight, gradient, noise, 100 * proved.matching_tradeoff(COURSE), COURSE.draws)
    assert pldp.convergence_bound(off, weight, gradient, noise, COURSE) > least * (1 + 1e-9)


def test_theorem_3_sees_a_swap():
    weight, gradient, noise = np.ones(3) / 3, np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 2.0])
    assert len(pldp.out_of_order([0.2, 0.3, 0.5], weight, gradient, noise)) == 0
    assert pldp.out_of_order([0.2, 0.5, 0.3], weight, gradient, noise).tolist() == [[2, 1]]


@pytest.mark.parametrize("chance", [0.02, 0.1, 0.3])
def test_exact_participations_are_the_quantile(chance):
    rounds, draws, excess = 70, 3, 2.5e-6
    count = int(proved.likely_participations(rounds, draws, chance, excess))
    law = stats.binom(rounds, 1 - (1 - chance) ** draws)
    assert law.sf(count) <= excess < law.sf(count - 1)
    # fewer than lemma 1 allows, which holds for the draws and is a good deal wider
    printed = float(proved.lemma_1(rounds * draws, chance, excess))
    assert count <= printed
    assert stats.binom(rounds * draws, chance).sf(np.floor(printed)) <= excess


def test_bad_budgets():
    for arguments, key in (
        (([0.0], [0.1], 1e-5, 10), "privacy.epsilon"),
        (([1.0], [0.1], 0.0, 10), "privacy.delta"),
        (([1.0], [0.1], 1.0, 10), "privacy.delta"),
        (([1.0], [1.1], 1e-5, 10), "data_rate"),
        (([1.0], [0.1], 1e-5, 0), "rounds"),
    ):
        with pytest.raises(BadInput) as caught:
            pldp.noise_scale(*arguments)
        assert caught.value.key == key
