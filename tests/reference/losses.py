"""Recorded losses of T rounds and V clients, as `archipel.theory.comparators` takes them."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from archipel.theory.comparators import Logistic, Quadratic, Total


class Losses(Protocol):
    """What was recorded: a loss for every round and client."""

    @property
    def rounds(self) -> int: ...
    def values(self, models: Any) -> Any:
        """f_{u,t}(models), shape (T, V); models is (d,), (T, d) with one for all, or (T, V, d)."""
        ...

    def total(self, first: int, last: int) -> Total: ...


def per_client(models: Any) -> Any:
    """Models with an axis for the clients: (d,) and (T, d) are the same for all."""
    models = np.asarray(models)
    return models[:, None, :] if models.ndim == 2 else models


@dataclass(frozen=True)
class LinearLosses:
    """f = slope @ x; slopes is (T, V, d)."""

    slopes: Any

    @property
    def rounds(self) -> int:
        return len(self.slopes)

    def values(self, models: Any) -> Any:
        return np.sum(self.slopes * per_client(models), axis=-1)

    def total(self, first: int, last: int) -> Quadratic:
        slope = self.slopes[first:last].sum((0, 1))
        return Quadratic(np.zeros((slope.size, slope.size)), slope, 0.0)


@dataclass(frozen=True)
class DistanceLosses:
    """f = ||x - centre||^2 / 2; centres is (T, V, d)."""

    centres: Any

    @property
    def rounds(self) -> int:
        return len(self.centres)

    def values(self, models: Any) -> Any:
        return np.sum((self.centres - per_client(models)) ** 2, axis=-1) / 2

    def total(self, first: int, last: int) -> Quadratic:
        part = self.centres[first:last]
        many, size = part.shape[0] * part.shape[1], part.shape[2]
        return Quadratic(many * np.eye(size), -part.sum((0, 1)), float(np.sum(part**2) / 2))


@dataclass(frozen=True)
class SquaredLosses:
    """f = (target - features @ x)^2 / 2; features is (T, V, d), targets (T, V)."""

    features: Any
    targets: Any

    @property
    def rounds(self) -> int:
        return len(self.features)

    def values(self, models: Any) -> Any:
        return (self.targets - np.sum(self.features * per_client(models), axis=-1)) ** 2 / 2

    def total(self, first: int, last: int) -> Quadratic:
        inputs = self.features[first:last].reshape(-1, self.features.shape[-1])
        targets = self.targets[first:last].ravel()
        return Quadratic(inputs.T @ inputs, -targets @ inputs, float(targets @ targets / 2))


@dataclass(frozen=True)
class LogisticLosses:
    """f = log(1 + exp(-label features @ x)) + ridge / 2 ||x||^2, section 2.4; labels is (T, V) of 1 and -1."""

    features: Any
    labels: Any
    ridge: float = 0.0

    @property
    def rounds(self) -> int:
        return len(self.features)

    def values(self, models: Any) -> Any:
        models = per_client(models)
        margins = self.labels * np.sum(self.features * models, axis=-1)
        return np.logaddexp(0, -margins) + self.ridge / 2 * np.sum(models**2, axis=-1)

    def total(self, first: int, last: int) -> Logistic:
        labels = self.labels[first:last].ravel()
        features = self.features[first:last].reshape(-1, self.features.shape[-1])
        return Logistic(features, labels, self.ridge * labels.size)
