"""A disk that does what disks may do: it forgets what was not synced, tears what it was writing, is full, fails.

What a process wrote survives the process. Of what was not synced when the power fails, any part of any write may be
there, in blocks, in any order; so may the names of new and replaced files, where the folder was not synced.
"""

import errno
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any

from archipel.deploy.torture.chance import mix

LARGE = 1 << 20  # bytes
BLOCK = 512  # bytes that are written as a whole, or not


class Inode:
    """The content of a file: as it is read, and as it is safe. On a disk that forgets nothing it always is.

    What is large is kept in a real file there: nine machines with a network each are more than one memory holds.
    """

    def __init__(self, number: int, forgets: bool) -> None:
        self.number, self.forgets = number, forgets
        self.content: bytes | Spilled = b""
        self.safe = b""
        self.pending: list[tuple[int, bytes | None]] = []  # writes (place, data) and truncations (size, None) since
        self.version = 0

    @property
    def now(self) -> bytes:
        return self.read(0, -1)

    @now.setter
    def now(self, content: bytes) -> None:
        self.content = content

    def read(self, at: int, size: int) -> bytes:
        if isinstance(self.content, Spilled):
            return self.content.read(at, size)
        return self.content[at:] if size < 0 else self.content[at : at + size]

    def __len__(self) -> int:
        return len(self.content)

    def apply(self, at: int, data: bytes | memoryview | None) -> None:
        if not self.forgets and data is not None and at + len(data) > LARGE and isinstance(self.content, bytes):
            self.content = Spilled(self.content)
        if isinstance(self.content, Spilled):
            self.content.apply(at, data)
        else:
            data = None if data is None else bytes(data)
            self.content = applied(self.content, at, data)
            if self.forgets:
                self.pending.append((at, data))
        self.version += 1

    def sync(self) -> None:
        if self.forgets:
            self.safe, self.pending = self.now, []
        self.version += 1

    def after_power_loss(self, key: int) -> None:
        """What is left: the safe content, and of later writes the blocks that chance chooses."""
        content = self.safe
        for i, (at, data) in enumerate(self.pending):
            if data is None:
                if mix(key, self.number, i) & 1:
                    content = applied(content, at, None)
                continue
            for begin in range(0, len(data), BLOCK):
                if mix(key, self.number, i, begin) & 1:
                    content = applied(content, at + begin, data[begin : begin + BLOCK])
        self.now = self.safe = content
        self.pending = []
        self.version += 1


class Spilled:
    """A large content, in a file that nobody else sees."""

    def __init__(self, content: bytes):
        self.file, self.size = TemporaryFile(buffering=0), 0  # noqa: SIM115 (it is open as long as this is there)
        self.apply(0, content)

    def __len__(self) -> int:
        return self.size

    def read(self, at: int, size: int) -> bytes:
        self.file.seek(at)
        return self.file.read(size)

    def apply(self, at: int, data: bytes | memoryview | None) -> None:
        if data is None:
            self.file.truncate(at)
            self.size = at
            return
        self.file.seek(at)
        while data:
            written = self.file.write(data)
            at, data = at + written, data[written:]
        self.size = max(self.size, at)


def applied(content: bytes, at: int, data: bytes | None) -> bytes:
    """Content after a write, or after a truncation."""
    if data is None:
        return content[:at] + bytes(max(0, at - len(content)))
    if at == len(content):
        return content + data
    if len(content) < at:
        content += bytes(at - len(content))
    return content[:at] + data + content[at + len(data) :]


class SimulatedDisk:
    """A node's folder. It outlives the processes that use it; `point` is called before and after all that it does."""

    def __init__(self, name: str, power_fails: bool):
        self.path, self.power_fails = f"state/{name}", power_fails
        self.names: dict[str, Inode] = {}
        self.safe_names: dict[str, Inode] = {}
        self.full = False
        self.fails = 0  # the operation, counted from now, that fails with EIO; 0: none
        self.count = 0
        self.operations = 0
        self.point: Callable[[], None] = lambda: None

    def open(self, name: str) -> "SimulatedFile":
        self.begin()
        if name not in self.names:
            self.names[name] = self.inode()
        return SimulatedFile(self, self.names[name])

    def inode(self) -> Inode:
        self.count += 1
        return Inode(self.count, self.power_fails)

    def replace(self, name: str, data: bytes, durable: bool = False) -> None:
        self.begin()
        fresh = self.inode()
        if durable:
            file = SimulatedFile(self, fresh)
            file.write(data, 0)
            file.sync()
        else:
            fresh.apply(0, data)
        self.names[name] = fresh
        self.point()
        if durable:
            self.sync()

    def sync(self) -> None:
        self.begin()
        self.safe_names = dict(self.names)
        self.point()

    def close(self) -> None:
        pass

    def begin(self) -> None:
        """Something is about to be done: a process may end here, a disk may fail."""
        self.operations += 1
        self.point()
        if self.fails:
            self.fails -= 1
            if not self.fails:
                raise OSError(errno.EIO, "Input/output error")

    # --- for the simulation -------------------------------------------------------------------------------------------

    def lose_power(self, key: int) -> None:
        """The machine stops: names and blocks that were not synced may be gone."""
        names = dict(self.safe_names)
        for i, (name, inode) in enumerate(sorted(self.names.items())):
            if names.get(name) is not inode and mix(key, i, 77) & 1:
                names[name] = inode
        self.names, self.safe_names = names, dict(names)
        for inode in {id(inode): inode for inode in names.values()}.values():
            inode.after_power_loss(key)

    def survives(self, name: str) -> bytes:
        """What of a file is there for sure after the worst that this disk is promised."""
        if not self.power_fails:
            inode = self.names.get(name)
            return b"" if inode is None else inode.now
        inode = self.safe_names.get(name)
        if inode is None or self.names.get(name) is not inode:
            return b""
        return inode.safe[: min((at for at, _ in inode.pending), default=None)]

    def version(self, name: str) -> Any:
        inode = self.names.get(name)
        return None if inode is None else (inode.number, inode.version, self.safe_names.get(name) is inode)

    def copy(self) -> dict[str, bytes]:
        """All files, as a person may copy a folder."""
        return {name: inode.now for name, inode in self.names.items()}

    def put(self, files: dict[str, bytes]) -> None:
        """A person puts files in place of what is there."""
        self.names = {}
        for name, content in files.items():
            self.names[name] = self.inode()
            self.names[name].now = self.names[name].safe = content
        self.safe_names = dict(self.names)

    def flip(self, name: str, bit: int) -> bool:
        """A bit of a file changes by itself."""
        inode = self.names.get(name)
        if inode is None or not inode.now:
            return False
        at = bit // 8 % len(inode.now)
        changed = bytes([inode.now[at] ^ 1 << bit % 8])
        inode.now = inode.safe = applied(inode.now, at, changed)
        inode.version += 1
        return True


class SimulatedFile:
    """A file that a process has open."""

    def __init__(self, disk: SimulatedDisk, inode: Inode):
        self.disk, self.inode = disk, inode

    def read(self, at: int = 0, size: int = -1) -> bytes:
        return self.inode.read(at, size)

    def write(self, data: bytes | memoryview, at: int) -> None:
        self.disk.begin()
        data = memoryview(data)
        if self.disk.full and at + len(data) > len(self.inode):
            room = max(0, len(self.inode) - at)
            self.inode.apply(at, data[:room])
            raise OSError(errno.ENOSPC, "No space left on device")
        half = len(data) // 2
        self.inode.apply(at, data[:half])
        self.disk.point()
        self.inode.apply(at + half, data[half:])
        self.disk.point()

    def truncate(self, size: int) -> None:
        self.disk.begin()
        self.inode.apply(size, None)
        self.disk.point()

    def sync(self) -> None:
        self.disk.begin()
        self.inode.sync()
        self.disk.point()

    def close(self) -> None:
        pass
