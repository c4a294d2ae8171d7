"""Regression among peers: the problems of chapter 3 of the thesis, and the centralised solution that scores them.

The objective is (3.2): the sum over clients of the mean loss on their samples, and l1 ||w||_1 + l2 ||w||^2, of which
every client carries the K-th part. (The thesis' (3.1) lacks the 1 / D_k.)
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from archipel.describe import key
from archipel.errors import BadInput
from archipel.problems.frame import LABEL, NUMBER, Frame
from archipel.problems.losses.supervised import LOSSES
from archipel.problems.measured import score_of
from archipel.problems.scoring.centralised import centralised
from archipel.problems.splits.shards import Shards, numbered
from archipel.problems.stored import stored_task
from archipel.problems.task import MOST_CLIENTS, MOST_FEATURES, Problem, Task

OBJECTIVES = {  # loss, l2 in the thesis
    "ridge": ("squared", 1.0),
    "elastic-net": ("squared", 1.0),
    "least-absolute": ("absolute", 0.0),
    "logistic": ("logistic", 1.0),
    "huber": ("huber", 0.0),
}
SPARSE = 0.001  # l1 of the elastic net is this share of ||X^T y||_inf
WEIGHT = "the weight of the l1 part is known to all, not taken from these data (give problem.l1)"


@dataclass(frozen=True)
class Regression(Problem):
    """Ridge, elastic net, least absolute deviation, logistic or Huber regression, scored against the exact solution.

    y = x^T w + noise (or its sign) with normal x and a w of mean square one, of which the last `zeros` weights are 0.
    `l1` and `l2` are the thesis' where they are not given: l2 = 1, and for the elastic net l1 = 0.001 ||X^T y||_inf.
    """

    objective: str = key("ridge", "what is minimised", choices=tuple(OBJECTIVES))
    clients: int = key(50, "how many clients there are", at_least=1, at_most=MOST_CLIENTS, symbol="K")
    samples: int = key(50, "how many samples each client has", at_least=1, symbol="D_k")
    size: int = key(8, "how many inputs, and so weights, the model has", at_least=1, at_most=MOST_FEATURES, symbol="P")
    noise: float = key(0.1, "the deviation of the noise of an observation", at_least=0)
    zeros: int = key(0, "how many of the true weights, the last ones, are 0", at_least=0)
    l1: float | None = key(None, "the weight of ||w||_1 in the objective; not given: the thesis'", at_least=0)
    l2: float | None = key(None, "the weight of ||w||^2 in the objective; not given: the thesis'", at_least=0)
    test: int = key(500, "how many samples models are tested on", at_least=1)
    reference: bool = key(
        True,
        "whether models are compared with the exact, centralised solution (other than ridge: needs archipel[exact])",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.zeros >= self.size:
            raise BadInput("problem.zeros", self.zeros, f"from 0 to {self.size - 1} weights that are zero")

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """Everyone's samples, and the distance to the centralised solution as the score."""
        if data_kind != "stored":
            raise BadInput("problem.kind", "regression", 'an algorithm for stored data, or kind = "linear" for streams')
        x, y = self.drawn(seed)
        kept = self.clients * self.samples
        loss, (l1, l2) = LOSSES[OBJECTIVES[self.objective][0]], self.regulariser(x[:kept], y[:kept])
        starts = np.arange(self.clients + 1) * self.samples
        tested = score_of(loss, x[kept:].astype(dtype), y[kept:].astype(dtype))

        def score(models: dict[str, Any], round: int) -> dict[str, Any]:
            scores = tested(models, round)
            return deviation(models, solution(self, seed)) | scores if self.reference else scores

        shards = Shards(x[:kept], y[:kept], starts, numbered(self.clients))
        assumed_public = (WEIGHT,) if self.objective == "elastic-net" and self.l1 is None else ()
        return stored_task(shards, score, dtype)._replace(
            loss=loss, regulariser=(l1, l2), assumed_public=assumed_public, frame=self.frame(dtype)
        )

    def frame(self, dtype: Any) -> Frame:
        """Inputs as they are."""
        predicts = LABEL if self.objective == "logistic" else NUMBER
        return Frame((self.size,), predicts=predicts, precision=np.dtype(dtype).name)

    def drawn(self, seed: int) -> tuple[Any, Any]:
        """All samples, those for the test last."""
        draw = np.random.default_rng([seed, 31])
        truth = draw.standard_normal(self.size)
        truth[self.size - self.zeros :] = 0.0
        truth *= math.sqrt(self.size - self.zeros) / np.linalg.norm(truth)  # the same size for every seed
        total = self.clients * self.samples + self.test
        x = draw.standard_normal((total, self.size))
        y = x @ truth + self.noise * draw.standard_normal(total)
        return x, np.where(y > 0, 1.0, -1.0) if self.objective == "logistic" else y

    def regulariser(self, x: Any, y: Any) -> tuple[float, float]:
        """l1 and l2 of the whole objective."""
        l1 = SPARSE * float(np.abs(x.T @ y).max()) if self.objective == "elastic-net" else 0.0
        l2 = OBJECTIVES[self.objective][1]
        return (l1 if self.l1 is None else self.l1), (l2 if self.l2 is None else self.l2)


def deviation(models: dict[str, Any], exact: Any) -> dict[str, Any]:
    """The thesis' normalised error: the sum over clients of ||w_k - w_c||^2 / ||w_c||^2."""
    found = models["clients"] if "clients" in models else models["server"][None]
    each = ((found - exact) ** 2).sum(1) / (exact**2).sum()
    return {"deviation": float(each.sum())}


@lru_cache(maxsize=32)
def solution(problem: Regression, seed: int) -> Any:
    """w_c of a problem and a seed."""
    x, y = problem.drawn(seed)
    kept = problem.clients * problem.samples
    x, y = x[:kept], y[:kept]
    return centralised(x, y, 1 / problem.samples, OBJECTIVES[problem.objective][0], *problem.regulariser(x, y))
