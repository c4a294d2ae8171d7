"""A straightforward node: it is given what the deployed one was given, and must become the same.

It has no outbox, no checkpoints and no network. It takes what the others really said (not what was received), counts
each word once, with its age by its own count, and calls the node functions in the order in which the deployed node did.
"""

from collections import Counter, deque
from typing import Any, NamedTuple

import numpy as np

from archipel.deploy.view import View
from archipel.node import clear, emptied, leaves, mapped, named_leaves
from archipel.turns import Turn


class Wrong(AssertionError):
    """Something that was promised does not hold."""


class Did(NamedTuple):
    """Something that a node did."""

    what: str
    turn: int
    given: Any


class Reference:
    """One node's twin. `words` says which bytes a sender has really said: (sender, turn, round) -> bodies."""

    def __init__(self, view: View, me: Any, words: dict[tuple[str, int, int], set[bytes]], source: Any):
        self.view, self.me, self.words, self.source = view, mapped(np.array, me), words, source
        self.said = [emptied(turn.word) for turn in view.plan.turns]
        self.inboxes = [emptied(turn.inbox) if isinstance(turn, Turn) else None for turn in view.plan.turns]
        self.names = [{other.number: other.name for other in view.ever_hears(i)} for i in range(len(self.said))]
        self.came: dict[tuple[int, str, int], int] = {}  # when a word first was there to be heard
        self.waiting: Counter[tuple[int, str, int]] = Counter()
        self.heard: Counter[tuple[int, str, int]] = Counter()
        self.got: set[tuple[int, str, int]] = set()  # words that it has taken in, whatever became of them
        self.there: set[tuple[int, int]] = set()  # turns and rounds in which it was there to merge

    def do(self, did: Did) -> None:
        getattr(self, did.what)(did.turn, did.given)

    def act(self, i: int, given: Any) -> None:
        moment, data, came, body, drawn = given
        clear(self.said[i])
        self.source.again = deque(drawn)
        try:
            mine = self.view.plan.turns[i].act(self.me, data, self.said[i], self.view.plan.settings, moment)
        finally:
            self.source.again = None
        if mine != came or b"".join(leaf.tobytes() for leaf in leaves(self.said[i])) != body:
            raise Wrong(f"{self.view.member.name} says something else than the reference in round {moment.round}")

    def tell(self, i: int, given: Any) -> None:
        moment, told, body = given
        clear(self.said[i])
        mine = self.view.plan.turns[i].tell(self.me, self.said[i], self.view.plan.settings, moment)
        if bool(mine) != told or (told and b"".join(leaf.tobytes() for leaf in leaves(self.said[i])) != body):
            raise Wrong(f"{self.view.member.name} tells something else than the reference in round {moment.round}")

    def arrive(self, i: int, key: tuple[int, str, int]) -> None:
        self.waiting[key] += 1
        self.got.add(key)
        if self.waiting[key] + self.heard[key] > max(1, len(self.words.get((key[1], i, key[2]), ()))):
            raise Wrong(f"{self.view.member.name} takes the word of {key[1]} for round {key[2]} twice")

    def refuse(self, i: int, key: tuple[int, str, int]) -> None:
        if key not in self.got:
            raise Wrong(f"{self.view.member.name} throws away the word of {key[1]} for round {key[2]}, its first one")

    def look(self, i: int, given: Any) -> None:
        """Whether a word counts. One that waited because nobody was there to hear it counts as when it came."""
        key, n, counts, first = given
        said, turn = key[2], self.view.plan.turns[i]
        if first:
            self.came[key] = n
            there = turn.sender != turn.receiver or said == n or (i, said) in self.there
            if counts != (n - said <= self.view.plan.late and there):
                what = "hears" if counts else "does not hear"
                raise Wrong(f"{self.view.member.name} {what} in round {n} what {key[1]} said in round {said}")
        elif key not in self.came:
            raise Wrong(f"{self.view.member.name} takes the word of {key[1]} for round {said} for one that had waited")
        if not counts:
            self.waiting[key] -= 1

    def hear(self, i: int, given: Any) -> None:
        edge, body = given
        name = self.names[i].get(int(edge.sender), "")
        key = i, name, int(edge.round)
        if body not in self.words.get((name, i, int(edge.round)), ()):
            raise Wrong(f"{self.view.member.name} hears of {name} what it never said in round {edge.round}")
        if int(edge.age) != self.came.get(key, -1) - int(edge.round):
            raise Wrong(f"{self.view.member.name} hears {name}'s word of round {edge.round} at age {edge.age}")
        self.heard[key] += 1
        self.waiting[key] -= 1
        if self.waiting[key] < 0:
            raise Wrong(f"{self.view.member.name} hears {name}'s word of round {edge.round} twice")
        turn = self.view.plan.turns[i]
        turn.hear(self.inboxes[i], self.view.vocabulary.word(i, body), self.view.plan.settings, edge)

    def merge(self, i: int, given: Any) -> None:
        moment, drawn = given
        self.source.again = deque(drawn)
        try:
            self.view.plan.turns[i].merge(self.me, self.inboxes[i], self.view.plan.settings, moment)
        finally:
            self.source.again = None
        clear(self.inboxes[i])
        self.there.add((i, int(moment.round)))

    def take(self, i: int, given: Any) -> None:
        moment, body = given
        turn = self.view.plan.turns[i]
        turn.take(self.me, self.view.vocabulary.word(i, body), self.view.plan.settings, moment)

    def compare(self, player: Any) -> None:
        """The deployed node is what this one is; what it has not heard yet waits in its mailbox."""
        for (name, mine), theirs in zip(named_leaves(self.me), leaves(player.me)):
            if not np.array_equal(mine, theirs, equal_nan=True):
                raise Wrong(f"{self.view.member.name}: {name} is not that of the reference in round {player.round}")
        box = player.mailbox
        kept = Counter((i, box.names[s.who], s.said) for i, words in enumerate(box.words) for s in words)
        if kept != +self.waiting:
            raise Wrong(f"{self.view.member.name} lost or doubled words that it had taken: {kept} {+self.waiting}")
