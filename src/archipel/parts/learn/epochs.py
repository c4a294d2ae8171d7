"""Epochs over stored data: gradient steps on shuffled batches, for any loss of a linear model.

McMahan et al., AISTATS 2017, ClientUpdate. With `proximal` = mu every step also pulls towards the model that the round
began with: Li et al., MLSys 2020, (2), h_k(w; w_t) = F_k(w) + mu / 2 ||w - w_t||^2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.draws import BATCH, integer
from archipel.errors import BadInput
from archipel.node import add_scaled, dot, kernel
from archipel.parts import Learn, LearnPiece, ProtectPiece
from archipel.problems.losses.supervised import slope
from archipel.turns import Setup


class Passes(NamedTuple):
    step: Any
    batch: Any  # samples a step; 0: all of them
    epochs: Any  # passes over the data a round
    loss: Any
    shrinkage: Any  # of the gradient of l2 ||w||^2, a client's part
    proximal: Any  # mu


class Scratch(NamedTuple):
    samples: Any  # that stand behind what is said
    gradient: Any
    order: Any  # of the samples, in an epoch


@kernel
def as_it_is(me: Any, settings: Any) -> None:
    """The gradient is not corrected."""


@kernel
def towards_start(me: Any, settings: Any) -> None:
    """mu (w - w_t): FedProx."""
    for j in range(me.model.shape[0]):
        me.learn.gradient[j] += settings.learn.proximal * (me.model[j] - me.before[j])


@kernel
def shuffle(order: Any, count: Any, key: Any, epoch: Any) -> None:
    """A random order of the samples, anew in each epoch (Fisher and Yates)."""
    for i in range(count):
        order[i] = i
    for i in range(count - 1, 0, -1):
        j = integer(key, BATCH, epoch * count + i, i + 1)
        order[i], order[j] = order[j], order[i]


@kernel
def begin(me: Any, settings: Any) -> None:
    for j in range(me.model.shape[0]):
        me.learn.gradient[j] = settings.learn.shrinkage * me.model[j]


@kernel
def add(me: Any, x: Any, y: Any, count: Any, settings: Any) -> None:
    """A sample's part of the mean gradient over `count`."""
    add_scaled(me.learn.gradient, slope(settings.learn.loss, dot(x, me.model), y) / count, x)


@cache
def on_all(correct: Callable[..., Any]) -> Callable[..., Any]:
    @kernel
    def learn(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        """Whole steps: no order to draw."""
        count = data.y.shape[0]
        me.learn.samples[0] = count
        for _epoch in range(settings.learn.epochs if count > 0 else 0):
            begin(me, settings)
            for i in range(count):
                add(me, data.x[i], data.y[i], count, settings)
            correct(me, settings)
            add_scaled(me.model, -settings.learn.step, me.learn.gradient)
        return count > 0

    return learn


@cache
def in_batches(correct: Callable[..., Any]) -> Callable[..., Any]:
    @kernel
    def learn(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        """Epochs of steps over shuffled batches."""
        count, order = data.y.shape[0], me.learn.order
        me.learn.samples[0] = count
        for epoch in range(settings.learn.epochs):
            shuffle(order, count, moment.key, epoch)
            for first in range(0, count, settings.learn.batch):
                last = min(first + settings.learn.batch, count)
                begin(me, settings)
                for i in range(first, last):
                    add(me, data.x[order[i]], data.y[order[i]], last - first, settings)
                correct(me, settings)
                add_scaled(me.model, -settings.learn.step, me.learn.gradient)
        return count > 0

    return learn


def scratch(setup: Setup, batch: int) -> Scratch:
    """Room for a gradient and an order, a row a client."""
    rows, size = setup.task.clients, setup.task.size
    most = int(np.diff(setup.task.source.starts).max(initial=1)) if batch else 0
    return Scratch(
        np.zeros((rows, 1), np.uint32), np.zeros((rows, size), setup.dtype), np.zeros((rows, most), np.uint32)
    )


@dataclass(frozen=True)
class Epochs(Learn, Checked):
    """`epochs` passes over all samples in batches of `batch`; `proximal`: never far from where the round began."""

    data_kind: ClassVar[str] = "stored"

    step: float = key(0.05, "how far a batch moves the model", above=0)
    batch: int = key(0, "samples a step, 0 for all of a client's", at_least=0)
    epochs: int = key(1, "passes over the data a round", at_least=1, at_most=1_000_000)
    proximal: float = key(0.0, "the pull towards the model that the round began with", at_least=0, symbol="mu")

    def settings(self, setup: Setup) -> Passes:
        task, real = setup.task, np.dtype(setup.dtype).type
        if task.streams or task.regulariser[0] > 0:
            raise BadInput("problem.kind", "this one", "stored data and a smooth regulariser, for epochs of descent")
        shrinkage = 2 * task.regulariser[1] / task.clients
        return Passes(real(self.step), self.batch, self.epochs, int(task.loss), real(shrinkage), real(self.proximal))

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        correct = towards_start if self.proximal > 0 else as_it_is
        run = (in_batches if self.batch else on_all)(correct)
        return LearnPiece(run, scratch(setup, self.batch), self.settings(setup), before=True)

    def sensitivity(self, setup: Setup) -> float:
        """A stored sample is in every step of every round: only a whole round's change can be bounded."""
        raise BadInput("algorithm.protect.kind", "at-sample", "at-word: a stored sample is in the steps of every round")
