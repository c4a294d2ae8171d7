"""PGFL where clusters are to be discovered: servers find out which of their clients belong together.

A client's word is v_k = w_k - phi_k / rho, and phi_k tends to the gradient of f_k at the model w_s it was told. So
w_s + (rho / curvature) (v_k - w_s) is where one gradient step on the client's data would lead, and that is its
signature. Every `look` rounds servers pass signatures on, group them, and go on with the clusters they found:
clients need not know.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.algorithms.discovery import (
    Signatures,
    centres,
    hear_signatures,
    newer,
    pass_on,
    phase_of,
    regroup,
    stamp_of,
)
from archipel.errors import BadInput
from archipel.node import assign, kernel
from archipel.problems.losses.supervised import LOGISTIC
from archipel.turns import Plan, Setup, Turn

LARGE = 200_000_000  # numbers that all servers together would keep


class Seeking(NamedTuple):
    """The settings of PGFL, and those of discovery."""

    loss: Any
    penalty: Any
    edge: Any
    taus: Any
    some: Any
    slot: Any
    change: Any
    radius: Any
    private: Any
    law: Any
    shape: Any
    look: Any  # rounds between two looks
    hops: Any  # rounds that signatures take to everyone
    gain: Any  # rho / curvature
    most: Any  # clusters at most


class Seeker(NamedTuple):
    """A server of PGFL that knows all clients' signatures."""

    words: Any
    label: Any
    heard: Any
    asked: Any
    members: Any
    own: Any
    known: Any
    used: Any
    degree: Any
    psi: Any
    anchor: Any
    hat: Any
    model: Any
    ids: Any  # (members,): who its clients are
    signatures: Any  # (clients, size)
    stamps: Any  # (clients,)
    everyone: Any  # (clients,): everyone's cluster


@kernel
def look(me: Any, settings: Any, round: Any) -> None:
    """The signatures of a server's own clients."""
    for i in range(me.members[0]):
        if me.heard[i] == 1:
            k, told = me.ids[i], me.model[me.label[i]]
            me.stamps[k] = stamp_of(settings, round)
            for j in range(told.shape[0]):
                me.signatures[k, j] = told[j] + settings.gain * (me.words[i, j] - told[j])


@kernel
def say_signatures(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """In the first rounds of a look, all that is known."""
    phase = phase_of(settings, moment.round)
    if phase < 0 or phase >= settings.hops:
        return False
    if phase == 0:
        look(me, settings, moment.round)
    pass_on(me, said)
    return True


@kernel
def learn_clusters(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """Keep what is new; once everyone has everything, group it."""
    newer(me.signatures, me.stamps, inbox.values, inbox.stamp)
    if phase_of(settings, moment.round) == settings.hops - 1:
        stamp = stamp_of(settings, moment.round)
        if regroup(me.signatures, me.stamps, me.everyone, stamp, settings.most):
            relabel(me, settings, stamp)


@kernel
def relabel(me: Any, settings: Any, stamp: Any) -> None:
    """Clients move to their clusters; a new cluster starts from its mean signature, the same at every server."""
    fresh = me.everyone.copy()
    for k in range(fresh.shape[0]):
        if me.stamps[k] != stamp:
            fresh[k] = -1
    means, sizes = centres(me.signatures, fresh, settings.most)
    for k in range(fresh.shape[0]):
        sizes[me.everyone[k]] += 1.0 if fresh[k] < 0 else 0.0
    for i in range(me.members[0]):
        me.label[i] = me.everyone[me.ids[i]]
    for q in range(settings.most):
        if sizes[q] > 0.0 and me.known[q] == 0:
            assign(me.own[q], means[q])
            for j in range(means.shape[1]):
                me.psi[q, j] = 0.0
                me.anchor[q, j] = me.degree[0] * means[q, j]
        me.known[q] = 1 if sizes[q] > 0.0 else 0
        me.used[q] = me.known[q]


def diameter(links: Any, nodes: int) -> int:
    """How many hops it takes from anyone to anyone who can be reached."""
    near = np.eye(nodes, dtype=bool)
    near[links.receivers, links.senders] = True
    reach, hops = np.eye(nodes, dtype=bool), 0
    while True:
        further = (reach.astype(np.int64) @ near) > 0
        if (further == reach).all():
            return hops
        reach, hops = further, hops + 1


def check_look(look: int, most: int, curvature: float, hops: int) -> None:
    """Refuse looks that would overlap, and numbers that make no sense."""
    if look <= hops:
        right = f"more rounds than signatures take from one end of the graph to the other, {hops}"
        raise BadInput("algorithm.look", look, right)
    if not 2 <= most <= 200:
        raise BadInput("algorithm.most", most, "how many clusters there may be, from 2 to 200")
    if curvature < 0:
        raise BadInput("algorithm.curvature", curvature, "a positive number, or 0 for one that suits the loss")


def curvature_of(given: float, loss: int) -> float:
    """How much a loss bends on inputs of variance one, where the user does not say."""
    return given or (0.25 if loss == LOGISTIC else 2.0)


def discovering(plan: Plan, setup: Setup, slot: Any, algorithm: Any) -> Plan:
    """A plan of PGFL with `most` empty clusters, all clients in the first, as one that finds out who belongs where."""
    graph, task, servers = setup.graph, setup.task, plan.tables["server"]
    hops = max(1, diameter(graph.links(), graph.servers))
    check_look(algorithm.look, algorithm.most, algorithm.curvature, hops)
    if graph.servers * task.clients * task.size > LARGE:
        raise BadInput("topology.clusters", "discover", "fewer clients or servers: all servers know all signatures")
    servers.known[:, 1:], servers.used[:, 1:] = 0, 0
    ids = np.zeros(servers.label.shape, np.int64)
    ids[graph.server, slot] = np.arange(task.clients)
    shape = (graph.servers, task.clients)
    numbers = [np.zeros(shape, np.int64) for _ in range(2)]
    seekers = Seeker(*(list(servers) + [ids, np.zeros((*shape, task.size))] + numbers))
    gain = algorithm.penalty / curvature_of(algorithm.curvature, task.loss)
    settings = Seeking(*(list(plan.settings) + [algorithm.look, hops, gain, algorithm.most]))
    word = Signatures(np.zeros((task.clients, task.size)), np.zeros(task.clients, np.uint32))
    box = Signatures(word.values.copy(), np.zeros(task.clients, np.int64))
    seek = Turn("server", "server", say_signatures, hear_signatures, learn_clusters, word, box)
    up, across, down = plan.turns
    return plan._replace(
        tables=plan.tables | {"server": seekers},
        turns=(up, seek, across, down),
        settings=settings,
        parameters={0: task.size, 1: task.clients * task.size, 2: algorithm.most * task.size, 3: task.size},
        measure=None,
    )
