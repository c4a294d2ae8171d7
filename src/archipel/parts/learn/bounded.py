"""Gradients whose size is bounded example by example, so that the papers' "bounded gradient" holds by construction."""

import math
from functools import cache
from typing import Any

import numpy as np

from archipel.node import add_scaled, dot, fill, kernel
from archipel.privacy.bounding import clip_target, norm_l1, norm_l2
from archipel.problems.losses.supervised import LOGISTIC, slope

ROOM = 1.0 - 1e-14  # for rounding: a clipped norm is at most the bound in floating point too


@kernel
def free_factor(model: Any, x: Any, y: Any, guard: Any, loss: Any) -> Any:
    """What x is multiplied by in an example's gradient: the slope."""
    return slope(loss, dot(x, model), clip_target(y, guard.target))


@kernel
def bounded_factor(model: Any, x: Any, y: Any, guard: Any, loss: Any) -> Any:
    """The same, with features, target and gradient bounded."""
    bound = min(guard.target, 1.0) if loss == LOGISTIC else guard.target  # of a class, -1 or 1
    length = norm_l2(x)
    shrunk = 1.0 if length <= guard.features else guard.features / length * ROOM
    factor = shrunk * slope(loss, shrunk * dot(x, model), clip_target(y, bound))
    size = abs(factor) * (length if guard.order == 2 else norm_l1(x))
    if size <= guard.clip:
        return factor
    return factor * (guard.clip / size * ROOM) if size < np.inf else 0.0


@cache
def averaging(factor_of: Any, loss: int) -> Any:
    @kernel
    def mean_gradient(out: Any, model: Any, data: Any, guard: Any) -> None:
        """out = the mean over the samples of their bounded gradients."""
        fill(out, 0.0)
        samples = data.y.shape[0]
        for i in range(samples):
            factor = factor_of(model, data.x[i], data.y[i], guard, loss)
            if factor != 0.0:
                add_scaled(out, factor / samples, data.x[i])

    return mean_gradient


def mean_gradient_of(loss: int, guard: Any) -> Any:
    """mean_gradient(out, model, data, guard) for a loss, and a `privacy.policy.Guard`."""
    bounded = guard.clip < math.inf or guard.features < math.inf
    return averaging(bounded_factor if bounded else free_factor, int(loss))
