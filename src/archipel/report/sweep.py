"""The page of a sweep: the best, all trials as lines through their values, what mattered, and a table that sorts."""

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from archipel.errors import spoken
from archipel.report.data import plain
from archipel.report.page import cards_of, head, page, section

WIDE, HIGH, MARGIN = 900, 320, 60
DECADES = 100  # from the least to the largest, from which on an axis is logarithmic
CLEAR = 'paint-order="stroke" stroke="var(--paper)" stroke-width="4"'  # text above lines
LINES = 400  # the best of more trials are drawn


def write_sweep(
    title: str, found: Sequence[Mapping[str, Any]], metric: str, mattered: Mapping[str, float], path: Path
) -> None:
    """`found` has a row for each trial, the best first; `mattered` the share of each key in what was reached."""
    keys = [name for name in found[0] if name not in ("trial", metric, "why")]
    best, ended = found[0], [row for row in found if row[metric] is not None]
    cards = [(f"Best {metric}", spoken(best[metric]), f"trial {best['trial']}")]
    cards += [(key, in_words(best[key]), "of the best") for key in keys]
    parts = [
        *head(title, f"{len(found)} trials, the best first; {len(found) - len(ended)} did not end."),
        cards_of(cards),
    ]
    drawn = ended[:LINES]
    if len(drawn) > 1:
        few = f" The best {LINES} of {len(ended)}." if len(ended) > LINES else ""
        words = f"Each line is a trial, from its values to its {metric} on the right; the thick one is the best.{few}"
        parts.append(section("Trials", f'<p>{words}</p><div class="scroll">{parallel(drawn, [*keys, metric])}</div>'))
    if mattered:
        bars = "".join(bar(key, share) for key, share in mattered.items())
        words = "How much of the difference between good trials and all trials each key accounts for (PED-ANOVA)."
        parts.append(section("What mattered", f"<p>{words}</p><table>{bars}</table>"))
    parts.append(section("All trials", '<div id="clients"></div>'))
    columns = list(found[0])
    rows = [[cell(row.get(name)) for name in columns] for row in found]
    path.write_text(page(title, parts, {"charts": [], "clients": {"columns": columns, "rows": rows}}), encoding="utf-8")


def bar(key: str, share: float) -> str:
    """A row of a table, with a bar as long as a share."""
    drawn = f'<rect width="{200 * share:.0f}" height="12" fill="var(--s0)"/>'
    picture = f'<svg width="200" height="12" aria-hidden="true">{drawn}</svg>'
    return (
        f'<tr><th scope="row">{html.escape(key)}</th><td>{100 * share:.0f} %</td><td class="text">{picture}</td></tr>'
    )


def cell(value: Any) -> Any:
    """A cell that JSON can hold and a table can sort."""
    return plain(value) if isinstance(value, int | float) and not isinstance(value, bool) else in_words(value)


def in_words(value: Any) -> str:
    return spoken(value) if isinstance(value, float) else "" if value is None else str(value)


def parallel(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Parallel coordinates: an axis for each name, a line for each row; the first row's is on top."""
    axes = [Axis([row[name] for row in rows]) for name in names]
    apart = (WIDE - 2 * MARGIN) / max(len(names) - 1, 1)
    across = [MARGIN + apart * i for i in range(len(names))]
    lines = []
    for rank, row in reversed(list(enumerate(rows))):
        points = " ".join(f"{x:.1f},{axis.place(row[name]):.1f}" for x, axis, name in zip(across, axes, names))
        look = 'stroke="var(--s1)" stroke-width="3"' if rank == 0 else 'stroke="var(--s0)" stroke-opacity=".35"'
        lines.append(f'<polyline fill="none" {look} points="{points}"/>')
    for x, axis, name in zip(across, axes, names):
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="30" y2="{HIGH - 10}" stroke="var(--ink)"/>')
        lines.append(f'<text x="{x:.1f}" y="16" text-anchor="middle" font-weight="600">{html.escape(name)}</text>')
        for label, y in axis.marks():
            lines.append(f'<text x="{x + 5:.1f}" y="{y + 4:.1f}" {CLEAR}>{html.escape(label)}</text>')
    told = f"{len(rows)} trials; the best has " + ", ".join(f"{name} {in_words(rows[0][name])}" for name in names)
    view = f'viewBox="0 0 {WIDE} {HIGH}" style="min-width: 40rem; fill: var(--ink); font-size: 12px"'
    return f'<svg {view} role="img" aria-label="{html.escape(told, quote=True)}">{"".join(lines)}</svg>'


class Axis:
    """Where values are on an axis: by size, by its logarithm where they span decades, or one after the other."""

    def __init__(self, values: Sequence[Any]):
        self.numeric = all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values)
        self.known: list[Any] = sorted(set(values)) if self.numeric else list(dict.fromkeys(map(str, values)))
        self.log = self.numeric and self.known[0] > 0 and self.known[-1] > DECADES * self.known[0]

    def place(self, value: Any) -> float:
        """From the bottom, the least, to the top."""
        if not self.numeric:
            low, high, at = 0.0, len(self.known) - 1.0, float(self.known.index(str(value)))
        else:
            low, high, at = (math.log(v) if self.log else float(v) for v in (self.known[0], self.known[-1], value))
        share = (at - low) / (high - low) if high > low else 0.5
        return HIGH - 15 - share * (HIGH - 55)

    def marks(self) -> list[tuple[str, float]]:
        """The values that are written beside it: all of a few, else the ends and the middle."""
        few = self.known if len(self.known) <= 6 else [self.known[i] for i in (0, len(self.known) // 2, -1)]
        return [(in_words(value), self.place(value)) for value in few]
