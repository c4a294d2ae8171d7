"""Plays one node's side of the turns, step by step, with the node functions as they are.

A round is a list of steps for a role: look at the data; ask and take (a Tell, at its receiver); offer (at its sender);
announce, say and merge (a Turn). A step runs as soon as it has what it needs. Between two steps a node can be killed:
`checkpoint` knows all that it is.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.deploy import pace as waiting
from archipel.deploy import wire
from archipel.deploy.accounts import Account
from archipel.deploy.mailbox import Mailbox, Said
from archipel.deploy.pace import Replay
from archipel.deploy.post import LOG, PostOffice
from archipel.deploy.view import Neighbour, View, tables_of
from archipel.deploy.world import World
from archipel.environment import available, delay, works
from archipel.node import SAID, Edge, Moment, clear, emptied
from archipel.turns import Tell, Turn


class Step(NamedTuple):
    """Something a node does in a round."""

    ready: Any  # (turn) -> whether it can be done now
    run: Any  # (turn)
    turn: int


class Delayed(NamedTuple):
    """A word that the conditions of a replay hold back."""

    due: int
    turn: int
    said: int
    body: bytes
    to: list[str]


class Player:
    """One node, playing."""

    def __init__(self, view: View, world: World, office: PostOffice, pace: Replay, source: Any, account: Account):
        self.view, self.world, self.office, self.pace = view, world, office, pace
        self.source, self.account = source, account
        self.mailbox = Mailbox(view, office, pace.replay)
        self.me, self.plan = view.me, view.plan
        self.named: Any = None, {}  # its row, and the arrays in it by their names
        self.round, self.at = 0, 0
        self.data: Any = None
        self.present = not view.has_data
        self.offered = -1, -1  # round and turn for which questions are answered now
        self.asked_ahead = -1  # the round for which the question has left already
        self.called = -1, -1  # round and step in which it waited alone, and said so
        self.delayed: list[Delayed] = []
        self.kept = [1.0] * len(self.plan.turns)
        self.was_there: list[list[int]] = [[] for _ in self.plan.turns]  # the last rounds in which it was
        acts = (i for i in view.order if isinstance(self.plan.turns[i], Turn))
        first = next((i for i in acts if self.plan.turns[i].sender == view.member.role), -1)
        self.learns_in = first if view.has_data else -1  # in later turns it only says what else it knows
        self.messages = [0] * len(self.plan.turns)
        self.updates = 0
        self.too_late = 0
        self.gone = False  # it has said goodbye
        self.changes = 0  # of its row
        self.since = self.world.now()
        self.last_told = b""  # what most are told is kept once
        self.words = [emptied(turn.word) for turn in self.plan.turns]  # to write on; what is said goes out as bytes
        self.inboxes = [emptied(turn.inbox) if isinstance(turn, Turn) else None for turn in self.plan.turns]
        self.tables = [tables_of(view, self.mailbox.number, i) for i in range(len(self.plan.turns))]
        self.masks, self.prelude = view.masks, view.prelude
        self.opening = [Step(ready, run, -1) for ready, run in self.prelude.begin(self)] if self.prelude else []
        self.round_steps = self.steps_of_role()

    @property
    def steps(self) -> list[Step]:
        """What is done in a round; where words are masked, or units found, before the first one too."""
        return self.opening if self.prelude and not self.prelude.over else self.round_steps

    def steps_of_role(self) -> list[Step]:
        """What this role does in a round, in the order of the turns."""
        role = self.view.member.role
        steps = [Step(self.can_look, self.look, -1)] if self.view.has_data else []
        for i in self.view.order:
            turn = self.plan.turns[i]
            if isinstance(turn, Tell):
                if role == turn.receiver:
                    steps += [Step(self.always, self.ask, i), Step(self.can_take, self.take, i)]
                if role == turn.sender:
                    steps += [Step(self.always, self.offer, i)]
                continue
            if role == turn.sender == turn.receiver:
                steps += [Step(self.always, self.announce, i)]
            if role == turn.sender:
                steps += [Step(self.can_say, self.say, i)]
            if role == turn.receiver:
                steps += [Step(self.can_merge, self.merge, i)]
        return steps

    # --- going on -----------------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        return self.round >= self.view.rounds

    @property
    def learned(self) -> bool:
        """Whether its model can be another than at first: it learned or was told something, or heard of others."""
        return self.changes > 0 if self.view.has_data else bool(self.mailbox.reported.max(initial=-1) >= 0)

    def ready(self) -> bool:
        step = self.steps[self.at]
        return step.ready(step.turn)

    def run(self) -> None:
        """Do the next step."""
        steps = self.steps
        steps[self.at].run(steps[self.at].turn)
        self.at += 1
        self.since = self.world.now()
        if self.at == len(steps):
            self.at = 0
            self.round += steps is self.round_steps

    def notice(self) -> None:
        """Sort what came in, and answer who asks."""
        self.pace.heard(self.mailbox.sort_all(self.finished))
        if self.prelude:
            self.prelude.notice()
        if self.office.anew:
            self.ask_again()
        self.catch_up()
        self.serve()

    def ask_again(self) -> None:
        """Who waits for an answer of a neighbour whose store is another one now asks that one too."""
        step = self.steps[self.at]
        if step.run == self.take and self.present and not self.pace.replay:
            teller = self.view.hears(step.turn, self.round)[0].name
            if teller in self.office.anew:
                self.office.post(teller, wire.ASK, step.turn, self.round)
        self.office.anew.clear()

    def wakes(self) -> float:
        """When something may happen although nothing comes in, by the world's clock."""
        soon = min(self.pace.wakes(self.round, self.since), self.prelude.wakes() if self.prelude else waiting.FOREVER)
        if self.source is not None:
            soon = min(soon, self.source.wakes(self.world.now()))
        return soon

    def always(self, turn: int) -> bool:
        return True

    def moment(self, **further: Any) -> Moment:
        return self.view.moment(self.round, self.present, **further)

    def jump(self, n: int) -> None:
        """The others are in a later round: go on there, or end, if that is beyond the last one."""
        if n > self.round:
            self.round = min(n, self.view.rounds)

    def finish(self) -> None:
        """All is over: the step that is done now becomes the last one of the last round."""
        self.round, self.at = self.view.rounds - 1, len(self.steps) - 1

    # --- data ---------------------------------------------------------------------------------------------------------

    def can_look(self, _: int) -> bool:
        if self.mailbox.over:  # whatever the data does
            return True
        begins = self.pace.begin(self.round)
        if begins is None:
            return False
        return self.source.ready() or self.source.over or not self.pace.waits_for_data()

    def look(self, _: int) -> None:
        """The round begins: is there something to learn from, and can the node talk."""
        self.jump(self.pace.begin(self.round) or 0)
        if self.view.member.role == "peer" and self.pace.reports and not self.pace.replay:
            self.jump(self.mailbox.reached(self.pace.away))
        if not self.pace.replay:
            self.jump(self.account.reached())
        if self.finished or self.mailbox.over:
            self.finish()
            return
        moment, self.present = self.view.moment(self.round, False), False
        self.data = None
        if self.pace.replay and not works(self.view.conditions, moment):
            return
        fresh, data = self.source.look(moment)
        self.data = data if fresh else None
        self.present = bool(fresh) and (not self.pace.replay or bool(available(self.view.conditions, moment)))

    # --- a Tell -------------------------------------------------------------------------------------------------------

    def ask(self, i: int) -> None:
        """A receiver that is there asks its sender."""
        if not self.present or self.asked_ahead >= self.round:
            return
        teller = self.view.hears(i, self.round)[0].name
        if i == self.mailbox.first_tell:
            self.office.ask(teller, i, self.round)
        else:
            self.office.post(teller, wire.ASK, i, self.round)

    def can_take(self, i: int) -> bool:
        if not self.present or self.mailbox.over:
            return True
        told = self.mailbox.told.get(i)
        missing = [0] if told is None or told.round < self.round else []
        return self.pace.enough(waiting.TOLD, self.round, missing, 1, self.since)

    def take(self, i: int) -> None:
        """Take what was told; who is told nothing sits the round out."""
        told = self.mailbox.told.get(i)
        if told is not None and told.round <= self.round:
            del self.mailbox.told[i]
        if not self.present:
            return
        if told is None or told.round < self.round:  # the server is away, or it is all over
            self.present = not self.view.has_data
            if self.mailbox.over:
                self.finish()
            return
        self.mailbox.told.pop(i, None)
        self.jump(told.round)
        if self.finished:
            self.finish()
            return
        self.pace.answered(told.round)
        if self.view.has_data:
            self.present = told.kind == wire.TOLD
        if told.kind == wire.TOLD:
            self.messages[i] += 1
            self.changes += 1
            turn = self.plan.turns[i]
            moment = self.view.moment(self.round, True, peer=self.view.hears(i, self.round)[0].number)
            turn.take(self.me, self.word_of(i, told.body), self.plan.settings, moment)

    def word_of(self, i: int, body: bytes) -> Any:
        return self.view.vocabulary.word(i, body)

    def offer(self, i: int) -> None:
        """From now on the questions of this round are answered."""
        self.follow(i)
        self.offered = self.round, i
        self.serve()

    def follow(self, i: int) -> None:
        """Where all who are there ask for later rounds, this node has lost its state: it goes on with them."""
        if i == self.mailbox.first_tell and self.pace.reports and not self.pace.replay:
            self.jump(self.mailbox.asked(self.pace.away))

    def catch_up(self) -> None:
        """As in `offer`, where all ask for later rounds only now: of the open one nobody will ever say anything."""
        n, i = self.offered
        if n != self.round or self.mailbox.reported.max(initial=-1) >= n:
            return
        self.follow(i)
        if self.round > n:
            self.offered, self.since = (self.round, i), self.world.now()
            self.serve()

    def serve(self) -> None:
        """Answer who asks. Telling does not change the teller, so it can be done at any time of the round."""
        n, i = self.offered
        if n < 0 or self.finished or not self.mailbox.asks:
            return
        turn: Any = self.plan.turns[i]
        phases = self.tables[i].hearers
        numbers, word = phases[n % len(phases)], self.words[i]
        for who, (asked, when) in list(self.mailbox.asks.items()):
            if asked != i or when > n:
                continue
            del self.mailbox.asks[who]
            other = numbers[who]
            clear(word)
            key = self.view.key(turn.receiver, other.number, n)
            moment = Moment(self.view.member.number, n, key, other.number, len(numbers), True, 1.0)
            if turn.tell(self.me, word, self.plan.settings, moment):
                body = self.view.vocabulary.write(i, word)
                self.last_told = body if body != self.last_told else self.last_told
                self.office.post(other.name, wire.TOLD, i, n, self.last_told)
            else:
                self.office.post(other.name, wire.NOTHING, i, n)

    # --- a Turn -------------------------------------------------------------------------------------------------------

    def announce(self, i: int) -> None:
        """Tell those that one hears whether one is there: only then do they give their share away."""
        kind = wire.HERE if self.present else wire.AWAY
        if self.pace.reports or self.present:
            for other in self.view.hears(i, self.round):
                self.office.post(other.name, kind, i, self.round)
        self.was_there[i] = self.was_there[i][-self.plan.late :] + [self.round] * self.present if self.plan.late else []

    def can_say(self, i: int) -> bool:
        turn = self.plan.turns[i]
        if turn.sender != turn.receiver:
            return True
        says = [w for w in self.mailbox.numbered(self.view.says(i, self.round)) if not self.mailbox.left[w]]
        missing = [w for w in says if self.mailbox.there[w, i] < 2 * self.round]
        return self.goes_on(waiting.HERE, i, missing, len(says))

    def say(self, i: int) -> None:
        """Act; what is said goes to all that are there. In a replay it may be late, or get lost."""
        turn: Any = self.plan.turns[i]
        says = self.view.says(i, self.round)
        there = says if turn.sender != turn.receiver else [o for o in says if self.is_there(o, i)]
        self.kept[i] = 1.0
        self.send_due(i)
        body, late = self.act(i, turn, len(says))
        if body is not None:
            self.messages[i] += len(there)
            counts = 0 <= late <= self.plan.late  # what does not, stays here
            for other in there if counts else ():
                self.kept[i] -= other.weight
            if late > 0 and counts:
                names = [other.name for other in there]
                self.delayed.append(Delayed(self.round + late, i, self.round, body, names))
        prompt = {other.name for other in there} if body is not None and late == 0 else set()
        for other in self.view.ever_says(i) if self.pace.replay else says:
            if other.name in prompt:
                self.office.post(other.name, wire.WORD, i, self.round, body or b"")
                if self.pace.asks_ahead and isinstance(self.plan.turns[0], Tell):
                    self.office.ask_ahead(other.name)
                    self.asked_ahead = self.round + 1
            elif self.pace.reports:
                self.office.post(other.name, wire.QUIET, i, self.round)

    def act(self, i: int, turn: Any, degree: int) -> tuple[bytes | None, int]:
        """Let the node act; what it said, and how late that will be. Its ledger is charged before this returns."""
        has_data = self.view.has_data
        if has_data and self.data is None:
            return None, 0
        moment, word = self.moment(degree=degree), self.words[i]
        self.changes += 1
        clear(word)
        seen = self.data if has_data else self.view.nothing
        came = turn.act(self.me, seen, word, self.plan.settings, moment)
        self.account.paid(self.round, self.me)
        self.updates += i == self.learns_in and bool(came)
        if came != SAID or not self.present:
            return None, 0
        late = int(delay(self.view.conditions, moment)) if has_data and self.pace.replay else 0
        return self.view.vocabulary.write(i, word), late

    def send_due(self, i: int) -> None:
        """What the conditions held back until this round."""
        for word in [w for w in self.delayed if w.turn == i and w.due <= self.round]:
            self.delayed.remove(word)
            if word.due == self.round:
                for name in word.to:
                    self.office.post(name, wire.WORD, i, word.said, word.body)

    def is_there(self, other: Neighbour, i: int) -> bool:
        return self.mailbox.there[self.mailbox.number[other.name], i] == 2 * self.round + 1

    def can_merge(self, i: int) -> bool:
        if not self.pace.replay and not self.present:
            return True
        tables = self.tables[i]
        hears = tables.ever if self.pace.replay else tables.hears[self.round % len(tables.hears)]
        hears = hears[~self.mailbox.left[hears]]
        missing = hears[self.mailbox.reported[hears, i] < self.round].tolist()
        return self.goes_on(waiting.REPORTS, i, missing, len(hears))

    def goes_on(self, what: str, i: int, missing: list[int], total: int) -> bool:
        """Whether enough of those who are waited for are there; if none will be, whether others are, to go on with.

        A server goes on when others have, its clients or the servers: it has no data of its own that tell it how fast.
        """
        if self.pace.enough(what, self.round, missing, total, self.since):
            return True
        masked = self.plan.masks is not None  # nobody knows a masked sum of none
        if masked or not self.pace.gave_up(missing, self.since):
            return False
        if self.source is None:
            n = self.round
            self.catch_up()  # who did not come is not asked any more
            return n == self.round and self.mailbox.beyond(i, n)
        return self.mailbox.company(self.pace.away) or self.call(i)

    def call(self, i: int) -> bool:
        """Who waits and has given up everybody says once in which round it is: others may wait for it likewise.

        Those for whom a letter is on its way will hear of it anyway.
        """
        if self.called != (self.round, self.at):
            self.called = self.round, self.at
            hears = {other.name: wire.HERE if self.present else wire.AWAY for other in self.view.ever_hears(i)}
            says = {other.name: wire.QUIET for other in self.view.ever_says(i)} if self.round else {}
            for name, kind in (says | hears).items():
                if not self.office.neighbours[name].letters:
                    self.office.post(name, kind, i, self.round - (kind == wire.QUIET))
        return False

    def merge(self, i: int) -> None:
        """Hear all that arrived for this round, in the order of a simulation, and merge it."""
        turn: Any = self.plan.turns[i]
        degree = len(self.view.hears(i, self.round))
        known = self.tables[i].heard
        said = [s for s in self.mailbox.collect(i, self.round) if s.who in known and self.counts(i, s)]
        said.sort(key=lambda s: (s.said, known[s.who].number))
        if self.present:
            self.changes += 1
            inbox = self.heard(i, turn, said, known)
            turn.merge(self.me, inbox, self.plan.settings, self.moment(degree=degree, kept=self.kept[i]))
            self.account.paid(self.round, self.me)  # of a sum that was noised
        else:
            self.mailbox.put_back(i, said, self.round, self.round + self.plan.late + 1)
        self.offered = -1, -1

    def counts(self, i: int, said: Said) -> bool:
        """A word that is too old is dropped; so is a late one to a peer that was away when it was said.

        One that was put back, since nobody was there to hear it when it came, has been looked at before.
        """
        if said.age >= 0:
            return True
        if self.round - said.said > self.plan.late:
            self.too_late += 1
            return False
        turn = self.plan.turns[i]
        return turn.sender != turn.receiver or said.said == self.round or said.said in self.was_there[i]

    def heard(self, i: int, turn: Any, said: list[Said], known: dict[int, Neighbour]) -> Any:
        """An inbox with all words; one that its function cannot take is left out, and counted."""
        inbox, weights = self.inboxes[i], self.tables[i].weights
        places = {int(who): place for place, who in enumerate(self.tables[i].ever)}
        clear(inbox)
        for s in said:
            other = known[s.who]
            weight = np.float64(weights[s.said % len(weights)].get(other.number, 0.0))  # as an engine's
            age = self.round - s.said if s.age < 0 else s.age
            edge = Edge(other.number, weight, age, s.said, places[s.who])
            try:
                turn.hear(inbox, self.word_of(i, s.body), self.plan.settings, edge)
            except (IndexError, ValueError, ZeroDivisionError, OverflowError):
                LOG.warning("a message from %s could not be heard", other.name)
                self.mailbox.refuse(s.who, "cannot be heard")
                return self.heard(i, turn, [kept for kept in said if kept is not s], known)
        return inbox
