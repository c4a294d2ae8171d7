"""The PAO-Fed article's generator (39), drawn on the fly: a million clients need no memory for their data."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import key
from archipel.draws import ARRIVES, NOISE, SIGNAL, normal, normals, uniform, uniforms
from archipel.errors import BadInput
from archipel.node import cosine, cosines, fetch, kernel
from archipel.problems.frame import Frame
from archipel.problems.models.fourier import fourier, mapped
from archipel.problems.scoring.metrics import squared_error
from archipel.problems.task import MOST_CLIENTS, MOST_COSINES, Ahead, Problem, Task
from archipel.shard import WHOLE, drawn, ends, placed

LAGS = 5  # x_n .. x_{n-4}
SEEN = [0, 1, 4, 3]  # which of them a client sees
NAMES = ("now", "one before", "four before", "three before")
REHEARSED = 256  # clients whose correlation matrices are estimated
QUARTER = math.pi / 2
WARM_UP = 50  # rounds after which the signal has forgotten its start (0.9^50 = 0.005)


class Streams(NamedTuple):
    """All clients' streams: what they remember, their laws, and what they share."""

    past: Any  # (clients, 5): x_n .. x_{n-4}
    left: Any  # (clients, 1): samples still to come before the horizon
    law: Any  # (clients, 5): theta, mean, deviation of u, deviation of the noise, samples per horizon
    function: Any  # (2, 3): the coefficients of the target before and after the change
    when: Any  # (2,): the horizon, the round of the change
    directions: Any
    phases: Any
    scale: Any


@kernel
def target(past: Any, k: Any, function: Any, era: Any) -> Any:
    """(39) without its noise, for x = [x_n, x_{n-1}, x_{n-4}, x_{n-3}].

    sqrt(x1^2 + sin^2(pi x4)) + (0.8 - 0.5 exp(-x2^2)) x3
    """
    real = past.dtype.type
    wave = cosine(real(math.pi) * past[k, 3] - real(QUARTER), past)  # the sine, without a call
    slope = function[era, 1] - function[era, 2] * math.exp(-past[k, 1] * past[k, 1])
    return function[era, 0] * math.sqrt(past[k, 0] * past[k, 0] + wave * wave) + slope * past[k, 4]


@kernel
def arrives(left: Any, samples: Any, horizon: Any, moment: Any) -> Any:
    """Is there new data? Exactly `samples` of the rounds of a horizon, each as likely as the others."""
    k = moment.node
    gone = moment.round if moment.round < horizon else moment.round % horizon  # divisions are slow
    if gone == 0:
        left[k, 0] = samples
    if uniform(moment.key, ARRIVES) * (horizon - gone) < left[k, 0]:
        left[k, 0] -= 1
        return True
    return False


@cache
def arriving(total: Callable[..., Any]) -> Callable[..., Any]:
    @kernel
    def arrive(source: Any, few: Any, count: Any, left: Any, horizon: Any) -> Any:
        """`arrives` for some nodes, hardly with branches: those that have new data stay in the list."""
        if count == 0:
            return 0
        uniforms(few.first, few.keys, count, ARRIVES)
        kept, last, rest = 0, few.nodes[0], float(left[few.nodes[0], 0])
        for j in range(count):
            k, n = few.nodes[j], few.rounds[j]
            if k != last:  # a node's number is written down when all its rounds are through
                left[last, 0] = int(rest)
                last, rest = k, float(left[k, 0])
            gone = n if n < horizon else n % horizon
            if gone == 0:
                rest = float(total(source, k))
            came = few.first[j] * (horizon - gone) < rest
            rest -= came
            few.nodes[kept], few.rounds[kept], few.keys[kept], few.first[kept] = k, n, few.keys[j], rest
            kept += came
        left[last, 0] = int(rest)
        return kept

    return arrive


@kernel
def expected(source: Any, k: Any) -> Any:
    """How many samples a client sees within the horizon."""
    return source.law[k, 4]


@kernel
def draw(source: Any, few: Any, count: Any) -> Any:
    """Which of some clients have a new sample, and what is random about it."""
    kept = arriving_as_expected(source, few, count, source.left, source.when[0])
    for j in range(kept):
        fetch(source.past, few.nodes[j])
        fetch(source.law, few.nodes[j])
    normals(few.first, few.keys, kept, SIGNAL)
    normals(few.second, few.keys, kept, NOISE)
    return kept


arriving_as_expected = arriving(expected)


@kernel
def look(source: Any, sample: Any, moment: Any, innovation: Any, noise: Any) -> Any:
    """The client's next sample, x_n = theta x_{n-1} + sqrt(1 - theta^2) u_n, u_n normal, in the space of the features,
    and what (39) has for it.
    """
    k, past, law, x = moment.node, source.past, source.law, sample.x
    theta = law[k, 0]
    newest = theta * past[k, 0] + math.sqrt(1.0 - theta * theta) * (law[k, 1] + law[k, 2] * innovation)
    past[k, 4], past[k, 3], past[k, 2], past[k, 1] = past[k, 3], past[k, 2], past[k, 1], past[k, 0]
    past[k, 0] = newest
    era = 0 if moment.round < source.when[1] else 1
    sample.target[0] = target(past, k, source.function, era) + law[k, 3] * noise
    x[0], x[1], x[2], x[3] = past[k, 0], past[k, 1], past[k, 4], past[k, 3]
    cosines(sample.features, source.phases, source.directions, x, source.scale[0])
    return True, sample


@kernel
def observe(source: Any, sample: Any, moment: Any) -> Any:
    """The same for one client, if a sample arrives this round."""
    if not arrives(source.left, source.law[moment.node, 4], source.when[0], moment):
        return False, sample
    return look(source, sample, moment, normal(moment.key, SIGNAL), normal(moment.key, NOISE))


class Scratch(NamedTuple):
    """A sample and the inputs it was made of."""

    features: Any
    target: Any
    x: Any


@dataclass(frozen=True)
class Synthetic(Problem):
    """Clients with different autoregressive inputs learn one nonlinear function of four of them, (39).

    Client k is in group k mod groups of those that `samples` has.
    """

    takes_shard: ClassVar[bool] = True

    clients: int = key(256, "how many clients there are", at_least=1, at_most=MOST_CLIENTS, symbol="K")
    samples: tuple[int, ...] = key(
        (500, 1000, 1500, 2000), "how many samples a client of each group sees within the horizon", at_least=0
    )
    horizon: int = key(2000, "the rounds over which a client's samples arrive", at_least=1, unit="rounds")
    features: int = key(
        200, "how many random Fourier features inputs pass through", at_least=1, at_most=MOST_COSINES, symbol="D"
    )
    width: float = key(3.0, "the width of the kernel that the features stand for", above=0)
    test: int = key(1000, "how many samples models are tested on", at_least=1)
    change: int = key(0, "the round from which the function is another one; 0: never", at_least=0, noun="a round")
    changed: tuple[float, ...] = key((-1.0, 0.8, 0.5), "the function's coefficients after the change", length=3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.samples or max(self.samples) > self.horizon:
            raise BadInput("problem.samples", self.samples, f"sizes from 0 to the horizon ({self.horizon})")

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str, *, shard: slice = WHOLE) -> Task:
        """The clients' laws, the test set and the feature space of a seed."""
        if data_kind != "stream":
            raise BadInput("problem.kind", "synthetic", "data that is stored, for this algorithm; (39) is a stream")
        world = fourier(4, self.features, self.width, seed, dtype)
        function = np.array([[1.0, 0.8, 0.5], self.changed], dtype)
        source = Streams(
            np.zeros((self.clients, LAGS), dtype),
            np.zeros((self.clients, 1), np.int64),
            placed(self.laws(self.clients, seed, 1, shard).astype(dtype), shard, self.clients),
            function,
            np.array([self.horizon, self.change or np.iinfo(np.int64).max], np.int64),
            world.directions,
            world.phases,
            np.array([world.scale], dtype),
        )
        sample = Scratch(np.zeros(self.features, dtype), np.zeros(1, dtype), np.zeros(4, dtype))
        past, noise = self.held_out(seed)
        test_x = mapped(world, past[:, SEEN])
        coefficients = function.astype(float)
        wanted = [np.array([target(past, k, coefficients, era) for k in range(self.test)]) + noise for era in (0, 1)]

        def score(models: dict[str, Any], round: int) -> dict[str, Any]:
            y = wanted[0] if round <= source.when[1] else wanted[1]
            return squared_error(models, test_x, y)

        def inputs(samples: int) -> Iterator[Any]:
            first = self.laws(self.clients, seed, 1, slice(0, REHEARSED)).astype(dtype)
            return self.rehearse(first, world, seed, samples)

        frame = Frame((4,), NAMES, world=world)
        return Task(
            source, sample, observe, self.features, self.clients, score, inputs, frame=frame, ahead=Ahead(draw, look)
        )

    def laws(self, clients: int, seed: int, purpose: int, shard: slice = WHOLE) -> Any:
        """Each client's theta, mean, deviation, noise and number of samples, as section V-A says."""

        def between(low: float, high: float, column: int) -> Any:
            return low + (high - low) * drawn([seed, purpose], shard, clients, column)

        sizes = np.asarray(self.samples)[np.arange(*ends(shard, clients)) % len(self.samples)]
        return np.stack(
            [
                between(0.2, 0.9, 0),
                between(-0.2, 0.2, 1),
                np.sqrt(between(0.2, 1.2, 2)),
                np.sqrt(between(0.005, 0.03, 3)),
                sizes,
            ],
            1,
        )

    def held_out(self, seed: int) -> tuple[Any, Any]:
        """Inputs and noise of the test set: one draw each of as many clients that take no part."""
        law = self.laws(self.test, seed, 2)
        draw = np.random.default_rng([seed, 3])
        past = next(signals(law, draw))
        return past, law[:, 3] * draw.standard_normal(self.test)

    def rehearse(self, law: Any, world: Any, seed: int, samples: int) -> Iterator[Any]:
        """For each client of some laws, feature vectors as it will see them (the law's, not the run's own draws)."""
        signal = signals(law.astype(float), np.random.default_rng([seed, 4]))
        past = np.stack([next(signal) for _ in range(samples)], 1)
        for mine in past:
            yield mapped(world, mine[:, SEEN].astype(world.phases.dtype))


def signals(law: Any, draw: np.random.Generator) -> Iterator[Any]:
    """The inputs of all clients of some laws, round by round, once they have forgotten their start."""
    past = np.zeros((len(law), LAGS))
    for n in count():
        u = law[:, 1] + law[:, 2] * draw.standard_normal(len(law))
        new = law[:, 0] * past[:, 0] + np.sqrt(1 - law[:, 0] ** 2) * u
        past = np.concatenate([new[:, None], past[:, :-1]], 1)
        if n >= WARM_UP:
            yield past
