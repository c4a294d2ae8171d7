"""The papers' figures, drawn again, each with the claims that its paper makes about it.

A paper is one module with `FIGURES`: a name, such as "2a", to a function (quick, progress) -> Figure whose docstring is
the line that `archipel list figures` shows, and perhaps `ALIASES`: other names of the same figures. `gallery` has them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Progress = Callable[[int, int, str], None]  # rounds done, rounds in all, what is going on
Series = tuple[list[float], list[float]]  # x and y
Draw = Callable[[bool, Progress | None], "Figure"]  # (quick, progress) -> figure


@dataclass(frozen=True)
class Claim:
    """A sentence that a paper says of a figure, whether it holds here, and what was measured."""

    claim: str
    holds: bool
    measured: str


@dataclass(frozen=True)
class Figure:
    """What a figure shows. `numbers` are further measurements of a series: its step, its traffic."""

    name: str
    title: str
    series: dict[str, Series]
    claims: list[Claim]
    xlabel: str
    ylabel: str
    note: str = ""
    logx: bool = False
    logy: bool = False
    dashed: tuple[str, ...] = ()  # series that the paper does not show
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)

    def metrics(self) -> dict[str, Any]:
        """The content of metrics.json; a number that is none is null.

        >>> Figure("a/1", "", {"b": ([0], [math.inf])}, [Claim("c", True, "d")], "x", "y").metrics()["series"]
        {'b': {'x': [0], 'y': [None]}}
        """
        return {
            "figure": self.name,
            "title": self.title,
            "xlabel": self.xlabel,
            "ylabel": self.ylabel,
            "note": self.note,
            "logx": self.logx,
            "logy": self.logy,
            "dashed": list(self.dashed),
            "series": {name: {"x": finite(x), "y": finite(y)} for name, (x, y) in self.series.items()},
            "claims": [vars(claim) for claim in self.claims],
            "numbers": {name: dict(zip(row, finite(row.values()))) for name, row in self.numbers.items()},
        }


def finite(values: Any) -> list[Any]:
    """Numbers as JSON has them: it has no infinity."""
    return [value if math.isfinite(value) else None for value in values]
