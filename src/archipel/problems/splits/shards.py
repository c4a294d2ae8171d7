"""The data of many clients in one table, where each may have another number of samples."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.errors import BadInput

HELD = 101  # the tag of the draws that choose held-out samples


@dataclass(frozen=True)
class Shards:
    """Client k's samples are rows starts[k] .. starts[k + 1] - 1 of x and y.

    >>> both = Shards(np.eye(3), np.array([1.0, 2.0, 3.0]), np.array([0, 1, 3]), ("ann", "bob"))
    >>> both.sizes, both.of(1)[1]
    (array([1, 2]), array([2., 3.]))
    """

    x: Any  # (samples, ...)
    y: Any  # (samples,)
    starts: Any  # (clients + 1,) int64
    names: tuple[str, ...]  # of the clients
    columns: tuple[str, ...] = ()  # of x, where they have names

    def __post_init__(self) -> None:
        for name in ("x", "y", "starts"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        object.__setattr__(self, "starts", self.starts.astype(np.int64))
        object.__setattr__(self, "names", tuple(map(str, self.names)))
        object.__setattr__(self, "columns", tuple(map(str, self.columns)))
        self.check()

    def check(self) -> None:
        """Refuse tables that do not fit together, and numbers that are none."""
        x, y, starts = self.x, self.y, self.starts
        if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
            raise BadInput("shards.x", f"{x.shape} with y {y.shape}", "one row of x for each y")
        if starts.ndim != 1 or len(starts) < 2 or starts[0] != 0 or starts[-1] != len(y) or np.any(np.diff(starts) < 0):
            raise BadInput("shards.starts", starts, f"numbers that grow from 0 to the number of samples, {len(y)}")
        if len(self.names) != self.clients or len(set(self.names)) != self.clients:
            raise BadInput("shards.names", self.names, f"{self.clients} different names, one for each client")
        if self.columns and len(self.columns) != x.shape[1]:
            raise BadInput("shards.columns", self.columns, f"{x.shape[1]} names, one for each column of x")
        for name, array in (("x", x), ("y", y)):
            if array.dtype.kind not in "fiub":
                raise BadInput(f"shards.{name}", array.dtype, "numbers")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                row = int(np.argwhere(~np.isfinite(array))[0][0])
                k = int(np.searchsorted(starts, row, "right")) - 1
                where = f"row {row - int(starts[k])} of client {self.names[k]}"
                raise BadInput(f"shards.{name}", where, "finite numbers, neither NaN nor infinite")

    @property
    def clients(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> Any:
        """How many samples each client has."""
        return np.diff(self.starts)

    def of(self, k: int) -> tuple[Any, Any]:
        """Client k's own x and y, as views."""
        mine = slice(self.starts[k], self.starts[k + 1])
        return self.x[mine], self.y[mine]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return map(self.of, range(self.clients))

    @property
    def owner(self) -> Any:
        """The client of each sample."""
        return np.repeat(np.arange(self.clients), self.sizes)

    def keep(self, rows: Any) -> "Shards":
        """The same clients with some of their rows (a mask, or increasing numbers of rows)."""
        rows = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.asarray(rows, np.int64)
        if np.any(np.diff(rows) <= 0):
            raise BadInput("rows", rows, "row numbers in increasing order")
        return Shards(self.x[rows], self.y[rows], np.searchsorted(rows, self.starts), self.names, self.columns)

    def scaled(self, inputs: "Scaling", target: "Scaling") -> "Shards":
        """The same data in other units."""
        return Shards(inputs.apply(self.x), target.apply(self.y), self.starts, self.names, self.columns)


def gather(x: Any, y: Any, members: Sequence[Any], names: Iterable[str] = (), columns: Iterable[str] = ()) -> Shards:
    """Pooled samples, dealt to clients: client k has the samples members[k]."""
    order = np.concatenate([np.asarray(m, np.int64) for m in members])
    starts = np.cumsum([0] + [len(m) for m in members])
    return Shards(x[order], y[order], starts, tuple(names) or numbered(len(members)), tuple(columns))


def join(parts: Sequence[tuple[Any, Any]], names: Iterable[str] = (), columns: Iterable[str] = ()) -> Shards:
    """The clients' own (x, y), one after another."""
    starts = np.cumsum([0] + [len(y) for _, y in parts])
    x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    return Shards(x, y, starts, tuple(names) or numbered(len(parts)), tuple(columns))


def one(x: Any, y: Any, name: str = "test", columns: Iterable[str] = ()) -> Shards:
    """A pooled set, as the shard of a single client."""
    return Shards(x, y, np.array([0, len(y)]), (name,), tuple(columns))


def numbered(clients: int) -> tuple[str, ...]:
    """Names in an order that sorting keeps.

    >>> numbered(11)[:2], numbered(3)[-1]
    (('client-00', 'client-01'), 'client-2')
    """
    digits = len(str(clients - 1))
    return tuple(f"client-{k:0{digits}}" for k in range(clients))


# --- held-out samples ---------------------------------------------------------------------------------------


def hold_out(shards: Shards, fraction: float, seed: int) -> tuple[Shards, Shards]:
    """Some samples of every client are kept apart, chosen at random: what is left, and what was taken.

    A client always keeps a sample to learn from, so that one with a single sample gives none.
    """
    return _some(divide(shards, fraction, "random", seed), fraction)


def hold_last(shards: Shards, fraction: float) -> tuple[Shards, Shards]:
    """The last samples of every client are kept apart: for data in the order of time."""
    return _some(divide(shards, fraction, "last"), fraction)


def _random_rows(size: int, count: int, k: int, seed: int) -> Any:
    return np.random.default_rng([seed, HELD, k]).choice(size, count, replace=False)


def divide(shards: Shards, fraction: float, hold: str, seed: int = 0) -> tuple[Shards, Shards]:
    """What is left and what was taken, which may be nothing."""
    if not 0 < fraction < 1:
        raise BadInput("problem.test", fraction, "a fraction between 0 and 1")
    held = np.zeros(len(shards.y), bool)
    for k, (size, left) in enumerate(zip(shards.sizes.tolist(), remaining(shards.sizes, fraction).tolist())):
        if left < size:
            rows = _random_rows(size, size - left, k, seed) if hold == "random" else np.arange(left, size)
            held[shards.starts[k] + rows] = True
    return shards.keep(~held), shards.keep(held)


def hold_clients(shards: Shards, fraction: float, seed: int) -> tuple[Shards, Shards]:
    """Some clients to learn from, the others to test on, chosen by the seed: nobody learns from a sample of theirs."""
    if shards.clients < 2:
        raise BadInput("problem.hold", "files", "two files at least: some are learned from, the others tested on")
    count = min(max(round(fraction * shards.clients), 1), shards.clients - 1)
    held = set(np.random.default_rng([seed, 17]).permutation(shards.clients)[:count].tolist())
    every = list(zip(shards.names, shards))
    parts = [[one for k, one in enumerate(every) if (k in held) == wanted] for wanted in (False, True)]
    left, taken = (join([one for _, one in part], [name for name, _ in part], shards.columns) for part in parts)
    return left, taken


def hold_groups(shards: Shards, groups: Sequence[Any], fraction: float, seed: int) -> tuple[Shards, Shards]:
    """Whole groups of each client (a person, a day, a trip) are kept apart: windows that overlap do not leak.

    `groups` has the words of each client's samples. A client always keeps a group to learn from.
    """
    held = []
    for k, mine in enumerate(groups):
        names, which = np.unique(np.asarray(mine, str), return_inverse=True)
        count = len(names) - int(remaining([len(names)], fraction)[0])
        held.append(np.isin(which, _random_rows(len(names), count, k, seed)) if count else np.zeros(len(mine), bool))
    return shards.keep(~np.concatenate(held)), shards.keep(np.concatenate(held))


def remaining(sizes: Any, fraction: float) -> Any:
    """How many samples clients of these sizes keep.

    >>> remaining(np.array([10, 1, 0]), 0.2)
    array([8, 1, 0])
    """
    return np.array([size - max(min(round(fraction * size), size - 1), 0) for size in map(int, sizes)], np.int64)


def _some(parts: tuple[Shards, Shards], fraction: float) -> tuple[Shards, Shards]:
    if not len(parts[1].y):
        raise BadInput("problem.test", fraction, "a fraction that holds out at least one sample of one client")
    return parts


# --- units --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scaling:
    """Standard units: (value - mean) / deviation."""

    mean: Any
    deviation: Any

    def apply(self, values: Any) -> Any:
        return (values - self.mean) / self.deviation

    def undo(self, values: Any) -> Any:
        return values * self.deviation + self.mean


def standard(values: Any, columns: Sequence[str] = ()) -> Scaling:
    """The units in which these values have mean zero and deviation one; what never changes becomes zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = np.mean(values, 0), np.std(values, 0)
    for j in np.flatnonzero(~np.isfinite(deviation)).tolist():  # one huge value would make all others zero
        where = "target" if np.ndim(values) == 1 else columns[j] if columns else f"column {j} of the inputs"
        raise BadInput(where, float(np.abs(values).max()), "numbers whose squares can be summed; other units may help")
    return Scaling(mean, np.where(deviation > 0, deviation, 1.0))


@dataclass(frozen=True)
class TrainTest:
    """What clients learn from and what they are judged by, in standard units of the training data.

    `test` has one shard for everyone, or one for each client, under the client's name.
    """

    train: Shards
    test: Shards
    inputs: Scaling
    target: Scaling


def standardised(train: Shards, test: Shards) -> TrainTest:
    """Both sets in the units of the training set: the test set has no say in them."""
    inputs, target = standard(train.x, train.columns), standard(train.y)
    return TrainTest(train.scaled(inputs, target), test.scaled(inputs, target), inputs, target)
