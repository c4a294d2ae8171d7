"""What a node writes down for whoever looks on: its row at the measured rounds, and how it is doing now.

Both stay on the device. `archipel up`, which has all devices on one machine, reads them and measures as a simulation
does.
"""

import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

from archipel.deploy.store import packed, unpacked

ENTRY = struct.Struct("<II")  # length, checksum


class Trace:
    """The measured rows of a node. The last entry of a round counts; one that a crash cut short is dropped."""

    def __init__(self, folder: Path):
        self.path = folder / "rows"
        found, good = entries(self.path)
        self.last = max((record["round"] for record in found), default=-1)
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self.file, good)

    def write(self, record: dict[str, Any]) -> None:
        data = packed(record)
        os.lseek(self.file, 0, os.SEEK_END)
        os.write(self.file, ENTRY.pack(len(data), zlib.crc32(data)) + data)
        self.last = record["round"]

    def close(self) -> None:
        os.close(self.file)


def entries(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All whole entries of a trace, and where they end."""
    data = path.read_bytes() if path.exists() else b""
    found, at = [], 0
    while at + ENTRY.size <= len(data):
        length, check = ENTRY.unpack_from(data, at)
        part = data[at + ENTRY.size : at + ENTRY.size + length]
        if len(part) < length or zlib.crc32(part) != check:
            break
        found.append(unpacked(part))
        at += ENTRY.size + length
    return found, at


def write_status(folder: Path, status: dict[str, Any]) -> None:
    """Replace the status file as a whole."""
    part = folder / "status.part"
    part.write_text(json.dumps(status), encoding="utf-8")
    part.replace(folder / "status.json")


def read_status(folder: Path) -> dict[str, Any]:
    """How a node is doing; nothing where it has not said so yet."""
    try:
        return json.loads((folder / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
