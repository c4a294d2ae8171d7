"""The door: all that a node may ask of what is around it. Time, network, disk and chance, and nothing else.

Behind the door stands the real world (`real`: Zenoh, files, the system's clock) or a simulated one that a seed decides
(`torture.simulation`). Nothing else in this folder may look at a clock, open a file or talk to a network, beside what
starts and watches processes: `tests/deploy/test_door.py` holds it to that.
"""

from typing import Any, Protocol


class Link(Protocol):
    """One node's end of the network: bytes to a neighbour, bytes from a neighbour, and no promises.

    It may lose, repeat, delay or reorder what it carries. It never lies about who sent it: the sender's name comes from
    its certificate, never from the bytes. `post.PostOffice` makes promises out of it: everything once, in order,
    answered.
    """

    def send(self, to: str, data: bytes) -> None:
        """Hand bytes over to the network. Returns at once; never raises because a neighbour is away."""

    def receive(self) -> tuple[str, bytes] | None:
        """What came in, and from whom; None where nothing did."""

    def wait(self, seconds: float) -> bool:
        """Until something has come in, at most so long; whether it did."""

    def close(self) -> None:
        """Leave the network."""


class File(Protocol):
    """A file of a node. What was written survives the process; what was synced, the machine."""

    def read(self, at: int = 0, size: int = -1) -> bytes: ...
    def write(self, data: bytes | memoryview, at: int) -> None: ...
    def truncate(self, size: int) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """A node's folder, which is its own."""

    path: Any  # for sentences

    def open(self, name: str) -> File:
        """A file, made where it is not there."""

    def replace(self, name: str, data: bytes, durable: bool = False) -> None:
        """Put a whole file in the place of another: who reads it sees one or the other, after a crash if `durable`."""

    def sync(self) -> None:
        """The names of new files survive the machine when this returns."""

    def close(self) -> None: ...


class World(Protocol):
    """What is around a node."""

    link: Link
    disk: Disk | None  # without one it keeps nothing: for tests and benchmarks
    site: Disk | None  # what all nodes of a site share: its ledger and its logs; none without a policy

    def now(self) -> float:
        """Seconds that nobody can set; those that the machine slept count too, where the system knows them."""

    def clock(self) -> float:
        """Seconds since 1970, by the system's clock: somebody may set it."""

    def sleep(self, seconds: float) -> None:
        """Do nothing for so long."""

    def chance(self) -> int:
        """A number from 1 to 2^63 that nobody can foresee."""

    def secure_noise(self) -> None:
        """From now on privacy noise is drawn where nobody can foresee it."""

    def vouch(self, said: bytes) -> bytes:
        """A proof, for whoever trusts the same authority, that this node says something; none without certificates."""

    def vouched(self, name: str, said: bytes, proof: bytes) -> bool:
        """Whether a proof is that of the node of a name; without certificates anything is."""

    def revoked(self) -> frozenset[str]:
        """Names whose certificates are no longer good, whatever they say."""

    def rules(self) -> Any:
        """The site's policy as it is now; None where there is none, or nothing new is known."""

    def about(self) -> dict[str, Any]:
        """What a status says of the process."""
