"""What a node knows survives: checkpoints that are whole or not there.

Two files take turns. A checkpoint goes into the older one, with a number and a checksum, and is forced to disk; only
then does anything leave the node (`post`). A write that a crash cut short does not fit its checksum, and the other file
still holds the checkpoint before it, after which nothing had left. No pickle: JSON for what is small, raw bytes for
arrays.
"""

import json
import struct
from hashlib import blake2b
from typing import Any

import numpy as np

from archipel.deploy.world import Disk
from archipel.errors import BadInput

MAGIC = b"archipel checkpoint 1\n"
HEAD = struct.Struct("<QQ16s")  # number, length, checksum
FILES = ("checkpoint.a", "checkpoint.b")
ANEW = "to start anew, remove checkpoint.a, checkpoint.b and rows; keep ledger.journal, it is what has been spent"


class Halted(RuntimeError):
    """A node cannot go on; the sentence says why. The command line exits with status 1."""


class Torn(Halted):
    """Both checkpoints are damaged: a crash cannot do that."""


def packed(record: dict[str, Any]) -> bytes:
    """A record of numbers, texts, lists, bytes and arrays as bytes.

    >>> unpacked(packed({"round": 3, "model": np.arange(2.0), "letters": b"ab"}))["model"]
    array([0., 1.])
    """
    plain, parts, at = {}, [], 0
    for name, value in record.items():
        if isinstance(value, np.ndarray):
            data = np.ascontiguousarray(value).tobytes()
            plain[name] = {"array": [value.dtype.str, list(value.shape)], "at": at, "size": len(data)}
        elif isinstance(value, bytes):
            data = value
            plain[name] = {"bytes": 1, "at": at, "size": len(data)}
        else:
            plain[name], data = {"is": value}, b""
        parts.append(data)
        at += len(data)
    head = json.dumps(plain).encode()
    return struct.pack("<I", len(head)) + head + b"".join(parts)


def unpacked(data: bytes) -> dict[str, Any]:
    """The record that `packed` made these bytes of; arrays can be written to."""
    (size,) = struct.unpack_from("<I", data)
    plain = json.loads(data[4 : 4 + size])
    base, record = 4 + size, {}
    for name, entry in plain.items():
        if "is" in entry:
            record[name] = entry["is"]
            continue
        part = data[base + entry["at"] : base + entry["at"] + entry["size"]]
        if "array" in entry:
            dtype, shape = entry["array"]
            record[name] = np.frombuffer(part, np.dtype(dtype)).reshape(shape).copy()
        else:
            record[name] = part
    return record


def checksum(number: int, data: bytes) -> bytes:
    return blake2b(MAGIC + struct.pack("<Q", number) + data, digest_size=16).digest()


class Store:
    """A node's checkpoints. `durable` forces them to disk: without it they survive the process, not the machine."""

    def __init__(self, disk: Disk, durable: bool = True):
        self.disk, self.durable = disk, durable
        try:
            self.files = [disk.open(name) for name in FILES]
            if durable:
                disk.sync()
        except OSError as problem:
            raise BadInput("deploy.state", str(disk.path), f"a folder that can be written to ({problem})") from problem
        self.number = 0

    def load(self) -> dict[str, Any] | None:
        """The newest checkpoint that is whole; None where there is none yet."""
        found, blank = [], 0
        for file in self.files:
            if self.durable:
                file.sync()  # a process that was killed may have written it and not forced it to disk
            content = file.read()
            blank += not content.strip(b"\0")
            whole = parse(content)
            if whole is not None:
                found.append(whole)
        if not found:
            if not blank:
                raise Torn(f"{self.disk.path}: both checkpoints are damaged. Restore them, or, {ANEW}.")
            return None
        self.number, data = max(found)
        return unpacked(data)

    def save(self, record: dict[str, Any]) -> None:
        """Write a checkpoint into the older file; it holds when this returns."""
        data, number = packed(record), self.number + 1
        file = self.files[number % 2]
        try:
            file.write(MAGIC + HEAD.pack(number, len(data), checksum(number, data)) + data, 0)
            if self.durable:
                file.sync()
        except OSError as problem:
            raise Halted(f"{self.disk.path}: a checkpoint failed ({problem.strerror}). Nothing was sent.") from problem
        self.number = number

    def close(self) -> None:
        for file in self.files:
            file.close()


def parse(content: bytes) -> tuple[int, bytes] | None:
    """Number and data of a checkpoint file, if it is whole."""
    start = len(MAGIC) + HEAD.size
    if len(content) < start or not content.startswith(MAGIC):
        return None
    number, length, check = HEAD.unpack_from(content, len(MAGIC))
    data = content[start : start + length]
    return (number, data) if len(data) == length and checksum(number, data) == check else None
