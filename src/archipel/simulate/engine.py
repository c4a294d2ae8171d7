"""Which engine plays an instance."""

import copy
import os
import threading
from typing import Any, Protocol

import numpy as np

from archipel.errors import BadInput
from archipel.simulate.instance import Instance
from archipel.simulate.plain import PlainEngine
from archipel.turns import Plan, Tell, Turn

LARGE = 2_000_000  # model parameters of all clients together, from which one run uses all cores
REHEARSED = 4  # nodes that play a plain round before anything is compiled
_compiling = threading.Lock()


class Engine(Protocol):
    """Plays rounds and counts what was done."""

    @property
    def updates(self) -> int: ...

    @property
    def messages(self) -> list[int]: ...

    def advance(self, first: int, last: int) -> None: ...


def is_star(plan: Plan) -> bool:
    """Whether an algorithm is a server that tells its clients something, and clients that answer."""
    shape = [type(turn) for turn in plan.turns]
    return shape == [Tell, Turn] and plan.turns[0].sender == "server" and plan.turns[1].receiver == "server"


def engine_for(instance: Instance, name: str = "auto", side_by_side: bool = False) -> Engine:
    """`plain`, or the compiled engine that fits; serial where several runs go side by side."""
    if name == "plain" or instance.plan.plain_only:
        return PlainEngine(instance)
    if name not in ("auto", "serial", "parallel"):
        raise BadInput("engine", name, "one of auto, plain, serial, parallel")
    parallel = name == "parallel" or (name == "auto" and not side_by_side and is_large(instance))
    rehearse(instance)
    with _compiling:
        from archipel.simulate import compile as compiling
        from archipel.simulate.graph import GraphEngine
        from archipel.simulate.star import StarEngine

        compiling.prepare_cache()
        one_server = instance.plan.tables.get("server") is not None and instance.count("server") == 1
        return (
            StarEngine(instance, parallel) if is_star(instance.plan) and one_server else GraphEngine(instance, parallel)
        )


def is_large(instance: Instance) -> bool:
    """Whether one run is worth all cores."""
    return instance.task.clients * instance.task.size >= LARGE and (os.cpu_count() or 1) > 1


def rehearse(instance: Instance) -> None:
    """Play one round of a few nodes in plain Python, on copies: an error names its node and round in one line."""
    clients = min(instance.task.clients, REHEARSED)
    if not is_star(instance.plan) and instance.task.clients > 64:
        return
    tables = dict(instance.plan.tables)
    if is_star(instance.plan):
        tables[instance.data_role] = type(tables[instance.data_role])(
            *[a[:clients] for a in tables[instance.data_role]]
        )
    else:
        clients = instance.task.clients
    twin = instance._replace(
        plan=instance.plan._replace(tables={role: copied_rows(table) for role, table in tables.items()}),
        task=instance.task._replace(clients=clients, source=copied_rows(instance.task.source)),
    )
    with np.errstate(all="ignore"):
        PlainEngine(twin, only=clients).advance(0, 1)


def copied_rows(table: Any) -> Any:
    """A table that can be played with."""
    return type(table)(*[copy.deepcopy(array) for array in table])
