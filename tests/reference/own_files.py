"""A user's files as one table, without a problem around them."""

from archipel.problems.files import Reading, read_all, targets, together
from archipel.problems.splits.shards import Shards


def read(data, **how) -> Shards:
    """All clients of a folder or a pattern, sorted by name."""
    clients = read_all(data, Reading(**how))
    return together(clients, targets([clients], Reading(**how))[0])
