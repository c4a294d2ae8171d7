"""The live table of `archipel up`: who is there, in which round, how good, how many bytes, what it has paid."""

import time
from pathlib import Path
from typing import Any

from rich.table import Table

from archipel.deploy.assemble import assemble, fill, read_rows, rows_at
from archipel.deploy.trace import ROWS
from archipel.deploy.view import instance_of_all
from archipel.report import news, report_page

SHOWN = 12  # nodes in the table, beside the servers
SCORED = 2.0  # seconds between two measurements
RARELY = 50  # times as long as it takes to read what all nodes wrote lie between two pages, at least


class Watch:
    """What is shown of a fleet."""

    def __init__(self, fleet: Any, chaos: Any = None):
        self.fleet, self.chaos = fleet, chaos
        self.instance = instance_of_all(fleet.federation, fleet.description.parent)
        self.scored = 0.0
        self.score: dict[str, float] = {}

    def measure(self) -> None:
        """The error at the last measured round that all have passed."""
        if time.monotonic() < self.scored + SCORED:
            return
        self.scored = time.monotonic()
        roster, folder = self.fleet.roster, Path(self.fleet.nodes)
        traces = {member.name: read_rows(folder / member.name) for member in roster.members}
        if not all(traces.values()):
            return
        mark = min(trace[-1]["round"] for trace in traces.values())
        fill(self.instance, roster, rows_at(traces, mark))
        models = self.fleet.federation.algorithm.models(self.instance.plan.tables)
        scores = self.instance.task.score(models, mark)
        self.score = {name: float(value) for name, value in scores.items() if not getattr(value, "ndim", 0)}

    def table(self, statuses: dict[str, dict[str, Any]]) -> Table:
        """The whole table."""
        self.measure()
        rounds = self.fleet.federation.rounds
        least = min((status.get("round", 0) for status in statuses.values()), default=0)
        scores = "   ".join(f"{name} {value:.4g}" for name, value in list(self.score.items())[:3])
        faults = f"   {self.chaos.done} faults" if self.chaos else ""
        found = Table(title=f"round {least} of {rounds}   {scores}{faults}", title_justify="left")
        for heading in ("node", "is", "round", "hears", "sent and received", "refused", "paid (rho)"):
            found.add_column(heading, justify="left" if heading in ("node", "is") else "right")
        listed = [m.name for m in self.fleet.roster.members if m.role == "server"]
        others = [m.name for m in self.fleet.roster.members if m.role != "server"]
        for name in [*listed, *others[:SHOWN]]:
            found.add_row(name, *self.cells(name, statuses[name]))
        if len(others) > SHOWN:
            rest = [statuses[name] for name in others[SHOWN:]]
            there = sum(name in self.fleet.pids for name in others[SHOWN:])
            total = sum(status.get("bytes", 0) for status in rest)
            found.add_row(f"and {len(rest)} more", f"{there} there", "", "", size(total), "", "")
        return found

    def cells(self, name: str, status: dict[str, Any]) -> list[str]:
        state = "done" if status.get("done") else "there" if name in self.fleet.pids else "away"
        paid = status.get("paid")
        return [
            state,
            str(status.get("round", "")),
            str(status.get("heard", "")),
            size(status.get("bytes", 0)),
            str(sum(status.get("faults", {}).values())),
            "" if paid is None else f"{paid:.4g}",
        ]


class Fleeting:
    """A fleet, as `live.Live` shows it: what its nodes wrote down, measured as a simulation is."""

    def __init__(self, fleet: Any, name: str):
        self.fleet, self.name = fleet, name
        self.instance = instance_of_all(fleet.federation, fleet.description.parent)
        self.stamped, self.quiet = None, 0.0

    def stamp(self) -> Any:
        """The rounds that nodes have reached, once all have written something; rarely, where telling takes long."""
        if self.stamped is None or time.monotonic() >= self.quiet:
            self.stamped = self.reached()
        return self.stamped

    def reached(self) -> Any:
        statuses = self.fleet.statuses()
        rounds = tuple(status.get("round", 0) for status in statuses.values())
        began = all((self.fleet.nodes / name / ROWS).exists() for name in statuses)
        return rounds if began and min(rounds) > 0 else None

    def result(self) -> Any:
        fleet, begun = self.fleet, time.thread_time()
        found = assemble(fleet.federation, self.instance, fleet.roster, fleet.nodes, 0.0, True)
        found.name, found.graph = self.name, self.instance.graph
        self.quiet = time.monotonic() + RARELY * (time.thread_time() - begun)
        return found

    def page(self) -> str:
        return report_page(self.result(), live=True)

    def news(self, since: str) -> dict[str, Any]:
        return news(self.result())


def size(count: float) -> str:
    """Bytes for a person.

    >>> size(999), size(12_345), size(3_000_000)
    ('999 B', '12.3 kB', '3.0 MB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} B"
