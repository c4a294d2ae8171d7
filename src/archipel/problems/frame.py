"""What stands around a model: how a row in a user's own units becomes features, and an answer what the user asked for.

A problem fills it, a bundle carries it. NumPy is all it needs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput, did_you_mean
from archipel.problems.cells import label_of
from archipel.problems.models.fourier import World, mapped

NUMBER, LABEL, CLASS = "number", "label", "class"  # what is predicted: a number, one of two labels, one of many classes


class Frame(NamedTuple):
    """Rows go through (x - center) / spread, a constant input and random Fourier features, as far as they are given."""

    inputs: tuple[int, ...]  # the shape of a row
    columns: tuple[str, ...] = ()  # the names of its cells, where they have any
    center: Any = 0.0
    spread: Any = 1.0
    constant: bool = False  # whether a model has a constant input, the last one
    world: World | None = None
    predicts: str = NUMBER
    target: str = "y"
    target_center: float = 0.0
    target_spread: float = 1.0
    unit: str = ""
    labels: tuple[str, ...] = ("-1", "1")  # of two, the one that stands for 1 last
    categories: Mapping[str, Sequence[str]] = {}  # columns of words: each value is a cell of 0 or 1, "column=value"
    precision: str = "float64"  # in which answers are computed
    units: Mapping[str, str] = {}  # of the columns that say theirs
    network: Mapping[str, Any] | None = None  # of a torch module: how it is built, and what it does to inputs
    filled: tuple[str, ...] = ()  # columns whose center, a mean, stands for a missing cell

    @property
    def features(self) -> int:
        """How many weights a linear model has."""
        if self.world is not None:
            return len(self.world.phases)
        return int(np.prod(self.inputs)) + self.constant

    def mapped(self, rows: Any) -> Any:
        """(samples, inputs) in the user's units to (samples, features), as the models of the run saw them."""
        x = (np.asarray(rows, float) - self.center) / self.spread
        if self.constant:
            x = np.c_[x, np.ones(len(x))]
        x = np.asarray(x, self.precision)
        return x if self.world is None else mapped(self.world, x)

    def told(self, target: Any) -> float:
        """A target in the user's units as the models of the run saw it: a number, or one of two labels as -1 or 1."""
        if self.predicts != LABEL:
            told = (float(numbers("target", target)) - self.target_center) / self.target_spread
            if not np.isfinite(told):
                raise BadInput("target", target, "a finite number")
            return told
        label = label_of(target)
        if not label or (label not in self.labels and self.labels[0] != f"not {self.labels[1]}"):
            raise BadInput("target", target, f"one of {', '.join(self.labels)}")
        return 1.0 if label == self.labels[1] else -1.0

    def table(self, rows: Any) -> Any:
        """Rows as numbers, in the order of the columns: an array, a table by column, or a list of such rows."""
        if isinstance(rows, np.ndarray) or not isinstance(rows, Mapping | Sequence):
            rows = rows if isinstance(rows, np.ndarray) else by_column(rows)
        if isinstance(rows, Sequence) and len(rows) and isinstance(rows[0], Mapping):
            rows = {name: [row.get(name, "") for row in rows] for name in dict.fromkeys(n for row in rows for n in row)}
        made = self.from_columns(rows) if isinstance(rows, Mapping) else numbers("rows", rows)
        if made.ndim == 1 and len(self.inputs) == 1:
            made = made[:, None] if self.inputs == (1,) else made[None]
        if made.shape[1:] != self.inputs:
            named = f": {', '.join(self.columns)}" if self.columns else ""
            raise BadInput("rows", f"rows of shape {made.shape[1:]}", f"rows of shape {self.inputs}{named}")
        if not np.isfinite(made).all():
            raise BadInput("rows", f"row {int(np.argwhere(~np.isfinite(made))[0][0])}", "finite numbers in every cell")
        return np.ascontiguousarray(made)  # so that sums do not depend on how rows came

    def from_columns(self, given: Mapping[str, Any]) -> Any:
        """A table by the names of its columns; others may be there."""
        if not self.columns:
            raise BadInput("rows", "columns by name", f"an array, of shape (rows, {', '.join(map(str, self.inputs))})")
        self.check_named([*map(str, given)])
        made: dict[str, Any] = {}
        for name in self.asked:
            if name in self.categories:
                words = [label_of(cell) for cell in given[name]]
                known = self.categories[name]
                strange = [word for word in words if word not in known]
                if strange:
                    raise BadInput(f"rows, {name}", strange[0], f"one of {', '.join(known)}")
                made |= {f"{name}={value}": np.array([word == value for word in words], float) for value in known}
            else:
                made[name] = numbers(f"rows, {name}", given[name])
                if not made[name].ndim:
                    raise BadInput(f"rows, {name}", given[name], "a column: a list with a cell for each row")
        sizes = {len(column) for column in made.values()}
        if len(sizes) > 1:
            raise BadInput("rows", f"columns of {' and '.join(map(str, sorted(sizes)))} cells", "columns of one length")
        return np.stack([made[name] for name in self.columns], 1)

    def check_named(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks a column."""
        for name in self.asked:
            if name not in names:
                near = did_you_mean(name, names) if names else "there is none"
                raise BadInput("rows", f"no column {name}", f"a column {name} among them, {near}")

    @property
    def asked(self) -> tuple[str, ...]:
        """The columns as a user has them: words in one, not in a cell a value."""
        made = {f"{name}={value}": name for name, values in self.categories.items() for value in values}
        return tuple(dict.fromkeys(made.get(name, name) for name in self.columns))


def by_column(rows: Any) -> Any:
    """What can be read as a table by column, a data frame for instance."""
    try:
        return dict(rows)
    except (TypeError, ValueError):
        raise BadInput("rows", type(rows).__name__, "an array, a table by column, or a list of rows") from None


def numbers(key: str, cells: Any) -> Any:
    """Cells as numbers."""
    try:
        return np.asarray(cells, float)
    except (TypeError, ValueError) as problem:
        raise BadInput(key, str(problem), "numbers") from None
