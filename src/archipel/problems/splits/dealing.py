"""One table of samples, dealt to clients: for research, where data that nobody owns is to look as if many did."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from archipel.describe import Checked, key
from archipel.problems.files import Client, in_order
from archipel.problems.splits import partition
from archipel.problems.splits.shards import numbered
from archipel.problems.task import MOST_CLIENTS


@dataclass(frozen=True)
class Split(Checked):
    """How all samples together are dealt to clients: alike, by label, by size, by time, or by a column."""

    section = "problem.split"

    kind: str = key(
        "none", "how: not at all (a file is a client), or by this law",
        choices=("none", "column", *(name for name in partition.SPLITS if name != "groups")),
    )  # fmt: skip
    clients: int = key(10, "how many clients there are, unless a column names them", at_least=1, at_most=MOST_CLIENTS)
    column: str = key("", "the column that names each sample's client, where kind = column; no input")
    each: int = key(2, "how many shards a client gets, where kind = shards", at_least=1)
    pieces: int = key(3, "how many pieces a label is cut into, where kind = label-shards", at_least=1)
    alpha: float = key(0.5, "the lower, the less alike clients are, where kind = dirichlet", above=0, symbol="alpha")
    fewest: int = key(1, "the least number of labels of a client, where kind = unbalanced", at_least=1)
    most: int = key(6, "the largest number of labels of a client, where kind = unbalanced", at_least=1)
    power: float = key(1.0, "how fast sizes fall with a client's rank, where kind = uneven or unbalanced", at_least=0)

    def dealt(self, clients: Mapping[Path, Client], seed: int) -> dict[Path, Client]:
        """The samples of all files, one after the other, as those of new clients."""
        if self.kind == "none":
            return dict(clients)
        every, first = list(clients.values()), next(iter(clients.values()))
        x, y = np.concatenate([in_order(one, first.columns) for one in every]), np.concatenate([one.y for one in every])
        aside = {name: np.concatenate([one.aside[name] for one in every]) for name in first.aside}
        if self.kind == "column":
            members, names = partition.by_column(aside[self.column].astype(str))
        else:
            labels = np.unique(y.astype(str), return_inverse=True)[1] if y.dtype == object else y
            settings = partition.settings_in(self, self.kind)
            members, names = partition.split(self.kind, labels, self.clients, seed, **settings), numbered(self.clients)
        made = {}
        for name, mine in zip(names, members):
            words = {column: cells[mine] for column, cells in aside.items()}
            made[Path(f"{name.replace('/', '_')}.npz")] = Client(x[mine], y[mine], first.columns, 0, words)
        return made
