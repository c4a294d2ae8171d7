"""Peers that find out who around them is alike, in a pair with ADMM's exact steps.

Beside its own model every peer takes part in one model of the whole network (NFL, which is always connected, as the
neighbours of a cluster need not be). Its dual there tends to minus the gradient of the peer's own loss at the common
model, so that common model + dual / curvature is the peer's signature. Every `look` rounds peers pass signatures on and
group them; then a peer starts anew with the neighbours of its cluster.

**Private**: the common model is a second release of the same data, in the same ball, with the same scale of noise. One
unit moves the two together by the root of the sum of the squares of what it moves each (with Laplace noise by the sum),
which is paid for as a whole. Signatures are made of what was told, and cost nothing. A peer that ends up with fewer
neighbours of its cluster than it had at first, and so with a less convex problem, pays more per release from then on.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import add_scaled, assign, extended, fill, kernel, rare, repeated
from archipel.parts.learn.primal import segment_at
from archipel.parts.mix import dual, lent
from archipel.parts.mix.groups import Room, room_for
from archipel.parts.mix.looking import turn_of
from archipel.parts.mix.mean import Sums
from archipel.parts.protect.told import Known
from archipel.privacy.noise import LAPLACE, disturb, release_key
from archipel.turns import Turn

LARGE = 200_000_000  # numbers that all peers together would keep
COMMON_PENALTY = 1.0  # rho of the common model: smaller than the peers' own, so that it settles soon


class Common(NamedTuple):
    """A peer's part in the common model, with the fields of a node that `dual.attract` looks at."""

    model: Any
    protect: Known
    mix: dual.Dual


class Seeker(NamedTuple):
    """What a peer keeps that seeks its cluster."""

    common: Common
    friends: Any  # (most neighbours,): who they are, -1 beyond the last
    number: Any  # (1,): its own
    signatures: Any  # (peers, size)
    stamps: Any  # (peers,)
    everyone: Any  # (peers,): everyone's cluster
    room: Room


class Seeking(NamedTuple):
    look: Any  # rounds between two looks
    hops: Any  # rounds that signatures take to everyone
    curvature: Any
    most: Any  # clusters at most
    ridge: Any  # lambda


Word = extended(lent.Word, "Word", "common")  # beside a peer's own model the common one
Inbox = extended(Sums, "Inbox", "common")  # sums by cluster, and of the common model


@kernel
def weight_of_common(me: Any, settings: Any) -> Any:
    """The strong convexity of the common model's step."""
    degree = me.across.common.mix.degree[0]
    return 2.0 * (settings.across.ridge / me.across.everyone.shape[0] + COMMON_PENALTY * degree)


@cache
def reach_of_both(reach: Any) -> Any:
    @kernel
    def both(me: Any, settings: Any, moment: Any) -> Any:
        own, common = reach(me, settings, moment), me.protect.change[0] / weight_of_common(me, settings)
        return own + common if settings.protect.law == LAPLACE else math.sqrt(own * own + common * common)

    return both


@cache
def stepping(step: Any, solve: Any) -> Any:
    @kernel
    def both(me: Any, data: Any, settings: Any, moment: Any, scale: Any) -> None:
        """A step of the common model, and the peer's own."""
        segment, common = segment_at(settings, moment), me.across.common
        assign(me.learn.pull, me.learn.data.moment[segment])
        dual.attract(me.learn.pull, common, COMMON_PENALTY)
        weight = weight_of_common(me, settings)
        solve(common.model, me.learn, data, me.learn.pull, weight, segment, settings.learn.radius)
        common.mix.silent[0] = 1.0
        step(me, data, settings, moment, scale)

    return both


@cache
def telling(tell: Any) -> Any:
    @kernel
    def both(me: Any, scale: Any, settings: Any, moment: Any) -> None:
        """The common model is told too, with noise of its own."""
        tell(me, scale, settings, moment)
        common = me.across.common
        common.mix.silent[0] = 0.0
        assign(common.protect.told, common.model)
        disturb(common.protect.told, settings.protect.law, scale, release_key(moment.key, 1))

    return both


@kernel
def say(said: Any, me: Any, settings: Any, moment: Any) -> None:
    lent.say(said, me, settings, moment)
    assign(said.common, me.across.common.protect.told)


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """Sums by cluster, and of the common model."""
    lent.hear(inbox, said, settings, edge)
    add_scaled(inbox.common, 1.0, said.common)


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The same for the peer's own model and for the common one."""
    lent.merge(me, inbox, settings, moment)
    common, heard = me.across.common, 0.0
    for q in range(inbox.count.shape[0]):
        heard += inbox.count[q]
    if common.mix.silent[0] == 0.0:
        add_scaled(common.mix.dual, COMMON_PENALTY * heard, common.protect.told)
        add_scaled(common.mix.dual, -COMMON_PENALTY, inbox.common)
    assign(common.mix.around, inbox.common)
    common.mix.heard[0] = heard


@kernel
def sign(me: Any, settings: Any, stamp: Any) -> None:
    """A peer's own signature."""
    number, common = me.across.number[0], me.across.common
    me.across.stamps[number] = stamp
    for j in range(me.model.shape[0]):
        gradient = common.mix.dual[j] / settings.across.curvature
        me.across.signatures[number, j] = common.protect.told[j] + gradient


@rare
def start_anew(me: Any, settings: Any, stamp: Any) -> None:
    """With the neighbours of one's cluster."""
    seen = me.across
    mine = seen.everyone[seen.number[0]]
    size, degree = 0, 0
    for k in range(seen.everyone.shape[0]):
        size += 1 if seen.everyone[k] == mine else 0
    for i in range(seen.friends.shape[0]):
        degree += 1 if seen.friends[i] >= 0 and seen.everyone[max(seen.friends[i], 0)] == mine else 0
    me.mix.cluster[0] = mine
    me.learn.shrinkage[0] = 2.0 * settings.across.ridge / size
    me.mix.degree[0] = degree
    me.mix.lenders[0] = 0
    me.mix.heard[0] = 0.0
    fill(me.mix.dual, 0.0)
    fill(me.mix.around, 0.0)


# --- made for a setup -----------------------------------------------------------------------------------------------


def seekers(setup: Any, most: int) -> Seeker:
    """A table of peers that know nothing yet."""
    links, count, size = setup.graph.links(), setup.task.clients, setup.task.size
    if count * count * size > LARGE:
        raise BadInput("topology.clusters", "discover", "fewer peers: every peer knows all signatures")
    zeros = [np.zeros((count, size)) for _ in range(2)]
    common = Common(zeros[0], Known(zeros[1]), dual.duals(links.degree, size, float))
    labels = np.zeros((count, count), np.int64)
    return Seeker(
        common, friends_of(links, count), np.arange(count)[:, None], np.zeros((count, count, size)), labels,
        labels.copy(), repeated(room_for(count, size, most), count),
    )  # fmt: skip


def turns(act: Any, setup: Any, most: int) -> tuple[Turn, Turn]:
    """Models, and then signatures."""
    size = setup.task.size
    word = Word(np.zeros(size), np.zeros(1, np.uint8), np.zeros(size))
    box = Inbox(np.zeros((most, size)), np.zeros(most, np.int64), np.zeros(size))
    return Turn("peer", "peer", act, hear, merge, word, box), turn_of("peer", sign, start_anew, setup)


def friends_of(links: Any, peers: int) -> Any:
    """The neighbours of each peer, -1 beyond the last."""
    degree = np.diff(links.starts)
    friends = np.full((peers, max(int(degree.max(initial=0)), 1)), -1, np.int64)
    for k in range(peers):
        friends[k, : degree[k]] = links.senders[links.starts[k] : links.starts[k + 1]]
    return friends
