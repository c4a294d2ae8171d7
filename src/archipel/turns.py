"""An algorithm is the turns that nodes take along the edges.

In a `Turn` every node of the sending role acts (learns from its data and says one thing to all its receivers); every
receiver hears each message, which is a fold into an inbox, and merges what it heard. `hear` never looks at the
receiver's state: so a late message is folded at once, into the inbox of the round in which it arrives, and nothing in
flight is kept. If its receiver is away then, it waits until that inbox has its turn again. Of a message that is too
late to count its sender keeps the share (`moment.kept`): what is pushed is never lost.

In a `Tell` a node says something else to each receiver, and does not change by it; a receiver has one sender, so what
it is told is its inbox.

A message is written as a whole: what its paper held before is not wiped.

All node functions are plain functions of one node (`archipel.node.kernel`):

    act(me, data, said, settings, moment) -> does it say something
    tell(me, said, settings, moment)      -> does it tell this receiver (moment.peer) something
    hear(inbox, said, settings, edge)
    merge(me, inbox, settings, moment)    -> None
    take(me, said, settings, moment)      -> None
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from archipel.node import weight_of
from archipel.shard import WHOLE


class SideBySide(NamedTuple):
    """An act in two halves, between which a learner answers many nodes at once; only a simulator plays it so."""

    ask: Callable[..., Any]  # (me, data, settings, moment) -> a generator of what is asked; it returns what was found
    rest: Callable[..., Any]  # (me, found, said, settings, moment) -> as act
    learner: Any


class Turn(NamedTuple):
    """Everyone of `sender` acts and says one thing; everyone of `receiver` hears and merges."""

    sender: str
    receiver: str
    act: Callable[..., Any]
    hear: Callable[..., Any]
    merge: Callable[..., Any]
    word: Any  # one empty message: a named tuple of arrays; it knows its size in bytes
    inbox: Any  # one empty inbox
    forge: Any = None  # parts.forging.Forge, where some senders lie
    side_by_side: SideBySide | None = None
    adds: bool = False  # inboxes of some senders each can be added up to one of all


class Tell(NamedTuple):
    """Each of `sender` tells each of its receivers something of its own."""

    sender: str
    receiver: str
    tell: Callable[..., Any]
    take: Callable[..., Any]
    word: Any


class Setup(NamedTuple):
    """What an algorithm needs to know to make its plan."""

    task: Any  # problems.task.Task
    graph: Any  # topology.Graph
    dtype: Any
    rounds: int
    seed: int
    privacy: Any = None
    attack: Any = None  # environment.Attack, where some clients lie
    start: Any = None  # {"clients", "servers"}: (rows, size) of weights to start from; none: the algorithm's own
    shard: slice = WHOLE  # of clients, whose rows are needed


class Plan(NamedTuple):
    """An algorithm, ready to run: what every role keeps, the turns, and the numbers that steer them."""

    tables: dict[str, Any]  # role -> named tuple of arrays, a row a node
    turns: tuple[Any, ...]
    settings: Any
    parameters: dict[int, float]  # turn -> how many model parameters one of its messages carries
    late: int = 0  # the oldest message that still counts, in rounds
    plain_only: bool = False  # node functions that no compiler takes (deep models)
    measure: Callable[[dict[str, Any], int], dict[str, Any]] | None = None  # (tables, round) -> what else to record
    weigh: Callable[[Any], Any] | None = None  # how links among peers, or among servers, are weighed: Links -> Links
    accountant: Any = None  # what nodes pay in privacy: privacy.accountant.Accountant, or what has its methods
    trusted: bool = False  # servers see what clients say, and noise what they make of it
    masks: Any = None  # privacy.coding.Code: how words to a server are masked, where they leave a machine
    both_ends: bool = False  # what a client says, it remembers as said: a word that never counts does harm for good

    def weight(self, turn: int) -> int:
        """The bytes of a turn's message."""
        masked = self.masks is not None and self.turns[turn].sender == "client"
        return int(self.masks.weight) if masked else weight_of(self.turns[turn].word)
