"""Steps on stored data for anything that a learner trains: a `torch.nn.Module`, or a linear model.

A learner (`problems.models.learners`) knows the gradient of a flat vector; what is done with it stands here, as
generators that ask it. No compiler takes it: these parts run through the plain engine, many clients side by side, with
the same protect, share and mix parts as everyone.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.generators import shuffled_batches
from archipel.node import add_exactly, add_scaled
from archipel.parts import Learn, LearnPiece, ProtectPiece, empty
from archipel.privacy.bounding import shrink
from archipel.problems.models.learners import (
    Asking,
    Descend,
    Gradient,
    answered,
    check_finite,
    learner_of,
    names_of,
    sizes_of,
)
from archipel.problems.regions import Region, anywhere, ball, project
from archipel.turns import Setup


class Training(NamedTuple):
    """The settings of all three ways."""

    learner: Any
    step: Any
    batch: Any
    samples: Any  # n_i
    epochs: Any = 1
    local_steps: Any = 0  # at most so many; 0: whole epochs
    fall: Any = 0.0  # the step of round t is step / t^fall
    region: Any = None


class Behind(NamedTuple):
    samples: Any  # that stand behind what is said, where only the client itself knows


class Stopped(NamedTuple):
    stopped: Any  # how often a node kept silent, its budget spent


def check_batch(batch: int, setup: Setup) -> Any:
    """Everyone's number of samples; refuse batches that a client cannot fill."""
    sizes = sizes_of(setup.task)
    small = int(np.argmin(sizes))
    if not 1 <= batch <= sizes[small]:
        right = f"1 to {sizes[small]}, the samples of {names_of(setup.task)[small]}, who has fewest"
        raise BadInput("algorithm.batch", batch, right)
    return sizes


class ByLearner(Learn, Checked):
    """A way to learn that asks a learner for gradients."""

    data_kind: ClassVar[str] = "deep"

    def start(self, setup: Setup) -> Any:
        """(size,): the learner's."""
        return learner_of(setup.task, setup.dtype).start().astype(setup.dtype)

    def sensitivity(self, setup: Setup) -> float:
        right = "one that protects what is said, at the word or at the mix: these steps use a sample many times"
        raise BadInput("algorithm.protect.kind", "at-sample", right)


@cache
def alone(asking: Any) -> Any:
    """A way to learn that asks, for one node: all is answered at once."""

    def learn(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        return answered(asking(me, data, settings, moment), settings.learn.learner)

    return learn


def learn_piece(asking: Any, state: Any, settings: Any, **more: Any) -> LearnPiece:
    return LearnPiece(alone(asking), state, settings, plain_only=True, asking=asking, **more)


# --- epochs ---------------------------------------------------------------------------------------------------------


def train(me: Any, data: Any, settings: Any, moment: Any) -> Asking:
    """ClientUpdate of FedAvg: epochs of steps over shuffled batches."""
    s = settings.learn
    left = s.local_steps or -1
    for epoch in range(s.epochs):
        for rows in shuffled_batches(len(data.y), s.batch, moment.key, epoch):
            if left == 0:
                break
            yield Descend(me.model, data, rows, s.step)
            left -= 1
    check_finite(me.model, s.step)
    return True


def gradient_norm(me: Any, data: Any, settings: Any, moment: Any) -> float:
    """Of the mean gradient over all samples: nobody is protected."""
    slope = np.zeros_like(me.model)
    settings.learn.learner.gradient(slope, me.model, data, np.arange(len(data.y)))
    return float(np.linalg.norm(slope.astype(float)))


@dataclass(frozen=True)
class Epochs(ByLearner):
    """`epochs` passes over a client's samples in batches, or at most `local_steps` steps (McMahan et al., 2017)."""

    step: float = key(0.1, "the learning rate", above=0, symbol="eta")
    batch: int = key(32, "samples in a step", at_least=1, symbol="B")
    epochs: int = key(1, "passes over a client's samples in a round", at_least=1, at_most=1_000_000, symbol="E")
    local_steps: int = key(0, "steps in a round, at most; 0: whole epochs", at_least=0)

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        sizes, learner = check_batch(self.batch, setup), learner_of(setup.task, setup.dtype)
        settings = Training(learner, self.step, self.batch, sizes, self.epochs, self.local_steps)
        behind = Behind(sizes[:, None].astype(np.uint32)) if setup.task.hides_sizes else empty(len(sizes))
        return learn_piece(train, behind, settings, norm=gradient_norm)


# --- one step -------------------------------------------------------------------------------------------------------


def batch_gradient(out: Any, model: Any, data: Any, scale: Any, settings: Any, moment: Any, index: int = 0) -> Asking:
    """The mean gradient of a batch: nobody is protected."""
    rows = shuffled_batches(len(data.y), settings.learn.batch, moment.key, index)[0]
    yield Gradient(out, model, data, rows)
    return 1.0


@cache
def stepping(pay: Any, gradient: Any, over_mass: bool) -> Any:
    def step(me: Any, data: Any, settings: Any, moment: Any) -> Asking:
        """(5.12) with the Euclidean map, paid before anything is computed: a step of eta_t / w_u, and a projection."""
        scale, s = pay(me, settings, moment), settings.learn
        if scale < 0.0:
            me.learn.stopped[0] += 1
            return False
        slope = np.zeros_like(me.model)
        divisor = yield from gradient(slope, me.model, data, scale, settings, moment)
        if divisor != 1.0:
            shrink(slope, 1.0 / divisor)
        length = s.step / (moment.round + 1) ** s.fall / (me.mix.mass[0] if over_mass else 1.0)
        add_exactly(me.model, -me.model.dtype.type(length), slope)
        project(me.model, me.model, s.region)
        check_finite(me.model, s.step)
        return True

    return step


def back(me: Any, settings: Any) -> None:
    """The model, projected into its ball."""
    project(me.model, me.model, settings.learn.region)


@dataclass(frozen=True)
class GradientStep(ByLearner):
    """One step a round, on one batch; `radius` confines models to a ball, 0 does not.

    `over_mass` divides the step by the mass of push-sum before the model is confined (dissertation, chapter 5), so it
    comes with that mix only.
    """

    step: float = key(0.1, "the step of the first round", above=0, symbol="eta")
    batch: int = key(128, "samples in a step", at_least=1)
    fall: float = key(0.0, "the step of round t is step / t^fall", at_least=0)
    radius: float = key(0.0, "of the ball that models stay in; 0: everywhere", at_least=0)
    over_mass: bool = key(False, "divide the step by the mass of push-sum")

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        sizes, learner = check_batch(self.batch, setup), learner_of(setup.task, setup.dtype)
        region: Region = ball(setup.task.size, self.radius) if self.radius else anywhere(setup.task.size)
        settings = Training(learner, self.step, self.batch, sizes, fall=self.fall, region=region)
        run = stepping(protect.pay, protect.gradient or batch_gradient, self.over_mass)
        state = Stopped(np.zeros((len(sizes), 1)))
        inside = {"region": "ball", "project": back} if self.radius else {}
        return learn_piece(run, state, settings, weighs=self.over_mass, norm=gradient_norm, **inside)


# --- DP-SGD ---------------------------------------------------------------------------------------------------------


@cache
def stepping_often(pay: Any, gradient: Any) -> Any:
    def steps(me: Any, data: Any, settings: Any, moment: Any) -> Asking:
        """Lines 8 to 14 of algorithm 1 of Chen et al., paid before anything is computed."""
        scale, s = pay(me, settings, moment), settings.learn
        if scale < 0.0:
            return False
        for j in range(s.local_steps):
            total = np.zeros_like(me.model)
            divisor = yield from gradient(total, me.model, data, scale, settings, moment, j)
            shrink(total, -s.step / divisor)
            add_scaled(me.model, me.model.dtype.type(1), total)
        check_finite(me.model, s.step)
        return True

    return steps


@dataclass(frozen=True)
class DpSgd(ByLearner):
    """`local_steps` steps a round, each on a batch of its own that is drawn in secret if it is protected.

    Abadi et al., CCS 2016: each example's gradient is clipped, and noise added to their sum.
    """

    step: float = key(0.1, "the learning rate", above=0, symbol="eta")
    batch: int = key(512, "samples in a step, on average", at_least=1)
    local_steps: int = key(5, "steps in a round", at_least=1, symbol="E")

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        sizes, learner = check_batch(self.batch, setup), learner_of(setup.task, setup.dtype)
        settings = Training(learner, self.step, self.batch, sizes, local_steps=self.local_steps)
        run = stepping_often(protect.pay, protect.gradient or batch_gradient)
        return learn_piece(run, empty(len(sizes)), settings, norm=protect.norm or gradient_norm)
