"""One model a cluster: the mean by samples of its clients, which borrows from the others'.

Inter-cluster learning is (10) of PGFL, see `borrow`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.node import kernel
from archipel.parts import Mix, MixPiece, Node, Place, SharePiece
from archipel.parts.mix.borrow import borrow, taus_of
from archipel.parts.mix.by_samples import counted, counting
from archipel.parts.mix.mean import Sums
from archipel.turns import Setup


class Models(NamedTuple):
    mean: Any  # (clusters, size): what clients said, averaged
    used: Any  # (clusters,): whether anyone did so far
    model: Any  # (clusters, size): after inter-cluster learning


class Borrowing(NamedTuple):
    taus: Any  # (rounds,)
    cluster: Any  # (clients,)


@cache
def telling(tell: Any) -> Any:
    @kernel
    def told(said: Any, me: Any, settings: Any, moment: Any) -> None:
        """To a client the model of its cluster."""
        cluster = settings.mix.cluster
        model = me.mix.model[cluster[moment.peer % cluster.shape[0]]]
        tell(said, Node(model, me.before, me.learn, me.protect, me.share, me.mix, me.across), settings, moment)

    return told


@cache
def hearing(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        """Sums by cluster, weighted by samples."""
        cluster = settings.mix.cluster
        q = cluster[edge.sender % cluster.shape[0]]  # an audit repeats the clients
        fold(inbox.total[q], inbox.count[q], said.said, inbox.total.dtype.type(said.samples[0]), settings)

    return hear


@cache
def finishing(of_change: bool) -> Any:
    @kernel
    def finish(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """The mean of each cluster's clients; then clusters borrow from each other, (10) of PGFL."""
        for q in range(me.mix.mean.shape[0]):
            for j in range(me.mix.mean.shape[1]):
                if inbox.count[q, j] > 0:
                    me.mix.used[q] = 1
                    mean = inbox.total[q, j] / inbox.count[q, j]
                    me.mix.mean[q, j] = me.mix.model[q, j] + mean if of_change else mean
        taus = settings.mix.taus
        borrow(me.mix.model, me.mix.mean, taus[min(moment.round, taus.shape[0] - 1)], me.mix.used)
        for j in range(me.model.shape[0]):  # of someone who is in no cluster
            me.model[j] = 0
            for q in range(me.mix.model.shape[0]):
                me.model[j] += me.mix.model[q, j] / me.mix.model.shape[0]

    return finish


def started(setup: Setup) -> tuple[Any, Any]:
    """(clusters, size): where clusters start from an earlier run, in the middle of their clients; and who has any."""
    cluster, models = setup.graph.cluster, setup.start["clients"]
    start = np.repeat(setup.start["servers"], setup.graph.clusters, 0)
    used = np.bincount(cluster, minlength=setup.graph.clusters) > 0
    for q in np.flatnonzero(used):
        start[q] = models[cluster == q].mean(0)
    return start, used.astype(np.int64)


@dataclass(frozen=True)
class Clusters(Mix, Checked):
    """Every cluster of a star has its own model, and borrows `tau` (times `decay`^n) from the others."""

    tau: float | tuple[float, ...] = key(0.0, "the share that is borrowed; a list: one a round", at_least=0, at_most=1)
    decay: float = key(1.0, "tau's factor from round to round", above=0, at_most=1)
    limit: int = key(0, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        graph = setup.graph
        if place.own or graph.servers > 1:
            raise BadInput("topology.kind", "this one", "a star: clusters borrow from each other at one server")
        if graph.clusters == 0:
            raise BadInput("topology.clusters", "discover", "a number of clusters, for this algorithm")
        table = np.zeros((graph.clusters, place.size), place.dtype)
        start, used = (table, np.zeros(graph.clusters, np.int64)) if setup.start is None else started(setup)
        state = Models(start[None].copy(), used[None], start[None].copy())
        settings = Borrowing(taus_of(self.tau, self.decay, setup.rounds), graph.cluster)
        return MixPiece(
            hearing(share.fold), finishing(place.of_change), Sums(table, table.copy()), state, settings, self.limit,
            write=counting(share.write), word=counted(share.word), tell=telling(share.tell), needs=("samples",),
        )  # fmt: skip
