"""ADMM's consensus within a cluster of peers, and what the clusters around them lend. In a pair with `learn.tau`.

Gauthier, thesis, chapter 6. A peer keeps its model near those of its neighbours in the same cluster, by a dual as in
`mix.dual`, and takes the mean of what other clusters around it have, (6.3). See docs/errata.md: (6.6) has the opposite
sign, and the mean over clusters is over those that a neighbour belongs to.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.node import add_scaled, assign, extended, fill, kernel
from archipel.parts.mix.dual import Dual

Lent = extended(
    Dual,  # of a peer and its neighbours in the same cluster, N_k
    "Lent",
    "cluster",  # (1,)
    "lent",  # mean of what other clusters around it have, (6.3)
    "lenders",  # (1,): how many other clusters are around it
    "tau",  # (1,): how much it borrows
)


class Word(NamedTuple):
    """What a peer says to its neighbours."""

    values: Any
    cluster: Any


@kernel
def say(said: Any, me: Any, settings: Any, moment: Any) -> None:
    assign(said.values, me.protect.told)
    said.cluster[0] = me.mix.cluster[0]


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """Sums by cluster."""
    inbox.count[said.cluster[0]] += 1
    add_scaled(inbox.total[said.cluster[0]], 1.0, said.values)


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The dual step, (6.6) with its sign put right, over links that spoke both ways; and (6.3)."""
    mine = me.mix.cluster[0]
    heard = float(inbox.count[mine])
    if me.mix.silent[0] == 0.0:
        add_scaled(me.mix.dual, settings.mix.penalty * heard, me.protect.told)
        add_scaled(me.mix.dual, -settings.mix.penalty, inbox.total[mine])
    assign(me.mix.around, inbox.total[mine])
    me.mix.heard[0] = heard
    lenders = 0
    for q in range(inbox.count.shape[0]):
        lenders += 1 if q != mine and inbox.count[q] > 0 else 0
    if lenders > 0:
        me.mix.lenders[0] = lenders
        fill(me.mix.lent, 0.0)
        for q in range(inbox.count.shape[0]):
            if q != mine and inbox.count[q] > 0:
                add_scaled(me.mix.lent, 1.0 / (lenders * inbox.count[q]), inbox.total[q])


# --- graphs ---------------------------------------------------------------------------------------------------------


def lent_state(setup: Any, cluster: Any, count: int, tau: float) -> Any:
    """A table of peers, all at zero."""
    peers, size = setup.task.clients, setup.task.size
    zeros, ones = [np.zeros((peers, size)) for _ in range(3)], np.ones((peers, 1))
    degree, lenders = alike(setup.graph, cluster), around(setup.graph, cluster, count)
    return Lent(
        zeros[0], zeros[1], 0 * ones, 0 * ones, degree[:, None].astype(float), cluster[:, None].copy(), zeros[2],
        lenders[:, None], tau * ones,
    )  # fmt: skip


def alike(graph: Any, cluster: Any) -> Any:
    """How many neighbours of its own cluster each peer has."""
    links = graph.links()
    same = cluster[links.receivers] == cluster[links.senders]
    return np.bincount(links.receivers[same], minlength=len(cluster))


def around(graph: Any, cluster: Any, count: int) -> Any:
    """How many other clusters are around each peer."""
    links = graph.links()
    near = np.zeros((len(cluster), count), bool)
    near[links.receivers, cluster[links.senders]] = True
    near[np.arange(len(cluster)), cluster] = False
    return near.sum(1)
