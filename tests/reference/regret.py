"""Regret meters: what was lost against a comparator that knew everything, in numbers that can be believed.

The dissertation's regrets add f_{u,t}(x_{u,t}) - f_{u,t}(comparator) over clients u and rounds t, each client's own
loss at its own model: static (2.6), under constraints (3.1), with K-benchmarks (4.6), dynamic (5.7). Clients that
lean to their own data make this negative without having learned anything together; `network_losses` asks for more,
every model on everyone's loss.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.theory.comparators import best, best_by_cvxpy
from reference.losses import DistanceLosses, LinearLosses, Losses

# --- what was played --------------------------------------------------------------------------------------


def own_losses(losses: Losses, models: Any) -> Any:
    """sum_u f_{u,t}(x_{u,t}) for every round; models is (T, V, d)."""
    return losses.values(models).sum(1)


def network_losses(losses: Losses, models: Any) -> Any:
    """The mean over clients v of sum_u f_{u,t}(x_{v,t}): every model, on everyone's loss."""
    clients = models.shape[1]
    return sum(losses.values(models[:, v]).sum(1) for v in range(clients)) / clients


# --- comparators ------------------------------------------------------------------------------------------


def checked_marks(marks: Any, rounds: int) -> Any:
    """Rounds, from 1, at which regret is read."""
    marks = np.asarray(marks, dtype=int)
    if marks.size == 0 or marks.min() < 1 or marks.max() > rounds or (np.diff(marks) <= 0).any():
        raise BadInput("marks", marks, f"rising round numbers from 1 to {rounds}")
    return marks


def static_comparator(losses: Losses, region: Any, marks: Any, constraints: Sequence[Any] = ()) -> Any:
    """min over x of the losses up to each mark: the second half of (2.6), or of (3.1) with constraints."""
    totals = [losses.total(0, int(last)) for last in checked_marks(marks, losses.rounds)]
    return np.array([total.value(best(total, region, constraints)) for total in totals])


def dynamic_comparator(losses: Losses, region: Any) -> Any:
    """x*_t = argmin over x of sum_u f_{u,t}(x) for every round, (5.6); shape (T, d).

    Of single random samples these jump about, and their path grows as T: hand in expected losses, as (5.7) does.
    """
    if isinstance(losses, DistanceLosses):  # all rounds at once where projecting is enough
        losses = DistanceLosses(losses.centres.mean(1, keepdims=True))
    if isinstance(losses, LinearLosses):
        losses = LinearLosses(losses.slopes.sum(1, keepdims=True))
    return np.array([best(losses.total(t, t + 1), region) for t in range(losses.rounds)])


class Windows(NamedTuple):
    """Linear constraints summed over K rounds: slopes @ x <= budgets, a row a window and client."""

    slopes: Any
    budgets: Any

    def expression(self, x: Any) -> Any:
        return self.slopes @ x - self.budgets


def windows(slopes: Any, budgets: Any, length: int) -> Windows:
    """The K-benchmark set of (4.6): sum of K rounds from t of slope_{u,t} @ x - budget_{u,t} <= 0, all t and u.

    Slopes is (T, V, d), budgets (T, V). K = 1 is chapter 3's comparator, K = T the one that no one can match.
    """
    rounds = len(slopes)
    if not 1 <= length <= rounds:
        raise BadInput("window", length, f"1 to {rounds} rounds")
    rows = np.concatenate([slopes, np.asarray(budgets)[..., None]], axis=-1)
    sums = np.cumsum(np.concatenate([np.zeros_like(rows[:1]), rows]), axis=0)
    kept = np.unique(np.round((sums[length:] - sums[:-length]).reshape(-1, rows.shape[-1]), 12), axis=0)
    return Windows(kept[:, :-1], kept[:, -1])


def k_benchmark_comparator(losses: Losses, region: Any, marks: Any, limits: tuple[Any, Any], length: int) -> Any:
    """min of the losses up to each mark over the K-benchmarks of those rounds; limits is (slopes, budgets)."""
    found = []
    for last in checked_marks(marks, losses.rounds):
        allowed = windows(limits[0][:last], limits[1][:last], length)
        total = losses.total(0, int(last))
        found.append(total.value(best_by_cvxpy(total, region, [allowed])))
    return np.array(found)


# --- regret, path, violation ------------------------------------------------------------------------------


def static_regret(played: Any, comparator: Any, marks: Any) -> Any:
    """What was played up to each mark, less what the comparator of that mark would have lost."""
    return np.cumsum(played)[checked_marks(marks, len(played)) - 1] - comparator


def dynamic_regret(played: Any, losses: Losses, path: Any, marks: Any) -> Any:
    """(5.6) up to each mark, against a comparator that moves along `path`, (T, d)."""
    against = losses.values(path).sum(1)
    return np.cumsum(played - against)[checked_marks(marks, len(played)) - 1]


def path_length(path: Any, marks: Any, norm: float = 2) -> Any:
    """A_T = sum over t < T of ||x*_{t+1} - x*_t||, (5.8), at each mark."""
    moves = np.linalg.norm(np.diff(path, axis=0), ord=norm, axis=1)
    return np.concatenate([[0.0], np.cumsum(moves)])[checked_marks(marks, len(path)) - 1]


def average_violation(values: Any, marks: Any) -> Any:
    """The signed mean of c_{u,t}(x_{u,t}) over clients and rounds up to each mark; values is (T, V).

    Signed, as (3.1) is: rounds within the budget pay for those beyond it. `np.maximum(..., 0)` is what is left.
    """
    marks = checked_marks(marks, len(values))
    return np.cumsum(np.mean(values, axis=1))[marks - 1] / marks


# --- growth -----------------------------------------------------------------------------------------------


class Growth(NamedTuple):
    """y ~ T^exponent, with a confidence interval."""

    exponent: float
    low: float
    high: float


def growth(marks: Any, curves: Any, confidence: float = 0.95) -> Growth:
    """The slope of log(mean curve) over log(T); curves is (marks,) or (seeds, marks).

    With several seeds the interval is the jackknife's over seeds: it knows nothing of whether the curve is a power.
    With one curve it is least squares': it takes the deviations from the line as independent.
    """
    from scipy import stats

    curves = np.atleast_2d(np.asarray(curves, dtype=float))
    times = np.log(np.asarray(marks, dtype=float))
    if curves.shape[1] != times.size or times.size < 3:
        raise BadInput("marks", marks, "three times or more, as many as the curves have points")
    exponent = log_slope(times, curves.mean(0))
    seeds = len(curves)
    if seeds == 1:
        fit = stats.linregress(times, np.log(curves[0]))
        spread = fit.stderr * stats.t.ppf((1 + confidence) / 2, times.size - 2)
    else:
        left_out = [log_slope(times, np.delete(curves, k, 0).mean(0)) for k in range(seeds)]
        error = np.sqrt((seeds - 1) * np.var(left_out))
        spread = error * stats.t.ppf((1 + confidence) / 2, seeds - 1)
    return Growth(exponent, exponent - float(spread), exponent + float(spread))


def log_slope(times: Any, curve: Any) -> float:
    """Least squares' slope of log(curve) over `times`."""
    if not (curve > 0).all():
        raise BadInput("curve", curve, "positive at every mark: what is not does not grow as a power")
    return float(np.polyfit(times, np.log(curve), 1)[0])
