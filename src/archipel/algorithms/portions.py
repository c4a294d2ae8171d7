"""Partial sharing: which part of the model crosses the link.

A portion is `size` neighbouring parameters from a start on; it wraps around the end of the model. The article's
selection matrices, diag(M_{k,n}), are exactly that: (7) shifts the start by the portion's size each round.
"""

from typing import Any, NamedTuple

from archipel.draws import PORTION, integer
from archipel.node import kernel

CYCLE, RANDOM = 0, 1  # how the portion moves from round to round


class Portion(NamedTuple):
    """A part of a model on its way: the values and where they belong."""

    values: Any
    start: Any  # one number, as an array


@kernel
def first(size: Any, length: Any, spread: Any, node: Any, round: Any) -> Any:
    """Where the portion M_{k,n} starts, (7): the same for all clients (spread 0), or each its own (spread 1)."""
    return (length * (round + spread * node)) % size


@kernel
def first_random(size: Any, key: Any, index: Any) -> Any:
    """A pseudo-random start, the same at both ends of the link because both know the key."""
    return integer(key, PORTION, index, size)


@kernel
def put(model: Any, portion: Any) -> None:
    """Write a portion into the model."""
    j = portion.start[0]
    for i in range(portion.values.shape[0]):
        model[j] = portion.values[i]
        j += 1
        if j == model.shape[0]:
            j = 0


@kernel
def cut(portion: Any, model: Any, start: Any) -> None:
    """Copy a portion out of the model."""
    portion.start[0] = start
    j = start
    for i in range(portion.values.shape[0]):
        portion.values[i] = model[j]
        j += 1
        if j == model.shape[0]:
            j = 0
