"""What goes wrong: clients that are away, messages that are late or lost, devices that fail.

Only the simulator plays an environment; reality plays its own. All draws are keyed by (seed, client, round), so every
algorithm of a comparison meets the same schedule, and a recorded schedule can be played again.
"""

import csv
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from archipel.draws import AVAILABLE, DELAY, key_of, uniform
from archipel.errors import BadInput
from archipel.node import kernel

ABSENT, BROKEN, LOST = -2, -3, -1  # in place of a delay, in a schedule
UNREADABLE = (OSError, KeyError, ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
FOREVER = np.iinfo(np.int64).max


class Conditions(NamedTuple):
    """An environment as arrays: every law is a table, so that one compilation serves them all."""

    chance: Any  # (phases, clients): probability to be available
    phase: Any  # (1,): rounds a phase lasts
    law: Any  # (clients,): which delay law a client's messages follow
    tail: Any  # (laws, limit + 2): P(delay >= l); beyond the limit a message is lost
    broken: Any  # (clients, 2): a client does not work from this round until that one
    recorded: Any  # (rounds, clients) of delays or ABSENT, BROKEN, LOST; empty when conditions are drawn


@kernel
def works(conditions: Any, moment: Any) -> Any:
    """A client that malfunctions does not learn either."""
    if conditions.recorded.shape[0] > 0:
        return conditions.recorded[moment.round % conditions.recorded.shape[0], moment.node] != BROKEN
    return not conditions.broken[moment.node, 0] <= moment.round < conditions.broken[moment.node, 1]


@kernel
def available(conditions: Any, moment: Any) -> Any:
    """The trial on p_{k,n}: can the client talk this round."""
    if conditions.recorded.shape[0] > 0:
        return conditions.recorded[moment.round % conditions.recorded.shape[0], moment.node] >= LOST
    phase = 0
    if conditions.chance.shape[0] > 1:  # divisions are slow
        phase = (moment.round // conditions.phase[0]) % conditions.chance.shape[0]
    return uniform(moment.key, AVAILABLE) < conditions.chance[phase, moment.node]


@kernel
def delay(conditions: Any, moment: Any) -> Any:
    """How many rounds late a message is; LOST when it never counts."""
    if conditions.recorded.shape[0] > 0:
        return int(conditions.recorded[moment.round % conditions.recorded.shape[0], moment.node])
    tail = conditions.tail[conditions.law[moment.node]]
    u = uniform(moment.key, DELAY)
    late = 0
    while late + 1 < tail.shape[0] and u < tail[late + 1]:
        late += 1
    return late if late < tail.shape[0] - 1 else LOST


def may_be_late(conditions: Conditions) -> bool:
    """Whether a message of someone who is there may arrive late, or never."""
    if len(conditions.recorded):
        return bool(np.isin(conditions.recorded, (0, ABSENT, BROKEN), invert=True).any())
    return bool((conditions.tail[np.unique(conditions.law), 1:] > 0).any())


# --- the delay laws a user can name -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delay:
    """A law of delays.

    `geometric`: P(delay >= l) = delta^l. `stepped`: P(delay >= step i) = delta^i, as in the article's 6(c).
    `fixed`: always `rounds` late. `file`: a CSV with columns delay and probability. Whatever is later than `limit`
    rounds is discarded.
    """

    kind: str = "geometric"
    delta: float = 0.2
    limit: int = 10
    step: int = 10
    rounds: int = 0
    file: str = ""

    def tail(self) -> Any:
        """P(delay >= l) for l = 0 .. limit + 1."""
        if not 0 <= self.limit <= 10_000:
            raise BadInput("environment.delay.limit", self.limit, "a number of rounds from 0 to 10000")
        if not 0 <= self.delta < 1:
            raise BadInput("environment.delay.delta", self.delta, "a probability from 0 to below 1")
        ages = np.arange(self.limit + 2)
        if self.kind == "geometric":
            return np.where(ages == 0, 1.0, self.delta ** ages.astype(float))
        if self.kind == "stepped":
            if self.step < 1:
                raise BadInput("environment.delay.step", self.step, "a number of rounds of at least 1")
            return self.delta ** np.ceil(ages / self.step)
        if self.kind == "fixed":
            if not self.rounds >= 0:
                raise BadInput("environment.delay.rounds", self.rounds, "a number of rounds, 0 or more")
            return (ages <= self.rounds).astype(float)
        if self.kind == "file":
            return self.from_file(ages)
        raise BadInput("environment.delay.kind", self.kind, "one of geometric, stepped, fixed, file")

    def from_file(self, ages: Any) -> Any:
        """The tail of a measured law."""
        rows = read_columns(self.file, "environment.delay.file", ("delay", "probability"))
        late, chance = rows["delay"], rows["probability"]
        if (chance < 0).any() or abs(chance.sum() - 1) > 1e-6:
            raise BadInput("environment.delay.file", self.file, "probabilities that are not negative and sum to 1")
        return np.array([chance[late >= age].sum() for age in ages])


@dataclass(frozen=True)
class Failure:
    """Some clients stop working: for a while, or for good where `until` is not given."""

    share: float = 0.0
    start: int = 0
    until: int = 0

    def windows(self, clients: int, seed: int) -> Any:
        """(clients, 2): not working from, until. The failing clients are drawn once per seed."""
        if not 0 <= self.share <= 1:
            raise BadInput("environment.failure.share", self.share, "a share of the clients from 0 to 1")
        if not 0 <= self.start <= FOREVER:
            raise BadInput("environment.failure.start", self.start, f"a round from 0 to {FOREVER}")
        if self.until and not self.start < self.until <= FOREVER:
            raise BadInput("environment.failure.until", self.until, f"a round after start ({self.start}), or none")
        draws = np.random.default_rng([seed, 11]).random(clients)
        broken = np.zeros((clients, 2), np.int64)
        broken[draws < self.share] = self.start, self.until or FOREVER
        return broken


@dataclass(frozen=True)
class Environment:
    """Availability, delays and failures of a federation's clients.

    `availability` is a number, or one number a group; client k belongs to group (k // stride) mod groups, or to the
    one that `groups` names. Several rows make it change with time: a row lasts `phase` rounds.
    """

    availability: Any = 1.0
    stride: int = 1
    groups: tuple[int, ...] = ()
    phase: int = 1
    delay: Delay = field(default_factory=lambda: Delay(delta=0.0, limit=0))
    failure: Failure = field(default_factory=Failure)
    stragglers: float = 1.0
    replay: str = ""

    def conditions(self, clients: int, seed: int) -> Conditions:
        """The tables of a run."""
        chance = self.chances(clients)
        tail = np.stack([self.delay.tail(), Delay(delta=0.0, limit=self.delay.limit).tail()])
        if not 0 <= self.stragglers <= 1:
            raise BadInput("environment.stragglers", self.stragglers, "a share of the clients from 0 to 1")
        prompt = np.random.default_rng([seed, 12]).random(clients) >= self.stragglers
        chance[:, prompt] = 1.0
        if not 1 <= self.phase <= FOREVER:
            raise BadInput("environment.phase", self.phase, f"a number of rounds from 1 to {FOREVER}")
        recorded = read_schedule(self.replay, clients) if self.replay else np.zeros((0, clients), np.int16)
        return Conditions(
            chance,
            np.array([self.phase], np.int64),
            prompt.astype(np.int64),
            tail,
            self.failure.windows(clients, seed),
            recorded,
        )

    def chances(self, clients: int) -> Any:
        """(phases, clients) probabilities to be available."""
        rows = numbers(self.availability)
        rows = rows[None, :] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.size == 0 or not ((rows >= 0) & (rows <= 1)).all():
            right = "probabilities from 0 to 1: a number, a list, or rows that are equally long"
            raise BadInput("environment.availability", self.availability, right)
        if self.groups and len(self.groups) != clients:
            raise BadInput("environment.groups", f"{len(self.groups)} numbers", f"one group a client ({clients})")
        if not 1 <= self.stride <= FOREVER:
            raise BadInput("environment.stride", self.stride, f"a number of clients from 1 to {FOREVER}")
        group = np.asarray(self.groups) if self.groups else (np.arange(clients) // self.stride) % rows.shape[1]
        if group.min(initial=0) < 0 or group.max(initial=0) >= rows.shape[1]:
            raise BadInput("environment.groups", int(group.max()), f"group numbers from 0 to {rows.shape[1] - 1}")
        return np.ascontiguousarray(rows[:, group])


def numbers(given: Any) -> Any:
    """A number or a table of them as an array; an empty one where it is something else."""
    try:
        found = np.atleast_1d(np.asarray(given))
    except ValueError:  # rows of different lengths
        return np.zeros(0)
    return found.astype(float) if found.dtype.kind in "iuf" else np.zeros(0)


def schedule(conditions: Conditions, rounds: int, seed: int) -> Any:
    """What the conditions will be, as an array (rounds, clients) that can be saved and played again."""
    from archipel.node import Moment

    clients = conditions.chance.shape[1]
    plan = np.empty((rounds, clients), np.int16)
    for n in range(rounds):
        for k in range(clients):
            moment = Moment(k, n, key_of(seed, k, n), -1, 1, True, 1.0)
            if not works(conditions, moment):
                plan[n, k] = BROKEN
            elif not available(conditions, moment):
                plan[n, k] = ABSENT
            else:
                plan[n, k] = delay(conditions, moment)
    return plan


def read_schedule(path: str, clients: int) -> Any:
    """A recorded schedule, from `archipel run --record`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            plan = np.ascontiguousarray(file["schedule"], np.int16)
    except UNREADABLE as problem:
        raise BadInput("environment.replay", path, "a schedule that `archipel run --record` wrote") from problem
    if plan.ndim != 2 or plan.shape[1] != clients or plan.shape[0] == 0 or plan.min() < BROKEN:
        raise BadInput("environment.replay", path, f"a schedule of {clients} clients")
    return plan


def read_columns(path: str, key: str, names: tuple[str, ...]) -> dict[str, Any]:
    """The named columns of a CSV file, as numbers."""
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return {name: np.array([float(row[name]) for row in rows]) for name in names}
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise BadInput(key, path, f"a CSV file with columns {', '.join(names)}") from problem
