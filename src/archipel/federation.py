"""A federation: problem, topology, environment, algorithm and privacy, in one description.

>>> from archipel import Federation, PaoFed, Synthetic
>>> federation = Federation(Synthetic(clients=8, features=20), PaoFed(step=0.2), rounds=50, every=25)
>>> result = federation.run()
>>> [round for round, _ in result.curve("mse")]
[0, 25, 50]
"""

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from archipel.deployment import Deployment
from archipel.describe import PATHS, as_table, choose, fill, read_toml, rewrite, write_toml
from archipel.environment import Environment, may_be_late
from archipel.errors import BadInput, did_you_mean
from archipel.registry import ALGORITHMS, PROBLEMS, kind_of
from archipel.results import Result
from archipel.simulate.engine import Engine, engine_for
from archipel.simulate.instance import Instance, all_edges
from archipel.topology import TOPOLOGIES, Star
from archipel.turns import Setup

SECTIONS = ("problem", "topology", "environment", "algorithm", "privacy", "deploy")
LATEST = 10_000  # rounds that a server may wait for an update: it keeps a place for each of them
MOST_CLIENTS = 1 << 40  # beyond are the keys of draws that nodes without data have
PRECISIONS = {"float32": np.float32, "float64": np.float64}


@dataclass(frozen=True)
class Federation:
    """The whole description. `archipel run` simulates it, `archipel up` deploys it."""

    problem: Any
    algorithm: Any
    topology: Any = field(default_factory=Star)
    environment: Environment = field(default_factory=Environment)
    privacy: Any = None
    rounds: int = 1000
    seed: int = 1
    every: int = 10
    precision: str = ""
    engine: str = "auto"
    deploy: Deployment = field(default_factory=Deployment)

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise BadInput("rounds", self.rounds, "at least one round")
        if self.every < 1:
            raise BadInput("every", self.every, "a number of rounds between two measurements, at least 1")
        if not 0 <= self.seed < 1 << 62:
            raise BadInput("seed", self.seed, "a whole number from 0 to below 2^62")
        if getattr(self.algorithm, "limit", 0) > LATEST:
            raise BadInput("algorithm.limit", self.algorithm.limit, f"a number of rounds from 0 to {LATEST}")
        if getattr(self.problem, "clients", 0) > MOST_CLIENTS:
            raise BadInput("problem.clients", self.problem.clients, "a number of clients that a machine can hold")
        if self.precision and self.precision not in PRECISIONS:
            raise BadInput("precision", self.precision, '"float32" or "float64"')
        why_not = getattr(self.algorithm, "refuses", {}).get(kind_of(self.topology))
        if why_not:
            raise BadInput("topology.kind", kind_of(self.topology), f"another: {why_not}")
        allowed = getattr(self.algorithm, "topologies", ("star", "servers", "peers", "digraph"))
        if kind_of(self.topology) not in allowed:
            right = f"one that {kind_of(self.algorithm)} runs on: {', '.join(allowed)}"
            raise BadInput("topology.kind", kind_of(self.topology), right)

    @classmethod
    def load(cls, path: str | Path, **changes: Any) -> "Federation":
        """A federation from a TOML file; keyword arguments replace top-level keys.

        A relative path in a description is meant from the folder of the description.
        """
        table = read_toml(path)
        for keys in PATHS:
            rewrite(table, keys, lambda given: str(Path(path).parent / Path(given).expanduser()))
        return cls.from_table({**table, **changes})

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> "Federation":
        """A federation from nested tables, as TOML has them."""
        plain = {key: value for key, value in table.items() if key not in SECTIONS}
        known = ("rounds", "seed", "every", "precision", "engine")
        for key, value in plain.items():
            if key not in known:
                raise BadInput(key, value, f"a known key or section: {did_you_mean(key, known + SECTIONS)}")
            wanted = str if key in ("precision", "engine") else int
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise BadInput(key, value, "a text in quotes" if wanted is str else "a whole number")
        for section in ("problem", "algorithm"):
            if section not in table:
                raise BadInput(section, "(missing)", f"a section [{section}] with a kind")
        algorithm = choose(ALGORITHMS, table["algorithm"], "algorithm")
        default = getattr(algorithm, "topologies", ("star",))[0]
        return cls(
            problem=choose(PROBLEMS, table["problem"], "problem"),
            algorithm=algorithm,
            topology=choose(TOPOLOGIES, table.get("topology", {}), "topology", default),
            environment=fill(Environment, table.get("environment", {}), "environment"),
            privacy=read_privacy(table.get("privacy")),
            deploy=fill(Deployment, table.get("deploy", {}), "deploy"),
            **plain,
        )

    def to_toml(self) -> str:
        """The description with every default written out."""
        table: dict[str, Any] = {"rounds": self.rounds, "seed": self.seed, "every": self.every}
        table |= {"precision": self.precision or self.algorithm.precision, "engine": self.engine}
        for section in SECTIONS:
            part = getattr(self, section)
            if part is not None:
                named = {"kind": kind_of(part)} if section in ("problem", "topology", "algorithm") else {}
                table[section] = named | as_table(part)
        return write_toml(table) + "\n"

    def setup(self, seed: int | None = None) -> Setup:
        """The data and the graph of a seed."""
        seed = self.seed if seed is None else seed
        dtype = PRECISIONS[self.precision or self.algorithm.precision]
        data_kind = getattr(self.algorithm, "data_kind", "stream")
        topology = self.topology
        if getattr(self.algorithm, "allow_disconnected", False) and hasattr(topology, "force"):
            topology = replace(topology, force=True)  # an algorithm whose servers do not talk
        if getattr(self.problem, "clustered", False):  # its data follow the clusters of the graph
            graph = topology.build(self.problem.clients, seed)
            task = self.problem.task(seed, self.rounds, dtype, data_kind, graph)
        else:
            task = self.problem.task(seed, self.rounds, dtype, data_kind)
            graph = topology.build(task.clients, seed, task.names or None)
        return Setup(task, graph, dtype, self.rounds, seed, self.privacy)

    def instance(self, seed: int | None = None) -> Instance:
        """Everything an engine plays, for a seed."""
        setup = self.setup(seed)
        plan = self.algorithm.plan(setup)
        if self.privacy is not None and plan.accountant is None:
            raise BadInput("privacy", "(a table)", f"none: {kind_of(self.algorithm)} cannot count what it would pay")
        if setup.task.assumed_public and hasattr(plan.accountant, "assuming"):
            plan = plan._replace(accountant=plan.accountant.assuming(setup.task.assumed_public))
        conditions = self.environment.conditions(setup.task.clients, setup.seed)
        if getattr(self.algorithm, "no_delays", False) and may_be_late(conditions):
            right = f"none: {kind_of(self.algorithm)} moves both ends of a link or neither, a message must not be late"
            raise BadInput("environment.delay", self.environment.delay.kind, right)
        role = "client" if "client" in plan.tables else "peer"
        graph = setup.graph
        if plan.weigh is not None:
            graph = replace(graph, across=tuple(map(plan.weigh, graph.across)))
        return Instance(plan, setup.task, all_edges(graph), conditions, setup.seed, role, graph=graph)

    def engine_of(self, instance: Instance, side_by_side: bool = False) -> Engine:
        """The engine that plays an instance of this federation."""
        return engine_for(instance, self.engine, side_by_side)

    def check(self) -> dict[str, float]:
        """Refuse what would go wrong, before anything runs; what theory says of it, as numbers."""
        checker, setup = getattr(self.algorithm, "check", None), self.setup()
        theory = checker(setup) if checker else {}
        conditions = self.environment.conditions(setup.task.clients, setup.seed)
        if may_be_late(conditions) and self.algorithm.plan(setup).late == 0:
            kind = kind_of(self.algorithm)
            warnings.warn(f"Messages may be late here, and {kind} counts none that is (limit = 0).", stacklevel=2)
        return theory

    def run(self, seeds: int = 1, progress: Any = None, theory: dict[str, float] | None = None) -> Result:
        """Simulate it, once for each of `seeds` seeds from `seed` on. It is checked first, unless `theory` is given.

        `theory` is what an earlier check of the same problem said: figures run one problem a hundred times.
        """
        from archipel.simulate.run import run

        return run(self, seeds, progress, theory)

    def with_(self, **changes: Any) -> "Federation":
        """The same federation with other parts."""
        return replace(self, **changes)


def read_privacy(table: Any) -> Any:
    """The [privacy] section, where there is one."""
    if table is None:
        return None
    from archipel.privacy.policy import Privacy

    return fill(Privacy, table, "privacy")
