"""The largest components of a round's change, and a memory of what was not said.

Stich, Cordonnier, Jaggi, NeurIPS 2018; Karimireddy et al., ICML 2019 (error feedback): v = change + e, the k largest of
v are said, and e = v without them. Top-k is a contraction, ||v - top_k(v)||^2 <= (1 - k / d) ||v||^2, and what is said
and remembered sums up to all that ever changed.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.node import assign, kernel
from archipel.parts import BOUNDED, NONE, ROUND, Share, SharePiece
from archipel.parts.share.whole import Model, take
from archipel.parts.share.whole import write as tell
from archipel.turns import Setup


class Largest(NamedTuple):
    """Components, and where they belong."""

    values: Any
    places: Any  # of the smallest type that can count them


class Memory(NamedTuple):
    error: Any  # what was not said so far
    was: Any  # what it was when this round's word was first written; none where nobody lies
    round: Any  # the last round in which something was written


@kernel
def sift(said: Any, top: Any) -> None:
    """Let a number sink in a heap whose smallest is on top."""
    size, i = said.values.shape[0], top
    while 2 * i + 1 < size:
        below = 2 * i + 1
        if below + 1 < size and abs(said.values[below + 1]) < abs(said.values[below]):
            below += 1
        if abs(said.values[i]) <= abs(said.values[below]):
            break
        said.values[i], said.values[below] = said.values[below], said.values[i]
        said.places[i], said.places[below] = said.places[below], said.places[i]
        i = below


@kernel
def select(said: Any, vector: Any) -> None:
    """The largest components of a vector; of equal ones those that come first."""
    size = said.values.shape[0]
    for j in range(size):
        said.values[j] = vector[j]
        said.places[j] = j
    for i in range(size // 2 - 1, -1, -1):
        sift(said, i)
    for j in range(size, vector.shape[0]):
        if abs(vector[j]) > abs(said.values[0]):
            said.values[0] = vector[j]
            said.places[0] = j
            sift(said, 0)


@cache
def writing(feedback: bool, again: bool) -> Any:
    @kernel
    def write(said: Any, me: Any, settings: Any, moment: Any) -> None:
        """Say the largest, remember the rest. `again`: a liar's word takes the place of what it wrote at first."""
        error = me.share.error
        if again and me.share.round[0] == moment.round:
            assign(error, me.share.was)
        elif again:
            assign(me.share.was, error)
            me.share.round[0] = moment.round
        for j in range(error.shape[0]):
            change = me.model[j] - me.before[j]
            error[j] = error[j] + change if feedback else change
        select(said, error)
        for i in range(said.places.shape[0]):
            error[said.places[i]] = 0

    return write


@kernel
def fold(total: Any, count: Any, said: Any, factor: Any, settings: Any) -> None:
    for i in range(said.places.shape[0]):
        total[said.places[i]] += factor * said.values[i]
    for j in range(count.shape[0]):  # what is not said did not change
        count[j] += factor


@dataclass(frozen=True)
class TopK(Share, Checked):
    """The `size` largest components of what a round changed; `feedback`: the rest is remembered, and said later."""

    size: int = key(4, "components in a message", at_least=1, symbol="k")
    feedback: bool = key(True, "remember what was not said, and add it to the next change")

    def make(self, setup: Setup) -> SharePiece:
        size, rows, dtype = setup.task.size, setup.task.clients, setup.dtype
        if self.size > size:
            raise BadInput("algorithm.share.size", self.size, f"1 to {size}, the parameters of the model")
        word = Largest(np.zeros(self.size, dtype), np.zeros(self.size, np.min_scalar_type(size - 1)))
        again = self.feedback and setup.attack is not None
        was, round = np.zeros((rows, size if again else 0), dtype), np.full((rows, int(again)), -1, np.int64)
        return SharePiece(
            writing(self.feedback, again), tell, take, fold, word, Model(np.zeros(size, dtype)), NONE,
            Memory(np.zeros((rows, size), dtype), was, round), self.size, size, of_change=True, before=True,
            leaves=BOUNDED if self.feedback else ROUND,
        )  # fmt: skip
