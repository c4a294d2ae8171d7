"""One bit a parameter: the signs of a round's change, or of a gradient.

Bernstein et al., ICML 2018, and the stochastic form of Jin et al., arXiv:2002.10940: a sign is flipped with a chance
that makes it tell the size on average, P(+) = 1/2 + v / (2 b) for |v| <= b. With `scale` = b what is read is then
unbiased.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.draws import SIGN, uniform
from archipel.node import fill, kernel
from archipel.parts import BOUNDED, Share, SharePiece, empty
from archipel.parts.share.whole import Model, take
from archipel.parts.share.whole import write as tell
from archipel.turns import Setup

BIT = 1 / 32  # of a parameter


class Bits(NamedTuple):
    """A bit a parameter, packed."""

    bits: Any


class Size(NamedTuple):
    bound: Any  # b: the largest size of a component; 0: plain signs
    scale: Any  # what a sign stands for


@kernel
def change(me: Any, j: Any) -> Any:
    return me.model[j] - me.before[j]


@kernel
def direction(me: Any, j: Any) -> Any:
    return me.learn.direction[j]


@kernel
def plainly(value: Any, settings: Any, moment: Any, j: Any) -> Any:
    return value > 0.0


@kernel
def by_chance(value: Any, settings: Any, moment: Any, j: Any) -> Any:
    return uniform(moment.key, SIGN, j) < 0.5 + 0.5 * value / settings.share.bound


@cache
def writing(read: Any, is_up: Any) -> Any:
    @kernel
    def write(said: Any, me: Any, settings: Any, moment: Any) -> None:
        fill(said.bits, 0)
        for j in range(me.model.shape[0]):
            if is_up(read(me, j), settings, moment, j):
                said.bits[j // 8] |= np.uint8(1 << (j % 8))

    return write


@kernel
def fold(total: Any, count: Any, said: Any, factor: Any, settings: Any) -> None:
    value = factor * settings.share.scale
    for j in range(total.shape[0]):
        total[j] += value if (said.bits[j // 8] >> (j % 8)) & 1 else -value
        count[j] += factor


@dataclass(frozen=True)
class Signs(Share, Checked):
    """The signs of what a round changed, each standing for `scale`; with a `bound` they are stochastic."""

    scale: float = key(1.0, "what a sign stands for", above=0)
    bound: float = key(0.0, "the largest size of a component, for stochastic signs; 0: plain ones", at_least=0)
    of: str = key("change", "whose signs", choices=("change", "gradient"))

    def make(self, setup: Setup) -> SharePiece:
        size, gradient = setup.task.size, self.of == "gradient"
        bits, told = Bits(np.zeros((size + 7) // 8, np.uint8)), Model(np.zeros(size, setup.dtype))
        write = writing(direction if gradient else change, by_chance if self.bound > 0 else plainly)
        settings = Size(self.bound, np.dtype(setup.dtype).type(self.scale))
        return SharePiece(
            write, tell, take, fold, bits, told, settings, empty(setup.task.clients), size * BIT, size,
            of_change=True, before=not gradient, needs=("direction",) if gradient else (), leaves=BOUNDED,
        )  # fmt: skip
