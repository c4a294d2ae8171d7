"""Random draws keyed by (seed, node, round, purpose): a counter hash, so that order never changes a result.

SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) as a hash of a counter. No state is kept: one thread, two threads, or
node by node in plain Python draw the same numbers.
"""

import math
from collections.abc import Callable
from typing import Any

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
MIDDLE, FAR, BEYOND = 0.425, 2.0**60, 16.0  # of `normal`

# The purposes of draws. A draw for one purpose never depends on how many were made for another.
ARRIVES = 1  # does a client get new data this round
SIGNAL = 2  # the input of a synthetic stream
NOISE = 3  # its observation noise
AVAILABLE = 4  # can a client talk this round
DELAY = 5  # how late its message is
SELECTED = 6  # does the server ask this client
PORTION = 7  # a pseudo-random portion
SIGN = 8  # stochastic signs
PRIVACY = 9  # privacy noise
BATCH = 10  # which samples a client takes
CHOICE = 11  # which clients a server samples
ACTION = 12  # the action of a learning agent
FADE = 13  # which links of a changing graph are there
FEATURE = 14  # the directions of random Fourier features
PHASE = 15  # and their phases
GRAPH = 16  # who is joined to whom, and who belongs where
BUDGET = 17  # how much privacy a client is willing to pay
LIE = 18  # what a liar says
ROUNDING = 19  # which way a number is rounded
CUSTOM = 32  # from here on: yours


def u64(x: Any) -> Any:
    """An integer as 64 bits without sign."""
    return int(x) & MASK


def scramble(x: Any) -> Any:
    """SplitMix64's finaliser: every bit of x changes half of the bits of the result."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def key_of(seed: Any, node: Any, moment: Any) -> Any:
    """The key of all draws of one node in one round."""
    return scramble((scramble((u64(seed) * GOLDEN + u64(node)) & MASK) + u64(moment) * GOLDEN) & MASK)


def bits(key: Any, purpose: Any, index: Any) -> Any:
    """64 random bits: the index-th of a purpose."""
    return scramble((key + ((u64(purpose) << 32) + u64(index) + u64(1)) * GOLDEN) & MASK)


def uniform(key: Any, purpose: Any, index: Any = 0) -> Any:
    """In (0, 1), 53 bits, never 0 or 1."""
    return (float(bits(key, purpose, index) >> 11) + 0.5) * 1.1102230246251565e-16


def integer(key: Any, purpose: Any, index: Any, below: Any) -> Any:
    """In 0 .. below - 1."""
    return int(uniform(key, purpose, index) * below)


def normal(key: Any, purpose: Any, index: Any = 0) -> Any:
    """Standard normal, by inverting the distribution function (Wichura, Applied Statistics 37, 1988: AS 241)."""
    found = middle(uniform(key, purpose, index))
    return tail(found / FAR) if found > BEYOND else found


def normals(out: Any, keys: Any, count: Any, purpose: Any) -> None:
    """The first normal draw of each of some keys. The first loop has no branches, so it is done many at a time."""
    for j in range(count):
        out[j] = middle(uniform(u64(keys[j]), purpose))
    for j in range(count):
        while out[j] > BEYOND:  # once: a compiler would take both ways of an `if`, and a logarithm for each
            out[j] = tail(out[j] / FAR)


def uniforms(out: Any, keys: Any, count: Any, purpose: Any) -> None:
    """The first uniform draw of each of some keys."""
    for j in range(count):
        out[j] = uniform(u64(keys[j]), purpose)


def middle(p: Any) -> Any:
    """The normal quantile of p in the middle, 0.075 to 0.925; else p itself, times a power of two that takes it beyond
    all quantiles.
    """
    q = p - 0.5
    r = 0.180625 - q * q
    a = 2.5090809287301226727e3 * r + 3.3430575583588128105e4
    a = (a * r + 6.7265770927008700853e4) * r + 4.5921953931549871457e4
    a = (a * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3
    a = (a * r + 1.3314166789178437745e2) * r + 3.3871328727963666080e0
    b = 5.2264952788528545610e3 * r + 2.8729085735721942674e4
    b = (b * r + 3.9307895800092710610e4) * r + 2.1213794301586595867e4
    b = (b * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2
    b = (b * r + 4.2313330701600911252e1) * r + 1.0
    return q * a / b if abs(q) <= MIDDLE else p * FAR


def tail(p: Any) -> Any:
    """The normal quantile of p below 0.075 or above 0.925."""
    r = math.sqrt(-math.log(min(p, 1.0 - p)))
    if r <= 5.0:
        r -= 1.6
        a = 7.74545014278341407640e-4 * r + 2.27238449892691845833e-2
        a = (a * r + 2.41780725177450611770e-1) * r + 1.27045825245236838258e0
        a = (a * r + 3.64784832476320460504e0) * r + 5.76949722146069140550e0
        a = (a * r + 4.63033784615654529590e0) * r + 1.42343711074968357734e0
        b = 1.05075007164441684324e-9 * r + 5.47593808499534494600e-4
        b = (b * r + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1
        b = (b * r + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0
        b = (b * r + 2.05319162663775882187e0) * r + 1.0
    else:
        r -= 5.0
        a = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
        a = (a * r + 1.24266094738807843860e-3) * r + 2.65321895265761230930e-2
        a = (a * r + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0
        a = (a * r + 5.46378491116411436990e0) * r + 6.65790464350110377720e0
        b = 2.04426310338993978564e-15 * r + 1.42151175831644588870e-7
        b = (b * r + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4
        b = (b * r + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1
        b = (b * r + 5.99832206555887937690e-1) * r + 1.0
    return math.copysign(a / b, p - 0.5)


def laplace(key: Any, purpose: Any, index: Any = 0) -> Any:
    """Laplace of scale one."""
    q = uniform(key, purpose, index) - 0.5
    return -math.copysign(math.log(1.0 - 2.0 * abs(q)), q)


DRAWS: list[Callable[..., Any]] = [
    scramble, key_of, bits, uniform, uniforms, integer, middle, tail, normal, normals, laplace
]  # fmt: skip
MANY: list[Callable[..., Any]] = [uniforms, normals]  # those of them that are called, not inlined: each makes many
