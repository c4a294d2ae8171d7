"""What a node learns from: the description's own problem, or what comes from outside (`outside`)."""

from pathlib import Path
from typing import Any

import numpy as np

from archipel.clients import MARK
from archipel.deploy.view import View, comes_from_outside
from archipel.node import clear

FOREVER = float("inf")
SMALL = 1 << 16  # bytes of a client's row of the data; what is larger does not change


class ProblemSource:
    """A client's own share of the description's problem, seen as in a simulation."""

    over = False
    skipped = 0  # rows that arrived and could not be read

    def __init__(self, view: View):
        self.show(view)

    def show(self, view: View) -> None:
        """What is looked at from here on."""
        self.task, self.number = view.task, view.member.number
        self.rows: dict[str, Any] = {}
        for name, array in zip(self.task.source._fields, self.task.source):
            is_table = isinstance(array, np.ndarray) and array.ndim and len(array) == self.task.clients
            if is_table and array[self.number].nbytes <= SMALL:
                self.rows[name] = array
        self.first = {name: array[self.number].tobytes() for name, array in self.rows.items()}
        self.sample = type(self.task.sample)(*[np.zeros_like(array) for array in self.task.sample])

    def ready(self) -> bool:
        return True

    def wakes(self, now: float) -> float:
        """When to look again, where it was not ready."""
        return FOREVER

    def look(self, moment: Any) -> tuple[bool, Any]:
        """Whether there is something new, and the data."""
        clear(self.sample)
        return self.task.observe(self.task.source, self.sample, moment)

    def keep(self, data: Any) -> dict[str, Any]:
        """What a checkpoint must hold of the data of this round: nothing, where all of it is stored anyway."""
        return {} if data is None or not self.task.streams else dict(zip(data._fields, data))

    def recall(self, kept: dict[str, Any], moment: Any) -> Any:
        """The data of this round, from a checkpoint."""
        return type(self.task.sample)(**kept) if self.task.streams else self.look(moment)[1]

    def state(self) -> dict[str, Any]:
        """What the stream remembers, as far as it changed."""
        mine = {name: array[self.number] for name, array in self.rows.items()}
        return {name: row for name, row in mine.items() if row.tobytes() != self.first[name]}

    def restore(self, state: dict[str, Any]) -> None:
        for name, row in state.items():
            self.rows[name][self.number] = row


def source_of(view: View, data: str, folder: Path) -> Any:
    """What the `data` of a deployment names; paths are meant from the folder of the description."""
    if not view.has_data:
        return None
    data = data.replace(MARK, view.member.name)
    if not comes_from_outside(data, folder):
        return ProblemSource(view)
    from archipel.deploy import outside

    return outside.source_of(view, data, folder)
