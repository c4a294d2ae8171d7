"""Draws: the same bits in plain Python and compiled, and the laws they promise."""

import numpy as np
import pytest
from scipy import stats

from archipel import draws
from archipel.simulate.compile import build, enable

enable()


def many(function, count=20_000, **keys):
    return np.array([function(draws.key_of(7, i, 3), draws.NOISE) for i in range(count)])


def compiled(kind):
    draw = {"bits": draws.bits, "uniform": draws.uniform, "normal": draws.normal, "laplace": draws.laplace}[kind]
    key_of = draws.key_of

    def run(out, seed):
        for i in range(out.shape[0]):
            out[i] = draw(key_of(seed, i, i * 3), 5, i)

    return build(run)


@pytest.mark.parametrize("kind", ["bits", "uniform"])
def test_compiled_draws_have_the_bits_of_plain_python(kind):
    out = np.zeros(500, np.uint64 if kind == "bits" else np.float64)
    compiled(kind)(out, 2**40 + 1)
    plain = [getattr(draws, kind)(draws.key_of(2**40 + 1, i, i * 3), 5, i) for i in range(500)]
    assert np.array_equal(out, np.array(plain, out.dtype))


@pytest.mark.parametrize("kind", ["normal", "laplace"])
def test_compiled_draws_agree_with_plain_python(kind):
    out = np.zeros(500)
    compiled(kind)(out, 3)
    plain = [getattr(draws, kind)(draws.key_of(3, i, i * 3), 5, i) for i in range(500)]
    np.testing.assert_allclose(out, plain, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_draws_of_many_keys_are_those_of_each(kind):
    """A seventh of them are in the tails."""
    many_at_once, one = getattr(draws, f"{kind}s"), getattr(draws, kind)
    keys = np.array([draws.key_of(3, i, 1) for i in range(3000)], np.uint64)
    expected = np.array([one(int(key), 5) for key in keys])
    out = np.zeros(3001)
    many_at_once(out, keys, 3000, 5)
    assert np.array_equal(out[:3000], expected) and out[3000] == 0

    def run(out, keys):
        many_at_once(out, keys, 3000, 5)

    out[:] = 0
    build(run)(out, keys)
    np.testing.assert_allclose(out[:3000], expected, rtol=1e-13, atol=1e-15)
    assert out[3000] == 0


def test_the_hash_is_splitmix64():
    """The first outputs of the reference generator for seed 0 (Steele, Lea, Flood; the state is a counter)."""
    golden = draws.GOLDEN
    outputs = [draws.scramble((golden * i) & draws.MASK) for i in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_laws():
    assert stats.kstest(many(draws.uniform), "uniform").pvalue > 1e-3
    assert stats.kstest(many(draws.normal), "norm").pvalue > 1e-3
    assert stats.kstest(many(draws.laplace), "laplace").pvalue > 1e-3


def test_the_normal_is_the_inverse_of_the_distribution_function():
    keys = [draws.key_of(1, i, 0) for i in range(3000)]
    expected = stats.norm.ppf([draws.uniform(key, 1) for key in keys])
    np.testing.assert_allclose([draws.normal(key, 1) for key in keys], expected, rtol=1e-12, atol=1e-14)


def test_draws_of_other_nodes_rounds_purposes_and_indices_are_unrelated():
    base = np.array([draws.uniform(draws.key_of(1, i, 1), 1) for i in range(5000)])
    others = [
        [draws.uniform(draws.key_of(1, i + 1, 1), 1) for i in range(5000)],
        [draws.uniform(draws.key_of(1, i, 2), 1) for i in range(5000)],
        [draws.uniform(draws.key_of(2, i, 1), 1) for i in range(5000)],
        [draws.uniform(draws.key_of(1, i, 1), 2) for i in range(5000)],
        [draws.uniform(draws.key_of(1, i, 1), 1, 1) for i in range(5000)],
    ]
    assert max(abs(np.corrcoef(base, other)[0, 1]) for other in others) < 4.5 / np.sqrt(5000)


def test_purposes_are_all_different():
    names = [
        n
        for n in vars(draws)
        if n.isupper() and n not in ("MASK", "GOLDEN", "MIDDLE", "FAR", "BEYOND", "DRAWS", "MANY")
    ]
    numbers = [getattr(draws, name) for name in names]
    assert len(set(numbers)) == len(numbers)
