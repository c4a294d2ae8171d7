"""The hospital's story: a network is trained at eight sites, and what happens to sites, links and servers happens.

Node code as it is, with words of their true size, under a clock of its own (`simulation`): a link that is cut for six
minutes, twice, in the middle of a word; a site that restarts, one that leaves for good, a server that is killed.
"""

import gc
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from archipel.deploy import wire
from archipel.deploy.torture.simulation import Host, Simulation, Watcher
from archipel.deployment import Deployment
from archipel.federation import Federation

SITES, ROUNDS, WEIGHTS = 8, 20, 200_000
CUT = 360.0  # seconds
SPEED = 1e6  # bytes a second that a site's link carries, each way


class Traffic(Watcher):
    """Counts what goes over the links, and what of it went before."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[Any, ...]] = Counter()
        self.bytes = self.again = 0

    def sends(self, host: Host, to: str, data: bytes) -> None:
        first, _, tag, seq, _, _ = wire.HEADER.unpack_from(data)
        kind, size = first & 15, len(data)
        self.bytes += size
        if kind not in (wire.WORD, wire.TOLD, wire.SOME):
            return
        piece = wire.PIECED.unpack_from(data, wire.HEADER.size)[0] if kind == wire.SOME else 0
        self.seen[host.name, to, tag, seq, piece] += 1
        if self.seen[host.name, to, tag, seq, piece] > 1:
            self.again += size


@dataclass
class Story:
    """What came of it."""

    federation: Any
    seconds: float = 0.0
    calm: float = 0.0  # the same without anything happening
    rounds: int = 0
    sites: dict[str, int] = field(default_factory=dict)  # updates of each
    bytes: int = 0
    again: int = 0
    word: int = 0
    undone: float = 0.0  # seconds of work before each failure
    kept: int = 0  # letters at the server for who left
    happened: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Updates that are not in the model, of sites that were there."""
        stayed = [updates for name, updates in self.sites.items() if name != LEAVES]
        return len(stayed) * self.rounds - sum(stayed)

    def rows(self) -> list[tuple[str, str]]:
        """The figures, for the screen."""
        more = self.seconds - self.calm
        return [
            ("sites, rounds, weights", f"{SITES}, {self.rounds} of {self.federation.rounds}, {self.word // 4:,}"),
            *[("", what) for what in self.happened],
            ("rounds lost", f"{self.federation.rounds - self.rounds}"),
            ("updates lost, of sites that stayed", f"{self.lost} of {(SITES - 1) * self.rounds}"),
            ("bytes sent", f"{self.bytes:,}"),
            ("bytes sent again, to see who is back too", f"{self.again:,}"),
            ("time", f"{self.seconds / 60:.1f} minutes; {self.calm / 60:.1f} if nothing happens, {more / 60:+.1f}"),
            ("  if each failure began the run again", f"{(self.calm + self.undone) / 60:.1f} minutes"),
            ("letters kept for the site that left", f"{self.kept}"),
        ]


CUTS, RESTARTS, LEAVES = "client-1", "client-2", "client-3"


def hospital(weights: int = WEIGHTS, rounds: int = ROUNDS, sites: int = SITES) -> Federation:
    """A network of about so many weights, on pictures of digits dealt to the sites."""
    from archipel.algorithms.deep import FedAvgDeep
    from archipel.problems.deep import Deep

    width = max(2, round((-75 + (75 * 75 + 4 * weights) ** 0.5) / 2))  # 64 w + w + w w + w + 10 w + 10
    problem = Deep(model="mlp", widths=(width, width), clients=sites, samples=sites * 64, test=100)
    deploy = Deployment(pace="quorum", deadline=3600.0, durable=False)
    return Federation(problem, FedAvgDeep(batch=32, local_steps=1), rounds=rounds, every=rounds, deploy=deploy)


def begun(federation: Federation, speed: float, watcher: Watcher) -> Simulation:
    world = Simulation(federation, 1, watcher)
    world.speed, world.latency = speed, 0.05
    world.start_all()
    return world


def over(world: Simulation) -> bool:
    return all(host.done for host in world.hosts.values())


def calm_time(federation: Federation, speed: float) -> float:
    """Seconds that it takes if nothing happens."""
    world = begun(federation, speed, Watcher())
    world.run(1e9, lambda: over(world))
    return world.time


def tell(federation: Federation | None = None, speed: float = SPEED) -> Story:
    """Play it, and once more without anything happening."""
    federation = federation or hospital()
    story = Story(federation, calm=calm_time(federation, speed))
    gc.collect()  # hosts and their world know each other: nine networks would stay in memory
    traffic = Traffic()
    world = begun(federation, speed, traffic)
    round_takes = story.calm / federation.rounds

    def until(n: int, share: float) -> None:
        """Into the middle of a word of round n."""
        world.run(1e9, lambda: world.hosts["server"].last is not None and world.hosts["server"].last.player.round >= n)
        world.run(world.time + share * round_takes)

    def happens(what: str) -> None:
        story.happened.append(f"minute {world.time / 60:.1f}: {what}")
        story.undone += world.time

    third = federation.rounds // 4
    for n in (1, 2 * third):
        until(n, 0.3)
        happens(f"the link of {CUTS} is cut for {CUT / 60:.0f} minutes")
        world.cut.update({(CUTS, "server"), ("server", CUTS)})
        world.at(world.time + CUT, world.cut.clear)
        if n == 1:
            until(third, 0.6)
            happens(f"{RESTARTS} restarts")
            world.kill(world.hosts[RESTARTS], 30.0)
    until(2 * third + 2, 0.1)
    story.happened.append(f"minute {world.time / 60:.1f}: {LEAVES} leaves for good")
    world.hosts[LEAVES].leaves = True
    world.kill(world.hosts[LEAVES], 0.0)
    until(3 * third, 0.7)
    happens("the server is killed")
    world.kill(world.hosts["server"], 45.0)  # sites wait a minute for the answer to their last word
    world.run(1e9, lambda: over(world))
    server = world.hosts["server"].last
    story.seconds, story.rounds, story.bytes, story.again = (
        world.time,
        server.player.round,
        traffic.bytes,
        traffic.again,
    )
    story.word = server.view.vocabulary.widest
    story.sites = {name: host.last.player.messages[1] for name, host in world.hosts.items() if name != "server"}
    story.kept = len(server.office.neighbours[LEAVES].letters)
    return story
