"""Clusters of clients with related tasks: which sort is this picture of? (PGFL, section V-B and V-C.)

A task is a tuple of sorts, a sort a tuple of labels: ((1, 2, 3), (6, 7, 8)) tells two triplets of digits
apart. Clients of one cluster have the same task, those of another a different one that resembles it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.errors import BadInput
from archipel.problems.datasets.images import ORGANS, Loaded, Pooled
from archipel.problems.splits.shards import Shards, gather, join

Task = tuple[tuple[int, ...], ...]

DRAWN = 401  # the tag of the draws that give pictures to clients


def organs(*pairs: tuple[str, str]) -> tuple[Task, ...]:
    """Tasks that tell two organs apart."""
    return tuple(tuple((ORGANS.index(organ),) for organ in pair) for pair in pairs)


DIGIT_PAIRS: tuple[Task, ...] = (((1,), (8,)), ((1,), (9,)), ((7,), (8,)))  # figure 8
DIGIT_TRIPLETS: tuple[Task, ...] = (  # figures 9 and 10
    ((1, 2, 3), (6, 7, 8)),
    ((1, 2, 3), (7, 8, 9)),
    ((1, 2, 3), (6, 8, 9)),
)
ORGANS_ALIKE = organs(  # figure 11
    ("lung-right", "lung-left"), ("liver", "lung-left"), ("kidney-right", "lung-left")
)
ORGANS_APART = organs(  # figure 12
    ("spleen", "lung-left"), ("kidney-left", "bladder"), ("kidney-right", "lung-right")
)


@dataclass(frozen=True)
class Clustered:
    """Clients' pictures as rows of numbers, the sort of each, and a test set for each cluster."""

    train: Shards  # y: the number of the sort within the client's task
    test: Shards  # one shard for each cluster
    cluster: Any  # of each client


def clustered(
    data: Loaded, tasks: Sequence[Task], cluster: Any, samples: tuple[int, int], seed: int, shrink: int = 1
) -> Clustered:
    """Give each client from samples[0] to samples[1] pictures of its task; none goes to two clients.

    A client's pictures are spread over the sorts, and a sort's over its labels, as evenly as their number
    allows. The article's "between 2 and 4 data samples composed of two MNIST images" and "between 6 and 12
    ... of two triplets" are read so: once or twice each digit of the task.
    """
    cluster = np.asarray(cluster)
    labels = len(data.train.names)
    _check(tasks, cluster, samples, labels)
    draw = np.random.default_rng([seed, DRAWN])
    stacks = [list(draw.permutation(np.flatnonzero(data.train.y == label))) for label in range(labels)]
    members = []
    for q in cluster:
        wanted = _hand(tasks[q], int(draw.integers(samples[0], samples[1] + 1)), draw)
        for label in set(wanted):
            if len(stacks[label]) < wanted.count(label):
                right = f"fewer clients or samples: there are no more pictures of {data.train.names[label]}"
                raise BadInput("problem.samples", samples, right)
        members.append(np.array([stacks[label].pop() for label in wanted], np.int64))
    mine = np.concatenate(members)
    pool = Pooled(data.train.x[mine], data.train.y[mine], data.train.names, data.train.top)
    y = np.concatenate([sort_of(data.train.y[m], tasks[q]) for m, q in zip(members, cluster)])
    places = np.split(np.arange(len(mine)), np.cumsum([len(m) for m in members])[:-1])
    return Clustered(gather(pool.flat(shrink=shrink), y, places), test_shards(data.test, tasks, shrink), cluster)


def test_shards(pool: Pooled, tasks: Sequence[Task], shrink: int = 1) -> Shards:
    """For each task, all pictures of its labels."""
    parts = []
    for task in tasks:
        rows = np.flatnonzero(np.isin(pool.y, [label for sort in task for label in sort]))
        mine = Pooled(pool.x[rows], pool.y[rows], pool.names, pool.top)
        parts.append((mine.flat(shrink=shrink), sort_of(mine.y, task)))
    return join(parts, [f"cluster-{q}" for q in range(len(tasks))])


def sort_of(labels: Any, task: Task) -> Any:
    """The number of the sort that each label belongs to; a label outside the task is refused.

    >>> sort_of([1, 8, 2], ((1, 2, 3), (6, 7, 8)))
    array([0, 1, 0])
    """
    labels = np.asarray(labels)
    sorts = np.full(labels.shape, -1)
    for number, sort in enumerate(task):
        sorts[np.isin(labels, sort)] = number
    if np.any(sorts < 0):
        raise BadInput("label", labels[sorts < 0][0], f"a label of the task {task}")
    return sorts


def _hand(task: Task, count: int, draw: np.random.Generator) -> list[int]:
    """The labels of a client's pictures: sort after sort in turn, and label after label within a sort."""
    turns = [draw.permutation(sort) for sort in task]
    order = draw.permutation(len(task))
    picks = [(order[i % len(task)], i // len(task)) for i in range(count)]
    return [int(turns[s][round % len(turns[s])]) for s, round in picks]


def _check(tasks: Sequence[Task], cluster: Any, samples: tuple[int, int], labels: int) -> None:
    """Every client in a cluster, every cluster with clients, every label in the data and in one sort only."""
    for task in tasks:
        flat = [label for sort in task for label in sort]
        if len(task) < 2 or not all(task) or len(set(flat)) != len(flat):
            raise BadInput("problem.tasks", task, "at least two sorts, none empty, no label in two of them")
        if min(flat) < 0 or max(flat) >= labels:
            raise BadInput("problem.tasks", task, f"labels from 0 to {labels - 1}")
    if cluster.ndim != 1 or len(cluster) == 0 or not np.isin(cluster, np.arange(len(tasks))).all():
        raise BadInput("problem.clusters", cluster, f"a cluster from 0 to {len(tasks) - 1} for each client")
    if len(np.unique(cluster)) != len(tasks):
        empty = sorted(set(range(len(tasks))) - set(cluster.tolist()))[0]
        raise BadInput("problem.clusters", cluster, f"at least one client in each cluster, and {empty} has none")
    if not 1 <= samples[0] <= samples[1]:
        raise BadInput("problem.samples", samples, "a least and a largest number of samples, from 1 up")
