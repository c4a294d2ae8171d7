"""The whole model, or its change, in every message."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.node import add_all, add_scaled, assign, kernel, subtract
from archipel.parts import NONE, Share, SharePiece, empty
from archipel.turns import Setup


class Model(NamedTuple):
    """A whole model, or a change of it, on its way."""

    values: Any


@kernel
def write(said: Any, me: Any, settings: Any, moment: Any) -> None:
    assign(said.values, me.model)


@kernel
def write_change(said: Any, me: Any, settings: Any, moment: Any) -> None:
    subtract(said.values, me.model, me.before)


@kernel
def take(me: Any, said: Any, settings: Any) -> None:
    assign(me.model, said.values)


@kernel
def fold(total: Any, count: Any, said: Any, factor: Any, settings: Any) -> None:
    add_scaled(total, factor, said.values)
    add_all(count, factor)


@dataclass(frozen=True)
class Whole(Share, Checked):
    """All parameters; with `change` what a round changed in them."""

    change: bool = key(False, "say what the round changed, not the model")

    def make(self, setup: Setup) -> SharePiece:
        size, rows = setup.task.size, setup.task.clients
        word = Model(np.zeros(size, setup.dtype))
        return SharePiece(
            write_change if self.change else write, write, take, fold, word, word, NONE, empty(rows), size, size,
            of_change=self.change, before=self.change, uniform=True,
        )  # fmt: skip
