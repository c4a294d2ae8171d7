"""Regret while learning: static, network, dynamic, against a budget; path length, violation; what was paid.

Nodes add up their own losses, and how far everyone's expected loss is above the best of the round, see `playing`.
The comparators are found here, exactly, from the stream that was played: draws are keyed, so it can be drawn again.
Regrets are per client. What is measured is for the one who simulates: no node knows it, and it is not private.

- `regret.static`: own losses, less those of the best fixed model, (2.6);
- `regret.budget`: the same against the best fixed model within the budget of every K rounds, (3.1) and (4.6);
- `regret.network`: every model on everyone's expected loss, less the best fixed model's;
- `regret.dynamic`: the same against the best model of each round, (5.7); `path` is how far that has moved, (5.8);
- `violation`: the signed mean of the constraint, over clients and rounds.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import dot_exactly, exact
from archipel.parts.learn.constraints import Constraint
from archipel.problems.losses.online import DISTANCE, LINEAR, loss_value, square_distance
from archipel.problems.losses.supervised import LOGISTIC, SQUARED
from archipel.problems.regions import ANYWHERE, lowest, projected
from archipel.theory.comparators import Logistic, Quadratic, best
from archipel.turns import Plan, Setup

METERED = 50_000_000  # numbers of a stream that are drawn again for a static comparator; beyond, there is none
CHUNK = 2_000_000  # numbers that are drawn at once
DEAR = 1.25  # a comparator without a closed form is found again when a run is this many times longer


# --- inside node functions --------------------------------------------------------------------------------------------


# A node's counters, `me.learn.played`, of which no one is told: its own losses; everyone's expected loss, less that of
# the best model of the round; the constraint; rounds.
LOST, BEHIND, OVERDRAWN, ROUNDS = 0, 1, 2, 3


class Known(NamedTuple):
    """What counting needs to know."""

    ridge: Any
    centres: Any  # what everyone's expected loss is around, no rows if it is unknown
    minima: Any  # and where it is least


@exact
def excess(loss: Any, ridge: Any, model: Any, best: Any, centre: Any) -> Any:
    """F_t(model) - F_t(best), where F_t is the mean over clients of their expected losses; problems.drifting's."""
    more = 0.0
    if ridge > 0.0:
        more = 0.5 * ridge * (dot_exactly(model, model) - dot_exactly(best, best))
    if loss == LINEAR:
        return more + dot_exactly(centre, model) - dot_exactly(centre, best)
    apart = square_distance(model, centre) - square_distance(best, centre)
    return more + apart * (0.5 if loss == DISTANCE else 1.0 / centre.shape[0])


@cache
def playing(loss: int, ridged: bool, moving: bool) -> Any:
    """Of a loss; with a ridge; where the best model of each round is known."""

    @exact
    def play(played: Any, model: Any, data: Any, known: Any, round: Any) -> None:
        """Count what playing the model costs."""
        played[ROUNDS] += 1.0
        played[LOST] += loss_value(loss, model, data)
        if ridged:
            played[LOST] += 0.5 * known.ridge * dot_exactly(model, model)
        if moving:
            now = min(round, known.centres.shape[0] - 1)
            played[BEHIND] += excess(loss, known.ridge, model, known.minima[now], known.centres[now])

    return play


def known_of(setup: Setup, region: Any) -> Known:
    """What a stream says of itself, for meters."""
    task = setup.task
    ridge = float(2 * task.regulariser[1] / task.clients)  # gamma of 2.4's gamma / 2 ||x||^2, for each client
    centres = task.oracle.centres if task.oracle else np.zeros((0, task.size))
    minima = minima_of(task.loss, ridge, centres, region) if len(centres) else centres
    return Known(ridge, centres[: len(centres) if len(minima) else 0], minima)


def metered(plan: Plan) -> Any:
    """The settings of a plan's learn part, which counts what it loses; another is refused."""
    learn = plan.settings.learn
    if "known" not in learn._fields:
        right = "one of the mirror's family, whose regret this kind measures; for others there is composed"
        raise BadInput("algorithm.learn", "(replaced)", right)
    return learn


def player_of(setup: Setup, known: Known) -> Any:
    """The counting of a task."""
    return playing(int(setup.task.loss), known.ridge > 0, len(known.centres) > 0)


def played_rows(rows: int) -> Any:
    """Counters, all at zero."""
    return np.zeros((rows, 4))


# --- the best model of each round -------------------------------------------------------------------------------------


def minima_of(loss: int, ridge: float, centres: Any, region: Any) -> Any:
    """x*_t of (5.6) for `problems.drifting`: where expected loss and ridge are least in the region."""
    if loss == LINEAR and ridge == 0:
        if region.region == ANYWHERE:
            return centres[:0]  # there is none
        return np.array([lowest(region, slope) for slope in centres])
    if loss == LINEAR:
        return projected(-centres / ridge, region)
    curvature = 1.0 if loss == DISTANCE else 2 / centres.shape[1]
    return projected(centres * (curvature / (curvature + ridge)), region)


def expected(loss: int, ridge: float, centres: Any, models: Any) -> Any:
    """F_t(models) of every round, but for a constant that no model changes."""
    more = ridge / 2 * np.sum(models**2, -1)
    if loss == LINEAR:
        return more + np.sum(centres * models, -1)
    factor = 0.5 if loss == DISTANCE else 1 / centres.shape[-1]
    return more + factor * np.sum((models - centres) ** 2, -1)


# --- the best fixed model ---------------------------------------------------------------------------------------------


@dataclass
class Record:
    """The losses of all clients up to some round, added up as the stream goes on."""

    past: Any
    loss: int
    ridge: float
    clients: int
    size: int
    done: int = 0
    samples: int = 0  # that were there by then
    total: Any = None
    kept: list[Any] = field(default_factory=list)  # of logistic losses, which have no sum but the samples

    def until(self, rounds: int) -> Any:
        """Their sum over rounds 0 to rounds - 1, for `comparators.best`."""
        stretch = max(1, CHUNK // (self.clients * self.size))
        while self.done < rounds:
            last = min(rounds, self.done + stretch)
            features, targets = self.past(self.done, last)
            self.add(features.reshape(-1, self.size), targets.reshape(-1))
            self.done = last
        if self.loss == LOGISTIC:
            features, targets = (np.concatenate(parts) for parts in zip(*self.kept))
            self.kept = [(features, targets)]
            return Logistic(features, targets, self.ridge * len(targets))
        return self.total

    def add(self, features: Any, targets: Any) -> None:
        """Some more samples."""
        self.samples += len(targets)
        if self.loss == LOGISTIC:
            self.kept.append((features, targets))
            return
        many, eye = len(targets), np.eye(self.size)
        if self.loss == LINEAR:
            new = (0 * eye, features.sum(0), 0.0)
        elif self.loss == DISTANCE:
            new = (many * eye, -features.sum(0), float(np.sum(features**2) / 2))
        else:
            new = (2 * features.T @ features, -2 * targets @ features, float(targets @ targets))
        before = (self.total.curvature, self.total.slope, self.total.constant) if self.total else (0.0, 0.0, 0.0)
        curvature, slope, constant = (old + more for old, more in zip(before, new))
        self.total = Quadratic(curvature + self.ridge * many * eye, slope, constant)


def record_of(setup: Setup, ridge: float) -> Record | None:
    """The record of a stream, where it can be drawn again and is not too long."""
    task = setup.task
    if task.oracle is None or setup.rounds * task.clients * task.size > METERED:
        return None
    if task.loss not in (LINEAR, DISTANCE, SQUARED, LOGISTIC):
        return None
    return Record(task.oracle.past, task.loss, ridge, task.clients, task.size)


# --- the meter ------------------------------------------------------------------------------------------------------


@dataclass
class Meter:
    """Reads the nodes' counters at a measurement: Plan.measure."""

    setup: Setup
    region: Any
    known: Known
    constraint: Constraint | None = None  # with the budget of the K-benchmark
    violates: bool = False  # whether there is a budget at all
    accountant: Any = None
    due: float = 0.0

    def __post_init__(self) -> None:
        self.record = record_of(self.setup, self.known.ridge)

    def state(self) -> dict[str, Any]:
        """What it remembers, for a checkpoint: sums as they were rounded. Samples are drawn again."""
        record = self.record
        found = record.total if record else None
        total = [found.curvature.tolist(), found.slope.tolist(), found.constant] if found else None
        counted = {"done": record.done, "samples": record.samples} if record else {"done": 0, "samples": 0}
        return {"due": self.due, **counted, "total": total}

    def restore(self, state: dict[str, Any]) -> None:
        """Be what a checkpoint says."""
        self.due = float(state["due"])
        if self.record is None or not state["done"]:
            return
        if self.record.loss == LOGISTIC:
            self.record.until(state["done"])
        else:
            curvature, slope, constant = state["total"]
            self.record.total = Quadratic(np.array(curvature), np.array(slope), float(constant))
            self.record.done, self.record.samples = int(state["done"]), int(state["samples"])

    def __call__(self, tables: dict[str, Any], rounds: int) -> dict[str, Any]:
        nodes = tables["peer" if "peer" in tables else "client"]
        played = nodes.learn.played
        found: dict[str, Any] = {}
        if rounds:
            found |= self.static(played, rounds)
            if len(self.known.minima):
                found |= self.moving(played, rounds)
            if self.violates:
                found["violation"] = float(played[:, OVERDRAWN].sum() / max(played[:, ROUNDS].sum(), 1.0))
        if "peer" in tables:
            found["disagreement"] = float(np.mean(np.sum((nodes.model - nodes.model.mean(0)) ** 2, 1)))
        if self.accountant is not None:
            levels = self.accountant.levels(tables)
            found |= {f"epsilon.{name}": float(paid.epsilon.max(initial=0.0)) for name, paid in levels.items()}
        return found

    def static(self, played: Any, rounds: int) -> dict[str, float]:
        """Own losses, less those of the best fixed model, in the region and within the budget."""
        dear = self.setup.task.loss == LOGISTIC or self.constraint is not None
        last = rounds == self.setup.rounds
        if self.record is None or (dear and rounds < self.due and not last):
            return {}
        total, lost, clients = self.record.until(rounds), float(played[:, LOST].sum()), self.setup.task.clients
        if played[:, ROUNDS].sum() != self.record.samples or not self.record.samples:  # who broke down did not play all
            return {}
        self.due = DEAR * rounds
        if self.region.region == ANYWHERE and self.record.loss == LINEAR and self.known.ridge == 0:
            return {}
        found = {"regret.static": (lost - total.value(best(total, self.region))) / clients}
        if self.constraint is not None:
            within = best(total, self.region, [self.constraint])
            found["regret.budget"] = (lost - total.value(within)) / clients
        return found

    def moving(self, played: Any, rounds: int) -> dict[str, float]:
        """Everyone's expected losses, less those of the best model of each round, and of the best fixed one."""
        ridge, every, best_ones = self.known
        behind = float(played[:, BEHIND].mean())
        last = min(rounds, len(best_ones))
        path = np.linalg.norm(np.diff(best_ones[:last], axis=0), axis=1).sum() if last > 1 else 0.0
        rows = np.minimum(np.arange(rounds), len(every) - 1) if len(every) > 1 else np.zeros(1, int)
        centres, loss = every[rows], self.setup.task.loss
        middle = centres.mean(0, keepdims=True)  # a mean of quadratics of one curvature is one around the mean
        fixed = minima_of(loss, ridge, middle, self.region)
        each = expected(loss, ridge, centres, best_ones[np.minimum(rows, len(best_ones) - 1)])
        gap = (each - expected(loss, ridge, centres, fixed)).mean() * rounds
        return {"regret.dynamic": behind, "regret.network": behind + float(gap), "path": float(path)}
