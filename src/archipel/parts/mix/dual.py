"""ADMM's consensus: a dual on every node, moved by what its neighbours said. Comes in a pair with an ADMM learn part.

Of the thesis, (3.8) and (3.10): with rho the penalty and w~ what was told, a primal step is drawn by

    rho sum_l (w~_k + w~_l) - dual_k,        and then  dual_k += rho sum_l (w~_k - w~_l)

over the neighbours l that spoke, if k did: both ends of a link move or neither, so the sum of all duals stays zero. A
neighbour that was not heard counts as one that agrees.

**Servers** are nodes of the same graph that have no data: their objective is zero, so their primal step is

    2 rho d w_s = rho sum_l (w~_s + w~_l) - dual_s

over clients and neighbouring servers alike, and costs nothing: it is made of what was told. A round of it: clients say
their step; servers take theirs, from what they knew before; servers tell each other, and their clients. Everyone moves
its dual by what it heard. A fixed point is the same as among peers: all models agree on the minimiser of the sum.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.node import SAID, add_scaled, assign, kernel, table_of
from archipel.topology.links import Links, both_ways, matrix


class Dual(NamedTuple):
    """What a node keeps of its neighbours."""

    dual: Any  # gamma_k
    around: Any  # sum of the neighbours' w~ that it heard
    heard: Any  # (1,): how many
    silent: Any  # (1,): 1 if it said nothing this round
    degree: Any  # (1,): how many neighbours it has


class Across(NamedTuple):
    """What a server keeps of its neighbouring servers."""

    around: Any
    heard: Any


class Consensus(NamedTuple):
    penalty: Any  # rho
    mixing: Any  # weight of a neighbour in the subgradient method
    one: Any  # (1,): 1


class Inbox(NamedTuple):
    total: Any
    heard: Any


@kernel
def attract(out: Any, me: Any, penalty: Any) -> None:
    """out += rho sum_l (w~_k + w~_l) - dual_k."""
    agreed = 2.0 * me.mix.degree[0] - me.mix.heard[0]
    for j in range(out.shape[0]):
        out[j] += penalty * (agreed * me.protect.told[j] + me.mix.around[j]) - me.mix.dual[j]


@kernel
def say(said: Any, me: Any, settings: Any, moment: Any) -> None:
    assign(said.values, me.protect.told)


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    add_scaled(inbox.total, 1.0, said.values)
    inbox.heard[0] += 1.0


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The dual step, (3.10), over links that spoke both ways."""
    if me.mix.silent[0] == 0.0:
        for j in range(me.model.shape[0]):
            gap = inbox.heard[0] * me.protect.told[j] - inbox.total[j]
            me.mix.dual[j] += settings.mix.penalty * gap
    assign(me.mix.around, inbox.total)
    me.mix.heard[0] = inbox.heard[0]


# --- servers --------------------------------------------------------------------------------------------------------


@kernel
def agree(me: Any, settings: Any) -> None:
    """A server's primal step: that of a node whose objective is zero."""
    degree = me.mix.degree[0]
    agreed = 2.0 * degree - me.mix.heard[0] - me.across.heard[0]
    for j in range(me.model.shape[0]):
        drawn = agreed * me.protect.told[j] + me.mix.around[j] + me.across.around[j]
        me.model[j] = (drawn - me.mix.dual[j] / settings.mix.penalty) / max(2.0 * degree, 1.0)


@kernel
def mix_only(me: Any, settings: Any) -> None:
    """A server of the subgradient method: it has no subgradient to follow."""
    heard = me.mix.heard[0] + me.across.heard[0]
    for j in range(me.model.shape[0]):
        gap = me.mix.around[j] + me.across.around[j] - heard * me.protect.told[j]
        me.model[j] = me.protect.told[j] + settings.mix.mixing * gap


@cache
def serving(step: Any) -> Any:
    @kernel
    def serve(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """A server's step, at the same time as its clients', and then what they said."""
        step(me, settings)
        assign(me.protect.told, me.model)
        merge(me, inbox, settings, moment)

    return serve


@kernel
def speak(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """A server among servers."""
    assign(said.values, me.protect.told)
    return SAID


@kernel
def merge_across(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The dual step over the links to other servers."""
    for j in range(me.model.shape[0]):
        gap = inbox.heard[0] * me.protect.told[j] - inbox.total[j]
        me.mix.dual[j] += settings.mix.penalty * gap
    assign(me.across.around, inbox.total)
    me.across.heard[0] = inbox.heard[0]


@kernel
def tell(me: Any, said: Any, settings: Any, moment: Any) -> Any:
    assign(said.values, me.protect.told)
    return True


@kernel
def take(me: Any, said: Any, settings: Any, moment: Any) -> None:
    """A client's dual step: its server is its one neighbour."""
    merge(me, Inbox(said.values, settings.mix.one), settings, moment)


# --- graphs ---------------------------------------------------------------------------------------------------------


def duals(degrees: Any, size: int, dtype: Any) -> Dual:
    """A table of nodes with these numbers of neighbours, all at zero."""
    rows = len(degrees)
    column = np.asarray(degrees, float).reshape(-1, 1).copy()
    dual, around = table_of((rows, size), dtype), table_of((rows, size), dtype)
    return Dual(dual, around, np.zeros((rows, 1)), np.zeros((rows, 1)), column)


def whole_graph(graph: Any) -> Links:
    """Everyone's links, both ways: peers', or clients' and their servers', which have the numbers after them."""
    if not graph.servers:
        return graph.links()
    across = graph.links()
    ends = np.stack([across.receivers, across.senders], 1)
    inner = ends[ends[:, 0] < ends[:, 1]] + graph.clients
    outer = np.stack([np.arange(graph.clients), graph.server + graph.clients], 1)
    return both_ways(graph.clients + graph.servers, np.concatenate([outer, inner]))


def degrees_of(graph: Any) -> Any:
    """|N_k| of everyone with data."""
    return np.diff(whole_graph(graph).starts)[: graph.clients]


def adjacency(graph: Any) -> Any:
    """The graph as a symmetric 0-1 matrix."""
    return matrix(whole_graph(graph))
