"""Problems made of measured data: a user's own files, CalCOFI, Beijing air.

An algorithm that learns online sees the samples one by one, in their order (`data_kind = "stream"`); one that learns
from what is stored has them all from the start (`data_kind = "stored"`). With `features` > 0 the inputs pass through
random Fourier features.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.describe import REQUIRED, Checked, key
from archipel.errors import BadInput
from archipel.problems import files
from archipel.problems.datasets import beijing, calcofi
from archipel.problems.losses.supervised import LOGISTIC, LOSSES
from archipel.problems.models.fourier import fourier, mapped
from archipel.problems.scoring.deviation import Judge
from archipel.problems.scoring.metrics import accuracy, squared_error
from archipel.problems.splits.shards import Scaling, Shards, TrainTest, standard
from archipel.problems.stored import Score, stored_task, streamed_task
from archipel.problems.task import MOST_CLIENTS, MOST_FEATURES, Task

UNCHANGED = Scaling(0.0, 1.0)
SCALES = "the scales of inputs and target are known to all, not taken from these data"


def measured_task(
    data: TrainTest, features: int, width: float, loss: str, seed: int, rounds: int, dtype: Any, data_kind: str
) -> Task:
    """A task on training and test data, as the algorithm wants it shown."""
    world = fourier(data.train.x.shape[1], features, width, seed, dtype) if features else None
    test_x = np.asarray(data.test.x, dtype)
    score = score_of(LOSSES[loss], test_x if world is None else mapped(world, test_x), np.asarray(data.test.y, dtype))
    told: dict[str, Any] = {"loss": LOSSES[loss]}
    if data.inputs is not UNCHANGED or data.target is not UNCHANGED:
        told["assumed_public"] = (SCALES,)
    if data_kind == "stream":
        return streamed_task(data.train, score, world, rounds, dtype)._replace(**told)
    train = data.train
    if world is not None:
        train = Shards(mapped(world, np.asarray(train.x, dtype)), train.y, train.starts, train.names)
    return stored_task(train, score, dtype)._replace(**told)


def score_of(loss: int, x: Any, y: Any) -> Score:
    """How a model is scored on test data: squared error, or accuracy and logistic loss where targets are classes."""

    def score(models: dict[str, Any], round: int) -> dict[str, Any]:
        return accuracy(models, x, y) if loss == LOGISTIC else squared_error(models, x, y)

    return score


@dataclass(frozen=True)
class Files(Checked):
    """A user's own data: one file a client (npz with x and y, csv or parquet with a named target).

    `data` is a folder or a pattern such as "sensors/*.csv". `test` is the share of each client's samples that is
    held out (its last ones, when `hold` is "last"), or a pattern of other files. Models are `judged` by all test
    samples "together", or, where clients have models of their own, each by its "own". `l1` ||w||_1 + `l2` ||w||^2 is
    added to the sum of the clients' mean losses.
    """

    section = "problem"

    data: str = key(REQUIRED, 'the clients\' files: a folder, or a pattern such as "sensors/*.csv"')
    target: str = key("y", "the column that is predicted")
    columns: tuple[str, ...] = key((), "the columns to predict from; none named: all but the target")
    test: float | str = key(
        0.2, "what models are tested on: a share of each client's samples, or other files", above=0, below=1,
        noun="a share",
    )  # fmt: skip
    hold: str = key("random", "which samples of a client are held out for the test", choices=("random", "last"))
    loss: str = key("squared", "what is minimised", choices=tuple(LOSSES))
    features: int = key(
        0, "how many random Fourier features inputs pass through; 0: none", at_least=0, at_most=MOST_FEATURES
    )
    width: float = key(3.0, "the width of the kernel that the features stand for", above=0)
    standardise: bool = key(True, "whether inputs (and a target that is a number) have mean 0 and deviation 1")
    judged: str = key(
        "together", "tested on everyone's samples, or each client's own model on its own", choices=("together", "own")
    )
    l1: float = key(0.0, "the weight of ||w||_1 beside the sum of the clients' mean losses", at_least=0)
    l2: float = key(0.0, "the weight of ||w||^2 beside the sum of the clients' mean losses", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        twice = [name for place, name in enumerate(self.columns) if name in self.columns[:place]]
        if twice:
            raise BadInput("problem.columns", twice[0], "each column once")

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """The files' samples, split into training and test."""
        for name, weight in (("l1", self.l1), ("l2", self.l2)):
            if weight > 0 and data_kind == "stream":
                raise BadInput(f"problem.{name}", weight, "0 for an algorithm that learns from a stream")
        train, test = files.read_split(self.data, self.test, self.target, self.columns, seed, self.hold)
        if self.loss == "logistic":
            check_classes(train.y)
            check_classes(test.y)
        data = self.in_units(train, test, dtype)
        task = measured_task(data, self.features, self.width, self.loss, seed, rounds, dtype, data_kind)
        task = task._replace(regulariser=(float(self.l1), float(self.l2)))
        if self.judged == "together":
            return task
        return task._replace(score=own_score(data, self.features, self.width, self.loss, seed, dtype))

    def in_units(self, train: Shards, test: Shards, dtype: Any) -> TrainTest:
        """Both sets in the units of the run, which its precision can hold."""
        for given in (train, test):
            check_size(given, given, np.float64)
        inputs = standard(train.x) if self.standardise else UNCHANGED
        target = standard(train.y) if self.standardise and self.loss != "logistic" else UNCHANGED
        data = TrainTest(train.scaled(inputs, target), test.scaled(inputs, target), inputs, target)
        for given, scaled in ((train, data.train), (test, data.test)):
            check_size(given, scaled, dtype, " in standard units" if self.standardise else "")
        return data


def check_size(given: Shards, scaled: Shards, dtype: Any, units: str = "") -> None:
    """Refuse numbers whose squares, summed, a precision cannot hold: errors would be infinite, or no numbers."""
    most = float(np.finfo(dtype).max) ** 0.4
    for name, before, after in (("inputs", given.x, scaled.x), ("target", given.y, scaled.y)):
        wrong = np.argwhere(np.abs(after) > most)
        if len(wrong):
            row = int(wrong[0][0])
            column = given.columns[wrong[0][1]] if before.ndim == 2 and given.columns else name
            where = f"{given.names[given.owner[row]]}, {column}: {before[tuple(wrong[0])]:g}"
            right = f"numbers of at most {most:.0e}{units}, whose squares {np.dtype(dtype)} can add up"
            raise BadInput("problem.data", where, right)


def own_score(data: TrainTest, features: int, width: float, loss: str, seed: int, dtype: Any) -> Score:
    """Every client's model by the client's own test samples."""
    test = data.test
    if test.names != data.train.names or np.any(test.sizes == 0):
        raise BadInput("problem.judged", "own", "test samples of every client that learns, and of nobody else")
    if features:
        x = mapped(fourier(test.x.shape[1], features, width, seed, dtype), np.asarray(test.x, dtype))
        test = Shards(x, test.y, test.starts, test.names)
    return Judge("logistic" if loss == "logistic" else "squared", np.arange(test.clients), test).score


def check_classes(y: Any) -> None:
    """Logistic regression needs two classes."""
    if not np.isin(y, (-1.0, 1.0)).all():
        wrong = y[~np.isin(y, (-1.0, 1.0))][0]
        raise BadInput("problem.target", wrong, "labels -1 and 1 for the logistic loss")


@dataclass(frozen=True)
class Calcofi(Checked):
    """Salinity from other measurements of sea water: 80,000 samples, 256 clients, uneven; whole casts stay together.

    `columns` = "measured" keeps apart what was computed from salinity itself; "all" is what the article used.
    """

    section = "problem"

    clients: int = key(256, "how many clients the samples are dealt to", at_least=1, at_most=MOST_CLIENTS, symbol="K")
    rows: int = key(80_000, "how many samples there are to learn from, in all", at_least=1)
    test: int = key(8_000, "how many samples, at least, models are tested on; whole casts", at_least=1)
    columns: str = key(
        "all", "the article's inputs, or without what was computed from salinity", choices=("all", "measured")
    )
    features: int = key(
        200, "how many random Fourier features inputs pass through; 0: none", at_least=0, at_most=MOST_FEATURES
    )
    width: float = key(3.0, "the width of the kernel that the features stand for", above=0)

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """The sea, split anew for each seed."""
        columns = calcofi.ALL if self.columns == "all" else calcofi.MEASURED
        data = calcofi.federate(calcofi.load(), seed, self.clients, self.rows, self.test, columns)
        return measured_task(data, self.features, self.width, "squared", seed, rounds, dtype, data_kind)


@dataclass(frozen=True)
class BeijingAir(Checked):
    """PM2.5 at twelve stations from the weather and other pollutants: a station is a client."""

    section = "problem"

    target: str = key("PM2.5", "the column that is predicted")
    columns: tuple[str, ...] = key((), "the columns to predict from; none named: all that was measured")
    ahead: int = key(0, "how long before the target the inputs are measured", at_least=0, unit="hours")
    test: float = key(0.2, "the share of a station's hours, its last ones, held out", above=0, below=1, noun="a share")
    features: int = key(
        0, "how many random Fourier features inputs pass through; 0: none", at_least=0, at_most=MOST_FEATURES
    )
    width: float = key(3.0, "the width of the kernel that the features stand for", above=0)

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """The stations' hours in order, the last ones held out."""
        data = beijing.federate(beijing.load(), self.target, self.columns, self.ahead, self.test)
        return measured_task(data, self.features, self.width, "squared", seed, rounds, dtype, data_kind)
