"""Handwritten digits of scikit-learn at twenty clients, and FedAvg's local steps of a linear softmax model."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from archipel.describe import Checked, key
from archipel.parts import NONE, LearnPiece, empty
from archipel.problems.stored import Empty, Samples, shard_of
from archipel.problems.task import Problem, Task

CLASSES = 10


def answers(model, x):
    return x @ model.reshape(-1, CLASSES)


@dataclass(frozen=True)
class Digits(Problem):
    """1437 pictures of 8 by 8 pixels, dealt evenly, a share `skew` of them digit by digit; 360 others are the test."""

    clients: int = key(20, "how many clients there are", at_least=1)
    skew: float = key(0.0, "the share of the pictures that are dealt digit by digit", at_least=0, at_most=1)

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        x = np.concatenate([x / 16, np.ones((len(x), 1))], 1).astype(dtype)
        order = np.random.default_rng([seed, 31]).permutation(len(y))
        train, test = order[360:], order[:360]
        by_digit = int(self.skew * len(train))
        train[:by_digit] = train[:by_digit][np.argsort(y[train[:by_digit]], kind="stable")]
        whose = np.concatenate([np.arange(n) * self.clients // n for n in (by_digit, len(train) - by_digit) if n])
        train = train[np.argsort(whose, kind="stable")]
        starts = np.searchsorted(np.sort(whose), np.arange(self.clients + 1))

        def score(models: dict[str, Any], round: int) -> dict[str, Any]:
            learned = models["server"][None] if "server" in models else models["clients"]
            right = [(answers(model, x[test]).argmax(1) == y[test]).mean() for model in learned]
            return {"accuracy": float(np.mean(right))}

        def inputs(samples: int) -> Iterator[Any]:
            return iter(())

        source = Samples(x[train], y[train].astype(dtype), starts)
        return Task(
            source, Empty(np.zeros(1)), shard_of, x.shape[1] * CLASSES, self.clients, score, inputs, streams=False
        )


@cache
def stepping(step: float, steps: int) -> Any:
    def learn(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        for _ in range(steps):
            with np.errstate(over="ignore", invalid="ignore"):
                answer = answers(me.model, data.x)
                odds = np.exp(answer - answer.max(1, keepdims=True))
                odds /= odds.sum(1, keepdims=True)
            odds[np.arange(len(odds)), data.y.astype(int)] -= 1
            me.model[:] -= step / len(odds) * (data.x.T @ odds).reshape(-1)
        return True

    return learn


@dataclass(frozen=True)
class LocalSteps(Checked):
    """Some gradient steps on a client's own pictures: FedAvg's local work."""

    data_kind: ClassVar[str] = "stored"

    step: float = key(0.5, "how long a step is", above=0)
    steps: int = key(5, "how many of them a round", at_least=1)

    def make(self, setup: Any, protect: Any) -> LearnPiece:
        return LearnPiece(stepping(self.step, self.steps), empty(setup.task.clients), NONE)

    def start(self, setup: Any) -> Any:
        return np.zeros(setup.task.size, setup.dtype)

    def sensitivity(self, setup: Any) -> float:
        raise NotImplementedError
