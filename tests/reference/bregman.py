"""Bregman divergences of the two mirror maps, (5.1), and their gradients, by their definitions."""

import numpy as np

from archipel.parts.learn.maps import ENTROPY


def divergence(x, y, settings):
    """B(x || y): relative entropy, sum x log(x / y) - x + y, infinite where y has a zero that x has not; or
    ||x - y||^2 / 2.
    """
    if settings.geometry != ENTROPY:
        return 0.5 * np.sum((x - y) ** 2)
    there = x > 0
    if (y[there] <= 0).any():
        return np.inf
    return np.sum(x[there] * np.log(x[there] / y[there])) - np.sum(x) + np.sum(y)


def to_dual(x, settings):
    """grad R(x): 1 + log x, with the smallest positive number in place of zero; or x."""
    if settings.geometry != ENTROPY:
        return x.copy()
    return 1 + np.log(np.maximum(x, np.finfo(x.dtype).tiny))
