"""NPFL and NPFL-RL where clusters are to be discovered: peers find out who around them is alike.

Beside its own model every peer takes part in one model of the whole network (NFL, which is always connected, as the
neighbours of a cluster need not be). Its dual there tends to minus the gradient of the peer's own loss at the
common model, so that common model + dual / curvature is the peer's signature. Every `look` rounds peers pass
signatures on and group them; then a peer starts anew with the neighbours of its cluster.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.algorithms import npfl_nodes as nodes
from archipel.algorithms.discovery import (
    Signatures,
    hear_signatures,
    newer,
    pass_on,
    phase_of,
    regroup,
    stamp_of,
)
from archipel.algorithms.local import ridge
from archipel.algorithms.pgfl_discovery import check_look, curvature_of, diameter
from archipel.errors import BadInput
from archipel.node import add_scaled, assign, kernel
from archipel.turns import Plan, Setup, Turn

LARGE = 200_000_000  # numbers that all peers together would keep
COMMON_PENALTY = 1.0  # rho of the common model: smaller than the peers' own, so that it settles soon


class Seeking(NamedTuple):
    """The settings of NPFL, and those of discovery."""

    penalty: Any
    policy: Any
    rate: Any
    range: Any
    epochs: Any
    change: Any
    private: Any
    law: Any
    shape: Any
    look: Any  # rounds between two looks
    hops: Any  # rounds that signatures take to everyone
    curvature: Any
    most: Any  # clusters at most
    ridge: Any  # lambda


class Seeker(NamedTuple):
    """A peer of NPFL that takes part in a common model, and knows all peers' signatures."""

    model: Any
    told: Any
    dual: Any
    near: Any
    lent: Any
    tau: Any
    lenders: Any
    degree: Any
    cluster: Any
    shrinkage: Any
    cut: Any
    reach: Any
    first: Any
    silent: Any
    spent: Any
    limit: Any
    releases: Any
    basis: Any
    curve: Any
    moment: Any
    rows: Any
    common: Any  # the common model
    common_dual: Any
    common_near: Any  # sum of the neighbours'
    friends: Any  # (most neighbours,): who they are, -1 beyond the last
    signatures: Any  # (peers, size)
    stamps: Any  # (peers,)
    everyone: Any  # (peers,): everyone's cluster


class Word(NamedTuple):
    """What a peer says to its neighbours: its own model and the common one."""

    values: Any
    cluster: Any
    common: Any


class Around(NamedTuple):
    total: Any
    count: Any
    common: Any


@kernel
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """A step of the common model, and one of NPFL."""
    segment = 1 if moment.round >= settings.change else 0
    pull = me.moment[segment].copy()
    add_scaled(pull, COMMON_PENALTY * moment.degree, me.common)
    add_scaled(pull, COMMON_PENALTY, me.common_near)
    add_scaled(pull, -1.0, me.common_dual)
    weight = 2.0 * (settings.ridge / me.everyone.shape[0] + COMMON_PENALTY * moment.degree)
    ridge(me.common, me.basis[segment], me.curve[segment], pull, weight)
    assign(said.common, me.common)
    return nodes.act(me, data, said, settings, moment)


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """Sums by cluster, and of the common model."""
    nodes.hear(inbox, said, settings, edge)
    add_scaled(inbox.common, 1.0, said.common)


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """NPFL's merge, and the same for the common model."""
    nodes.merge(me, inbox, settings, moment)
    heard = 0
    for q in range(inbox.count.shape[0]):
        heard += inbox.count[q]
    add_scaled(me.common_dual, COMMON_PENALTY * heard, me.common)
    add_scaled(me.common_dual, -COMMON_PENALTY, inbox.common)
    assign(me.common_near, inbox.common)
    add_scaled(me.common_near, float(moment.degree - heard), me.common)


@kernel
def say_signatures(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """In the first rounds of a look, all that is known; first of all one's own."""
    phase = phase_of(settings, moment.round)
    if phase < 0 or phase >= settings.hops:
        return False
    if phase == 0:
        me.stamps[moment.node] = stamp_of(settings, moment.round)
        mine = me.signatures[moment.node]
        assign(mine, me.common)
        add_scaled(mine, 1.0 / settings.curvature, me.common_dual)
    pass_on(me, said)
    return True


@kernel
def learn_clusters(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """Keep what is new; once everyone has everything, group it, and start anew where anything changed."""
    newer(me.signatures, me.stamps, inbox.values, inbox.stamp)
    if phase_of(settings, moment.round) != settings.hops - 1:
        return
    if not regroup(me.signatures, me.stamps, me.everyone, stamp_of(settings, moment.round), settings.most):
        return
    me.cluster[0] = me.everyone[moment.node]
    size = 0
    for k in range(me.everyone.shape[0]):
        size += 1 if me.everyone[k] == me.cluster[0] else 0
    me.shrinkage[0] = settings.ridge / size
    me.degree[0] = 0
    for i in range(me.friends.shape[0]):
        if me.friends[i] >= 0 and me.everyone[me.friends[i]] == me.cluster[0]:
            me.degree[0] += 1
    me.lenders[0] = 0
    for j in range(me.dual.shape[0]):
        me.dual[j] = 0.0
        me.near[j] = me.degree[0] * me.told[j]


def friends_of(links: Any, peers: int) -> Any:
    """The neighbours of each peer, -1 beyond the last."""
    degree = np.diff(links.starts)
    friends = np.full((peers, max(int(degree.max(initial=0)), 1)), -1, np.int64)
    for k in range(peers):
        friends[k, : degree[k]] = links.senders[links.starts[k] : links.starts[k + 1]]
    return friends


def discovering(plan: Plan, setup: Setup, algorithm: Any, strength: float) -> Plan:
    """A plan of NPFL with all peers in one cluster, as one that finds out who belongs where."""
    links, count, size = setup.graph.links(), setup.task.clients, setup.task.size
    hops = max(1, diameter(links, count))
    check_look(algorithm.look, algorithm.most, algorithm.curvature, hops)
    if setup.privacy is not None:
        right = "none: the common model would be a second release, which is not counted here"
        raise BadInput("privacy", "(a table)", right)
    if count * count * size > LARGE:
        raise BadInput("topology.clusters", "discover", "fewer peers: every peer knows all signatures")
    vectors = [np.zeros((count, size)) for _ in range(3)]
    known = [np.zeros((count, count, size)), np.zeros((count, count), np.int64), np.zeros((count, count), np.int64)]
    seekers = Seeker(*(list(plan.tables["peer"]) + vectors + [friends_of(links, count)] + known))
    bend = curvature_of(algorithm.curvature, setup.task.loss)
    settings = Seeking(*(list(plan.settings) + [algorithm.look, hops, bend, algorithm.most, strength]))
    word = Word(np.zeros(size), np.zeros(1, np.uint8), np.zeros(size))
    box = Around(np.zeros((algorithm.most, size)), np.zeros(algorithm.most, np.int64), np.zeros(size))
    all_known = Signatures(np.zeros((count, size)), np.zeros(count, np.uint32))
    stamped = Signatures(np.zeros((count, size)), np.zeros(count, np.int64))
    return plan._replace(
        tables={"peer": seekers},
        turns=(
            Turn("peer", "peer", act, hear, merge, word, box),
            Turn("peer", "peer", say_signatures, hear_signatures, learn_clusters, all_known, stamped),
        ),
        settings=settings,
        parameters={0: 2 * size, 1: count * size},
        measure=taus_only,
    )


def taus_only(tables: dict[str, Any], round: int) -> dict[str, Any]:
    """Every peer's tau."""
    tau = tables["peer"].tau[:, 0]
    return {"tau": float(tau.mean()), "tau.node": tau.copy()}
