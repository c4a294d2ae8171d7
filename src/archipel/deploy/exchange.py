"""What two nodes know of their exchange: the outbox of one to the other, and what came in and waits."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from archipel.deploy import wire
from archipel.deploy.pieces import Arriving, Sending
from archipel.deploy.wire import Frame, tag

CROWDED = 64  # letters to a neighbour that does not answer, from which on those that a later one supersedes are dropped
SUPERSEDED = {wire.QUIET: (wire.QUIET,), wire.HERE: (wire.HERE, wire.AWAY), wire.AWAY: (wire.HERE, wire.AWAY)}
FIRST = 0.5  # seconds until a letter is sent again, before any answer has come
HELLO_EVERY = 0.3  # seconds, while a neighbour has not been heard; doubles up to post.LATEST / 6
MINUTE = 60.0  # seconds
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
    heard: bool = False  # in this life
    seen: float = 0.0  # when it was heard last, by the system's clock
    round: int = 0  # the latest that it spoke of
    came: int = 0  # bytes from it, in this life
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
    arriving: Arriving | None = None  # and one that comes in
    stamp: tuple[int, float] = (0, 0.0)  # a letter on its way and when it was sent, to learn how long answers take
    hello: float = 0.0  # when to greet next
    pause: float = HELLO_EVERY

    @property
    def next_out(self) -> int:
        return self.acked + len(self.letters)

    @property
    def taken(self) -> int:
        return self.next_in - len(self.waiting)

    def meet(self, mine: int, theirs: int) -> None:
        """Know a neighbour's store, and so how frames between the two are tagged."""
        self.mine, self.theirs, self.tags = mine, theirs, (tag(mine, theirs), tag(theirs, mine))

    def begin(self, mine: int, theirs: int) -> None:
        """Two stores that have not counted yet."""
        self.meet(mine, theirs)
        self.acked = self.sent = self.gone = self.safe_out = 0
        self.next_in = self.safe_in = self.told = 0
        self.held.clear()
        self.waiting.clear()
        self.sending = self.arriving = None
        self.stamp = 0, 0.0

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
