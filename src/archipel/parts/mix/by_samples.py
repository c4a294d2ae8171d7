"""The mean by samples: who learned from more counts for more. McMahan et al., AISTATS 2017.

Each server weighs its clients, and servers mix their models as equals. Among peers links have weights of their own, and
everyone counts as one: Sun et al., IEEE TPAMI 2023 (DFedAvg); over links that go one way, push-sum.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.node import kernel
from archipel.parts import NONE, Mix, MixPiece, Place, SharePiece, empty
from archipel.parts.mix.mean import Mean, move, replace, sums
from archipel.parts.mix.push_sum import PushSum
from archipel.turns import Setup


class Counted(NamedTuple):
    """A word, and how many samples stand behind it."""

    said: Any
    samples: Any


@cache
def counting(write: Any) -> Any:
    @kernel
    def counted(said: Any, me: Any, settings: Any, moment: Any) -> None:
        write(said.said, me, settings, moment)
        said.samples[0] = me.learn.samples[0]

    return counted


@cache
def hearing(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        fold(inbox.total, inbox.count, said.said, inbox.total.dtype.type(said.samples[0]), settings)

    return hear


def counted(word: Any) -> Counted:
    """A word with room for a number of samples."""
    return Counted(word, np.zeros(1, np.uint32))


@dataclass(frozen=True)
class BySamples(Mix, Checked):
    """At a server the mean of what clients say, by their samples; among peers everyone counts as one."""

    limit: int = key(0, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        if place.own:
            return Mean(self.limit).make(setup, share, place)
        finish = move if place.of_change else replace
        return MixPiece(
            hearing(share.fold), finish, sums(place, share.uniform), empty(place.receivers), NONE, self.limit,
            write=counting(share.write), word=counted(share.word), needs=("samples",), adds=True,
        )  # fmt: skip

    def one_way(self) -> PushSum:
        return PushSum(self.limit)
