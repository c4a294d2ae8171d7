"""Robust means of vectors of which some may be lies: kernels that any part can use.

    rule(out, words, said, count, scratch, settings)

The first `count` rows of `words` are vectors; said[i, j] > 0 where vector i has coordinate j. `out` comes with what the
receiver has, and is overwritten. With f = the least number of at least `share` * count, and less than half of count:

- median, and the mean without the f least and the f greatest: each coordinate by itself (Yin et al., ICML 2018);
- Krum: the vector with the nearest count - f - 1 others; multi-Krum: the mean of the count - f best ones
  (Blanchard et al., NeurIPS 2017, have count - f - 2; one more, as byzfl has it, is defined for few vectors too);
- geometric median: Weiszfeld's steps, smoothed (Pillutla, Kakade, Harchaoui, IEEE TSP 2022);
- centred clipping: a mean of deviations from `out`, none longer than `radius` (Karimireddy, He, Jaggi, ICML 2021).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.node import add_scaled, assign, fast, fill, kernel


class Scratch(NamedTuple):
    values: Any  # (rows,)
    scores: Any  # (rows,)
    step: Any  # (size,), in float64 as `point` is: what is near a word is drawn from it by its distance alone
    point: Any  # (size,)


class Rule(NamedTuple):
    """What steers a robust mean."""

    share: Any  # of those heard, how many may lie
    radius: Any  # how long a deviation may be, or what is added to short ones
    steps: Any


def sort_first(values: Any, count: Any) -> None:
    """Sort the first `count` values."""
    values[:count].sort()


@fast(sort_first)
@kernel
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


def is_finite(a: Any) -> Any:
    """Whether all elements are numbers, none of them infinite."""
    return bool(np.isfinite(a).all())


@fast(is_finite)
def is_finite_loop(a: Any) -> Any:
    wrong = 0
    for j in range(a.shape[0]):
        if not abs(a[j]) < np.inf:
            wrong += 1
    return wrong == 0


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
    sort_first_loop(values, found)
    return found


def sorted_words(words: Any, said: Any, count: Any) -> tuple[Any, Any]:
    """What was said of each coordinate, sorted, and by how many."""
    there = said[:count] > 0
    return np.sort(np.where(there, words[:count], np.inf), 0), there.sum(0)


def median(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    """The median of each coordinate, of which something was said."""
    ordered, found = sorted_words(words, said, count)
    some = np.flatnonzero(found)
    low, high = ordered[(found[some] - 1) // 2, some], ordered[found[some] // 2, some]
    out[some] = out.dtype.type(0.5) * (low + high)


@fast(median)
def median_loop(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    half, values = out.dtype.type(0.5), scratch.values
    for j in range(out.shape[0]):
        found = coordinate(values, words, said, count, j)
        if found > 0:
            out[j] = half * (values[(found - 1) // 2] + values[found // 2])


def trimmed_mean(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    """The mean of each coordinate, of which something was said, without its least and its greatest values."""
    ordered, found = sorted_words(words, said, count)
    dropped = np.array([liars(int(n), settings.share) for n in range(count + 1)])[found]
    place = np.arange(count)[:, None]
    kept = (place >= dropped) & (place < found - dropped)
    some = found > 0
    out[some] = np.where(kept, ordered, 0).sum(0)[some] / (found - 2 * dropped)[some].astype(out.dtype)


@fast(trimmed_mean)
def trimmed_mean_loop(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    values = scratch.values
    for j in range(out.shape[0]):
        found = coordinate(values, words, said, count, j)
        if found > 0:
            dropped = liars(found, settings.share)
            total = out.dtype.type(0)
            for i in range(dropped, found - dropped):
                total += values[i]
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
    fill(out, 0)
    part = out.dtype.type(1) / out.dtype.type(count - dropped)
    for _ in range(count - dropped):
        i = best(scratch.scores, count)
        scratch.scores[i] = np.inf
        add_scaled(out, part, words[i])


@kernel
def geometric_median(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    """z = sum_i x_i / max(nu, ||x_i - z||), over the sum of the weights; `radius` is nu."""
    real, point = scratch.point.dtype.type, scratch.point
    assign(point, out)
    for _ in range(settings.steps):
        weights = real(0)
        fill(scratch.step, 0)
        for i in range(count):
            weight = real(1) / max(real(settings.radius), real(math.sqrt(distance(point, words[i]))))
            add_scaled(scratch.step, weight, words[i])
            weights += weight
        fill(point, 0)
        add_scaled(point, real(1) / weights, scratch.step)
    assign(out, point)


@kernel
def centred_clipping(out: Any, words: Any, said: Any, count: Any, scratch: Any, settings: Any) -> None:
    """v += the mean of (x_i - v) min(1, tau / ||x_i - v||); `radius` is tau."""
    real = scratch.step.dtype.type
    for _ in range(settings.steps):
        fill(scratch.step, 0)
        for i in range(count):
            length = real(math.sqrt(distance(words[i], out)))
            factor = real(1) if length <= settings.radius else real(settings.radius) / length
            add_scaled(scratch.step, factor, words[i])
            add_scaled(scratch.step, -factor, out)
        add_scaled(out, real(1) / real(count), scratch.step)
