"""All nodes of a federation in this process, on the in-memory network, one after the other."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from archipel import Federation
from archipel.deploy.memory import Hub
from archipel.deploy.node import Node
from archipel.deploy.roster import roster_of
from archipel.deploy.sources import source_of
from archipel.deploy.view import view_of
from archipel.deployment import Deployment
from archipel.simulate.plain import PlainEngine


class Village:
    """A deployed federation in one thread."""

    def __init__(self, federation: Federation, folder: Path | None = None, wrap: Any = None, **deploy: Any):
        deploy = {"pace": "replay", "durable": False} | deploy
        self.federation = federation.with_(deploy=Deployment(**deploy))
        self.folder, self.wrap = folder, wrap or (lambda name, link: link)
        self.roster = roster_of(self.federation.instance())
        both = set(self.roster.edges) | {(b, a) for a, b in self.roster.edges}
        self.hub = Hub(both)
        self.nodes: dict[str, Node] = {}
        for member in self.roster.members:
            self.start(member.name)

    def start(self, name: str) -> None:
        view = view_of(self.federation, name)
        link = self.wrap(name, self.hub.join(name))
        home = self.folder / name if self.folder else None
        self.nodes[name] = Node(view, link, self.federation.deploy, home, source_of(view, "", Path(".")))

    def kill(self, name: str) -> None:
        """Nothing is said, nothing is saved."""
        self.nodes[name].close()

    def run(self, seconds: float = 120.0, each: Any = None) -> None:
        end = time.monotonic() + seconds
        while not all(node.player.finished for node in self.nodes.values()):
            assert time.monotonic() < end, {name: n.player.round for name, n in self.nodes.items()}
            for name in list(self.nodes):
                if each is not None:
                    each(name)
                self.nodes[name].turn(longest=0.0)

    def table(self, role: str) -> Any:
        """All rows of a role, as a simulation has them."""
        rows = [self.nodes[name].player.me for name in self.roster.names[role]]
        return type(rows[0])(*[np.stack(arrays) for arrays in zip(*rows)])

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


def simulated(federation: Federation) -> PlainEngine:
    """The same federation, played by the plain engine."""
    engine = PlainEngine(federation.instance())
    engine.advance(0, federation.rounds)
    return engine


def assert_same(village: Village, engine: PlainEngine) -> None:
    """Every array of every node, to the last bit."""
    for role, table in engine.instance.plan.tables.items():
        for name, theirs, ours in zip(table._fields, table, village.table(role)):
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{role}.{name}")
    players = [node.player for node in village.nodes.values()]
    assert [sum(counts) for counts in zip(*[p.messages for p in players])] == engine.messages
    assert sum(p.updates for p in players) == engine.updates
