"""Clients in clusters, with tasks that are related but not the same: PGFL (section V) and NPFL-RL (thesis, 6.3).

The clusters are those of the topology, so that data and graph agree. Where the topology has a single cluster, or is
to discover them, the problem deals its clients to the tasks itself, as the topology would have done.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import key
from archipel.errors import BadInput, did_you_mean
from archipel.node import kernel
from archipel.problems.datasets import beijing, images
from archipel.problems.frame import LABEL, NUMBER, Frame
from archipel.problems.losses.supervised import LOGISTIC, LOSSES, SQUARED
from archipel.problems.measured import SCALES, frame_of
from archipel.problems.scoring.deviation import Scorer
from archipel.problems.splits import clusters
from archipel.problems.splits.shards import Shards, TrainTest, join, numbered
from archipel.problems.stored import Empty, Shard, stored_task, streamed_task
from archipel.problems.task import MOST_CLIENTS, MOST_FEATURES, Problem, Task
from archipel.topology.shapes import dealt

DRAWN, LATER = 402, 403  # the tags of the draws of this problem, and of those after a change


class Segments(NamedTuple):
    """Samples that change once: rows of client k, and from round `change` on those of client k + clients."""

    x: Any
    y: Any
    starts: Any  # (2 clients + 1,)
    change: Any  # (1,)


@kernel
def segment_of(source: Any, sample: Any, moment: Any) -> Any:
    """Client k's own samples of this segment, as views."""
    clients = (source.starts.shape[0] - 1) // 2
    k = moment.node + (clients if moment.round >= source.change[0] else 0)
    begin, end = source.starts[k], source.starts[k + 1]
    return True, Shard(source.x[begin:end], source.y[begin:end])


def segments(task: Task) -> tuple[list[Shards], int]:
    """The clients' samples before and after a change, and the round of the change; one segment without."""
    if task.streams:
        raise BadInput("problem.kind", "a stream", "data that is stored, for this algorithm")
    source, clients = task.source, task.clients
    names = task.names or numbered(clients)
    if not isinstance(source, Segments):
        return [Shards(source.x, source.y, source.starts, names)], np.iinfo(np.int64).max
    cut = int(source.starts[clients])
    before = Shards(source.x[:cut], source.y[:cut], source.starts[: clients + 1], names)
    after = Shards(source.x[cut:], source.y[cut:], source.starts[clients:] - cut, names)
    return [before, after], int(source.change[0])


def settled(count: int, clients: int, graph: Any, seed: int) -> Any:
    """The cluster of each client: the graph's, which must be as many as there are tasks, or else dealt."""
    if not 1 <= count <= clients:
        raise BadInput("problem.tasks", count, f"1 to {clients} tasks, so that no cluster is without clients")
    if graph is None or graph.clusters < 2:
        return dealt(clients, count, seed)
    if graph.clusters != count:
        raise BadInput("topology.clusters", graph.clusters, f"{count}, as many as the problem has tasks")
    return graph.cluster


def sought(graph: Any) -> bool:
    """Whether the topology leaves its clusters to be discovered."""
    return graph is not None and graph.clusters == 0


@dataclass(frozen=True)
class Related(Problem):
    """Linear models that are related: w_q = w_0 + gamma_q w_0 (PGFL, V-A; NPFL-RL, 6.3).

    `relation` = "turned" moves each w_q in a direction of its own instead, gamma_q v_q with v_q as long as w_0. Inputs
    and w_0 are standard normal.
    """

    clustered: ClassVar = True

    clients: int = key(150, "how many clients there are", at_least=1, at_most=MOST_CLIENTS, symbol="K")
    tasks: int = key(3, "how many related models, and so clusters of clients, there are", at_least=1, symbol="Q")
    size: int = key(60, "how many weights a model has", at_least=1, at_most=MOST_FEATURES, symbol="d")
    samples: tuple[int, ...] = key((2, 9), "the least and the largest number of samples", at_least=1, length=2)
    spread: float = key(0.15, "gammas are drawn from -spread to spread", at_least=0)
    gammas: tuple[float, ...] = key((), "how far each task is from the common one; none given: drawn", symbol="gamma_q")
    relation: str = key("scaled", "whether tasks scale the common model or turn it", choices=("scaled", "turned"))
    noise: float | tuple[float, ...] = key(
        0.1, "the variance of an observation's noise, or the least and the largest of the clients'", at_least=0,
        length=2,
    )  # fmt: skip
    loss: str = key("squared", "what is minimised", choices=("squared", "logistic"))
    test: int = key(200, "how many samples the models of a cluster are tested on", at_least=1)
    change: int = key(0, "the round from which some clients have other data; 0: never", at_least=0, noun="a round")
    moved: float = key(
        0.1, "the share of the clients whose data change cluster", at_least=0, at_most=1, noun="a share of the clients"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples[0] > self.samples[1]:
            raise BadInput("problem.samples", self.samples, "the least and the largest number of samples, from 1 up")
        if self.gammas and len(self.gammas) != self.tasks:
            raise BadInput("problem.gammas", self.gammas, f"{self.tasks} numbers, one a task")
        if self.variances[0] > self.variances[1]:
            raise BadInput("problem.noise", self.noise, "a variance, or the least and the largest one")

    @property
    def variances(self) -> tuple[float, ...]:
        """The least and the largest variance of the noise."""
        return self.noise if isinstance(self.noise, tuple) else (self.noise, self.noise)

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str, graph: Any = None) -> Task:
        """Everyone's samples, drawn for the cluster that the graph puts them in."""
        cluster = settled(self.tasks, self.clients, graph, seed)
        draw = np.random.default_rng([seed, DRAWN])
        truth = self.models(draw)
        variance = draw.uniform(self.variances[0], self.variances[1], self.clients)
        train = self.samples_of(truth[cluster], variance, draw)
        tested = np.full(self.tasks, float(np.mean(self.variances)))
        test = join([self.observed(w, self.test, v, draw) for w, v in zip(truth, tested)])
        scorer = Scorer(self.loss, cluster, test, truth, sought(graph))
        frame = Frame((self.size,), predicts=LABEL if self.loss == "logistic" else NUMBER)
        if data_kind == "stream":
            return streamed_task(train, scorer.score, None, rounds, dtype)._replace(frame=frame)
        if not self.change:
            return stored_task(train, scorer.score, dtype)._replace(loss=LOSSES[self.loss], frame=frame)
        return self.changing(train, truth, variance, scorer, seed, dtype)._replace(frame=frame)

    def models(self, draw: np.random.Generator) -> Any:
        """w_q of every task."""
        base = draw.standard_normal(self.size)
        gammas = np.array(self.gammas) if self.gammas else draw.uniform(-self.spread, self.spread, self.tasks)
        if self.relation == "scaled":
            return base + gammas[:, None] * base
        return base + gammas[:, None] * draw.standard_normal((self.tasks, self.size))

    def observed(self, model: Any, count: int, variance: float, draw: np.random.Generator) -> tuple[Any, Any]:
        """Samples of one client: y = x^T w + noise, or its sign."""
        x = draw.standard_normal((count, self.size))
        y = x @ model + np.sqrt(variance) * draw.standard_normal(count)
        return x, np.where(y > 0, 1.0, -1.0) if self.loss == "logistic" else y

    def samples_of(self, models: Any, variance: Any, draw: np.random.Generator) -> Shards:
        """Samples of every client, a different number each."""
        counts = draw.integers(self.samples[0], self.samples[1] + 1, len(models))
        return join([self.observed(w, int(n), float(v), draw) for w, n, v in zip(models, counts, variance)])

    def changing(self, train: Shards, truth: Any, variance: Any, scorer: Scorer, seed: int, dtype: Any) -> Task:
        """A task of two segments: some clients' samples are replaced by those of the next cluster."""
        draw = np.random.default_rng([seed, LATER])
        who = draw.choice(self.clients, round(self.moved * self.clients), replace=False)
        later = scorer.cluster.copy()
        later[who] = (later[who] + draw.integers(1, max(self.tasks, 2), len(who))) % self.tasks
        fresh = self.samples_of(truth[later], variance, draw)
        parts = [fresh.of(k) if later[k] != scorer.cluster[k] else train.of(k) for k in range(self.clients)]
        both = join([*train, *parts], numbered(2 * self.clients))
        source = Segments(
            np.ascontiguousarray(both.x, dtype),
            np.ascontiguousarray(both.y, dtype),
            both.starts,
            np.array([self.change]),
        )
        after = Scorer(self.loss, later, scorer.test, truth, scorer.discovering)

        def score(models: dict[str, Any], round: int) -> dict[str, Any]:
            return (scorer if round <= self.change else after).score(models, round)

        plain = stored_task(train, score, dtype)
        return plain._replace(source=source, sample=Empty(np.zeros(1)), observe=segment_of, loss=LOSSES[self.loss])


TASKS: dict[str, tuple[str, tuple[clusters.Task, ...], tuple[int, int]]] = {
    "digit-pairs": ("mnist", clusters.DIGIT_PAIRS, (2, 4)),
    "digit-triplets": ("mnist", clusters.DIGIT_TRIPLETS, (6, 12)),
    "organs-alike": ("organamnist", clusters.ORGANS_ALIKE, (2, 2)),
    "organs-apart": ("organamnist", clusters.ORGANS_APART, (2, 2)),
}


@dataclass(frozen=True)
class Pictures(Problem):
    """Which of two sorts is this picture of? Every cluster tells other sorts apart (PGFL, V-B and V-C).

    `tasks` is one of digit-pairs, digit-triplets, organs-alike, organs-apart, or a list of your own: for each
    cluster two lists of labels of `dataset`. `samples` are the least and the largest number of pictures a client
    has.
    """

    clustered: ClassVar = True

    tasks: Any = key("digit-pairs", f"which labels each cluster tells apart: {', '.join(TASKS)}, or your own lists")
    dataset: str = key("", "the pictures; none named: those of the tasks")
    clients: int = key(150, "how many clients there are", at_least=1, at_most=MOST_CLIENTS)
    samples: tuple[int, ...] = key(
        (), "the least and the largest number of pictures; none given: the article's", at_least=1, length=(0, 2)
    )
    shrink: int = key(1, "squares of so many pixels a side become one", at_least=1, unit="pixels")

    def described(self) -> tuple[str, tuple[clusters.Task, ...], tuple[int, int]]:
        """The data set, the tasks and the numbers of pictures."""
        if isinstance(self.tasks, str):
            if self.tasks not in TASKS:
                raise BadInput("problem.tasks", self.tasks, did_you_mean(self.tasks, TASKS))
            dataset, tasks, samples = TASKS[self.tasks]
        else:
            dataset, tasks, samples = "mnist", self.tasks, (2, 4)
            if not all(isinstance(t, tuple) and len(t) == 2 and all(isinstance(s, tuple) for s in t) for t in tasks):
                raise BadInput("problem.tasks", self.tasks, "for each cluster two lists of labels, as [[1], [8]]")
        chosen = self.samples or samples
        return self.dataset or dataset, tasks, (chosen[0], chosen[1])

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str, graph: Any = None) -> Task:
        """Everyone's pictures, of the sorts of its cluster."""
        dataset, tasks, samples = self.described()
        cluster = settled(len(tasks), self.clients, graph, seed)
        data = clusters.clustered(images.load(dataset), tasks, cluster, samples, seed, self.shrink)
        train, test = (Shards(s.x, 2.0 * s.y - 1.0, s.starts, s.names) for s in (data.train, data.test))
        scorer = Scorer("logistic", cluster, test, None, sought(graph))
        frame = Frame(train.x.shape[1:], predicts=LABEL)
        if data_kind == "stream":
            return streamed_task(train, scorer.score, None, rounds, dtype)._replace(frame=frame)
        return stored_task(train, scorer.score, dtype)._replace(loss=LOGISTIC, frame=frame)


@dataclass(frozen=True)
class BeijingStations(Problem):
    """A model for each of twelve stations: learn from the hours from `start` on, be judged by those that follow."""

    start: int = key(0, "the first hour to learn from, counted from the first of the data", at_least=0, noun="an hour")
    target: str = key("PM2.5", "the column that is predicted")
    columns: tuple[str, ...] = key(
        ("SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "wind-north", "wind-east"),
        "the columns to predict from",
    )
    ahead: int = key(0, "how long before the target the inputs are measured", at_least=0, unit="hours")
    train_hours: int = key(beijing.FORTNIGHT, "how long a station learns", at_least=1, unit="hours")
    test_hours: int = key(beijing.MONTH, "how long it is tested after that", at_least=1, unit="hours")
    intercept: bool = key(True, "whether a model has a constant input")

    def split(self) -> TrainTest:
        """The stations' hours in standard units, with a constant input where a model has an intercept."""
        data = beijing.window(
            beijing.load(), self.start, self.target, self.columns, self.ahead, self.train_hours, self.test_hours
        )
        if not self.intercept:
            return data
        train, test = (Shards(np.c_[s.x, np.ones(len(s.y))], s.y, s.starts, s.names) for s in (data.train, data.test))
        return TrainTest(train, test, data.inputs, data.target)

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """Each station is a client, judged by its own test hours."""
        data = self.split()
        shape, told = (len(self.columns),), frame_of(data, None, "squared", float)
        frame = told._replace(inputs=shape, columns=self.columns, constant=self.intercept, target=self.target)
        scorer, taken = Scorer("squared", np.arange(data.train.clients), data.test), (SCALES,)
        if data_kind == "stream":
            made = streamed_task(data.train, scorer.score, None, rounds, dtype)
            return made._replace(frame=frame, assumed_public=taken)
        made = stored_task(data.train, scorer.score, dtype)
        return made._replace(loss=SQUARED, frame=frame, assumed_public=taken)
