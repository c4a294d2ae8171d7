"""The real world: the system's clocks and chance, a folder, a link."""

import json
import os
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from archipel.deploy import keys
from archipel.deploy.trace import STATUS
from archipel.deploy.world import Disk, Link
from archipel.disk import Folder, SharedFolder
from archipel.errors import BadInput
from archipel.policy import Policy, read_policy

LOOK = 1.0  # seconds between two looks at the list of those who were revoked
BOOT = getattr(time, "CLOCK_BOOTTIME", None)  # counts while the machine sleeps; not on every system


class RealWorld:
    """What is around a node on a device."""

    identity: tuple[Path, str] | None = None  # a folder of certificates, and whose

    def __init__(self, link: Link, disk: Disk | None = None, site: Disk | None = None, list_of: Path | None = None):
        self.link, self.disk, self.site = link, disk, site
        self.list_of, self.looked, self.names = list_of, -LOOK, frozenset[str]()  # of those who were revoked
        self.policy: Path | None = None  # the site's rules
        self.known: Policy | None = None
        self.ruled, self.seen, self.read = -LOOK, (0, 0), (0, 0)

    now = staticmethod(time.monotonic if BOOT is None else partial(time.clock_gettime, BOOT))  # often asked

    def clock(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def chance(self) -> int:
        return secrets.randbits(63) + 1

    def secure_noise(self) -> None:
        from archipel.privacy.noise import use_secure_noise

        use_secure_noise()

    def vouch(self, said: bytes) -> bytes:
        return keys.vouch(*self.identity, said) if self.identity else b""

    def vouched(self, name: str, said: bytes, proof: bytes) -> bool:
        return keys.vouched(self.identity[0], name, said, proof) if self.identity else True

    def revoked(self) -> frozenset[str]:
        if self.list_of is not None and time.monotonic() >= self.looked + LOOK:
            self.looked = time.monotonic()
            with suppress(OSError):  # there is none, or it is being replaced: who was revoked stays so
                self.names = frozenset(self.list_of.read_text(encoding="utf-8").split())
        return self.names

    def rules(self) -> Any:
        """A file that has been the same for two looks is read: before, somebody may be writing it."""
        if self.policy is not None and time.monotonic() >= self.ruled + LOOK:
            self.ruled, before = time.monotonic(), self.seen
            self.seen = stamp_of(self.policy)
            if self.seen == before != self.read:
                self.read = self.seen
                self.known = read_policy(self.policy) if self.policy.exists() else Policy()  # that lets nothing leave
        return self.known

    def about(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "time": time.time()}


def read_status(folder: Path) -> dict[str, Any]:
    """How a node was doing when it last wrote that down; nothing where it has not."""
    try:
        return json.loads((folder / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def stamp_of(path: Path) -> tuple[int, int]:
    """What shows that a file was changed."""
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    return -1, -1


def real_world(
    name: str,
    neighbours: Iterable[str],
    settings: dict[str, Any],
    folder: Path,
    site: Path | None = None,
    revoked: Path | None = None,
    policy: Path | None = None,
) -> RealWorld:
    """A folder, then the network: a node whose folder is in use does not disturb the one that uses it."""
    from archipel.deploy.zenoh_link import ZenohLink

    try:
        disk = Folder(folder)
    except OSError as problem:
        raise BadInput("deploy.state", str(folder), f"a folder that can be written to ({problem})") from problem
    try:
        try:
            shared = SharedFolder(site) if site else None
        except OSError as problem:
            raise BadInput("policy", str(site), f"a folder beside it that can be written to ({problem})") from problem
        world = RealWorld(ZenohLink(name, neighbours, settings), disk, shared, revoked)
        world.identity, world.policy = (revoked.parent, name) if revoked else None, policy
        return world
    except BaseException:
        disk.close()
        raise
