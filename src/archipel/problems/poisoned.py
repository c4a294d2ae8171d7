"""Data of clients that lie: their targets are turned around, whoever they lie to."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import kernel
from archipel.problems.losses.online import DISTANCE, LINEAR
from archipel.problems.stored import Samples
from archipel.problems.task import Ahead, Task


class Poisoned(NamedTuple):
    """A stream, and who sees it turned around."""

    source: Any
    liar: Any


@cache
def observing(observe: Any) -> Any:
    @kernel
    def see(source: Any, sample: Any, moment: Any) -> Any:
        """The sample of the stream; a liar's target has the other sign."""
        fresh, data = observe(source.source, sample, moment)
        if fresh and source.liar[moment.node] > 0:
            data.target[0] = -data.target[0]
        return fresh, data

    return see


@cache
def looking(look: Any) -> Any:
    @kernel
    def see(source: Any, sample: Any, moment: Any, first: Any, second: Any) -> Any:
        """The same for a stream that is looked at ahead."""
        fresh, data = look(source.source, sample, moment, first, second)
        if fresh and source.liar[moment.node] > 0:
            data.target[0] = -data.target[0]
        return fresh, data

    return see


@cache
def drawing(draw: Any) -> Any:
    @kernel
    def some(source: Any, few: Any, count: Any) -> Any:
        return draw(source.source, few, count)

    return some


def turned_around(task: Task, liar: Any) -> Task:
    """The task in which liars learn the opposite: -y, and of classes 0 .. C - 1 the last for the first."""
    if task.loss in (LINEAR, DISTANCE):
        right = "another kind: of a linear loss or a distance, samples have no target to turn around"
        raise BadInput("environment.attack.kind", "labels", right)
    if task.streams:
        ahead = task.ahead and Ahead(drawing(task.ahead.draw), looking(task.ahead.look))
        return task._replace(source=Poisoned(task.source, liar), observe=observing(task.observe), ahead=ahead)
    if not isinstance(task.source, Samples):
        raise BadInput("environment.attack.kind", "labels", "another kind: these data have no targets to turn around")
    y = task.source.y
    owner = np.repeat(np.arange(task.clients), np.diff(task.source.starts))
    classes = bool((y == np.round(y)).all()) and y.min() == 0
    other = y.max() - y if classes else -y
    return task._replace(source=task.source._replace(y=np.where(liar[owner] > 0, other, y)))
