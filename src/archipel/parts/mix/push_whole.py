"""Push-sum where every word says something of all parameters: one mass for the whole model, eight bytes a message.

`push_sum` has what it is about. Here all parameters of a node have the same mass, so it is one number.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.node import add_scaled, assign, fast, kernel
from archipel.parts import NONE, MixPiece, Place, SharePiece
from archipel.privacy.bounding import shrink

LOST = 1e-30  # as in `push_sum`


class Mass(NamedTuple):
    mass: Any  # (1,): w_u, at first 1
    model: Any  # (size,): the model, while something is written in its place
    least: Any  # (1,): that a step is divided by


class Pushed(NamedTuple):
    """A word, and the mass that it carries."""

    word: Any
    mass: Any


class Heard(NamedTuple):
    total: Any
    mass: Any
    count: Any  # what `fold` counts, which is not looked at


def settle(me: Any) -> None:
    """The round's change of the model over the mass: what it is of the pushed sum."""
    mass = me.model.dtype.type(max(me.mix.mass[0], me.mix.least[0]))
    np.add(me.before, (me.model - me.before) / mass, out=me.model)


@fast(settle)
def settle_loop(me: Any) -> None:
    mass = me.model.dtype.type(max(me.mix.mass[0], me.mix.least[0]))
    for j in range(me.model.shape[0]):
        me.model[j] = me.before[j] + (me.model[j] - me.before[j]) / mass


@kernel
def lift(me: Any) -> None:
    """What was settled since others knew the model, once more as it was learned: a release settles it with the rest."""
    more = me.model.dtype.type(max(me.mix.mass[0], me.mix.least[0]) - 1.0)
    for j in range(me.model.shape[0]):
        me.model[j] += more * (me.before[j] - me.protect.base[j])


@kernel
def mass_of(me: Any) -> Any:
    return me.mix.mass[0]


@cache
def pushing(write: Any) -> Any:
    @kernel
    def push(said: Any, me: Any, settings: Any, moment: Any) -> None:
        """The word of the share part, of the model times its mass, and the mass."""
        assign(me.mix.model, me.model)
        shrink(me.model, me.mix.mass[0])
        write(said.word, me, settings, moment)
        assign(me.model, me.mix.model)
        said.mass[0] = me.mix.mass[0]

    return push


@cache
def hearing(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        """W_uv of what v said."""
        fold(inbox.total, inbox.count, said.word, inbox.total.dtype.type(edge.weight), settings)
        inbox.mass[0] += edge.weight * said.mass[0]

    return hear


@kernel
def finish(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """w_u' = sum_v W_uv w_v and y_u' = sum_v W_uv w_v z_v / w_u', with what a node keeps for itself."""
    own = moment.kept * me.mix.mass[0]
    mass = own + inbox.mass[0]
    if mass < LOST:
        me.mix.mass[0] = 1.0
    else:
        me.mix.mass[0] = mass
        shrink(me.model, own / mass)
        add_scaled(me.model, me.model.dtype.type(1.0 / mass), inbox.total)


def piece(share: SharePiece, place: Place, limit: int, least: float) -> MixPiece:
    """The mix of a share part whose words count alike for every parameter."""
    one = np.zeros(1)
    rows = place.receivers
    state = Mass(np.ones((rows, 1)), np.zeros((rows, place.size), place.dtype), np.full((rows, 1), least))
    inbox = Heard(np.zeros(place.size, place.dtype), one, np.zeros(1, place.dtype))
    return MixPiece(
        hearing(share.fold), finish, inbox, state, NONE, limit, before=True,
        write=pushing(share.write), word=Pushed(share.word, one), settle=settle, lift=lift, weight=mass_of,
    )  # fmt: skip
