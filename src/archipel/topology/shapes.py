"""The shapes of graphs, as arrays of pairs of nodes.

All draws are keyed, as those of nodes are: a device builds the graph that the simulator built.
"""

from typing import Any

import numpy as np

from archipel.draws import GOLDEN, GRAPH, MASK, key_of

# What the draws of a graph are for; each has its own stream, see `chances`.
TREE, ORDER, EXTRA, CLUSTERS, SHARES, LINK_FADES, OPTS_OUT = range(7)

USUAL = 3.0  # neighbours of a node, where nobody says how many


def usual(mean_degree: float, nodes: int) -> float:
    """The same; of a few nodes that have no more others, all of them, where nobody asked for more.

    >>> usual(USUAL, 3), usual(USUAL, 10), usual(4.0, 3)
    (2.0, 3.0, 4.0)
    """
    return float(min(mean_degree, nodes - 1)) if mean_degree == USUAL else mean_degree


def uniforms(key: int, purpose: int, count: int) -> Any:
    """draws.uniform(key, purpose, index) for index 0 .. count - 1, in one go."""
    first = np.uint64((key + (((purpose << 32) + 1) * GOLDEN)) & MASK)
    x = first + np.arange(count, dtype=np.uint64) * np.uint64(GOLDEN)  # wraps around, as the hash wants it
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return ((x >> np.uint64(11)).astype(float) + 0.5) * 1.1102230246251565e-16


def chances(seed: int, stream: int, phase: int, count: int, purpose: int = GRAPH) -> Any:
    """Numbers in (0, 1) for one use in one phase of a graph."""
    return uniforms(key_of(seed, stream, phase), purpose, count)


def shuffled(seed: int, stream: int, phase: int, count: int) -> Any:
    """A random order of 0 .. count - 1."""
    return np.argsort(chances(seed, stream, phase, count), kind="stable")


def random_tree(nodes: int, seed: int) -> Any:
    """A tree on all nodes, each tree equally likely.

    Node i joins min(i - 1, a random node), then all are renamed:
    Aldous, SIAM Journal on Discrete Mathematics 3, 1990, algorithm 2.
    """
    later = np.arange(1, nodes)
    earlier = np.minimum((chances(seed, TREE, 0, nodes - 1) * nodes).astype(np.int64), later - 1)
    names = shuffled(seed, ORDER, 0, nodes)
    return np.stack([names[earlier], names[later]], axis=1)


def random_connected(nodes: int, edges: int, seed: int) -> Any:
    """Exactly `edges` edges: a random tree, or what there are edges for, and random further pairs."""
    tree = random_tree(nodes, seed)[:edges]
    codes = _edge_code(tree.min(axis=1), tree.max(axis=1))
    extra = distinct(nodes * (nodes - 1) // 2, edges - len(tree), codes, seed, 0)
    return np.concatenate([tree, _edge_of(extra)])


def random_strong(nodes: int, links: int, seed: int, phase: int) -> Any:
    """Exactly `links` one-way links (source, target): a random round trip of all nodes, and random others."""
    trip = shuffled(seed, ORDER, phase, nodes)
    source, target = trip, np.roll(trip, -1)
    codes = source * (nodes - 1) + target - (target > source)
    extra = distinct(nodes * (nodes - 1), links - nodes, codes, seed, phase)
    more, to = np.divmod(extra, nodes - 1)
    to = to + (to >= more)
    return np.stack([np.concatenate([source, more]), np.concatenate([target, to])], axis=1)


def distinct(total: int, wanted: int, taken: Any, seed: int, phase: int) -> Any:
    """`wanted` different numbers of 0 .. total - 1, none of them taken, each set equally likely."""
    if wanted <= 0:
        return np.empty(0, np.int64)
    if total <= 4 * (wanted + len(taken)):  # crowded: shuffle all that are free
        free = np.setdiff1d(np.arange(total), taken, assume_unique=True)
        return free[shuffled(seed, EXTRA, phase, len(free))[:wanted]]
    count = wanted + wanted // 2 + 16
    while True:  # sparse: most draws are new, and more of them begin with the same ones
        drawn = (chances(seed, EXTRA, phase, count) * total).astype(np.int64)
        values, first = np.unique(drawn, return_index=True)
        first = first[~np.isin(values, taken)]
        if len(first) >= wanted:
            return drawn[np.sort(first)[:wanted]]
        count *= 2


def _edge_code(low: Any, high: Any) -> Any:
    """Number the pairs low < high: (0,1), (0,2), (1,2), (0,3) ..."""
    return high * (high - 1) // 2 + low


def _edge_of(code: Any) -> Any:
    """The pair of a number; the root may be one off where numbers are large."""
    high = ((1 + np.sqrt(1 + 8 * code.astype(float))) / 2).astype(np.int64)
    high -= _edge_code(0, high) > code
    high += _edge_code(0, high + 1) <= code
    return np.stack([code - _edge_code(0, high), high], axis=1)


def ring(nodes: int) -> Any:
    """Each node and the next; two nodes are joined once."""
    here = np.arange(nodes if nodes > 2 else nodes - 1)
    return np.stack([here, (here + 1) % nodes], axis=1)


def grid(nodes: int) -> Any:
    """A square grid filled row by row, the last row perhaps short; it does not wrap around."""
    width = int(np.ceil(np.sqrt(nodes)))
    here = np.arange(nodes)
    right = here[(here % width < width - 1) & (here + 1 < nodes)]
    below = here[here + width < nodes]
    return np.concatenate([np.stack([right, right + 1], 1), np.stack([below, below + width], 1)])


def complete(nodes: int) -> Any:
    """Every pair of nodes."""
    return np.stack(np.triu_indices(nodes, 1), axis=1)


def one_way_ring(nodes: int) -> Any:
    """Each node sends to the next."""
    here = np.arange(nodes if nodes > 1 else 0)
    return np.stack([here, (here + 1) % nodes], axis=1)


def both_directions(pairs: Any) -> Any:
    """Each pair as two one-way links."""
    return np.concatenate([pairs, pairs[:, ::-1]])


def dealt(nodes: int, groups: int, seed: int) -> Any:
    """Nodes split at random between groups whose sizes differ by at most one."""
    group = np.zeros(nodes, np.int64)
    if groups > 1:
        group[shuffled(seed, CLUSTERS, 0, nodes)] = np.arange(nodes) % groups
    return group
