"""Deep models as problems: any PyTorch module on pictures or on data of your own.

    [problem]
    kind = "deep"
    dataset = "digits"       # scikit-learn's, without a download; mnist, fashion-mnist, emnist-balanced, ...
    model = "cnn"            # or mlp, or "my_model.py:Net"
    split = "unbalanced"     # iid, uneven, shards, label-shards, dirichlet, unbalanced, column

Deep models run through the plain engine. The data stays as it is stored (bytes, for pictures) until a batch
is taken.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.clients import People
from archipel.describe import key
from archipel.errors import BadInput, did_you_mean
from archipel.problems import files, folders
from archipel.problems.datasets import images
from archipel.problems.datasets.npz import arrays_in
from archipel.problems.frame import CLASS, NUMBER, Frame
from archipel.problems.look import holdings
from archipel.problems.models.networks import Network, Units, build, one_thread, torch_or_sentence
from archipel.problems.splits import partition
from archipel.problems.splits.shards import Shards, divide, gather, hold_groups, one, remaining
from archipel.problems.stored import Empty, shard_of
from archipel.problems.task import MOST_CLIENTS, Problem, Task

DEEP_ALGORITHMS = "pldp-fl, fedavg-deep, dp-fedavg-deep, mirror-deep"
HELD_OUT = 0.2  # of a client's samples, where there is no test set
SUBSET = 211  # the tag of the draw that keeps some of the samples


class Samples(NamedTuple):
    """All clients' samples, one client's after the other's."""

    x: Any
    y: Any
    starts: Any


class Pool(NamedTuple):
    """Data before it is dealt: train and test, and the columns that a split may go by."""

    x: Any
    y: Any
    test_x: Any
    test_y: Any
    top: float
    columns: dict[str, Any]


@dataclass(frozen=True)
class Deep(Problem):
    """A network on labelled samples.

    An npz of your own has x and y (and x_test, y_test, and columns to split by). A network sees (x - center) / spread,
    where pictures go from 0 to 1. With a table [clients] each client's data are its own: files in a folder of its name,
    or a data set that a function of yours makes of the name; what a sample looks like is declared, `shape` and
    `classes`.
    """

    takes_clients: ClassVar[bool] = True

    dataset: str = key("digits", "the pictures, by the name of their data set")
    data: str = key("", "your own data: an npz, a folder with a file for each client, or file.py:function of a name")
    shape: tuple[int, ...] = key((), "the shape of a sample, where clients have data of their own", at_least=1)
    classes: int = key(0, "how many classes there are, where clients have data of their own", at_least=0)
    model: str = key("cnn", 'the network: cnn, mlp, or your own as in "my_model.py:Net"')
    widths: tuple[int, ...] = key((), "the widths of the hidden layers; none given: the network's own", at_least=1)
    activation: str = key("relu", "what stands between the layers of cnn and mlp", choices=("relu", "tanh"))
    loss: str = key("cross-entropy", "what is minimised", choices=("cross-entropy", "squared"))
    clients: int = key(10, "how many clients the samples are dealt to", at_least=1, at_most=MOST_CLIENTS)
    split: str = key("iid", "how samples are dealt to clients", choices=("column", *partition.SPLITS))
    each: int = key(2, "how many shards a client gets, where split = shards", at_least=1)
    pieces: int = key(3, "how many pieces a label is cut into, where split = label-shards", at_least=1)
    alpha: float = key(0.5, "the lower, the less alike clients are, where split = dirichlet", above=0, symbol="alpha")
    fewest: int = key(1, "the least number of labels of a client, where split = unbalanced", at_least=1)
    most: int = key(6, "the largest number of labels of a client, where split = unbalanced", at_least=1)
    power: float = key(1.0, "how fast sizes fall with a client's rank, where split = uneven or unbalanced", at_least=0)
    column: str = key("", "the column that names each sample's client, where split = column")
    hold: str = key(
        "random",
        "which fifth of your own data is held out: at random, the last samples, whole groups, or whole files",
        choices=("random", "last", "groups", "files"),
    )
    group: str = key("", "the column that says which samples belong together, where hold = groups")
    samples: int = key(0, "how many training samples are kept; 0: all", at_least=0)
    test: int = key(0, "how many test samples are kept; 0: all", at_least=0)
    shrink: int = key(1, "squares of so many pixels a side become one", at_least=1, unit="pixels")
    center: float = key(0.0, "what is subtracted from inputs; public, not taken from the data")
    spread: float = key(1.0, "what inputs are then divided by; public, not taken from the data", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.group) != (self.hold == "groups"):
            raise BadInput("problem.group", self.group, 'a column, with hold = "groups"; else none')

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str, people: People | None = None) -> Task:
        """The data dealt by the seed, and the network with the seed's initial weights."""
        torch_or_sentence()
        if data_kind != "deep":
            right = f"a problem for linear models with this algorithm; deep ones go with {DEEP_ALGORITHMS}"
            raise BadInput("problem.kind", "deep", right)
        if people is not None:
            train, test = self.seen_here(people, seed)
            task = deep_task(self, train, test, 1.0, self.classes, seed, dtype)
            declared = [f"the names of {len(people.names)} clients", f"that a sample has the shape {self.shape}"]
            declared += [f"that there are {self.classes} classes"] if self.classes else []
            declared += ["everyone's number of samples"] if people.samples else []
            samples = tuple(remaining(people.samples, HELD_OUT).tolist())
            return task._replace(local_only=True, at=people.at, samples=samples, declared=tuple(declared))
        train, test, top = self.dealt(seed)
        return deep_task(self, train, test, top, int(max(train.y.max(), test.y.max())) + 1, seed, dtype)

    def seen_here(self, people: People, seed: int) -> tuple[Shards, Shards]:
        """The samples of everyone who can be seen here."""
        unknown = "nobody sees everyone's data"
        if not self.data:
            raise BadInput("problem.data", "(none)", "the clients' own data: files, or file.py:function of a name")
        if not self.shape:
            raise BadInput("problem.shape", "(none)", f"the shape of a sample, as in [1, 28, 28]: {unknown}")
        if not self.classes and self.loss == "cross-entropy":
            raise BadInput("problem.classes", 0, f"how many classes there are: {unknown}")
        if self.test:
            raise BadInput("problem.test", self.test, f"0: {unknown}")
        if self.hold in ("files", "groups"):
            raise BadInput("problem.hold", self.hold, "random or last: each client tests on samples of its own")
        everything = folders.together(folders.read_people(people, self.data, files.Reading(), self.shape))
        if self.loss == "cross-entropy" and len(everything.y) and everything.y.max() >= self.classes:
            raise BadInput("problem.classes", self.classes, f"more: there is a label {everything.y.max():g}")
        return divide(everything, HELD_OUT, self.hold, seed)

    def dealt(self, seed: int) -> tuple[Shards, Shards, float]:
        """Training data by client, test data, and the largest value of x."""
        if self.data and not self.data.endswith(".npz"):
            train, test = files.read_split(self.data, HELD_OUT, seed=seed, hold=self.hold, group=self.group)
            return train, fewer(test, self.test, seed), 1.0
        pool = (
            own_pool(self.data, seed, self.hold, self.group) if self.data else picture_pool(self.dataset, self.shrink)
        )
        kept = some(len(pool.y), self.samples, seed, "problem.samples")
        x, y = pool.x[kept], pool.y[kept]
        names: tuple[str, ...] = ()
        if self.split == "column":
            if self.column not in pool.columns:
                raise BadInput("problem.column", self.column, did_you_mean(self.column, pool.columns))
            members, names = partition.by_column(pool.columns[self.column][kept])
        else:
            settings = partition.settings_in(self, self.split)
            members = partition.split(self.split, y, self.clients, seed, **settings)
        return gather(x, y, members, names), fewer(one(pool.test_x, pool.test_y), self.test, seed), pool.top


# --- the data -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def picture_pool(dataset: str, shrink: int) -> Pool:
    """A set of pictures, by its name."""
    loaded = images.load(dataset)
    train, test = loaded.train, loaded.test
    columns = {"label": train.y} if train.groups is None else {"label": train.y, "group": train.groups}
    x, test_x = (smaller(part.x, shrink)[:, None] for part in (train, test))
    return Pool(x, train.y, test_x, test.y, float(train.top), columns)


def smaller(pictures: Any, shrink: int) -> Any:
    """The means of squares of `shrink` pixels a side, as whole numbers again."""
    count, height, width = pictures.shape
    if shrink < 1 or height % shrink or width % shrink:
        raise BadInput("problem.shrink", shrink, f"a whole number that divides {height} and {width}")
    if shrink == 1:
        return pictures
    squares = pictures.reshape(count, height // shrink, shrink, width // shrink, shrink)
    return np.rint(squares.mean((2, 4), dtype=np.float32)).astype(np.uint8)


def own_pool(data: str, seed: int, hold: str = "random", group: str = "") -> Pool:
    """A user's own npz; without x_test a fifth is held out: at random, the last, or whole groups."""
    path = Path(data)
    if not path.is_file():
        raise BadInput("problem.data", data, "a file that exists")
    arrays = arrays_in(path, "problem.data")
    for name in ("x", "y"):
        if name not in arrays:
            raise BadInput("problem.data", f"{path.name} with {', '.join(arrays)}", f'an array "{name}" in it')
    x, y = arrays["x"], arrays["y"]
    if y.ndim != 1 or len(x) != len(y) or x.ndim < 2:
        raise BadInput("problem.data", f"{path.name}, x {x.shape} and y {y.shape}", "one row of x for each y")
    columns = {"label": y} | {name: a for name, a in arrays.items() if name not in ("x", "y") and a.shape == y.shape}
    top = 255.0 if x.dtype == np.uint8 else 1.0
    if "x_test" in arrays and "y_test" in arrays:
        return Pool(x, y, arrays["x_test"], arrays["y_test"], top, columns)
    if hold == "files":
        raise BadInput("problem.hold", hold, "random, last or groups: all samples are in one file")
    if group and group not in columns:
        raise BadInput("problem.group", group, did_you_mean(group, columns))
    rows = one(np.arange(len(y))[:, None], y)
    parts = hold_groups(rows, [columns[group]], HELD_OUT, seed) if group else divide(rows, HELD_OUT, hold, seed)
    if not len(parts[1].y):
        raise BadInput("problem.data", path.name, "samples enough to hold some out")
    held = np.isin(np.arange(len(y)), parts[1].x[:, 0])
    return Pool(x[~held], y[~held], x[held], y[held], top, {name: a[~held] for name, a in columns.items()})


def some(total: int, wanted: int, seed: int, key: str) -> Any:
    """The numbers of so many samples, drawn; all of them where 0 are wanted."""
    if not 0 <= wanted <= total:
        raise BadInput(key, wanted, f"a number of samples from 1 to {total}, or 0 for all")
    if wanted in (0, total):
        return slice(None)
    return np.sort(np.random.default_rng([seed, SUBSET]).choice(total, wanted, replace=False))


def fewer(test: Shards, wanted: int, seed: int) -> Shards:
    kept = some(len(test.y), wanted, seed, "problem.test")
    return test if isinstance(kept, slice) else test.keep(kept)


# --- the task -----------------------------------------------------------------------------------------------


def cross_entropy(answers: Any, labels: Any, reduction: str = "mean") -> Any:
    from torch.nn import functional

    return functional.cross_entropy(answers, labels, reduction=reduction)


def squared(answers: Any, targets: Any, reduction: str = "mean") -> Any:
    errors = (answers[:, 0] - targets).square()
    return errors.mean() if reduction == "mean" else errors


LOSSES: dict[str, Callable[..., Any]] = {"cross-entropy": cross_entropy, "squared": squared}


def tensors(shards: Shards, loss: str, dtype: Any) -> tuple[Any, Any]:
    """Bytes stay bytes; everything else in the run's precision. Labels are whole numbers."""
    import torch

    x = shards.x if shards.x.dtype == np.uint8 else shards.x.astype(dtype)
    labels = loss == "cross-entropy"
    if labels and np.any((shards.y != np.round(shards.y)) | (shards.y < 0)):
        raise BadInput("problem.data", "targets that are not labels", 'labels 0, 1, 2, ... or loss = "squared"')
    y = shards.y.astype(np.int64 if labels else dtype)
    return torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(y)


def deep_task(problem: Deep, train: Shards, test: Shards, top: float, classes: int, seed: int, dtype: Any) -> Task:
    """A network, its clients' data, and its score on the test data."""
    x, y = tensors(train, problem.loss, dtype)
    test_x, test_y = tensors(test, problem.loss, dtype)
    count = classes if problem.loss == "cross-entropy" else 1
    module = build(problem.model, tuple(x.shape[1:]), count, seed, problem.widths, problem.activation)
    units = Units(top, problem.center, problem.spread)
    looks = x[:2] if len(x) else x.new_zeros((2, *x.shape[1:]))  # a server has no samples
    network = Network(module, LOSSES[problem.loss], looks, units, dtype, problem.model)
    check_answers(network, looks, count, problem.model)

    def score(models: dict[str, Any], round: int) -> dict[str, Any]:
        if "server" in models:
            return scored(network, models["server"], test_x, test_y)
        each = [scored(network, model, test_x, test_y) for model in models["clients"]]
        mean = {metric: float(np.mean([one[metric] for one in each])) for metric in each[0]}
        return mean | {f"{metric}.node": np.array([one[metric] for one in each]) for metric in each[0]}

    def inputs(samples: int) -> Iterator[Any]:
        raise BadInput("problem.kind", "deep", "a problem for linear models: theory of this algorithm needs its inputs")

    source, sample = Samples(x, y, train.starts), Empty(np.zeros(1))
    return Task(
        source, sample, shard_of, network.size, train.clients, score, inputs, False, train.names, learner=network,
        frame=frame_of(problem, train, network, count), holdings=holdings(train, whole=problem.loss == "cross-entropy"),
    )  # fmt: skip


def frame_of(problem: Deep, train: Shards, network: Network, count: int) -> Frame:
    """What stands around the network's weights."""
    own = ":" in Path(problem.model).name
    told = {
        "model": Path(problem.model).name, "own": own, "answers": count, "widths": problem.widths,
        "activation": problem.activation, **network.units._asdict(),
        "parameters": [(name, tuple(p.shape)) for name, p in network.module.named_parameters()],
    }  # fmt: skip
    predicts, precision = CLASS if problem.loss == "cross-entropy" else NUMBER, str(network.first.dtype)
    return Frame(train.x.shape[1:], train.columns, predicts=predicts, precision=precision, network=told)


def check_answers(network: Network, x: Any, count: int, name: str) -> None:
    """Refuse a model that does not fit the data, before anything runs."""
    import torch

    try:
        answers = network.answers(network.start(), x)
    except Exception as problem:  # whatever a user's module may raise
        said = (str(problem).splitlines() or [type(problem).__name__])[0]
        right = f"a module that takes samples of shape {tuple(x.shape[1:])} ({said})"
        raise BadInput("problem.model", name, right) from problem
    shape = tuple(getattr(answers, "shape", ()))
    if shape != (len(x), count):
        right = f"one that gives {count} answers a sample, not shape {shape[1:]}"
        raise BadInput("problem.model", name, right)
    if not torch.isfinite(answers).all():
        raise BadInput("problem.model", name, "one whose answers are finite: it returned NaN or infinity at its start")


def scored(network: Network, model: Any, x: Any, y: Any) -> dict[str, float]:
    """Accuracy and mean loss; the mean squared error where targets are numbers."""
    with one_thread():
        answers = network.answers(model, x)
        loss = float(network.loss(answers, y))
    if network.loss is squared:
        return {"mse": loss}
    return {"accuracy": float((answers.argmax(1) == y).double().mean()), "loss": loss}
