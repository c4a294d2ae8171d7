"""A round's change, rounded to a few bits a parameter, up or down by chance so that nothing is lost on average.

Alistarh et al., NeurIPS 2017 (QSGD), with uniform levels between the largest component's size m and -m: with
s = 2^bits - 1 and step h = 2 m / s a component lies between two levels, and the chance of each makes its mean the
component. Its variance is at most h^2 / 4.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.draws import ROUNDING, uniform
from archipel.errors import BadInput
from archipel.node import exact, fill, kernel
from archipel.parts import BOUNDED, Share, SharePiece, empty
from archipel.parts.share.whole import Model, take
from archipel.parts.share.whole import write as tell
from archipel.turns import Setup


class Levels(NamedTuple):
    """Levels, packed, and the size of the largest component."""

    packed: Any
    largest: Any


class Bits(NamedTuple):
    bits: Any  # a parameter: 1, 2, 4 or 8


@exact
def level_of(value: Any, largest: Any, top: Any, draw: Any) -> Any:
    """The level just below or above, by chance."""
    if largest == 0.0:
        return 0
    at = (float(value) / float(largest) + 1.0) * (0.5 * top)
    return min(max(math.floor(at + draw), 0), top)


@kernel
def write(said: Any, me: Any, settings: Any, moment: Any) -> None:
    bits = settings.share.bits
    top, each = (1 << bits) - 1, 8 // bits
    said.largest[0] = 0
    for j in range(me.model.shape[0]):
        said.largest[0] = max(said.largest[0], abs(me.model[j] - me.before[j]))
    fill(said.packed, 0)
    for j in range(me.model.shape[0]):
        level = level_of(me.model[j] - me.before[j], said.largest[0], top, uniform(moment.key, ROUNDING, j))
        said.packed[j // each] |= np.uint8(level << (bits * (j % each)))


@kernel
def fold(total: Any, count: Any, said: Any, factor: Any, settings: Any) -> None:
    bits, real = settings.share.bits, total.dtype.type
    top, each = (1 << bits) - 1, 8 // bits
    for j in range(total.shape[0]):
        level = (said.packed[j // each] >> (bits * (j % each))) & top
        total[j] += factor * said.largest[0] * (real(2) * real(level) / real(top) - real(1))
        count[j] += factor


@dataclass(frozen=True)
class Quantised(Share, Checked):
    """What a round changed, in `bits` bits a parameter and one number for the scale; right on average."""

    bits: int = key(4, "bits a parameter: 1, 2, 4 or 8", at_least=1, at_most=8)

    def make(self, setup: Setup) -> SharePiece:
        size, rows, dtype = setup.task.size, setup.task.clients, setup.dtype
        if 8 % self.bits:
            raise BadInput("algorithm.share.bits", self.bits, "1, 2, 4 or 8, which fill a byte")
        word = Levels(np.zeros((size * self.bits + 7) // 8, np.uint8), np.zeros(1, dtype))
        return SharePiece(
            write, tell, take, fold, word, Model(np.zeros(size, dtype)), Bits(self.bits), empty(rows),
            size * self.bits / 32 + 1, size, of_change=True, before=True, leaves=BOUNDED,
        )  # fmt: skip
