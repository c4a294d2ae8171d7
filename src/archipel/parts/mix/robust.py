"""Mixes that some senders may lie to: median, trimmed mean, Krum, multi-Krum, geometric median, centred clipping.

A receiver keeps what each sender said last, a row a sender: (limit + 1) * senders * parameters numbers a receiver. A
server mixes what its clients say; among peers, and servers among themselves, one's own model is one more vector, and
weights of links play no role. Links that go one way need no push-sum: there is no sum to be kept.

A word that says only some parameters fills those: the median and the trimmed mean are of those who said something of a
parameter; the rules that compare whole vectors take the rest from the receiver's own model (of changes, zero). A word
that is not finite is not heard.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.node import add_scaled, assign, fill, kernel
from archipel.parts import ROUND, Mix, MixPiece, Place, SharePiece, empty
from archipel.parts.mix import rules
from archipel.parts.mix.rules import Rule, Scratch, is_finite
from archipel.turns import Setup

R = TypeVar("R", bound="Robust")


class Heard(NamedTuple):
    """What each sender said last."""

    words: Any  # (rows, size): a row a sender, and one more for oneself where that counts
    said: Any  # (rows, size): above 0 where a sender said something of a parameter
    heard: Any  # (rows,)
    fresh: Any  # (2, size): a word as it is read; none where words are whole
    scratch: Scratch


@cache
def hearing(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        """A whole word takes the place of what its sender said before."""
        words, flags = inbox.words[edge.place], inbox.said[edge.place]
        fill(words, 0)
        fill(flags, 0)
        fold(words, flags, said, words.dtype.type(1), settings)
        inbox.heard[edge.place] = 1

    return hear


@cache
def hearing_parts(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        """What a word says takes the place of what its sender said of the same parameters before."""
        values, flags = inbox.fresh[0], inbox.fresh[1]
        fill(values, 0)
        fill(flags, 0)
        fold(values, flags, said, values.dtype.type(1), settings)
        for j in range(values.shape[0]):
            if flags[j] > 0:
                inbox.words[edge.place, j] = values[j]
                inbox.said[edge.place, j] = 1
        inbox.heard[edge.place] = 1

    return hear


@kernel
def gather(inbox: Any) -> Any:
    """Bring the words that were heard to the first rows; how many they are."""
    count = 0
    for i in range(inbox.heard.shape[0]):
        if inbox.heard[i] > 0 and is_finite(inbox.words[i]):
            if i != count:
                assign(inbox.words[count], inbox.words[i])
                assign(inbox.said[count], inbox.said[i])
            count += 1
    return count


@kernel
def idle(me: Any, inbox: Any, settings: Any) -> Any:
    """Whether no word was finite."""
    finite = 0
    for i in range(inbox.heard.shape[0]):
        if inbox.heard[i] > 0 and is_finite(inbox.words[i]):
            finite += 1
    return finite == 0


@kernel
def as_said(inbox: Any, count: Any, model: Any) -> None:
    """Coordinates count one by one: what was not said is missing."""


@cache
def filling(of_change: bool) -> Any:
    @kernel
    def fill_up(inbox: Any, count: Any, model: Any) -> None:
        """Whole vectors are compared: what was not said is as the receiver has it, or did not change."""
        for i in range(count):
            for j in range(model.shape[0]):
                if inbox.said[i, j] == 0:
                    inbox.words[i, j] = 0 if of_change else model[j]

    return fill_up


@cache
def finishing(rule: Any, complete: Any, own: bool, of_change: bool) -> Any:
    @kernel
    def finish(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """The robust mean of what was heard, and of one's own model where that counts; of changes, added to it."""
        count = gather(inbox)
        if count == 0:
            return
        complete(inbox, count, me.model)
        if own:
            assign(inbox.words[count], me.model)
            fill(inbox.said[count], 1)
            count += 1
        if of_change:
            fill(inbox.fresh[0], 0)
            rule(inbox.fresh[0], inbox.words, inbox.said, count, inbox.scratch, settings.mix)
            add_scaled(me.model, me.model.dtype.type(1), inbox.fresh[0])
        else:
            rule(me.model, inbox.words, inbox.said, count, inbox.scratch, settings.mix)

    return finish


@dataclass(frozen=True)
class Robust(Mix, Checked):
    """What robust mixes have in common."""

    rule: ClassVar[Any]
    by_coordinate: ClassVar[bool] = False

    limit: int = key(10, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def settings(self) -> Rule:
        """The numbers that steer the rule."""
        return Rule(0.0, 0.0, 0)

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        """The piece for a place."""
        complete = as_said if share.whole or self.by_coordinate else filling(place.of_change)
        finish = finishing(type(self).rule, complete, place.own, place.of_change)
        hear = (hearing if share.whole else hearing_parts)(share.fold)
        return MixPiece(
            hear, finish, self.inbox(share, place), empty(place.receivers), self.settings(), self.limit,
            leaves=ROUND if self.by_coordinate else (), unweighted=True, idle=idle,
        )  # fmt: skip

    def inbox(self, share: SharePiece, place: Place) -> Heard:
        """Room for every sender, and for oneself."""
        rows, dtype = place.most_heard + int(place.own), place.dtype
        table, buffer = np.zeros((rows, place.size), dtype), place.of_change or not share.whole
        scratch = Scratch(np.zeros(rows, dtype), np.zeros(rows, dtype), np.zeros(place.size), np.zeros(place.size))
        fresh = np.zeros((2, place.size if buffer else 0), dtype)
        return Heard(table, table.copy(), np.zeros(rows, np.uint8), fresh, scratch)

    def across(self: R) -> R:
        """The same, among servers, whose messages are never late."""
        return replace(self, limit=0)


@dataclass(frozen=True)
class Median(Robust):
    """The median of each parameter."""

    rule: ClassVar[Any] = rules.median
    by_coordinate: ClassVar[bool] = True


@dataclass(frozen=True)
class TrimmedMean(Robust):
    """The mean of each parameter without its greatest and its least values, a `share` of each."""

    rule: ClassVar[Any] = rules.trimmed_mean
    by_coordinate: ClassVar[bool] = True

    share: float = key(0.2, "the share of those heard that may lie", at_least=0, below=0.5)

    def settings(self) -> Rule:
        return Rule(self.share, 0.0, 0)


@dataclass(frozen=True)
class Krum(Robust):
    """The one word that is nearest to most others."""

    rule: ClassVar[Any] = rules.krum

    share: float = key(0.2, "the share of those heard that may lie", at_least=0, below=0.5)

    def settings(self) -> Rule:
        return Rule(self.share, 0.0, 0)


@dataclass(frozen=True)
class MultiKrum(Krum):
    """The mean of the words that are nearest to most others; a `share` is left out."""

    rule: ClassVar[Any] = rules.multi_krum


@dataclass(frozen=True)
class GeometricMedian(Robust):
    """The point with the least sum of distances to what was heard, by a few smoothed Weiszfeld steps."""

    rule: ClassVar[Any] = rules.geometric_median

    smoothing: float = key(1e-6, "distances below this count as this", above=0, symbol="nu")
    steps: int = key(8, "Weiszfeld steps a round", at_least=1)

    def settings(self) -> Rule:
        return Rule(0.0, self.smoothing, self.steps)


@dataclass(frozen=True)
class CentredClipping(Robust):
    """The mean of deviations from the receiver's own model, each clipped to a `radius`."""

    rule: ClassVar[Any] = rules.centred_clipping

    radius: float = key(1.0, "how long a deviation may be", above=0, symbol="tau")
    steps: int = key(3, "steps a round", at_least=1)

    def settings(self) -> Rule:
        return Rule(0.0, self.radius, self.steps)
