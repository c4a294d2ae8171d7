"""Whole models, pushed: push-sum with one weight per node, and the mixings that the dissertation prints.

A node u has a weight w_u, at first 1. It says w_u z_u and w_u, times weights W_vu that with its own share sum to one:

    w_u' = sum_v W_uv w_v,    y_u' = sum_v W_uv w_v z_v / w_u'

With Metropolis weights, among peers, all weights stay one. At a server it is the mean: what push-sum gives if everyone
hears everyone with equal shares. Portions need a mass for every parameter: that is `push_sum`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.node import add_exactly, exact, kernel
from archipel.parts import NONE, Mix, MixPiece, Place, SharePiece, empty
from archipel.parts.mix.mean import Mean
from archipel.parts.share import whole
from archipel.topology.links import given, heard
from archipel.turns import Setup

LOST = 1e-100  # where a part of a graph hears nothing back its weight drains: less than this begins anew


class Weight(NamedTuple):
    weight: Any  # (1,)


class Weighted(NamedTuple):
    """A word, and an inbox: what is said, and what it weighs."""

    values: Any
    weight: Any


@kernel
def weight_of(me: Any) -> Any:
    return me.mix.weight[0]


@exact
def push(said: Any, me: Any, settings: Any, moment: Any) -> None:
    said.weight[0] = me.mix.weight[0]
    for j in range(me.model.shape[0]):
        said.values[j] = me.mix.weight[0] * me.model[j]


@exact
def hear_pushed(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    add_exactly(inbox.values, edge.weight, said.values)
    inbox.weight[0] += edge.weight * said.weight[0]


@exact
def merge_pushed(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """What was kept and heard, over the weight of both. If all weight was lost it begins anew with the model it has."""
    own = moment.kept * me.mix.weight[0]
    me.mix.weight[0] = inbox.weight[0] + own
    if me.mix.weight[0] < LOST:
        own, me.mix.weight[0] = 1.0, 1.0
    for j in range(me.model.shape[0]):
        me.model[j] = (inbox.values[j] + own * me.model[j]) / me.mix.weight[0]


@exact
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    add_exactly(inbox.values, edge.weight, said.values)
    inbox.weight[0] += edge.weight


@exact
def merge_as_sent(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """(5.13), where a sender's weights sum to one."""
    for j in range(me.model.shape[0]):
        me.model[j] = inbox.values[j] + moment.kept * me.model[j]


@exact
def merge_as_heard(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """Step 14 of chapter 2, where a receiver's do."""
    own = 1.0 - inbox.weight[0]
    for j in range(me.model.shape[0]):
        me.model[j] = inbox.values[j] + own * me.model[j]


@dataclass(frozen=True)
class PushedModels(Mix, Checked):
    """Push-sum with one weight per node (`weighted`), or W as it is printed: (5.13), or chapter 2's step 14."""

    weighted: bool = key(True, "models carry weights, so that their mean is exact on any graph")
    limit: int = key(0, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        if not place.own:
            return Mean(self.limit).make(setup, share, place)
        if share.write is not whole.write:
            raise BadInput("algorithm.share", "(replaced)", "whole models, which this mix pushes; or another mix")
        inbox = Weighted(np.zeros(place.size, place.dtype), np.zeros(1))
        sent = not place.pushes or all(np.allclose(given(links) + links.own, 1) for links in setup.graph.across)
        if self.weighted:
            if not sent:
                right = '"sender": push-sum needs weights of which a sender gives out one; or mixing = "plain"'
                raise BadInput("topology.sums_to_one", "receiver", right)
            state = Weight(np.ones((place.receivers, 1)))
            word = Weighted(np.zeros(place.size, place.dtype), np.zeros(1))
            return MixPiece(
                hear_pushed, merge_pushed, inbox, state, NONE, self.limit, weight=weight_of, write=push, word=word
            )
        taken = all(np.allclose(heard(links) + links.own, 1) for links in setup.graph.across)
        finish = merge_as_heard if taken and not sent else merge_as_sent
        return MixPiece(hear, finish, inbox, empty(place.receivers), NONE, self.limit)
