"""A problem, ready to run: what engines and algorithms need to know of it."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

from archipel.describe import Checked
from archipel.problems.frame import Frame

MOST_CLIENTS = 1 << 40  # beyond are the keys of draws that nodes without data have
MOST_FEATURES = 10_000_000  # of a linear model
MOST_COSINES = 100_000  # random Fourier features, which are drawn one by one


class Problem(Checked):
    """What every problem is to a federation."""

    section: ClassVar[str] = "problem"
    clustered: ClassVar[bool] = False  # its data follow the clusters of the graph, which `task` is then given
    takes_clients: ClassVar[bool] = False  # of a [clients] table, with data of their own
    takes_shard: ClassVar[bool] = False  # `task` can make the rows of some clients only: shard = slice(first, last)

    @property
    def finds_units(self) -> bool:
        """Whether units of the data are found together, before the first round, and paid for (`units`)."""
        return False

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str, *more: Any, **some: Any) -> "Task":
        """The data of a seed."""
        raise NotImplementedError


class Oracle(NamedTuple):
    """What meters of regret know, and no node may learn from."""

    centres: (
        Any  # (rounds or 1, size): what everyone's expected loss is around, see problems.drifting; no rows: unknown
    )
    past: Callable[[int, int], tuple[Any, Any]]  # features and targets of rounds first to last - 1, all clients'


class Ahead(NamedTuple):
    """`Task.observe` in two halves, for engines that look at some nodes together (`node.Few`), in loops that are fast.

    `draw(source, few, count)` keeps those of the first `count` nodes that have something new, with two numbers for
    each, and returns how many; `look(source, sample, moment, first, second)` is given those, and returns what is new,
    as `observe` does; `view` too, where it is stored, without a copy. All of `draw` comes before a node is looked at.
    """

    draw: Callable[..., Any]
    look: Callable[..., Any]
    view: Callable[..., Any] | None = None


class Task(NamedTuple):
    """A problem with its seed: the clients' data as tables, how a client looks at it, how a model is scored.

    `observe(source, sample, moment)` returns whether there is something new this round, and the data: `sample`,
    filled, or a view of what is stored.
    """

    source: Any
    sample: Any
    observe: Callable[..., Any]
    size: int  # parameters of the model
    clients: int
    score: Callable[[dict[str, Any], int], dict[str, Any]]  # (models, round) -> metric: value, or one a node
    inputs: Callable[[int], Iterator[Any]]  # n -> for each client n feature vectors, for the theory's bounds
    streams: bool = True  # whether new data comes every round; else it is all there
    names: tuple[str, ...] = ()
    loss: int = 0  # of supervised.LOSSES, for algorithms that take any
    regulariser: tuple[float, float] = (0.0, 0.0)  # l1, l2 of the whole objective; of K clients each carries a K-th
    oracle: Oracle | None = None  # for regret, where it can be known
    learner: Any = None  # of models that are not linear: problems.models.learners.Learner
    assumed_public: tuple[str, ...] = ()  # what was taken from everyone's data without noise
    assumed_apart: tuple[str, ...] = ()  # how one sample of a client may be in its others, where samples are protected
    notes: tuple[str, ...] = ()  # what a person would want to know of the data before a run
    listed: Any = ()  # a row for each client: what it has
    unit: str = ""  # of the target
    local_only: bool = False  # whether clients keep their data to themselves: nothing may be taken from everyone's
    at: int | None = None  # whose part of it all this is, by number; -1: a server's; None: the whole
    declared: tuple[str, ...] = ()  # what of the data the description makes public
    ahead: Ahead | None = None  # what replaces `observe` replaces this too
    samples: tuple[int, ...] = ()  # everyone's number of samples to learn from, where it is public

    @property
    def hides_sizes(self) -> bool:
        """Whether only a client itself knows how many samples it has."""
        return self.local_only and not self.samples

    holdings: Any = None  # look.Holdings: who has what, where it can be drawn
    frame: Frame | None = None  # how rows become features, and answers predictions; none: there is nothing to predict
