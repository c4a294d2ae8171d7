"""The methods that the PAO-Fed article compares, and how its figures are put together."""

from collections.abc import Mapping
from typing import Any

from archipel.algorithms.online import OnlineFed, OnlineFedSgd, PaoFed, PsoFed
from archipel.algorithms.sign_sgd import SignSgd
from archipel.figures import Claim, Figure
from archipel.figures.harness import PaoFedExperiment
from archipel.figures.learning import Runs

BEST = "At each method's own best step (not in the article): "
STEP = 0.4  # mu of PAO-Fed in the article's figures 2 to 4
C0, C1, C2, U0, U1, U2 = (PaoFed(variant=variant, step=STEP) for variant in ("C0", "C1", "C2", "U0", "U1", "U2"))
FEDSGD = OnlineFedSgd()
FED = OnlineFed(asked=0.02)  # as little communication as PAO-Fed's 4 of 200 parameters
# PSO-Fed saves 98 % by asking some clients for a part of the model. How much it saves which way is not given: ours.
PSO = PsoFed(step=STEP, portion=16, asked=0.25)
SIGN = SignSgd()
STOCHASTIC_SIGN = SignSgd(bound=0.1)  # b is not given: ours
LARGEST_SIGN_STEP = 0.1  # a sign knows no size, so no theorem bounds its step: far above the best one


def matched(experiment: PaoFedExperiment, methods: Mapping[str, Any], like: Any) -> list[Runs]:
    """Methods at the steps at which they start as `like` does."""
    return [
        experiment.play(name, experiment.matched(method, like, largest_of(method))) for name, method in methods.items()
    ]


def at_best(experiment: PaoFedExperiment, methods: Mapping[str, Any]) -> list[Runs]:
    """Methods at their own best steps."""
    return [
        experiment.play(f"{name}, own best step", experiment.best(method, largest_of(method)))
        for name, method in methods.items()
    ]


def largest_of(method: Any) -> float:
    """The largest step of a search; 0: what the theorems allow."""
    return LARGEST_SIGN_STEP if isinstance(method, SignSgd) else 0.0


def curves(
    name: str, title: str, experiment: PaoFedExperiment, shown: list[Runs], added: list[Runs], claims: list[Claim]
) -> Figure:
    """A figure of learning curves; `added` is what the article does not show."""
    every = [*shown, *added]
    return Figure(
        f"pao-fed/{name}",
        title,
        {runs.label: runs.curve() for runs in every},
        claims,
        "round",
        "test error (dB)",
        note=note(experiment),
        dashed=tuple(runs.label for runs in added),
        numbers={runs.label: runs.numbers() for runs in every},
    )


def note(experiment: PaoFedExperiment) -> str:
    """What was simulated, and what theory says of its steps."""
    bounds, scale = experiment.bounds, experiment.scale
    return (
        f"{scale.seeds} seeds, {scale.rounds} rounds. Largest eigenvalue of R {bounds['largest_eigenvalue']:.3f}; step "
        f"bounds: theorem 1 (22) {bounds['mean']:.3f}, theorem 2 (34) {bounds['mean_square']:.3f}; steps up to "
        f"{experiment.largest:.3f} were tried. Differences: of the mean error over the last tenth of the rounds, first "
        "minus second (negative: the first is better), +- the standard error over seeds."
    )
