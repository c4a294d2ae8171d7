"""The Gaussian mechanism, exactly, with NumPy alone: epsilon and mu of each other, at a delta.

A history of Gaussian releases is as hard to see through as one release with mu^2 = sum (sensitivity /
sigma)^2 (Dong, Roth, Su, JRSS-B 2022, Corollary 3.3), and for one release

    delta(epsilon) = Phi(-a) - exp(epsilon) Phi(-b),   a = epsilon / mu - mu / 2,   b = a + mu

(Balle, Wang, ICML 2018, Theorem 8). With Mills' ratio m(x) = Phi(-x) / phi(x) this is phi(a) (m(a) - m(b)),
which neither overflows nor cancels. Everything is vectorised, and errs on the safe side by a relative MARGIN
of delta.
"""

from functools import lru_cache
from typing import Any

import numpy as np

# how much smaller than asked delta is made, against rounding: moves epsilon by less than 1e-9 of it
MARGIN = 1e-10
_HALF_LOG_2PI = 0.9189385332046727
_FLOOR = -9.0  # Phi(9) is 1 in double precision

_STEP = 0.5  # of the trapezoidal rule for erfcx; its error is exp(-pi^2 / step^2) = 7e-18
_NODES = (np.arange(13) + 0.5) * _STEP
_SQUARES = _NODES**2
_WEIGHTS = np.exp(-_SQUARES)
_LEGENDRE_X, _LEGENDRE_W = np.polynomial.legendre.leggauss(12)


def _pole(t: Any) -> Any:
    """What the trapezoidal rule misses for small t: 2 exp(t^2) / (1 + exp(2 pi t / step))."""
    near = np.minimum(t, np.pi / _STEP)
    missed = 2 * np.exp(near * (near - 2 * np.pi / _STEP)) / (1 + np.exp(-2 * np.pi / _STEP * near))
    return np.where(t < np.pi / _STEP, missed, 0.0)


def _mills_positive(x: Any) -> Any:
    """m(x) for x >= 0: sqrt(pi/2) erfcx(x / sqrt 2), by Chiarella and Reichel's rule at half steps."""
    t = x / np.sqrt(2)
    series = (_WEIGHTS / (t[..., None] ** 2 + _SQUARES)).sum(-1)
    return np.sqrt(np.pi / 2) * (2 * _STEP * t / np.pi * series + _pole(t))


def _falling_positive(x: Any) -> Any:
    """-m'(x) = 1 - x m(x) for x >= 0, without the cancellation."""
    t = x / np.sqrt(2)
    series = (_WEIGHTS * _SQUARES / (t[..., None] ** 2 + _SQUARES)).sum(-1)
    return 2 * _STEP / np.sqrt(np.pi) * series - np.sqrt(np.pi) * t * _pole(t)


def mills(x: Any) -> Any:
    """Mills' ratio Phi(-x) / phi(x) of an array, for x > -37.

    >>> round(float(mills(0.0)) ** 2 * 2 / np.pi, 15)
    1.0
    """
    x = np.asarray(x, float)
    right = _mills_positive(np.abs(x))
    return np.where(x >= 0, right, np.sqrt(2 * np.pi) * np.exp(np.minimum(x, 0.0) ** 2 / 2) - right)


def _falling(x: Any) -> Any:
    """-m'(x) = 1 - x m(x)."""
    left = 1 - x * mills(np.minimum(x, 0.0))
    return np.where(x >= 0, _falling_positive(np.abs(x)), left)


def _mills_gap(a: Any, mu: Any) -> Any:
    """m(a) - m(a + mu): as it stands for a large mu, as an integral of -m' for a small one."""
    gap = mills(a) - mills(a + mu)
    small = mu < 1
    if np.any(small):
        start, width = a[small], mu[small]
        points = start[:, None] + width[:, None] * (_LEGENDRE_X + 1) / 2
        gap[small] = width / 2 * (_falling(points) @ _LEGENDRE_W)
    return gap


def _log_delta(a: Any, mu: Any) -> Any:
    """log delta at epsilon = mu (a + mu / 2)."""
    return -(a**2) / 2 - _HALF_LOG_2PI + np.log(_mills_gap(a, mu))


def _flat(*values: Any) -> tuple[Any, list[Any]]:
    arrays = np.broadcast_arrays(*[np.asarray(v, float) for v in values])
    return arrays[0].shape, [array.ravel().copy() for array in arrays]


def _shaped(values: Any, shape: Any) -> Any:
    return values.reshape(shape) if shape else float(values[0])


def _descend(function: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Where an increasing function crosses zero in [low, high]: Newton's steps, halving where they leave the
    bracket.

    function(x) returns its value and its slope. The bracket that comes back has function(low) <= 0 <=
    function(high).
    """
    x = (low + high) / 2
    open_ = np.ones(x.shape, bool)
    for _ in range(200):
        value, slope = function(x)
        low, high = np.where(open_ & (value <= 0), x, low), np.where(open_ & (value >= 0), x, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = x - value / slope
        # aim a hair beyond the root, from alternating sides: so both ends of the bracket close in on it
        aim = step + np.where(value <= 0, 1, -1) * 1e-14 * (1 + np.abs(step))
        inside = (aim > low) & (aim < high)
        x = np.where(inside, aim, (low + high) / 2)
        open_ &= high - low > 1e-13 * (1 + np.abs(x))  # each on its own, whatever stands beside it
        if not np.any(open_):
            break
    return low, high


def _tail(delta: Any) -> Any:
    """An upper bound of the a at which Phi(-a) = delta."""
    return np.where(delta < 0.5, np.sqrt(np.maximum(-2 * np.log(2 * np.minimum(delta, 0.5)), 0.0)), 0.0)


def epsilon_of(mu: Any, delta: Any) -> Any:
    """epsilon of a Gaussian history with this mu at this delta in (0, 1); never below the analytic value.

    >>> round(epsilon_of(1.0, 1e-5), 4)
    4.3772
    """
    shape, (mu, delta) = _flat(mu, delta)
    target = np.log(delta) + np.log1p(-MARGIN)
    out = np.zeros(mu.shape)
    on = mu > 0
    start = np.maximum(-mu / 2, _FLOOR)
    on[on] = _log_delta(start[on], mu[on]) > target[on]  # else (0, delta) holds already
    if np.any(on):
        m, goal = mu[on], target[on]

        def rise(a: Any) -> tuple[Any, Any]:
            gap = _mills_gap(a, m)
            return goal + a**2 / 2 + _HALF_LOG_2PI - np.log(gap), m * mills(a + m) / gap

        _, a = _descend(rise, start[on], np.maximum(_tail(delta[on] * (1 - MARGIN)), start[on]) + 1e-9)
        out[on] = m * (a + m / 2) * (1 + 1e-15)  # the product itself was rounded
    return _shaped(out, shape)


def mu_of(epsilon: Any, delta: Any) -> Any:
    """The largest mu that keeps a Gaussian history within (epsilon, delta); never above the analytic value.

    >>> round(epsilon_of(mu_of(2.0, 1e-6), 1e-6), 6)
    2.0
    """
    shape, (epsilon, delta) = _flat(epsilon, delta)
    if epsilon.size and np.all(epsilon == epsilon[0]) and np.all(delta == delta[0]):  # everyone's budget
        return _shaped(np.full(epsilon.size, _mu_of_one(float(epsilon[0]), float(delta[0]))), shape)
    return _shaped(_mu_of(epsilon, delta), shape)


@lru_cache(maxsize=4096)
def _mu_of_one(epsilon: float, delta: float) -> float:
    return float(_mu_of(np.array([epsilon]), np.array([delta]))[0])


def _mu_of(epsilon: Any, delta: Any) -> Any:
    target = np.log(delta) + np.log1p(-4 * MARGIN)  # so that epsilon_of, with its own margin, agrees
    z = _tail(delta * (1 - 4 * MARGIN))
    low = np.maximum(2 * epsilon / (z + np.sqrt(z**2 + 2 * epsilon) + 1e-300), delta * np.sqrt(2 * np.pi)) * 0.999

    def rise(x: Any) -> tuple[Any, Any]:
        m = np.exp(x)
        a = np.maximum(epsilon / m - m / 2, _FLOOR)
        gap = _mills_gap(a, m)
        return -(a**2) / 2 - _HALF_LOG_2PI + np.log(gap) - target, m / gap

    high = low * 2
    for _ in range(200):
        short = rise(np.log(high))[0] < 0
        if not np.any(short):
            break
        high = np.where(short, high * 2, high)
    x, _ = _descend(rise, np.log(low), np.log(high))
    return np.exp(x) * (1 - 4e-15)
