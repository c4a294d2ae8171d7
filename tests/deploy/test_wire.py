"""Frames: there and back, and nothing hostile passes."""

import struct
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from archipel.deploy import wire
from archipel.deploy.wire import Refused, Vocabulary
from archipel.errors import Diverged
from archipel.parts.share.portions import Portion
from archipel.parts.share.top_k import Largest
from archipel.turns import Tell, Turn


class Mixed(NamedTuple):
    values: Any
    counts: Any
    flags: Any


PORTION = Portion(np.zeros(4, np.float32), np.zeros(1, np.uint32))
MIXED = Mixed(np.zeros((2, 3)), np.zeros(5, np.int16), np.zeros(2, np.bool_))
TURNS = (
    Tell("server", "client", None, None, PORTION),
    Turn("client", "server", None, None, None, PORTION, None),
    Turn("client", "server", None, None, None, MIXED, None),
)
VOCABULARY = Vocabulary(TURNS, 200, 1000)


def test_an_update_of_four_parameters_has_32_bytes():
    body = VOCABULARY.write(1, Portion(np.ones(4, np.float32), np.array([196], np.uint32)))
    assert len(wire.pack(wire.WORD, 1, True, 1, 2, 3, 4, body)) == 12 + 16 + 4


def finite(dtype: Any, shape: Any) -> Any:
    return arrays.arrays(dtype, shape, elements={"allow_nan": False, "allow_infinity": False})


@given(finite(np.float64, (2, 3)), arrays.arrays(np.int16, 5), arrays.arrays(np.bool_, 2), st.data())
@settings(max_examples=100, deadline=None)
def test_there_and_back(values, counts, flags, data):
    said = Mixed(values, counts, flags)
    head = data.draw(st.tuples(*[st.integers(0, 0xFFFF)] * 3)), data.draw(st.integers(0, 1000))
    frame = wire.pack(wire.WORD, 2, True, *head[0], head[1], VOCABULARY.write(2, said))
    read = VOCABULARY.read(frame)
    assert (read.tag, read.seq, read.ack, read.round) == (*head[0], head[1])
    assert read.also_asks and read.turn == 2
    for before, after in zip(said, VOCABULARY.word(read.turn, read.body)):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


def test_big_endian_words_arrive_as_they_are():
    body = VOCABULARY.write(1, Portion(np.arange(4, dtype=">f4"), np.array([7], ">u4")))
    assert body == struct.pack("<4fI", 0, 1, 2, 3, 7)


def test_greetings_there_and_back():
    greeting = wire.Greeting(2**63 + 5, 17, 12345, b"12345678")
    assert wire.greeting_of(VOCABULARY.read(wire.greet(greeting))) == greeting


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_neither_said_nor_taken(bad):
    word = Portion(np.array([0, bad, 0, 0], np.float32), np.zeros(1, np.uint32))
    with pytest.raises(Diverged):
        VOCABULARY.write(1, word)
    with pytest.raises(Refused, match="NaN or infinity"):
        VOCABULARY.read(wire.pack(wire.WORD, 1, False, 0, 0, 0, 0, struct.pack("<4fI", 0, bad, 0, 0, 0)))


def test_no_component_belongs_beyond_the_model():
    """Of a top-k word every place is looked at: a hostile one would end its receiver."""
    word = Largest(np.ones(2, np.float32), np.array([0, 10], np.uint8))
    said = Vocabulary([Turn("client", "server", None, None, None, word, None)], 11, 5)
    frame = wire.pack(wire.WORD, 0, False, 0, 0, 0, 0, said.write(0, word))
    assert said.word(0, said.read(frame).body).places.tolist() == [0, 10]
    for beyond in (11, 255):
        with pytest.raises(wire.Refused, match="offset beyond the model"):
            said.read(frame[:-1] + bytes([beyond]))


def test_each_fault_is_named():
    good = wire.pack(wire.WORD, 1, False, 0, 0, 0, 0, bytes(20))
    faults = {
        "oversize": good + bytes(200),
        "too short": good[:11],
        "another version": bytes([good[0] + 16]) + good[1:],
        "unknown kind": bytes([good[0] | 15]) + good[1:],
        "unknown turn or round": good[:1] + bytes([9]) + good[2:],
        "wrong size": good[:-1],
        "offset beyond the model": good[:-4] + struct.pack("<I", 200),
    }
    for fault, data in faults.items():
        with pytest.raises(Refused) as refused:
            VOCABULARY.read(data)
        assert refused.value.fault == fault
    VOCABULARY.read(good)


def test_ten_thousand_hostile_frames():
    """Random bytes, cut, grown and flipped frames: each is refused by name or is a frame of exactly the right form."""
    draw = np.random.default_rng(1)
    good = [
        wire.pack(wire.WORD, 1, False, 5, 6, 7, 8, VOCABULARY.write(1, PORTION)),
        wire.pack(wire.WORD, 2, False, 5, 6, 7, 8, VOCABULARY.write(2, MIXED)),
        wire.pack(wire.QUIET, 1, True, 5, 6, 7, 8),
        wire.greet(wire.Greeting(1, 2, 3, bytes(8))),
    ]
    refused = 0
    for i in range(10_000):
        data = bytearray(good[i % 4])
        way = i % 5
        if way == 0:
            data = bytearray(draw.bytes(int(draw.integers(0, 300))))
        elif way == 1:
            data = data[: int(draw.integers(0, len(data)))]
        elif way == 2:
            data += draw.bytes(int(draw.integers(1, 50)))
        else:
            for at in draw.integers(0, len(data), way):
                data[at] ^= 1 << int(draw.integers(8))
        try:
            frame = VOCABULARY.read(bytes(data))
        except Refused:
            refused += 1
            continue
        assert frame.turn < len(TURNS) and frame.round <= 1000
        if frame.kind in (wire.WORD, wire.TOLD):
            word = VOCABULARY.word(frame.turn, frame.body)
            assert all(np.isfinite(array).all() for array in word)
            assert [a.shape for a in word] == [a.shape for a in TURNS[frame.turn].word]
    assert refused > 7000
