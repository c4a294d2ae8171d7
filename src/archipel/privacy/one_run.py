"""An audit from one run: many canaries, each in or out by the toss of a coin, and how many of the tosses are guessed.

An auditor who has seen everything that was released guesses, for some of m canaries, whether they were in, and abstains
on the others. Privacy bounds how many of `guesses` can be `right`, though all of them come from the same run.

The bound is of a whole trade-off curve, here a Gaussian's of mean mu (Mahloujifar, Melis, Chaudhuri, ICML 2025,
Algorithm 3). It is tighter than that of one (epsilon, delta) (Steinke, Nasr, Jagielski, NeurIPS 2023, Theorem 5.2), as
a Gaussian mechanism is far better than the one it is written down with; the tests compare the two.

How many guesses are made is fixed before the run, by what would be best if the claim were just true: so nothing is
chosen by looking, and the bound needs no correction.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.privacy.gaussian import epsilon_of, mu_of

LARGEST = 60.0  # of an epsilon or a mu that is looked for


class Guesses(NamedTuple):
    """How an auditor did."""

    canaries: int
    made: int
    right: int


def guessed(scores: Any, included: Any, count: int) -> Guesses:
    """The `count` canaries that stand out most are guessed: the upper half as in, the lower half as out."""
    scores, included = np.asarray(scores, float), np.asarray(included, bool)
    if scores.shape != included.shape or not 2 <= count <= len(scores) or not np.isfinite(scores).all():
        raise BadInput("audit.scores", f"{scores.shape} scores", "a finite score and a toss for every canary")
    order = np.argsort(scores, kind="stable")
    low, high = order[: count // 2], order[len(order) - (count - count // 2) :]
    return Guesses(len(scores), count, int((~included[low]).sum() + included[high].sum()))


def gaussian_refuted(found: Guesses, mu: float, risk: float) -> bool:
    """Whether so many right guesses refute a Gaussian trade-off curve of this mean.

    Where it holds, and so many right guesses have a chance of `risk`, the chances of fewer follow one from the other,
    and would exceed all there is.
    """
    from scipy.special import ndtr, ndtri

    right = risk * found.right / found.canaries
    wrong = risk * (found.made - found.right) / found.canaries
    for i in range(found.right - 1, -1, -1):
        more = max(wrong, float(ndtr(ndtri(right) - mu)))
        right += i / (found.made - i) * (more - wrong)
        wrong = more
        if right + wrong > found.made / found.canaries:
            return True
    return False


def mu_in_one_run(found: Guesses, risk: float) -> float:
    """mu of a Gaussian mechanism is at least this, but for a chance of `risk`."""
    if found.right == found.made:  # no curve explains more than a finite run shows
        found = found._replace(right=found.made - 1)
    return largest(lambda mu: gaussian_refuted(found, mu, risk))


def largest(refuted: Any) -> float:
    """The largest number that is refuted, to 1e-6."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high) and high < LARGEST:
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def best_count(canaries: int, epsilon: float, delta: float, risk: float) -> int:
    """How many guesses to make: what finds most of a Gaussian mechanism that just keeps epsilon."""
    from scipy.stats import norm

    mu, best = mu_of(epsilon, delta), (0.0, min(canaries, 10))
    for share in np.geomspace(0.01, 1.0, 14):
        count = min(max(int(share * canaries), 2), canaries)
        level = largest_level(mu, share)
        above = norm.sf(level - mu)
        right = round(count * float(above / (above + norm.sf(level))))
        best = max(best, (mu_in_one_run(Guesses(canaries, count, right), risk), count))
    return best[1]


def largest_level(mu: float, share: float) -> float:
    """The score above which a half of this share of all canaries lies, in and out, where in is mu above out."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    if share >= 1:
        return mu / 2
    return float(brentq(lambda at: (norm.sf(at) + norm.sf(at - mu)) / 2 - share / 2, -40, 40 + mu))


def gaussian_epsilon(found: Guesses, delta: float, risk: float) -> float:
    """epsilon at delta that the guesses show of a Gaussian mechanism."""
    return epsilon_of(mu_in_one_run(found, risk), delta)
