"""What turns mean, once more: an obvious, slow loop over rounds, turns, nodes and messages, in another order of work.

It shares nothing with `simulate.rounds` but the node functions. Every engine must match it.
"""

from typing import Any

import numpy as np

from archipel.draws import LIE, key_of, normal
from archipel.environment import available, delay, works
from archipel.node import NOTHING, SAID, Edge, Moment, clear, emptied, row, tabled
from archipel.simulate.instance import SERVER_KEYS, Instance
from archipel.turns import Tell, Turn


def links_of(instance: Any, turn: Any, n: int) -> Any:
    """The links a turn runs along in a round."""
    phases = instance.links[turn.sender, turn.receiver]
    return phases[n % len(phases)]


class ReferenceEngine:
    """Plays an instance round by round."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.updates = 0
        acts = [i for i, turn in enumerate(instance.plan.turns) if isinstance(turn, Turn)]
        learns = [i for i in acts if instance.plan.turns[i].sender == instance.data_role]
        self.learns_in = learns[0]  # in later turns clients only say what else they know
        self.messages = [0] * len(instance.plan.turns)
        self.said: dict[int, dict[int, tuple[Any, int]]] = {}  # turn -> who said what in the last round, and how late
        self.inboxes = [
            tabled(tabled(turn.inbox, instance.count(turn.receiver)), instance.plan.late + 1)
            if isinstance(turn, Turn)
            else None
            for turn in instance.plan.turns
        ]

    def advance(self, first: int, last: int) -> None:
        """Play rounds first to last - 1."""
        for n in range(first, last):
            self.look(n)
            for i, turn in enumerate(self.instance.plan.turns):
                if isinstance(turn, Tell):
                    self.telling(i, turn, n)
                else:
                    self.acting(i, turn, n)

    def look(self, n: int) -> None:
        """What each node that has data sees this round, and whether it can talk."""
        instance = self.instance
        self.data: list[Any] = []
        self.present = np.zeros(instance.task.clients, bool)
        for k in range(instance.task.clients):
            moment = self.moment(instance.data_role, k, n)
            fresh, seen = False, None
            if works(instance.conditions, moment):
                fresh, seen = instance.task.observe(instance.task.source, emptied(instance.task.sample), moment)
            self.data.append(seen if fresh else None)
            self.present[k] = fresh and available(instance.conditions, moment)

    def moment(self, role: str, k: int, n: int, peer: int = -1, degree: int = 1, kept: float = 1.0) -> Moment:
        """The moment of a node: nodes without data are always there."""
        has_data = role == self.instance.data_role
        present = bool(self.present[k]) if has_data else True
        return Moment(
            k, n, key_of(self.instance.seed, k if has_data else k + SERVER_KEYS, n), peer, degree, present, kept
        )

    def telling(self, i: int, turn: Tell, n: int) -> None:
        """Each receiver that is there is told something, if its sender has something for it."""
        instance = self.instance
        links = links_of(instance, turn, n)
        for k in range(instance.count(turn.receiver)):
            listener = self.moment(turn.receiver, k, n, int(links.senders[links.starts[k]]))
            if not listener.present:
                continue
            sender = listener.peer
            word = emptied(turn.word)
            teller = Moment(sender, n, listener.key, k, links.fan_out[sender], True, 1.0)
            told = turn.tell(row(instance.plan.tables[turn.sender], sender), word, instance.plan.settings, teller)
            if turn.receiver == instance.data_role:
                self.present[k] = told
            if told:
                self.messages[i] += 1
                turn.take(row(instance.plan.tables[turn.receiver], k), word, instance.plan.settings, listener)

    def acting(self, i: int, turn: Turn, n: int) -> None:
        """Senders act; what they say travels; receivers hear and merge."""
        instance, plan = self.instance, self.instance.plan
        links = links_of(instance, turn, n)
        said: dict[int, tuple[Any, int]] = {}
        for k in range(instance.count(turn.sender)):
            has_data = turn.sender == instance.data_role
            if has_data and self.data[k] is None:
                continue
            moment = self.moment(turn.sender, k, n, degree=int(links.fan_out[k]))
            word = emptied(turn.word)
            came = turn.act(
                row(plan.tables[turn.sender], k),
                self.data[k] if has_data else instance.nothing,
                word,
                plan.settings,
                moment,
            )
            self.updates += i == self.learns_in and came != NOTHING
            if came == SAID and moment.present:
                said[k] = word, delay(instance.conditions, moment) if has_data else 0
        if turn.forge is not None:
            self.lie(turn, n, links, said)
        self.said[i] = said
        kept = self.deliver(i, turn, n, links, said)
        slot = n % (plan.late + 1)
        for k in range(instance.count(turn.receiver)):
            degree = int(links.starts[k + 1] - links.starts[k])
            moment = self.moment(
                turn.receiver, k, n, degree=degree, kept=kept[k] if turn.sender == turn.receiver else 1.0
            )
            box = row(row(self.inboxes[i], slot), k)
            if moment.present:
                turn.merge(row(plan.tables[turn.receiver], k), box, plan.settings, moment)
                clear(box)  # what is late, and finds nobody, waits until this inbox has its turn again

    def lie(self, turn: Turn, n: int, links: Any, said: dict[int, tuple[Any, int]]) -> None:
        """Liars say something else, as `environment.Attack` says; their models stay as they are."""
        table, (_, write, kind, lies, shared) = self.instance.plan.tables[turn.sender], turn.forge
        seen = [shared(row(table, k)) for k in range(len(table.model))]  # as others are told of it
        change = np.array([me.model - me.before for me in seen])
        honest = change[[k for k in sorted(said) if not lies.liar[k]]]
        mean = honest.mean(0) if len(honest) else np.zeros_like(change[0])
        deviation = honest.std(0) if len(honest) else mean
        strength = lies.strength[0]
        for k in said:
            if lies.liar[k]:
                key = key_of(self.instance.seed, k, n)
                noise = np.array([normal(key, LIE, j) for j in range(len(mean))])
                forged = {
                    "sign-flip": -strength * change[k],
                    "scaled": strength * change[k],
                    "labels": strength * change[k],
                    "gaussian": strength * noise,
                    "a-little-is-enough": mean - strength * deviation,
                    "inner-product": -strength * mean,
                }[kind]
                me, moment = seen[k], self.moment(turn.sender, k, n, -1, links.fan_out[k])
                true = me.model.copy()
                me.model[:] = me.before + forged
                write(said[k][0], row(table, k), self.instance.plan.settings, moment)
                me.model[:] = true

    def deliver(self, i: int, turn: Turn, n: int, links: Any, said: dict[int, tuple[Any, int]]) -> Any:
        """Carry every message into the inbox of the round it arrives in; returns what each sender keeps."""
        slots = self.instance.plan.late + 1
        kept = np.ones(max(self.instance.count(turn.receiver), self.instance.count(turn.sender)))
        for k in range(self.instance.count(turn.receiver)):
            there = self.moment(turn.receiver, k, n).present
            for e in range(links.starts[k], links.starts[k + 1]):
                sender, weight = int(links.senders[e]), float(links.weights[e])
                if sender not in said or not there:
                    continue
                word, late = said[sender]
                self.messages[i] += 1
                if 0 <= late < slots:  # what will not count stays with its sender
                    kept[sender] -= weight
                    box = row(row(self.inboxes[i], (n + late) % slots), k)
                    turn.hear(
                        box,
                        word,
                        self.instance.plan.settings,
                        Edge(sender, weight, late, n, self.place(turn, k, sender)),
                    )
        return kept

    def place(self, turn: Turn, receiver: int, sender: int) -> int:
        """The sender's place among all that the receiver ever hears."""
        phases = self.instance.links[turn.sender, turn.receiver]
        heard = {int(s) for links in phases for s in links.senders[links.starts[receiver] : links.starts[receiver + 1]]}
        return sorted(heard).index(sender)
