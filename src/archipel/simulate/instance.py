"""A federation made ready for one seed: what both engines play."""

from typing import Any, NamedTuple

import numpy as np

from archipel.environment import Conditions
from archipel.node import rows_of
from archipel.problems.task import Task
from archipel.shard import WHOLE, ends, numbered, placed
from archipel.topology import Graph, Links
from archipel.turns import Plan

SERVER_KEYS = 1 << 40  # nodes without data draw from keys of their own


class Edges(NamedTuple):
    """Who hears whom: for each receiver its senders and their weights."""

    starts: Any  # (receivers + 1,)
    senders: Any
    weights: Any
    fan_out: Any  # (senders,): how many hear this one


class Nothing(NamedTuple):
    """The data of a node that has none."""

    empty: Any


class Instance(NamedTuple):
    """A plan, its data, its links and its conditions, for one seed."""

    plan: Plan
    task: Task
    links: dict[tuple[str, str], tuple[Edges, ...]]  # (sender, receiver) -> one for each phase
    conditions: Conditions
    seed: int
    data_role: str = "client"
    nothing: Any = Nothing(np.zeros(1))
    graph: Any = None
    shard: slice = WHOLE  # of clients, whose rows are there: a shard's

    def count(self, role: str) -> int:
        """How many nodes play a role."""
        return rows_of(self.plan.tables[role])


def edges_of(links: Links, senders: int) -> Edges:
    """Links with what a sender knows of them."""
    return Edges(links.starts, links.senders, links.weights, np.bincount(links.senders, minlength=senders))


def of_star(clients: int, shard: slice = WHOLE) -> dict[tuple[str, str], tuple[Edges, ...]]:
    """The edges of clients and their one server: what holds the same numbers is one array."""
    begin, end = ends(shard, clients)
    numbers, ones = numbered(slice(begin, end + 1), clients + 1), placed(np.ones(end - begin), shard, clients)
    count, ones_too = np.array([clients]), placed(np.ones(end - begin, np.int64), shard, clients)
    return {
        ("server", "client"): (Edges(numbers, np.zeros(clients, np.int64), ones, count),),
        ("client", "server"): (Edges(np.array([0, clients]), numbers[:-1], ones, ones_too),),
    }


def all_edges(graph: Graph, shard: slice = WHOLE) -> dict[tuple[str, str], tuple[Edges, ...]]:
    """The edges of a graph between the roles that its nodes play; on a star, for a shard of its clients."""
    across = tuple(edges_of(links, len(links.starts) - 1) for links in graph.across)
    if not graph.servers:
        return {("peer", "peer"): across}
    if graph.servers == 1:
        return of_star(graph.clients, shard) | {("server", "server"): across}
    return {
        ("server", "client"): (edges_of(graph.down(), graph.servers),),
        ("client", "server"): (edges_of(graph.up(), graph.clients),),
        ("server", "server"): across,
    }
