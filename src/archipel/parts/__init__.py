"""What algorithms are made of: learn, protect, share, mix.

A part is a frozen dataclass whose fields are the keys of its TOML table. `make` turns it into a *piece*: plain marked
functions, the state they keep inside the node's record, and their settings. Pieces know nothing of each other but what
is written here; `compose` nests them, and lays their turns along the topology.

    me.model, me.before         the model, and what it was before this round's learning, where a part needs it; of what
                                is shared in its place, where a learn part has that, what that was
    me.learn, me.protect, ...   each part's own state
    settings.learn, ...         each part's own settings
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from archipel.errors import BadInput
from archipel.node import table_of
from archipel.turns import Setup


class Node(NamedTuple):
    """All that a node keeps."""

    model: Any
    before: Any  # the model before this round's learning; empty where no part needs it
    learn: Any
    protect: Any
    share: Any
    mix: Any
    across: Any  # a server's, for what other servers say


class Settings(NamedTuple):
    """All numbers that steer an algorithm."""

    learn: Any
    protect: Any
    share: Any
    mix: Any
    across: Any
    asked: Any  # chance that a server asks a client that is there
    alone: Any  # 1: clients that are away learn too


class Empty(NamedTuple):
    """The state or the settings of a part that has none."""

    nothing: Any


NONE = Empty(np.zeros(1, np.uint8))

BOUNDED = ("ball", "box", "simplex")  # regions that a learn part may keep its models in
ROUND = ("ball", "simplex")  # of these, such that parameters one by one do not say whether a model is inside


def empty(rows: int) -> Empty:
    """A table of nothing."""
    return Empty(np.zeros((rows, 0), np.uint8))


class LearnPiece(NamedTuple):
    """How a node learns from its data."""

    learn: Callable[..., Any]  # (me, data, settings, moment) -> whether it did; False: it could not pay, or had nothing
    state: Any  # a table, a row a node with data
    settings: Any
    alone: bool = False  # whether it makes sense while a node is away
    before: bool = False  # whether me.before is used
    plain_only: bool = False  # no compiler takes it: it calls a learner, a network's say
    weighs: bool = False  # divides its own steps by the mass of push-sum
    norm: Callable[..., Any] | None = None  # (me, data, settings, moment) -> of the gradient over all samples
    read_by: str = ""  # what it leaves in its state for a share or mix part, without which nothing would be learned
    weighted: Callable[..., Any] | None = None  # (weight) -> learn, if steps depend on a node's weight: MixPiece.weight
    shared: Callable[..., Any] | None = None  # (me) -> me with what is shared as its model, if that is something else
    settle: Callable[..., Any] | None = None  # (me, settings, round): the model, from what was shared
    server_state: Any = None  # of who mixes what is shared
    asking: Callable[..., Any] | None = None  # `learn` as a generator that asks a learner: clients go side by side
    region: str = ""  # of `BOUNDED`, the one that models stay in; none: they may be anywhere
    project: Callable[..., Any] | None = None  # (me, settings): the model, back into the region, where there is a way


class ProtectPiece(NamedTuple):
    """The door: bound, pay, noise, in this order. Three places for it, of which a part uses one."""

    pay: Callable[..., Any]  # (me, settings, moment) -> the noise's scale for a sample, or below 0: it cannot be paid
    bound: Callable[..., Any]  # (slope, x, settings) -> the slope, so that slope * x is not too long
    noise: Callable[..., Any]  # (values, scale, me, settings, moment): on what a sample moved
    word: Callable[..., Any]  # (me, settings, moment) -> whether the model may be said: bounds, pays, noises the change
    at_mix: Callable[..., Any]  # (inbox, me, settings, moment) -> whether inbox.total may be used: pays and noises it
    state: Any
    settings: Any
    accountant: Any = None
    before: bool = False
    server_state: Any = None  # of who mixes, where noise is added there
    rebase: Callable[..., Any] | None = None  # (me): the model is known to others as it is, me.protect.base
    # with a batch: (out, model, data, scale, settings, moment, index) -> what `out`, a noised sum, is to be divided by;
    # a generator that asks its learner
    gradient: Callable[..., Any] | None = None
    norm: Callable[..., Any] | None = None  # (me, data, settings, moment) -> of the gradient over all samples, noised
    bounded: Callable[..., Any] | None = None  # (fold) -> the same with bounded words, where a sum is noised
    guard: Callable[..., Any] | None = None  # (values, limit, scale, me, settings, key): clips and noises a gradient
    summed: Callable[..., Any] | None = None  # (mix) -> the same of words whose integers are summed before anyone looks
    masks: Any = None  # privacy.coding.Code: how these are masked where others would see them
    drawn: Any = None  # privacy.policy.Noise of a gradient, where there is any
    every: int = 1  # a server asks clients in turn, each every so many rounds
    cancels: float = 0.0  # if noise is correlated: its deviation in a sum of gradients, over that of a draw


class SharePiece(NamedTuple):
    """What crosses a link, and how it is read."""

    write: Callable[..., Any]  # (said, me, settings, moment): what a node says
    tell: Callable[..., Any]  # (said, me, settings, moment): what a server says to client moment.peer
    take: Callable[..., Any]  # (me, said, settings): a client puts it into its model
    fold: Callable[..., Any]  # (total, count, said, factor, settings): total += factor * values, count += factor
    word: Any
    told: Any
    settings: Any
    state: Any  # a table, a row a node that says something
    parameters: float  # of the model, in a word
    told_parameters: float
    of_change: bool = False  # words are changes of the model, not models
    whole: bool = True  # a word says something of every parameter
    before: bool = False
    uniform: bool = False  # `fold` adds the same to every count, however many there are
    server_state: Any = None  # of who tells, where that needs any
    needs: tuple[str, ...] = ()  # what it reads in the state of the learn part
    leaves: tuple[str, ...] = ()  # regions that a mean of its words may be outside of, though all models are inside


class MixPiece(NamedTuple):
    """What a receiver makes of what it heard."""

    hear: Callable[..., Any]  # (inbox, said, settings, edge)
    finish: Callable[..., Any]  # (me, inbox, settings, moment)
    inbox: Any
    state: Any  # a table, a row a receiver
    settings: Any
    late: int = 0  # the oldest message that counts
    before: bool = False
    write: Callable[..., Any] | None = None  # in place of the share part's: a word with more in it
    word: Any = None  # and that word
    settle: Callable[..., Any] | None = None  # (me): how what was learned enters the model
    lift: Callable[..., Any] | None = None  # (me): undo that for what was learned since me.protect.base, before a round
    tell: Callable[..., Any] | None = None  # in place of the share part's, at a server that keeps more than a model
    take: Callable[..., Any] | None = None
    told: Any = None
    more: float = 0  # parameters that are in a word, and in what is told, beside the share part's
    needs: tuple[str, ...] = ()  # what it reads in the state of the learn part
    weight: Callable[..., Any] | None = None  # (me) -> what a node weighs among peers, if not all weigh the same
    adds: bool = False  # `hear` only adds: inboxes of some senders each can be added up to one of all
    leaves: tuple[str, ...] = ()  # regions that what it makes may be outside of, though all that it heard is inside
    unweighted: bool = False  # a word counts as it is, whatever weight it comes with
    idle: Callable[..., Any] | None = None  # (me, inbox, settings) -> whether `finish` makes nothing of what was heard
    both_ends: bool = False  # sender and receiver both remember a word: one that never counts would part them for good


class Place(NamedTuple):
    """Where a mix works."""

    receivers: int
    most_heard: int  # senders that a receiver ever hears, at most
    own: bool  # a receiver's own model counts as well: peers, and servers among themselves
    pushes: bool  # links go one way, and a sender's weights sum to one
    of_change: bool
    size: int
    dtype: Any


class Learn(Protocol):
    """A way to learn."""

    section: ClassVar[str] = "algorithm.learn"
    data_kind: ClassVar[str] = "stream"  # or "stored", or "deep"

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece: ...

    def start(self, setup: Setup) -> Any:
        """(size,): the model that everyone starts from."""
        return np.zeros(setup.task.size, setup.dtype)

    def sensitivity(self, setup: Setup) -> float:
        """How far replacing one sample can move what is noised, where noise enters with the sample."""
        ...


def start_of(learn: Learn, setup: Setup, who: str = "clients") -> Any:
    """(rows, size): where everyone of "clients" or "servers" starts, in a copy: an earlier run's end, or zero."""
    if setup.start is not None:
        return setup.start[who].copy()
    start, rows = first_of(learn, setup), setup.task.clients if who == "clients" else setup.graph.servers
    # zeros are memory only where they are written: clients that never learned, and others' rows at a node, cost none
    table, at = table_of((rows, len(start)), start.dtype), setup.task.at if who == "clients" else None
    if at is None and start.any():
        table[:] = start
    elif at is not None and at >= 0:
        table[at] = start
    return table


def first_of(learn: Learn, setup: Setup) -> Any:
    """(size,): the model that everyone starts from; what a user's part says may be none."""
    start = np.asarray(learn.start(setup))
    if start.shape != (setup.task.size,) or start.dtype.kind not in "fiu":
        right = f"a part whose start(setup) returns an array of the model's {setup.task.size} parameters"
        raise BadInput("algorithm.learn.kind", type(learn).__name__, right)
    return start.astype(setup.dtype, copy=False)


class Protect(Protocol):
    """A way to protect."""

    section: ClassVar[str] = "algorithm.protect"
    where: ClassVar[str]  # "nowhere", "sample", "word", "sum" or "mix"

    def make(self, setup: Setup, learn: Any) -> ProtectPiece: ...


class Share(Protocol):
    """A way to share."""

    section: ClassVar[str] = "algorithm.share"

    def make(self, setup: Setup) -> SharePiece: ...


class Mix(Protocol):
    """A way to mix."""

    section: ClassVar[str] = "algorithm.mix"

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece: ...

    def one_way(self) -> "Mix":
        """The same where links go one way, and a sender's weights sum to one."""
        return self

    def across(self) -> "Mix":
        """What servers do among themselves: a mean, which is never late."""
        from archipel.parts.mix.mean import Mean

        return Mean(0)
