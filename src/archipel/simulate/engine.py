"""Which engine plays a stage."""

import copy
import os
import threading
from typing import Any, Protocol

import numpy as np

from archipel.errors import BadInput
from archipel.simulate.plain import PlainEngine
from archipel.simulate.stage import Stage
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


def engine_for(stage: Stage, name: str = "auto", side_by_side: bool = False) -> Engine:
    """`plain`, or the compiled engine that fits; serial where several runs go side by side."""
    if name == "plain" or stage.plan.plain_only:
        return PlainEngine(stage)
    if name not in ("auto", "serial", "parallel"):
        raise BadInput("engine", name, "one of auto, plain, serial, parallel")
    parallel = name == "parallel" or (name == "auto" and not side_by_side and is_large(stage))
    rehearse(stage)
    with _compiling:
        from archipel.simulate import compile as compiling
        from archipel.simulate.graph import GraphEngine
        from archipel.simulate.star import StarEngine

        compiling.prepare_cache()
        one_server = stage.plan.tables.get("server") is not None and stage.count("server") == 1
        return StarEngine(stage, parallel) if is_star(stage.plan) and one_server else GraphEngine(stage, parallel)


def is_large(stage: Stage) -> bool:
    """Whether one run is worth all cores."""
    return stage.task.clients * stage.task.size >= LARGE and (os.cpu_count() or 1) > 1


def rehearse(stage: Stage) -> None:
    """Play one round of a few nodes in plain Python, on copies: an error names its node and round in one line."""
    clients = min(stage.task.clients, REHEARSED)
    if not is_star(stage.plan) and stage.task.clients > 64:
        return
    tables = dict(stage.plan.tables)
    if is_star(stage.plan):
        tables[stage.data_role] = type(tables[stage.data_role])(*[a[:clients] for a in tables[stage.data_role]])
    else:
        clients = stage.task.clients
    twin = stage._replace(
        plan=stage.plan._replace(tables={role: copied_rows(table) for role, table in tables.items()}),
        task=stage.task._replace(clients=clients, source=copied_rows(stage.task.source)),
    )
    with np.errstate(all="ignore"):
        PlainEngine(twin, only=clients).advance(0, 1)


def copied_rows(table: Any) -> Any:
    """A table that can be played with."""
    return type(table)(*[copy.deepcopy(array) for array in table])
