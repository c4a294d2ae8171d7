"""Noise for streams that are summed: correlated from round to round, so that it cancels in the sum.

Independent noise on T gradients has a deviation of sqrt(T) in their sum. Write the matrix of all prefix sums as
A = B C and release C^-1 (C x + z), with z independent: the sums then have the noise B z, and x itself is hidden behind
z as by one Gaussian release whose sensitivity is that of C (also where x_t depends on what was released before:
Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem 2.1). With C = B = A^(1/2) the deviation is about
log(T) / pi + 1: 5, 10 and 19 times less at T = 200, 1,000 and 5,000 (Fichtenberger, Henzinger, Upadhyay, ICML 2023).

| form | state, in vectors | of the square root's deviation |
|---|---|---|
| `buffers` | 6 | within 1 %: its coefficients as a sum of exponentials (McMahan, Xu, Zhang, 2024: BLT) |
| `banded` | bands - 1 | exact within the band, none beyond (Kalinin, Lampert, NeurIPS 2024) |
| `tree` | log2 T | 1.5 to 3 times it; the simple form (Dwork, Naor, Pitassi, Rothblum, STOC 2010) |

A gradient's own noise grows by the sensitivity of C, so it pays where gradients are summed up, not where each is used
by itself. A sample that is used once pays once, for all rounds.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput, did_you_mean
from archipel.node import exact
from archipel.privacy.noise import disturb

BUFFERS, BANDED, TREE = 0, 1, 2
FORMS = {"buffers": BUFFERS, "banded": BANDED, "tree": TREE}
COUNT = 6  # buffers


class Correlation(NamedTuple):
    """How noise is correlated: settings of a node function."""

    form: Any
    weight: Any  # (rows,): how much of each row of the past is taken off
    decay: Any  # (rows,): how fast a buffer forgets


class Past(NamedTuple):
    """What a node remembers of its noise. Nobody else may know it."""

    noise: Any  # (rows, size)
    before: Any  # (size,): scratch
    step: Any  # (1,): releases so far


@exact
def trailing_zeros(number: Any) -> Any:
    """Of a positive whole number, in binary: the level that a tree's next node is on."""
    count = 0
    while number % 2 == 0:
        number //= 2
        count += 1
    return count


@exact
def weight_of(i: Any, step: Any, settings: Any) -> Any:
    """How much of row i of the past is taken off the next draw."""
    if settings.form == TREE:
        return 1.0 if i < trailing_zeros(step + 1) else 0.0
    if settings.form == BANDED:
        return settings.weight[(step - 1 - i) % settings.weight.shape[0]]
    return settings.weight[i]


@exact
def disturb_correlated(values: Any, past: Any, settings: Any, law: Any, scale: Any, key: Any) -> None:
    """Add the next noise to the values, in place: a fresh draw of `scale`, less what the past says.

    What is taken off is known before the draw, so the draw is the last to be added, by a secure source on a device.
    """
    real, step, rows = values.dtype.type, int(past.step[0]), past.noise.shape[0]
    for j in range(values.shape[0]):
        past.before[j] = values[j]
        owed = 0.0
        for i in range(rows):
            owed += weight_of(i, step, settings) * past.noise[i, j]
        values[j] -= real(owed)
    disturb(values, law, scale, key)
    for j in range(values.shape[0]):
        remember(past.noise, j, values[j] - past.before[j], step, settings)
    past.step[0] += 1


@exact
def remember(noise: Any, j: Any, fresh: Any, step: Any, settings: Any) -> None:
    """What was added to value j, for the rounds to come."""
    if settings.form == BUFFERS:
        for i in range(noise.shape[0]):
            noise[i, j] = settings.decay[i] * noise[i, j] + fresh
    elif settings.form == BANDED:
        noise[step % noise.shape[0], j] = fresh
    else:  # the nodes below are in the new one, which is the draw itself
        level, drawn = trailing_zeros(step + 1), fresh
        for i in range(level):
            drawn += noise[i, j]
            noise[i, j] = 0.0
        noise[level, j] = drawn


# --- the matrices ---------------------------------------------------------------------------------------------------


class Strategy(NamedTuple):
    """A factorisation for so many rounds, and what it costs and buys."""

    settings: Correlation
    rounds: int
    sensitivity: float  # of C, to one sample that is used once: the noise z must have so many times more
    deviations: Any  # (rounds,): of the noise in the sum of the first t, where z has that much
    together: Any  # (rounds,): what release t costs a client whose samples are in all of them, over what it costs one

    def past(self, nodes: int, size: int, dtype: Any) -> Past:
        """Nothing to remember yet: a row per node."""
        rows = len(self.settings.weight)
        return Past(np.zeros((nodes, rows, size)), np.zeros((nodes, size), dtype), np.zeros((nodes, 1)))


def square_root(rounds: int) -> Any:
    """The first column of A^(1/2): binom(2k, k) / 4^k."""
    k = np.arange(1, rounds)
    return np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))


def strategy(rounds: int, form: str = "buffers", bands: int = 0) -> Strategy:
    """How to noise a stream of so many rounds. `bands` is for the banded form, sqrt(rounds) where it is 0.

    >>> [round(float(math.sqrt(T) / strategy(T).deviations[-1]), 1) for T in (200, 1000, 5000)]
    [5.1, 9.6, 18.6]
    """
    if form not in FORMS:
        raise BadInput("privacy.correlation", form, did_you_mean(form, FORMS))
    if rounds < 1:
        raise BadInput("rounds", rounds, "at least one")
    if form == "tree":
        return tree(rounds)
    none = np.zeros(0)
    if form == "banded":
        width = min(bands or math.ceil(math.sqrt(rounds)), rounds)
        column = np.where(np.arange(rounds) < width, square_root(rounds), 0.0)
        settings = Correlation(BANDED, column[1 : max(width, 2)].copy() if rounds > 1 else np.zeros(1), none)
    else:
        weight, decay = exponentials(rounds)
        column = np.concatenate([[1.0], (weight[:, None] * decay[:, None] ** np.arange(rounds - 1)).sum(0)])
        settings = Correlation(BUFFERS, weight, decay)
    size = sensitivity(column)
    return Strategy(settings, rounds, size, size * deviations(column), (np.cumsum(column) / size) ** 2)


def exponentials(rounds: int, count: int = COUNT) -> tuple[Any, Any]:
    """Weights and decays with square_root[k] near sum of weight decay^(k - 1), for k from 1.

    binom(2k, k) / 4^k is the integral over (0, 1) of x^k / (pi sqrt(x (1 - x))): with x = 1 / (1 + e^-u) by trapezoids
    in u, from a few rounds to a few times all of them. Whatever it leaves out costs a little noise, no privacy.
    """
    at = np.linspace(-2.0, math.log(rounds) + 2.0, count)
    decay = 1 / (1 + np.exp(-at))
    return (at[1] - at[0]) * np.sqrt(decay * (1 - decay)) / math.pi * decay, decay


def sensitivity(column: Any, participations: int = 1, separation: int = 1) -> float:
    """Of C, Toeplitz with this first column, to a unit in `participations` rounds that are so far apart at least.

    For columns that fall and stay above 0 the worst is to begin at once and come as often as possible (Kalinin,
    Lampert, NeurIPS 2024, Theorem 2): the norm of the sum of these columns.
    """
    if np.any(column < 0) or np.any(np.diff(column) > 1e-12):
        raise BadInput("correlation", "a column that rises or is negative", "one that falls and stays above 0")
    total = np.zeros(len(column))
    for begin in range(0, min(participations * separation, len(column)), separation):
        total[begin:] += column[: len(column) - begin]
    return float(np.linalg.norm(total))


def inverse(column: Any) -> Any:
    """The first column of C^-1."""
    found = np.zeros(len(column))
    found[0] = 1 / column[0]
    for t in range(1, len(column)):
        found[t] = -(column[t:0:-1] @ found[:t]) / column[0]
    return found


def deviations(column: Any) -> Any:
    """Of B z = A C^-1 z, at every round: the norms of the rows of B."""
    return np.sqrt(np.cumsum(np.cumsum(inverse(column)) ** 2))


def tree(rounds: int) -> Strategy:
    """Every sum is made of log2 T nodes of a tree at most, and a sample is in as many."""
    levels = rounds.bit_length()
    ones = np.array([bin(t).count("1") for t in range(1, rounds + 1)])
    settings = Correlation(TREE, np.ones(levels), np.zeros(0))
    nodes = np.array([t & -t for t in range(1, rounds + 1)])  # how many rounds are in the node that is drawn at t
    return Strategy(settings, rounds, math.sqrt(levels), math.sqrt(levels) * np.sqrt(ones), nodes**2 / levels)
