"""Is a graph in one piece, and how well is it knit. NumPy alone, but for the eigenvalues of large graphs."""

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np

from archipel.topology.links import Links, from_pairs, matrix

DENSE = 1000  # up to so many nodes eigenvalues come from a dense matrix


def components(links: Links) -> Any:
    """For each node the smallest node of its piece, links taken both ways.

    All links at once pull the larger label to the smaller one, then labels follow labels to the end.
    """
    label = np.arange(len(links.own))
    while True:
        here, there = label[links.receivers], label[links.senders]
        if (here == there).all():
            return label
        np.minimum.at(label, np.maximum(here, there), np.minimum(here, there))
        while (label[label] != label).any():
            label = label[label]


def hops(links: Links, root: int = 0) -> Any:
    """How many links each node is from `root` along receiver to sender; -1 where there is no way."""
    starts, senders = links.starts.tolist(), links.senders.tolist()
    level = [-1] * len(links.own)
    level[root] = 0
    queue = [root]
    for node in queue:
        if len(queue) == len(level):
            break
        for other in senders[starts[node] : starts[node + 1]]:
            if level[other] < 0:
                level[other] = level[node] + 1
                queue.append(other)
    return np.array(level)


def reverse(links: Links) -> Links:
    """The same graph with every link turned round."""
    return from_pairs(len(links.own), links.senders, links.receivers, links.weights, links.own)


def unreached(links: Links) -> tuple[int, int] | None:
    """A pair of nodes (from, to) where nothing ever gets from one to the other, or None."""
    for towards, way in ((reverse(links), 1), (links, -1)):
        level = hops(towards)
        if (level < 0).any():
            node = int(np.argmax(level < 0))
            return (0, node)[::way]  # type: ignore[return-value]
    return None


def union(phases: Sequence[Links]) -> Links:
    """A link wherever one of the phases has one; each weighs 1."""
    nodes = len(phases[0].own)
    codes = np.unique(np.concatenate([links.receivers * nodes + links.senders for links in phases]))
    return from_pairs(nodes, codes // nodes, codes % nodes)


def window_that_fails(phases: Sequence[Links], window: int) -> tuple[int, int, int] | None:
    """B-strong connectivity (dissertation, assumption 5): the links of rounds tB .. (t+1)B - 1 together,
    for every t.

    Phases follow each other in turn for ever, so only finitely many windows differ. Returns the first round
    of a window that is not strongly connected, and who cannot reach whom in it; None where all are.
    """
    period = len(phases)
    different = period // gcd(period, window) if window < period else 1
    for t in range(different):
        together = {(t * window + k) % period for k in range(min(window, period))}
        pair = unreached(union([phases[p] for p in sorted(together)]))
        if pair:
            return t * window, *pair
    return None


def period(links: Links) -> int:
    """The common divisor of the lengths of all round trips of a strongly connected graph.

    An own share is a trip of one. Only where it is 1 does repeated mixing settle: else weights rotate.
    """
    if (links.own > 0).any():
        return 1
    level = hops(links)
    return int(np.gcd.reduce(level[links.receivers] + 1 - level[links.senders]))


# --- how well -----------------------------------------------------------------------------------------------


def laplacian(links: Links) -> Any:
    """Degrees on the diagonal, less the links of an undirected graph; dense."""
    unit = links._replace(weights=np.ones(len(links.weights)), own=np.zeros(len(links.own)))
    return np.diag(links.degree.astype(float)) - matrix(unit)


def algebraic_connectivity(links: Links) -> float:
    """The second smallest eigenvalue of the Laplacian; 0 for a graph in pieces."""
    nodes = len(links.own)
    if nodes < 2:
        return 0.0
    if nodes <= DENSE:
        return float(max(np.linalg.eigvalsh(laplacian(links))[1], 0.0))
    from scipy.sparse import csr_matrix, diags
    from scipy.sparse.linalg import eigsh

    unit = csr_matrix((np.ones(len(links.senders)), links.senders, links.starts), (nodes, nodes))
    start = np.random.default_rng(0).standard_normal(nodes)  # else the solver draws its own, differently each time
    lowest = eigsh(
        (diags(links.degree.astype(float)) - unit).tocsc(), 2, sigma=-0.01, v0=start, return_eigenvectors=False
    )
    return float(max(np.sort(lowest)[1], 0.0))
