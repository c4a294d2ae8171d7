"""Robust means of vectors (rows), in NumPy, as their papers write them; f of them may be lies."""

import numpy as np


def median(x):
    return np.median(x, 0)


def trimmed_mean(x, f):
    return np.sort(x, 0)[f : len(x) - f].mean(0)


def krum_scores(x, f):
    distances = ((x[:, None] - x[None]) ** 2).sum(2)
    return np.sort(distances, 1)[:, 1 : len(x) - f].sum(1)


def krum(x, f):
    return x[np.argmin(krum_scores(x, f))]


def multi_krum(x, f):
    return x[np.argsort(krum_scores(x, f))[: len(x) - f]].mean(0)


def geometric_median(x, nu, steps, start):
    z = start
    for _ in range(steps):
        weights = 1 / np.maximum(np.linalg.norm(x - z, axis=1), nu)
        z = weights @ x / weights.sum()
    return z


def centred_clipping(x, tau, steps, start):
    v = start
    for _ in range(steps):
        away = x - v
        v = v + (away * np.minimum(1, tau / np.maximum(np.linalg.norm(away, axis=1), 1e-300))[:, None]).mean(0)
    return v
