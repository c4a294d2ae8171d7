"""Servers of PGFL that find out which of their clients belong together.

A client's word is v_k = w_k - phi_k / rho, and phi_k tends to the gradient of f_k at the model w_s it was told. So
w_s + (rho / curvature) (v_k - w_s) is where one gradient step on the client's data would lead, and that is its
signature. Every `look` rounds servers pass signatures on, group them, and go on with the clusters they found: clients
need not know. All of it is made of what was said: under privacy it costs nothing.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import assign, fill, kernel, rare, repeated
from archipel.parts.mix.groups import Room, centres, room_for

LARGE = 200_000_000  # numbers that all servers together would keep


class Seeker(NamedTuple):
    """What a server knows of all clients."""

    ids: Any  # (members,): who its clients are
    signatures: Any  # (clients, size)
    stamps: Any  # (clients,)
    everyone: Any  # (clients,): everyone's cluster
    room: Room


class Seeking(NamedTuple):
    look: Any  # rounds between two looks
    hops: Any  # rounds that signatures take to everyone
    gain: Any  # rho / curvature
    most: Any  # clusters at most


@kernel
def sign(me: Any, settings: Any, stamp: Any) -> None:
    """The signatures of a server's clients."""
    own, seen = settings.across, me.across
    for i in range(me.mix.members[0]):
        if me.mix.heard[i] == 1:
            k, told = seen.ids[i], me.model[me.mix.label[i]]
            seen.stamps[k] = stamp
            for j in range(told.shape[0]):
                seen.signatures[k, j] = told[j] + own.gain * (me.mix.words[i, j] - told[j])


@rare
def relabel(me: Any, settings: Any, stamp: Any) -> None:
    """Clients move to their clusters; a new cluster starts from its mean signature, the same at every server."""
    seen, mine, most, everyone = me.across, me.mix, settings.across.most, me.across.everyone
    fresh, means, sizes = seen.room.labels, seen.room.means, seen.room.sizes
    for k in range(fresh.shape[0]):
        fresh[k] = everyone[k] if seen.stamps[k] == stamp else -1
    centres(seen.signatures, fresh, most, seen.room)
    for k in range(fresh.shape[0]):
        sizes[everyone[k]] += 1.0 if fresh[k] < 0 else 0.0
    for i in range(mine.members[0]):
        mine.label[i] = everyone[seen.ids[i]]
    for q in range(most):
        if sizes[q] > 0.0 and mine.known[q] == 0:
            assign(mine.own[q], means[q])
            fill(mine.psi[q], 0.0)
            for j in range(means.shape[1]):
                mine.anchor[q, j] = mine.degree[0] * means[q, j]
        mine.known[q] = 1 if sizes[q] > 0.0 else 0
        mine.used[q] = mine.known[q]


def seekers(setup: Any, place: Any, members: int, most: int) -> Seeker:
    """A table of servers that know nothing yet."""
    graph, task = setup.graph, setup.task
    if graph.servers * task.clients * task.size > LARGE:
        raise BadInput("topology.clusters", "discover", "fewer clients or servers: all servers know all signatures")
    ids, shape = np.zeros((graph.servers, members), np.int64), (graph.servers, task.clients)
    ids[graph.server, place] = np.arange(task.clients)
    room = repeated(room_for(task.clients, task.size, most), graph.servers)
    return Seeker(ids, np.zeros((*shape, task.size)), np.zeros(shape, np.int64), np.zeros(shape, np.int64), room)
