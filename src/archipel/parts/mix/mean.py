"""The mean of what is heard, whatever its age."""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.node import kernel
from archipel.parts import NONE, MixPiece, Place, SharePiece, empty
from archipel.parts.mix.push_sum import PushSum
from archipel.turns import Setup


class Sums(NamedTuple):
    total: Any
    count: Any  # of each parameter, the weights of those who said something of it


@cache
def hearing(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        fold(inbox.total, inbox.count, said, inbox.total.dtype.type(edge.weight), settings)

    return hear


@kernel
def replace(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """(6) of PAO-Fed: the mean of all that arrive."""
    for j in range(me.model.shape[0]):
        if inbox.count[j] > 0:
            me.model[j] = inbox.total[j] / inbox.count[j]


@kernel
def blend(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """w_k += sum_l W_kl (w_l - w_k): who is not heard counts as one that agrees."""
    for j in range(me.model.shape[0]):
        me.model[j] += inbox.total[j] - inbox.count[j] * me.model[j]


@kernel
def move(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The mean change."""
    for j in range(me.model.shape[0]):
        if inbox.count[j] > 0:
            me.model[j] += inbox.total[j] / inbox.count[j]


@kernel
def drift(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The neighbours' changes, by their weights; one's own is in the model."""
    for j in range(me.model.shape[0]):
        me.model[j] += inbox.total[j]


def sums(place: Place) -> Sums:
    """An inbox of sums."""
    return Sums(np.zeros(place.size, place.dtype), np.zeros(place.size, place.dtype))


@dataclass(frozen=True)
class Mean(Checked):
    """At a server the mean of what clients say; among peers a step towards their neighbours, by Metropolis weights."""

    section: ClassVar[str] = "algorithm.mix"
    needs_whole: ClassVar[bool] = False

    limit: int = key(10, "how many rounds late a message may be and still count", at_least=0)

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        at_server, among = (move, drift) if place.of_change else (replace, blend)
        finish = among if place.own else at_server
        return MixPiece(hearing(share.fold), finish, sums(place), empty(place.receivers), NONE, self.limit)

    def one_way(self) -> PushSum:
        return PushSum(self.limit)

    def across(self) -> "Mean":
        return Mean(0)
