"""FedAvg on stored data, with one model for everyone or one for each cluster that borrows from the others.

McMahan et al., AISTATS 2017; thesis, algorithm 1. Linear models with any loss; `fedavg_deep` is for the others.
Inter-cluster learning is PGFL's (10), taken as it is from `personal`: the last line of the server's merge.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.draws import BATCH, SELECTED, integer, uniform
from archipel.errors import BadInput
from archipel.node import add_scaled, assign, dot, kernel
from archipel.parts.mix.borrow import borrow, taus_of
from archipel.problems.losses.supervised import slope
from archipel.turns import Plan, Setup, Tell, Turn


class Settings(NamedTuple):
    step: Any
    batch: Any  # samples a step; 0: all of them
    epochs: Any  # passes over the data a round
    asked: Any  # chance that the server asks an available client
    loss: Any
    shrinkage: Any  # of the gradient of l2 ||w||^2, a client's part
    taus: Any  # (rounds,)
    cluster: Any  # (clients,)


class Client(NamedTuple):
    model: Any
    told: Any  # the server's model, as it was told last


class Server(NamedTuple):
    mean: Any  # (clusters, size): what clients said, averaged
    used: Any  # (clusters,): whether anyone did so far
    model: Any  # (clusters, size): after inter-cluster learning


class Model(NamedTuple):
    values: Any


class Word(NamedTuple):
    """A client's model, and how many samples stand behind it."""

    values: Any
    samples: Any


class Inbox(NamedTuple):
    total: Any  # (clusters, size)
    samples: Any  # (clusters,)


@kernel
def tell(me: Any, said: Any, settings: Any, moment: Any) -> Any:
    """To a client that is asked, the model of its cluster."""
    if uniform(moment.key, SELECTED) >= settings.asked:
        return False
    assign(said.values, me.model[settings.cluster[moment.peer]])
    return True


@kernel
def take(me: Any, said: Any, settings: Any, moment: Any) -> None:
    assign(me.model, said.values)
    assign(me.told, said.values)


@kernel
def shuffle(order: Any, key: Any, epoch: Any) -> None:
    """A random order of the samples, anew in each epoch (Fisher and Yates)."""
    count = order.shape[0]
    for i in range(count):
        order[i] = i
    for i in range(count - 1, 0, -1):
        j = integer(key, BATCH, epoch * count + i, i + 1)
        order[i], order[j] = order[j], order[i]


@kernel
def descend(model: Any, data: Any, order: Any, first: Any, last: Any, settings: Any) -> None:
    """One step on the samples order[first:last]."""
    gradient = np.zeros(model.shape[0])
    add_scaled(gradient, settings.shrinkage, model)
    for i in range(first, last):
        x = data.x[order[i]]
        add_scaled(gradient, slope(settings.loss, dot(x, model), data.y[order[i]]) / (last - first), x)
    add_scaled(model, -settings.step, gradient)


@kernel
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """ClientUpdate: epochs of steps over shuffled batches."""
    count = data.y.shape[0]
    if not moment.present or count == 0:
        return False
    order = np.zeros(count, np.int64)
    batch = settings.batch if settings.batch > 0 else count
    for epoch in range(settings.epochs):
        shuffle(order, moment.key, epoch)
        for first in range(0, count, batch):
            descend(me.model, data, order, first, min(first + batch, count), settings)
    assign(said.values, me.model)
    said.samples[0] = count
    return True


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """Sums by cluster, weighted by samples."""
    q = settings.cluster[edge.sender]
    inbox.samples[q] += said.samples[0]
    add_scaled(inbox.total[q], float(said.samples[0]), said.values)


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The weighted mean of each cluster's clients; then clusters borrow from each other, (10) of PGFL."""
    for q in range(me.mean.shape[0]):
        if inbox.samples[q] > 0:
            me.used[q] = 1
            for j in range(me.mean.shape[1]):
                me.mean[q, j] = inbox.total[q, j] / inbox.samples[q]
    borrow(me.model, me.mean, settings.taus[min(moment.round, settings.taus.shape[0] - 1)], me.used)


@dataclass(frozen=True)
class FedAvg:
    """Clients train for `epochs` on batches of `batch` samples, and the server averages what they say by samples.

    On a star with clusters every cluster has its own model, and borrows `tau` (times `decay`^n) from the others.
    """

    topologies: ClassVar = ("star",)
    precision: ClassVar = "float64"
    data_kind: ClassVar = "stored"

    step: float = 0.05
    batch: int = 0
    epochs: int = 1
    asked: float = 1.0
    tau: float | tuple[float, ...] = 0.0
    decay: float = 1.0

    def check(self, setup: Setup) -> dict[str, float]:
        """Refuse what makes no sense before anything runs."""
        if not 0 < self.step < np.inf:
            raise BadInput("algorithm.step", self.step, "a positive number")
        if self.batch < 0:
            raise BadInput("algorithm.batch", self.batch, "how many samples a step takes, 0 for all of a client's")
        if self.epochs < 1:
            raise BadInput("algorithm.epochs", self.epochs, "at least one pass over the data")
        if not 0 < self.asked <= 1:
            raise BadInput("algorithm.asked", self.asked, "a probability above 0, at most 1")
        if setup.graph.clusters == 0:
            raise BadInput("topology.clusters", "discover", "a number of clusters, for this algorithm")
        if setup.task.streams or setup.task.regulariser[0] > 0:
            raise BadInput("problem.kind", "this one", "stored data and a smooth regulariser, for FedAvg")
        return {}

    def plan(self, setup: Setup) -> Plan:
        """Clients and a server, all at zero, and their two turns."""
        self.check(setup)
        task, count = setup.task, setup.graph.clusters
        settings = Settings(
            self.step,
            self.batch,
            self.epochs,
            self.asked,
            int(task.loss),
            2 * task.regulariser[1] / task.clients,
            taus_of(self.tau, self.decay, setup.rounds),
            setup.graph.cluster,
        )
        cube = np.zeros((1, count, task.size))
        word = Word(np.zeros(task.size), np.zeros(1, np.uint32))
        return Plan(
            {
                "client": Client(np.zeros((task.clients, task.size)), np.zeros((task.clients, task.size))),
                "server": Server(cube, np.zeros((1, count), np.int64), cube.copy()),
            },
            (
                Tell("server", "client", tell, take, Model(np.zeros(task.size))),
                Turn("client", "server", act, hear, merge, word, Inbox(cube[0].copy(), np.zeros(count))),
            ),
            settings,
            {0: task.size, 1: task.size},
        )

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """One model, or one for each cluster; and what every client has of it."""
        model = tables["server"].model[0]
        found = {"server": model[0]} if len(model) == 1 else {"servers": tables["server"].model}
        return found | {"clients": tables["client"].model, "told": tables["client"].told}
