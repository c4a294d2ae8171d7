"""What a node writes down for whoever looks on: its row at the measured rounds, and how it is doing now.

Both stay on the device. `archipel up`, which has all devices on one machine, reads them and measures as a simulation
does.
"""

import json
import struct
import zlib
from typing import Any

from archipel.deploy.store import packed, unpacked
from archipel.deploy.world import Disk

ENTRY = struct.Struct("<II")  # length, checksum
MOST = 4096  # entries
ROWS, STATUS = "rows", "status.json"


class Trace:
    """The measured rows of a node. The last entry of a round counts; one that a crash cut short is dropped."""

    def __init__(self, disk: Disk):
        self.disk, self.file = disk, disk.open(ROWS)
        found, self.size = entries(self.file.read())
        self.count = len(found)
        self.last = max((record["round"] for record in found), default=-1)
        self.file.truncate(self.size)

    def write(self, record: dict[str, Any]) -> None:
        data = packed(record)
        self.file.write(ENTRY.pack(len(data), zlib.crc32(data)) + data, self.size)
        self.size += ENTRY.size + len(data)
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
        self.disk.replace(ROWS, content)
        self.file, self.size, self.count = self.disk.open(ROWS), len(content), len(kept)

    def close(self) -> None:
        self.file.close()


def entries(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """All whole entries of a trace, and where they end."""
    found, at = [], 0
    while at + ENTRY.size <= len(data):
        length, check = ENTRY.unpack_from(data, at)
        part = data[at + ENTRY.size : at + ENTRY.size + length]
        if not length or len(part) < length or zlib.crc32(part) != check:  # a lost block reads as zeros
            break
        found.append(unpacked(part))
        at += ENTRY.size + length
    return found, at


def write_status(disk: Disk, status: dict[str, Any]) -> None:
    """Replace the status file as a whole."""
    disk.replace(STATUS, json.dumps(status).encode())
