"""Faults on purpose: kill -9, pauses, cut links, at moments that a seed chooses."""

import random
import signal
import time
from typing import Any

KINDS = ("kill", "pause", "cut")


class Chaos:
    """Does harm to a fleet, a fault every `every` seconds on average, at most `faults` of them."""

    def __init__(self, seed: int, faults: int = 10**9, every: float = 0.3, pause: float = 0.4, cut: float = 0.4):
        self.random = random.Random(seed)
        self.faults, self.every, self.pause, self.cut = faults, every, pause, cut
        self.done = 0
        self.counts = dict.fromkeys(KINDS, 0)
        self.next = 0.0
        self.paused: dict[str, float] = {}

    def look(self, fleet: Any, statuses: dict[str, dict[str, Any]]) -> None:
        """Called several times a second: wake who was paused long enough, and perhaps do some harm."""
        now = time.monotonic()
        self.wake(fleet, now)
        if not self.next:
            self.next = now + self.every
        while self.done < self.faults and now >= self.next and 2 * len(fleet.pids) > len(fleet.orders):
            self.next += self.random.expovariate(1 / self.every)
            self.harm(fleet, now)

    def wake(self, fleet: Any, now: float) -> None:
        """Let those go on that were paused long enough."""
        for name, until in list(self.paused.items()):
            if now >= until or self.done >= self.faults:
                del self.paused[name]
                fleet.signal(name, signal.SIGCONT)

    def harm(self, fleet: Any, now: float) -> None:
        """One fault, to one node or link."""
        kind = self.random.choice(KINDS if fleet.proxies else KINDS[:2])
        name = self.random.choice(sorted(fleet.orders))
        if kind == "kill":
            self.paused.pop(name, None)
            if not fleet.kill(name):
                return
            fleet.restarting[name] = now + self.random.random() * 0.3
        elif kind == "pause":
            if name not in fleet.pids or name in self.paused:
                return
            fleet.signal(name, signal.SIGSTOP)
            self.paused[name] = now + self.random.random() * self.pause
        else:
            link = self.random.choice(sorted(fleet.proxies))
            fleet.proxies[link].cut(self.random.random() * self.cut)
        self.done += 1
        self.counts[kind] += 1
