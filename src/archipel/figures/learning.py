"""Learning curves over several seeds, and sentences about them.

A mean over seeds is one of the errors; decibels come after it. All methods of a comparison meet the same data and the
same schedule in a seed, so a difference has a standard error of its own, smaller than the curves' (a jackknife over the
seeds).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.federation import Federation
from archipel.figures import Claim, Progress, Series
from archipel.results import Result

START = 200  # rounds that "initial convergence" is about
TAIL = 0.1  # the last part of a run, whose mean error is "the steady state"
SAME = 0.5  # dB: what is nearer is "the same", what is apart by more is "significant"
HALF = 3.0  # dB: what is apart by more is "drastic"


@dataclass(frozen=True, eq=False)
class Runs:
    """One method's runs, one a seed."""

    label: str
    step: float
    rounds: Any  # (measurements,)
    errors: Any  # (seeds, measurements): mean squared test errors, (40) before its mean over seeds
    parameters: float  # sent in a run by all together, both ways
    bytes: float

    def curve(self) -> Series:
        """The learning curve in dB."""
        return self.rounds.tolist(), decibels(self.errors.mean(0)).tolist()

    def numbers(self) -> dict[str, float]:
        """What else there is to say of it."""
        level, error = gap(settled(self), np.ones(len(self.errors)))
        return {
            "step": float(self.step),
            "final_db": level,
            "final_db_standard_error": error,
            "seeds": len(self.errors),
            "parameters": self.parameters,
            "bytes": self.bytes,
        }


def runs_of(result: Result, label: str, step: float = 0.0) -> dict[str, Runs]:
    """Metrics of the whole federation, (seeds, measurements) each; those of single nodes as `metric@node`."""
    found: dict[str, dict[int, dict[int, float]]] = {}
    for seed, round, metric, value, node in result.rows:
        found.setdefault(f"{metric}@{node}" if node else metric, {}).setdefault(seed, {})[round] = value
    sent, runs = (result.total("parameters"), result.total("bytes")), {}
    for name, by_seed in found.items():
        rounds = np.array(sorted(next(iter(by_seed.values()))))
        table = np.array([[by_seed[seed][n] for n in rounds] for seed in sorted(by_seed)])
        runs[name] = Runs(label, step, rounds, table, *sent)
    return runs


def all_seeds(
    federation: Federation, seeds: int, label: str, progress: Progress | None, theory: dict[str, float] | None = None
) -> Result:
    """Run a federation, whose progress is told with its name; an interrupt ends the figure."""

    def named(done: int, total: int, what: str) -> None:
        if progress is not None:
            progress(done, total, f"{label}: {what}" if what else label)

    result = federation.run(seeds, named if progress else None, theory)
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def step_between(low: float, high: float, halvings: int, large: Callable[[float], bool]) -> float:
    """A step below those that are too large, found by halving an interval of logarithms."""
    for _ in range(halvings):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if large(middle) else (middle, high)
    return math.sqrt(low * high)


Part = Callable[[Runs], Any]  # the part of a run that a sentence is about: one error a seed


def settled(runs: Runs) -> Any:
    """Each seed's mean error at the end of its run."""
    return runs.errors[:, runs.rounds >= (1 - TAIL) * runs.rounds[-1]].mean(1)


def end(runs: Runs) -> Any:
    """Each seed's value after the last round."""
    return runs.errors[:, -1]


def beginning(runs: Runs) -> Any:
    """Each seed's mean error in the first rounds."""
    return runs.errors[:, runs.rounds <= START].mean(1)


def decibels(power: Any) -> Any:
    """10 log10; a run that left all bounds is infinitely bad."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return 10 * np.log10(np.nan_to_num(power, nan=np.inf))


def level(runs: Runs, part: Part = settled) -> float:
    """The mean error of a part of the runs, in dB."""
    return float(decibels(part(runs).mean()))


def gap(first: Any, second: Any) -> tuple[float, float]:
    """By how many dB the first errors are above the second, seed by seed the same data, and its standard error.

    >>> gap(np.array([1.0, 1.0]), np.array([10.0, 10.0]))
    (-10.0, 0.0)
    """
    pairs, seeds = np.stack([first, second]), len(first)
    one, other = decibels(pairs.mean(1))
    if seeds == 1 or not np.isfinite(pairs).all():
        return float(one - other), 0.0
    without = decibels((pairs.sum(1, keepdims=True) - pairs) / (seeds - 1))  # each seed left out once
    differences = without[0] - without[1]
    return float(one - other), float(np.sqrt((seeds - 1) * differences.var()))


def interval(values: Any) -> tuple[float, float]:
    """Mean, and half of its 95 % confidence interval over seeds (Student's t)."""
    from scipy.stats import t

    values = np.asarray(values, float)
    if len(values) < 2:
        return float(values.mean()), math.inf
    return float(values.mean()), float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))


def better(claim: str, first: Runs, second: Runs, by: float = 0.0, part: Part = settled) -> Claim:
    """The first has less error than the second: by more than `by` dB, and by more than two standard errors."""
    difference, error = gap(part(first), part(second))
    return Claim(claim, difference < -max(by, 2 * error), told(first, second, part))


def alike(claim: str, first: Runs, second: Runs, within: float = SAME, part: Part = settled) -> Claim:
    """The two have the same error, within so many dB."""
    difference, _ = gap(part(first), part(second))
    return Claim(claim, abs(difference) <= within, told(first, second, part) + f" (same: within {within:g} dB)")


def reaches(claim: str, first: Runs, second: Runs, part: Part = settled) -> Claim:
    """The first is as good as the second, or better: at most what counts as the same above it."""
    difference, _ = gap(part(first), part(second))
    return Claim(claim, difference <= SAME, told(first, second, part) + f" (reached: at most {SAME:g} dB above)")


def told(first: Runs, second: Runs, part: Part = settled) -> str:
    """The numbers of a comparison."""
    difference, error = gap(part(first), part(second))
    return (
        f"{first.label} {level(first, part):.2f} dB, {second.label} {level(second, part):.2f} dB: "
        f"{difference:+.2f} dB +- {error:.2f}"
    )


def all_of(claim: str, claims: Iterable[Claim]) -> Claim:
    """One sentence that says several things."""
    parts = list(claims)
    return Claim(claim, all(part.holds for part in parts), "; ".join(part.measured for part in parts))


def all_better(claim: str, pairs: Iterable[tuple[Runs, Runs]], by: float = 0.0, part: Part = settled) -> Claim:
    """In each pair, the first has less error than the second."""
    return all_of(claim, [better("", first, second, by, part) for first, second in pairs])


def saving(claim: str, first: Runs, second: Runs, share: float) -> Claim:
    """The first sends this share less than the second, counted in parameters as the article does; bytes beside it."""
    parameters, octets = 1 - first.parameters / second.parameters, 1 - first.bytes / second.bytes
    text = f"{first.label} sends {parameters:.1%} fewer parameters and {octets:.1%} fewer bytes than {second.label}"
    return Claim(claim, parameters >= share - 5e-4, text)
