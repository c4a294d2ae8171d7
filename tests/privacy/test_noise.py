"""Noise: schedules, keyed and secure draws, and the compiled loop."""

import sys
import threading

import numba
import numpy as np
import pytest
from scipy import stats

from archipel.draws import key_of
from archipel.errors import BadInput, Missing
from archipel.privacy import noise
from archipel.privacy.noise import (
    GAUSSIAN,
    LAPLACE,
    NONE,
    SecureSource,
    disturb,
    noise_from,
    noise_is_secure,
    release_key,
)
from archipel.simulate.compile import enable

LAWS = {GAUSSIAN: stats.norm, LAPLACE: stats.laplace}


def drawn(law, scale, key, size=4000, dtype=np.float64):
    values = np.zeros(size, dtype)
    disturb(values, law, scale, key)
    return values


@pytest.mark.parametrize("law", LAWS)
def test_keyed_noise_follows_its_law(law):
    values = np.concatenate([drawn(law, 2.5, key_of(7, node, 3), 1000) for node in range(20)])
    assert stats.kstest(values, LAWS[law](scale=2.5).cdf).pvalue > 1e-3
    assert np.array_equal(drawn(law, 2.5, 11), drawn(law, 2.5, 11))
    assert abs(np.corrcoef(drawn(law, 1.0, key_of(0, 1, 2)), drawn(law, 1.0, key_of(0, 1, 3)))[0, 1]) < 0.06


@pytest.mark.parametrize("law", LAWS)
def test_secure_noise_follows_the_same_law_and_no_key(law):
    with noise_from(SecureSource()):
        values = drawn(law, 2.5, 11, 2500)
        assert not np.array_equal(values[:9], drawn(law, 2.5, 11, 9))
    assert stats.kstest(values, LAWS[law](scale=2.5).cdf).pvalue > 1e-5
    assert np.array_equal(drawn(law, 2.5, 11), drawn(law, 2.5, 11))


def test_secure_noise_leaves_no_trace_of_the_value_in_the_last_bits():
    """The exact sum is rounded once: the last bits of a constant look like any others."""
    with noise_from(SecureSource()):
        values = np.full(2000, 0.1)
        disturb(values, GAUSSIAN, 1e-3, 0)
    low_bits = values.view(np.uint64) & np.uint64(15)
    assert stats.chisquare(np.bincount(low_bits.astype(int), minlength=16)).pvalue > 1e-5
    assert np.mean(values) == pytest.approx(0.1, abs=2e-4) and np.std(values) == pytest.approx(1e-3, rel=0.1)


def test_single_precision_and_slices_are_disturbed_in_place():
    table = np.zeros((3, 500), np.float32)
    disturb(table[1], GAUSSIAN, np.float32(1.0), 5)
    with noise_from(SecureSource()):
        disturb(table[2], LAPLACE, np.float32(1.0), 5)
    assert table.dtype == np.float32 and not table[0].any() and table[1].any() and table[2].any()


def test_no_law_or_no_scale_changes_nothing():
    for law, scale in ((NONE, 1.0), (GAUSSIAN, 0.0), (LAPLACE, 0.0)):
        assert not drawn(law, scale, 3).any()
        with noise_from(SecureSource()):
            assert not drawn(law, scale, 3, 10).any()


def test_two_releases_of_a_round_have_noise_of_their_own():
    key = key_of(1, 2, 3)
    keys = [key, release_key(key, 1), release_key(key, 2)]
    first, second, third = (drawn(GAUSSIAN, 1.0, k) for k in keys)
    for one, other in ((first, second), (first, third), (second, third)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.06


def test_no_thread_is_left_out():
    seen = []
    with noise_from(SecureSource()):
        thread = threading.Thread(target=lambda: seen.append(drawn(GAUSSIAN, 1.0, 11, 5)))
        thread.start()
        thread.join()
        assert noise_is_secure()
    assert not noise_is_secure() and not np.array_equal(seen[0], drawn(GAUSSIAN, 1.0, 11, 5))


def test_for_good_means_for_good(monkeypatch):
    monkeypatch.setattr(noise, "_secure", 0)
    noise.use_secure_noise()
    with noise_from(SecureSource()):
        pass
    assert noise_is_secure()


def test_undefined_values_do_not_get_out():
    with noise_from(SecureSource()), pytest.raises(BadInput, match="finite"):
        disturb(np.array([1.0, np.nan]), GAUSSIAN, 1.0, 0)


def test_without_opendp_one_clear_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(Missing, match=r"archipel\[deploy\]"):
        noise.use_secure_noise()
    assert not noise_is_secure()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_compiled_loop_draws_the_same(dtype):
    enable()

    @numba.njit
    def compiled(values, law, scale, key):
        disturb(values, law, scale, key)
        return release_key(key, 1)

    for law in (NONE, GAUSSIAN, LAPLACE):
        for scale in (0.0, 0.7):
            plain, fast = np.ones(200, dtype), np.ones(200, dtype)
            key = key_of(5, 6, 7)
            disturb(plain, law, dtype(scale), key)
            again = compiled(fast, law, dtype(scale), np.uint64(key))
            assert np.abs(fast - plain).max() <= 64 * np.finfo(dtype).eps
            assert int(again) == release_key(key, 1)
