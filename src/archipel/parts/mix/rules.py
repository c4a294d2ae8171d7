"""Robust means of vectors of which some may be lies: kernels that any part can use.

    rule(out, words, said, count, scratch, settings)

The first `count` rows of `words` are vectors; said[i, j] > 0 where vector i has coordinate j. `out` comes with what the
receiver has, and is overwritten. With f = the least number of at least `share` * count, and less than half of count:

- median, and the mean without the f least and the f greatest: each coordinate by itself (Yin et al., ICML 2018);
- Krum: the vector with the nearest count - f - 1 others; multi-Krum: the mean of the count - f best ones
  (Blanchard et al., NeurIPS 2017);
- geometric median: Weiszfeld's steps, smoothed (Pillutla, Kakade, Harchaoui, IEEE TSP 2022);
- centred clipping: a mean of deviations from `out`, none longer than `radius` (Karimireddy, He, Jaggi, ICML 2021).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.node import add_scaled, assign, fast, kernel


class Scratch(NamedTuple):
    values: Any  # (rows,)
    scores: Any  # (rows,)
    step: Any  # (size,)


class Rule(NamedTuple):
    """What steers a robust mean."""

    share: Any  # of those heard, how many may lie
    radius: Any  # how long a deviation may be, or what is added to short ones
    steps: Any


def sort_first(values: Any, count: Any) -> None:
    """Sort the first `count` values."""
    values[:count].sort()


@fast(sort_first)
def sort_first_loop(values: Any, count: Any) -> None:
    gap = count // 2
    while gap > 0:
        for i in range(gap, count):
            value, j = values[i], i
            while j >= gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value
        gap = 1 if gap == 2 else gap * 5 // 11
    # Shell's sort: no recursion, no memory, and fast for as many as a server has clients.


def distance(a: Any, b: Any) -> Any:
    """||a - b||^2."""
    step = a - b
    return step @ step


@fast(distance)
def distance_loop(a: Any, b: Any) -> Any:
    total = a.dtype.type(0)
    for j in range(a.shape[0]):
        step = a[j] - b[j]
        total += step * step
    return total


@kernel
def liars(count: Any, share: Any) -> Any:
    """f: as many as may lie, and less than half."""
    return max(min(math.ceil(share * count - 1e-9), (count - 1) // 2), 0)


@kernel
def coordinate(values: Any, words: Any, said: Any, count: Any, j: Any) -> Any:
    """What was said of a coordinate, sorted; by how many."""
    found = 0
    for i in range(count):
        if said[i, j] > 0:
            values[found] = words[i, j]
            found += 1
    sort_first(values, found)
    return found


@kernel
def median(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    half = out.dtype.type(0.5)
    for j in range(out.shape[0]):
        found = coordinate(scratch.values, words, said, count, j)
        if found > 0:
            out[j] = half * (scratch.values[(found - 1) // 2] + scratch.values[found // 2])


@kernel
def trimmed_mean(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    for j in range(out.shape[0]):
        found = coordinate(scratch.values, words, said, count, j)
        if found > 0:
            dropped = liars(found, settings.share)
            total = out.dtype.type(0)
            for i in range(dropped, found - dropped):
                total += scratch.values[i]
            out[j] = total / out.dtype.type(found - 2 * dropped)


@kernel
def krum_scores(words: Any, count: Any, scratch: Any, dropped: Any) -> None:
    """Of each vector, the squared distances to its nearest count - f - 1 others, added up."""
    for i in range(count):
        found = 0
        for k in range(count):
            if k != i:
                scratch.values[found] = distance(words[i], words[k])
                found += 1
        sort_first(scratch.values, found)
        total = scratch.values.dtype.type(0)
        for k in range(count - dropped - 1):
            total += scratch.values[k]
        scratch.scores[i] = total


@kernel
def best(scores: Any, count: Any) -> Any:
    found = 0
    for i in range(1, count):
        if scores[i] < scores[found]:
            found = i
    return found


@kernel
def krum(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    krum_scores(words, count, scratch, liars(count, settings.share))
    assign(out, words[best(scratch.scores, count)])


@kernel
def multi_krum(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    dropped = liars(count, settings.share)
    krum_scores(words, count, scratch, dropped)
    for j in range(out.shape[0]):
        out[j] = 0
    part = out.dtype.type(1) / out.dtype.type(count - dropped)
    for _ in range(count - dropped):
        i = best(scratch.scores, count)
        scratch.scores[i] = np.inf
        add_scaled(out, part, words[i])


@kernel
def geometric_median(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    """z = sum_i x_i / max(nu, ||x_i - z||), over the sum of the weights; `radius` is nu."""
    real = out.dtype.type
    for _ in range(settings.steps):
        weights = real(0)
        for j in range(out.shape[0]):
            scratch.step[j] = 0
        for i in range(count):
            weight = real(1) / max(real(settings.radius), real(math.sqrt(distance(words[i], out))))
            add_scaled(scratch.step, weight, words[i])
            weights += weight
        for j in range(out.shape[0]):
            out[j] = scratch.step[j] / weights


@kernel
def centred_clipping(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    """v += the mean of (x_i - v) min(1, tau / ||x_i - v||); `radius` is tau."""
    real = out.dtype.type
    for _ in range(settings.steps):
        for j in range(out.shape[0]):
            scratch.step[j] = 0
        for i in range(count):
            length = real(math.sqrt(distance(words[i], out)))
            factor = real(1) if length <= settings.radius else real(settings.radius) / length
            for j in range(out.shape[0]):
                scratch.step[j] += factor * (words[i, j] - out[j])
        add_scaled(out, real(1) / real(count), scratch.step)
