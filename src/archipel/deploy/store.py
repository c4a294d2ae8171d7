"""What a node knows survives: checkpoints that are whole or not there.

Two files take turns. A checkpoint goes into the older one, with a number and a checksum, and is forced to disk; only
then does anything leave the node (`post`). A write that a crash cut short does not fit its checksum, and the other file
still holds the checkpoint before it, after which nothing had left. No pickle: JSON for what is small, raw bytes for
arrays.

What is large, such as a network of 100 MB or a letter with it, lies beside them, in a file of its own (`kept.0`, ...):
it is written when it is new, not for every checkpoint. A file that the last checkpoint does not name is free.
"""

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import blake2b, sha256
from typing import Any

import numpy as np

from archipel.deploy.world import Disk, File
from archipel.errors import BadInput

MAGIC = b"archipel checkpoint 3\n"
HEAD = struct.Struct("<QQ16s")  # number, length, checksum
FILES = ("checkpoint.a", "checkpoint.b")
LARGE = 1 << 18  # bytes
BYTES, LIST = "bytes", "list"  # kinds of what is not plain, beside arrays' own
as_text = json.JSONEncoder(check_circular=False).encode  # a record for every round: what holds itself is not in it
ANEW = "to start anew, remove checkpoint.a, checkpoint.b and rows; keep ledger.journal, it is what has been spent"


class Halted(RuntimeError):
    """A node cannot go on; the sentence says why. It exits with status 1, or 2 if it could not begin."""

    status = 1  # of who started it, where that ends too


class Torn(Halted):
    """Both checkpoints are damaged: a crash cannot do that."""


Data = bytes | memoryview


Keep = Callable[[Data, str], Any]


def packed(record: dict[str, Any], keep: Keep = lambda data, name: None, large: int = LARGE) -> bytes:
    """A record of numbers, texts, bytes, arrays and lists of any of the first three as bytes.

    `keep` puts what has more than `large` bytes elsewhere and says where; None: it goes with the rest.

    >>> unpacked(packed({"round": 3, "model": np.arange(2.0), "letters": [b"ab", b"c"]}))["letters"]
    [b'ab', b'c']
    """
    return b"".join(parts_of(record, keep, large))


def parts_of(record: dict[str, Any], keep: Keep = lambda data, name: None, large: int = LARGE) -> list[Data]:
    """The same in parts, none of which is a copy of something large."""
    plain: dict[str, Any] = {}
    raw: list[Any] = []  # what is not plain: name, kind, where, and of an array its shape
    parts: list[Data] = []

    def put(data: Data, name: str) -> Any:
        """Its size, where it goes with the rest; else where it is."""
        kept = keep(data, name) if len(data) > large else None
        if kept is None:
            parts.append(data)
        return len(data) if kept is None else kept

    for name, value in record.items():
        kind = type(value)
        if kind is np.ndarray:
            small = value.nbytes <= large
            data = value.tobytes() if small else np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
            raw.append((name, value.dtype.str, put(data, name), value.shape))
        elif kind is bytes:
            raw.append((name, BYTES, put(value, name)))
        elif kind is list and value and type(value[0]) is bytes:
            raw.append((name, LIST, [put(part, name) for part in value]))
        else:
            plain[name] = value
    head = as_text((plain, raw)).encode()
    return [struct.pack("<I", len(head)) + head, *parts]


def unpacked(data: bytes, fetch: Callable[..., bytes] = lambda *kept: b"") -> dict[str, Any]:
    """The record that `packed` made these bytes of; arrays can be written to."""
    (size,) = struct.unpack_from("<I", data)
    record, raw = json.loads(data[4 : 4 + size])
    at = 4 + size

    def get(where: Any) -> bytes:
        nonlocal at
        if not isinstance(where, int):
            return fetch(*where)
        at += where
        return data[at - where : at]

    for name, kind, where, *shape in raw:
        if kind == BYTES:
            record[name] = get(where)
        elif kind == LIST:
            record[name] = [get(one) for one in where]
        else:
            record[name] = np.frombuffer(get(where), np.dtype(kind)).reshape(*shape).copy()
    return record


def sum_of(data: Data) -> str:
    return sha256(data).hexdigest()


def checksum(number: int, data: bytes) -> bytes:
    return blake2b(MAGIC + struct.pack("<Q", number) + data, digest_size=16).digest()


class Store:
    """A node's checkpoints. `durable` forces them to disk: without it they survive the process, not the machine.

    What has more than `large` bytes is kept in a file of its own.
    """

    def __init__(self, disk: Disk, durable: bool = True, large: int = LARGE):
        self.disk, self.durable, self.large = disk, durable, large
        self.blobs: list[File] = []  # the files of what is large
        self.kept: dict[str, int] = {}  # of the last checkpoint: checksum -> file
        self.rows: dict[str, tuple[int, str]] = {}  # arrays of the node's row: when they changed, their checksum
        self.known: dict[int, tuple[bytes, str]] = {}  # letters of which the checksum is known, by their identity
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
        for number, data in sorted(found, reverse=True):
            self.number, self.kept = number, {}
            with suppress(Torn):
                return unpacked(data, partial(self.fetch, {}))
        if found or not blank:
            lost = "both checkpoints are damaged, or another version wrote them"
            raise Torn(f"{self.disk.path}: {lost}. Restore them, or, {ANEW}.")
        return None

    def fetch(self, fetched: dict[str, bytes], file: int, size: int, check: str) -> bytes:
        """Something large of a checkpoint: once, however many letters it is in."""
        if check not in fetched:
            fetched[check] = self.open(file).read(0, size)
            if len(fetched[check]) != size or sum_of(fetched[check]) != check:
                raise Torn
        self.kept[check] = file
        return fetched[check]

    def open(self, file: int) -> File:
        """A file for something large."""
        while len(self.blobs) <= file:
            self.blobs.append(self.disk.open(f"kept.{len(self.blobs)}"))
        return self.blobs[file]

    def save(self, record: dict[str, Any]) -> None:
        """Write a checkpoint into the older file; it holds when this returns."""
        number, many = self.number + 1, len(self.blobs)
        kept: dict[str, int] = {}
        known: dict[int, tuple[bytes, str]] = {}

        def keep(data: Data, name: str) -> Any:
            """Write it, unless the last checkpoint has it."""
            check = self.sum(data, name, record.get("changes"))
            if isinstance(data, bytes):  # nobody changes it, and while it is here nothing else is at its place
                known[id(data)] = data, check
            if check not in kept:
                taken = {*self.kept.values(), *kept.values()}
                kept[check] = self.kept.get(check, next(i for i in range(len(taken) + 1) if i not in taken))
                if check not in self.kept:
                    self.write_blob(kept[check], data)
            return kept[check], len(data), check

        file = self.files[number % 2]
        try:
            data = packed(record, keep, self.large)
            if self.durable and len(self.blobs) > many:
                self.disk.sync()
            file.write(MAGIC + HEAD.pack(number, len(data), checksum(number, data)) + data, 0)
            if self.durable:
                file.sync()
        except OSError as problem:
            raise Halted(f"{self.disk.path}: a checkpoint failed ({problem.strerror}). Nothing was sent.") from problem
        self.number, self.kept, self.known = number, kept, known

    def sum(self, data: Data, name: str, changes: int | None) -> str:
        """The checksum of something large. Of what has not changed it is known: a row changes with `changes` only."""
        if id(data) in self.known:
            return self.known[id(data)][1]
        if not name.startswith("me.") or changes is None:
            return sum_of(data)
        if self.rows.get(name, (None,))[0] != changes:
            self.rows[name] = changes, sum_of(data)
        return self.rows[name][1]

    def write_blob(self, file: int, data: Data) -> None:
        blob = self.open(file)
        blob.write(data, 0)
        blob.truncate(len(data))
        if self.durable:
            blob.sync()

    def close(self) -> None:
        for file in (*self.files, *self.blobs):
            file.close()


def parse(content: bytes) -> tuple[int, bytes] | None:
    """Number and data of a checkpoint file, if it is whole."""
    start = len(MAGIC) + HEAD.size
    if len(content) < start or not content.startswith(MAGIC):
        return None
    number, length, check = HEAD.unpack_from(content, len(MAGIC))
    data = content[start : start + length]
    return (number, data) if len(data) == length and checksum(number, data) == check else None
