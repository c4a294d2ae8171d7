"""A letter too large for one frame goes in pieces. After a cut link, only those that are missing are sent again.

The receiver answers every piece with what it has (`wire.GOT`), which is no acknowledgement: it holds them in memory and
who restarts begins again. The sender never has more on its way than the link has just shown to take: one piece more for
each that arrived soon, a single one after a silence. In a silence it asks (`wire.HAVE`, a few bytes): on a slow link
the answer comes behind those to pieces that are still on their way, and only what is missing then is sent again.
"""

import zlib
from typing import Any

from archipel.deploy import wire
from archipel.deploy.wire import Frame, Refused, near

ROOM = 4 << 20  # bytes on their way to one neighbour
FIRST = 2  # pieces on their way at first
SOON = 5.0  # seconds in which a piece is answered where the link could take more at once
OVERTAKEN = 3  # pieces that arrived before an earlier one: that one is lost
SAVED = 6.0  # seconds in which a receiver that has all of a letter acknowledges it
AFTER = 64  # pieces after the first missing one of which an answer tells


class Sending:
    """What the sender of a large letter knows of it."""

    def __init__(self, seq: int, count: int, most: int):
        self.seq, self.count = seq, count
        self.first, self.beyond = 0, 0  # the first piece that is not there, and which are after it, as bits
        self.next = 0  # the first that was not sent since the last silence
        self.room, self.most = min(FIRST, most), max(1, min(most, AFTER))  # pieces on their way, and at most
        self.doubted = False  # there was no answer: it may have lost what it had
        self.probed = False  # it was asked what it has
        self.hurried = -1  # the last piece that was sent again since later ones were there
        self.stamp = 0, 0.0  # a piece on its way and when it was sent, to learn how long answers take

    def __contains__(self, i: int) -> bool:
        """Whether a piece is there."""
        return i < self.first or (i > self.first and bool(self.beyond >> (i - self.first - 1) & 1))

    def next_ones(self, now: float) -> list[int]:
        """Pieces to send now: those that are not there, as far as there is room."""
        end = min(self.count, self.first + self.room)
        due = [i for i in range(max(self.next, self.first), end) if i not in self]
        self.next = max(self.next, end)
        if self.first not in due and self.hurried != self.first and self.beyond.bit_count() >= OVERTAKEN:
            self.hurried = self.first
            due.insert(0, self.first)
        if due and (self.stamp[0] < self.first or not self.stamp[1]):
            self.stamp = due[0], now
        return due

    def begin_again(self) -> None:
        """After a silence: from the first that is not there, with one piece."""
        self.room, self.next, self.stamp, self.doubted, self.probed = 1, self.first, (0, 0.0), True, False

    def has(self, first: int, beyond: int, now: float) -> float:
        """What the receiver says it has; how many seconds it took to say so, -1 where that shows nothing new."""
        if first > self.count:
            raise Refused("has pieces of what was never sent")
        if (first, beyond) == (self.first, self.beyond) or (first < self.first and not self.doubted):
            return -1.0  # nothing new, or an answer that came late
        if first < self.first:  # it begins again
            self.next = first
        self.doubted = self.probed = False
        self.first, self.beyond = first, beyond
        piece, when = self.stamp
        took = now - when if when and piece < first else 0.0
        self.room = min(self.room + (took < SOON), self.most)
        return took


class Arriving:
    """A large letter that comes in. Its size is the vocabulary's, whatever its sender says."""

    def __init__(self, seq: int, frame: Frame, size: int, count: int):
        self.seq, self.count, self.head = seq, count, (frame.turn, frame.also_asks, frame.round)
        self.body = bytearray(size)
        self.first, self.beyond = 0, 0  # as in `Sending`
        self.have = bytearray(count)

    def add(self, frame: Frame, piece: int) -> bool:
        """Put a piece in its place; whether all are there."""
        if (frame.turn, frame.also_asks, frame.round) != self.head:
            raise Refused("a piece of another letter")
        i, _ = wire.PIECED.unpack_from(frame.body)
        self.body[i * piece : (i + 1) * piece] = memoryview(frame.body)[wire.PIECED.size :]
        self.have[i] = 1
        while self.first < self.count and self.have[self.first]:
            self.first += 1
        after = self.have[self.first + 1 : self.first + 1 + AFTER]
        self.beyond = sum(1 << k for k, there in enumerate(after) if there)
        return self.first == self.count


# --- for the post office ----------------------------------------------------------------------------------------------


def send(office: Any, other: Any, now: float) -> bool:
    """Of the large letter that comes next, as many pieces as the link can take; whether all are there."""
    count = office.vocabulary.pieces(other.letters[other.sent - other.acked].turn)
    if other.sending is None or other.sending.seq != other.sent:
        other.sending = Sending(other.sent, count, ROOM // office.vocabulary.piece)
    for i in other.sending.next_ones(now):
        send_one(office, other, other.sent, i)
    if other.sending.first < count:
        return False
    other.sending, other.resend = None, now + SAVED
    return True


def send_one(office: Any, other: Any, seq: int, i: int) -> None:
    """A piece of a letter. It is sent again as it is: noise is never drawn again."""
    letter, size = other.letters[seq - other.acked], office.vocabulary.piece
    data = memoryview(letter.body)[i * size : (i + 1) * size]
    head = wire.SOME, letter.turn, letter.also_asks, other.tags[0], seq, other.safe_in, letter.round
    office.transmit(other, b"".join((wire.pack(*head), wire.PIECED.pack(i, zlib.crc32(data)), data)))


def probe(office: Any, other: Any, seq: int) -> None:
    """Ask what the neighbour has of a letter."""
    turn = other.letters[seq - other.acked].turn
    office.transmit(other, wire.pack(wire.HAVE, turn, False, other.tags[0], seq, other.safe_in, 0))


def hear_have(office: Any, other: Any, frame: Frame) -> None:
    """A neighbour asks what is here of a letter."""
    seq, count = near(frame.seq, other.next_in), office.vocabulary.pieces(frame.turn)
    arriving = other.arriving if other.arriving and other.arriving.seq == seq else None
    whole = seq < other.next_in or seq in other.held
    first, beyond = (count, 0) if whole else (arriving.first, arriving.beyond) if arriving else (0, 0)
    say_got(office, other, frame, first, beyond)


def hear_got(office: Any, other: Any, frame: Frame) -> None:
    """A neighbour says which pieces of a letter it has. It may have lost them all, with its process."""
    seq, now = near(frame.seq, other.sent), office.world.now()
    if seq < other.acked:
        return
    if seq > other.sent or seq >= other.safe_out or not office.in_pieces(other, seq):
        raise Refused("has pieces of what was never sent")
    first, beyond = wire.ARRIVED.unpack(frame.body)
    count = office.vocabulary.pieces(other.letters[seq - other.acked].turn)
    if seq == other.doubted and seq < other.sent and first < count:  # it had all, and restarted before it saved that
        other.sent, other.sending, other.doubted = seq, None, -1
        send(office, other, now)
    if other.sending is None or other.sending.seq != seq:
        return
    took = other.sending.has(first, beyond, now)
    if took > 0:
        office.learn(other, took)
    if took < 0 and other.sending.probed:  # what was on its way before it was asked is not coming any more
        other.sending.begin_again()
    if took >= 0:
        other.wait, other.resend = other.usual, now + other.usual
        office.alarm = min(office.alarm, other.resend)
    office.send_new(other, now)


def say_got(office: Any, other: Any, frame: Frame, first: int, beyond: int) -> None:
    head = wire.GOT, frame.turn, False, other.tags[0], frame.seq, other.safe_in, 0
    office.transmit(other, wire.pack(*head, wire.ARRIVED.pack(first, beyond)))


def hear(office: Any, other: Any, seq: int, frame: Frame) -> Frame | None:
    """A piece of a letter; the letter, where it was the last that lacked."""
    word = office.vocabulary.words[frame.turn]
    if other.arriving is None or other.arriving.seq != seq:
        other.arriving = Arriving(seq, frame, word.size, office.vocabulary.pieces(frame.turn))
    arriving = other.arriving
    whole = arriving.add(frame, office.vocabulary.piece)
    say_got(office, other, frame, arriving.first, arriving.beyond)
    if not whole:
        return None
    other.arriving = None
    office.vocabulary.check(word, body := bytes(arriving.body))
    return frame._replace(kind=word.kind, body=body)
