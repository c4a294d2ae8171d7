"""A small algorithm on directed graphs for tests: push-sum averaging, which needs to know what it kept."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.node import add_scaled, kernel
from archipel.turns import Plan, Scene, Turn


class Settings(NamedTuple):
    step: Any


class Peer(NamedTuple):
    model: Any
    weight: Any
    total: Any


class Word(NamedTuple):
    total: Any
    weight: Any


@kernel
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    error = data.target[0] - me.model @ data.features
    add_scaled(me.total, settings.step * error, data.features)
    said.total[:] = me.total
    said.weight[:] = me.weight
    return moment.present


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    add_scaled(inbox.total, edge.weight / (1 + edge.age), said.total)
    add_scaled(inbox.weight, edge.weight / (1 + edge.age), said.weight)


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    me.total[:] = moment.kept * me.total + inbox.total
    me.weight[:] = moment.kept * me.weight + inbox.weight
    me.model[:] = me.total / me.weight[0]


@dataclass(frozen=True)
class PushSum:
    topologies: ClassVar = ("digraph", "peers")
    precision: ClassVar = "float64"
    limit: int = 3

    def plan(self, scene: Scene) -> Plan:
        size, count = scene.task.size, scene.task.clients
        one = Word(np.zeros(size), np.zeros(1))
        peers = Peer(np.zeros((count, size)), np.ones((count, 1)), np.zeros((count, size)))
        turn = Turn("peer", "peer", act, hear, merge, one, one)
        return Plan({"peer": peers}, (turn,), Settings(0.1), {0: size}, self.limit)

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        return {"clients": tables["peer"].model}
