"""What crosses the network: a header of 12 bytes, then the arrays of a message as they lie in memory.

    byte 0     version (high half), kind of frame (low half)
    byte 1     turn; its top bit: the sender also asks for the first Tell of the next round, or answers a greeting
    bytes 2-3  tag of the pair of stores that talk, so that nothing from an earlier life is taken
    bytes 4-5  sequence number, low half
    bytes 6-7  acknowledgement: everything before this sequence number is safe with the sender of this frame
    bytes 8-11 round

All numbers are little-endian. Arrays are those of the turn's own word (`Turn.word`, `Tell.word`), in its order, shapes
and types: nothing about them is on the wire, and a frame of any other size is refused before anything is allocated.
Numbers must be finite, offsets within the model.

A word of more than `PIECE` bytes goes in pieces (`pieces`): after the header the number of the piece and a checksum.
"""

import math
import struct
import sys
import zlib
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput, Diverged
from archipel.node import leaves, mapped, named_leaves

VERSION = 2
HELLO, ACK, WORD, QUIET, ASK, TOLD, NOTHING, HERE, AWAY, OVER, LOST, SOME, GOT, STATUS, HAVE = range(15)
KINDS: tuple[str, ...] = ("hello", "ack", "word", "quiet", "ask", "told", "nothing")
KINDS += ("here", "away", "over", "lost", "some", "got", "status", "have")
ALSO_ASKS = 0x80  # with ACK: it is the answer to a greeting
TURNS = 0x80  # more turns than this do not fit the header
PIECE = 1 << 18  # bytes of a word that go at once

FEW = 64
HALF, WHOLE = 1 << 15, 1 << 16
LITTLE = sys.byteorder == "little"
HEADER = struct.Struct("<BBHHHI")
GREETING = struct.Struct("<QQI8s")  # my store, your store as I know it, what I expect next, what we run
PIECED = struct.Struct("<II")  # the number of a piece, its checksum
ARRIVED = struct.Struct("<IQ")  # the first piece that lacks, and which of the 64 after it do not
STATE = struct.Struct("<dII")  # of STATUS: what was paid (NaN: nothing is counted), updates, rows that were skipped
SIZES = {HELLO: GREETING.size, GOT: ARRIVED.size, STATUS: STATE.size}  # of bodies that are no words


class Refused(ValueError):
    """A frame that is not taken, and the kind of fault, under which it is counted."""

    def __init__(self, fault: str):
        self.fault = fault
        super().__init__(fault)


class Frame(NamedTuple):
    """A frame, taken apart. `seq` and `ack` are the low 16 bits."""

    kind: int
    turn: int
    also_asks: bool
    tag: int
    seq: int
    ack: int
    round: int
    body: bytes


class Greeting(NamedTuple):
    """The body of HELLO."""

    mine: int
    yours: int
    expects: int
    digest: bytes


def pack(kind: int, turn: int, also_asks: bool, tag: int, seq: int, ack: int, round: int, body: bytes = b"") -> bytes:
    """A frame as bytes.

    >>> pack(QUIET, 1, False, 0x1234, 7, 5, 300).hex(" ")
    '23 01 34 12 07 00 05 00 2c 01 00 00'
    """
    turn |= ALSO_ASKS if also_asks else 0
    return HEADER.pack(VERSION << 4 | kind, turn, tag, seq & 0xFFFF, ack & 0xFFFF, round) + body


def greet(greeting: Greeting) -> bytes:
    """HELLO as bytes."""
    return pack(HELLO, 0, False, 0, 0, 0, 0, GREETING.pack(*greeting))


def is_greeting(data: bytes) -> bool:
    """Whether a frame is a HELLO, if it is anything."""
    return bool(data) and data[0] & 15 == HELLO


def greeting_of(frame: Frame) -> Greeting:
    """The body of a HELLO that `Vocabulary.read` has let pass."""
    return Greeting(*GREETING.unpack(frame.body))


class Field(NamedTuple):
    """An array of a word."""

    dtype: Any  # little-endian
    shape: tuple[int, ...]
    numbers: int
    begin: int
    end: int
    below: int  # an offset into the model must be below this; 0: no offset


class Word(NamedTuple):
    """The layout of a turn's word."""

    like: Any  # an empty one: a named tuple of arrays, or of such tuples
    kind: int  # WORD or TOLD
    fields: tuple[Field, ...]
    size: int


OFFSETS = ("start", "places")  # fields that point into a model: no word may point beyond it


def layout(word: Any, kind: int, model: int) -> Word:
    """How a word lies in a frame. `OFFSETS` are places in a model of so many parameters."""
    fields, begin = [], 0
    for path, array in named_leaves(word):
        name = path.rpartition(".")[2]
        if array.dtype.kind not in "fiub":
            raise BadInput(f"{type(word).__name__}.{path}", array.dtype, "numbers, which alone can cross the network")
        end = begin + array.nbytes
        offset = model if name in OFFSETS and array.dtype.kind in "iu" else 0
        little = array.dtype.newbyteorder("<")
        fields.append(Field(little, array.shape, array.size, begin, end, offset))
        begin = end
    return Word(word, kind, tuple(fields), begin)


def finite(flat: Any) -> bool:
    """Whether all numbers are finite. For a few, a sum says so, and quickly; where it overflows, look at each."""
    if len(flat) <= FEW and math.isfinite(sum(flat.tolist())):
        return True
    return bool(np.isfinite(flat).all())


class Vocabulary:
    """All that a federation's nodes can say to each other."""

    def __init__(self, turns: Any, model: int, rounds: int, piece: int = PIECE, first: int = 0):
        from archipel.turns import Tell

        if len(turns) > TURNS:
            raise BadInput("turns", len(turns), f"at most {TURNS} turns in a round")
        self.words = [layout(turn.word, TOLD if isinstance(turn, Tell) else WORD, model) for turn in turns]
        self.rounds, self.piece, self.first = rounds, piece, first
        self.widest = max(word.size for word in self.words)
        self.largest = HEADER.size + max(GREETING.size, min(self.widest, PIECED.size + piece))

    def write(self, turn: int, word: Any) -> bytes:
        """A word as bytes. A node never says what a neighbour would refuse."""
        parts = []
        for field, array in zip(self.words[turn].fields, leaves(word)):
            little = array if array.dtype == field.dtype else array.astype(field.dtype)
            if field.dtype.kind == "f" and not finite(little.reshape(-1)):
                kind = type(word).__name__.lower()
                raise Diverged(f"A {kind} became NaN or infinite: nothing is sent. A smaller step may help.")
            parts.append(little.tobytes())
        return b"".join(parts)

    def read(self, data: bytes) -> Frame:
        """A frame from bytes, of the right size and version. Raises `Refused`."""
        size = len(data)
        if size > self.largest:
            raise Refused("oversize")
        if size < HEADER.size:
            raise Refused("too short")
        first, second, tag, seq, ack, round = HEADER.unpack_from(data)
        if first >> 4 != VERSION:
            raise Refused("another version")
        kind, turn = first & 15, second & ~ALSO_ASKS
        if kind >= len(KINDS):
            raise Refused("unknown kind")
        if turn >= len(self.words) or round > self.rounds:
            raise Refused("unknown turn or round")
        if kind in (WORD, TOLD):
            word = self.words[turn]
            if kind != word.kind or size != HEADER.size + word.size:
                raise Refused("wrong size")
            self.check(word, data, HEADER.size)
        elif kind == SOME:
            self.check_piece(turn, data)
        elif size != HEADER.size + SIZES.get(kind, 0):
            raise Refused("wrong size")
        return Frame(kind, turn, bool(second & ALSO_ASKS), tag, seq, ack, round, data[HEADER.size :])

    def frame(self, turn: int) -> int:
        """The bytes of the largest frame in which a turn's word, or a piece of it, goes."""
        return HEADER.size + (PIECED.size + self.piece if self.pieces(turn) else self.words[turn].size)

    def pieces(self, turn: int) -> int:
        """In how many pieces a turn's word goes; 0: as a whole."""
        size = self.words[turn].size
        return -(-size // self.piece) if size > self.piece else 0

    def check_piece(self, turn: int, data: bytes) -> None:
        """Refuse what is no piece of the turn's word."""
        if len(data) < HEADER.size + PIECED.size:
            raise Refused("wrong size")
        i, check = PIECED.unpack_from(data, HEADER.size)
        left = self.words[turn].size - i * self.piece
        if i >= self.pieces(turn) or len(data) != HEADER.size + PIECED.size + min(left, self.piece):
            raise Refused("no such piece")
        if zlib.crc32(memoryview(data)[HEADER.size + PIECED.size :]) != check:
            raise Refused("a damaged piece")

    def check(self, word: Word, data: bytes, begin: int = 0) -> None:
        """Refuse numbers that are not finite, and offsets beyond the model."""
        for field in word.fields:
            flat = np.frombuffer(data, field.dtype, field.numbers, begin + field.begin)
            if field.dtype.kind == "f" and not finite(flat):
                raise Refused("NaN or infinity")
            if field.below and not all(0 <= offset < field.below for offset in flat.tolist()):
                raise Refused("offset beyond the model")

    def word(self, turn: int, body: bytes) -> Any:
        """The word in the body of a frame that `read` has let pass: views of its bytes, not to be written to."""
        layout = self.words[turn]
        fields = iter(layout.fields)
        return mapped(lambda _: view(next(fields), body), layout.like)


def view(field: Field, body: bytes) -> Any:
    """An array of a word, in this machine's order of bytes."""
    flat = np.frombuffer(body, field.dtype, field.numbers, field.begin)
    if len(field.shape) != 1:
        flat = flat.reshape(field.shape)
    return flat if LITTLE else flat.astype(field.dtype.newbyteorder("="))


def near(low: int, expected: int) -> int:
    """The number with these low 16 bits that is nearest to the expected one.

    >>> near(3, 65530), near(65530, 65539)
    (65539, 65530)
    """
    return expected + (low - expected + HALF) % WHOLE - HALF


def tag(sender: int, receiver: int) -> int:
    """Names the pair of stores in two bytes."""
    return zlib.crc32(struct.pack("<QQ", sender, receiver)) & 0xFFFF
