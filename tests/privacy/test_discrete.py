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
from archipel.privacy.calibration import gaussian_budget
from archipel.privacy.noise import secure_noise
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
    with secure_noise():
        assert fits(drawn(4.0, 4000), 4.0) > 1e-4


def test_it_is_the_same_when_compiled():
    enable()

    @numba.njit
    def compiled(values, deviation, key):
        discrete.disturb_integers(values, deviation, key)

    found = np.zeros(500, np.int64)
    compiled(found, 4.0, np.uint64(key_of(5, 0, 0)))
    assert np.array_equal(found, drawn(4.0, 500))


@pytest.mark.parametrize("shares", [2, 3, 10])
def test_a_sum_costs_what_is_said_and_no_less(shares):
    """Renyi divergence of the exact sum of shares against its shift by one, for orders up to 50: at most rho alpha."""
    deviation = 1.0
    _, one = law(deviation, 25)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    rho = discrete.sum_cost(1.0, deviation, shares, 1)
    p, q = total[1:], total[:-1]
    keep = (p > 1e-290) & (q > 1e-290)
    for order in (1.5, 2, 5, 20, 50):
        log = order * np.log(p[keep]) - (order - 1) * np.log(q[keep])
        divergence = (log.max() + math.log(np.exp(log - log.max()).sum())) / (order - 1)
        assert divergence <= rho * order * (1 + 1e-6)
    assert rho == pytest.approx(0.5 / (shares * deviation**2), rel=0.2)


@given(st.floats(0.01, 100), st.integers(1, 5000), st.integers(1, 1000), st.floats(0.01, 100))
def test_nothing_wraps_and_rounding_is_in_the_sensitivity(clip, size, clients, share):
    try:
        made = discrete.grid(clip, size, clients, share)
    except BadInput:
        assert share / clip < 1e-2 or clients * math.sqrt(size) > 2**22  # so little noise needs more bits
        return
    x = np.random.default_rng(0).normal(size=size)
    x *= clip / np.linalg.norm(x)
    whole = discrete.rounded(x, made)
    assert np.linalg.norm(whole) <= made.sensitivity and made.deviation >= discrete.LEAST
    most = clients * made.sensitivity + discrete.TAILS * math.sqrt(clients) * made.deviation
    assert most <= 2.0**31 * (1 + 1e-9)
    again = discrete.unwrapped(discrete.wrapped(-whole, 32), made)
    assert np.abs(again + x).max() <= made.step / 2 * (1 + 1e-9)


@pytest.mark.parametrize("bits", [16, 32])
def test_sums_modulo_2_to_the_k_are_sums(bits):
    made = discrete.grid(1.0, 20, 50, 0.5, bits)
    x = np.random.default_rng(1).normal(size=(50, 20))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    words = [discrete.wrapped(discrete.rounded(one, made), bits) for one in x]
    total = np.sum(words, axis=0, dtype=f"u{bits // 8}")
    assert np.abs(discrete.unwrapped(total, made) - x.sum(0)).max() <= 50 * made.step / 2


def test_at_epsilon_one_a_hundred_clients_have_the_noise_of_one():
    """Error within a tenth of a central Gaussian's at the same cost; local noise has ten times as much."""
    clients, size, clip = 100, 1000, 1.0
    central = clip / float(gaussian_budget(1.0, 1e-5))  # deviation of one Gaussian on the sum
    made = discrete.grid(clip, size, clients, central / math.sqrt(clients))
    x = np.random.default_rng(2).normal(size=(clients, size))
    x *= clip / np.linalg.norm(x, axis=1, keepdims=True)
    total = np.zeros(size, np.uint32)
    for k in range(clients):
        word = discrete.rounded(x[k], made)
        discrete.disturb_integers(word, made.deviation, key_of(1, k, 0))
        total += discrete.wrapped(word, 32)
    error = discrete.unwrapped(total, made) - x.sum(0)
    assert error.std() == pytest.approx(central, rel=0.1)
    cost = discrete.sum_cost(made.sensitivity, made.deviation, clients, size)
    assert cost == pytest.approx(0.5 * float(gaussian_budget(1.0, 1e-5)) ** 2, rel=1e-3)
    local = math.sqrt(clients) * central
    assert local / error.std() == pytest.approx(10, rel=0.1)


def test_without_room_it_is_refused():
    with pytest.raises(BadInput, match="has no room"):
        discrete.grid(1.0, 100, 1000, 0.01, 16)
    assert discrete.sum_cost(1.0, 0.0, 5, 3) == math.inf
