"""Integers with discrete Gaussian noise: the law, its sum, the grid, what it costs, central noise without a centre."""

import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.privacy import discrete
from archipel.privacy.noise import SecureSource, noise_from
from archipel.simulate.compile import enable


def law(deviation, reach=60):
    k = np.arange(-int(reach * deviation) - 2, int(reach * deviation) + 3)
    mass = np.exp(-0.5 * (k / deviation) ** 2)
    return k, mass / mass.sum()


def drawn(deviation, count, key=5):
    values = np.zeros(count, np.int64)
    discrete.disturb_integers(values, deviation, key_of(key, 0, 0))
    return values


def fits(values, deviation):
    """Chi-square against the law, the tails put together."""
    k, mass = law(deviation)
    middle = mass * len(values) > 8
    counts = np.array([np.sum(values == i) for i in k[middle]])
    rest = [len(values) - counts.sum()], [len(values) * (1 - mass[middle].sum())]
    found, expected = np.append(counts, rest[0]), np.append(mass[middle] * len(values), rest[1])
    keep = expected > 0.5
    expected = expected[keep] * found[keep].sum() / expected[keep].sum()
    return stats.chisquare(found[keep], expected).pvalue


@pytest.mark.parametrize("deviation", [0.5, 1.0, 4.0, 21.7])
def test_keyed_noise_is_discrete_gaussian(deviation):
    assert fits(drawn(deviation, 40_000), deviation) > 1e-4


def test_secure_noise_is_discrete_gaussian():
    pytest.importorskip("opendp")
    with noise_from(SecureSource()):
        assert fits(drawn(4.0, 4000), 4.0) > 1e-4


def test_it_is_the_same_when_compiled():
    enable()

    @numba.njit
    def compiled(values, deviation, key):
        discrete.disturb_integers(values, deviation, key)

    found = np.zeros(500, np.int64)
    compiled(found, 4.0, np.uint64(key_of(5, 0, 0)))
    assert np.array_equal(found, drawn(4.0, 500))


@given(st.floats(0.01, 100), st.integers(1, 5000), st.integers(1, 1000), st.floats(0.01, 100))
def test_nothing_wraps_and_rounding_is_in_the_sensitivity(clip, size, clients, share):
    try:
        made = discrete.grid(clip, size, clients, share)
    except BadInput:
        assert share / clip < 1e-2 or clients * math.sqrt(size) > 2**22  # so little noise needs more bits
        return
    x = np.random.default_rng(0).normal(size=size)
    x *= clip / np.linalg.norm(x)
    whole = np.rint(x / made.step)
    assert np.linalg.norm(whole) <= made.sensitivity and made.deviation >= discrete.LEAST
    most = clients * made.sensitivity + discrete.TAILS * math.sqrt(clients) * made.deviation
    assert most <= made.prime / 2 * (1 + 1e-9)


@pytest.mark.parametrize(("deviation", "shares", "steps"), [(1.0, 10, 2), (4.0, 3, 5), (30.0, 1, 30), (100.0, 1, 27)])
def test_a_sum_of_shares_loses_hardly_more_than_a_gaussian(deviation, shares, steps):
    """The exact delta of a shift by so many steps, at several epsilons: the loss is at most `closeness` more."""
    _, one = law(deviation, 25)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    here, there = np.append(np.zeros(steps), total), np.append(total, np.zeros(steps))
    more, mu = discrete.closeness(shares * deviation**2, deviation, shares, 1), steps / (math.sqrt(shares) * deviation)

    def gaussian(mu, epsilon):
        return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)

    for epsilon in (0.05, 0.3, 1.0, 2.0):
        delta = np.maximum(here - math.exp(epsilon + more) * there, 0).sum()
        assert delta <= gaussian(mu, epsilon) * math.exp(more) + 1e-14
    assert np.maximum(here - math.exp(0.3) * there, 0).sum() > gaussian(0.9 * mu, 0.3)  # and it loses no less


def test_without_room_it_is_refused():
    with pytest.raises(BadInput, match="has no room"):
        discrete.grid(1.0, 100, 1000, 0.01, 16)
