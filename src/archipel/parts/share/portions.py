"""Partial sharing: a few neighbouring parameters a message, others in every round.

A portion is `size` parameters from a start on; it wraps around the end of the model. The PAO-Fed article's selection
matrices, diag(M_{k,n}), are exactly that: (7) shifts the start by the portion's size each round.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.draws import PORTION, integer
from archipel.errors import BadInput
from archipel.node import kernel
from archipel.parts import ROUND, Share, SharePiece, empty
from archipel.turns import Setup

CYCLE, RANDOM = 0, 1  # how the portion moves from round to round


class Portion(NamedTuple):
    """A part of a model on its way: the values and where they belong."""

    values: Any
    start: Any  # one number, as an array


class Selection(NamedTuple):
    length: Any  # m, what a node says
    spread: Any  # 0 coordinated (C), 1 uncoordinated (U)
    ahead: Any  # 0: share what was received (C0, U0); 1: the next portion, (8)
    order: Any  # CYCLE or RANDOM
    kept: Any  # of a full download, how many parameters a client takes


@kernel
def first(settings: Any, size: Any, node: Any, moment: Any, ahead: Any) -> Any:
    """Where the portion M_{k,n} starts, (7): the same for all clients (spread 0), or each its own (spread 1).

    A random one is the same at both ends of a link, because both know the key.
    """
    if settings.order == RANDOM:
        return integer(moment.key, PORTION, ahead, size)
    return (settings.length * (moment.round + ahead + settings.spread * node)) % size


@kernel
def cut(portion: Any, model: Any, start: Any) -> None:
    """Copy a portion out of the model."""
    portion.start[0] = start
    j = start
    for i in range(portion.values.shape[0]):
        portion.values[i] = model[j]
        j += 1
        if j == model.shape[0]:
            j = 0


@kernel
def write(said: Any, me: Any, settings: Any, moment: Any) -> None:
    """S_{k,n} w_{k,n+1}: with ahead = 1, M_{k,n+1}, which local learning refined since it was last received, (8)."""
    cut(said, me.model, first(settings.share, me.model.shape[0], moment.node, moment, settings.share.ahead))


@kernel
def tell(said: Any, me: Any, settings: Any, moment: Any) -> None:
    """M_{k,n} w_n, for client k."""
    cut(said, me.model, first(settings.share, me.model.shape[0], moment.peer, moment, 0))


@kernel
def take(me: Any, said: Any, settings: Any) -> None:
    """The part of (10) that puts M_{k,n} w_n into the local model; of a full download it may ignore the end."""
    size = me.model.shape[0]
    j = said.start[0]
    for i in range(min(settings.share.kept, said.values.shape[0])):
        me.model[j] = said.values[i]
        j += 1
        if j == size:
            j = 0


@kernel
def fold(total: Any, count: Any, said: Any, factor: Any, settings: Any) -> None:
    j = said.start[0]
    for i in range(said.values.shape[0]):
        total[j] += factor * said.values[i]
        count[j] += factor
        j += 1
        if j == total.shape[0]:
            j = 0


@dataclass(frozen=True)
class Portions(Share, Checked):
    """`size` parameters a message; coordinated: all nodes the same ones."""

    keys: ClassVar[tuple[str, str]] = ("algorithm.share.size", "algorithm.share.ignore")  # as a user writes them

    size: int = key(4, "parameters in a message", at_least=1, symbol="m")
    coordinated: bool = key(True, "all nodes share the same portion in a round")
    next: bool = key(True, "share the portion that is received next, which was learned on since it came")
    order: str = key("cycle", "how portions follow each other", choices=("cycle", "random"))
    download: str = key("portion", "what a server sends", choices=("portion", "full"))
    ignore: int = key(0, "parameters of a full download that a client leaves", at_least=0)

    def make(self, setup: Setup) -> SharePiece:
        size, rows = setup.task.size, setup.task.clients
        if self.size > size:
            raise BadInput(self.keys[0], self.size, f"1 to {size}, the parameters of the model")
        if self.ignore >= size:
            raise BadInput(self.keys[1], self.ignore, f"0 to {size - 1} parameters of a full download")
        full = self.download == "full"
        down = size if full else self.size
        order = RANDOM if self.order == "random" else CYCLE
        kept = size - self.ignore if full else self.size
        settings = Selection(self.size, int(not self.coordinated), int(self.next), order, kept)
        word, told = (Portion(np.zeros(n, setup.dtype), np.zeros(1, np.uint32)) for n in (self.size, down))
        return SharePiece(
            write, tell, take, fold, word, told, settings, empty(rows), self.size, down, whole=self.size == size,
            leaves=() if self.size == size else ROUND,
        )  # fmt: skip
