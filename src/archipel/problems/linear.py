"""Linear models with a known truth: the simplest problem there is, stored or as a stream."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.describe import key
from archipel.problems.losses.supervised import LOSSES
from archipel.problems.measured import UNCHANGED, measured_task
from archipel.problems.splits.shards import Shards, TrainTest, numbered, one
from archipel.problems.task import MOST_CLIENTS, MOST_COSINES, MOST_FEATURES, Problem, Task


@dataclass(frozen=True)
class Linear(Problem):
    """y = x^T w + noise (or its sign, for the logistic loss), with normal x and one w for everyone."""

    clients: int = key(50, "how many clients there are", at_least=1, at_most=MOST_CLIENTS)
    size: int = key(20, "how many inputs, and so weights, the model has", at_least=1, at_most=MOST_FEATURES)
    samples: int = key(100, "how many samples each client has", at_least=1)
    noise: float = key(0.1, "the deviation of the noise of an observation", at_least=0)
    test: int = key(500, "how many samples models are tested on", at_least=1)
    loss: str = key("squared", "what is minimised", choices=tuple(LOSSES))
    features: int = key(
        0, "how many random Fourier features inputs pass through; 0: none", at_least=0, at_most=MOST_COSINES
    )
    width: float = key(3.0, "the width of the kernel that the features stand for", above=0)

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """Everyone's samples, drawn at once."""
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
