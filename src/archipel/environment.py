"""What goes wrong: clients that are away, messages that are late or lost, devices that fail, clients that lie.

Only the simulator plays an environment; reality plays its own. All draws are keyed by (seed, client, round), so every
algorithm of a comparison meets the same schedule, and a recorded schedule can be played again.
"""

import csv
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from archipel.by_name import in_order
from archipel.describe import Checked, key
from archipel.draws import AVAILABLE, DELAY, key_of, uniform, uniforms
from archipel.errors import BadInput
from archipel.node import kernel
from archipel.shard import WHOLE, drawn, ends, placed

ABSENT, BROKEN, LOST = -2, -3, -1  # in place of a delay, in a schedule
UNREADABLE = (OSError, KeyError, ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
FOREVER = np.iinfo(np.int64).max
LOSSES = 1e-3  # of messages, where each that never counts does harm for good
LATEST = 10_000  # rounds that a message may be late: a place is kept for each of them


class Conditions(NamedTuple):
    """An environment as arrays: every law is a table, so that one compilation serves them all."""

    chance: Any  # (phases, clients): probability to be available
    phase: Any  # (1,): rounds a phase lasts
    law: Any  # (clients,): which delay law a client's messages follow
    tail: Any  # (laws, limit + 2): P(delay >= l); beyond the limit a message is lost
    broken: Any  # (clients, 2): a client does not work from this round until that one; empty when all work
    recorded: Any  # (rounds, clients) of delays or ABSENT, BROKEN, LOST; empty when conditions are drawn


@kernel
def works(conditions: Any, moment: Any) -> Any:
    """A client that malfunctions does not learn either."""
    if conditions.recorded.shape[0] > 0:
        return conditions.recorded[moment.round % conditions.recorded.shape[0], moment.node] != BROKEN
    if conditions.broken.shape[0] == 0:
        return True
    return not conditions.broken[moment.node, 0] <= moment.round < conditions.broken[moment.node, 1]


@kernel
def available(conditions: Any, moment: Any) -> Any:
    """The trial on p_{k,n}: can the client talk this round."""
    if conditions.recorded.shape[0] > 0:
        return conditions.recorded[moment.round % conditions.recorded.shape[0], moment.node] >= LOST
    return uniform(moment.key, AVAILABLE) < conditions.chance[phase_of(conditions, moment.round), moment.node]


@kernel
def phase_of(conditions: Any, n: Any) -> Any:
    """Which row of chances holds in a round; divisions are slow."""
    return (n // conditions.phase[0]) % conditions.chance.shape[0] if conditions.chance.shape[0] > 1 else 0


@kernel
def available_of(conditions: Any, few: Any, first: Any, last: Any, n: Any) -> Any:
    """`available` for clients `first` to `last` - 1, whose keys `few` has: who can talk, in `few.due`, and how many."""
    count = 0
    if conditions.recorded.shape[0] > 0:
        for k in range(first, last):
            few.due[count] = k
            count += conditions.recorded[n % conditions.recorded.shape[0], k] >= LOST
        return count
    phase = phase_of(conditions, n)
    uniforms(few.first, few.keys, last - first, AVAILABLE)
    for k in range(first, last):
        few.due[count] = k
        count += few.first[k - first] < conditions.chance[phase, k]
    return count


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


def chance_of_loss(conditions: Conditions, limit: int) -> float:
    """How likely a message of who is there never counts, where those count that are at most `limit` rounds late."""
    if len(conditions.recorded):
        sent = conditions.recorded[conditions.recorded >= LOST]
        return float(((sent == LOST) | (sent > limit)).mean()) if len(sent) else 0.0
    latest = conditions.tail.shape[1] - 2
    return float(conditions.tail[np.unique(conditions.law), min(limit, latest) + 1].max())


# --- the delay laws a user can name -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delay(Checked):
    """A law of delays.

    `geometric`: P(delay >= l) = delta^l. `stepped`: P(delay >= step i) = delta^i, as in the article's 6(c).
    `fixed`: always `rounds` late. `file`: a CSV with columns delay and probability. Whatever is later than `limit`
    rounds is discarded.
    """

    section = "environment.delay"

    kind: str = key("geometric", "the law of delays", choices=("geometric", "stepped", "fixed", "file"))
    delta: float = key(
        0.2, "how likely another round (or step) of delay is", at_least=0, below=1, noun="a probability", symbol="delta"
    )
    limit: int = key(10, "messages later than this are lost", at_least=0, at_most=LATEST, unit="rounds", symbol="l_max")
    step: int = key(10, "how long a step of the stepped law is", at_least=1, unit="rounds")
    rounds: int = key(0, "how late everything is under the fixed law", at_least=0, unit="rounds")
    file: str = key("", "a CSV with columns delay and probability, for the law of kind file")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.file and self.kind != "file":
            raise BadInput("environment.delay.file", self.file, 'none, or kind = "file"')

    def tail(self) -> Any:
        """P(delay >= l) for l = 0 .. limit + 1."""
        ages = np.arange(self.limit + 2)
        if self.kind == "geometric":
            return np.where(ages == 0, 1.0, self.delta ** ages.astype(float))
        if self.kind == "stepped":
            return self.delta ** np.ceil(ages / self.step)
        return (ages <= self.rounds).astype(float) if self.kind == "fixed" else self.from_file(ages)

    def from_file(self, ages: Any) -> Any:
        """The tail of a measured law."""
        rows = read_columns(self.file, "environment.delay.file", ("delay", "probability"))
        late, chance = rows["delay"], rows["probability"]
        if (chance < 0).any() or abs(chance.sum() - 1) > 1e-6:
            raise BadInput("environment.delay.file", self.file, "probabilities that are not negative and sum to 1")
        return np.array([chance[late >= age].sum() for age in ages])


@dataclass(frozen=True)
class Failure(Checked):
    """Some clients stop working: for a while, or for good where `until` is not given."""

    section = "environment.failure"

    share: float = key(0.0, "the share of the clients that fail", at_least=0, at_most=1, noun="a share of the clients")
    start: int = key(0, "the first round in which they do not work", at_least=0, noun="a round")
    until: int = key(0, "the first round in which they work again; 0: never", at_least=0, noun="a round")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.until and not self.start < self.until:
            raise BadInput("environment.failure.until", self.until, f"a round after start ({self.start}), or none")

    def windows(self, clients: int, seed: int, shard: slice = WHOLE) -> Any:
        """(clients, 2): not working from, until; empty where nobody fails. Who does is drawn once per seed."""
        if self.share == 0:
            return np.zeros((0, 2), np.int64)
        draws = drawn([seed, 11], shard, clients)
        broken = np.zeros((len(draws), 2), np.int64)
        broken[draws < self.share] = self.start, self.until or FOREVER
        return placed(broken, shard, clients)


ATTACKS = {  # kind -> its strength, where none is given
    "sign-flip": 5.0,
    "scaled": 100.0,
    "gaussian": 10.0,
    "a-little-is-enough": 1.5,
    "inner-product": 5.0,
    "labels": 1.0,
}
LISTENING = ("a-little-is-enough", "inner-product")  # lies that are made of what honest clients say


@dataclass(frozen=True)
class Attack(Checked):
    """Some clients lie. What a client changed in its model this round is c, honest clients' mean and deviation m and s.

    `sign-flip` says it changed -strength c; `scaled`: strength c; `gaussian`: normal numbers of deviation strength;
    `a-little-is-enough`: m - strength s (Baruch, Baruch, Goldberg, NeurIPS 2019); `inner-product`: -strength m (Xie,
    Koyejo, Gupta, UAI 2020); `labels`: strength c, learned from data whose targets are turned around. Liars know
    everything that honest clients say in the round, and otherwise do as everyone does.
    """

    section = "environment.attack"

    share: float = key(0.0, "the share of the clients that lie", at_least=0, at_most=1, noun="a share of the clients")
    kind: str = key("sign-flip", "how they lie", choices=tuple(ATTACKS))
    strength: float = key(0.0, "how hard; 0: as is usual for the kind", at_least=0)

    def liars(self, clients: int, seed: int) -> Any:
        """(clients,): who lies; as many as the share says, drawn once per seed."""
        order = np.random.default_rng([seed, 13]).permutation(clients)
        return (order < round(self.share * clients)).astype(np.uint8)

    @property
    def forges(self) -> bool:
        """Whether liars say something else than what they learned."""
        return self.share > 0 and (self.kind != "labels" or self.force != 1)

    @property
    def listens(self) -> bool:
        """Whether what an honest client says is in what liars say, too."""
        return self.forges and self.kind in LISTENING

    @property
    def force(self) -> float:
        """The strength, or the kind's usual one."""
        return self.strength or ATTACKS[self.kind]


@dataclass(frozen=True)
class Environment(Checked):
    """Availability, delays and failures of a federation's clients, and who of them lies.

    `availability` is a number, one number a group, or a table by clients' names; client k belongs to group (k //
    stride) mod groups, or to the one that `groups` names: a list, or a table by clients' names. Several rows make it
    change with time: a row lasts `phase` rounds.
    """

    section = "environment"

    availability: Any = key(
        1.0,
        "how likely a client can talk in a round: a number, one a group, a table by name, or rows that take turns",
        at_least=0, at_most=1, noun="a probability", symbol="p_k,n",
    )  # fmt: skip
    stride: int = key(1, "how many clients that follow each other are in one group", at_least=1, unit="clients")
    groups: tuple[int, ...] | dict = key(
        (), "the group of each client, in place of stride: a list, or a table by name", at_least=0
    )
    phase: int = key(1, "how long a row of availability lasts", at_least=1, unit="rounds")
    delay: Delay = key(lambda: Delay(delta=0.0, limit=0), "how late messages are")
    failure: Failure = key(Failure, "who stops working, and when")
    attack: Attack = key(Attack, "who lies, and how")
    stragglers: float = key(
        1.0, "the share of the clients that are away or late at all", at_least=0, at_most=1,
        noun="a share of the clients",
    )  # fmt: skip
    replay: str = key("", "a schedule that `archipel run --record` wrote, played again in place of all of this")

    def ordered(self, names: Callable[[], Sequence[str]]) -> "Environment":
        """The same with lists in place of tables by clients' names."""
        if isinstance(self.availability, Mapping):
            chances = in_order(self.availability, names(), "environment.availability")
            return replace(self, availability=chances, groups=tuple(range(len(chances))))
        if isinstance(self.groups, Mapping):
            return replace(self, groups=in_order(self.groups, names(), "environment.groups"))
        return self

    def conditions(self, clients: int, seed: int, shard: slice = WHOLE) -> Conditions:
        """The tables of a run; of a part of its clients."""
        chance = self.chances(clients, shard)
        tail = np.stack([self.delay.tail(), Delay(delta=0.0, limit=self.delay.limit).tail()])
        prompt = drawn([seed, 12], shard, clients) >= self.stragglers
        chance[:, prompt] = 1.0
        recorded = read_schedule(self.replay, clients) if self.replay else np.zeros((0, clients), np.int16)
        return Conditions(
            placed(chance, shard, clients, 1),
            np.array([self.phase], np.int64),
            placed(prompt.astype(np.uint8), shard, clients),
            tail,
            self.failure.windows(clients, seed, shard),
            recorded,
        )

    def chances(self, clients: int, shard: slice = WHOLE) -> Any:
        """(phases, clients of a part) probabilities to be available."""
        rows = numbers(self.availability)
        rows = rows[None, :] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.size == 0:
            right = "probabilities from 0 to 1: a number, a list, or rows that are equally long"
            raise BadInput("environment.availability", self.availability, right)
        if self.groups and len(self.groups) != clients:
            raise BadInput("environment.groups", f"{len(self.groups)} numbers", f"one group a client ({clients})")
        numbers_of = np.arange(*ends(shard, clients))
        group = np.asarray(self.groups)[shard] if self.groups else (numbers_of // self.stride) % rows.shape[1]
        if group.max(initial=0) >= rows.shape[1]:
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
