"""Finding clusters: who belongs together, from what nodes say anyway.

Every node has a *signature*: where its own data would take a model that all share, as its dual variable tells,
which is made of words that were said. Nodes pass signatures on until everyone has all of them, and everyone groups
them by the same arithmetic, so that all agree. No data are looked at, and nothing is said that was not made of
earlier releases: under privacy this is post-processing.

Grouping splits a group in two along its principal direction as long as that stands out of noise: its largest
eigenvalue lies beyond what pure noise has (Johnstone, Annals of Statistics 29, 2001), and the projections fall into
two heaps.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.draws import GRAPH, uniform
from archipel.node import add_matvec_transposed, add_scaled, assign, dot, fast, fill, kernel, matvec, rare

POWER = 100  # steps of the power method
BEYOND = 5.0  # fluctuations beyond the edge of noise that a direction must stand out
HEAPS = 2.8  # distance of the two heaps in their spread; a normal cloud, cut in the middle, has 2.65
LEAST = 2  # nodes a group has at least, and
SHARE = 20  # of all nodes this part: who has just changed groups lies far from everyone, and is no group
REFINED = 10  # times that everyone is put where it most likely belongs
LEANING = 2.0  # nodes' worth of the usual spread in that of each group


class Room(NamedTuple):
    """Scratch for grouping: arrays that are made in a kernel are counted, which takes very long to compile."""

    labels: Any  # (nodes,)
    members: Any  # (nodes,)
    order: Any  # (nodes,)
    along: Any  # (nodes,)
    centred: Any  # (nodes, size): of a group its members' signatures less their mean, zeros beyond
    way: Any  # (size,)
    turned: Any  # (size,)
    means: Any  # (most, size)
    sizes: Any  # (most,)
    spread: Any  # (most,)
    shared: Any  # (most, most)
    names: Any  # (most,)
    taken: Any  # (most,)


def room_for(nodes: int, size: int, most: int) -> Room:
    """Room for so many nodes."""
    whole = [np.zeros(nodes, np.int64) for _ in range(3)]
    vectors, numbers = [np.zeros(size) for _ in range(2)], [np.zeros(most) for _ in range(2)]
    return Room(
        whole[0], whole[1], whole[2], np.zeros(nodes), np.zeros((nodes, size)), vectors[0], vectors[1],
        np.zeros((most, size)), numbers[0], numbers[1], np.zeros((most, most)), np.zeros(most, np.int64),
        np.zeros(most),
    )  # fmt: skip


@rare
def gather(points: Any, labels: Any, group: Any, count: Any, room: Any) -> Any:
    """The members of a group, their signatures less the group's mean; the sum of squares of these, returned."""
    i, whole, size = 0, 0.0, points.shape[1]
    fill(room.way, 0.0)
    for k in range(labels.shape[0]):
        if labels[k] == group:
            room.members[i] = k
            add_scaled(room.way, 1.0 / count, points[k])
            i += 1
    for i in range(room.centred.shape[0]):
        for j in range(size):
            room.centred[i, j] = points[room.members[i], j] - room.way[j] if i < count else 0.0
        whole += dot(room.centred[i], room.centred[i])
    return whole


@rare
def principal(along: Any, centred: Any, way: Any, turned: Any) -> Any:
    """Projections on the principal direction, by the power method; the eigenvalue (of the sum of squares), returned."""
    size = centred.shape[1]
    for j in range(size):
        way[j] = uniform(1, GRAPH, j) - 0.5
    top = 0.0
    for _ in range(POWER):
        length = math.sqrt(dot(way, way))
        if length == 0.0:
            return 0.0
        for j in range(size):
            way[j] /= length
            turned[j] = 0.0
        matvec(along, centred, way)
        top = dot(along, along)
        add_matvec_transposed(turned, 1.0, centred, along)
        assign(way, turned)
    return top


@kernel
def stands_out(top: Any, whole: Any, count: Any, size: Any) -> Any:
    """How far the largest eigenvalue is beyond the edge of noise, in its fluctuations there."""
    free = count - 1.0
    root = math.sqrt(free) + math.sqrt(size)
    edge = root * root
    scale = math.sqrt(edge) * (1.0 / math.sqrt(free) + 1.0 / math.sqrt(size)) ** (1.0 / 3.0)
    left = free * size - edge
    if left <= 0.0 or whole <= top:
        return 0.0
    return (top * left / (whole - top) - edge) / scale


def put_in_order(order: Any, values: Any, count: Any) -> None:
    """Of the first so many where the least is, the next, and so on; of equals the first comes first."""
    order[:count] = np.argsort(values[:count], kind="stable")


@fast(put_in_order)
def put_in_order_loop(order: Any, values: Any, count: Any) -> None:
    for i in range(count):
        j = i
        while j > 0 and values[order[j - 1]] > values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


@rare
def heaps(along: Any, order: Any, count: Any, least: Any) -> Any:
    """The best cut of numbers in two heaps: where (in their order), and how far apart they are in their spread."""
    put_in_order(order, along, count)
    total, squares = 0.0, 0.0
    for i in range(count):
        total += along[i]
        squares += along[i] * along[i]
    best, cut, apart, below = -1.0, 0, 0.0, 0.0
    for i in range(1, count):
        below += along[order[i - 1]]
        if i < least or count - i < least:
            continue
        gap = (total - below) / (count - i) - below / i
        between = i * (count - i) / count * gap * gap
        if between > best:
            best, cut, apart = between, i, gap
    within = squares - total * total / count - best
    return cut, apart / math.sqrt(max(within, 1e-300) / count)


@rare
def split(points: Any, labels: Any, group: Any, fresh: Any, room: Any) -> Any:
    """How clearly a group is two, 0 where it is not; its upper part becomes group `fresh`, unless that is negative."""
    count = 0
    for k in range(labels.shape[0]):
        count += 1 if labels[k] == group else 0
    least = max(LEAST, labels.shape[0] // SHARE)
    if count < 2 * least:
        return 0.0
    whole = gather(points, labels, group, count, room)
    top = principal(room.along, room.centred, room.way, room.turned)
    clear = stands_out(top, whole, count, points.shape[1])
    cut, apart = heaps(room.along, room.order, count, least)
    if clear < BEYOND or cut == 0 or apart < HEAPS:
        return 0.0
    if fresh >= 0:
        for i in range(cut, count):
            labels[room.members[room.order[i]]] = fresh
    return clear


@rare
def centres(points: Any, labels: Any, count: Any, room: Any) -> None:
    """The mean signature of each group, and its size."""
    for q in range(count):
        room.sizes[q] = 0.0
        fill(room.means[q], 0.0)
    for k in range(labels.shape[0]):
        if labels[k] >= 0:
            room.sizes[labels[k]] += 1.0
            add_scaled(room.means[labels[k]], 1.0, points[k])
    for q in range(count):
        for j in range(points.shape[1]):
            room.means[q, j] /= max(room.sizes[q], 1.0)


@rare
def spreads(points: Any, labels: Any, count: Any, room: Any) -> None:
    """The variance of each group's signatures per direction; small groups lean on that of all."""
    size, whole, free = points.shape[1], 0.0, 0.0
    for q in range(count):
        room.spread[q] = 0.0
        free += max(room.sizes[q] - 1.0, 0.0)
    for k in range(labels.shape[0]):
        if labels[k] >= 0:
            away = square_distance(points[k], room.means[labels[k]])
            room.spread[labels[k]] += away
            whole += away
    usual = max(whole / (max(free, 1.0) * size), 1e-300)
    for q in range(count):
        room.spread[q] = (room.spread[q] / size + LEANING * usual) / (max(room.sizes[q] - 1.0, 0.0) + LEANING)


@kernel
def square_distance(a: Any, b: Any) -> Any:
    """||a - b||^2."""
    total = 0.0
    for j in range(a.shape[0]):
        total += (a[j] - b[j]) * (a[j] - b[j])
    return total


@rare
def refine(points: Any, labels: Any, count: Any, room: Any) -> None:
    """Everyone to the group it is most likely of, a few times; a group never loses its last node.

    Groups are normal clouds of different spread: far from the common model, signatures scatter more.
    """
    size = points.shape[1]
    for _ in range(REFINED):
        centres(points, labels, count, room)
        spreads(points, labels, count, room)
        moved = 0
        for k in range(labels.shape[0]):
            if labels[k] >= 0 and room.sizes[labels[k]] > 1.0:
                likely, least = labels[k], np.inf
                for q in range(count):
                    away = square_distance(points[k], room.means[q])
                    doubt = away / room.spread[q] + size * math.log(room.spread[q])
                    if doubt < least:
                        likely, least = q, doubt
                if likely != labels[k]:
                    room.sizes[labels[k]] -= 1.0
                    room.sizes[likely] += 1.0
                    labels[k] = likely
                    moved += 1
        if moved == 0:
            return


@rare
def group(points: Any, labels: Any, most: Any, room: Any) -> Any:
    """Group those whose label is not negative; how many groups there are, returned, and their numbers in `labels`.

    The clearest group is split first, and everyone is put right after each split.
    """
    for k in range(labels.shape[0]):
        labels[k] = 0 if labels[k] >= 0 else -1
    count = 1
    while count < most:
        clearest, chosen = 0.0, -1
        for q in range(count):
            clear = split(points, labels, q, -1, room)
            if clear > clearest:
                clearest, chosen = clear, q
        if chosen < 0:
            break
        split(points, labels, chosen, count, room)
        count += 1
        refine(points, labels, count, room)
    return count


@rare
def rename(labels: Any, before: Any, count: Any, most: Any, room: Any) -> None:
    """Give groups the numbers they had before, those that share most first; new groups get the first free numbers."""
    shared, names, taken = room.shared, room.names, room.taken
    for q in range(most):
        names[q] = -1
        taken[q] = 0.0
        fill(shared[q], 0.0)
    for k in range(labels.shape[0]):
        if labels[k] >= 0:
            shared[labels[k], before[k]] += 1.0
    for _ in range(count):
        best, new, old = -1.0, 0, 0
        for q in range(count):
            for r in range(most):
                if names[q] < 0 and taken[r] == 0.0 and shared[q, r] > best:
                    best, new, old = shared[q, r], q, r
        names[new] = old
        taken[old] = 1.0
    for k in range(labels.shape[0]):
        labels[k] = names[labels[k]] if labels[k] >= 0 else before[k]


@rare
def regroup(known: Any, stamps: Any, everyone: Any, stamp: Any, most: Any, room: Any) -> Any:
    """Group all signatures of this look; `everyone` holds the old labels, then the new. Whether any changed."""
    labels = room.labels
    for k in range(labels.shape[0]):
        labels[k] = 0 if stamps[k] == stamp else -1
    count = group(known, labels, most, room)
    rename(labels, everyone, count, most, room)
    changed = False
    for k in range(labels.shape[0]):
        changed = changed or labels[k] != everyone[k]
        everyone[k] = labels[k]
    return changed
