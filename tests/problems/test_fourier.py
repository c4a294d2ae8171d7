"""Random Fourier features against the kernel they stand for."""

import numpy as np
import pytest

from archipel.errors import BadInput
from archipel.node import cosines
from archipel.problems.models.fourier import fourier, mapped


def gaussian(x, y, width):
    """The kernel, pair by pair."""
    return np.exp(-np.sum((x - y) ** 2, 1) / (2 * width**2))


def pairs(inputs, number=200, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((number, inputs))
    return x, x + draw.standard_normal((number, inputs))


def error(size, width, seeds):
    """Root mean square of the kernel's error, over pairs of points and draws of the features."""
    x, y = pairs(4)
    wanted = gaussian(x, y, width)
    squares = []
    for seed in seeds:
        world = fourier(4, size, width, seed)
        squares.append(np.mean((np.sum(mapped(world, x) * mapped(world, y), 1) - wanted) ** 2))
    return np.sqrt(np.mean(squares))


@pytest.mark.parametrize("width", [1.0, 3.0])
def test_inner_products_tend_to_the_gaussian_kernel_at_the_rate_of_theory(width):
    """The error falls as D^-1/2, and its size is known.

    With uniform phases 2 cos(a) cos(b) has variance 1/2 + (1 + k(2d))/2 - k(d)^2, d = x - y.
    """
    x, y = pairs(4)
    twice = gaussian(2 * x, 2 * y, width)
    variance = np.mean(0.5 + (1 + twice) / 2 - gaussian(x, y, width) ** 2)
    sizes = [50, 200, 800]
    measured = [error(size, width, range(12)) for size in sizes]
    slope = np.polyfit(np.log(sizes), np.log(measured), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.08)
    assert measured[-1] == pytest.approx(np.sqrt(variance / sizes[-1]), rel=0.15)


def test_a_batch_equals_what_a_node_computes_one_by_one():
    world = fourier(5, 33, 2.0, seed=7)
    x = np.random.default_rng(1).standard_normal((6, 5))
    alone = np.zeros(33)
    for row, z in zip(x, mapped(world, x)):
        cosines(alone, world.phases, world.directions, row, world.scale)
        np.testing.assert_allclose(z, alone, atol=1e-14)


def test_seeds_settle_the_features_and_more_of_them_begin_alike():
    small, large = fourier(4, 10, 3.0, seed=3), fourier(4, 40, 3.0, seed=3)
    np.testing.assert_array_equal(small.directions, large.directions[:, :10])
    np.testing.assert_array_equal(small.phases, large.phases[:10])
    other = fourier(4, 10, 3.0, seed=4)
    assert not np.any(small.directions == other.directions)


def test_directions_are_normal_and_phases_uniform():
    from scipy import stats

    world = fourier(20, 500, 0.5, seed=2)
    assert stats.kstest(world.directions.ravel() * 0.5, "norm").pvalue > 1e-3
    assert stats.kstest(fourier(1, 5000, 1.0, seed=2).phases / (2 * np.pi), "uniform").pvalue > 1e-3
    assert np.max(np.abs(np.corrcoef(world.directions) - np.eye(20))) < 0.2


def test_single_precision_stays_single():
    world = fourier(4, 8, 1.0, 0, np.float32)
    assert world.directions.dtype == world.phases.dtype == world.scale.dtype == np.float32
    assert mapped(world, np.ones((2, 4), np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    "inputs, size, width", [(0, 4, 1.0), (4, 0, 1.0), (4, 4, 0.0), (4, 4, -1.0), (4, 4, float("nan"))]
)
def test_what_cannot_be_is_refused(inputs, size, width):
    with pytest.raises(BadInput, match=r"problem\.(inputs|features|width)"):
        fourier(inputs, size, width, 0)
