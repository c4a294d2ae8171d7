"""Looks who belongs together: signatures are passed on until everyone has all of them, and then grouped (`mix.groups`).

Every `look` rounds, in as many rounds as a word takes from one end of the graph to the other.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import NOTHING, SAID, assign, kernel, rare
from archipel.parts.mix.groups import regroup
from archipel.problems.losses.supervised import LOGISTIC
from archipel.topology.connectivity import hops
from archipel.turns import Turn


class Signatures(NamedTuple):
    """All signatures a node knows, and the look they are of (from 1; 0: unknown)."""

    values: Any  # (nodes, size)
    stamp: Any  # (nodes,)


@kernel
def newer(known: Any, stamps: Any, values: Any, stamp: Any) -> None:
    """Keep whatever is newer than what is known."""
    for k in range(stamps.shape[0]):
        if stamp[k] > stamps[k]:
            stamps[k] = stamp[k]
            assign(known[k], values[k])


@kernel
def hear_signatures(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """The newest of what neighbours know."""
    newer(inbox.values, inbox.stamp, said.values, said.stamp)


@kernel
def phase_of(settings: Any, round: Any) -> Any:
    """The round's place in a look; negative before the first one."""
    return round % settings.look if round >= settings.look else -1


@cache
def saying(sign: Any) -> Any:
    """`sign`: (me, settings, stamp), which writes down the signatures that a node knows by itself."""

    @kernel
    def say(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
        """In the first rounds of a look, all that is known; first of all one's own."""
        own, seen = settings.across, me.across
        phase = phase_of(own, moment.round)
        if phase < 0 or phase >= own.hops:
            return NOTHING
        if phase == 0:
            sign(me, settings, moment.round // own.look)
        for k in range(seen.stamps.shape[0]):
            said.stamp[k] = seen.stamps[k]
            assign(said.values[k], seen.signatures[k])
        return SAID

    return say


@cache
def learning(follow: Any) -> Any:
    """`follow`: (me, settings, stamp), what a node does where clusters are other ones than before."""

    @rare
    def learn(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """Keep what is new; once everyone has everything, group it."""
        own, seen = settings.across, me.across
        newer(seen.signatures, seen.stamps, inbox.values, inbox.stamp)
        if phase_of(own, moment.round) == own.hops - 1:
            stamp = moment.round // own.look  # the number of the look, from 1
            if regroup(seen.signatures, seen.stamps, seen.everyone, stamp, own.most, seen.room):
                follow(me, settings, stamp)

    return learn


def turn_of(role: str, sign: Any, follow: Any, setup: Any) -> Turn:
    """Signatures are passed on."""
    count, size = setup.task.clients, setup.task.size
    word = Signatures(np.zeros((count, size)), np.zeros(count, np.uint32))
    box = Signatures(np.zeros((count, size)), np.zeros(count, np.int64))
    return Turn(role, role, saying(sign), hear_signatures, learning(follow), word, box)


# --- made for a setup -----------------------------------------------------------------------------------------------


def diameter(links: Any, nodes: int) -> int:
    """How many hops it takes from anyone to anyone who can be reached."""
    return max(int(hops(links, node).max()) for node in range(nodes))


def hops_of(look: int, links: Any, nodes: int) -> int:
    """Rounds that signatures take to everyone; looks that would overlap are refused."""
    rounds = max(1, diameter(links, nodes))
    if look <= rounds:
        right = f"more rounds than signatures take from one end of the graph to the other, {rounds}"
        raise BadInput("algorithm.look", look, right)
    return rounds


def curvature_of(given: float, loss: int) -> float:
    """How much a loss bends on inputs of variance one, where the user does not say."""
    return given or (0.25 if loss == LOGISTIC else 2.0)
