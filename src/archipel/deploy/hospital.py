"""The hospital's story for real: processes, mutual TLS on loopback, links that are slow and are cut.

What `torture.story` plays under a clock of its own, with smaller numbers. Every link goes through a proxy that counts
what crosses it, carries so many bytes a second, and can be cut.
"""

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from archipel.deploy.assemble import read_rows
from archipel.deploy.fleet import Fleet
from archipel.deploy.torture.story import CUTS, LEAVES, RESTARTS, hospital

SITES, ROUNDS, WEIGHTS = 4, 6, 200_000
CUT = 8.0  # seconds
SPEED = 4e5  # bytes a second that a site's link carries, both ways together
PATIENCE = 900.0  # seconds in which all must be over


@dataclass
class RealStory:
    """What came of it."""

    rounds: int
    seconds: float = 0.0
    reached: int = 0
    updates: dict[str, int] = field(default_factory=dict)  # of each site
    links: int = 0  # bytes that crossed them
    words: int = 0  # of these, what counted in the end
    happened: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Updates that are not in the model, of sites that stayed."""
        stayed = [updates for name, updates in self.updates.items() if name != LEAVES]
        return len(stayed) * self.reached - sum(stayed)

    def rows(self, calm: "RealStory") -> list[tuple[str, str]]:
        """The figures, beside those of a run in which nothing happened."""
        stayed = (len(self.updates) - 1) * self.reached
        more = self.seconds - calm.seconds
        return [
            ("sites, rounds", f"{len(self.updates)}, {self.reached} of {self.rounds}"),
            *[("", what) for what in self.happened],
            ("rounds lost", f"{self.rounds - self.reached}"),
            ("updates lost, of sites that stayed", f"{self.lost} of {stayed}"),
            ("bytes over the links", f"{self.links:,}"),
            ("  beyond the words that counted", f"{self.over} ({calm.over} if nothing happens)"),
            ("time", f"{self.seconds:.0f} s; {calm.seconds:.0f} s if nothing happens, {more:+.0f} s"),
        ]

    @property
    def over(self) -> str:
        return f"{100 * (self.links / self.words - 1):.1f} %"


class Script:
    """Does what happens, when the server is in the round for it."""

    def __init__(self, story: RealStory):
        self.story, self.begun = story, 0.0
        third = max(1, story.rounds // 3)
        self.acts = [(1, self.cut), (third, self.restart), (third + 1, self.cut), (2 * third, self.leave)]
        self.acts += [(story.rounds - 1, self.kill)]

    def look(self, fleet: Fleet, statuses: dict[str, dict[str, Any]]) -> None:
        now = time.monotonic()
        self.begun = self.begun or now
        cut = any(proxy.cut_until > now for proxy in fleet.proxies.values())
        if self.acts and not cut and statuses["server"].get("round", 0) >= self.acts[0][0] and "server" in fleet.pids:
            what = self.acts.pop(0)[1](fleet, now)
            self.story.happened.append(f"second {now - self.begun:.0f}: {what}")

    def cut(self, fleet: Fleet, now: float) -> str:
        fleet.proxies[CUTS, "server"].cut(CUT)
        return f"the link of {CUTS} is cut for {CUT:g} seconds"

    def restart(self, fleet: Fleet, now: float) -> str:
        fleet.kill(RESTARTS)
        return f"{RESTARTS} is killed, and starts again"

    def leave(self, fleet: Fleet, now: float) -> str:
        """Stopped, and started once more as `archipel leave` starts it."""
        fleet.orders[LEAVES] |= {"leaves": True, "linger": 1.0}
        fleet.expected.add(fleet.pids[LEAVES])
        fleet.signal(LEAVES, signal.SIGTERM)
        return f"{LEAVES} leaves for good"

    def kill(self, fleet: Fleet, now: float) -> str:
        fleet.kill("server")
        fleet.restarting["server"] = now + 2.0
        return "the server is killed, and starts again"


def tell(folder: Path, weights: int = WEIGHTS, rounds: int = ROUNDS, calm: bool = False) -> RealStory:
    """Play it in a folder; `calm`: without anything happening."""
    folder.mkdir(parents=True, exist_ok=True)
    federation = hospital(weights, rounds, SITES).with_(every=1)
    description = folder / "federation.toml"
    description.write_text(federation.to_toml(), encoding="utf-8")
    fleet = Fleet(description, federation, folder / "out", proxied=True, patience=PATIENCE)
    story = RealStory(rounds)
    script = Script(story)
    if calm:
        script.acts.clear()
    for proxy in fleet.proxies.values():
        proxy.speed = SPEED
    story.seconds = fleet.run(script.look, PATIENCE).seconds
    word = fleet.instance.task.size * 4
    last = {name: read_rows(fleet.nodes / name)[-1] for name in fleet.orders}
    story.reached = last.pop("server")["round"]
    story.updates = {name: row["messages"][1] for name, row in last.items()}
    story.words = word * sum(sum(row["messages"]) for row in last.values())
    story.links = sum(proxy.up + proxy.down for proxy in fleet.proxies.values())
    return story
