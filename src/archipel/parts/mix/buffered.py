"""A buffer of changes: the server moves once it has enough of them, and late ones weigh less.

Nguyen et al., AISTATS 2022 (FedBuff), algorithm 1: x += eta_g / K sum_i s(tau_i) Delta_i once K changes are there, with
s(tau) = 1 / sqrt(1 + tau) and tau how often the server moved between a client's download and its change. The server
knows tau by itself: it remembers how often it had moved in each of the last rounds. A round is its smallest time: what
arrives in one round is put into the buffer at once, and the step is divided by what the buffer then holds.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.node import kernel
from archipel.parts import BOUNDED, Mix, MixPiece, Place, SharePiece
from archipel.parts.mix.mean import Sums
from archipel.turns import Setup


class Waits(NamedTuple):
    size: Any  # K
    step: Any  # eta_g


class Buffer(NamedTuple):
    total: Any
    count: Any
    moves: Any  # how often the server moved
    then: Any  # (limit + 1,): and had moved when each of the last rounds began


@cache
def hearing(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        fold(inbox.total[edge.age], inbox.count[edge.age], said, inbox.total.dtype.type(1), settings)

    return hear


@kernel
def finish(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    mine, ages = me.mix, me.mix.then.shape[0]
    mine.then[moment.round % ages] = mine.moves[0]
    for age in range(ages):
        if inbox.count[age, 0] > 0:
            stale = mine.moves[0] - mine.then[(moment.round - age) % ages]
            weight = mine.total.dtype.type(1.0 / math.sqrt(1.0 + stale))
            mine.count[0] += inbox.count[age, 0]
            for j in range(mine.total.shape[0]):
                mine.total[j] += weight * inbox.total[age, j]
    if mine.count[0] >= settings.mix.size:
        for j in range(mine.total.shape[0]):
            me.model[j] += settings.mix.step * mine.total[j] / mine.count[0]
            mine.total[j] = 0
        mine.count[0] = 0
        mine.moves[0] += 1


@kernel
def idle(me: Any, inbox: Any, settings: Any) -> Any:
    """Whether too few changes are there."""
    count = me.mix.count[0]
    for age in range(inbox.count.shape[0]):
        count += inbox.count[age, 0]
    return count < settings.mix.size


@dataclass(frozen=True)
class Buffered(Mix, Checked):
    """A server that moves once `size` changes are there, each weighed by how stale it is."""

    size: int = key(10, "changes that the server waits for", at_least=1, symbol="K")
    step: float = key(1.0, "how far the server goes", above=0, symbol="eta_g")
    limit: int = key(10, "how many rounds late a change may be and still count", at_least=0, at_most=LATEST)

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        if not place.of_change:
            raise BadInput("algorithm.share.kind", "models", "one that says changes: a buffer adds them up")
        if place.own:
            raise BadInput("topology.kind", "peers", "one with a server: a buffer of changes needs a model they change")
        rows, ages, dtype = place.receivers, self.limit + 1, place.dtype
        moves = np.zeros((rows, 1), np.int64), np.zeros((rows, ages), np.int64)
        state = Buffer(np.zeros((rows, place.size), dtype), np.zeros((rows, 1), dtype), *moves)
        table, real = np.zeros((ages, place.size), dtype), np.dtype(dtype).type
        inbox = Sums(table, table.copy())  # by age
        settings = Waits(self.size, real(self.step))
        return MixPiece(hearing(share.fold), finish, inbox, state, settings, self.limit, leaves=BOUNDED, idle=idle)
