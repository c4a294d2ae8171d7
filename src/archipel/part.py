"""A part of all clients: tables as long as ever, with numbers only in the rows of the part.

What is never written to costs no memory, so a worker of a cluster has what its own clients need. Draws that are made
one after the other for all clients are found where they stand: the rows of a part are those of the whole, to the bit.
"""

from typing import Any

import numpy as np

WHOLE = slice(None)


def ends(part: slice, total: int) -> tuple[int, int]:
    """The first row of a part, and the one after its last."""
    begin, end, _ = part.indices(total)
    return begin, end


def placed(rows: Any, part: slice, total: int, axis: int = 0) -> Any:
    """The rows of a part in a table of all; the others are never looked at."""
    begin, end = ends(part, total)
    if (begin, end) == (0, total):
        return np.ascontiguousarray(rows)
    shape = list(rows.shape)
    shape[axis] = total
    table = np.zeros(shape, rows.dtype)
    table[(slice(None),) * axis + (part,)] = rows
    return table


def numbered(part: slice, total: int) -> Any:
    """Row k holds k."""
    return placed(np.arange(*ends(part, total), dtype=np.int64), part, total)


def drawn(key: Any, part: slice, total: int, column: int = 0) -> Any:
    """From 0 to 1, for each of a part: the draws of a generator that serves all, a column after the other."""
    begin, end = ends(part, total)
    source = np.random.PCG64(np.random.SeedSequence(key))
    source.advance(column * total + begin)
    return np.random.Generator(source).random(end - begin)
