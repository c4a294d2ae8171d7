"""Random Fourier features (Rahimi and Recht, NIPS 2007): a nonlinear function, linear in many cosines.

z(x) = sqrt(2/D) cos(V^T x + b), with V normal of deviation 1/width and b uniform in [0, 2 pi):
z(x)^T z(y) tends to the Gaussian kernel exp(-|x - y|^2 / (2 width^2)) as their number D grows.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.draws import FEATURE, PHASE, key_of, normal, uniform
from archipel.errors import BadInput


class World(NamedTuple):
    """The space of the features, which all nodes of a federation share."""

    directions: Any  # V: (inputs, size)
    phases: Any  # b: (size,)
    scale: Any  # sqrt(2 / size)


def fourier(inputs: int, size: int, width: float, seed: int, dtype: Any = np.float64) -> World:
    """The features of a seed: the same on every machine, and the first ones of any larger number of them."""
    if inputs < 1:
        raise BadInput("problem.inputs", inputs, "at least one input")
    if size < 1:
        raise BadInput("problem.features", size, "at least one feature")
    if not (width > 0 and math.isfinite(width)):
        raise BadInput("problem.width", width, "a positive width of the kernel")
    keys = [key_of(seed, i, 0) for i in range(inputs)]
    directions = np.array([[normal(key, FEATURE, j) for j in range(size)] for key in keys]) / width
    phases = np.array([2.0 * math.pi * uniform(keys[0], PHASE, j) for j in range(size)])
    return World(directions.astype(dtype), phases.astype(dtype), np.dtype(dtype).type(math.sqrt(2.0 / size)))


def mapped(world: World, x: Any) -> Any:
    """z(x) for many inputs at once: (samples, inputs) to (samples, size)."""
    z = x @ world.directions
    z += world.phases
    np.cos(z, out=z)
    z *= world.scale
    return z
