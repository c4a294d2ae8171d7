"""Losses of one sample of a stream, by number, with their gradients: all that `supervised` knows, and two more.

- linear: features @ x, the sample is a slope;
- distance: ||x - features||^2 / 2, the sample is a point.
"""

import math
from typing import Any

import numpy as np

from archipel.node import assign, dot_exactly, exact, fast, subtract
from archipel.problems.losses.supervised import ABSOLUTE, HUBER_KNEE, LOGISTIC, LOSSES, SQUARED, slope

LINEAR, DISTANCE = 16, 17
ONLINE_LOSSES = LOSSES | {"linear": LINEAR, "distance": DISTANCE}


def scaled(out: Any, factor: Any, a: Any) -> None:
    """out = factor * a."""
    out[:] = factor * a


@fast(scaled)
def scaled_loop(out: Any, factor: Any, a: Any) -> None:
    for j in range(out.shape[0]):
        out[j] = factor * a[j]


def square_distance(a: Any, b: Any) -> Any:
    """||a - b||^2."""
    return np.sum((a - b) ** 2)


@fast(square_distance)
@exact
def square_distance_loop(a: Any, b: Any) -> Any:
    total = 0.0
    for j in range(a.shape[0]):
        total += (a[j] - b[j]) * (a[j] - b[j])
    return total


@exact
def loss_gradient(out: Any, loss: Any, model: Any, data: Any) -> None:
    """out = the gradient of the sample's loss at a model."""
    if loss == LINEAR:
        assign(out, data.features)
    elif loss == DISTANCE:
        subtract(out, model, data.features)
    else:
        scaled(out, slope(loss, dot_exactly(data.features, model), data.target[0]), data.features)


@exact
def loss_value(loss: Any, model: Any, data: Any) -> Any:
    """The sample's loss at a model."""
    if loss == DISTANCE:
        return 0.5 * square_distance(model, data.features)
    answer = 1.0 * dot_exactly(data.features, model)
    if loss == LINEAR:
        return answer
    error = answer - data.target[0]
    if loss == SQUARED:
        return error * error
    if loss == ABSOLUTE:
        return abs(error)
    if loss == LOGISTIC:
        margin = data.target[0] * answer
        return math.log1p(math.exp(-abs(margin))) + max(-margin, 0.0)
    size = abs(error)
    return 0.5 * size * size if size <= HUBER_KNEE else HUBER_KNEE * (size - 0.5 * HUBER_KNEE)
