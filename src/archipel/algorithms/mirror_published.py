"""Algorithms 1 to 3 of the dissertation's chapter 2, as printed: to be shown, not to be used.

What is wrong with them (docs/errata.md has the commands): "sensitivity one" is not a bound, so that the true epsilon of
algorithms 1 and 2 is 2 sqrt(size) times the printed one where gradients have L2 norm one; algorithm 3 truncates its
noise, which is no pure differential privacy at all, and then rescales and normalises, which all but removes the
gradient. `check` says the true epsilon. There is no accountant: a [privacy] table is refused.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from archipel.algorithms import mirror
from archipel.algorithms.mirror_descent import mixing_of, peers, ridge_of
from archipel.algorithms.mirror_meters import Meter, minima_of, record_of
from archipel.algorithms.mirror_nodes import Inbox, PrintedSettings, Word, act_as_printed, hear, merge
from archipel.algorithms.mirror_privacy import priced
from archipel.errors import BadInput, did_you_mean
from archipel.regions import ball, simplex
from archipel.turns import Plan, Setup, Turn

PRINTED = {1: "mirror descent with a Euclidean map", 2: "with entropy", 3: "exponential gradient"}


@dataclass(frozen=True)
class PublishedMirrorDescent:
    """Chapter 2 as printed: `algorithm` 1 (Euclidean, on a ball), 2 (entropy) or 3 (noise truncated, rescaled).

    `epsilon` is the printed one, and noise Laplace(1 / epsilon). The step is `step` / t^`decay`. `bound` is b of
    algorithm 3, log(T)^2 / epsilon where it is not given. `gradient` = "zero" replaces the gradient by zero, to show
    that algorithm 3 does not need it. `start` is where a client begins: "uniform", or "printed" for figure 2.2's three.
    """

    topologies: ClassVar = ("digraph",)
    precision: ClassVar = "float64"
    data_kind: ClassVar = "stream"

    algorithm: int = 3
    epsilon: float = 0.1
    step: float = 1.0
    decay: float = 1.0
    radius: float = 1.0
    bound: float | None = None
    gradient: str = "kept"
    start: str = "uniform"

    def plan(self, setup: Setup) -> Plan:
        """Peers and their one turn, mixed as the graph's weights say: (5.13), or chapter 2's step 14."""
        self.check(setup)
        size, task, ridge = setup.task.size, setup.task, ridge_of(setup)
        mapped = self.mapped(size)
        centres = task.oracle.centres if task.oracle else np.zeros((0, size))
        minima = minima_of(task.loss, ridge, centres, mapped) if len(centres) else centres
        settings = PrintedSettings(
            *mapped, float(self.step), float(self.decay), int(task.loss), ridge, mixing_of("plain", setup.graph),
            1 / self.epsilon, self.truncation(setup.rounds), float(self.gradient == "kept"), centres, minima,
        )  # fmt: skip
        table = peers(task.clients, mirror.start(mapped), priced(setup._replace(privacy=None)))
        if self.start == "printed":
            table.model[:] = self.unequal(task.clients, size)
        word = Word(np.zeros(size), np.zeros(1))
        turn = Turn("peer", "peer", act_as_printed, hear, merge, word, Inbox(np.zeros(size), np.zeros(1)))
        meter = Meter(setup, mapped, ridge, centres, minima, record=record_of(setup, ridge))
        return Plan({"peer": table}, (turn,), settings, {0: size}, measure=meter)

    def mapped(self, size: int) -> mirror.MapSettings:
        """The mirror map of the algorithm."""
        if self.algorithm == 1:
            return mirror.euclidean(ball(size, self.radius))
        return mirror.entropy(simplex(size, self.radius))

    def truncation(self, rounds: int) -> float:
        """b of algorithm 3; 0 for the others."""
        if self.algorithm != 3:
            return 0.0
        return math.log(max(rounds, 2)) ** 2 / self.epsilon if self.bound is None else float(self.bound)

    def unequal(self, clients: int, size: int) -> Any:
        """Where the three clients of figure 2.2 begin."""
        rows = np.array(
            [[1 / 2, 0, 0, 1 / 4, 1 / 4], [1 / 4, 1 / 8, 1 / 8, 1 / 4, 1 / 4], [1 / 5, 1 / 10, 2 / 5, 1 / 5, 1 / 10]]
        )
        if (clients, size) != rows.shape or self.algorithm == 1:
            right = '"uniform", or three clients with five parameters on the simplex'
            raise BadInput("algorithm.start", self.start, right)
        return rows

    def check(self, setup: Setup) -> dict[str, float]:
        """Refuse what makes no sense; the printed epsilon, and the true one for gradients of L2 norm one."""
        if self.algorithm not in PRINTED:
            raise BadInput("algorithm.algorithm", self.algorithm, "1, 2 or 3, as in chapter 2")
        for name in ("epsilon", "step", "radius"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadInput(f"algorithm.{name}", getattr(self, name), "a positive number")
        if self.bound is not None and not 0 < self.bound < math.inf:
            raise BadInput("algorithm.bound", self.bound, "a positive number, or none")
        if not 0 <= self.decay <= 1:
            raise BadInput("algorithm.decay", self.decay, "an exponent from 0 to 1")
        for name, words in (("gradient", ("kept", "zero")), ("start", ("uniform", "printed"))):
            if getattr(self, name) not in words:
                raise BadInput(f"algorithm.{name}", getattr(self, name), did_you_mean(getattr(self, name), words))
        true = math.inf if self.algorithm == 3 else 2 * math.sqrt(setup.task.size) * self.epsilon
        return {"printed_epsilon": self.epsilon, "true_epsilon": true}

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """Every peer's own model."""
        return {"clients": tables["peer"].model}
