"""Tables of clients by rounds that are never whole in memory: some clients at a time."""

from typing import Any

import numpy as np

PIECE = 1 << 22  # numbers


def pieces(clients: int, rounds: int) -> list[slice]:
    """Clients that follow each other, as many as have that many numbers."""
    some = max(1, PIECE // max(rounds, 1))
    return [slice(first, min(first + some, clients)) for first in range(0, clients, some)]


def rows_of(table: Any, part: slice) -> Any:
    """The rows of some clients: of an array with a row for each, or one for all; or of a function of them."""
    if callable(table):
        return table(part)
    rows = np.atleast_2d(np.asarray(table, float))
    return rows[part] if len(rows) > 1 else rows
