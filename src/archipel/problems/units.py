"""Units that nobody declares, `scale = "private"`: found together, from clipped sums with noise that clients pay for.

A client's values are clipped to declared ranges and brought to [-1, 1]; it releases its number of samples, and of each
column the sum and the sum of squares, with Gaussian noise, once. A sample is then a point (z, z^2) a column, on a piece
of a parabola no two points of which are further apart than 2: replaced by another, it moves the sums of C columns by at
most 2 sqrt(C), and added or removed by less. Where all of a client's samples are protected together, its means are
released in place of sums; they lie between these points, so the same holds.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from archipel.clients import People
from archipel.describe import quoted
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.privacy.gaussian import epsilon_of, mu_of
from archipel.privacy.noise import GAUSSIAN, disturb

BEFORE = (1 << 32) - 1  # as the round of its draws: no other round has them
LEAST = 1e-3  # of a spread, over half of its range


def check_ranges(problem: Any) -> None:
    """Sums that are private need bounds that are public."""
    for column, given in problem.ranges.items():
        numbers = [*given] if isinstance(given, list | tuple) else []
        real = [v for v in numbers if isinstance(v, int | float) and not isinstance(v, bool) and np.isfinite(v)]
        if len(real) != 2 or len(numbers) != 2 or not real[0] < real[1]:
            raise BadInput(f"problem.ranges.{column}", given, "two numbers, the lower first, as in [-2, 35]")
    if not isinstance(problem.scale, str):
        if problem.ranges and not problem.scale:
            raise BadInput("problem.ranges", ", ".join(problem.ranges), 'none, or scale = "private", which needs them')
        return
    if problem.scale != "private":
        right = '"private", or a table, as in temperature = { center = 12, spread = 6 }'
        raise BadInput("problem.scale", problem.scale, right)
    needed = columns_of(problem)
    lacking = [name for name in needed if name not in problem.ranges]
    if lacking or problem.center or not problem.standardise:
        first = (*needed, "depth")[0]
        right = f"ranges of {', '.join(lacking) or 'all columns'}, as in [problem.ranges] {quoted(first)} = [-2, 35]"
        raise BadInput("problem.scale", "private", f"{right}, and neither center nor standardise = false")
    unknown = [name for name in problem.ranges if name not in needed]
    if unknown:
        raise BadInput(f"problem.ranges.{unknown[0]}", problem.ranges[unknown[0]], f"one of {', '.join(needed)}")


def check_declared(problem: Any) -> None:
    """Refuse units that would have to be taken from everyone's data."""
    needed = [name for name in problem.columns if name not in problem.categories]
    needed += [problem.target] if problem.loss != "logistic" and problem.aims else []
    lacking = [name for name in needed if name not in problem.centers or name not in problem.spreads]
    if problem.standardise and lacking:
        units = f"the units of {', '.join(lacking)}, as in {quoted(lacking[0])} = {{ center = 12, spread = 6 }}"
        right = f"{units}, or standardise = false, or private: nobody sees everyone's data"
        raise BadInput("problem.scale", ", ".join(problem.spreads) or "(none)", right)


def columns_of(problem: Any) -> tuple[str, ...]:
    """The columns whose units are found."""
    words = problem.categories
    target = () if problem.loss == "logistic" else (problem.target,)
    return (*(name for name in problem.columns if name not in words), *target)


def ranges_of(problem: Any) -> tuple[Any, Any]:
    """The middle of each range, and half of its length."""
    low, high = np.array([problem.ranges[name] for name in columns_of(problem)], float).T
    return (low + high) / 2, (high - low) / 2


def with_units(problem: Any, known: Any = None) -> Any:
    """The problem in known units, centres before spreads; in those of its ranges before any are known."""
    names = columns_of(problem)
    centers, spreads = ranges_of(problem) if known is None else (known[: len(names)], known[len(names) :])
    units = {name: {"center": float(c), "spread": float(s)} for name, c, s in zip(names, centers, spreads)}
    return replace(problem, scale=units)


def sums_of(problem: Any, people: People, seed: int, unit: str) -> dict[int, Any]:
    """What every client that is seen here would say, without noise, by number: a count, sums, sums of squares."""
    plain = with_units(problem)
    train, _ = plain.split_apart(people, plain.read_apart(people), seed)
    middle, half = ranges_of(problem)
    found = {}
    for k, name in enumerate(people.names):
        if people.sees(name):
            mine = slice(*train.starts[k : k + 2])
            table = np.c_[train.x[mine], train.y[mine]]
            places = [*map((*train.columns, problem.target).index, columns_of(problem))]
            z = np.clip((table[:, places] - middle) / half, -1, 1)
            sums = np.concatenate([[len(z)], z.sum(0), (z**2).sum(0)])
            found[k] = sums / max(len(z), 1) if unit == "client" else sums
    return found


def noise_scale(columns: int, price: float) -> float:
    """The deviation of noise that costs so much zCDP."""
    return 2 * math.sqrt(columns) / math.sqrt(2 * price)


def noised(sums: Any, price: float, unit: str, key: Any) -> Any:
    """The same with noise. That a client is there is not hidden, how much it has is."""
    said = np.array(sums)
    disturb(said[1:] if unit == "client" else said, GAUSSIAN, noise_scale(len(sums) // 2, price), key)
    return said


def found(problem: Any, words: Any) -> Any:
    """Centres and spreads, from everyone's noised sums, a row each.

    A variance is at least twice the noise in it: units that are too large cost some accuracy, too small ones a run.
    """
    (middle, half), total = ranges_of(problem), np.sum(words, axis=0)
    count = max(float(total[0]), 1.0)
    sums, squares = np.split(total[1:] / count, 2)
    mean = np.clip(sums, -1, 1)
    least = max(LEAST**2, 2 * noise_scale(len(half), problem.price) * math.sqrt(len(words)) / count)
    spread = np.sqrt(np.clip(squares - mean**2, min(least, 1.0), 1.0))
    return np.concatenate([middle + half * mean, half * spread])


def found_by_all(problem: Any, people: People, seed: int, unit: str) -> Any:
    """What a simulation finds, with everyone's noise from the seed."""
    sums = sums_of(problem, people, seed, unit)
    return found(problem, [noised(sums[k], problem.price, unit, key_of(seed, k, BEFORE)) for k in sorted(sums)])


def left_of(privacy: Any, price: float, clients: int, seed: int) -> Any:
    """What is left of every client's target when units are paid for: Gaussian releases add up in zCDP, exactly."""
    if not privacy.has_target:
        return privacy
    in_zcdp = privacy.rho is not None
    whole = privacy.rhos(clients, seed) if in_zcdp else mu_of(privacy.epsilons(clients, seed), privacy.delta) ** 2 / 2
    if not price < np.min(whole):
        raise BadInput("problem.price", price, f"less than {np.min(whole):.4g}, all that a client may pay (zCDP)")
    left = np.atleast_1d(whole - price)
    if in_zcdp:
        return replace(privacy, rho=tuple(left.tolist()))
    return replace(privacy, epsilon=tuple(np.atleast_1d(epsilon_of(np.sqrt(2 * left), privacy.delta)).tolist()))
