"""A federation: problem, topology, environment, algorithm and privacy, in one description.

>>> from archipel import Federation, PaoFed, Synthetic
>>> federation = Federation(Synthetic(clients=8, features=20), PaoFed(step=0.2), rounds=50, every=25)
>>> result = federation.run()
>>> [round for round, _ in result.curve("mse")]
[0, 25, 50]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from archipel.clients import MARK, Clients, Site
from archipel.deployment import Deployment
from archipel.describe import (
    LARGEST,
    PATHS,
    REQUIRED,
    Checked,
    as_table,
    check_value,
    choose,
    convert,
    fill,
    key,
    keys_of,
    read_toml,
    rewrite,
    write_toml,
)  # fmt: skip
from archipel.environment import LOSSES, Environment, chance_of_loss, may_be_late
from archipel.errors import BadInput, Findings, did_you_mean
from archipel.loading import is_of_file
from archipel.parts.kind import Kind
from archipel.problems import units
from archipel.problems.poisoned import turned_around
from archipel.problems.task import Problem
from archipel.progress import progress_bar, watched
from archipel.registry import ALGORITHMS, PROBLEMS, described, kind_of, read
from archipel.results import Result
from archipel.shard import WHOLE
from archipel.simulate.engine import Engine, engine_for
from archipel.simulate.instance import Instance, all_edges
from archipel.topology import TOPOLOGIES, Star
from archipel.turns import Setup, Turn

SECTIONS = ("problem", "clients", "topology", "environment", "algorithm", "privacy", "deploy")
OWN = (("problem", "data"), ("problem", "test"))  # paths that each client has for itself
PASSING = ("rounds", "every", "engine", "deploy")  # may change while a federation goes on
MOST_ROUNDS = 10_000_000_000
ENGINES = ("auto", "plain", "serial", "parallel")
UNHEARD = "liars do not hear what a client says: they repeat it in the sum, beside the client's own word"
PRECISIONS = {"float32": np.float32, "float64": np.float64}


@dataclass(frozen=True)
class Federation(Checked):
    """The whole description. `archipel run` simulates it, `archipel up` deploys it."""

    problem: Any = key(REQUIRED, "what is learned, and from which data")
    algorithm: Any = key(REQUIRED, "how it is learned")
    topology: Any = key(Star, "who can talk to whom")
    environment: Environment = key(Environment, "who is away, late or broken")
    privacy: Any = key(None, "what is promised to whom, and how much noise that takes")
    rounds: int = key(1000, "how many rounds are played", at_least=1, at_most=MOST_ROUNDS)
    seed: int = key(1, "settles every random draw", at_least=0, at_most=LARGEST - 1)
    every: int = key(10, "how many rounds lie between two measurements", at_least=1, unit="rounds")
    precision: str = key("", "the floating-point numbers; none: the algorithm's own", choices=("", *PRECISIONS))
    engine: str = key("auto", "which engine plays it; auto: the fastest that can", choices=ENGINES)
    deploy: Deployment = key(Deployment, "how it is deployed; a simulation does not look at it")
    clients: Clients = key(Clients, "who has data of their own; none: the problem says who its clients are")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, part, base in (("problem", self.problem, Problem), ("algorithm", self.algorithm, Kind)):
            if not isinstance(part, base):
                right = f"the {name}, an {base.__module__}.{base.__name__}; it is Federation(problem, algorithm, ...)"
                raise BadInput(
                    name, f"{part.__name__}, a class" if isinstance(part, type) else type(part).__name__, right
                )
        if self.named and not self.problem.takes_clients:
            right = f"none: {kind_of(self.problem)} makes its clients itself; files and deep take data of their own"
            raise BadInput("clients", "(a table)", right)
        why_not = self.algorithm.refuses.get(kind_of(self.topology))
        if why_not:
            raise BadInput("topology.kind", kind_of(self.topology), f"another: {why_not}")
        if kind_of(self.topology) not in self.algorithm.topologies:
            right = f"one that {kind_of(self.algorithm)} runs on: {', '.join(self.algorithm.topologies)}"
            raise BadInput("topology.kind", kind_of(self.topology), right)

    @classmethod
    def load(cls, path: str | Path, **changes: Any) -> "Federation":
        """A federation from a TOML file; keyword arguments replace top-level keys.

        A relative path in a description is meant from the folder of the description.
        """
        table = read_toml(path)
        place(table, Path(path).parent)
        return cls.from_table({**table, **changes})

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> "Federation":
        """A federation from nested tables, as TOML has them."""
        known, parts, found = keys_of(cls), dict[str, Any](), Findings()
        for name, value in table.items():
            with found:
                if name not in known:
                    raise BadInput(name, value, f"a known key or section: {did_you_mean(name, known)}")
                if name not in SECTIONS:
                    parts[name] = convert(known[name][0], value, name)
                    check_value(*known[name], parts[name], name)
        for section, kinds in (("problem", PROBLEMS), ("algorithm", ALGORITHMS)):
            with found:
                if section not in table:
                    raise BadInput(section, "(missing)", f"a section [{section}] with a kind")
                parts[section] = read(kinds, table[section], section)
        default = parts["algorithm"].topologies[0] if "algorithm" in parts else "star"
        for section, reader in READERS.items():
            with found:
                parts[section] = reader(table.get(section), default)
        found.refuse()
        return cls(**parts)

    def table(self) -> dict[str, Any]:
        """The description with every default written out, as nested tables."""
        table: dict[str, Any] = {"rounds": self.rounds, "seed": self.seed, "every": self.every}
        table |= {"precision": self.precision or self.algorithm.precision, "engine": self.engine}
        for section in SECTIONS:
            part = getattr(self, section)
            if part is not None:
                kinds = section in ("problem", "topology", "algorithm")
                table[section] = described(part) if kinds else as_table(part)
        return table

    def to_toml(self) -> str:
        """The description with every default written out."""
        return write_toml(self.table()) + "\n"

    def digest(self) -> str:
        """What two descriptions share that learn the same: all but how long, how fast, where and how they are run.

        Of a path its last name counts: a description may move, with its files.
        """
        table = {name: part for name, part in self.table().items() if name not in PASSING}
        for keys in PATHS:
            rewrite(table, keys, lambda given: Path(given).name)
        return sha256(write_toml(table).encode()).hexdigest()

    @property
    def named(self) -> bool:
        """Whether clients have names, and data that only they see."""
        return bool(self.clients.names or self.clients.roster)

    def setup(
        self, seed: int | None = None, site: Site | None = None, known: Any = None, shard: slice = WHOLE
    ) -> Setup:
        """The data and the graph of a seed; at a site, where clients have names, its own data only.

        `known` are units that were found together, where the description asks for them. `shard` are the clients whose
        rows are needed, of a shard on a cluster.
        """
        seed = self.seed if seed is None else seed
        problem = self.in_units(seed, site, known) if self.problem.finds_units else self.problem
        dtype = PRECISIONS[self.precision or self.algorithm.precision]
        data_kind, topology = self.algorithm.data_kind, self.topology
        if self.algorithm.allow_disconnected and not isinstance(topology, Star):
            topology = replace(topology, force=True)  # an algorithm whose servers do not talk
        if self.problem.clustered:  # its data follow the clusters of the graph
            graph = topology.build(self.problem.clients, seed)
            task = self.problem.task(seed, self.rounds, dtype, data_kind, graph)
        else:
            people = [self.clients.people(site)] if self.named else []
            some = {"shard": shard} if self.problem.takes_shard else {}
            task = problem.task(seed, self.rounds, dtype, data_kind, *people, **some)
            graph = topology.build(task.clients, seed, task.names or None)
        attack = self.environment.attack
        if attack.share > 0 and attack.kind == "labels":
            task = turned_around(task, attack.liars(task.clients, seed))
        privacy = self.privacy and self.privacy.ordered(partial(names_in, graph))
        if self.problem.finds_units:
            privacy = units.left_of(privacy, self.problem.price, task.clients, seed)
        return Setup(task, graph, dtype, self.rounds, seed, privacy, attack if attack.forges else None, shard=shard)

    def in_units(self, seed: int, site: Site | None, known: Any) -> Any:
        """The problem in units that are found together: by a simulation, or by nodes before their first round."""
        people, star = self.clients.people(site), self.topology
        if people is None or self.privacy is None or self.privacy.mechanism != "gaussian":
            right = "a table [clients], whose data are their own, and a table [privacy], with Gaussian noise, that pays"
            raise BadInput("problem.scale", "private", right)
        if not isinstance(star, Star) or star.clusters != 1:
            right = "a table of units: only on a star with one server does anybody hear everyone's sums"
            raise BadInput("problem.scale", "private", right)
        if known is None and site is None:
            known = units.found_by_all(self.problem, people, seed, self.privacy.unit)
        return units.with_units(self.problem, known)

    def instance(self, seed: int | None = None, setup: Setup | None = None) -> Instance:
        """Everything an engine plays, for a seed, or for a setup that is there already."""
        setup = self.setup(seed) if setup is None else setup
        plan = self.algorithm.plan(setup)
        if self.privacy is not None and plan.accountant is None:
            raise BadInput("privacy", "(a table)", f"none: {kind_of(self.algorithm)} cannot count what it would pay")
        if plan.accountant is not None:
            by_sample = plan.accountant.terms.unit == "sample"
            taken = setup.task.assumed_public + (setup.task.assumed_apart if by_sample else ())
            if setup.attack is not None and setup.attack.listens and (plan.trusted or plan.masks is not None):
                taken += (UNHEARD,)
            plan = plan._replace(accountant=plan.accountant.assuming(taken)) if taken else plan
        if self.problem.finds_units:
            plan = plan._replace(accountant=paid_before(plan, setup.graph, self.privacy, self.problem.price))
        if setup.attack is not None and not any(isinstance(turn, Turn) and turn.forge for turn in plan.turns):
            right = f'"labels", of strength 1: of {kind_of(self.algorithm)} it is not known what liars would say'
            raise BadInput("environment.attack.kind", setup.attack.kind, right)
        if setup.start is not None:
            check_start(plan, setup.start, kind_of(self.algorithm))
        environment = self.environment.ordered(partial(names_in, setup.graph))
        conditions = environment.conditions(setup.task.clients, setup.seed, setup.shard)
        if self.algorithm.no_delays and may_be_late(conditions):
            right = f"none: {kind_of(self.algorithm)} moves both ends of a link or neither, a message must not be late"
            raise BadInput("environment.delay", self.environment.delay.kind, right)
        lost = chance_of_loss(conditions, plan.late) if plan.both_ends else 0.0
        if lost > LOSSES:
            replay, law = self.environment.replay, self.environment.delay
            where, given, what = ("replay", replay, "schedule") if replay else ("delay.limit", law.limit, "limit")
            right = f"a {what}, and an algorithm.limit, that all but one message in {1 / LOSSES:g} meet: {lost:.2g}"
            right += " of them would never count, and controls that a server never hears of lead away from the optimum"
            raise BadInput(f"environment.{where}", given, right)
        role = "client" if "client" in plan.tables else "peer"
        graph = setup.graph
        if plan.weigh is not None:
            graph = replace(graph, across=tuple(map(plan.weigh, graph.across)))
        edges = all_edges(graph, setup.shard)
        return Instance(plan, setup.task, edges, conditions, setup.seed, role, graph=graph, shard=setup.shard)

    def engine_of(self, instance: Instance, side_by_side: bool = False) -> Engine:
        """The engine that plays an instance of this federation."""
        return engine_for(instance, self.engine, side_by_side)

    def check(self, setup: Setup | None = None) -> dict[str, float]:
        """Refuse what would go wrong, before anything runs; what theory says of it, as numbers, where data are seen."""
        setup = self.setup() if setup is None else setup
        unseen = setup.task.local_only and not setup.task.source.starts[-1]
        return {} if unseen else self.algorithm.check(setup)

    def run(
        self,
        seeds: int = 1,
        progress: Any = None,
        theory: dict[str, float] | None = None,
        watch: Any = None,
        keep: Any = None,
    ) -> Result:
        """Simulate it, once for each of `seeds` seeds from `seed` on. It is checked first, unless `theory` is given.

        At a prompt and in a notebook a bar says how far it is; `progress` is told instead: (done, total, what).

        `theory` is what an earlier check of the same problem said: figures run one problem a hundred times. `keep`, a
        `simulate.checkpoint.Keep`, says where states are kept and what to go on from.
        """
        from archipel.simulate.checkpoint import NOWHERE
        from archipel.simulate.run import run

        if progress is None and theory is None and watched():
            with progress_bar(kind_of(self.algorithm)) as told:
                return run(self, seeds, told, theory, watch, keep or NOWHERE)
        return run(self, seeds, progress, theory, watch, keep or NOWHERE)

    def with_(self, **changes: Any) -> "Federation":
        """The same federation with other parts."""
        return replace(self, **changes)


def paid_before(plan: Any, graph: Any, privacy: Any, price: float) -> Any:
    """The accountant of clients that have paid for their units when the first round begins."""
    from archipel.privacy.accountant import Accountant

    accountant = plan.accountant
    if type(accountant) is not Accountant or accountant.role != "client" or plan.masks is not None:
        right = "a table of units: noise is not each client's own here, or what it costs is counted in another way"
        raise BadInput("problem.scale", "private", right)
    return accountant._replace(before=price, policy=privacy.ordered(partial(names_in, graph)))


def names_in(graph: Any) -> Sequence[str]:
    """The clients' names, as ledgers have them."""
    return graph.names or [f"client-{k}" for k in range(graph.clients)]


def check_start(plan: Any, start: dict[str, Any], kind: str) -> None:
    """Refuse weights to start from that an algorithm did not take."""
    for role, table in plan.tables.items():
        if not np.array_equal(table.model, start["servers" if role == "server" else "clients"]):
            right = (
                f"the results of this very description, with checkpoint.npz: {kind} goes on from a complete state only"
            )
            raise BadInput("--from", "weights", right)


def place(table: dict[str, Any], base: Path) -> None:
    """Paths from the folder of a description; those of clients' own data go through folders of their names."""
    clients = table.get("clients")
    named = isinstance(clients, dict) and bool(clients.get("names") or clients.get("roster"))

    def placed(given: str) -> str:
        return str(base / Path(given).expanduser())

    def own(given: str) -> str:
        its_own = MARK in given or is_of_file(given) or Path(given).expanduser().is_absolute()
        return placed(given if its_own else f"{MARK}/{given}")

    for keys in PATHS:
        rewrite(table, keys, own if named and keys in OWN else placed)


def read_privacy(table: Any) -> Any:
    """The [privacy] section, where there is one."""
    if table is None:
        return None
    from archipel.privacy.policy import Privacy

    return fill(Privacy, table, "privacy")


def read_clients(table: Any) -> Clients:
    """The [clients] section. A description that a run saved has all keys; a person who writes an empty list forgot."""
    if isinstance(table, dict) and table.get("names") == [] and "roster" not in table:
        raise BadInput("clients.names", [], "at least one name, or a roster, or no table [clients]")
    return fill(Clients, {} if table is None else table, "clients")


READERS: dict[str, Callable[[Any, str], Any]] = {  # of the sections that may be missing: (table, default kind)
    "topology": lambda table, default: choose(TOPOLOGIES, table or {}, "topology", default),
    "environment": lambda table, _: fill(Environment, {} if table is None else table, "environment"),
    "privacy": lambda table, _: read_privacy(table),
    "deploy": lambda table, _: fill(Deployment, {} if table is None else table, "deploy"),
    "clients": lambda table, _: read_clients(table),
}
