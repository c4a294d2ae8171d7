"""Clients look, a server steps: the gradient of the newest sample, clipped and noised, as a step in a server's region.

Two parts that only come together: what a client learns, and what it says of it. What a server makes of that goes back
into the region, whatever the mix.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from archipel.describe import Checked, key
from archipel.node import assign, kernel
from archipel.parts import LearnPiece, ProtectPiece, Share, SharePiece, empty
from archipel.parts.learn import maps
from archipel.parts.learn.mirror import MirrorState, MirrorStep
from archipel.parts.learn.regret import played_rows, player_of
from archipel.parts.protect.gradient import noise_of, typical_scale
from archipel.parts.share import whole
from archipel.privacy.noise import GAUSSIAN
from archipel.turns import Setup


@cache
def offering(play: Any, look: Any, step_of: Any) -> Any:
    @kernel
    def learn(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        """Play the model; the step on this round's sample, clipped and noised, and paid before."""
        play(me.learn.played, me.model, data, settings.learn.known, moment.round)
        if not moment.present or look(me, data, settings, moment) < 0.0:
            return False
        step = step_of(settings.learn.steps, moment.round)
        for j in range(me.model.shape[0]):
            me.learn.gradient[j] *= -step
        return True

    return learn


@kernel
def write(said: Any, me: Any, settings: Any, moment: Any) -> None:
    assign(said.values, me.learn.gradient)


@dataclass(frozen=True)
class Offered(MirrorStep):
    """A step on the newest sample, for a server to take. It fits the noise of the mean of those that a server asks."""

    asked: float = key(1.0, "chance that a server asks a client that is there", above=0, at_most=1)

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        self.check(setup)
        rows, settings = setup.task.clients, self.settings(setup, protect)
        play, look = player_of(setup, settings.known), self.looks(setup, protect, settings.known)
        state = MirrorState(np.zeros((rows, setup.task.size), setup.dtype), played_rows(rows), empty(rows))
        run = offering(play, look, self.step_of())
        return LearnPiece(run, state, settings, True, read_by="gradient", **maps.kept(settings.map))

    def length(self, setup: Setup, protect: ProtectPiece, mapped: Any, slope: float, spread: float) -> float:
        drawn, policy = protect.drawn or noise_of(setup), setup.privacy
        heard = max(self.asked * setup.task.clients / setup.graph.servers, 1.0)
        kind = "gaussian" if drawn.law == GAUSSIAN else "laplace"
        longest = self.gradient if policy is None else policy.clip
        return maps.noisy_length(longest, typical_scale(drawn) / math.sqrt(heard), setup.task.size, kind, mapped)


@dataclass(frozen=True)
class OfferedSteps(Share, Checked):
    """A client says its step, and is told the server's model."""

    def make(self, setup: Setup) -> SharePiece:
        return whole.Whole().make(setup)._replace(write=write, of_change=True, needs=("gradient",))
