"""Where online methods are measured side by side: one problem, one environment, one schedule.

The article compares methods at steps that make them start alike (V-A): `matched` finds such a step. That favours
whoever profits from small steps, so beside it stands each method at its own best step, which `best` finds. Both
searches stay within the steps that the theorems allow.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from archipel.algorithms.online import PaoFed
from archipel.environment import Delay, Environment
from archipel.federation import Federation
from archipel.figures import Progress
from archipel.figures.learning import START, Runs, all_seeds, decibels, runs_of, settled, step_between
from archipel.problems.synthetic import Synthetic

AVAILABILITY = (0.25, 0.1, 0.025, 0.005)
ARTICLE = Environment(availability=AVAILABILITY, stride=4, delay=Delay("geometric", delta=0.2, limit=10))
IDEAL = Environment()
MARGIN = 0.9  # of the largest step that one seed's data allows: the other seeds' data allow a little less or more
OCTAVES = 6  # how far below the largest step a search goes
HALVINGS = 4  # of an octave: steps are found to within 2 %


@dataclass(frozen=True)
class Scale:
    """How much is simulated."""

    seeds: int
    rounds: int
    tries: int  # seeds of a search


FULL, QUICK = Scale(20, 2000, 4), Scale(4, 1000, 2)
DATA = Synthetic()
KEPT: dict[tuple[str, int], Runs] = {}  # what was measured in this process, by description and seeds


def scale_of(quick: bool) -> Scale:
    """How much is simulated: as the article, or what takes seconds."""
    return QUICK if quick else FULL


@lru_cache(maxsize=16)
def bounds_of(problem: Any) -> dict[str, float]:
    """The largest eigenvalue and the theorems' step bounds, from the first seed's data."""
    return Federation(problem, PaoFed(force=True), rounds=FULL.rounds).check()


class PaoFedExperiment:
    """Plays methods on one problem in one environment; every setting once."""

    def __init__(
        self,
        quick: bool,
        progress: Progress | None,
        environment: Environment = ARTICLE,
        problem: Any = None,
        every: int = 20,
    ):
        self.scale, self.every = scale_of(quick), every
        self.progress, self.environment, self.problem = progress, environment, problem or DATA
        self.bounds = bounds_of(self.problem)
        self.largest = MARGIN * self.bounds["protective"]

    def play(self, label: str, algorithm: Any) -> Runs:
        """A method's runs, all seeds."""
        return self.measured(label, algorithm, self.scale.seeds, self.scale.rounds)

    def measured(self, label: str, algorithm: Any, seeds: int, rounds: int) -> Runs:
        """Run a method, or remember how it went. Later than the environment's limit nothing arrives."""
        algorithm = replace(algorithm, limit=self.environment.delay.limit)
        federation = Federation(self.problem, algorithm, environment=self.environment, rounds=rounds, every=self.every)
        key = federation.to_toml(), seeds
        if key not in KEPT:
            result = all_seeds(federation, seeds, label, self.progress, self.bounds)
            KEPT[key] = runs_of(result, label, algorithm.step)["mse"]
        return replace(KEPT[key], label=label)

    # --- the searches -----------------------------------------------------------------------------------------------

    def start(self, algorithm: Any) -> float:
        """The mean of a learning curve in dB over the first rounds, from a few seeds: low where it starts fast."""
        endless = isinstance(self.problem, Synthetic)  # what is stored is dealt over all rounds of a run
        runs = self.measured("equal start", algorithm, self.scale.tries, START if endless else self.scale.rounds)
        return float(decibels(runs.errors[:, runs.rounds <= START].mean(0)).mean())

    def end(self, algorithm: Any) -> float:
        """The error at the end of a run in dB, from a few seeds."""
        runs = self.measured("best step", algorithm, self.scale.tries, self.scale.rounds)
        return float(decibels(settled(runs).mean()))

    def matched(self, algorithm: Any, like: Any, largest: float = 0.0) -> Any:
        """The algorithm with the step at which it starts as another does, "identical initial convergence rates" (V-A).

        From small steps up, octave by octave, to the first that starts as fast; then the octave below is halved. "Some
        algorithms were not able to reach this common convergence rate": they get the step at which they start fastest.
        """
        wanted, largest = self.start(like), largest or self.largest
        steps = [largest / 2**i for i in range(OCTAVES, -1, -1)]
        starts = []
        for step in steps:
            starts.append(self.start(replace(algorithm, step=step)))
            if starts[-1] <= wanted:
                break
        else:
            return replace(algorithm, step=steps[starts.index(min(starts))])
        fast = step_between(step / 2, step, HALVINGS, lambda s: self.start(replace(algorithm, step=s)) <= wanted)
        return replace(algorithm, step=fast)

    def best(self, algorithm: Any, largest: float = 0.0) -> Any:
        """The algorithm with the step that leaves it the least error at the end.

        From the largest step that is allowed, halve it for as long as that helps; then try half an octave either way.
        """
        largest = largest or self.largest

        def error(step: float) -> float:
            return self.end(replace(algorithm, step=step))

        step = largest
        while error(step / 2) < error(step):
            step /= 2
        around = (step / math.sqrt(2), step, min(step * math.sqrt(2), largest))
        return replace(algorithm, step=min(around, key=error))
