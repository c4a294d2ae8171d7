"""What a node has learned, as a file that anyone can use: the server's model, a client's, each peer's own."""

from functools import cached_property
from typing import Any

import numpy as np

from archipel.bundle import about, packed
from archipel.deploy.roster import Member
from archipel.node import mapped

MODEL = "model.npz"


class Learned:
    """Makes the bundle of one node, of its row alone."""

    def __init__(self, federation: Any, instance: Any, member: Member):
        self.role, self.algorithm, self.frame = member.role, federation.algorithm, instance.task.frame
        self.federation, self.task, self.seed = federation, instance.task, instance.seed
        self.names = [] if member.role == "server" else [member.name]
        self.others = {role: mapped(first, table) for role, table in instance.plan.tables.items() if role != self.role}

    @cached_property
    def told(self) -> dict[str, Any]:
        """What the file tells of the run; a node that starts need not write it down before there is a file."""
        return about(self.federation, self.task, self.seed, 0, self.names)

    def packed(self, me: Any, round: int, rho: float | None) -> bytes:
        """Its file, after so many rounds, for which so much was paid."""
        models = self.algorithm.models(self.others | {self.role: mapped(lambda array: array[None], me)})
        own = ("server", "servers") if self.role == "server" else ("clients", "clusters")
        paid = None if rho is None else {"worst": {"rho": rho, "epsilon": None}, "nodes": []}
        told = self.told | {"round": round, "paid": paid}
        return packed(told, {name: model for name, model in models.items() if name in own}, self.frame)


def first(array: Any) -> Any:
    """A row of a table's shape: of other roles it is asked for, and not used."""
    return np.zeros((1, *array.shape[1:]), array.dtype)
