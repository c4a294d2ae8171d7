"""Where letters are sorted: who has reported for which round, who is there, who asks, what was said.

All of it is part of a checkpoint, so that a letter can be taken from the post office before the round it is for.
"""

import struct
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np

from archipel.deploy import wire
from archipel.deploy.post import LOG, PostOffice
from archipel.deploy.view import View
from archipel.deploy.wire import Frame
from archipel.turns import Tell, Turn

STASHED = struct.Struct("<BHIIi")  # turn, neighbour, due, said, age
RECENT = 62  # rounds for which a second word of the same round is noticed


class Said(NamedTuple):
    """A word that waits for its round."""

    due: int
    said: int
    who: int  # among the neighbours
    body: bytes
    age: int = -1  # when it was due, of what was put back since nobody was there to hear it


class Told(NamedTuple):
    """An answer to a question."""

    kind: int  # TOLD or NOTHING
    round: int
    body: bytes


class Mailbox:
    """One node's sorted letters. Neighbours have numbers here, in the order of the post office."""

    def __init__(self, view: View, office: PostOffice, replay: bool):
        self.office, self.replay = office, replay
        self.names = list(office.neighbours)
        self.number = {name: i for i, name in enumerate(self.names)}
        turns, count = view.plan.turns, len(self.names)
        self.reported = np.full((count, len(turns)), -1, np.int64)
        self.there = np.full((count, len(turns)), -1, np.int64)  # twice the round, and one where it is there
        self.recent = np.zeros((count, len(turns)), np.uint64)  # bit i: it said something i rounds before `reported`
        self.asks: dict[int, tuple[int, int]] = {}  # neighbour -> turn, round
        self.told: dict[int, Told] = {}  # turn -> answer
        self.words: list[list[Said]] = [[] for _ in turns]
        self.stashed = [0] * count
        spare = 16 if view.vocabulary.widest <= view.vocabulary.piece else 2
        self.most = 2 * view.plan.late + spare  # words of one neighbour that wait here; further ones wait outside
        self.left = np.zeros(count, bool)  # who is gone for good
        self.over = False
        self.faults: Counter[str] = Counter()
        self.first_tell = next((i for i, turn in enumerate(turns) if isinstance(turn, Tell)), -1)
        self.speakers = [self.numbers(view.incoming[i]) for i in range(len(turns))]
        self.listeners = [self.numbers(view.outgoing[i]) for i in range(len(turns))]
        self.is_turn = [isinstance(turn, Turn) for turn in turns]
        self.among_alike = [turn.sender == turn.receiver for turn in turns]  # who hears says first whether it is there

    def numbers(self, phases: Any) -> set[int]:
        return {self.number[other.name] for phase in phases for other in phase}

    def numbered(self, others: Iterable[Any]) -> list[int]:
        return [self.number[other.name] for other in others]

    def sort_all(self, finished: bool = False) -> set[int]:
        """Sort what came in; returns the numbers of those whose letters these were.

        Who has played all rounds makes room for no further word: what may come at once is taken all the same.

        Who only greets or acknowledges is not among them: a node that starts and halts again and again takes no part,
        and nobody is to wait for it.
        """
        seen, left = set(), set()
        most = max(self.most, self.office.window) if finished else self.most
        for name in self.office.fresh:
            i = self.number[name]
            waiting = self.office.waiting(name)
            while waiting and (self.stashed[i] < most or waiting[0].kind != wire.WORD):
                self.left[i] = self.office.neighbours[name].left = False
                self.sort(i, self.office.take(name))
                seen.add(i)
            if waiting:
                left.add(name)
        self.office.fresh = left
        return seen

    def sort(self, i: int, frame: Frame) -> None:
        """One letter into its tray. One that its sender has no business to write is counted and thrown away."""
        kind, turn, n = frame.kind, frame.turn, frame.round
        if kind in (wire.WORD, wire.QUIET):
            fits = self.is_turn[turn] and i in self.speakers[turn]
        elif kind == wire.OVER and (self.is_turn[turn] or i not in self.speakers[turn]):
            return self.leaves(self.names[i])
        elif kind in (wire.TOLD, wire.NOTHING, wire.OVER):
            fits = not self.is_turn[turn] and i in self.speakers[turn]
        elif kind == wire.ASK:
            fits = not self.is_turn[turn] and i in self.listeners[turn]
        elif kind in (wire.HERE, wire.AWAY):
            fits = self.is_turn[turn] and i in self.listeners[turn]
        else:
            fits = False
        if not fits:
            return self.refuse(i, "not its turn")
        if kind == wire.WORD:
            self.stash(i, frame)
        elif kind == wire.QUIET:
            self.report(i, turn, n)
        elif kind == wire.ASK:
            self.asks[i] = turn, n
            for earlier in range(self.first_tell if turn == self.first_tell else 0):
                if i in self.speakers[earlier]:  # it has said that; where a state was lost, to the one before
                    self.report(i, earlier, n)
        elif kind in (wire.TOLD, wire.NOTHING):
            self.told[turn] = Told(kind, n, frame.body)
        elif kind in (wire.HERE, wire.AWAY):
            self.there[i, turn] = 2 * n + (kind == wire.HERE)
        else:
            self.over = True
        if frame.also_asks and self.first_tell >= 0 and i in self.listeners[self.first_tell]:
            self.asks[i] = self.first_tell, n + (turn > self.first_tell)
        return None

    def leaves(self, name: str) -> None:
        """A neighbour takes no further part: nobody waits for it, and nothing is kept for it. What it said counts."""
        other, i = self.office.neighbours[name], self.number[name]
        self.left[i] = other.left = True
        self.asks.pop(i, None)
        other.drop_letters()

    def stash(self, i: int, frame: Frame) -> None:
        """A word waits for its round. One of a round before the last reported one is late.

        In a replay a late word belongs to the round that its sender reports next; else to the next that ends here.
        """
        before = int(self.reported[i, frame.turn])
        back = before - frame.round
        if 0 <= back <= RECENT and int(self.recent[i, frame.turn]) >> back & 1:
            return self.refuse(i, "said twice in a round")
        due = max(frame.round, before + 1) if self.replay else frame.round
        self.report(i, frame.turn, max(frame.round, before))
        back = int(self.reported[i, frame.turn]) - frame.round
        if back <= RECENT:
            self.recent[i, frame.turn] |= np.uint64(1 << back)
        self.words[frame.turn].append(Said(due, frame.round, i, frame.body))
        self.stashed[i] += 1
        return None

    def report(self, i: int, turn: int, n: int) -> None:
        """A neighbour has nothing further for this turn up to round n."""
        ahead = n - int(self.reported[i, turn])
        if ahead > 0:
            moved = int(self.recent[i, turn]) << ahead if ahead <= RECENT else 0
            self.recent[i, turn] = np.uint64(moved & ((1 << (RECENT + 1)) - 1))
            self.reported[i, turn] = n

    def collect(self, turn: int, n: int) -> list[Said]:
        """The words for a round, in the order in which a simulation hears them."""
        found = [said for said in self.words[turn] if said.due <= n]
        self.words[turn] = [said for said in self.words[turn] if said.due > n]
        for said in found:
            self.stashed[said.who] -= 1
        return found

    def put_back(self, turn: int, words: list[Said], n: int, due: int) -> None:
        """Words that nobody was there to hear in round n wait for another round, and become no older."""
        for said in words:
            self.words[turn].append(said._replace(due=due, age=n - said.said if said.age < 0 else said.age))
            self.stashed[said.who] += 1

    def reached(self, away: Collection[int]) -> int:
        """The round that all peers that are there have reached at least; this node may have been away for long."""
        known = np.maximum(self.reported.max(1, initial=-1), self.there.max(1, initial=-1) // 2)
        return min([int(n) for i, n in enumerate(known) if i not in away and n >= 0], default=0)

    def asked(self, away: Collection[int]) -> int:
        """The round for which all who are there ask, or a later one each; one alone may lie, and is not followed."""
        rounds = {i: n for i, (turn, n) in self.asks.items() if turn == self.first_tell}
        there = [i for i in self.listeners[self.first_tell] if i in rounds or not (i in away or self.left[i])]
        return min([rounds.get(i, 0) for i in there], default=0)

    def beyond(self, turn: int, n: int) -> bool:
        """Whether somebody is known to be in round n, or a later one, by what came in another turn."""
        others = np.arange(len(self.words)) != turn
        return any(int(rounds[:, others].max(initial=-1)) >= n for rounds in (self.reported, self.there // 2))

    def company(self, away: Collection[int]) -> bool:
        """Whether somebody takes part, of whom it is not known that it is away or has left."""
        known = (self.reported.max(1, initial=-1) >= 0) | (self.there.max(1, initial=-1) >= 0)
        return any(i not in away and not self.left[i] for i in np.flatnonzero(known))

    def has_said_all(self, name: str, rounds: int) -> bool:
        """Whether nothing further of a neighbour is waited for, to the last round: it may have ended."""
        i = self.number[name]
        for turn, is_turn in enumerate(self.is_turn):
            if i in self.speakers[turn] and (not is_turn or self.reported[i, turn] < rounds - 1):
                return False
            if i in self.listeners[turn] and self.among_alike[turn] and self.there[i, turn] // 2 < rounds - 1:
                return False
        return True

    def refuse(self, i: int, fault: str) -> None:
        self.faults[fault] += 1
        if self.faults[fault] == 1:
            LOG.warning("refused a message from %s: %s (further ones are only counted)", self.names[i], fault)

    def state(self) -> dict[str, Any]:
        """All that a checkpoint must hold."""
        words = [(i, said) for i, words in enumerate(self.words) for said in words]
        return {
            "reported": self.reported,
            "there": self.there,
            "recent": self.recent,
            "asks": [[i, *ask] for i, ask in self.asks.items()],
            "told": [[turn, told.kind, told.round] for turn, told in self.told.items()],
            "answers": [told.body for told in self.told.values()],
            "words": b"".join(STASHED.pack(i, s.who, s.due, s.said, s.age) for i, s in words),
            "bodies": [said.body for _, said in words],
            "over": self.over,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        for name in ("reported", "there", "recent"):  # neighbours may have been added since
            vars(self)[name][: len(state[name])] = state[name]
        self.left = np.array([other.left for other in self.office.neighbours.values()], bool)
        self.asks = {i: (turn, n) for i, turn, n in state["asks"]}
        self.told = {turn: Told(kind, n, body) for (turn, kind, n), body in zip(state["told"], state["answers"])}
        self.over = state["over"]
        for (turn, who, due, said, age), body in zip(STASHED.iter_unpack(state["words"]), state["bodies"]):
            self.words[turn].append(Said(due, said, who, body, age))
            self.stashed[who] += 1
