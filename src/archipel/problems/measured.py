"""Problems made of measured data: a user's own files, CalCOFI, Beijing air.

An algorithm that learns online sees the samples one by one, in their order (`data_kind = "stream"`); one that learns
from what is stored has them all from the start (`data_kind = "stored"`). With `features` > 0 the inputs pass through
random Fourier features.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.describe import key
from archipel.problems.datasets import beijing, calcofi
from archipel.problems.frame import LABEL, NUMBER, Frame
from archipel.problems.look import holdings
from archipel.problems.losses.supervised import LOGISTIC, LOSSES
from archipel.problems.models.fourier import World, fourier, mapped
from archipel.problems.scoring.metrics import accuracy, squared_error
from archipel.problems.splits.shards import Scaling, Shards, TrainTest
from archipel.problems.stored import Score, stored_task, streamed_task
from archipel.problems.task import MOST_CLIENTS, MOST_COSINES, Problem, Task

UNCHANGED = Scaling(0.0, 1.0)
SCALES = "the scales of inputs and target are known to all, not taken from these data"


def measured_task(
    data: TrainTest, features: int, width: float, loss: str, seed: int, rounds: int, dtype: Any, data_kind: str
) -> Task:
    """A task on training and test data, as the algorithm wants it shown."""
    world = fourier(data.train.x.shape[1], features, width, seed, dtype) if features else None
    test_x = np.asarray(data.test.x, dtype)
    score = score_of(LOSSES[loss], test_x if world is None else mapped(world, test_x), np.asarray(data.test.y, dtype))
    told: dict[str, Any] = {"loss": LOSSES[loss], "frame": frame_of(data, world, loss, dtype)}
    told["holdings"] = holdings(data.train)
    if data.inputs is not UNCHANGED or data.target is not UNCHANGED:
        told["assumed_public"] = (SCALES,)
    if data_kind == "stream":
        return streamed_task(data.train, score, world, rounds, dtype)._replace(**told)
    train = data.train
    if world is not None:
        train = Shards(mapped(world, np.asarray(train.x, dtype)), train.y, train.starts, train.names)
    return stored_task(train, score, dtype)._replace(**told)


def frame_of(data: TrainTest, world: World | None, loss: str, dtype: Any) -> Frame:
    """What stands around a model of these data: their columns and units."""
    train, inputs, target = data.train, data.inputs, data.target
    predicts, precision = LABEL if loss == "logistic" else NUMBER, np.dtype(dtype).name
    return Frame(
        train.x.shape[1:], train.columns, np.asarray(inputs.mean, float), np.asarray(inputs.deviation, float),
        world=world, predicts=predicts, target_center=float(target.mean), target_spread=float(target.deviation),
        precision=precision,
    )  # fmt: skip


def framed(task: Task, **changes: Any) -> Task:
    """The task with more that is known of what it predicts."""
    assert task.frame is not None
    return task._replace(frame=task.frame._replace(**changes))


def score_of(loss: int, x: Any, y: Any) -> Score:
    """How a model is scored on test data: squared error, or accuracy and logistic loss where targets are classes."""

    def score(models: dict[str, Any], round: int) -> dict[str, Any]:
        return accuracy(models, x, y) if loss == LOGISTIC else squared_error(models, x, y)

    return score


@dataclass(frozen=True)
class Calcofi(Problem):
    """Salinity from other measurements of sea water: 80,000 samples, 256 clients, uneven; whole casts stay together.

    `columns` = "measured" keeps apart what was computed from salinity itself; "all" is what the article used.
    """

    clients: int = key(256, "how many clients the samples are dealt to", at_least=1, at_most=MOST_CLIENTS, symbol="K")
    rows: int = key(80_000, "how many samples there are to learn from, in all", at_least=1)
    test: int = key(8_000, "how many samples, at least, models are tested on; whole casts", at_least=1)
    columns: str = key(
        "all", "the article's inputs, or without what was computed from salinity", choices=("all", "measured")
    )
    features: int = key(
        200, "how many random Fourier features inputs pass through; 0: none", at_least=0, at_most=MOST_COSINES
    )
    width: float = key(3.0, "the width of the kernel that the features stand for", above=0)

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """The sea, split anew for each seed."""
        columns = calcofi.ALL if self.columns == "all" else calcofi.MEASURED
        data = calcofi.federate(calcofi.load(), seed, self.clients, self.rows, self.test, columns)
        task = measured_task(data, self.features, self.width, "squared", seed, rounds, dtype, data_kind)
        return framed(task, target=calcofi.TARGET)


@dataclass(frozen=True)
class BeijingAir(Problem):
    """PM2.5 at twelve stations from the weather and other pollutants: a station is a client."""

    target: str = key("PM2.5", "the column that is predicted")
    columns: tuple[str, ...] = key((), "the columns to predict from; none named: all that was measured")
    ahead: int = key(0, "how long before the target the inputs are measured", at_least=0, unit="hours")
    test: float = key(0.2, "the share of a station's hours, its last ones, held out", above=0, below=1, noun="a share")
    features: int = key(
        0, "how many random Fourier features inputs pass through; 0: none", at_least=0, at_most=MOST_COSINES
    )
    width: float = key(3.0, "the width of the kernel that the features stand for", above=0)

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """The stations' hours in order, the last ones held out."""
        data = beijing.federate(beijing.load(), self.target, self.columns, self.ahead, self.test)
        task = measured_task(data, self.features, self.width, "squared", seed, rounds, dtype, data_kind)
        return framed(task, target=self.target)
