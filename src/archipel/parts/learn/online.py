"""One gradient step on the newest sample of a stream: LMS, and the same for any loss of a linear model."""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.node import add_scaled, dot, kernel
from archipel.parts import Learn, LearnPiece, ProtectPiece, empty
from archipel.problems.losses.supervised import SQUARED, slope
from archipel.turns import Setup


class Steps(NamedTuple):
    step: Any  # mu
    loss: Any


@kernel
def descent(model: Any, data: Any, settings: Any) -> Any:
    """What x is multiplied by in a step downhill: e = y - w x for the squared loss (whose 2 is in the step), (11)."""
    if settings.loss == SQUARED:
        return data.target[0] - dot(model, data.features)
    return -model.dtype.type(slope(settings.loss, dot(model, data.features), data.target[0]))


@cache
def refining(pay: Any, bound: Any, noise: Any) -> Any:
    @kernel
    def refine(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        """One step on the newest sample, (10) to (13) of PAO-Fed; bounded, paid for and noised if it is protected."""
        scale = pay(me, settings, moment)
        if scale < 0.0:
            return False
        error = bound(descent(me.model, data, settings.learn), data.features, settings)
        if error != 0.0:  # zero times a feature that is no number would be no number, and show
            add_scaled(me.model, settings.learn.step * error, data.features)
        noise(me.model, scale, me, settings, moment)
        return True

    return refine


@dataclass(frozen=True)
class OnlineStep(Learn, Checked):
    """A step of this length on each new sample; `autonomous`: also while the server cannot be reached."""

    step: float = key(0.4, "how far one sample moves the model", above=0, symbol="mu")
    autonomous: bool = key(True, "learn also while away")

    def sensitivity(self, setup: Setup) -> float:
        """Two clipped steps differ by at most this."""
        return 2 * self.step * float(setup.privacy.clip)

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        real = np.dtype(setup.dtype).type
        run = refining(protect.pay, protect.bound, protect.noise)
        settings = Steps(real(self.step), int(setup.task.loss))
        return LearnPiece(run, empty(setup.task.clients), settings, self.autonomous)
