"""What node functions are made of. NumPy only: a device needs nothing else.

A node function is written once, for one node, on small arrays. A device calls it as it is; the simulator compiles
the same function and maps it over all nodes. `kernel` marks such a function. A *verb* is a piece of arithmetic that
is fastest as a NumPy call on a device and as a loop in the compiler: `fast` ties the two forms together, and a test
holds them equal.
"""

import math
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

KERNELS: list[Callable[..., Any]] = []
EXACT: list[Callable[..., Any]] = []  # those of them whose arithmetic is not rearranged
IN_ORDER: list[Callable[..., Any]] = []  # nor that of those, but for a product that is rounded with its sum
RARE: list[Callable[..., Any]] = []  # those of them that are called, not inlined
FAST: dict[Callable[..., Any], Callable[..., Any]] = {}


def kernel(function: F) -> F:
    """Mark a function of one node: plain Python as it is, compiled by the simulator."""
    KERNELS.append(function)
    return function


def exact(function: F) -> F:
    """As `kernel`, where sums must not be rearranged: else one thread and two may differ in the last bit."""
    EXACT.append(function)
    return kernel(function)


def in_order(function: F) -> F:
    """As `kernel`, where several sums stand in one loop, and must have the bits of one loop after the other."""
    IN_ORDER.append(function)
    return kernel(function)


def rare(function: F) -> F:
    """As `kernel`, for what is long and seldom used: compiled once, where inlining it would take seconds each time."""
    RARE.append(function)
    return kernel(function)


def fast(plain: Callable[..., Any]) -> Callable[[F], F]:
    """Give the simulator a loop in place of a NumPy verb; one that is marked `exact` is not rearranged there either."""

    def note(loop: F) -> F:
        FAST[plain] = loop
        return loop

    return note


class Moment(NamedTuple):
    """Who acts, and when: the arguments of a node function that are not arrays."""

    node: Any  # the acting node's number within its role
    round: Any  # n, from 0
    key: Any  # of all its random draws this round, see draws.key_of
    peer: Any  # the other end of the link in a Tell, else -1
    degree: Any  # how many neighbours the node has in this turn
    present: Any  # whether it can talk this round
    kept: Any  # the part of what it says that stays with it: one less the weights of those who heard it


class Edge(NamedTuple):
    """What a receiver knows about a message before it reads it."""

    sender: Any
    weight: Any
    age: Any  # rounds since it was said
    round: Any  # when it was said
    place: Any = 0  # of the sender among all that the receiver ever hears


FEW = 128  # nodes whose draws are made together


class Few(NamedTuple):
    """Some nodes that are looked at together, each in a round of its own; a node's rounds follow each other."""

    nodes: Any  # (FEW,): their numbers
    rounds: Any
    keys: Any  # of their draws in it
    first: Any  # draws, one a node
    second: Any
    due: Any  # nodes that are to be played
    at: Any  # (2,): which of them comes next, and from which round on


NOTHING, SAID, LEARNED = 0, 1, 2  # what became of an act: nothing; it says something; it learned, in silence


class Rows(dict[Any, Any]):
    """The rows of a table, each made once, when it is first asked for: views cost more than what many a node does."""

    def __init__(self, table: Any):
        self.table = table

    def __missing__(self, k: Any) -> Any:
        self[k] = row(self.table, k)
        return self[k]


def row(table: Any, k: Any) -> Any:
    """Node k's own arrays, as views, from the tables of all nodes."""
    if isinstance(table, Rows):
        return table[k]
    return type(table)(*[row(column, k) if isinstance(column, tuple) else column[k] for column in table])


def clear(record: Any) -> None:
    """Zero every array of a record."""
    for array in leaves(record):
        array[...] = 0


def fetch(table: Any, k: Any) -> None:
    """Row k is needed soon: compiled code asks memory for it meanwhile; of a record, for its first array."""


def leaves(record: Any) -> Iterator[Any]:
    """All arrays of a record, however deep."""
    for part in record:
        if isinstance(part, tuple):
            yield from leaves(part)
        else:
            yield part


def named_leaves(record: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """All arrays of a record, each with its path: ("learn.dual", array)."""
    for name, part in zip(record._fields, record):
        if isinstance(part, tuple):
            yield from named_leaves(part, f"{before}{name}.")
        else:
            yield before + name, part


def mapped(change: Callable[[Any], Any], record: Any) -> Any:
    """The same record with every array changed."""
    return type(record)(*[mapped(change, part) if isinstance(part, tuple) else change(part) for part in record])


def emptied(record: Any) -> Any:
    """A record of zeros of the same shapes: memory only where they are written (`zeros_like` writes them)."""
    return mapped(lambda array: np.zeros(array.shape, array.dtype), record)


def extended(record: Any, name: str, *more: str) -> Any:
    """A record with the fields of another, and more: named tuples do not inherit.

    >>> extended(Edge, "Heard", "values")._fields
    ('sender', 'weight', 'age', 'round', 'place', 'values')
    """
    module = sys._getframe(1).f_globals["__name__"]  # where it can be found again, in another process too
    return namedtuple(name, (*record._fields, *more), module=module)


LINE = 64  # bytes that come from memory at once


def table_of(shape: tuple[int, ...], dtype: Any = float) -> Any:
    """Zeros, as NumPy's, that begin with a line of memory: theirs begin within one, so that loops over rows, which read
    and write whole lines' worth at once, would touch two lines for each.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    block = np.zeros(size + LINE, np.uint8)
    begin = -block.ctypes.data % LINE
    return block[begin : begin + size].view(kind).reshape(shape)


def tabled(record: Any, rows: int) -> Any:
    """A table of `rows` empty records."""
    return mapped(lambda array: table_of((rows, *array.shape), array.dtype), record)


def repeated(record: Any, rows: int) -> Any:
    """A table of `rows` records, all like this one."""
    return mapped(lambda array: np.repeat(array[None], rows, 0), record)


def rows_of(table: Any) -> int:
    """How many rows a table has."""
    return len(next(leaves(table)))


def weight_of(word: Any) -> int:
    """The size in bytes of what a message carries."""
    return sum(array.nbytes for array in leaves(word))


# --- verbs ----------------------------------------------------------------------------------------------------------


def dot(a: Any, b: Any) -> Any:
    """The inner product of two vectors."""
    return a @ b


@fast(dot)
def dot_loop(a: Any, b: Any) -> Any:
    total = a.dtype.type(0)
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


def assign(a: Any, b: Any) -> None:
    """a = b, in place. (Compiled, `a[:] = b` brings a message about shapes with it that takes seconds to compile.)"""
    a[:] = b


@fast(assign)
def assign_loop(a: Any, b: Any) -> None:
    for j in range(a.shape[0]):
        a[j] = b[j]


def fill(a: Any, number: Any) -> None:
    """a = number, everywhere, in place."""
    a[...] = number


@fast(fill)
def fill_loop(a: Any, number: Any) -> None:
    for j in range(a.shape[0]):
        a[j] = number


def add_scaled(a: Any, factor: Any, b: Any) -> None:
    """a += factor * b, in place."""
    a += factor * b


@fast(add_scaled)
def add_scaled_loop(a: Any, factor: Any, b: Any) -> None:
    for j in range(a.shape[0]):
        a[j] += factor * b[j]


def add_all(a: Any, number: Any) -> None:
    """a += number, everywhere, in place."""
    a += number


@fast(add_all)
def add_all_loop(a: Any, number: Any) -> None:
    for j in range(a.shape[0]):
        a[j] += number


def subtract(out: Any, a: Any, b: Any) -> None:
    """out = a - b; `out` may be one of them."""
    np.subtract(a, b, out=out)


@fast(subtract)
def subtract_loop(out: Any, a: Any, b: Any) -> None:
    for j in range(out.shape[0]):
        out[j] = a[j] - b[j]


def add_exactly(a: Any, factor: Any, b: Any) -> None:
    """`add_scaled` for `exact` functions: product and sum are rounded one after the other, wherever it is compiled."""
    a += factor * b


@fast(add_exactly)
@exact
def add_exactly_loop(a: Any, factor: Any, b: Any) -> None:
    for j in range(a.shape[0]):
        a[j] += factor * b[j]


def dot_exactly(a: Any, b: Any) -> Any:
    """`dot` for `exact` functions: added up in the same order everywhere."""
    return a @ b


@fast(dot_exactly)
@exact
def dot_exactly_loop(a: Any, b: Any) -> Any:
    """Four sums that do not wait for each other, always the same four."""
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    whole = a.shape[0] - a.shape[0] % 4
    for j in range(0, whole, 4):
        first += a[j] * b[j]
        second += a[j + 1] * b[j + 1]
        third += a[j + 2] * b[j + 2]
        fourth += a[j + 3] * b[j + 3]
    for j in range(whole, a.shape[0]):
        first += a[j] * b[j]
    return (first + second) + (third + fourth)


def matvec(out: Any, matrix: Any, vector: Any) -> None:
    """out = matrix @ vector."""
    out[:] = matrix @ vector


@fast(matvec)
def matvec_loop(out: Any, matrix: Any, vector: Any) -> None:
    for i in range(matrix.shape[0]):
        total = out.dtype.type(0)
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * vector[j]
        out[i] = total


def add_matvec_transposed(out: Any, factor: Any, matrix: Any, vector: Any) -> None:
    """out += factor * matrix.T @ vector."""
    out += factor * (matrix.T @ vector)


@in_order
def add_four(out: Any, a: Any, b: Any, c: Any, d: Any, matrix: Any, i: Any) -> None:
    """Rows i to i + 3, in their order: what is added to is read and written once."""
    for j in range(matrix.shape[1]):
        out[j] = (((out[j] + a * matrix[i, j]) + b * matrix[i + 1, j]) + c * matrix[i + 2, j]) + d * matrix[i + 3, j]


@fast(add_matvec_transposed)
def add_matvec_transposed_loop(out: Any, factor: Any, matrix: Any, vector: Any) -> None:
    i = 0
    while i + 4 <= matrix.shape[0]:
        a, b, c, d = factor * vector[i], factor * vector[i + 1], factor * vector[i + 2], factor * vector[i + 3]
        add_four(out, a, b, c, d, matrix, i)
        i += 4
    while i < matrix.shape[0]:
        scale = factor * vector[i]
        for j in range(matrix.shape[1]):
            out[j] += scale * matrix[i, j]
        i += 1


def cosines(out: Any, phases: Any, directions: Any, x: Any, scale: Any) -> None:
    """out = scale * cos(phases + x @ directions): random Fourier features."""
    out[:] = scale * np.cos(phases + x @ directions)


@fast(cosines)
def cosines_loop(out: Any, phases: Any, directions: Any, x: Any, scale: Any) -> None:
    size = out.shape[0]
    if x.shape[0] == 4:  # as scalars, or the loop does not vectorise; and in one loop: nothing waits for memory
        a, b, c, d = x[0], x[1], x[2], x[3]
        for j in range(size):
            turned = a * directions[0, j] + b * directions[1, j] + c * directions[2, j] + d * directions[3, j]
            out[j] = scale * cosine(phases[j] + turned, out)
        return
    for j in range(size):
        out[j] = phases[j]
    i = 0
    while i + 4 <= x.shape[0]:
        a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
        for j in range(size):
            out[j] += (
                a * directions[i, j] + b * directions[i + 1, j] + c * directions[i + 2, j] + d * directions[i + 3, j]
            )
        i += 4
    while i < x.shape[0]:
        a = x[i]
        for j in range(size):
            out[j] += a * directions[i, j]
        i += 1
    for j in range(size):
        out[j] = scale * cosine(out[j], out)


@kernel
def cosine(phase: Any, like: Any) -> Any:
    """The cosine is the sine of a quarter turn less: an odd polynomial, short in float32, which vectorises."""
    real = like.dtype.type
    s = quarter_less(phase, real(0.15915494309189535), real(0.5), real(0.25))
    q = s * s
    if like.itemsize == 4:
        p = real(42.05869394) + q * real(-15.09464258)
        p = real(81.60524928) + q * (real(-76.70585975) + q * p)
        return s * (real(6.283185307) + q * (real(-41.34170224) + q * p))
    p = real(SINE[8]) + q * (real(SINE[9]) + q * real(SINE[10]))
    p = real(SINE[4]) + q * (real(SINE[5]) + q * (real(SINE[6]) + q * (real(SINE[7]) + q * p)))
    return s * (real(SINE[0]) + q * (real(SINE[1]) + q * (real(SINE[2]) + q * (real(SINE[3]) + q * p))))


@kernel
def quarter_less(phase: Any, per_turn: Any, half: Any, quarter: Any) -> Any:
    """A phase in turns, brought to [-1/4, 1/4] so that its cosine is the sine of what is returned."""
    turns = phase * per_turn
    turns = turns - np.floor(turns + half)
    return quarter - abs(turns)


# The series of sin(2 pi s) in odd powers of s: on a quarter turn, exact to float64.
SINE = tuple((2 * math.pi) ** n / math.factorial(n) * (-1) ** (n // 2) for n in range(1, 22, 2))
