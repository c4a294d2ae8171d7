"""Where personal models are measured side by side: one federation of clusters, one seed after another, same draws.

What is measured may be an error (in dB) or an accuracy. Sentences about errors are those of `learning`; sentences about
accuracies are here: a difference counts if it is larger than two standard errors, seed by seed the same data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from archipel.federation import Federation
from archipel.figures import Claim, Figure, Progress
from archipel.figures.learning import SAME, Runs, all_seeds, end, gap, level, runs_of, told
from archipel.privacy.policy import Privacy

OURS = "(ours) "
KEPT: dict[tuple[str, int], dict[str, Runs]] = {}  # what was measured in this process, by description and seeds
PAID: dict[tuple[str, int], float] = {}  # the zCDP that the ledger finds, of the client that paid most, over seeds


@dataclass(frozen=True)
class ClusterExperiment:
    """Plays federations, each once."""

    seeds: int
    progress: Progress | None

    def play(self, label: str, federation: Federation, metric: str = "msd") -> Runs:
        """One metric of a federation's runs."""
        return replace(self.measured(label, federation)[metric], label=label)

    def measured(self, label: str, federation: Federation) -> dict[str, Runs]:
        """Everything that was measured of the whole federation."""
        key = federation.to_toml(), self.seeds
        if key not in KEPT:
            result = all_seeds(federation, self.seeds, label, self.progress, theory={})
            KEPT[key] = runs_of(result, label)
            paid = [ledger for ledger in result.ledgers if ledger]
            PAID[key] = max((rho_of(ledger) for ledger in paid), default=0.0)
        return KEPT[key]

    def paid(self, federation: Federation) -> float:
        """What a federation that was played has paid in zCDP, at most."""
        return PAID[federation.to_toml(), self.seeds]


def rho_of(ledger: Any) -> float:
    """The zCDP of the client that paid most."""
    return max(float(node["spent"]["rho"]) for node in ledger["nodes"])


def dynamic(first: float, zeta: float, rounds: int, gradient: float) -> Privacy:
    """Dynamic zCDP as the article has it: phi_0 in the first round, the variance times zeta after each; C assumed."""
    total = first * sum(zeta**-n for n in range(rounds))
    shaped: dict[str, Any] = {"schedule": "geometric", "zeta": zeta} if zeta < 1 else {}
    return Privacy(rho=total, clip=gradient, enforce=False, **shaped)


# --- parts of a run ---------------------------------------------------------------------------------------------


def start(rounds: int) -> Any:
    """The part of a run that "initial convergence" is about: each seed's mean over the first rounds."""

    def part(runs: Runs) -> Any:
        return runs.errors[:, (runs.rounds > 0) & (runs.rounds <= rounds)].mean(1)

    return part


# --- sentences --------------------------------------------------------------------------------------------------


def worse(claim: str, first: Runs, second: Runs, by: float = 0.0, part: Any = end) -> Claim:
    """The first has more error than the second: by more than `by` dB, and by more than two standard errors."""
    difference, error = gap(part(first), part(second))
    return Claim(claim, difference > max(by, 2 * error), told(first, second, part))


def rises(claim: str, values: Sequence[float], runs: Sequence[Runs], sign: int) -> Claim:
    """Errors rise (sign 1) or fall (-1) from each value to the next, give or take what counts as the same."""
    levels = [level(r, end) for r in runs]
    steps = sign * np.diff(levels)
    words = ", ".join(f"{value:g}: {each:.2f} dB" for value, each in zip(values, levels))
    return Claim(claim, bool((steps > -SAME).all() and sign * (levels[-1] - levels[0]) > SAME), words)


def lead(first: Any, second: Any) -> tuple[float, float]:
    """By how much the first is above the second, seed by seed, and its standard error.

    >>> lead(np.array([0.9, 0.8]), np.array([0.8, 0.7]))[0]
    0.1
    """
    apart = np.asarray(first) - np.asarray(second)
    error = float(apart.std(ddof=1) / np.sqrt(len(apart))) if len(apart) > 1 else 0.0
    return round(float(apart.mean()), 12), error


def more_accurate(claim: str, first: Runs, second: Runs, by: float = 0.0, part: Any = end) -> Claim:
    """The first is right more often: by more than `by`, and by more than two standard errors."""
    difference, error = lead(part(first), part(second))
    words = f"{first.label} {part(first).mean():.1%}, {second.label} {part(second).mean():.1%}"
    return Claim(claim, difference > max(by, 2 * error), f"{words}: {difference:+.1%} +- {error:.1%}")


# --- how they are shown -----------------------------------------------------------------------------------------


def curves(
    name: str, title: str, shown: Sequence[Runs], added: Sequence[Runs], claims: list[Claim], note: str, what: str = ""
) -> Figure:
    """Learning curves in dB; those that the paper does not show are dashed."""
    series = {runs.label: runs.curve() for runs in (*shown, *added)}
    numbers = {r.label: {"final_db": level(r, end), "seeds": len(r.errors)} for r in (*shown, *added)}
    dashed = tuple(runs.label for runs in added)
    return Figure(name, title, series, claims, "iteration", what or "NMSD (dB)", note, dashed=dashed, numbers=numbers)


def accuracies(
    name: str, title: str, shown: Sequence[Runs], added: Sequence[Runs], claims: list[Claim], note: str
) -> Figure:
    """Test accuracy over the rounds."""
    every = (*shown, *added)
    series = {r.label: (r.rounds.tolist(), r.errors.mean(0).tolist()) for r in every}
    numbers = {r.label: {"final_accuracy": float(end(r).mean()), "seeds": len(r.errors)} for r in every}
    dashed = tuple(runs.label for runs in added)
    return Figure(name, title, series, claims, "iteration", "test accuracy", note, dashed=dashed, numbers=numbers)


def points(values: Sequence[float], runs: Sequence[Runs]) -> tuple[list[float], list[float]]:
    """Final errors in dB over what was varied."""
    return list(values), [level(r, end) for r in runs]
