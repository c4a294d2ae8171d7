"""How personal models are scored: everyone by its own cluster's truth and test data."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.problems.losses.supervised import LOGISTIC, LOSSES, values
from archipel.problems.splits.shards import Shards

MANY = 1000  # more clients than this are tested by their first ones


@dataclass(frozen=True)
class Scorer:
    """Scores the model that each client has, and the one that its server has for it.

    `msd` is (50): the mean over clients of ||w_k - w_q||^2 / ||w_q||^2, both norms squared; `mse` (or `accuracy`
    and `loss`) is measured on test data. What ends in `.server` scores the servers' models, in `.cluster` one
    cluster.
    """

    loss: str
    cluster: Any  # of each client, in truth
    test: Shards  # one shard for each cluster
    truth: Any = None  # (clusters, size), where it is known
    discovering: bool = False  # whether clusters are to be found

    def score(self, models: dict[str, Any], round: int) -> dict[str, Any]:
        """Everything that can be said of these models."""
        found: dict[str, Any] = {}
        for suffix, personal in self.views(models).items():
            each = self.tested(personal)
            if self.truth is not None:
                each = {"msd": deviations(personal, self.truth[self.cluster]), **each}
            for metric, scores in each.items():
                found[metric + suffix] = float(np.mean(scores))
                found[f"{metric}{suffix}.cluster"] = self.by_cluster(scores)
        if self.discovering and "clusters" in models:
            found["rand"] = adjusted_rand(self.cluster, models["clusters"])
        return found

    def views(self, models: dict[str, Any]) -> dict[str, Any]:
        """(clients, size) of each sort: the clients' own models, and what their servers have for them."""
        found = {}
        if "clients" in models:
            found[""] = models["clients"]
        if "told" in models:
            found[".server"] = models["told"]
        elif "server" in models:
            found[".server"] = np.broadcast_to(models["server"], (len(self.cluster), models["server"].shape[-1]))
        return found

    def by_cluster(self, scores: Any) -> Any:
        """The mean of each cluster's clients."""
        mine = self.cluster[: len(scores)]
        total = np.bincount(mine, scores, minlength=self.test.clients)
        return total / np.maximum(np.bincount(mine, minlength=self.test.clients), 1)

    def tested(self, personal: Any) -> dict[str, Any]:
        """Each client's model on the test data of its cluster."""
        personal = np.asarray(personal[:MANY], float)
        scores: dict[str, Any] = {}
        for q, (x, y) in enumerate(self.test):
            who = np.flatnonzero(self.cluster[: len(personal)] == q)
            answers = x @ personal[who].T
            for metric, value in measured(self.loss, answers, y[:, None]).items():
                scores.setdefault(metric, np.zeros(len(personal)))[who] = value.mean(0)
        return scores


def measured(loss: str, answers: Any, targets: Any) -> dict[str, Any]:
    """What is measured of answers: the squared error, or whether the class is right, and the loss."""
    losses = values(LOSSES[loss], answers, targets)
    if LOSSES[loss] != LOGISTIC:
        return {"mse": losses}
    return {"accuracy": np.where(answers > 0, 1, -1) == targets, "loss": losses}


def deviations(models: Any, truth: Any) -> Any:
    """||w_k - w||^2 / ||w||^2 of each model, (50).

    >>> deviations(np.array([[3.0, 4.0]]), np.array([[3.0, 0.0]]))
    array([1.77777778])
    """
    return np.sum((models - truth) ** 2, -1) / np.sum(truth**2, -1)


def adjusted_rand(truth: Any, found: Any) -> float:
    """How far two partitions agree, 1 if they are the same, 0 on average for random ones (Hubert and Arabie, 1985).

    >>> adjusted_rand(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    _, a = np.unique(truth, return_inverse=True)
    _, b = np.unique(found, return_inverse=True)
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    together, in_a, in_b = (np.sum(n * (n - 1) / 2) for n in (table, table.sum(1), table.sum(0)))
    pairs = len(a) * (len(a) - 1) / 2
    expected = in_a * in_b / pairs if pairs else 0.0
    most = (in_a + in_b) / 2
    return 1.0 if most == expected else float((together - expected) / (most - expected))
