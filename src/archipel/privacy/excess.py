"""Noise for those who may drop, and its removal once it is known who did (as XNoise, Jiang et al., EuroSys 2024).

If any d of n clients may drop, each must add so much that what is left suffices: in a sum of all, more than is needed.
So a client's noise is a first part, which suffices if nobody drops, and some further parts, its *excess*. All of these
come from a seed: part k from the k-th of a chain of hashes. With its answer to a list of m clients it tells the seed
of the first part that such a sum does not need; from it follow all later parts, which the server takes off the sum, and
no earlier one. Where an answer does not come, or its sender is not on the list, its excess stays.

How much stays, `kept`: a client that answers for a long list keeps little, and a server that lies could put it in a sum
of few. But a sum needs the answers of `needed` clients for its own list, and everyone answers once. So at most d of its
clients answered for another list, and have at least what stays in a sum of all; the others have what stays in theirs.
With g clients whose own noise does not count, as they may tell it, so much stays that

    (m - d - g) kept(m) + d kept(n) = 1,   kept(n) = 1 / (n - g)

of the variance that is needed, whoever lies: where nobody drops, nothing more than that. If the server is known to show
everyone the same list, kept(m) = 1 / (m - g), which is d = 0 above.
"""

import hashlib
from typing import Any, NamedTuple

import numpy as np

from archipel.privacy.coding import SEED
from archipel.privacy.noise import release_key

KEY = 8  # bytes of the key of a replay, which is a seed too


def sizes_of(clients: int, needed: int, known: int, levels: int, lying: bool = True) -> Any:
    """Of the smallest sums that have the first part alone, one further part, ... and all, as many as there can be.

    >>> sizes_of(100, 66, 1, 4)
    array([100,  91,  83,  74,  66])
    """
    dropping = clients - needed
    if lying and needed - dropping - known < 1:  # it could have all of the excess taken off
        levels = 0
    count = min(levels, dropping)
    if count == 0:
        return np.array([needed])
    return clients - (dropping * np.arange(count + 1) + count - 1) // count


def kept_of(sizes: Any, clients: int, known: int, lying: bool = True) -> Any:
    """Of the variance that a sum needs, what a client's noise keeps in sums of at least these sizes."""
    others = clients - sizes[-1] if lying and len(sizes) > 1 else 0  # who may have answered for another list
    return (1 - others / (clients - known)) / (sizes - others - known)


class Excess(NamedTuple):
    """The further parts of a client's noise."""

    below: Any  # (levels,): a part stays in sums of fewer words than this
    deviations: Any  # (levels,): in steps of the grid, where the shape is 1
    shape: Any  # (rounds,)
    disturb: Any  # (values, deviation, key): how noise is drawn where a key decides it, in a replay

    def kept(self, count: int) -> int:
        """How many parts stay in a sum of so many words."""
        return int((count < self.below).sum())

    def add(self, values: Any, seed: bytes, first: int, n: int, sign: int = 1) -> None:
        """Add a client's noise of round n, from a part on, whose seed this is, to integers."""
        drawn = np.zeros(len(values), np.int64)
        for deviation in self.deviations[first:] * self.shape[n]:
            if is_key(seed):
                self.disturb(drawn, deviation, int.from_bytes(seed[:KEY], "little"))
            else:
                from archipel.privacy.secure_aggregation import add_from

                add_from(drawn, float(deviation), seed)
            seed = later(seed, 1)
        values += sign * drawn


def is_key(seed: bytes) -> bool:
    return not any(seed[KEY:])


def seed_of(key: Any) -> bytes:
    """A key as a seed."""
    return int(key).to_bytes(KEY, "little").ljust(SEED, b"\0")


def later(seed: bytes, steps: int) -> bytes:
    """So many steps along the chain: nobody goes back."""
    for _ in range(steps):
        if is_key(seed):
            seed = seed_of(release_key(int.from_bytes(seed[:KEY], "little"), 1))
        else:
            seed = hashlib.sha256(b"archipel excess noise " + seed).digest()
    return seed
