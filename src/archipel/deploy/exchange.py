"""What two nodes know of their exchange: the outbox of one to the other, and what came in and waits."""

import struct
from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from archipel.deploy import wire
from archipel.deploy.pieces import Arriving, Sending
from archipel.deploy.wire import Frame, tag

CROWDED = 64  # letters to a neighbour that does not answer, from which on those that a later one supersedes are dropped
SUPERSEDED = {wire.QUIET: (wire.QUIET,), wire.HERE: (wire.HERE, wire.AWAY), wire.AWAY: (wire.HERE, wire.AWAY)}
FIRST = 0.5  # seconds until a letter is sent again, before any answer has come
HELLO_EVERY = 0.3  # seconds, while a neighbour has not been heard; doubles up to post.LATEST
MINUTE = 60.0  # seconds
LETTER = struct.Struct("<HBBI")  # neighbour, kind, turn and flag, round
RETURNS = 3  # a neighbour whose earlier store is back so often in a minute runs twice


class Letter(NamedTuple):
    """Something posted."""

    kind: int
    turn: int
    also_asks: bool
    round: int
    body: bytes


@dataclass
class Neighbour:
    """What two nodes know of their exchange."""

    name: str
    mine: int  # this node's store, as the neighbour is to know it
    theirs: int = 0  # the neighbour's store; 0: not known yet
    tags: tuple[int, int] = (0, 0)  # of frames to it, and from it
    past: deque[int] = field(default_factory=lambda: deque(maxlen=32))  # of frames from it, with earlier stores too
    first: int = 0  # the number of the first letter, either way
    salt: bytes = b""  # what the two must agree on beside the description
    left: bool = False  # for good: nothing is kept for it
    heard: bool = False  # in this life
    when: float = 0.0  # last, or when no answer was expected
    seen: float = 0.0  # when it was heard last, by the system's clock
    round: int = 0  # the latest that it spoke of
    came: int = 0  # bytes from it
    said: bytes = b""  # what it last told of itself
    differs: bool = False  # it runs another description
    ahead: bool = False  # it has got more than this state has sent
    earlier: deque[int] = field(default_factory=lambda: deque(maxlen=8))  # stores that it had before
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=RETURNS))  # when one of them was back
    twice: bool = False  # two processes seem to be this neighbour
    letters: deque[Letter] = field(default_factory=deque)  # posted and not yet acknowledged
    acked: int = 0  # the sequence number of letters[0]
    sent: int = 0  # what was sent at least once, up to here
    gone: int = 0  # what may have been sent at least once, in an earlier life too
    safe_out: int = 0  # what a checkpoint holds, up to here
    next_in: int = 0
    held: dict[int, Frame] = field(default_factory=dict)  # came too early
    waiting: deque[Frame] = field(default_factory=deque)  # in order, not yet taken
    safe_in: int = 0  # what was taken and is in a checkpoint: the acknowledgement
    told: int = 0  # the acknowledgement last sent
    owes: bool = False  # the neighbour repeats itself: it missed an acknowledgement
    usual: float = field(default_factory=lambda: FIRST)  # seconds until a letter is sent again, learned from answers
    wait: float = field(default_factory=lambda: FIRST)  # the same, doubled each time in vain
    resend: float = 0.0  # when
    sending: Sending | None = None  # a large letter on its way, in pieces: letters[sent - acked]
    doubted: int = (
        -1
    )  # a large letter that had arrived, of which a piece was sent again to see whether it is still there
    arriving: Arriving | None = None  # and one that comes in
    stamp: tuple[int, float] = (0, 0.0)  # a letter on its way and when it was sent, to learn how long answers take
    hello: float = 0.0  # when to greet next
    pause: float = HELLO_EVERY

    def __post_init__(self) -> None:
        self.acked = self.sent = self.gone = self.safe_out = self.first
        self.next_in = self.safe_in = self.told = self.first

    @property
    def next_out(self) -> int:
        return self.acked + len(self.letters)

    @property
    def taken(self) -> int:
        return self.next_in - len(self.waiting)

    def salted(self, digest: bytes) -> bytes:
        """What the two must agree on: the description, and each other's names and numbers."""
        return blake2b(digest + self.salt, digest_size=8).digest() if self.salt else digest

    def known(self) -> dict[str, Any]:
        """What is known of it, for whoever looks on."""
        found: dict[str, Any] = {"heard": self.heard, "seen": self.seen, "round": self.round, "bytes": self.came}
        found |= {"left": self.left, "waiting": len(self.letters)}
        found["outbox"] = sum(len(letter.body) for letter in self.letters)  # bytes
        if self.said:
            paid, updates, skipped = wire.STATE.unpack(self.said)
            found |= {"paid": paid if isfinite(paid) else None, "updates": updates, "skipped": skipped}
        return found

    def remember(self, known: dict[str, Any]) -> None:
        """What whoever looks on was told of it in an earlier life."""
        self.seen, self.round, self.came = known.get("seen", 0.0), known.get("round", 0), known.get("bytes", 0)
        if "updates" in known:
            paid = nan if known["paid"] is None else known["paid"]
            self.said = wire.STATE.pack(paid, known["updates"], known["skipped"])

    def meet(self, mine: int, theirs: int) -> None:
        """Know a neighbour's store, and so how frames between the two are tagged."""
        self.mine, self.theirs, self.tags = mine, theirs, (tag(mine, theirs), tag(theirs, mine))
        self.past.append(self.tags[1])

    def begin(self, mine: int, theirs: int) -> None:
        """Two stores that have not counted yet."""
        self.meet(mine, theirs)
        self.acked = self.sent = self.gone = self.safe_out = self.first
        self.next_in = self.safe_in = self.told = self.first
        self.held.clear()
        self.waiting.clear()
        self.sending, self.arriving, self.doubted = None, None, -1
        self.stamp = 0, 0.0

    def drop_untaken(self) -> None:
        """What came and was not taken will come again, or something else in its place."""
        self.next_in = self.taken
        self.waiting.clear()
        self.held.clear()

    def drop_letters(self) -> None:
        """Nothing that waits is sent any more."""
        self.acked = self.sent = self.gone = self.safe_out = self.next_out
        self.letters.clear()
        self.sending = None

    def changes(self, theirs: int, now: float) -> bool:
        """Another store of the same name; whether that shows, for the first time, that two of the name are running."""
        self.earlier.append(self.theirs)
        if theirs in self.earlier:
            self.returns.append(now)
        if self.twice or len(self.returns) < RETURNS or self.returns[-1] - self.returns[0] >= MINUTE:
            return False
        self.twice = True
        return True

    def drop_superseded(self, letter: Letter) -> None:
        """For a neighbour that is away for long, the last word of who is there and of silence says it all."""
        kinds = SUPERSEDED.get(letter.kind)
        if kinds is None or len(self.letters) < CROWDED:
            return
        for seq in range(self.next_out - 1, self.gone - 1, -1):
            before = self.letters[seq - self.acked]
            if before.kind in kinds and before.turn == letter.turn and not before.also_asks:
                del self.letters[seq - self.acked]
                return


def kept(neighbours: dict[str, Neighbour]) -> dict[str, Any]:
    """What a checkpoint holds of all exchanges."""
    marks = [(n.mine, n.theirs, n.taken, n.acked, n.left) for n in neighbours.values()]
    heads, bodies = [], []
    for i, other in enumerate(neighbours.values()):
        for letter in other.letters:
            flagged = letter.turn | (wire.ALSO_ASKS if letter.also_asks else 0)
            heads.append(LETTER.pack(i, letter.kind, flagged, letter.round))
            bodies.append(letter.body)
    return {
        "names": list(neighbours),
        "marks": np.array(marks, np.uint64).reshape(-1, 5),
        "letters": b"".join(heads),
        "bodies": bodies,
        "earlier": [list(n.earlier) for n in neighbours.values()],
    }


def recall(state: dict[str, Any], neighbours: dict[str, Neighbour]) -> None:
    """Go on from what a checkpoint held. Neighbours may have been added since."""
    known = [neighbours.get(name) for name in state["names"]]
    for other, (mine, theirs, taken, acked, left), earlier in zip(known, state["marks"].tolist(), state["earlier"]):
        if other is not None:
            other.meet(mine, theirs)
            other.earlier.extend(earlier)
            other.left = bool(left)
            other.next_in = other.safe_in = other.told = taken
            other.acked = other.sent = other.gone = other.safe_out = acked
    for (i, kind, flagged, round), body in zip(LETTER.iter_unpack(state["letters"]), state["bodies"]):
        other = known[i]
        if other is not None:
            turn, also = flagged & ~wire.ALSO_ASKS, bool(flagged & wire.ALSO_ASKS)
            other.letters.append(Letter(kind, turn, also, round, body))
            other.safe_out = other.gone = other.next_out
