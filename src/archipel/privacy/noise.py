"""Noise: where it comes from.

`disturb` is the one place where a node adds privacy noise. In a simulation the noise is keyed, so that seeds
settle everything. On a real device it must come from a secure source: `use_secure_noise()` once at the start,
and every plain `disturb` of the process draws from opendp's exact discrete samplers instead, whatever the key
says.
"""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from archipel.draws import BEYOND, MIDDLE, PRIVACY, bits, laplace, middle, normal, tail, uniform
from archipel.errors import BadInput, Missing
from archipel.node import fast, kernel

NONE, GAUSSIAN, LAPLACE, DISCRETE = 0, 1, 2, 3  # discrete: a Gaussian on integers, see `discrete`


# --- the secure source --------------------------------------------------------------------------------------

_lock = threading.Lock()
# how many have asked for secure noise; of the process, not of a thread, so that no thread is left out
_secure = 0


def use_secure_noise() -> None:
    """From now on, and for good, all noise of this process is secure. Raises `Missing` where opendp is not
    installed.
    """
    global _secure
    opendp()
    with _lock:
        _secure += 1


def noise_is_secure() -> bool:
    """Whether `disturb` draws from the secure source now."""
    return _secure > 0


def opendp() -> Any:
    try:
        import opendp.prelude as found
    except ImportError as lacking:
        raise Missing("Secure noise needs opendp: pip install 'archipel[deploy]'.") from lacking
    found.enable_features("contrib")
    return found


@lru_cache(maxsize=64)
def _sampler(law: int, scale: float) -> Any:
    """opendp's measurement. Its noise lives on the grid of the smallest float, 2^-1074, so no bit of the sum
    tells the value.
    """
    dp = opendp()
    if law == DISCRETE:
        return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float), scale)
    values = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    if law == GAUSSIAN:
        return dp.m.make_gaussian(values, dp.l2_distance(T=float), scale)
    return dp.m.make_laplace(values, dp.l1_distance(T=float), scale)


class SecureSource:
    """Where secure noise comes from: opendp and the system."""

    def sum(self, values: Any, law: int, scale: float) -> Any:
        return np.asarray(_sampler(law, scale)((values.astype(np.int64) if law == DISCRETE else values).tolist()))

    def bits(self, count: int) -> int:
        return secrets.randbits(count)


_source: Any = SecureSource()


@contextmanager
def noise_from(source: Any) -> Iterator[None]:
    """While the block runs, what would be drawn in secret comes from another source: a simulated world's."""
    global _source, _secure
    before, _source = _source, source
    with _lock:
        _secure += 1
    try:
        yield
    finally:
        _source = before
        with _lock:
            _secure -= 1


def secure_sum(values: Any, law: int, scale: float) -> Any:
    """values plus secure noise, in double precision. Infinite or undefined values are refused: they would
    show through.
    """
    if not np.all(np.isfinite(values)):
        raise BadInput("release", "NaN or infinity", "finite numbers; clip before adding noise")
    return _source.sum(np.asarray(values, float), int(law), float(scale))


def secret_bits(count: int) -> int:
    """A number of so many bits that nobody can foresee."""
    return int(_source.bits(count))


# --- the verb -----------------------------------------------------------------------------------------------


def disturb(values: Any, law: Any, scale: Any, key: Any) -> None:
    """Add noise to every value, in place: law 0 none, 1 Gaussian of deviation `scale`, 2 Laplace of that
    scale.

    A key is good for one release. A node that releases twice in a round takes `release_key(key, 1)` for the
    second: the same noise on two releases cancels in their difference.
    """
    if law == NONE or scale == 0:
        return
    if _secure:
        values[:] = secure_sum(values, law, scale)
        return
    draw = normal if law == GAUSSIAN else laplace
    for j in range(values.shape[0]):
        values[j] += scale * draw(key, PRIVACY, j)


@fast(disturb)
def disturb_loop(values: Any, law: Any, scale: Any, key: Any) -> None:
    if law == 0 or scale == 0:
        return
    if law == 1:
        for j in range(values.shape[0]):  # no branches: many at a time, as in draws.normals
            found = middle(uniform(key, PRIVACY, j))
            values[j] += scale * (found if found < BEYOND else 0.0)
        j = 0
        while j < values.shape[0]:  # from tail to tail: in a loop with an `if`, a logarithm would be taken of each
            p = uniform(key, PRIVACY, j)
            while j + 1 < values.shape[0] and abs(p - 0.5) <= MIDDLE:
                j += 1
                p = uniform(key, PRIVACY, j)
            if abs(p - 0.5) > MIDDLE:
                values[j] += scale * tail(p)
            j += 1
    else:
        for j in range(values.shape[0]):
            values[j] += scale * laplace(key, PRIVACY, j)


def secret_uniform(key: Any, purpose: Any) -> Any:
    """A number in (0, 1) for a choice that protects as long as it is secret: keyed, or the system's if noise is secure.

    A key is known to all who have the description.
    """
    return (secret_bits(53) + 0.5) * 2.0**-53 if _secure else uniform(key, purpose)


@fast(secret_uniform)
def keyed_uniform(key: Any, purpose: Any) -> Any:
    return uniform(key, purpose)


@kernel
def release_key(key: Any, which: Any) -> Any:
    """The key of a round's second, third, ... release (which = 1, 2, ...); the key itself is the first's."""
    return bits(key, PRIVACY, 4294967295 - which)
