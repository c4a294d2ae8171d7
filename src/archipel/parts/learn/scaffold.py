"""Epochs whose every step is corrected by controls: y -= eta (g_k(y) - c_k + c).

Karimireddy et al., ICML 2020, (3). The mix part `controls` keeps c, and says how both move.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from archipel.node import extended, kernel
from archipel.parts import LearnPiece, ProtectPiece
from archipel.parts.learn.epochs import Epochs, Scratch, in_batches, on_all, scratch
from archipel.turns import Setup

Controlled = extended(
    Scratch,
    "Controlled",
    "control",  # c_k
    "common",  # c, as it was told last
    "moved",  # what the round's words say of controls
    "steps",  # K: how many a round had
)


@kernel
def by_controls(me: Any, settings: Any) -> None:
    """g - c_k + c."""
    me.learn.steps[0] += 1
    for j in range(me.model.shape[0]):
        me.learn.gradient[j] += me.learn.common[j] - me.learn.control[j]


@cache
def from_zero(run: Any) -> Any:
    @kernel
    def learn(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        me.learn.steps[0] = 0
        return run(me, data, settings, moment)

    return learn


@dataclass(frozen=True)
class ControlledEpochs(Epochs):
    """Epochs corrected by controls; only with the mix part that keeps them."""

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        run = from_zero((in_batches if self.batch else on_all)(by_controls))
        room = scratch(setup, self.batch)
        zeros = np.zeros_like(room.gradient)
        state = Controlled(*room, zeros, zeros.copy(), zeros.copy(), np.zeros((len(zeros), 1), np.int64))
        return LearnPiece(run, state, self.settings(setup), before=True, read_by="control")
