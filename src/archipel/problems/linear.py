"""Linear models with a known truth: the simplest problem there is, stored or as a stream."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.errors import BadInput
from archipel.problems.losses.supervised import LOSSES
from archipel.problems.measured import UNCHANGED, measured_task
from archipel.problems.splits.shards import Shards, TrainTest, numbered, one
from archipel.problems.task import Task


@dataclass(frozen=True)
class Linear:
    """y = x^T w + noise (or its sign, for the logistic loss), with normal x and one w for everyone."""

    clients: int = 50
    size: int = 20
    samples: int = 100
    noise: float = 0.1
    test: int = 500
    loss: str = "squared"
    features: int = 0
    width: float = 3.0

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """Everyone's samples, drawn at once."""
        for name in ("clients", "size", "samples", "test"):
            if getattr(self, name) < 1:
                raise BadInput(f"problem.{name}", getattr(self, name), "at least 1")
        if self.noise < 0:
            raise BadInput("problem.noise", self.noise, "a deviation of 0 or more")
        if self.loss not in LOSSES:
            raise BadInput("problem.loss", self.loss, "one of " + ", ".join(LOSSES))
        draw = np.random.default_rng([seed, 21])
        truth = draw.standard_normal(self.size) / np.sqrt(self.size)
        total = self.clients * self.samples
        x = draw.standard_normal((total + self.test, self.size), np.float32).astype(dtype)
        y = x @ truth + self.noise * draw.standard_normal(total + self.test)
        if self.loss == "logistic":
            y = np.where(y > 0, 1.0, -1.0)
        starts = np.arange(self.clients + 1) * self.samples
        train = Shards(x[:total], y[:total], starts, numbered(self.clients))
        data = TrainTest(train, one(x[total:], y[total:]), UNCHANGED, UNCHANGED)
        return measured_task(data, self.features, self.width, self.loss, seed, rounds, dtype, data_kind)
