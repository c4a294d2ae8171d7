"""Draws by the thousand: NumPy's own generators, started from a key.

The draws of `archipel.draws` are made one by one, for node functions that are compiled. Deep models need a
hundred thousand a step. A generator started from (seed, node, round, purpose) keeps the promise: order never
changes a result.
"""

from typing import Any

import numpy as np

from archipel.draws import BATCH, PRIVACY, bits
from archipel.privacy import noise
from archipel.privacy.discrete import rejected, secure_integers


def generator(key: Any, purpose: int, index: int = 0) -> np.random.Generator:
    """The generator of a node's index-th need of a purpose in a round: Philox, a counter hash."""
    return np.random.Generator(np.random.Philox(key=int(bits(key, purpose, index))))


def poisson_batch(samples: int, rate: float, key: Any, index: int) -> Any:
    """Each sample with probability `rate`, independently: a choice that amplifies privacy while secret.

    A key is known to all who have the description. On a real device the choice is therefore drawn from the system.
    """
    draw = np.random.default_rng(noise.secret_bits(128)) if noise.noise_is_secure() else generator(key, BATCH, index)
    return np.flatnonzero(draw.random(samples) < rate)


def shuffled_batches(samples: int, size: int, key: Any, epoch: int) -> list[Any]:
    """All samples once, in a random order, in batches of `size`; the last may be smaller."""
    order = generator(key, BATCH, epoch).permutation(samples)
    return [order[i : i + size] for i in range(0, samples, size)]


def add_gaussian(values: Any, scale: float, key: Any, index: int) -> None:
    """Gaussian noise on every value, in place: keyed in a simulation, opendp's where noise must be secure."""
    if scale == 0:
        return
    if noise.noise_is_secure():
        values[:] = noise.secure_sum(values, noise.GAUSSIAN, scale)
        return
    draws = generator(key, PRIVACY, index).standard_normal(len(values), values.dtype)
    draws *= values.dtype.type(scale)
    values += draws


def add_laplace(values: Any, scale: float, key: Any, index: int) -> None:
    """Laplace noise on every value, in place: keyed in a simulation, opendp's where noise must be secure."""
    if scale == 0:
        return
    if noise.noise_is_secure():
        values[:] = noise.secure_sum(values, noise.LAPLACE, scale)
        return
    values += generator(key, PRIVACY, index).laplace(0.0, scale, len(values)).astype(values.dtype)


def add_discrete(values: Any, deviation: float, key: Any) -> None:
    """Discrete Gaussian noise on integers, in place, as `privacy.discrete.disturb_integers` adds it one by one."""
    if deviation == 0:
        return
    if noise.noise_is_secure():
        values[:] = secure_integers(values, float(deviation))
        return
    draw = generator(key, PRIVACY)
    rejected(values, float(deviation), lambda count: 1.0 - draw.random((3, count)))
