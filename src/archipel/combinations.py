"""What combines: every kind with every topology, protection and mix, and for what does not the reason in a sentence.

Nothing is listed by hand. A kind says which topologies it refuses, and parts say what they need when they are made; so
a cell is filled if its plan can be made for a tiny problem.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any, NamedTuple

from archipel.errors import BadInput, Missing
from archipel.federation import Federation
from archipel.parts.kind import Composition, Kind
from archipel.privacy.bounding import Bounds
from archipel.privacy.policy import Privacy
from archipel.registry import ALGORITHMS, MIXES, PROBLEMS, PROTECTS
from archipel.topology import TOPOLOGIES, Digraph, Peers, Servers, Star
from archipel.turns import Setup

ROUNDS = 6
CLIENTS = 12
BATCH = 4  # clients have few samples
GRAPHS: dict[str, Any] = {
    "star": Star(),
    "servers": Servers(servers=3, shape="ring"),
    "peers": Peers(shape="ring"),
    "digraph": Digraph(phases=2, window=4),
}
PROTECTED = (
    None,
    Privacy(epsilon=4.0, clip=0.5),
    Privacy(epsilon=4.0, clip=0.5, unit="client"),
    Privacy(epsilon=4.0, bounds=Bounds(1.0, 1.0, 1.0)),
)
TINY: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {  # data kind -> problems that a kind can be tried on
    "stream": (
        ("linear", {"clients": CLIENTS, "size": 10, "samples": 20, "test": 10}),
        ("drifting", {"clients": CLIENTS, "size": 4, "test": 10}),
    ),
    "stored": (
        ("linear", {"clients": CLIENTS, "size": 4, "samples": 6, "test": 10}),
        ("regression", {"clients": CLIENTS, "size": 4, "samples": 6, "test": 10, "reference": False}),
        ("related", {"clients": CLIENTS, "tasks": 2, "size": 4, "samples": (3, 6), "test": 10}),
    ),
    "deep": (
        ("deep", {"clients": CLIENTS, "model": "mlp", "widths": (4,), "samples": 84, "test": 20, "shrink": 2}),
    ),
}  # fmt: skip


class Cell(NamedTuple):
    """A combination: a federation that can be played, or why there is none."""

    kind: str
    topology: str
    protect: str  # "" for the kind's own
    mix: str
    federation: Federation | None
    why_not: str


@cache
def cell(kind: str, topology: str, protect: str = "", mix: str = "") -> Cell:
    """One combination."""
    cls: Any = ALGORITHMS[kind]
    why_not = refusal(cls, topology)
    composed = issubclass(cls, Composition)
    if (protect or mix) and not composed and not why_not:
        why_not = "it is not made of parts that could be replaced"
    if why_not:
        return Cell(kind, topology, protect, mix, None, why_not)
    parts: dict[str, Any] = {"protect": PROTECTS[protect]()} if protect else {}
    parts |= {"mix": MIXES[mix]()} if mix else {}
    try:
        algorithm = cls(**parts)
    except BadInput as found:
        return Cell(kind, topology, protect, mix, None, found.right)
    return Cell(kind, topology, protect, mix, *tried(algorithm, topology))


def refusal(cls: Any, topology: str) -> str:
    """Why a kind says that it does not run on a topology; nothing if it does not say so."""
    if topology in cls.refuses:
        return str(cls.refuses[topology])
    known = cls.topologies
    return "" if topology in known else f"its turns are laid for {' and '.join(known)} only"


def tried(algorithm: Any, topology: str) -> tuple[Federation | None, str]:
    """The first tiny problem, with or without a [privacy] table, for which there is a plan; or why there is none."""
    reasons: list[tuple[bool, str]] = []
    if "batch" in {field.name for field in fields(algorithm)}:
        algorithm = replace(algorithm, batch=BATCH)
    for number, problem in enumerate(tiny(algorithm.data_kind)):
        for privacy in PROTECTED:
            try:
                setup = looked_at(algorithm.data_kind, number, topology, algorithm.precision)
                plan = algorithm.plan(setup._replace(privacy=privacy))
                if privacy is not None and plan.accountant is None:
                    raise BadInput("privacy", "(a table)", "none: nobody counts what it would pay")
                graph = graph_for(problem, topology)
                return Federation(problem, algorithm, graph, privacy=privacy, rounds=ROUNDS), ""
            except BadInput as found:
                # what is not about privacy says more: the next try has another table, or none
                about_privacy = found.key.startswith("privacy") or found.value == "openly"
                reasons.append((about_privacy, found.right))
            except Missing as found:
                reasons.append((False, str(found).rstrip(".")))
    return None, min(reasons, key=lambda reason: reason[0])[1]


@cache
def tiny(data_kind: str) -> tuple[Any, ...]:
    """The problems that a kind can be tried on."""
    return tuple(PROBLEMS[name](**keys) for name, keys in TINY[data_kind])


def graph_for(problem: Any, topology: str) -> Any:
    """The tiny graph of a topology; in clusters where the data follow them."""
    graph = GRAPHS[topology]
    return replace(graph, clusters=2) if type(problem).__name__ == "Related" and topology != "digraph" else graph


@cache
def looked_at(data_kind: str, number: int, topology: str, precision: str) -> Setup:
    """The data and the graph of a tiny problem, which all kinds look at."""
    problem = tiny(data_kind)[number]

    class Looks(Kind):
        """No algorithm."""

        @property
        def data_kind(self) -> str:
            return data_kind

        def plan(self, setup: Setup) -> Any: ...

    return Federation(problem, Looks(), graph_for(problem, topology), rounds=ROUNDS, precision=precision).setup()


def matrix() -> Iterator[Cell]:
    """Every kind on every topology."""
    for kind in ALGORITHMS:
        for topology in TOPOLOGIES:
            yield cell(kind, topology)


def with_parts() -> Iterator[Cell]:
    """Every kind with every protection and every mix, on every topology that it runs on."""
    for kind, cls in ALGORITHMS.items():
        if issubclass(cls, Composition):
            for topology in TOPOLOGIES:
                if not refusal(cls, topology):
                    yield from (cell(kind, topology, protect=protect) for protect in PROTECTS)
                    yield from (cell(kind, topology, mix=mix) for mix in MIXES)


def filled(cells: list[Cell]) -> float:
    """The share of cells that can be played."""
    return sum(cell.federation is not None for cell in cells) / len(cells)


def tables(cells: list[Cell]) -> dict[str, dict[str, dict[str, Cell]]]:
    """Cells by family ("topology", "protect", "mix"), kind and column.

    A part that a kind takes on one topology and not on another has a cell with the first reason.
    """
    found: dict[str, dict[str, dict[str, Cell]]] = {"topology": {}, "protect": {}, "mix": {}}
    for one in cells:
        family = "protect" if one.protect else "mix" if one.mix else "topology"
        column = one.protect or one.mix or one.topology
        row = found[family].setdefault(one.kind, {})
        if column not in row or (row[column].federation is None and one.federation is not None):
            row[column] = one
    return found
