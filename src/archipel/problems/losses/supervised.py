"""Losses of linear models, each by its slope: the derivative with respect to the model's answer x^T w.

The loss is a number in a node function's settings, so that one compilation serves them all.
"""

import math
from typing import Any

import numpy as np

from archipel.node import kernel

SQUARED, ABSOLUTE, LOGISTIC, HUBER = 0, 1, 2, 3
LOSSES = {"squared": SQUARED, "absolute": ABSOLUTE, "logistic": LOGISTIC, "huber": HUBER}
HUBER_KNEE = 1.0


@kernel
def slope(loss: Any, answer: Any, target: Any) -> Any:
    """l'(answer): squared (y - a)^2, absolute |y - a|, logistic log(1 + exp(-y a)) for y = -1, 1, huber."""
    error = answer - target
    if loss == SQUARED:
        return 2.0 * error
    if loss == ABSOLUTE:
        return 1.0 if error > 0.0 else (-1.0 if error < 0.0 else 0.0)
    if loss == LOGISTIC:
        margin = target * answer
        if margin > 0.0:
            decay = math.exp(-margin)
            return -target * decay / (1.0 + decay)
        return -target / (1.0 + math.exp(margin))
    return min(max(error, -HUBER_KNEE), HUBER_KNEE)


@kernel
def gradient(out: Any, model: Any, data: Any, loss: Any) -> None:
    """out = the mean over the samples of slope(x^T w, y) x."""
    for j in range(out.shape[0]):
        out[j] = 0.0
    samples = data.y.shape[0]
    for i in range(samples):
        x = data.x[i]
        answer = 0.0
        for j in range(out.shape[0]):
            answer += x[j] * model[j]
        factor = slope(loss, answer, data.y[i]) / samples
        for j in range(out.shape[0]):
            out[j] += factor * x[j]


def values(loss: int, answers: Any, targets: Any) -> Any:
    """The losses of many answers, in NumPy, for scores and reference solutions."""
    error = answers - targets
    if loss == SQUARED:
        return error**2
    if loss == ABSOLUTE:
        return np.abs(error)
    if loss == LOGISTIC:
        return np.logaddexp(0.0, -targets * answers)
    size = np.abs(error)
    return np.where(size <= HUBER_KNEE, error**2 / 2, HUBER_KNEE * (size - HUBER_KNEE / 2))
