"""Streams whose law drifts, drawn on the fly, and what only a meter may know of them.

Each client sees one new sample a round. What is best for all together moves along a circle, slower and slower: after t
rounds it has come `speed` t^`drift` of an angle, so that the path of the best models grows as t^drift. Noise is uniform
and so bounded, and gradients with it.

Beside it section 2.4 of the dissertation, `GrowingMean`, where there is nothing to learn.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import key
from archipel.draws import GOLDEN, NOISE, SIGNAL, key_of, normal, uniform
from archipel.errors import BadInput
from archipel.node import exact
from archipel.problems.frame import LABEL, NUMBER, Frame
from archipel.problems.losses.online import DISTANCE, LINEAR, ONLINE_LOSSES
from archipel.problems.losses.supervised import LOGISTIC, SQUARED
from archipel.problems.measured import score_of
from archipel.problems.stored import Seen
from archipel.problems.task import MOST_CLIENTS, MOST_FEATURES, Oracle, Problem, Task

ROOT_3 = math.sqrt(3.0)  # a uniform draw from -ROOT_3 to ROOT_3 has deviation one
REHEARSED = 64  # clients whose inputs are shown to those who ask for examples


class Stream(NamedTuple):
    """Where all clients' samples come from."""

    centre: Any  # (rounds or 1, size): what is best for all, a slope for linear losses
    lean: Any  # (clients, size): how a client's own differs; they add up to zero
    law: Any  # (3,): the loss, the deviation of the noise, how far apart classes are


@exact
def observe(source: Any, sample: Any, moment: Any) -> Any:
    """This round's sample: a slope, a point, or features with an answer to them."""
    centre = source.centre[min(moment.round, source.centre.shape[0] - 1)]
    lean, loss, noise = source.lean[moment.node], source.law[0], source.law[1]
    size = centre.shape[0]
    if loss in (LINEAR, DISTANCE):
        for j in range(size):
            spread = noise * ROOT_3 * (2.0 * uniform(moment.key, SIGNAL, j) - 1.0)
            sample.features[j] = centre[j] + lean[j] + spread
        sample.target[0] = 0.0
        return True, sample
    luck = uniform(moment.key, NOISE)
    if loss == LOGISTIC:
        sample.target[0] = 1.0 if luck < 0.5 else -1.0
        side, length = sample.target[0] * source.law[2], 0.0
        for j in range(size):
            sample.features[j] = side * (centre[j] + lean[j]) + ROOT_3 * (2.0 * uniform(moment.key, SIGNAL, j) - 1.0)
            length += abs(sample.features[j])
        for j in range(size):
            sample.features[j] /= length  # of L1 norm one: no gradient is longer
        return True, sample
    scale, answer = ROOT_3 / math.sqrt(size), 0.0
    for j in range(size):
        sample.features[j] = scale * (2.0 * uniform(moment.key, SIGNAL, j) - 1.0)
        answer += sample.features[j] * (centre[j] + lean[j])
    sample.target[0] = answer + noise * ROOT_3 * (2.0 * luck - 1.0)
    return True, sample


# --- the same draws, many at once, for meters ---------------------------------------------------------------


def scrambled(x: Any) -> Any:
    """`draws.scramble` of many."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def keys_of(seed: int, clients: int, first: int, last: int) -> Any:
    """(rounds, clients) keys, as `draws.key_of` has them."""
    with np.errstate(over="ignore"):
        nodes = scrambled(np.uint64(seed & (2**64 - 1)) * np.uint64(GOLDEN) + np.arange(clients, dtype=np.uint64))
        moments = np.arange(first, last, dtype=np.uint64) * np.uint64(GOLDEN)
        return scrambled(nodes[None] + moments[:, None])


def uniforms_of(keys: Any, purpose: int, count: int) -> Any:
    """`draws.uniform` for index 0 .. count - 1 of every key; a last axis more."""
    with np.errstate(over="ignore"):
        steps = (np.uint64(purpose << 32) + np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(GOLDEN)
        drawn = scrambled(keys[..., None] + steps)
    return ((drawn >> np.uint64(11)).astype(float) + 0.5) * 1.1102230246251565e-16


@dataclass(frozen=True)
class Drifting(Problem):
    """Online losses around something that is best for all, which stays where it is or moves on a circle.

    `loss`: "distance" (to a point), "linear" (a slope), of an answer to features "squared", "absolute", "huber", or
    "logistic", of two classes on either side of zero: section 2.4 with something to learn. After t rounds the angle is
    `speed` t^`drift`.
    """

    clients: int = key(10, "how many clients there are", at_least=1, at_most=MOST_CLIENTS)
    size: int = key(5, "how many weights the model has", at_least=2, at_most=MOST_FEATURES)
    loss: str = key("distance", "what is minimised", choices=tuple(ONLINE_LOSSES))
    space: str = key("ball", "where what is best lies", choices=("ball", "simplex"))
    reach: float = key(0.6, "how far from the middle of the space what is best lies", at_least=0, at_most=1)
    noise: float = key(0.3, "how far a client's samples are from its own law", at_least=0)
    lean: float = key(0.2, "how far clients differ from what is best for all", at_least=0)
    drift: float = key(0.0, "the power of time with which what is best moves; 0: it stays", at_least=0, at_most=1)
    speed: float = key(0.3, "the angle that what is best has moved after one round", at_least=0, unit="radians")
    sharpness: float = key(8.0, "how far apart the two classes of the logistic loss are, in their spread", at_least=0)
    ridge: float = key(0.0, "the weight of ||w||^2 / 2 in each client's loss", at_least=0)
    test: int = key(500, "how many samples models are tested on", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space == "simplex" and self.size < 3:
            raise BadInput("problem.size", self.size, "at least 3, for a simplex")

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """The clients' laws for a seed, and what a meter knows."""
        if data_kind != "stream":
            raise BadInput("problem.kind", "drifting", "stored data, for this algorithm; this is a stream")
        code, centre = ONLINE_LOSSES[self.loss], self.path(seed, rounds)
        lean = self.leans(seed)
        source = Stream(centre, lean, np.array([code, self.noise, self.sharpness]))
        sample = Seen(np.zeros(self.size, dtype), np.zeros(1, dtype))
        known = code in (LINEAR, DISTANCE, SQUARED)
        oracle = Oracle(
            centre if known else np.zeros((0, self.size)), lambda first, last: self.past(source, seed, first, last)
        )
        return Task(
            source, sample, observe, self.size, self.clients, self.score(code, centre, seed), self.inputs(source, seed),
            loss=code, regulariser=(0.0, self.clients * self.ridge / 2), oracle=oracle, frame=self.frame(),
        )  # fmt: skip

    def frame(self) -> Frame | None:
        """Nothing is predicted where a model is a point or a slope."""
        if ONLINE_LOSSES[self.loss] in (LINEAR, DISTANCE):
            return None
        return Frame((self.size,), predicts=LABEL if self.loss == "logistic" else NUMBER)

    def path(self, seed: int, rounds: int) -> Any:
        """What is best for all in each round, one row where it stays; for linear losses the slope that points away."""
        still = self.drift == 0 or self.speed == 0
        times = np.arange(1, 2 if still else rounds + 1, dtype=float)
        angle = 2 * math.pi * uniform(key_of(seed, 0, 0), NOISE, 1) + (0.0 if still else self.speed * times**self.drift)
        axes = np.zeros((2, self.size))
        if self.space == "ball":
            axes[0, 0] = axes[1, 1] = 1.0
        else:  # two directions that keep the sum
            axes[0, :2] = np.array([1, -1]) / math.sqrt(2)
            axes[1, :3] = np.array([1, 1, -2]) / math.sqrt(6)
        away = self.reach * np.stack([np.cos(angle), np.sin(angle)], -1).reshape(-1, 2) @ axes
        if ONLINE_LOSSES[self.loss] == LINEAR:
            return -away
        return away if self.space == "ball" else (1 + away) / self.size

    def leans(self, seed: int) -> Any:
        """(clients, size): what adds up to zero."""
        lean = np.random.default_rng([seed, 51]).standard_normal((self.clients, self.size)) * self.lean
        lean *= 1.0 if self.space == "ball" or ONLINE_LOSSES[self.loss] == LINEAR else 1 / self.size
        return lean - lean.mean(0)

    def past(self, source: Stream, seed: int, first: int, last: int) -> tuple[Any, Any]:
        """(rounds, clients, size) features and (rounds, clients) targets of rounds first to last - 1."""
        keys = keys_of(seed, self.clients, first, last)
        rows = np.minimum(np.arange(first, last), len(source.centre) - 1)
        centre = source.centre[rows][:, None] + source.lean
        spread = ROOT_3 * (2 * uniforms_of(keys, SIGNAL, self.size) - 1)
        if source.law[0] in (LINEAR, DISTANCE):
            return centre + self.noise * spread, np.zeros(keys.shape)
        luck = uniforms_of(keys, NOISE, 1)[..., 0]
        if source.law[0] == LOGISTIC:
            labels = np.where(luck < 0.5, 1.0, -1.0)
            return self.sided(labels, centre, spread), labels
        features = spread / math.sqrt(self.size)
        return features, np.sum(features * centre, -1) + self.noise * ROOT_3 * (2 * luck - 1)

    def sided(self, labels: Any, centre: Any, spread: Any) -> Any:
        """Features on their label's side, of L1 norm one."""
        raw = self.sharpness * labels[..., None] * centre + spread
        return raw / np.abs(raw).sum(-1, keepdims=True)

    def score(self, code: int, centre: Any, seed: int) -> Any:
        """How far models are from what is best now; with an answer to features, their error on it."""
        draw = np.random.default_rng([seed, 52])
        spread = ROOT_3 * draw.uniform(-1, 1, (self.test, self.size))
        labels = np.where(draw.uniform(size=self.test) < 0.5, 1.0, -1.0)

        def score(models: dict[str, Any], round: int) -> dict[str, Any]:
            now = centre[min(max(round - 1, 0), len(centre) - 1)]
            if code in (LINEAR, DISTANCE):
                found = models["clients"] if "clients" in models else models["server"][None]
                apart = found @ now if code == LINEAR else ((found - now) ** 2).sum(1)
                return {"loss" if code == LINEAR else "msd": float(apart.mean())}
            if code == LOGISTIC:
                return score_of(code, self.sided(labels, now, spread), labels)(models, round)
            x = spread / math.sqrt(self.size)
            return score_of(code, x, x @ now)(models, round)

        return score

    def inputs(self, source: Stream, seed: int) -> Any:
        """Examples of what clients see."""

        def inputs(samples: int) -> Iterator[Any]:
            features, _ = self.past(source, seed, 0, samples)
            for k in range(min(self.clients, REHEARSED)):
                yield features[:, k]

        return inputs


# --- section 2.4 --------------------------------------------------------------------------------------------


@exact
def observe_growing(source: Any, sample: Any, moment: Any) -> Any:
    """A label by a coin, features around (label + t / 2), of length one: they tend to a constant."""
    label = 1.0 if uniform(moment.key, NOISE) < 0.5 else -1.0
    square = 0.0
    for j in range(sample.features.shape[0]):
        value = label + source.law[0] * (moment.round + 1.0) + normal(moment.key, SIGNAL, j)
        sample.features[j] = value
        square += value * value
    length = math.sqrt(square)
    for j in range(sample.features.shape[0]):
        sample.features[j] /= length
    sample.target[0] = label
    return True, sample


class Growth(NamedTuple):
    law: Any  # (1,): by how much the mean grows in a round
    none: Any


@dataclass(frozen=True)
class GrowingMean(Problem):
    """Section 2.4 of the dissertation: online logistic regression on data whose mean is label + t / 2 for both classes.

    Normalised, all features tend to (1, ..., 1) / sqrt(size), whatever the label: nothing is left to learn.
    """

    clients: int = key(3, "how many clients there are", at_least=1, at_most=MOST_CLIENTS)
    size: int = key(5, "how many weights the model has", at_least=1, at_most=MOST_FEATURES)
    growth: float = key(0.5, "by how much the mean of the inputs grows in a round", at_least=0)
    ridge: float = key(0.1, "the weight of ||w||^2 / 2 in each client's loss", at_least=0)

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """The stream of a seed."""
        if data_kind != "stream":
            raise BadInput("problem.kind", "growing-mean", "stored data, for this algorithm; this is a stream")
        source = Growth(np.array([self.growth]), np.zeros((self.clients, 1)))
        sample = Seen(np.zeros(self.size, dtype), np.zeros(1, dtype))
        x, y = (part.reshape(-1, *part.shape[2:]) for part in self.past(seed, rounds, rounds + 100))
        oracle = Oracle(np.zeros((0, self.size)), lambda first, last: self.past(seed, first, last))

        def inputs(samples: int) -> Iterator[Any]:
            features, _ = self.past(seed, 0, samples)
            for k in range(self.clients):
                yield features[:, k]

        return Task(
            source, sample, observe_growing, self.size, self.clients, score_of(LOGISTIC, x, y), inputs, loss=LOGISTIC,
            regulariser=(0.0, self.clients * self.ridge / 2), oracle=oracle, frame=Frame((self.size,), predicts=LABEL),
        )  # fmt: skip

    def past(self, seed: int, first: int, last: int) -> tuple[Any, Any]:
        """(rounds, clients, size) features and (rounds, clients) labels of rounds first to last - 1."""
        from scipy.special import ndtri

        keys = keys_of(seed, self.clients, first, last)
        labels = np.where(uniforms_of(keys, NOISE, 1)[..., 0] < 0.5, 1.0, -1.0)
        means = labels + self.growth * np.arange(first + 1, last + 1)[:, None]
        raw = means[..., None] + ndtri(uniforms_of(keys, SIGNAL, self.size))
        return raw / np.linalg.norm(raw, axis=-1, keepdims=True), labels
