"""What one node sees of a federation: its row, its neighbours in every turn, what can be said."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from archipel.clients import MARK, Site, own_part
from archipel.deploy.grow import ANY_ROUND, why_fixed
from archipel.deploy.learned import Learned
from archipel.deploy.masked import Masks
from archipel.deploy.roster import Member, Roster, digest_of, refuse_attack, roster_of
from archipel.deploy.units import Search
from archipel.deploy.wire import PIECE, Vocabulary
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.loading import is_of_file
from archipel.node import Moment, mapped, row
from archipel.problems.units import sums_of
from archipel.simulate.instance import SERVER_KEYS
from archipel.turns import Plan, Tell


class Neighbour(NamedTuple):
    """The other end of a link."""

    name: str
    number: int
    weight: float


@dataclass
class View:
    """What one node needs to know of the federation."""

    member: Member
    roster: Roster
    me: Any  # its own row, a copy
    plan: Plan  # without the tables of all nodes
    task: Any
    conditions: Any
    seed: int
    rounds: int
    every: int
    data_role: str
    vocabulary: Vocabulary
    digest: bytes
    incoming: list[list[list[Neighbour]]]  # turn, phase -> whom it hears, in rising order
    outgoing: list[list[list[Neighbour]]]  # turn, phase -> who hears it
    nothing: Any
    learned: Learned
    masks: Masks | None = None  # where words are masked
    search: Search | None = None  # where units are found together
    keyed: tuple[int, Any] = (-1, 0)  # this round's key, which is asked for several times

    @property
    def has_data(self) -> bool:
        return self.member.role == self.data_role

    @property
    def order(self) -> list[int]:
        """The turns of a round, as they are taken."""
        return self.prelude.order if self.prelude else list(range(len(self.plan.turns)))

    @property
    def prelude(self) -> Any:
        """What is played before the first round."""
        return self.masks or self.search

    def hears(self, turn: int, n: int) -> list[Neighbour]:
        """Whom it hears in a round."""
        phases = self.incoming[turn]
        return phases[n % len(phases)]

    def says(self, turn: int, n: int) -> list[Neighbour]:
        """Who hears it in a round."""
        phases = self.outgoing[turn]
        return phases[n % len(phases)]

    def ever_hears(self, turn: int) -> list[Neighbour]:
        """Whom it hears in some round."""
        return sorted({other.number: other for phase in self.incoming[turn] for other in phase}.values(), key=by_number)

    def ever_says(self, turn: int) -> list[Neighbour]:
        """Who hears it in some round."""
        return sorted({other.number: other for phase in self.outgoing[turn] for other in phase}.values(), key=by_number)

    def salt(self, name: str) -> bytes:
        """What this node and another must agree on beside the digest: their own names and numbers."""
        return repr(sorted((self.member, self.roster.member(name)))).encode()

    def key(self, role: str, number: int, n: int) -> Any:
        """The key of a node's draws in a round, as in a simulation."""
        return key_of(self.seed, number if role == self.data_role else number + SERVER_KEYS, n)

    def moment(self, n: int, present: bool, peer: int = -1, degree: int = 1, kept: float = 1.0) -> Moment:
        """The moment of this node. Its numbers are of an engine's types: a float32 times a float is rounded."""
        if self.keyed[0] != n:
            self.keyed = n, self.key(self.member.role, self.member.number, n)
        return Moment(self.member.number, n, self.keyed[1], peer, np.int64(degree), present, np.float64(kept))


class Tables(NamedTuple):
    """The neighbours of a turn by their numbers in the mailbox."""

    heard: dict[int, Neighbour]  # in some round
    hearers: list[dict[int, Neighbour]]  # of each phase
    hears: list[Any]  # of each phase
    ever: Any
    weights: list[dict[int, float]]  # of each phase, by the neighbour's own number


def tables_of(view: View, number: dict[str, int], i: int) -> Tables:
    """Who is who in a turn, looked up once."""
    return Tables(
        {number[other.name]: other for other in view.ever_hears(i)},
        [{number[other.name]: other for other in phase} for phase in view.outgoing[i]],
        [np.array([number[other.name] for other in phase], np.int64) for phase in view.incoming[i]],
        np.array([number[other.name] for other in view.ever_hears(i)], np.int64),
        [{other.number: other.weight for other in phase} for phase in view.incoming[i]],
    )


def by_number(other: Neighbour) -> int:
    return other.number


def site_of(federation: Any, name: str, base: Path) -> Site:
    """Where a node's own data are: the folder that [deploy] names, or one of its name, or that of the description.

    A server ("" where only the roster is wanted) has no data, nor has a node whose samples come from outside.
    """
    data, stored = federation.deploy.data.replace(MARK, name), federation.problem.data
    if not name or comes_from_outside(data, base):
        return Site("", base)
    if data or is_of_file(stored):
        return Site(name, base / data)
    own = own_part(stored, name)[0]
    return Site(name, own if own.is_dir() else base)


def comes_from_outside(data: str, base: Path) -> bool:
    """Whether what [deploy] says of data is a source of samples, not a folder."""
    return bool(data) and not (base / data).is_dir()


def refuse_missing(data: str, base: Path) -> None:
    """Say that what [deploy] names as data is not there, before anything else is said of it."""
    path, is_code, _ = data.partition(".py:")
    if not (data.startswith("mqtt://") or (base / (f"{path}.py" if is_code else data)).is_file()):
        right = "a folder or a file that is there: a CSV file with a header (its rows may come later), FILE.py:FUNCTION"
        raise BadInput("deploy.data", data, f"{right}, or mqtt://BROKER/TOPIC")


def instance_at(federation: Any, name: str, base: Path, known: Any = None) -> Any:
    """What a node builds: from its own data only, where clients have data of their own; in units that are known."""
    if not federation.named:
        return federation.instance()
    return federation.instance(setup=federation.setup(site=site_of(federation, name, base), known=known))


def instance_of_all(federation: Any, base: Path) -> Any:
    """What a simulation builds, to measure the rows of nodes by; without data, where those come from outside."""
    outside = comes_from_outside(federation.deploy.data.replace(MARK, ""), base)
    return instance_at(federation, "", base) if outside else federation.instance()


def search_of(federation: Any, plan: Plan, member: Member, base: Path) -> Search:
    """How a node takes part in finding units."""
    data = federation.deploy.data.replace(MARK, member.name)
    if comes_from_outside(data, base):
        if member.role != "server":
            refuse_missing(data, base)
        right = "a table of units: what will come from outside is not there when units are found"
        raise BadInput("problem.scale", "private", right)

    def own() -> Any:
        people = federation.clients.people(site_of(federation, member.name, base))
        return sums_of(federation.problem, people, federation.seed, federation.privacy.unit)[member.number]

    def rebuilt(known: Any) -> View:
        return view_of(federation, member.name, instance_at(federation, member.name, base, known), base, asks=False)

    return Search(federation, plan, own, rebuilt)


def view_of(
    federation: Any,
    name: str,
    instance: Any = None,
    base: Path = Path(),
    piece: int = PIECE,
    asks: bool = True,
    first: int = 0,
) -> View:
    """The view of the node of a name. It sees all that the description says; of the others' rows it keeps nothing.

    `base` is the folder of the description. Many nodes in one process may share an `instance`: each has its own row.
    `asks`: units that nobody declares are not known yet. `first`: the number of the first letter between two stores.
    """
    refuse_attack(federation)
    instance = instance_at(federation, name, base) if instance is None else instance
    roster = roster_of(instance)
    member = roster.member(name)
    plan, masks = instance.plan, None
    if plan.masks is not None:
        servers = instance.graph.server
        server = member.number if member.role == "server" else servers[member.number]
        masks = Masks(plan, federation.deploy, np.flatnonzero(servers == server).tolist())
        plan = plan._replace(turns=masks.turns)
    search = search_of(federation, plan, member, base) if federation.problem.finds_units and asks else None
    if search is not None:
        plan = plan._replace(turns=search.turns)
    last = federation.rounds if why_fixed(federation) else ANY_ROUND
    vocabulary = Vocabulary(plan.turns, instance.task.size, last, piece, first)
    mine = row(instance.plan.tables[member.role], member.number)
    incoming, outgoing = [], []
    for turn in plan.turns:
        phases = instance.links[turn.sender, turn.receiver]
        names = roster.names
        incoming.append([heard_by(links, turn, member, names) for links in phases])
        outgoing.append([hearers_of(links, turn, member, names) for links in phases])
    return View(
        member,
        roster,
        mapped(np.array, mine),
        plan._replace(tables={}),
        instance.task,
        instance.conditions,
        instance.seed,
        federation.rounds,
        federation.every,
        instance.data_role,
        vocabulary,
        digest_of(federation, roster, vocabulary, instance.plan.accountant is not None),
        incoming,
        outgoing,
        instance.nothing,
        Learned(federation, instance, member),
        masks=masks,
        search=search,
    )


def heard_by(links: Any, turn: Any, member: Member, names: dict[str, list[str]]) -> list[Neighbour]:
    """Whom a node hears in a turn, in the order of the links."""
    if member.role != turn.receiver:
        return []
    begin, end = links.starts[member.number], links.starts[member.number + 1]
    if isinstance(turn, Tell):
        end = min(end, begin + 1)  # a receiver has one sender
    return [
        Neighbour(names[turn.sender][int(links.senders[e])], int(links.senders[e]), float(links.weights[e]))
        for e in range(begin, end)
    ]


def hearers_of(links: Any, turn: Any, member: Member, names: dict[str, list[str]]) -> list[Neighbour]:
    """Who hears a node in a turn."""
    if member.role != turn.sender:
        return []
    receivers = np.repeat(np.arange(len(links.starts) - 1), np.diff(links.starts))
    ends = [(int(receivers[e]), float(links.weights[e])) for e in np.flatnonzero(links.senders == member.number)]
    return [Neighbour(names[turn.receiver][k], k, weight) for k, weight in ends]
