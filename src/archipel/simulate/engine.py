"""Which engine plays an instance."""

import os
import threading
from typing import TYPE_CHECKING, Protocol

import numpy as np

from archipel.errors import BadInput
from archipel.node import mapped
from archipel.simulate.instance import Instance, all_edges
from archipel.simulate.laid import Rounds
from archipel.simulate.plain import PlainEngine
from archipel.topology import Graph

if TYPE_CHECKING:
    from archipel.simulate.blocks import BlockEngine
    from archipel.simulate.compiled import CompiledEngine

LARGE = 200_000  # model parameters of all clients together, from which one run uses all cores
REHEARSED = 4  # clients of a star that play a plain round before anything is compiled
MOST_REHEARSED = 64  # nodes of another graph, all of which do
_compiling = threading.Lock()


class Counted(Protocol):
    """What was done."""

    @property
    def updates(self) -> int: ...

    @property
    def messages(self) -> list[int]: ...


class Engine(Counted, Protocol):
    """Plays rounds and counts what was done."""

    rounds: Rounds

    def advance(self, first: int, last: int) -> None: ...


def engine_for(instance: Instance, name: str = "auto", side_by_side: bool = False) -> Engine:
    """`plain`, or compiled: with one thread (`serial`), or all cores' (`parallel`, and `auto` for one large run).

    Deep models are never compiled: `plain` takes one client after the other, all else clients side by side.
    """
    if name == "plain":
        return PlainEngine(instance, side_by_side=False)
    if name not in ("auto", "serial", "parallel"):
        raise BadInput("engine", name, "one of auto, plain, serial, parallel")
    parallel = name == "parallel" or (name == "auto" and not side_by_side and is_large(instance))
    threads = max(cores(), 2) if parallel else 1  # at least two, so that `parallel` is what it says
    if instance.plan.plain_only:
        return PlainEngine(instance, threads=threads)
    rehearse(instance)
    return compiled(instance, threads)


def compiled(instance: Instance, threads: int = 1, step_by_step: bool = False) -> "CompiledEngine | BlockEngine":
    """The compiled engine, with its kernels in the cache; `step_by_step` if all words are to be looked at."""
    with _compiling:
        from archipel.simulate.blocks import BlockEngine, in_blocks
        from archipel.simulate.compile import prepare_cache
        from archipel.simulate.compiled import CompiledEngine

        prepare_cache()
        if in_blocks(instance) and not step_by_step:
            return BlockEngine(instance, threads)
        return CompiledEngine(instance, threads, step_by_step)


def cores() -> int:
    """How many threads a large run has."""
    return int(os.environ.get("ARCHIPEL_THREADS") or os.cpu_count() or 1)


def is_large(instance: Instance) -> bool:
    """Whether one run is worth all cores."""
    return instance.task.clients * instance.task.size >= LARGE and cores() > 1


def rehearse(instance: Instance) -> None:
    """Play one round of a few nodes in plain Python, on copies: an error names its node and round in one line."""
    clients = min(instance.task.clients, REHEARSED)
    star = instance.plan.tables.keys() == {"client", "server"} and instance.count("server") == 1
    if not star and instance.task.clients > MOST_REHEARSED:
        return
    tables, links = dict(instance.plan.tables), instance.links
    if star:
        tables["client"] = mapped(lambda array: array[:clients], tables["client"])
        few = all_edges(Graph(clients, instance.graph.across, np.zeros(clients, np.int64), servers=1))
        links = {way: few[way] for way in links}
    else:
        clients = instance.task.clients
    twin = instance._replace(
        plan=instance.plan._replace(tables={role: mapped(np.array, table) for role, table in tables.items()}),
        task=instance.task._replace(clients=clients, source=mapped(np.array, instance.task.source)),
        links=links,
    )
    with np.errstate(all="ignore"):
        PlainEngine(twin).advance(0, 1)
