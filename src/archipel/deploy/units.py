"""Units that are found together on the network (`problems.units`): said once, before the first round, and paid for.

Every client says its noised sums to the server, which adds them up and tells everyone what came out, at any time, to
who asks. Then each builds its part with these units: until then it has that of the declared ranges. What a client says
again, to a server that lost its state, is what it has said before, with the units that it was told.
"""

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from archipel.deploy import wire
from archipel.deploy.grow import ANY_ROUND
from archipel.deploy.pace import FOREVER
from archipel.draws import key_of
from archipel.privacy.account import release_of
from archipel.privacy.accountant import account_of
from archipel.privacy.noise import GAUSSIAN
from archipel.problems import units
from archipel.turns import Plan, Tell, Turn

FILE = "units.json"
BEFORE = -1  # as the round of the charge


class Sums(NamedTuple):
    """A client's sums with noise, and the units that it was told: NaN cannot be said, so a spread of 0 is none."""

    sums: Any
    units: Any


class Units(NamedTuple):
    """What came out."""

    units: Any


class Search:
    """What one node knows of the units, and the turns in which they are found."""

    def __init__(self, federation: Any, plan: Plan, own: Callable[[], Any], rebuilt: Callable[[Any], Any]):
        self.problem, self.deploy, self.protected = federation.problem, federation.deploy, federation.privacy.unit
        self.own, self.rebuilt = own, rebuilt  # a client's sums; the view in known units
        count = len(units.columns_of(self.problem))
        self.sums, self.units = np.zeros(1 + 2 * count), np.zeros(2 * count)
        word = Sums(self.sums, self.units)
        self.show, self.told = len(plan.turns), len(plan.turns) + 1
        self.further = (
            Turn("client", "server", unplayed, unplayed, unplayed, word, word),
            Tell("server", "client", unplayed, unplayed, Units(self.units)),
        )
        self.turns, self.order = (*plan.turns, *self.further), list(range(len(plan.turns)))

    @property
    def over(self) -> bool:
        """Whether units are known."""
        return bool(self.units.any())

    # --- before the first round ---------------------------------------------------------------------------------------

    def begin(self, player: Any) -> list[tuple[Any, Any]]:
        """What a node does before its first round: what it waits for, and what it does then."""
        self.player = player
        if not player.view.has_data:
            return [(self.can_add, self.add)]
        return [(player.always, self.pay_and_say), (lambda _: self.told in player.mailbox.told, self.learn)]

    def pay_and_say(self, _: int = -1) -> None:
        view = self.player.view
        self.player.account.pay(BEFORE, release_of(GAUSSIAN, self.problem.price), self.player.me)
        key = key_of(view.seed, view.member.number, units.BEFORE)
        self.sums = units.noised(self.own(), self.problem.price, self.protected, key)
        self.say()

    def say(self) -> None:
        """The same to whoever has not got it; who does not know the units asks for them."""
        view, office = self.player.view, self.player.office
        server = view.says(self.show, 0)[0].name
        body = view.vocabulary.write(self.show, Sums(self.sums, self.units))
        office.post(server, wire.WORD, self.show, 0, body)
        if not self.over:
            office.post(server, wire.ASK, self.told, 0)

    def learn(self, _: int = -1) -> None:
        word = self.player.view.vocabulary.word(self.told, self.player.mailbox.told.pop(self.told).body)
        self.know(np.array(word.units))

    def said(self) -> dict[int, Sums]:
        """What clients have said, by their numbers."""
        known, word = self.player.tables[self.show].heard, self.player.view.vocabulary.word
        return {known[s.who].number: word(self.show, s.body) for s in self.player.mailbox.words[self.show]}

    def can_add(self, _: int = -1) -> bool:
        """Everyone has said its sums; or enough have, and patience is over; or somebody knows what came out before."""
        player, heard = self.player, {s.who for s in self.player.mailbox.words[self.show]}
        everyone = player.tables[self.show].heard
        missing = [who for who in everyone if who not in heard and not player.mailbox.left[who]]
        enough = len(heard) >= max(1, math.ceil(self.deploy.quorum * len(everyone) - 1e-9))
        waited = player.world.now() >= player.since + self.deploy.patience
        if heard and (not missing or (enough and waited and not player.pace.replay)):
            return True
        return any(word.units.any() for word in self.said().values())

    def add(self, _: int = -1) -> None:
        said = self.said()
        self.player.mailbox.collect(self.show, ANY_ROUND)
        before = [said[k].units for k in sorted(said) if said[k].units.any()]
        words = [said[k].sums for k in sorted(said)]
        self.know(np.array(before[0]) if before else units.found(self.problem, words))
        self.notice()

    def know(self, found: Any, anew: bool = True) -> None:
        """From here on the node has its part in these units."""
        self.units, player, view = found, self.player, self.player.view
        built = self.rebuilt(found)
        view.task, view.learned, view.nothing = built.task, built.learned, built.nothing
        if player.account.private:
            for before, now in zip(account_of(view.me), account_of(built.me)):
                now[...] = before
        view.me = player.me = built.me
        view.plan = player.plan = built.plan._replace(turns=(*built.plan.turns, *self.further))
        if player.source is not None:
            player.source.show(view)
        disk = player.world.disk
        if anew and disk is not None:
            table = units.with_units(self.problem, found).scale
            disk.replace(FILE, json.dumps(table, indent=1).encode(), durable=True)

    def notice(self) -> None:
        """A server tells who asks, at any time; what is said to it later does not count. A new one is told again."""
        player, office = self.player, self.player.office
        for name in office.anew if player.view.has_data and self.sums.any() else ():
            if not any(letter.turn == self.show for letter in office.neighbours[name].letters):
                self.say()
        if player.view.has_data or not self.over:
            return
        player.mailbox.collect(self.show, ANY_ROUND)
        for who in [who for who, (turn, _) in player.mailbox.asks.items() if turn == self.told]:
            del player.mailbox.asks[who]
            body = player.view.vocabulary.write(self.told, Units(self.units))
            office.post(player.mailbox.names[who], wire.TOLD, self.told, 0, body)

    def wakes(self) -> float:
        """When patience with who has not come is over."""
        due = self.player.since + self.deploy.patience
        return FOREVER if self.over or self.player.view.has_data or due <= self.player.world.now() else due

    # --- a checkpoint -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {"sums": self.sums, "units": self.units}

    def restore(self, state: dict[str, Any]) -> None:
        self.sums = np.array(state["sums"])
        if np.any(state["units"]):
            self.know(np.array(state["units"]), anew=False)


def unplayed(*_: Any) -> None:
    """These turns are no part of a round."""


def read_units(problem: Any, text: str) -> Any:
    """The units that a node wrote down."""
    found = json.loads(text)
    columns = units.columns_of(problem)
    return np.array([found[name][what] for what in ("center", "spread") for name in columns])
