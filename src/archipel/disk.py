"""Files that must survive, on the disk of this machine. `deploy.world` says what a node may ask of a disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from archipel.errors import BadInput

force = getattr(os, "fdatasync", os.fsync)  # not on every system


def cache_home() -> Path:
    """What can be made again is kept here: $ARCHIPEL_CACHE, or the user's cache."""
    home = os.environ.get("ARCHIPEL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "archipel"
    return Path(home).expanduser()


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A whole file in the place of another: who reads it sees one or the other, whatever stops us."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        yield file
        file.flush()
        force(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


class LockedFile:
    """A file that one process at a time has open; others are refused, or with `patient` wait until it is closed."""

    def __init__(self, path: str | os.PathLike[str], key: str, right: str, patient: bool = False):
        self.path = Path(path)
        while True:
            self.number = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                import fcntl
            except ImportError:  # not on this system
                return
            try:
                fcntl.flock(self.number, fcntl.LOCK_EX | (0 if patient else fcntl.LOCK_NB))
            except OSError as taken:
                os.close(self.number)
                raise BadInput(key, str(self.path), right) from taken
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self.number), self.path.stat()):
                    return
            os.close(self.number)  # while it was waited for, another file took its place

    def read(self, at: int = 0, size: int = -1) -> bytes:
        """So many bytes from a place on, as far as there are; -1: all."""
        left = max(os.fstat(self.number).st_size - at, 0)
        return os.pread(self.number, left if size < 0 else min(size, left), at)

    def write(self, data: bytes | memoryview, at: int) -> None:
        """Write at a place; what lies behind stays."""
        done = 0
        while done < len(data):
            done += os.pwrite(self.number, data[done:], at + done)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.number, size)

    def sync(self) -> None:
        """What was written survives the machine when this returns."""
        force(self.number)

    def close(self) -> None:
        os.close(self.number)


class Folder:
    """A folder of this machine."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock = LockedFile(self.path / "lock", "deploy.state", "a folder that no other node is using")

    def open(self, name: str) -> LockedFile:
        """A file of it, made where it is not there."""
        return LockedFile(self.path / name, "deploy.state", "a file that no other process has open")

    def replace(self, name: str, data: bytes, durable: bool = False) -> None:
        """Put a whole file in the place of another: who reads it sees one or the other, after a crash if `durable`."""
        if durable:
            with replacing(self.path / name) as file:
                file.write(data)
            return
        part = self.path / f"{name}.part"
        part.write_bytes(data)
        part.replace(self.path / name)

    def sync(self) -> None:
        """The names of new files survive the machine when this returns."""
        sync_folder(self.path)

    def close(self) -> None:
        self.lock.close()


class SharedFolder(Folder):
    """A folder that several processes use: each file is one's own for as long as it is open."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def open(self, name: str) -> LockedFile:
        return LockedFile(self.path / name, "policy", "a file that can be locked", patient=True)

    def close(self) -> None:
        pass


def sync_folder(path: Path) -> None:
    if os.name == "posix":
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
