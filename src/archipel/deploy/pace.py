"""How rounds go by on real nodes: by quorum or deadline, by the clock, or in the steps of a simulation.

A node waits at three places: for an answer to a question (TOLD), for word of who is there (HERE), and for the reports
of those it hears (REPORTS). A pace says when it has waited long enough.
"""

import math
from collections.abc import Collection
from typing import Any

from archipel.deploy.post import LOG
from archipel.deploy.world import World
from archipel.errors import BadInput

TOLD, HERE, REPORTS = "told", "here", "reports"
FOREVER = float("inf")
JUMP = 2.0  # seconds by which the system's clock moves at once when somebody sets it


class Replay:
    """Everyone waits for everyone, and plays the conditions of the simulation."""

    replay = True
    reports = True  # silence is reported, so that nobody waits in vain
    asks_ahead = False
    away: Collection[int] = ()  # neighbours that missed a deadline
    least = 0  # reports without which no round ends before its deadline, whatever the quorum

    def begin(self, n: int) -> int | None:
        """The round that starts now, where round n is next; None: not yet."""
        return n

    def waits_for_data(self) -> bool:
        """Whether a round does not begin without."""
        return True

    def enough(self, what: str, n: int, missing: Collection[int], total: int, since: float) -> bool:
        """Whether a node that waits for `missing` of `total` neighbours, since a moment, may go on."""
        return not missing

    def wakes(self, n: int, since: float) -> float:
        """When it may go on although nothing has come in, by the world's clock that nobody can set."""
        return FOREVER

    def heard(self, numbers: Collection[int]) -> None:
        """These neighbours are there."""

    def gave_up(self, missing: Collection[int], since: float) -> bool:
        """Whether these, waited for since a moment, are not any more."""
        return False

    def answered(self, n: int) -> None:
        """The server is in round n now."""

    def reopen(self, n: int, was_over: bool) -> None:
        """Rounds were added; round n is next. `was_over`: all that there were before had been played."""

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


class Quorum(Replay):
    """A round ends when a share of the neighbours that are there has reported, or at the deadline.

    Who misses a deadline is not waited for until it is heard again. While nobody is there, nothing goes on;
    if only those are away of whom a turn waits, it goes on with the others.
    """

    replay = False

    def __init__(self, quorum: float, deadline: float, world: World):
        self.quorum, self.deadline, self.world = quorum, deadline, world
        self.away: set[int] = set()
        self.missed = -1.0  # since when it waited that missed its deadline: who is heard after that is there

    def enough(self, what: str, n: int, missing: Collection[int], total: int, since: float) -> bool:
        if not missing:
            return True
        if what == TOLD:  # a client of a synchronous algorithm has nothing to do without its server
            return False
        alive = total - len(self.away.intersection(missing))
        here = total - len(missing)
        if here and here >= max(self.least, math.ceil(self.quorum * alive - 1e-9)):
            return True
        if self.world.now() - since >= self.deadline and since != self.missed:
            self.missed = since
            self.away.update(missing)
        return bool(here) and self.gave_up(missing, since)

    def wakes(self, n: int, since: float) -> float:
        due = since + self.deadline
        return due if due > self.world.now() else FOREVER  # what it still waits for comes over the network

    def heard(self, numbers: Collection[int]) -> None:
        self.away.difference_update(numbers)

    def gave_up(self, missing: Collection[int], since: float) -> bool:
        return since == self.missed or self.away.issuperset(missing)


class Clock(Replay):
    """A round lasts `period` seconds, whoever is there: for learning online.

    Without a `start` in the description, a server starts its clock when it is first started, and clients set theirs by
    its answers. The system's clock is looked at once in a life: it may be set while rounds go by.
    """

    replay = False
    reports = False
    asks_ahead = True

    def __init__(self, period: float, start: float, leads: bool, world: World):
        self.period, self.world = period, world
        self.ahead = world.clock() - world.now()
        self.moved = 0.0  # by how much the system's clock was set since
        self.fixed = bool(start)
        self.start = start or (self.now() if leads else 0.0)
        self.given = self.fixed or leads

    def now(self) -> float:
        """Seconds since 1970, by the system's clock as it was when this node started."""
        return self.world.now() + self.ahead

    def begin(self, n: int) -> int | None:
        if not self.start:
            return n
        now = math.floor((self.now() - self.start) / self.period)
        return max(n, now) if now >= n else None

    def waits_for_data(self) -> bool:
        """Rounds go by without, but not before it is known how fast: all of them would at once."""
        return not self.start

    def enough(self, what: str, n: int, missing: Collection[int], total: int, since: float) -> bool:
        left = self.left(n)
        if what == REPORTS:
            return left <= 0
        return not missing or left <= (0 if what == TOLD else 0.75 * self.period)

    def left(self, n: int) -> float:
        """Seconds until round n ends; without a clock yet, as long as it takes."""
        return self.start + (n + 1) * self.period - self.now() if self.start else FOREVER

    def notice_jump(self) -> None:
        """Say it when the system's clock was set."""
        moved = self.world.clock() - self.now()
        if abs(moved - self.moved) > JUMP:
            self.moved = moved
            LOG.warning("the system's clock was moved by %+.0f seconds: rounds go on as before, until a restart", moved)

    def wakes(self, n: int, since: float) -> float:
        self.notice_jump()
        left = self.left(n)
        steps = [left, left - 0.75 * self.period, left - self.period]
        return self.world.now() + min([step for step in steps if step > 0], default=0.0)

    def answered(self, n: int) -> None:
        if not self.given:
            self.start = self.now() - n * self.period

    def reopen(self, n: int, was_over: bool) -> None:
        """Who leads goes on where it ended, since nobody was there to play meanwhile; the others ask it again.

        Where it had not come to the end, clients may have gone on without it, by the clock as it was.
        """
        if self.fixed:
            return
        if not self.given:
            self.start = 0.0
        elif was_over:
            self.start = self.now() - n * self.period

    def state(self) -> dict[str, Any]:
        return {"start": self.start}

    def restore(self, state: dict[str, Any]) -> None:
        if not self.fixed:
            self.start = state["start"]


def pace_of(deploy: Any, name: str, leaders: list[str], world: World) -> Replay:
    """The pace that a description asks for, at a node; `leaders` are the servers, or all peers."""
    if deploy.pace == "replay":
        return Replay()
    if deploy.pace == "quorum":
        return Quorum(deploy.quorum, deploy.deadline, world)
    if not deploy.start and len(leaders) > 1:
        right = "the moment of the first round, in seconds since 1970: without one server, all clocks must agree on it"
        raise BadInput("deploy.start", deploy.start, right)
    return Clock(deploy.period, deploy.start, name in leaders, world)
