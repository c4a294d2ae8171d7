"""Data that is stored: all there from the start (`stored_task`), or shown sample by sample (`streamed_task`)."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from archipel.draws import key_of
from archipel.node import Moment, assign, cosines, fetch, kernel
from archipel.problems.models.fourier import World, mapped
from archipel.problems.splits.shards import Shards
from archipel.problems.synthetic import REHEARSED, arrives, arriving
from archipel.problems.task import Ahead, Oracle, Task

Score = Callable[[dict[str, Any], int], dict[str, Any]]


class Samples(NamedTuple):
    """All clients' samples, one client's after the other's."""

    x: Any
    y: Any
    starts: Any


class Shard(NamedTuple):
    """One client's samples."""

    x: Any
    y: Any


class Empty(NamedTuple):
    nothing: Any


@kernel
def shard_of(source: Any, sample: Any, moment: Any) -> Any:
    """Client k's own samples, as views."""
    begin, end = source.starts[moment.node], source.starts[moment.node + 1]
    return True, Shard(source.x[begin:end], source.y[begin:end])


def stored_task(shards: Shards, score: Score, dtype: Any = np.float64) -> Task:
    """A problem whose clients have all their data from the start."""
    x = np.ascontiguousarray(shards.x, dtype)
    source = Samples(x, np.ascontiguousarray(shards.y, dtype), shards.starts)

    def inputs(samples: int) -> Iterator[Any]:
        for k in np.flatnonzero(shards.sizes)[:REHEARSED]:
            yield x[shards.starts[k] : shards.starts[k + 1]][:samples]

    return Task(source, Empty(np.zeros(1)), shard_of, x.shape[1], shards.clients, score, inputs, False, shards.names)


class StoredStream(NamedTuple):
    """Stored samples that arrive one by one, in their order, over a horizon."""

    x: Any
    y: Any
    starts: Any
    layout: Any  # [0, 1]: a client's samples follow each other; [1, clients]: everyone's first, everyone's second, ...
    left: Any  # (clients, 1): samples still to come before the horizon
    horizon: Any
    directions: Any  # of the Fourier features; none: the inputs are the features
    phases: Any
    scale: Any


class Seen(NamedTuple):
    features: Any
    target: Any


@kernel
def total_of(source: Any, k: Any) -> Any:
    """How many samples a client sees within the horizon: with more samples than rounds, the first ones."""
    return min(source.starts[k + 1] - source.starts[k], source.horizon[0])


arriving_as_stored = arriving(total_of)


@kernel
def draw(source: Any, few: Any, count: Any) -> Any:
    """Which of some clients have a new sample, and how many are left after it."""
    return arriving_as_stored(source, few, count, source.left, source.horizon[0])


@kernel
def newest(source: Any, k: Any, left: Any) -> Any:
    """Where the client's newest sample is."""
    first = k if source.layout[0] == 1 else source.starts[k]
    i = first + (total_of(source, k) - 1 - int(left)) * source.layout[1]
    if source.layout[0] == 1:
        fetch(source.x, i + 4)  # what is looked at soon
    return i


@kernel
def look(source: Any, sample: Any, moment: Any, left: Any, _second: Any) -> Any:
    """The client's newest sample."""
    i = newest(source, moment.node, left)
    sample.target[0] = source.y[i]
    if source.phases.shape[0] > 0:
        cosines(sample.features, source.phases, source.directions, source.x[i], source.scale[0])
    else:
        assign(sample.features, source.x[i])
    return True, sample


@kernel
def view(source: Any, sample: Any, moment: Any, left: Any, _second: Any) -> Any:
    """The same where inputs are the features, as it is stored."""
    i = newest(source, moment.node, left)
    return True, Seen(source.x[i], source.y[i : i + 1])


@kernel
def play(source: Any, sample: Any, moment: Any) -> Any:
    """The client's next sample, if one arrives this round."""
    if not arrives(source.left, total_of(source, moment.node), source.horizon[0], moment):
        return False, sample
    return look(source, sample, moment, source.left[moment.node, 0], 0.0)


def by_client(source: Any) -> Any:
    """The same with each client's samples in a row, from `starts` on."""
    if not isinstance(source, StoredStream) or source.layout[0] == 0:
        return source
    order = np.arange(len(source.y)).reshape(-1, source.layout[1]).T.ravel()
    return source._replace(x=source.x[order], y=source.y[order], layout=np.array([0, 1]))


def streamed_task(shards: Shards, score: Score, world: World | None, horizon: int, dtype: Any) -> Task:
    """A problem whose clients see their stored samples one by one, in the space of the features."""
    x = seen = np.ascontiguousarray(shards.x, dtype)
    size = x.shape[1] if world is None else len(world.phases)
    y, layout = np.ascontiguousarray(shards.y, dtype), np.array([0, 1])
    space = World(np.zeros((0, 0), dtype), np.zeros(0, dtype), dtype(1)) if world is None else world
    if len(y) and (np.diff(shards.starts) == len(y) // shards.clients).all():
        # in the order in which they are looked at: memory is read ahead, and rounds take half the time
        order = np.arange(len(y)).reshape(shards.clients, -1).T.ravel()
        seen, y, layout = x[order], y[order], np.array([1, shards.clients])
    source = StoredStream(
        seen,
        y,
        shards.starts,
        layout,
        np.zeros((shards.clients, 1), np.int64),
        np.array([horizon], np.int64),
        space.directions,
        space.phases,
        np.array([space.scale], dtype),
    )

    def inputs(samples: int) -> Iterator[Any]:
        for k in np.flatnonzero(shards.sizes)[:REHEARSED]:
            mine = x[shards.starts[k] : shards.starts[k + 1]][:samples]
            yield mine if world is None else mapped(world, mine)

    sample = Seen(np.zeros(size, dtype), np.zeros(1, dtype))
    ahead = Ahead(draw, look, view if world is None else None)
    return Task(source, sample, play, size, shards.clients, score, inputs, True, shards.names, ahead=ahead)


def played_again(task: Task, seed: int) -> Oracle:
    """The stream once more, for meters of regret: the samples that arrive, in their order, as clients see them."""
    source = task.source._replace(left=np.zeros_like(task.source.left))
    sample = Seen(np.zeros_like(task.sample.features), np.zeros_like(task.sample.target))

    reached = [0]  # rounds that `source` has been through

    def past(first: int, last: int) -> tuple[Any, Any]:
        """Features and targets of what arrived in rounds first to last - 1."""
        features, targets = [], []
        for n in range(reached[0] if reached[0] <= first else 0, last):
            for k in range(task.clients):
                there, seen = play(source, sample, Moment(k, n, key_of(seed, k, n), -1, 1, True, 1.0))
                if there and n >= first:
                    features.append(np.array(seen.features, float))
                    targets.append(float(seen.target[0]))
        reached[0] = last
        return np.array(features).reshape(-1, task.size), np.array(targets)

    return Oracle(np.zeros((0, task.size)), past)
