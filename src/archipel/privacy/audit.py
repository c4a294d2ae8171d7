"""The statistics of an audit: how much privacy a mechanism loses at least, judged by its releases alone.

Run the mechanism many times on two neighbouring data sets, turn each release into one score, and ask how well
a threshold on the score tells the two apart. Thresholds (and everything else) are chosen on the first half of
the scores and judged on the second, so the bound holds with the confidence that is asked for, whatever was
chosen.

For a mechanism that is claimed to be Gaussian, FPR + FNR >= 2 Phi(-mu/2) and FNR >= Phi(Phi^-1(1 - FPR) - mu)
hold for every test on anything made from its releases (Dong, Roth, Su, JRSS-B 2022). So a test that does
better refutes the claimed mu, and epsilon follows exactly from mu. Nothing is assumed about the distribution
of the scores. Otherwise FPR and FNR are bounded by Clopper and Pearson, and epsilon >= log((1 - delta - FNR)
/ FPR) (Kairouz, Oh, Viswanath, ICML 2015).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.privacy.accounting import check_delta
from archipel.privacy.gaussian import epsilon_of

TRIED = 100  # thresholds compared on the first half
STRICT = 1e-4  # risk at which they are compared: a threshold must be good there, not lucky


class Finding(NamedTuple):
    """A lower bound on epsilon at delta that holds with this confidence, and the test that gave it."""

    epsilon: float
    delta: float
    mu: float  # of the Gaussian test, else NaN
    test: str
    threshold: float
    releases: int  # of each neighbour, that judged
    confidence: float

    def refutes(self, claimed: float) -> bool:
        """Whether a claim of this epsilon is false, with the finding's confidence."""
        return self.epsilon > claimed


class Counts(NamedTuple):
    """How often a threshold erred: alarms on A (false), silences on B (missed), of n each."""

    false: Any
    missed: Any
    n: int


def at_most(errors: Any, n: int, risk: float) -> Any:
    """Clopper and Pearson's upper bound of a probability after `errors` of n; wrong with chance `risk`."""
    from scipy.stats import beta

    errors = np.asarray(errors)
    return np.where(errors < n, beta.isf(risk, errors + 1, np.maximum(n - errors, 1)), 1.0)


def mu_by_accuracy(counts: Counts, risk: float) -> Any:
    """mu from the share of right answers on both sides together: at most Phi(mu / 2).

    The 2 n answers are independent with two different probabilities; by Hoeffding (Ann. Math. Stat. 1956,
    Theorem 4) their sum has no heavier tail than a binomial of the mean probability, so one exact bound
    serves for both error rates.
    """
    from scipy.special import ndtri

    wrong = at_most(counts.false + counts.missed, 2 * counts.n, risk)
    return np.maximum(-2 * ndtri(wrong), 0.0)


def mu_by_tails(counts: Counts, risk: float) -> Any:
    """mu = Phi^-1(1 - FPR) - Phi^-1(FNR), each bounded with half the risk: better for a leak in the tail."""
    from scipy.special import ndtri

    false, missed = at_most(counts.false, counts.n, risk / 2), at_most(counts.missed, counts.n, risk / 2)
    with np.errstate(invalid="ignore"):
        return np.where((false < 1) & (missed < 1), np.maximum(-ndtri(false) - ndtri(missed), 0.0), 0.0)


def mu_by_ranks(a: Any, b: Any, risk: float) -> float:
    """mu from P(score of B > score of A), the area under the trade-off curve: at most Phi(mu / sqrt 2).

    Mann and Whitney's statistic, with DeLong's variance (Biometrics 1988) on the logit scale: 18 % sharper
    than `mu_by_accuracy` and free of a threshold, but only asymptotically exact, so it steps back from scores
    that are few or nearly apart.
    """
    from scipy.special import ndtri

    if len(a) < 1000:
        return 0.0
    sorted_a, sorted_b = np.sort(a), np.sort(b)
    above = (np.searchsorted(sorted_a, b, "left") + np.searchsorted(sorted_a, b, "right")) / (2 * len(a))
    below = (np.searchsorted(sorted_b, a, "left") + np.searchsorted(sorted_b, a, "right")) / (2 * len(b))
    area = float(above.mean())
    if not 0.5 < area < 0.95:
        return 0.0
    deviation = math.sqrt(above.var() / len(b) + below.var() / len(a)) / (area * (1 - area))  # of the logit
    least = 1 / (1 + math.exp(-math.log(area / (1 - area)) - ndtri(risk) * deviation))
    return math.sqrt(2) * max(float(ndtri(least)), 0.0)


def epsilon_by_errors(counts: Counts, risk: float, delta: float) -> Any:
    """log((1 - delta - FNR) / FPR), or with the two exchanged, each bounded with half the risk."""
    false, missed = at_most(counts.false, counts.n, risk / 2), at_most(counts.missed, counts.n, risk / 2)
    one = np.log(np.maximum(1 - delta - missed, 1e-300) / false)
    other = np.log(np.maximum(1 - delta - false, 1e-300) / missed)
    return np.maximum(np.maximum(one, other), 0.0)


def _judge(a: Any, b: Any, threshold: Any) -> Counts:
    """Alarms of "score > threshold means B"."""
    a, b = np.sort(a), np.sort(b)
    return Counts(len(a) - np.searchsorted(a, threshold, "right"), np.searchsorted(b, threshold, "right"), len(a))


def _halves(a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    a, b = np.asarray(a, float), np.asarray(b, float)
    n = min(len(a), len(b))
    if a.ndim != 1 or b.ndim != 1 or n < 200:
        raise BadInput("audit.releases", n, "two lists of scores, at least 200 each")
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        raise BadInput("audit.scores", "NaN or infinity", "finite scores")
    half = n // 2
    return a[:half], b[:half], a[half : 2 * half], b[half : 2 * half]


def _best(test: Any, a: Any, b: Any) -> tuple[float, float]:
    """What a threshold test finds on the first half at its best, and the threshold."""
    middle = (np.median(a) + np.median(b)) / 2
    spread = np.quantile(np.concatenate([a, b]), np.linspace(0.0005, 0.9995, TRIED))
    candidates = np.append(spread, middle)
    found = np.asarray(test(_judge(a, b, candidates), STRICT))
    if found[-1] >= 0.95 * found.max():  # the middle is as good: do not chase luck
        return float(found[-1]), float(middle)
    return float(found.max()), float(candidates[int(np.argmax(found))])


def _prepared(a: Any, b: Any, delta: float, confidence: float) -> tuple[float, tuple[Any, Any, Any, Any]]:
    """The direction in which B lies, learned on the first halves, and the halves turned that way."""
    check_delta(delta)
    if not 0.5 < confidence < 1:
        raise BadInput("audit.confidence", confidence, "a probability between 0.5 and 1, such as 0.95")
    a1, b1, a2, b2 = _halves(a, b)
    sign = 1.0 if np.median(b1) >= np.median(a1) else -1.0
    return sign, (a1 * sign, b1 * sign, a2 * sign, b2 * sign)


def gaussian_audit(a: Any, b: Any, delta: float, confidence: float = 0.95) -> Finding:
    """A lower bound on epsilon for a mechanism that is claimed to be Gaussian (its whole history).

    `a` and `b` are one score a run, of runs on the two neighbouring data sets. Of the three tests the one
    that is best on the first half judges on the second.

    A bound of 95 % confidence exceeds the truth in up to one audit of twenty. For a one-round release at
    epsilon 0.5 (the hardest), 200,000 scores a side at 99.9 % find 0.9 of it, and more than all of it in one
    audit of a thousand.
    """
    sign, (a1, b1, a2, b2) = _prepared(a, b, delta, confidence)
    risk = 1 - confidence
    tests = {"accuracy": mu_by_accuracy, "tails": mu_by_tails}
    found = {name: _best(test, a1, b1) for name, test in tests.items()}
    found["ranks"] = (mu_by_ranks(a1, b1, STRICT), math.nan)
    best = max(found, key=lambda name: found[name][0])
    threshold = found[best][1]
    mu = mu_by_ranks(a2, b2, risk) if best == "ranks" else float(tests[best](_judge(a2, b2, threshold), risk))
    test = f"Gaussian trade-off, {best}"
    return Finding(epsilon_of(mu, delta), delta, mu, test, threshold * sign, len(a2), confidence)


def audit(a: Any, b: Any, delta: float, confidence: float = 0.95) -> Finding:
    """A lower bound on epsilon for any mechanism, from the error rates alone."""
    sign, (a1, b1, a2, b2) = _prepared(a, b, delta, confidence)
    _, threshold = _best(lambda counts, risk: epsilon_by_errors(counts, risk, delta), a1, b1)
    epsilon = float(epsilon_by_errors(_judge(a2, b2, threshold), 1 - confidence, delta))
    return Finding(epsilon, delta, math.nan, "Clopper-Pearson", threshold * sign, len(a2), confidence)


def fisher_scores(a: Any, b: Any) -> tuple[Any, Any]:
    """Scores of releases that are vectors (of all rounds): Fisher's discriminant of the first halves.

    For Gaussian releases of a known change it is the likelihood ratio's direction, that is, the best test
    there is. It is learned on the half that the audit chooses on, so the audit's confidence stands.
    """
    a, b = np.asarray(a, float), np.asarray(b, float)
    half = min(len(a), len(b)) // 2
    gap = b[:half].mean(0) - a[:half].mean(0)
    spread = (np.cov(a[:half], rowvar=False) + np.cov(b[:half], rowvar=False)) / 2
    spread = np.atleast_2d(spread) + 1e-12 * np.eye(a.shape[1]) * max(float(np.trace(np.atleast_2d(spread))), 1e-300)
    direction = np.linalg.lstsq(spread, gap, rcond=None)[0]
    return a @ direction, b @ direction
