"""A federation on stage: what both engines play."""

from typing import Any, NamedTuple

import numpy as np

from archipel.environment import Weather
from archipel.problems.task import Task
from archipel.turns import Plan

SERVER_KEYS = 1 << 40  # nodes without data draw from keys of their own


class Links(NamedTuple):
    """Who hears whom: for each receiver its senders and their weights."""

    starts: Any  # (receivers + 1,)
    senders: Any
    weights: Any
    fan_out: Any  # (senders,): how many hear this one


class Nothing(NamedTuple):
    """The data of a node that has none."""

    empty: Any


class Stage(NamedTuple):
    """A plan, its data, its links and its weather, for one seed."""

    plan: Plan
    task: Task
    links: dict[tuple[str, str], tuple[Links, ...]]  # (sender, receiver) -> one for each phase
    weather: Weather
    seed: int
    data_role: str = "client"
    nothing: Any = Nothing(np.zeros(1))

    def count(self, role: str) -> int:
        """How many nodes play a role."""
        return len(self.plan.tables[role][0])

    def links_of(self, turn: Any, n: int) -> Links:
        """The links a turn runs along in a round."""
        phases = self.links[turn.sender, turn.receiver]
        return phases[n % len(phases)]


def star_links(clients: int) -> dict[tuple[str, str], tuple[Links, ...]]:
    """One server that every client talks to."""
    ones, zeros = np.ones(clients), np.zeros(clients, np.int64)
    down = Links(np.arange(clients + 1), zeros, ones, np.array([clients]))
    up = Links(np.array([0, clients]), np.arange(clients), ones, np.ones(clients, np.int64))
    return {("server", "client"): (down,), ("client", "server"): (up,)}


def tabled(record: Any, rows: int) -> Any:
    """A table of `rows` empty records."""
    return type(record)(*[np.zeros((rows, *array.shape), array.dtype) for array in record])
