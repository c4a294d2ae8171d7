"""All nodes of a federation in this process, in the simulated world: time is virtual, nothing waits."""

from typing import Any

import numpy as np

from archipel import Federation
from archipel.deploy.torture.simulation import Host, Simulation, Watcher
from archipel.deployment import Deployment
from archipel.node import leaves, mapped, named_leaves
from archipel.privacy.journal import FileJournal
from archipel.privacy.releases import from_json, rho_of
from archipel.simulate.plain import PlainEngine

FOREVER = float("inf")


class Each(Watcher):
    """Calls a function after every beat of a node."""

    def __init__(self) -> None:
        self.each: Any = None
        self.sent: list[tuple[str, str, bytes]] = []
        self.sentences: list[tuple[str, str]] = []

    def beaten(self, host: Host) -> None:
        if self.each is not None:
            self.each(host.name)

    def sends(self, host: Host, to: str, data: bytes) -> None:
        self.sent.append((host.name, to, data))

    def halted(self, host: Host, sentence: str) -> None:
        self.sentences.append((host.name, sentence))


class Village:
    """A deployed federation in the simulated world."""

    def __init__(self, federation: Federation, seed: int = 0, view: Any = None, first: Any = None, **deploy: Any):
        deploy = {"pace": "replay"} | deploy
        self.federation = federation.with_(deploy=Deployment(**deploy))
        self.seen = Each()
        self.world = Simulation(self.federation, seed, self.seen)
        self.world.restarts = False
        self.world.view = view or self.world.view
        self.roster, self.hosts = self.world.roster, self.world.hosts
        for name in self.hosts if first is None else first:
            self.start(name)

    @property
    def nodes(self) -> dict[str, Any]:
        """Every node, or what it was when it ended."""
        return {name: host.last for name, host in self.hosts.items()}

    def start(self, name: str) -> None:
        self.world.start(self.hosts[name])

    def kill(self, name: str, back: float = FOREVER) -> None:
        """Nothing is said, nothing is saved; it is back after so many seconds."""
        self.world.kill(self.hosts[name], back)

    def kill_soon(self, name: str, back: float) -> None:
        """The same, from within a beat."""
        self.world.at(self.world.time, self.kill, name, back)

    def until(self, holds: Any, seconds: float = 1e6) -> None:
        """Let time go by until something holds."""
        self.world.run(self.world.time + seconds, holds)
        assert holds(), {name: node.player.round for name, node in self.nodes.items()}

    def run(self, each: Any = None, seconds: float = 1e6) -> None:
        """To the end of all rounds."""
        self.seen.each = each
        self.until(lambda: all(node is not None and node.player.finished for node in self.nodes.values()), seconds)
        self.seen.each = None

    def table(self, role: str) -> Any:
        """All rows of a role, as a simulation has them."""
        rows = [self.nodes[name].player.me for name in self.roster.names[role]]
        columns = iter(zip(*map(leaves, rows)))
        return mapped(lambda _: np.stack(next(columns)), rows[0])

    def charges(self, name: str) -> list[float]:
        """What a node's ledger on its disk was charged; what is alike may be one line."""
        journal = FileJournal("ledger", self.hosts[name].disk.open("ledger.journal"))
        paid = [entry for entry in journal.entries if "release" in entry]
        return [rho_of(from_json(entry["release"])) for entry in paid for _ in range(entry["times"])]

    def lossy(self, loss: float = 0.0, repeat: float = 0.0, late: float = 0.0) -> None:
        """From now on links lose, repeat and delay what they carry."""

        def law(delay: float, key: int) -> list[float]:
            copies = 2 if key >> 16 & 0xFFFF < repeat * 0x10000 else 1
            chances = [key >> 32 & 0xFFFF, key >> 48]
            return [delay + late * chance / 0xFFFF for chance in chances[:copies] if chance >= loss * 0x10000]

        self.world.links = dict.fromkeys(self.world.edges, law)


def simulated(federation: Federation) -> PlainEngine:
    """The same federation, played by the plain engine; networks one after the other, as nodes have them."""
    engine = PlainEngine(federation.instance(), side_by_side=False)
    engine.advance(0, federation.rounds)
    return engine


def assert_same(village: Village, engine: PlainEngine, within: float = 0.0) -> None:
    """Every array of every node, to the last bit; networks may round otherwise, where their data lie elsewhere."""
    for role, table in engine.instance.plan.tables.items():
        for (name, theirs), ours in zip(named_leaves(table), leaves(village.table(role))):
            np.testing.assert_allclose(ours, theirs, rtol=within, atol=within, err_msg=f"{role}.{name}")
    players = [node.player for node in village.nodes.values()]
    messages = [sum(counts) for counts in zip(*[p.messages for p in players])]
    assert messages[: len(engine.messages)] == engine.messages  # where words are masked there are further turns
    assert sum(p.updates for p in players) == engine.updates
