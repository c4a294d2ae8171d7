"""The log of what left a node: when, to whom, what, of which rounds, how many bytes. It stays with the site.

A line of JSON for each day, receiver and content, kept up to date in its place before a frame leaves: what was written
survives the process, and the machine but for the last seconds. Old days are put together, so the file stays small. The
first two lines take turns to say how much of the day's allowance was taken: that is on disk before it is used.
"""

import json
from typing import Any

from archipel.deploy.world import Disk
from archipel.policy import DAY

WIDTH = 320  # bytes of a line
MOST = 2000  # lines
SHARES = 32  # of a day's allowance, which is taken in so many parts


class Left:
    """What left one node of a federation."""

    def __init__(self, disk: Disk, name: str):
        self.disk, self.name, self.file = disk, name, disk.open(name)
        disk.sync()
        found = read(self.file.read())
        allowances = [entry for entry in found if "day" in entry]
        newest = max(allowances, key=lambda entry: entry["number"], default={"number": 0, "day": 0, "taken": 0})
        self.number, self.day, self.taken = newest["number"], newest["day"], newest["taken"]
        self.used = self.taken
        self.entries = [entry for entry in found if "to" in entry]
        self.places = {key_of(entry): i for i, entry in enumerate(self.entries)}
        self.rewrite()

    def note(self, clock: float, to: str, what: str, number: int, size: int) -> None:
        """A frame is about to leave."""
        key = int(clock // DAY), to, what
        at = self.places.get(key)
        if at is None:
            if len(self.entries) >= max(MOST, 4 * len({(e["to"], e["what"]) for e in self.entries})):
                self.thin()
            at = self.places[key] = len(self.entries)
            self.entries.append(
                {"first": clock, "last": clock, "to": to, "what": what, "rounds": [number, number]}
                | {"frames": 0, "bytes": 0}
            )
        entry = self.entries[at]
        low, high = entry["rounds"]
        entry |= {"last": clock, "rounds": [min(low, number), max(high, number)]}
        entry |= {"frames": entry["frames"] + 1, "bytes": entry["bytes"] + size}
        self.write(at + 2, entry)

    def room(self, day: int, most: int) -> int:
        """What is left of a day's allowance. A clock that is set back gives none back."""
        if day > self.day:
            self.day, self.taken, self.used = day, 0, 0
        return most - self.used

    def take(self, day: int, size: int, most: int) -> None:
        """Take bytes from a day's allowance: on disk when this returns."""
        if size > self.room(day, most):
            raise ValueError(f"{size} bytes of {self.room(day, most)}")
        if self.used + size > self.taken:
            self.allow(min(most, self.used + max(size, most // SHARES)))
            self.file.sync()
        self.used += size

    def allow(self, taken: int) -> None:
        """Write down how much of the day's allowance is taken, beside what was written before."""
        self.number, self.taken = self.number + 1, taken
        self.write(self.number % 2, self.allowance())

    def allowance(self) -> dict[str, Any]:
        return {"number": self.number, "day": self.day, "taken": self.taken}

    def thin(self) -> None:
        """Put neighbouring days of the same receiver and content together: each two of them become one."""
        last = max(key_of(entry)[0] for entry in self.entries)
        kept: list[dict[str, Any]] = []
        waiting: dict[tuple[str, str], dict[str, Any]] = {}
        for entry in self.entries:
            before = waiting.pop((entry["to"], entry["what"]), None)
            if before is None or key_of(entry)[0] == last:
                kept.append(entry)
                waiting[entry["to"], entry["what"]] = entry
                continue
            low, high = zip(before["rounds"], entry["rounds"])
            before |= {"last": entry["last"], "rounds": [min(low), max(high)]}
            before |= {name: before[name] + entry[name] for name in ("frames", "bytes")}
        self.entries = kept
        self.places = {key_of(entry): i for i, entry in enumerate(kept)}
        self.rewrite()

    def rewrite(self) -> None:
        """Put the whole file in place of the one that is there: on disk before it does, or an allowance comes back."""
        lines = [self.allowance(), self.allowance(), *self.entries]
        self.file.close()
        self.disk.replace(self.name, b"".join(map(line_of, lines)), durable=True)
        self.file = self.disk.open(self.name)

    def write(self, at: int, entry: dict[str, Any]) -> None:
        self.file.write(line_of(entry), at * WIDTH)

    def close(self) -> None:
        """Give back what of the day's allowance was not used."""
        if self.taken > self.used:
            self.allow(self.used)
        self.file.close()


def key_of(entry: dict[str, Any]) -> tuple[int, str, str]:
    return int(entry["last"] // DAY), entry["to"], entry["what"]


def line_of(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry).encode().ljust(WIDTH - 1) + b"\n"


def read(content: bytes) -> list[dict[str, Any]]:
    """The lines of a log; one that a crash tore is left out."""
    found = []
    for line in content.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found
