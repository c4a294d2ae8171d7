"""Linear models on test data: errors in the target's own units, classes told apart, for all and for each client."""

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from archipel.problems.losses.online import LINEAR
from archipel.problems.splits.shards import Shards

MANY = 1000  # more clients than this are scored by their first ones


@dataclass(frozen=True)
class Tested:
    """Scores models by test samples: the server's on everyone's, or the clients' on all (or each on its `own`).

    What ends in `.node` is of one client: the model that it uses, on its own test samples where it has any.
    """

    test: Shards
    clients: tuple[str, ...]  # who learns
    classes: bool
    unit: float = 1.0  # by what an error is multiplied to be in the target's own units
    own: bool = False

    def score(self, models: dict[str, Any], round: int) -> dict[str, Any]:
        """Everything that can be said of these models."""
        x, y, places = self.test.x, self.test.y, self.places()
        if "server" in models and not (self.own and "clients" in models):
            answers = x @ models["server"].astype(x.dtype)
            each = [self.measured(answers[a:b], y[a:b]) for a, b in places[:MANY]]
            return self.measured(answers, y) | self.of_each(each)
        found = models["clients"][:MANY].astype(x.dtype)
        if self.own:
            each = [self.measured(x[a:b] @ found[k], y[a:b]) for k, (a, b) in enumerate(places[: len(found)])]
        else:
            each = [self.measured(answers, y) for answers in (x @ found.T).T]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what nobody's samples can tell
            means = {metric: float(np.nanmean([one[metric] for one in each])) for metric in each[0]}
        return means | self.of_each(each)

    def places(self) -> list[tuple[int, int]]:
        """Where each client's own test samples are; nowhere if they are not the clients' own."""
        starts = self.test.starts.tolist()
        return list(pairwise(starts)) if self.test.names == self.clients else []

    def of_each(self, each: list[dict[str, float]]) -> dict[str, Any]:
        """One number a client: its error, or how well its samples are told apart."""
        names = ("accuracy", "auc", "f1", "calibration") if self.classes else ("rmse", "mse", "r2")
        return {f"{name}.node": np.array([one[name] for one in each]) for name in names if each}

    def measured(self, answers: Any, y: Any) -> dict[str, float]:
        """What is measured of answers; nothing where there are none."""
        if not len(y):
            names = ("accuracy", "loss", "auc", "f1", "calibration") if self.classes else ("mse", "rmse", "r2")
            return dict.fromkeys(names, float("nan"))
        if not self.classes:
            mse = float(np.mean((y - answers) ** 2))
            spread = float(np.var(y))
            explained = 1 - mse / spread if spread > 0 else float("nan")
            return {"mse": mse, "rmse": self.unit * mse**0.5, "r2": explained}
        right = np.where(answers > 0, 1, -1) == y
        loss = float(np.mean(np.logaddexp(0, -y * answers)))
        told = {"accuracy": float(np.mean(right)), "loss": loss, "auc": auc(answers, y), "f1": f1(answers, y)}
        return told | {"calibration": calibration(answers, y)}


@dataclass(frozen=True)
class Losses:
    """Scores models where a sample is a slope or a point, without a target: the mean loss of test samples."""

    test: Shards
    loss: int  # LINEAR or DISTANCE

    def score(self, models: dict[str, Any], round: int) -> dict[str, Any]:
        """Of the server's model, or of the clients' on everyone's samples."""
        x = self.test.x.astype(float)
        found = np.atleast_2d(models["server"] if "server" in models else models["clients"][:MANY]).astype(float)
        slopes, squares = found @ x.mean(0), np.square(found).sum(1)
        far = slopes if self.loss == LINEAR else (squares + np.square(x).sum(1).mean()) / 2 - slopes
        return {"loss": float(far.mean())} | ({} if "server" in models else {"loss.node": far})


def auc(answers: Any, y: Any) -> float:
    """The chance that a sample of class 1 is put above one of class -1; ties count half (Mann and Whitney, 1947).

    >>> auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([-1, -1, 1, 1]))
    0.75
    """
    positive = int(np.sum(y > 0))
    negative = len(y) - positive
    if not positive or not negative:
        return float("nan")
    _, inverse, counts = np.unique(answers, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[y > 0].sum() - positive * (positive + 1) / 2) / (positive * negative))


def f1(answers: Any, y: Any) -> float:
    """2 TP / (2 TP + FP + FN) of class 1; 0 where nothing is right.

    >>> f1(np.array([1.0, 1.0, -1.0]), np.array([1, -1, 1]))
    0.5
    """
    said, true = answers > 0, y > 0
    hits = int(np.sum(said & true))
    return 2 * hits / max(int(said.sum() + true.sum()), 1)


def calibration(answers: Any, y: Any, bins: int = 10) -> float:
    """Expected calibration error: how far probabilities are from shares, over ten bins of probability."""
    chance = 1 / (1 + np.exp(-np.clip(answers, -500, 500)))
    place = np.minimum((chance * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    apart = np.abs(np.bincount(place, chance - (y > 0), minlength=bins))
    return float(apart.sum() / max(count.sum(), 1))
