"""The gradient of the newest sample of a stream, which does not move the model: others are told of it."""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked
from archipel.errors import BadInput
from archipel.node import kernel, table_of
from archipel.parts import Learn, LearnPiece, ProtectPiece
from archipel.parts.learn.online import Steps, descent
from archipel.turns import Setup


class Downhill(NamedTuple):
    direction: Any  # e x, for the squared loss


@cache
def finding(pay: Any, bound: Any, noise: Any) -> Any:
    @kernel
    def find(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        """The way down; bounded, paid for and noised if it is protected."""
        scale = pay(me, settings, moment)
        if scale < 0.0:
            return False
        error = bound(descent(me.model, data, settings.learn), data.features, settings)
        for j in range(me.model.shape[0]):
            me.learn.direction[j] = error * data.features[j] if error != 0.0 else error
        noise(me.learn.direction, scale, me, settings, moment)
        return True

    return find


@dataclass(frozen=True)
class Gradient(Learn, Checked):
    """The descent direction of each new sample, for a share part that says it."""

    def sensitivity(self, setup: Setup) -> float:
        """Two clipped gradients differ by at most this."""
        return 2 * float(setup.privacy.clip)

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        if protect.cancels:
            right = "noise that is drawn anew: others hear signs of each gradient, not their sum"
            raise BadInput("algorithm.protect.kind", "correlated", right)
        real = np.dtype(setup.dtype).type
        state = Downhill(table_of((setup.task.clients, setup.task.size), setup.dtype))
        run = finding(protect.pay, protect.bound, protect.noise)
        return LearnPiece(run, state, Steps(real(1), int(setup.task.loss)), read_by="direction")
