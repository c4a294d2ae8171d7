"""A shard of all clients: tables as long as ever, with numbers only in the rows of the shard.

What is never written to costs no memory, so a worker of a cluster has what its own clients need. Draws that are made
one after the other for all clients are found where they stand: the rows of a shard are those of the whole, to the bit.
"""

from typing import Any

import numpy as np

WHOLE = slice(None)


def ends(shard: slice, total: int) -> tuple[int, int]:
    """The first row of a shard, and the one after its last."""
    begin, end, _ = shard.indices(total)
    return begin, end


def placed(rows: Any, shard: slice, total: int, axis: int = 0) -> Any:
    """The rows of a shard in a table of all; the others are never looked at."""
    begin, end = ends(shard, total)
    if (begin, end) == (0, total):
        return np.ascontiguousarray(rows)
    shape = list(rows.shape)
    shape[axis] = total
    table = np.zeros(shape, rows.dtype)
    table[(slice(None),) * axis + (shard,)] = rows
    return table


def numbered(shard: slice, total: int) -> Any:
    """Row k holds k."""
    return placed(np.arange(*ends(shard, total), dtype=np.int64), shard, total)


def drawn(key: Any, shard: slice, total: int, column: int = 0) -> Any:
    """From 0 to 1, for each of a shard: the draws of a generator that serves all, a column after the other."""
    begin, end = ends(shard, total)
    source = np.random.PCG64(np.random.SeedSequence(key))
    source.advance(column * total + begin)
    return np.random.Generator(source).random(end - begin)
