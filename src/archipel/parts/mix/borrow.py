"""Personalisation as a part: cluster models that borrow from each other, for any algorithm that merges models.

A merge step that has one model a cluster calls `borrow` last. How much is borrowed in which round is a table,
`taus_of`.
"""

from typing import Any

import numpy as np

from archipel.errors import BadInput
from archipel.node import kernel


@kernel
def borrow(out: Any, own: Any, tau: Any, used: Any) -> None:
    """Inter-cluster learning, (10): out_q = (1 - tau) own_q + tau / (Q - 1) sum of the others' own_r.

    Only clusters that are `used` lend, and a cluster with no other beside it keeps its own model.
    """
    clusters = 0
    for q in range(own.shape[0]):
        clusters += 1 if used[q] > 0 else 0
    for q in range(own.shape[0]):
        others = clusters - (1 if used[q] > 0 else 0)
        share = tau if others > 0 else 0.0
        for j in range(own.shape[1]):
            lent = 0.0
            for r in range(own.shape[0]):
                if r != q and used[r] > 0:
                    lent += own[r, j]
            out[q, j] = (1.0 - share) * own[q, j] + share * lent / max(others, 1)


def taus_of(tau: float | tuple[float, ...], decay: float, rounds: int) -> Any:
    """tau of each round: the same, tau decay^n with n from 1 as in figure 5, or the user's own.

    >>> taus_of(0.4, 0.5, 2), taus_of((0.3, 0.1), 1.0, 2)
    (array([0.2, 0.1]), array([0.3, 0.1]))
    """
    if isinstance(tau, tuple):
        if len(tau) < rounds:
            raise BadInput("algorithm.tau", f"{len(tau)} numbers", f"one a round, {rounds}")
        table = np.array(tau[:rounds], float)
    else:
        table = np.full(rounds, float(tau))
    if not ((table >= 0) & (table <= 1)).all():
        wrong = table[~((table >= 0) & (table <= 1))][0]
        raise BadInput("algorithm.tau", float(wrong), "a share from 0 (nothing is borrowed) to 1")
    if not 0 < decay <= 1:
        raise BadInput("algorithm.decay", decay, "a factor above 0, at most 1")
    return table * decay ** np.arange(1, rounds + 1) if decay < 1 else table
