"""Personal models on real data: Beijing's twelve air-quality stations, a model each.

Two weeks of hours to learn from, the following month to be judged by, at every time of four years where all stations
have enough of both and windows do not overlap. One model for all (NFL), every station alone (NPFL with tau = 0), and
personal (NPFL: each its own, borrowing from the others); tau is the thesis' 0.05, chosen before any test hour was seen.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from archipel.algorithms.npfl import Nfl, Npfl, NpflRl
from archipel.federation import Federation
from archipel.figures import Claim, Figure, Progress
from archipel.figures.learning import interval
from archipel.figures.personal import OURS, ClusterExperiment
from archipel.problems.clustered import BeijingStations
from archipel.problems.datasets import beijing
from archipel.topology import Peers

ROUNDS, RIDGE = 200, 0.01
GRAPH = Peers(shape="complete", clusters=12)
METHODS: dict[str, Any] = {
    "one global model": Nfl(penalty=0.5, regularisation=RIDGE),
    "each station alone": Npfl(tau=0.0, regularisation=RIDGE),
    "personalised, τ = 0.05": Npfl(tau=0.05, regularisation=RIDGE),
    "personalised, τ = 0.2": Npfl(tau=0.2, regularisation=RIDGE),
    "personalised, τ learned": NpflRl(tau=0.05, regularisation=RIDGE, validation=0.25),
}


@lru_cache(maxsize=1)
def windows() -> list[int]:
    """Where windows begin: as many as fit, none overlapping another."""
    chosen: list[int] = []
    for begin in beijing.starts(beijing.load()):
        if not chosen or begin - chosen[-1] >= beijing.FORTNIGHT + beijing.MONTH:
            chosen.append(int(begin))
    return chosen


def figure_beijing(quick: bool, progress: Progress | None) -> Figure:
    """Beijing air: one global model, each station alone, personalised; test errors with confidence intervals."""
    begins = windows()[:: 4 if quick else 1]
    errors: dict[str, Any] = {}
    for label, algorithm in METHODS.items():
        experiment = ClusterExperiment(1, progress)
        errors[label] = np.array([month(experiment, label, algorithm, begin) for begin in begins])
    days = [begin / 24 for begin in begins]
    series = {label: (days, (10 * np.log10(each)).tolist()) for label, each in errors.items()}
    numbers = {label: summed_up(each) for label, each in errors.items()}
    world, alone, personal, *_ = errors.values()
    claims = [
        compared(OURS + "personal models are better than one for all.", personal, world),
        compared(OURS + "personal models are better than each station alone.", personal, alone),
    ]
    note = table(numbers, len(begins)) + f" λ = {RIDGE:g}; τ = 0.05 is the thesis' value, 0.2 is there to compare."
    title = "twelve stations, two weeks to learn from, the following month to be judged by"
    x, y = "first day of the window", "mean squared test error (dB of the target's variance)"
    return Figure("pgfl/beijing", title, series, claims, x, y, note, dashed=tuple(series)[3:], numbers=numbers)


def month(experiment: ClusterExperiment, label: str, algorithm: Any, begin: int) -> float:
    """The mean over stations of the test error at the end."""
    one = Federation(BeijingStations(start=begin), algorithm, GRAPH, rounds=ROUNDS, every=ROUNDS)
    return float(experiment.play(label, one, "mse").errors[0, -1])


def summed_up(errors: Any) -> dict[str, float]:
    """Mean and median over windows; the mean in dB, with a 95 % confidence interval over windows."""
    mean, half = interval(10 * np.log10(errors))
    return {
        "mse": float(errors.mean()),
        "mse_median": float(np.median(errors)),
        "mse_db": mean,
        "mse_db_low": mean - half,
        "mse_db_high": mean + half,
        "windows": len(errors),
    }


def compared(claim: str, first: Any, second: Any) -> Claim:
    """Window by window the same hours: the mean difference in dB and its 95 % confidence interval lies below 0."""
    apart = 10 * np.log10(first / second)
    mean, half = interval(apart)
    words = f"{mean:+.2f} dB, 95 % interval {mean - half:+.2f} to {mean + half:+.2f}, "
    return Claim(claim, mean + half < 0, words + f"better in {np.sum(apart < 0)} of {len(apart)} windows")


def table(numbers: dict[str, dict[str, float]], count: int) -> str:
    """The table, in words for the screen."""
    rows = (
        f"{label} {row['mse_db']:.2f} dB [{row['mse_db_low']:.2f}, {row['mse_db_high']:.2f}]"
        for label, row in numbers.items()
    )
    return f"Mean test error over {count} windows with 95 % intervals: " + "; ".join(rows) + "."


FIGURES = {"beijing": figure_beijing}
