"""What a model is to an algorithm that trains by steps: a flat vector, and someone who knows its gradient.

A `Learner` belongs to a problem. It never keeps the vector: a node holds it, so that the same code serves
one device and a table of clients. `rows` are the numbers of the samples of a batch.

Who learns by a learner is written as a generator that yields what it asks (`Descend`, `Gradient`, `ClippedSum`), once:
a device has each answered at once, the simulator lets many clients ask and has them answered side by side, or large
models on threads.
"""

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import numpy as np

from archipel.errors import BadInput
from archipel.problems.losses.supervised import ABSOLUTE, HUBER_KNEE, LOGISTIC, SQUARED, gradient

MANY = 1 << 20  # samples that clients are taken to have at a server, which need not know


class Learner(Protocol):
    """The gradient of a model, in the four forms that algorithms ask for."""

    size: int  # parameters of the model

    def start(self) -> Any:
        """The model everyone starts from."""

    def gradient(self, out: Any, model: Any, data: Any, rows: Any) -> float:
        """out = the mean gradient over a batch; returns the mean loss where it is at hand, else NaN."""

    def descend(self, model: Any, data: Any, rows: Any, step: float) -> None:
        """model -= step * mean gradient, in place."""

    def clipped_sum(self, out: Any, model: Any, data: Any, rows: Any, bound: float, norm: int = 2) -> None:
        """out = the sum over a batch of each example's gradient, scaled to norm `bound` at most: L2, or L1."""

    def together(self, asks: Sequence[Any]) -> bool:
        """Answer what many clients ask, all alike, in one go; False: not so, nothing was done."""

    def twins(self, count: int) -> Sequence[Any]:
        """As many that answer to the bit as this one does, for a thread each; none: it cannot be copied."""


class Descend(NamedTuple):
    """model -= step * mean gradient."""

    model: Any
    data: Any
    rows: Any
    step: float

    @property
    def alike(self) -> tuple[Any, ...]:
        return len(self.rows), self.step

    def alone(self, learner: Any) -> None:
        learner.descend(*self)


class Gradient(NamedTuple):
    """out = mean gradient."""

    out: Any
    model: Any
    data: Any
    rows: Any

    @property
    def alike(self) -> tuple[Any, ...]:
        return (len(self.rows),)

    def alone(self, learner: Any) -> None:
        learner.gradient(*self)


class ClippedSum(NamedTuple):
    """out = the sum of clipped gradients; batches of any size go together."""

    out: Any
    model: Any
    data: Any
    rows: Any
    bound: float
    norm: int = 2

    @property
    def alike(self) -> tuple[Any, ...]:
        return self.bound, self.norm

    def alone(self, learner: Any) -> None:
        learner.clipped_sum(*self)


Asking = Generator[Any, None, Any]
NOBODY_ELSE = nullcontext()


def answered(asking: Asking, learner: Any, turn: Any = NOBODY_ELSE) -> Any:
    """Answer everything at once; what comes of it. What the asker does itself, it does while it has its `turn`."""
    while True:
        try:
            with turn:
                ask = next(asking)
        except StopIteration as end:
            return end.value
        ask.alone(learner)


def answered_together(askings: list[tuple[int, Asking]], learner: Any, threads: int = 1) -> list[Any]:
    """The same for many nodes (their numbers stand beside them): those who ask alike are answered in one go."""
    found: list[Any] = [None] * len(askings)
    left = list(range(len(askings)))
    while left:
        groups: dict[Any, list[tuple[int, Any]]] = {}
        for i in left:
            k, asking = askings[i]
            try:
                ask = next(asking)
                groups.setdefault((type(ask), *ask.alike), []).append((i, ask))
            except StopIteration as end:
                found[i] = end.value
        left = []
        for group in groups.values():
            if len(group) > 1 and not learner.together([ask for _, ask in group]):
                ends = to_their_ends([(askings[i][1], ask) for i, ask in group], learner, threads)
                for i, _ in group:
                    k = askings[i][0]
                    found[i] = next(ends)
                ends.close()
                continue
            if len(group) == 1:
                i, ask = group[0]
                k = askings[i][0]  # noqa: F841  who fails is looked for in this frame
                ask.alone(learner)
            left += [i for i, _ in group]
        left.sort()
    return found


def to_their_ends(askings: list[tuple[Asking, Any]], learner: Any, threads: int) -> Generator[Any, None, None]:
    """What comes of each, in their order, from what it asks now on: large models, each while it is in the cache.

    On threads only learners answer at a time; what askers do themselves they do one by one, in any order.
    """
    twins = learner.twins(min(threads, len(askings))) if threads > 1 else ()
    if not twins:
        for asking, ask in askings:
            ask.alone(learner)
            yield answered(asking, learner)
        return
    free: SimpleQueue[Any] = SimpleQueue()
    for twin in twins:
        free.put(twin)
    turn = threading.Lock()

    def end(one: tuple[Asking, Any]) -> Any:
        asking, ask = one
        twin = free.get()
        try:
            ask.alone(twin)
            return answered(asking, twin, turn)
        finally:
            free.put(twin)

    with ThreadPoolExecutor(len(twins)) as pool:
        yield from pool.map(end, askings)


class Batch(NamedTuple):
    x: Any
    y: Any


class Linear:
    """Linear models, in NumPy alone: the losses of `losses.supervised`."""

    def __init__(self, size: int, loss: int, dtype: Any):
        self.size, self.loss, self.dtype = size, loss, dtype

    def start(self) -> Any:
        return np.zeros(self.size, self.dtype)

    def gradient(self, out: Any, model: Any, data: Any, rows: Any) -> float:
        gradient(out, model, Batch(data.x[rows], data.y[rows]), self.loss)
        return float("nan")

    def descend(self, model: Any, data: Any, rows: Any, step: float) -> None:
        out = np.zeros_like(model)
        self.gradient(out, model, data, rows)
        model -= model.dtype.type(step) * out

    def clipped_sum(self, out: Any, model: Any, data: Any, rows: Any, bound: float, norm: int = 2) -> None:
        """An example's gradient is slope(x^T w, y) x, so its norm is known without writing it down."""
        x, y = data.x[rows], data.y[rows]
        slopes = slopes_of(self.loss, (x @ model).astype(float), y)
        norms = np.abs(slopes) * np.linalg.norm(x.astype(float, copy=False), norm, axis=1)
        out[:] = (slopes * clip_factors(norms, bound)) @ x

    def together(self, asks: Sequence[Any]) -> bool:
        return False

    def twins(self, count: int) -> Sequence[Any]:
        return ()


def slopes_of(loss: int, answers: Any, targets: Any) -> Any:
    """`supervised.slope` for many answers at once."""
    errors = answers - targets
    if loss == SQUARED:
        return 2.0 * errors
    if loss == ABSOLUTE:
        return np.sign(errors)
    if loss == LOGISTIC:
        return -targets * np.exp(-np.logaddexp(0.0, targets * answers))
    return np.clip(errors, -HUBER_KNEE, HUBER_KNEE)


def clip_factors(norms: Any, bound: float) -> Any:
    """min(1, bound / norm), a hair less against rounding; an example without a norm counts nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.minimum(1.0, bound * (1 - 1e-12) / norms)
    return np.where(np.isfinite(norms), factors, 0.0)


def learner_of(task: Any, dtype: Any) -> Any:
    """The learner of a task: its own, or that of linear models where the data is stored."""
    sizes_of(task)
    return task.learner if task.learner is not None else Linear(task.size, task.loss, dtype)


def sizes_of(task: Any) -> Any:
    """How many samples each client has; what a node does not know of others, as its own: only its own row counts."""
    if task.streams:
        raise BadInput("problem.kind", "a stream", "a problem whose clients have their data from the start")
    if task.samples:
        return np.array(task.samples)
    sizes = np.diff(np.asarray(task.source.starts))[: task.clients]
    return np.where(sizes > 0, sizes, sizes.max(initial=0) or MANY) if task.local_only else sizes


def public_sizes(task: Any) -> Any:
    """The same where a node needs everyone's: they are public then, or refused."""
    if task.hides_sizes:
        right = "everyone's number of samples, as this algorithm weighs clients by them: nobody sees everyone's data"
        raise BadInput("clients.samples", "(none)", right)
    return sizes_of(task)


def names_of(task: Any) -> tuple[str, ...]:
    """What the clients are called."""
    return task.names or tuple(f"client {k}" for k in range(task.clients))


def check_finite(change: Any, step: float) -> None:
    """A client whose model is no longer one says so, and nothing else."""
    if not np.isfinite(change).all():
        raise BadInput("algorithm.step", step, "a smaller step: the model became NaN or infinite")
