"""Regret while learning: static, network, dynamic, against a budget; path length, violation; what was paid.

Nodes add up their own losses, and how far everyone's expected loss is above the best of the round, see `play`.
The comparators are found here, exactly, from the stream that was played: draws are keyed, so it can be drawn again.
Regrets are per client. What is measured is for the one who simulates: no node knows it, and it is not private.

- `regret.static`: own losses, less those of the best fixed model, (2.6);
- `regret.budget`: the same against the best fixed model within the budget of every K rounds, (3.1) and (4.6);
- `regret.network`: every model on everyone's expected loss, less the best fixed model's;
- `regret.dynamic`: the same against the best model of each round, (5.7); `path` is how far that has moved, (5.8);
- `violation`: the signed mean of the constraint, over clients and rounds.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from archipel.algorithms.constraints import Constraint
from archipel.problems.losses.online import DISTANCE, LINEAR
from archipel.problems.losses.supervised import LOGISTIC, SQUARED
from archipel.regions import ANYWHERE, BALL, BOX, SIMPLEX, lowest
from archipel.theory.comparators import Logistic, Quadratic, best
from archipel.turns import Setup

METERED = 50_000_000  # numbers of a stream that are drawn again for a static comparator; beyond, there is none
CHUNK = 2_000_000  # numbers that are drawn at once
DEAR = 1.25  # a comparator without a closed form is found again when a run is this many times longer


# --- the best model of each round -------------------------------------------------------------------------------------


def projected(points: Any, region: Any) -> Any:
    """`regions.project` of many points."""
    if region.region == BALL:
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        return points * np.minimum(1.0, region.radius / np.maximum(lengths, 1e-300))
    if region.region == BOX:
        return np.clip(points, region.low, region.high)
    if region.region == SIMPLEX:
        size = points.shape[1]
        least = region.floor * region.radius / size
        rest = region.radius * (1 - region.floor)
        falling = -np.sort(-points, axis=1)
        shifts = (np.cumsum(falling, 1) - rest) / np.arange(1, size + 1)
        kept = np.count_nonzero(falling > shifts, axis=1) - 1
        return np.maximum(points - np.take_along_axis(shifts, kept[:, None], 1), 0) + least
    return points


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


def window_budget(budgets: Any, window: int) -> float:
    """What a fixed model may use in a round so that no `window` rounds in a row use more than they have, (4.6).

    Budgets come in turn for ever, weights stay: only the poorest window matters.
    """
    trips, rest = divmod(window, len(budgets))
    sums = np.cumsum(np.concatenate([[0.0], budgets, budgets]))
    poorest = np.min(sums[rest : rest + len(budgets)] - sums[: len(budgets)])
    return float((trips * budgets.sum() + poorest) / window)


# --- the meter ------------------------------------------------------------------------------------------------------


@dataclass
class Meter:
    """Reads the nodes' counters at a measurement: Plan.measure."""

    setup: Setup
    region: Any
    ridge: float
    centres: Any
    minima: Any
    constraint: Constraint | None = None  # with the budget of the K-benchmark
    violates: bool = False  # whether there is a budget at all
    role: str = "peer"
    accountant: Any = None
    record: Record | None = None
    due: float = 0.0

    def __call__(self, tables: dict[str, Any], rounds: int) -> dict[str, Any]:
        table = tables[self.role]
        found: dict[str, Any] = {}
        if rounds:
            found |= self.static(table, rounds)
            if len(self.minima):
                found |= self.moving(table, rounds)
            if self.violates:
                found["violation"] = float(table.overdrawn.sum() / max(table.rounds.sum(), 1.0))
        if self.role == "peer":
            found["disagreement"] = float(np.mean(np.sum((table.model - table.model.mean(0)) ** 2, 1)))
        if self.accountant is not None:
            levels = self.accountant.levels(tables)
            found |= {f"epsilon.{name}": float(paid.epsilon.max(initial=0.0)) for name, paid in levels.items()}
        return found

    def static(self, table: Any, rounds: int) -> dict[str, float]:
        """Own losses, less those of the best fixed model, in the region and within the budget."""
        dear = self.setup.task.loss == LOGISTIC or self.constraint is not None
        last = rounds == self.setup.rounds
        if self.record is None or (dear and rounds < self.due and not last):
            return {}
        if (table.rounds != rounds).any():  # who broke down did not play what the record holds
            return {}
        self.due = DEAR * rounds
        total, lost, clients = self.record.until(rounds), float(table.lost.sum()), self.setup.task.clients
        if self.region.region == ANYWHERE and self.record.loss == LINEAR and self.ridge == 0:
            return {}
        found = {"regret.static": (lost - total.value(best(total, self.region))) / clients}
        if self.constraint is not None:
            within = best(total, self.region, [self.constraint])
            found["regret.budget"] = (lost - total.value(within)) / clients
        return found

    def moving(self, table: Any, rounds: int) -> dict[str, float]:
        """Everyone's expected losses, less those of the best model of each round, and of the best fixed one."""
        behind = float(table.behind.mean())
        last = min(rounds, len(self.minima))
        path = np.linalg.norm(np.diff(self.minima[:last], axis=0), axis=1).sum() if last > 1 else 0.0
        rows = np.minimum(np.arange(rounds), len(self.centres) - 1) if len(self.centres) > 1 else np.zeros(1, int)
        centres, loss = self.centres[rows], self.setup.task.loss
        middle = centres.mean(0, keepdims=True)  # a mean of quadratics of one curvature is one around the mean
        fixed = minima_of(loss, self.ridge, middle, self.region)
        each = expected(loss, self.ridge, centres, self.minima[np.minimum(rows, len(self.minima) - 1)])
        gap = (each - expected(loss, self.ridge, centres, fixed)).mean() * rounds
        return {"regret.dynamic": behind, "regret.network": behind + float(gap), "path": float(path)}
