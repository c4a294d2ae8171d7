"""What nodes do in a turn, made of parts: act, hear, merge; tell and take.

Each is an ordinary closure, made once for each combination.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from archipel.draws import SELECTED
from archipel.node import LEARNED, NOTHING, SAID, assign, kernel
from archipel.parts import LearnPiece, Node, Settings
from archipel.privacy.noise import secret_uniform
from archipel.turns import SideBySide


@kernel
def forget(me: Any) -> None:
    """No part needs what was before."""


@kernel
def remember(me: Any) -> None:
    assign(me.before, me.model)


@cache
def remembering(shared: Any) -> Callable[..., Any]:
    @kernel
    def remember_shared(me: Any) -> None:
        """What is shared in place of the model, as it was: changes are of that."""
        assign(me.before, shared(me).model)

    return remember_shared


def beginning(learn: LearnPiece, keeps: bool) -> Callable[..., Any]:
    """How a round begins: with a look at what was, where a part needs it."""
    if not keeps:
        return forget
    return remember if learn.shared is None else remembering(learn.shared)


@kernel
def as_learned(me: Any) -> None:
    """What was learned enters the model as it is."""


@cache
def acting(
    learn: Any, protect: Any, write: Any, begin: Any, settle: Any, lift: Any = forget, rebase: Any = forget
) -> Callable[..., Any]:
    """`lift` and `rebase`: of a protection whose release is all that was learned since others knew the model."""

    @kernel
    def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
        """Learn, protect, share."""
        if not moment.present and settings.alone == 0:
            return NOTHING
        begin(me)
        if not learn(me, data, settings, moment):
            return NOTHING
        if moment.present:
            lift(me)
        if not protect(me, settings, moment):
            return NOTHING
        settle(me)
        if not moment.present:
            return LEARNED
        rebase(me)
        write(said, me, settings, moment)
        return SAID

    return act


def as_found(me: Any, found: Any, settings: Any, moment: Any) -> Any:
    """What a learner's answers came to, in place of learning."""
    return found


def side_by_side(
    learn: LearnPiece, protect: Any, write: Any, begin: Any, settle: Any, lift: Any, rebase: Any
) -> SideBySide | None:
    """`acting` in two halves, where learning asks a learner."""
    asking = learn.asking
    if asking is None:
        return None

    def ask(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        if not moment.present and settings.alone == 0:
            return False
        begin(me)
        return (yield from asking(me, data, settings, moment))

    return SideBySide(ask, acting(as_found, protect, write, forget, settle, lift, rebase), learn.settings.learner)


@cache
def telling(tell: Any, every: int = 1) -> Callable[..., Any]:
    @kernel
    def told(me: Any, said: Any, settings: Any, moment: Any) -> Any:
        """To a client whose turn it is and that is asked, what the share part has for it."""
        if moment.peer % every != moment.round % every:
            return False
        if secret_uniform(moment.key, SELECTED) >= settings.asked:
            return False
        tell(said, me, settings, moment)
        return True

    return told


@cache
def taking(take: Any) -> Callable[..., Any]:
    @kernel
    def taken(me: Any, said: Any, settings: Any, moment: Any) -> None:
        take(me, said, settings)

    return taken


@cache
def taking_openly(take: Any) -> Callable[..., Any]:
    @kernel
    def taken(me: Any, said: Any, settings: Any, moment: Any) -> None:
        """What a server told is known to others: it is no change that would have to be protected."""
        take(me, said, settings)
        base = Node(me.protect.base, me.before, me.learn, me.protect, me.share, me.mix, me.across)
        take(base, said, settings)

    return taken


@cache
def merging_openly(finish: Any, rebase: Any) -> Callable[..., Any]:
    @kernel
    def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """What was mixed is known to others."""
        finish(me, inbox, settings, moment)
        rebase(me)

    return merge


@cache
def speaking(write: Any) -> Callable[..., Any]:
    @kernel
    def speak(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
        """A server among servers says its model."""
        write(said, me, settings, moment)
        return SAID

    return speak


@cache
def merging_across(finish: Any) -> Callable[..., Any]:
    """A mix part, whose state and settings stand in `across`."""

    @kernel
    def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        s = settings
        other = Settings(s.learn, s.protect, s.share, s.across, s.across, s.asked, s.alone)
        node = Node(me.model, me.before, me.learn, me.protect, me.share, me.across, me.across)
        finish(node, inbox, other, moment)

    return merge


@cache
def viewing(write: Any, shared: Any) -> Callable[..., Any]:
    """Words about what is shared in place of the model."""

    @kernel
    def said_of(said: Any, me: Any, settings: Any, moment: Any) -> None:
        write(said, shared(me), settings, moment)

    return said_of


@cache
def taking_shared(take: Any, shared: Any, settle: Any) -> Callable[..., Any]:
    @kernel
    def taken(me: Any, said: Any, settings: Any, moment: Any) -> None:
        take(shared(me), said, settings)
        settle(me, settings, moment.round)

    return taken


@cache
def merging_shared(finish: Any, shared: Any, settle: Any) -> Callable[..., Any]:
    @kernel
    def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """Mix what is shared; the next round's model follows from it."""
        finish(shared(me), inbox, settings, moment)
        settle(me, settings, moment.round + 1)

    return merge


@cache
def merging_inside(finish: Any, project: Any) -> Callable[..., Any]:
    @kernel
    def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """What was mixed, back into the region."""
        finish(me, inbox, settings, moment)
        project(me, settings)

    return merge


@cache
def merging_noised(finish: Any, at_mix: Any) -> Callable[..., Any]:
    @kernel
    def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """A sum that cannot be paid for is not used."""
        if at_mix(inbox, me, settings, moment):
            finish(me, inbox, settings, moment)

    return merge
