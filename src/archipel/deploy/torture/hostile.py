"""Frames of a neighbour that has a valid certificate and means ill. All are to be refused, or to change nothing."""

from typing import Any

import numpy as np

from archipel.deploy import wire
from archipel.deploy.torture.chance import mix
from archipel.deploy.wire import Greeting, tag

KINDS = 11


def hostile(key: int, node: Any, to: str) -> bytes:
    """One such frame, from a node to a neighbour."""
    other, vocabulary = node.office.neighbours[to], node.view.vocabulary
    mark = tag(other.mine, other.theirs)
    turn = mix(key, 1) % len(vocabulary.words)
    word = vocabulary.words[turn]
    kind, draw = mix(key, 2) % KINDS, mix(key, 3)
    ahead = other.next_out + 5000
    if kind == 0:
        return noise(key, draw % 80)
    if kind == 1:  # a wrong size
        return wire.pack(word.kind, turn, False, mark, other.next_out, 0, 0, bytes(word.size + 1 + draw % 40))
    if kind == 2:  # not a number
        first = word.fields[0]
        value = (np.nan, np.inf, -np.inf)[draw % 3] if first.dtype.kind == "f" else -1
        bad = np.full(first.shape, value).astype(first.dtype)
        return wire.pack(word.kind, turn, False, mark, ahead, 0, 0, bad.tobytes() + bytes(word.size - first.end))
    if kind == 3:  # another version
        return bytes([wire.VERSION + 1 << 4 | wire.WORD]) + noise(key, 31)
    if kind == 4:  # from another life
        return wire.pack(word.kind, turn, True, mark ^ 1, other.next_out, 0, 3, bytes(word.size))
    if kind == 5:  # too large
        return bytes(vocabulary.largest + 1 + draw % 100_000)
    if kind == 6:  # far beyond the window
        return wire.pack(wire.QUIET, turn, False, mark, ahead, other.next_in, 3)
    if kind == 7:  # acknowledges what was never sent
        return wire.pack(wire.ACK, turn, False, mark, 0, other.next_in + 20_000, 3)
    if kind == 8:  # no such kind
        return wire.pack(len(wire.KINDS) + draw % (16 - len(wire.KINDS)), turn, False, mark, other.next_out, 0, 3)
    if kind == 9:  # a letter that was answered long ago
        return wire.pack(wire.QUIET, turn, False, mark, other.acked - 1 if other.acked else ahead, 0, 0)
    return wire.greet(Greeting(0, other.theirs, 3, other.salted(node.office.digest)))  # a store without a number


def posing(key: int, node: Any, victim: Any) -> list[bytes]:
    """The next letters of others to a neighbour, as far as one can guess; and its own next one, with bad content."""
    name, frames = node.view.member.name, []
    others = victim.office.neighbours if victim else {}
    for other in others.values():  # one tag of 65,536 is also the liar's own: such a letter is its own, and good
        if other.name != name and other.theirs and other.tags[1] != others[name].tags[1]:
            frames.append(wire.pack(wire.QUIET, 0, False, other.tags[1], other.next_in, other.acked, 0))
    mine, vocabulary = node.office.neighbours.get(victim.view.member.name if victim else ""), node.view.vocabulary
    for turn, word in enumerate(vocabulary.words if mine else ()):
        for field in word.fields:
            bad = {"f": np.nan, "i": -1, "u": field.below}[field.dtype.kind] if field.numbers else 0
            if bad and (field.dtype.kind == "f" or field.below):
                body = bytearray(word.size)
                body[field.begin : field.end] = np.full(field.numbers, bad, field.dtype).tobytes()
                head = word.kind, turn, False, tag(mine.mine, mine.theirs), mine.next_out
                frames.append(wire.pack(*head, mine.safe_in, mix(key, turn) % 4, bytes(body)))
    return frames


def noise(key: int, size: int) -> bytes:
    return b"".join(mix(key, i).to_bytes(8, "little") for i in range(size // 8 + 1))[:size]
