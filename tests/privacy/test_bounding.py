"""Bounds hold by construction, to the last bit; the losses' gradients stay within theirs, and reach them."""

import math

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from archipel.errors import BadInput
from archipel.privacy import bounding
from archipel.privacy.bounding import Bounds, gradient_bound
from archipel.simulate.compile import enable

EASY = settings(max_examples=50, deadline=None)
types = st.sampled_from([np.float32, np.float64])
vectors = types.flatmap(
    lambda kind: arrays.arrays(kind, st.integers(1, 40), elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False))
)
bounds = st.floats(1e-3, 1e3)


def exact_norm(vector, power):
    """In more digits than the vector has."""
    if power == 1:
        return math.fsum(abs(float(v)) for v in vector)
    return math.sqrt(math.fsum(float(v) ** 2 for v in vector))


@EASY
@given(vectors, bounds)
@pytest.mark.parametrize("clip, power", [(bounding.clip_l2, 2), (bounding.clip_l1, 1), (bounding.project_ball, 2)])
def test_clipping_keeps_the_bound_and_the_direction(clip, power, vector, bound):
    before = vector.copy()
    factor = clip(vector, bound)
    assert exact_norm(vector, power) <= bound
    assert vector == pytest.approx(before * factor, rel=1e-6)
    if exact_norm(before, power) <= bound * (1 - 1e-6):
        assert factor == 1.0 and np.array_equal(vector, before)
    else:
        assert exact_norm(vector, power) >= bound * (1 - 1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("clip", [bounding.clip_l2, bounding.clip_l1, bounding.project_ball])
def test_what_has_no_norm_becomes_nothing(clip, bad):
    vector = np.array([1.0, bad, -2.0])
    with np.errstate(over="ignore"):
        clip(vector, 1.0)
    assert exact_norm(vector, 2) <= 1 and np.isfinite(vector).all()


def test_no_bound_changes_nothing():
    for clip in (bounding.clip_l2, bounding.clip_l1, bounding.project_ball):
        vector = np.array([1e30, -2.0])
        clip(vector, math.inf)
        assert vector.tolist() == [1e30, -2.0]
    assert bounding.clip_target(1e30, math.inf) == 1e30 and np.isnan(bounding.clip_target(np.nan, math.inf))


def test_targets():
    assert [bounding.clip_target(target, 2.0) for target in (-7.0, 0.5, np.nan, np.inf)] == [-2.0, 0.5, 0.0, 2.0]


@pytest.mark.long
def test_compiled_bounds_are_the_plain_ones():
    enable()

    @numba.njit
    def compiled(a, b, model, targets, bound):
        bounding.clip_l2(a, bound)
        bounding.clip_l1(b, bound)
        bounding.project_ball(model, bound)
        for i in range(targets.shape[0]):
            targets[i] = bounding.clip_target(targets[i], bound)

    rng = np.random.default_rng(3)
    sizes = {
        "a": (30, np.float32),
        "b": (30, np.float64),
        "model": (30, np.float64),
    }
    for bound in (0.5, 3.0, math.inf):
        start = [rng.normal(size=size).astype(kind) for size, kind in sizes.values()] + [rng.normal(size=9)]
        plain, fast = [a.copy() for a in start], [a.copy() for a in start]
        compiled.py_func(*plain, bound)
        compiled(*fast, bound)
        for one, other in zip(plain, fast, strict=True):
            assert np.abs(other - one).max() <= 32 * np.finfo(one.dtype).eps
        for vector, power in zip(fast[:3], (2, 1, 2), strict=True):
            assert exact_norm(vector, power) <= bound


# --- gradient bounds --------------------------------------------------------------------------------------

RIGHT = Bounds(features=1.3, target=0.7, radius=2.0)


def slope(loss, prediction, target):
    """The derivative of each loss in the prediction."""
    if loss == "squared":
        return 2 * (prediction - target)
    if loss == "absolute":
        return np.sign(prediction - target)
    if loss == "huber":
        return np.clip(prediction - target, -1, 1)
    return -np.where(target > 0, 1, -1) / (1 + np.exp(np.where(target > 0, 1, -1) * prediction))


@pytest.mark.parametrize("loss", ["squared", "absolute", "huber", "logistic"])
def test_no_gradient_exceeds_its_bound_and_one_reaches_it(loss):
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(20_000, 3)), rng.normal(size=(20_000, 3))
    x *= (RIGHT.features * rng.uniform(size=20_000) ** 0.1 / np.linalg.norm(x, axis=1))[:, None]
    w *= (RIGHT.radius * rng.uniform(size=20_000) ** 0.1 / np.linalg.norm(w, axis=1))[:, None]
    y = rng.uniform(-RIGHT.target, RIGHT.target, 20_000)
    norms = np.abs(slope(loss, (x * w).sum(1), y)) * np.linalg.norm(x, axis=1)
    assert norms.max() <= gradient_bound(loss, RIGHT)
    worst = abs(slope(loss, RIGHT.features * RIGHT.radius, np.array(-RIGHT.target))) * RIGHT.features
    assert worst == pytest.approx(gradient_bound(loss, RIGHT), rel=1e-12)


def test_softmax_gradients_stay_below_their_bound_and_come_near():
    logits = np.array([0.0, 30.0, -30.0])
    p = np.exp(logits - logits.max())
    p /= p.sum()
    gradient = np.outer(p - np.array([1.0, 0.0, 0.0]), [RIGHT.features, 0])
    assert np.linalg.norm(gradient) <= gradient_bound("cross-entropy", RIGHT)
    assert np.linalg.norm(gradient) >= 0.999 * gradient_bound("cross-entropy", RIGHT)


def test_a_squared_loss_has_no_bound_unless_everything_is_bounded():
    for missing in ("features", "target", "radius"):
        assert gradient_bound("squared", Bounds(**{**vars(RIGHT), missing: math.inf})) == math.inf
    assert gradient_bound("absolute", Bounds(features=2.0)) == 2.0
    assert gradient_bound("logistic", Bounds(features=2.0)) == 2.0


def test_unknown_losses_and_bounds_are_refused():
    with pytest.raises(BadInput, match="squared"):
        gradient_bound("squard", RIGHT)
    with pytest.raises(BadInput, match="positive"):
        Bounds(features=-1.0)
