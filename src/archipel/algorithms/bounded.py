"""Gradients whose size is bounded example by example, so that the papers' "bounded gradient" holds by construction.

Settings have the fields of `privacy.policy.Guard`; a bound that is infinite changes nothing.
"""

from typing import Any

import numpy as np

from archipel.node import add_scaled, dot, kernel
from archipel.privacy.bounding import clip_target, norm_l1, norm_l2
from archipel.problems.losses.supervised import LOGISTIC, slope

ROOM = 1.0 - 1e-14  # for rounding: a clipped norm is at most the bound in floating point too


@kernel
def example_factor(model: Any, x: Any, y: Any, settings: Any) -> Any:
    """What x is multiplied by in an example's gradient: the slope, with features, target and gradient bounded."""
    if settings.clip == np.inf and settings.features == np.inf:
        return slope(settings.loss, dot(x, model), clip_target(y, settings.target))
    bound = min(settings.target, 1.0) if settings.loss == LOGISTIC else settings.target  # of a class, -1 or 1
    length = norm_l2(x)
    shrunk = 1.0 if length <= settings.features else settings.features / length * ROOM
    factor = shrunk * slope(settings.loss, shrunk * dot(x, model), clip_target(y, bound))
    size = abs(factor) * (length if settings.order == 2 else norm_l1(x))
    if size <= settings.clip:
        return factor
    return factor * (settings.clip / size * ROOM) if size < np.inf else 0.0


@kernel
def bounded_gradient(out: Any, model: Any, data: Any, settings: Any) -> None:
    """out = the mean over the samples of their bounded gradients."""
    for j in range(out.shape[0]):
        out[j] = 0.0
    samples = data.y.shape[0]
    for i in range(samples):
        factor = example_factor(model, data.x[i], data.y[i], settings)
        if factor != 0.0:
            add_scaled(out, factor / samples, data.x[i])
