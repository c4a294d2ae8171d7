"""Push-sum: the exact mean over links that go one way. Every parameter has its own mass: portions can be pushed too.

Kempe, Dobra, Gehrke, FOCS 2003; with gradient steps, Nedic, Olshevsky, IEEE TAC 2015. What a node says carries mass
with it, what it keeps stays; a model is what arrived over the mass that arrived. Steps are divided by the mass, so that
no one's data count more than another's. But a step over a small mass is long, and may be too long: below `least` masses
count as that, and data of nodes that are so light count for less, by mass / least.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.node import assign, kernel
from archipel.parts import NONE, Mix, MixPiece, Place, SharePiece
from archipel.parts.mix import push_whole
from archipel.turns import Setup

# Where a part of a graph hears nothing back its mass drains: what is left stays a number.
LOST = 1e-30  # less begins anew


class Mass(NamedTuple):
    mass: Any  # (size,)
    sent: Any  # (size,): what of it was said this round
    model: Any  # (size,): the model, while something is written in its place
    least: Any  # (1,): that a step is divided by


class Pushed(NamedTuple):
    """A word, and the mass that it carries."""

    values: Any
    mass: Any


@kernel
def settle(me: Any) -> None:
    """The round's change of the model over the mass: what it is of the pushed sum."""
    for j in range(me.model.shape[0]):
        mass = max(me.mix.mass[j], me.mix.least[0])
        me.model[j] = me.before[j] + (me.model[j] - me.before[j]) / mass
        me.mix.sent[j] = 0


@kernel
def lift(me: Any) -> None:
    """What was settled since others knew the model, once more as it was learned: a release settles it with the rest."""
    for j in range(me.model.shape[0]):
        mass = max(me.mix.mass[j], me.mix.least[0])
        me.model[j] += (mass - me.model.dtype.type(1)) * (me.before[j] - me.protect.base[j])


@cache
def pushing(write: Any, fold: Any) -> Any:
    @kernel
    def push(said: Any, me: Any, settings: Any, moment: Any) -> None:
        """The word of the share part, of the model times its mass, and of the mass."""
        one = me.model.dtype.type(1)
        assign(me.mix.model, me.model)
        for j in range(me.model.shape[0]):
            me.model[j] *= me.mix.mass[j]
        write(said.values, me, settings, moment)
        assign(me.model, me.mix.mass)
        write(said.mass, me, settings, moment)
        fold(me.model, me.mix.sent, said.mass, one, settings)  # only what is counted matters
        assign(me.model, me.mix.model)

    return push


@cache
def hearing(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        weight = inbox.total.dtype.type(edge.weight)
        fold(inbox.total, inbox.count, said.values, weight, settings)
        fold(inbox.mass, inbox.count, said.mass, weight, settings)

    return hear


@kernel
def finish(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """What was kept and heard, over the mass of both."""
    real = me.model.dtype.type
    for j in range(me.model.shape[0]):
        own = me.mix.mass[j] * (real(moment.kept) if me.mix.sent[j] > 0 else real(1))
        mass = inbox.mass[j] + own
        if mass < LOST:
            me.mix.mass[j] = 1
        else:
            me.model[j] = (inbox.total[j] + own * me.model[j]) / mass
            me.mix.mass[j] = mass


@dataclass(frozen=True)
class PushSum(Mix, Checked):
    """The exact mean over links that go one way: words carry a share of their sender's mass.

    Steps are divided by a node's mass, or by `least` if that is more: then every step that is short enough for one node
    is so for all, but the data of nodes lighter than that count for less. With short steps a small `least` is exact.
    """

    limit: int = key(10, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)
    least: float = key(0.5, "the least mass that a step is divided by", above=0, at_most=1)

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        if not place.own:
            right = "another mix: a server hears all there is, nothing is pushed"
            raise BadInput("algorithm.mix.kind", "push-sum", right)
        if share.uniform:
            return push_whole.piece(share, place, self.limit, self.least)
        zeros = np.zeros(place.size, place.dtype)
        rows = (place.receivers, place.size)
        ones, zero, least = np.ones(rows, place.dtype), np.zeros(rows, place.dtype), np.full((rows[0], 1), self.least)
        state = Mass(ones, zero, zero.copy(), least.astype(place.dtype))
        return MixPiece(
            hearing(share.fold), finish, push_whole.Heard(zeros, zeros, zeros), state, NONE, self.limit, before=True,
            write=pushing(share.write, share.fold), word=Pushed(share.word, share.word), settle=settle, lift=lift,
        )  # fmt: skip

    def across(self) -> "PushSum":
        raise BadInput("algorithm.mix.kind", "push-sum", "another mix: servers talk both ways, and need no push-sum")
