"""What an observer knows of a node, over all its lives, and what it keeps of all that is sent."""

import json
from collections import defaultdict
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from archipel.deploy import wire
from archipel.deploy.torture.reference import Did, Wrong
from archipel.privacy.accountant import account_of as spending

FIRST = 12  # checkpoints that show how large one is
SLACK = 400  # bytes by which a checkpoint may grow, letters aside
CARRY = (wire.WORD, wire.TOLD)  # letters that later ones do not stand in for
VARIES: tuple[str, ...] = ("post.letters", "post.bodies", "post.traffic", "post.faults", "post.earlier")
VARIES += ("delayed", "delayed words", "mailbox.words", "mailbox.bodies", "mailbox.told", "mailbox.answers")


class Mark(NamedTuple):
    """What a checkpoint holds: for each neighbour the two stores, what was posted and taken; the log; what was paid.

    `counted`: releases that its functions had counted when it last spoke.
    """

    pairs: dict[str, tuple[int, int, int, int]]
    log: int
    spent: float = 0.0
    counted: float = 0.0


class Record:
    """What is known of a node, over all its lives."""

    def __init__(self) -> None:
        self.marks: dict[int, Mark] = {}
        self.log: list[Did] = []
        self.left = 0  # the last checkpoint under which something left
        self.reference: Any = None
        self.first: Any = None  # its row when it began
        self.spent: list[Any] = []  # and what its ledger had been charged by then
        self.done = 0  # entries of the log that the reference has followed
        self.safe: tuple[Any, int] = (None, 0)  # the checkpoint that survives, and the files it was found in
        self.released: set[tuple[int, int, bytes]] = set()
        self.counted = 0.0  # releases, when it last spoke
        self.free: set[tuple[int, int, bytes]] = set()  # words that only pass on what was heard, or paid for before
        self.round, self.moved = -1, 0.0  # its last round, and since when it is in it
        self.charges = 1  # that one act made, at most
        self.size = 0  # of the first checkpoints, letters aside
        self.said: dict[tuple[int, int], set[bytes]] = {}  # (turn, round) -> what its functions said
        self.told: dict[tuple[str, int, int], set[bytes]] = {}  # (to, turn, round) -> what they told
        self.posted: defaultdict[str, list[bytes]] = defaultdict(list)  # words and answers since the last checkpoint
        self.again: dict[str, Any] = {}  # to whom -> the letter that was last looked at, and under which checkpoint
        self.words = 0  # that were taken and not put anywhere yet
        self.played: float | None = None  # since when it has nothing further to do, in this life
        self.over: float | None = None  # when it ended
        self.unanswered = False  # whether letters of it were, by then
        self.heard: dict[str, int] = {}  # who was revoked -> letters that were got of it, in this life

    def check_size(self, name: str, node: Any, state: dict[str, Any]) -> None:
        """A checkpoint holds what is on its way, and beside that no more than the first ones did."""
        size = sum(size_of(value) for key, value in state.items() if key not in VARIES)
        if node.store.number < FIRST:
            self.size = max(self.size, size)
        elif size > self.size + SLACK:
            raise Wrong(f"{name}'s checkpoint has grown from {self.size} to {size} bytes in round {node.player.round}")

    def check_outboxes(self, name: str, node: Any) -> None:
        """What was posted since the last checkpoint is in it, and what was taken has found its place."""
        for to, bodies in self.posted.items():
            other = node.office.neighbours[to]
            left = [letter.body for letter in other.letters if letter.kind in CARRY]
            if bodies and not other.left and left[-len(bodies) :] != bodies:
                raise Wrong(f"{name} lost a word to {to} that it had posted in round {node.player.round}")
        self.posted.clear()
        if self.words:
            raise Wrong(f"{name} threw away a word that it had taken")


def size_of(value: Any) -> int:
    """Bytes that a value of a checkpoint takes, about."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return len(value) if isinstance(value, bytes) else len(repr(value))


def content(data: bytes) -> bytes:
    """What of a letter never changes: all but its acknowledgement."""
    return data[:6] + data[8:] if len(data) < 64 else data[:6] + blake2b(data[8:], digest_size=16).digest()


def spent_by(node: Any) -> float:
    """What the node's own functions have counted so far."""
    own = spending(node.player.me)
    return float(own.spent[0]) if node.account.private and hasattr(own, "spent") else 0.0


def counted_by(node: Any) -> float:
    """How many releases the node's own functions have counted so far; not a number where they do not."""
    own = spending(node.player.me)
    return float(own.releases[0]) if node.account.private and hasattr(own, "spent") else float("nan")


def entry_of(line: bytes) -> Any:
    """What a line of a ledger says, behind its checksum."""
    return json.loads(line[17:].rstrip(b" +"))
