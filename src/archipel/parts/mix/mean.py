"""The mean of what is heard, whatever its age."""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.node import add_scaled, fast, kernel
from archipel.parts import NONE, Mix, MixPiece, Place, SharePiece, empty
from archipel.parts.mix.push_sum import PushSum
from archipel.problems.models.learners import public_sizes
from archipel.turns import Setup


class Sums(NamedTuple):
    total: Any
    count: Any  # of each parameter, the weights of those who said something of it; one for all where words are whole


class Counts(NamedTuple):
    samples: Any  # (senders,): what a word counts


@cache
def hearing(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        fold(inbox.total, inbox.count, said, inbox.total.dtype.type(edge.weight), settings)

    return hear


@cache
def hearing_by_samples(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        weight = edge.weight * settings.mix.samples[edge.sender]
        fold(inbox.total, inbox.count, said, inbox.total.dtype.type(weight), settings)

    return hear


def replace(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """(6) of PAO-Fed: the mean of all that arrive."""
    np.divide(inbox.total, inbox.count, out=me.model, where=inbox.count > 0)  # a count of one length or the other


@fast(replace)
def replace_loop(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    if inbox.count.shape[0] == 1:
        if inbox.count[0] > 0:
            for j in range(me.model.shape[0]):
                me.model[j] = inbox.total[j] / inbox.count[0]
        return
    for j in range(me.model.shape[0]):
        if inbox.count[j] > 0:
            me.model[j] = inbox.total[j] / inbox.count[j]


def blend(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """w_k += sum_l W_kl (w_l - w_k): who is not heard counts as one that agrees."""
    np.add(me.model, inbox.total - inbox.count * me.model, out=me.model)


@fast(blend)
def blend_loop(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    if inbox.count.shape[0] == 1:
        count = inbox.count[0]
        for j in range(me.model.shape[0]):
            me.model[j] += inbox.total[j] - count * me.model[j]
        return
    for j in range(me.model.shape[0]):
        me.model[j] += inbox.total[j] - inbox.count[j] * me.model[j]


def move(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The mean change."""
    heard = inbox.count > 0
    shares = np.divide(1, inbox.count, where=heard, out=np.zeros_like(inbox.count))
    np.add(me.model, inbox.total * shares, out=me.model)


@fast(move)
def move_loop(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    one = me.model.dtype.type(1)
    if inbox.count.shape[0] == 1:
        if inbox.count[0] > 0:
            add_scaled(me.model, one / inbox.count[0], inbox.total)
        return
    for j in range(me.model.shape[0]):
        if inbox.count[j] > 0:
            me.model[j] += inbox.total[j] * (one / inbox.count[j])


@kernel
def drift(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The neighbours' changes, by their weights; one's own is in the model."""
    add_scaled(me.model, me.model.dtype.type(1), inbox.total)


def sums(place: Place, one_count: bool = False) -> Sums:
    """An inbox of sums."""
    return Sums(np.zeros(place.size, place.dtype), np.zeros(1 if one_count else place.size, place.dtype))


@dataclass(frozen=True)
class Mean(Mix, Checked):
    """At a server the mean of what clients say; among peers a step towards their neighbours, by Metropolis weights.

    `by_samples` weighs clients by their samples, as FedAvg does. Among peers links have weights of their own.
    """

    limit: int = key(10, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)
    by_samples: bool = key(False, "a server weighs clients by their samples")

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        at_server, among = (move, drift) if place.of_change else (replace, blend)
        finish = among if place.own else at_server
        hear = hearing(share.fold)
        settings: Any = NONE
        if self.by_samples and not place.own:
            hear, settings = hearing_by_samples(share.fold), Counts(public_sizes(setup.task).astype(float))
        state, inbox = empty(place.receivers), sums(place, share.uniform)
        return MixPiece(hear, finish, inbox, state, settings, self.limit, adds=True)

    def one_way(self) -> PushSum:
        return PushSum(self.limit)
