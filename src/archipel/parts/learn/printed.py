"""Algorithms 1 to 3 of the dissertation's chapter 2, as printed: to be shown, not to be used.

What is wrong with them (docs/errata.md has the commands): "sensitivity one" is not a bound, so that the true epsilon of
algorithms 1 and 2 is 2 sqrt(size) times the printed one where gradients have L2 norm one; algorithm 3 truncates its
noise, which is no pure differential privacy at all, and then rescales and normalises, which all but removes the
gradient.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.node import add_exactly, exact
from archipel.parts import Learn, LearnPiece, ProtectPiece
from archipel.parts.learn import maps
from archipel.parts.learn.regret import known_of, played_rows, player_of
from archipel.privacy.noise import LAPLACE, disturb
from archipel.problems.losses.online import loss_gradient
from archipel.problems.regions import ball, simplex
from archipel.turns import Setup

PRINTED = {1: "mirror descent with a Euclidean map", 2: "with entropy", 3: "exponential gradient"}


class PrintedSettings(NamedTuple):
    map: Any
    known: Any
    step: Any
    decay: Any
    noise: Any  # 1 / epsilon
    bound: Any  # b of algorithm 3
    kept: Any  # 0: the gradient is replaced by zero, to show what it does


class PrintedState(NamedTuple):
    gradient: Any
    noise: Any
    played: Any


@exact
def rescale(gradient: Any, noise: Any, bound: Any) -> None:
    """Algorithm 3, steps 9 to 12: noise beyond +-bound becomes bound / 2; rescale to [0, 1]; normalise.

    They all but remove the gradient, and a bounded noise is no pure differential privacy.
    """
    square = 0.0
    for j in range(gradient.shape[0]):
        drawn = noise[j]
        if abs(drawn) > bound:
            drawn = 0.5 * bound
        gradient[j] = (gradient[j] + drawn + bound) / (2.0 * bound + 1.0)
        square += gradient[j] * gradient[j]
    length = math.sqrt(square)
    for j in range(gradient.shape[0]):
        gradient[j] /= length


@cache
def as_printed(loss: int, truncated: bool, play: Any, move: Any) -> Any:
    @exact
    def learn(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        """Steps 5 to 13 of algorithms 1 to 3: Laplace(1 / epsilon) noise, step 1 / t."""
        s, mine = settings.learn, me.learn
        play(mine.played, me.model, data, s.known, moment.round)
        loss_gradient(mine.gradient, loss, me.model, data)
        for j in range(me.model.shape[0]):
            mine.gradient[j] = s.kept * (mine.gradient[j] + s.known.ridge * me.model[j])
            mine.noise[j] = 0.0
        disturb(mine.noise, LAPLACE, s.noise, moment.key)
        if truncated:
            rescale(mine.gradient, mine.noise, s.bound)
        else:
            add_exactly(mine.gradient, 1.0, mine.noise)
        move(me.model, me.model, mine.gradient, s.step / (moment.round + 1.0) ** s.decay, s.map)
        return True

    return learn


@dataclass(frozen=True)
class PrintedStep(Learn, Checked):
    """A step of algorithm 1, 2 or 3."""

    algorithm: int = key(3, "which of the three", at_least=1, at_most=3)
    epsilon: float = key(0.1, "the printed one", above=0)
    step: float = key(1.0, "the first step", above=0)
    decay: float = key(1.0, "how fast steps fall", at_least=0, at_most=1)
    radius: float = key(1.0, "of the region", above=0)
    bound: float | None = key(None, "b of algorithm 3", above=0)
    gradient: str = key("kept", "zero: replaced", choices=("kept", "zero"))

    def mapped(self, size: int) -> maps.MapSettings:
        """The mirror map of the algorithm."""
        if self.algorithm == 1:
            return maps.euclidean(ball(size, self.radius))
        return maps.entropy(simplex(size, self.radius))

    def start(self, setup: Setup) -> Any:
        return maps.start(self.mapped(setup.task.size)).astype(setup.dtype)

    def sensitivity(self, setup: Setup) -> float:
        """One, which is no bound."""
        return 1.0

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        if protect.accountant is not None:
            right = "none: the printed steps have noise of their own, which protects nobody"
            raise BadInput("privacy", "(a table)", right)
        mapped, rows = self.mapped(setup.task.size), setup.task.clients
        known = known_of(setup, mapped)
        bound = math.log(max(setup.rounds, 2)) ** 2 / self.epsilon if self.bound is None else float(self.bound)
        settings = PrintedSettings(
            mapped, known, float(self.step), float(self.decay), 1 / self.epsilon, bound, float(self.gradient == "kept")
        )
        play, move = player_of(setup, known), maps.map_of(mapped).step
        zeros = np.zeros((rows, setup.task.size), setup.dtype)
        state = PrintedState(zeros, zeros.copy(), played_rows(rows))
        run = as_printed(int(setup.task.loss), self.algorithm == 3, play, move)
        return LearnPiece(run, state, settings, True, **maps.kept(mapped))
