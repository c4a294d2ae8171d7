"""What a node writes down for whoever looks on: its row at the measured rounds, and how it is doing now.

Both stay on the device. `archipel up`, which has all devices on one machine, reads them and measures as a simulation
does.
"""

import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

from archipel.deploy.store import LARGE, packed, parts_of, unpacked
from archipel.deploy.world import Disk

ENTRY = struct.Struct("<II")  # length, checksum
MOST = 4096  # entries
ROWS, STATUS = "rows", "status.json"


class Trace:
    """The measured rows of a node. The last entry of a round counts; one that a crash cut short is dropped."""

    def __init__(self, disk: Disk):
        self.disk, self.file = disk, disk.open(ROWS)
        self.size, self.count, self.last = 0, 0, -1
        while (data := entry(self.file.read, self.size)) is not None:  # one by one: all may be more than memory holds
            self.size, self.count = self.size + ENTRY.size + len(data), self.count + 1
            self.last = max(self.last, unpacked(data)["round"])
        if self.file.read(self.size, 1):
            self.file.truncate(self.size)
        self.file.sync()  # or what was cut off, here or by a process killed then, comes back behind new entries

    def write(self, record: dict[str, Any]) -> None:
        parts, check = parts_of(record), 0
        for part in parts:
            check = zlib.crc32(part, check)
        at, length = self.size, sum(map(len, parts))
        parts.insert(0, ENTRY.pack(length, check))
        for part in parts if length > LARGE else [b"".join(parts)]:
            self.file.write(part, at)
            at += len(part)
        self.size = at
        self.last = record["round"]
        self.count += 1
        if self.count > MOST:
            self.thin()

    def thin(self) -> None:
        """Keep the first entry and every other one, so that a node that runs for years does not fill its disk."""
        found, _ = entries(self.file.read())
        kept = [packed(entry) for i, entry in enumerate(found) if i % 2 == 0 or i == len(found) - 1]
        content = b"".join(ENTRY.pack(len(data), zlib.crc32(data)) + data for data in kept)
        self.file.close()
        self.disk.replace(ROWS, content, durable=True)
        self.file, self.size, self.count = self.disk.open(ROWS), len(content), len(kept)

    def close(self) -> None:
        self.file.close()


def entries(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """All whole entries of a trace, and where they end."""
    found, at = [], 0
    while (part := entry(lambda begin, size: data[begin : begin + size], at)) is not None:
        found.append(unpacked(part))
        at += ENTRY.size + len(part)
    return found, at


def entry(read: Callable[[int, int], bytes], at: int) -> bytes | None:
    """The entry at a place, if there is a whole one; `read` gives so many bytes from a place on."""
    head = read(at, ENTRY.size)
    if len(head) < ENTRY.size:
        return None
    length, check = ENTRY.unpack(head)
    data = read(at + ENTRY.size, length)
    whole = length and len(data) == length and zlib.crc32(data) == check  # a lost block reads as zeros
    return data if whole else None


def write_status(disk: Disk, status: dict[str, Any]) -> None:
    """Replace the status file as a whole."""
    disk.replace(STATUS, json.dumps(status).encode())
