"""Letters that are too large for a frame: in pieces, once, in order, and after a cut only what is missing."""

import random
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
from test_transport import DIGEST, VirtualNetwork, ZenohNetwork

from archipel.deploy import wire
from archipel.deploy.pieces import AFTER
from archipel.deploy.post import PostOffice
from archipel.deploy.wire import Refused, Vocabulary
from archipel.parts.share.portions import Portion
from archipel.turns import Tell, Turn

NUMBERS = 12_500
WORD = Portion(np.zeros(NUMBERS, np.float32), np.zeros(1, np.uint32))
SMALL = Portion(np.zeros(4, np.float32), np.zeros(1, np.uint32))
TURNS = (Tell("s", "c", None, None, SMALL), Turn("c", "s", None, None, None, WORD, None))
PIECE = 1000
COUNT = -(-(4 * NUMBERS + 4) // PIECE)


def vocabulary(piece: int = PIECE) -> Vocabulary:
    return Vocabulary(TURNS, NUMBERS, 1000, piece)


def body(n: int) -> bytes:
    """The n-th large word."""
    return np.random.default_rng(n).normal(size=NUMBERS).astype(np.float32).tobytes() + bytes(4)


class End:
    """One end: it posts small and large letters in turns and saves after each beat."""

    def __init__(self, network: Any, name: str, other: str, law: Any = None, piece: int = PIECE):
        self.network, self.name, self.other, self.law, self.piece = network, name, other, law, piece
        self.got: list[tuple[int, int, bytes]] = []
        self.sent: list[bytes] = []
        self.disk: Any = None
        self.start()

    def start(self) -> None:
        self.link = self.network.join(self.name)
        send = self.link.send

        def sends(to: str, data: bytes) -> None:
            self.sent.append(data)
            if self.law is None or self.law(data):
                send(to, data)

        self.link.send = sends
        self.office = PostOffice(self.network.world(self.link), {self.other: b""}, vocabulary(self.piece), DIGEST)
        if self.disk is not None:
            state, got = self.disk
            self.office.restore(state)
            self.got = list(got)

    def restart(self) -> None:
        self.link.close()
        self.start()

    def live(self) -> None:
        self.link.wait(0.002)
        self.office.pump()
        while self.office.waiting(self.other):
            frame = self.office.take(self.other)
            self.got.append((frame.kind, frame.round, frame.body))
        self.disk = self.office.state(), tuple(self.got)
        self.office.commit()

    def post(self, count: int) -> list[tuple[int, int, bytes]]:
        """Large letters, each between two small ones."""
        posted: list[tuple[int, int, bytes]] = []
        for n in range(count):
            posted += [(wire.ASK, n, b""), (wire.WORD, n, body(n)), (wire.QUIET, n, b"")]
        for kind, n, content in posted:
            self.office.post(self.other, kind, 0 if kind == wire.ASK else 1, n, content)
        return posted

    def pieces(self) -> Counter[tuple[int, int]]:
        """How often each piece of each letter was sent."""
        heads = [wire.HEADER.unpack_from(data) for data in self.sent]
        return Counter(
            (head[3], wire.PIECED.unpack_from(data, wire.HEADER.size)[0])
            for head, data in zip(heads, self.sent)
            if head[0] & 15 == wire.SOME
        )


def until(holds: Any, *ends: End, beats: int = 60_000) -> None:
    for _ in range(beats):
        if holds():
            return
        for end in ends:
            end.live()
    raise AssertionError("it did not come about")


def met(network: Any, law: Any = None, piece: int = PIECE) -> tuple[End, End]:
    a, b = End(network, "a", "b", law, piece), End(network, "b", "a", law, piece)
    until(lambda: a.office.neighbours["b"].heard and b.office.neighbours["a"].heard, a, b)
    return a, b


def test_large_letters_arrive_between_small_ones_and_nothing_is_sent_twice():
    a, b = met(VirtualNetwork())
    posted = a.post(3)
    until(lambda: len(b.got) == len(posted) and not a.office.neighbours["b"].letters, a, b)
    assert b.got == posted
    assert set(a.pieces().values()) == {1} and len(a.pieces()) == 3 * COUNT
    assert max(map(len, a.sent)) == wire.HEADER.size + wire.PIECED.size + PIECE == a.office.vocabulary.largest


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_network_does_each_letter_arrives_once_and_in_order(seed):
    """A fifth of all frames is lost, each end is restarted a few times."""
    draw = random.Random(seed)
    a, b = met(VirtualNetwork(), lambda data: draw.random() > 0.2)
    posted = {a: a.post(4), b: b.post(4)}
    for _ in range(6):
        for _ in range(draw.randrange(200)):
            a.live(), b.live()
        draw.choice([a, b]).restart()
    until(lambda: len(b.got) == len(posted[a]) and len(a.got) == len(posted[b]), a, b)
    assert b.got == posted[a] and a.got == posted[b]


def test_answers_that_overtake_each_other_do_not_make_it_begin_again():
    """Frames arrive in another order than they were sent in, and hardly any is sent again."""
    draw, late = random.Random(5), []
    a, b = met(VirtualNetwork())
    for end in (a, b):
        send = end.link.send

        def shuffled(to: str, data: bytes, send: Any = send) -> None:
            late.append((send, to, data))

        end.link.send = shuffled
    posted = a.post(4)
    for _ in range(20_000):
        a.live(), b.live()
        some = [late.pop(draw.randrange(len(late))) for _ in range(min(len(late), 3))]
        for send, to, data in some:
            send(to, data)
        if len(b.got) == len(posted) and not a.office.neighbours["b"].letters:
            break
    assert b.got == posted
    sent = sum(a.pieces().values())
    print(f"{sent} pieces for {4 * COUNT}")
    assert sent < 1.5 * 4 * COUNT


@pytest.mark.parametrize("restarts", [False, True], ids=["a cut", "a cut and the sender restarts"])
def test_after_a_cut_only_what_was_on_its_way_is_sent_again(restarts):
    up = [True]
    a, b = met(VirtualNetwork(), lambda data: up[0])
    posted = a.post(1)
    until(lambda: len(a.pieces()) >= COUNT // 2, a, b)
    up[0], halfway = False, sum(a.pieces().values())
    until(lambda: a.network.time > 360, a, b, beats=400_000)
    up[0], probes = True, sum(a.pieces().values()) - halfway
    if restarts:
        a.restart()
    until(lambda: len(b.got) == len(posted), a, b)
    assert b.got == posted
    again = sum(a.pieces().values()) - COUNT - probes
    print(f"{halfway} of {COUNT} pieces before the cut, {probes} while it lasted, {again} again after it")
    assert probes < 60, "while the link was cut: a few pieces now and then, to see whether it is back"
    assert again <= AFTER, "no more than were on their way"


def test_what_is_no_piece_is_refused_and_named():
    words, data = vocabulary(), body(0)

    def piece(i: int, content: bytes, turn: int = 1, check: int | None = None) -> bytes:
        check = zlib.crc32(content) if check is None else check
        return wire.pack(wire.SOME, turn, False, 0, 0, 0, 0, wire.PIECED.pack(i, check) + content)

    words.read(piece(0, data[:PIECE])), words.read(piece(COUNT - 1, data[(COUNT - 1) * PIECE :]))
    faults = {
        "a damaged piece": piece(0, data[:PIECE], check=1),
        "no such piece": piece(COUNT, data[:PIECE]),
        "oversize": piece(0, data[: PIECE + 1]),
        "wrong size": wire.pack(wire.SOME, 1, False, 0, 0, 0, 0, b"1234567"),
    }
    for short in (piece(0, data[: PIECE - 1]), piece(COUNT - 1, data[:PIECE]), piece(0, data[:16], turn=0)):
        with pytest.raises(Refused, match="no such piece"):
            words.read(short)
    for fault, frame in faults.items():
        with pytest.raises(Refused, match=fault):
            words.read(frame)


def test_pieces_that_lie_change_nothing():
    """Pieces of another round, pieces whose sum is no number, word of pieces that were never sent."""
    a, b = met(VirtualNetwork())
    posted = a.post(1)
    until(lambda: len(a.pieces()) > 3, a, b)
    other = a.office.neighbours["b"]
    seq, tag = posted.index((wire.WORD, 0, body(0))), other.tags[0]
    nan = np.full(PIECE // 4, np.nan, np.float32).tobytes()
    lies = [wire.pack(wire.SOME, 1, False, tag, seq, 0, 7, wire.PIECED.pack(0, zlib.crc32(nan)) + nan)]
    lies += [wire.pack(wire.GOT, 1, False, tag, seq + k, 0, 0, wire.ARRIVED.pack(3, 0)) for k in (0, 1, 500)]
    for lie in lies:
        b.office.arrived("a", lie)
    assert b.office.faults["a piece of another letter"] == 1
    assert b.office.faults["has pieces of what was never sent"] == 3
    until(lambda: len(b.got) == len(posted), a, b)
    assert b.got == posted
    for i in range(COUNT):
        content = (nan + bytes(PIECE))[: min(PIECE, 4 * NUMBERS + 4 - i * PIECE)]
        check = wire.PIECED.pack(i, zlib.crc32(content))
        b.office.arrived("a", wire.pack(wire.SOME, 1, False, tag, other.next_out, 0, 1, check + content))
    assert b.office.faults["NaN or infinity"] == 1 and b.office.neighbours["a"].arriving is None
    assert len(b.got) == len(posted)


def test_over_zenoh():
    """Pieces of their true size, through the loopback interface."""
    network = ZenohNetwork()
    a, b = met(network, piece=1 << 12)
    posted = {a: a.post(10), b: b.post(10)}
    until(lambda: len(b.got) == len(posted[a]) and len(a.got) == len(posted[b]), a, b)
    a.link.close(), b.link.close()
    assert b.got == posted[a] and a.got == posted[b]
