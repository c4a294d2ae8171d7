"""The network as a node sees it: bytes to a neighbour, bytes from a neighbour, and no promises.

A `Link` may lose, repeat, delay or reorder what it carries. It never lies about who sent it: the sender's name comes
from its certificate (`zenoh_link`) or from the hub (`memory`), never from the bytes. `post.PostOffice` makes promises
out of it: everything once, in order, answered.
"""

import heapq
import itertools
import random
import threading
import time
from typing import Protocol


class Link(Protocol):
    """One node's end of the network."""

    def send(self, to: str, data: bytes) -> None:
        """Hand bytes over to the network. Returns at once; never raises because a neighbour is away."""

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """What came in, and from whom; None where nothing did in `timeout` seconds."""

    def close(self) -> None:
        """Leave the network."""


class Faulty:
    """A link that loses, repeats, delays and so reorders what it is given, by a seed. For tests and `--chaos`."""

    def __init__(self, link: Link, seed: int, loss: float = 0.0, repeat: float = 0.0, delay: float = 0.0):
        self.link, self.random = link, random.Random(seed)
        self.loss, self.repeat, self.delay = loss, repeat, delay
        self.cut = False
        self.later: list[tuple[float, int, str, bytes]] = []
        self.order = itertools.count()
        self.lock = threading.Lock()

    def send(self, to: str, data: bytes) -> None:
        with self.lock:
            copies = 2 if self.random.random() < self.repeat else 1
            for _ in range(copies):
                if not self.cut and self.random.random() >= self.loss:
                    due = time.monotonic() + self.random.random() * self.delay
                    heapq.heappush(self.later, (due, next(self.order), to, data))
        self.deliver()

    def deliver(self) -> None:
        """Hand over what is due."""
        with self.lock:
            while self.later and self.later[0][0] <= time.monotonic():
                _, _, to, data = heapq.heappop(self.later)
                self.link.send(to, data)

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        end = time.monotonic() + timeout
        while True:
            self.deliver()
            left = end - time.monotonic()
            found = self.link.receive(max(0.0, min(left, 0.005) if self.later else left))
            if found is not None or left <= 0:
                return None if self.cut else found

    def close(self) -> None:
        self.link.close()
