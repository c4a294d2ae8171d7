"""From what the nodes wrote down to the same result that a simulation gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from archipel.deploy.roster import Roster
from archipel.deploy.trace import entries
from archipel.errors import BadInput
from archipel.privacy.journal import FileJournal
from archipel.privacy.ledger import Charge, Ledger
from archipel.privacy.releases import from_json
from archipel.results import Result
from archipel.simulate.run import Recorder


class Counts:
    """What an engine counts, added up over nodes."""

    def __init__(self, turns: int):
        self.messages, self.updates = [0] * turns, 0

    def advance(self, first: int, last: int) -> None:
        raise NotImplementedError("a deployment plays itself")


def rows_at(traces: dict[str, list[dict[str, Any]]], mark: int) -> dict[str, dict[str, Any]]:
    """Every node's last entry up to a round."""
    found = {}
    for name, trace in traces.items():
        before = [entry for entry in trace if entry["round"] <= mark]
        if before:
            found[name] = before[-1]
    return found


def fill(stage: Any, roster: Roster, rows: dict[str, dict[str, Any]]) -> Counts:
    """Put the nodes' rows into the tables of a stage."""
    counts = Counts(len(stage.plan.turns))
    for member in roster.members:
        entry = rows.get(member.name)
        if entry is None:
            continue
        table = stage.plan.tables[member.role]
        for name, array in zip(table._fields, table):
            array[member.number] = entry[f"me.{name}"]
        counts.messages = [a + b for a, b in zip(counts.messages, entry["messages"])]
        counts.updates += entry["updates"]
    return counts


def load_ledgers(stage: Any, roster: Roster, folder: Path, until: int) -> None:
    """What the nodes' own ledgers say about the rounds before a mark, for algorithms whose ledgers are in settings."""
    ledgers = getattr(stage.plan.settings, "ledgers", None)
    if not ledgers:
        return
    for k, name in enumerate(roster.names[stage.data_role]):
        path = folder / name / "ledger.journal"
        if path.exists():
            journal = FileJournal(path)
            charges = [
                Charge(entry["round"], from_json(entry["release"]), entry["times"])
                for entry in journal.entries
                if "release" in entry and entry["round"] < until
            ]
            journal.close()
            ledgers[k] = Ledger(ledgers[k].node, ledgers[k].terms, ledgers[k].budget, charges)


def assemble(federation: Any, stage: Any, roster: Roster, folder: Path, seconds: float, interrupted: bool) -> Result:
    """Measure the nodes' rows as a simulation measures its tables."""
    traces = {member.name: entries(folder / member.name / "rows")[0] for member in roster.members}
    missing = [name for name, trace in traces.items() if not trace]
    if missing:
        raise BadInput("out", str(folder), f"a folder in which {missing[0]} has written something")
    last = min(trace[-1]["round"] for trace in traces.values())
    marks = sorted({entry["round"] for trace in traces.values() for entry in trace if entry["round"] <= last})
    recorder = Recorder(federation, federation.seed, False)
    for mark in marks:
        load_ledgers(stage, roster, folder, mark)
        recorder.done = mark
        recorder.measure(stage, fill(stage, roster, rows_at(traces, mark)))
        recorder.models = {name: np.array(model) for name, model in recorder.models.items()}
    if stage.plan.purse:
        recorder.ledger = stage.plan.purse.ledger(stage.plan.tables, recorder.paid)
    models = [recorder.models]
    return Result(federation.to_toml(), recorder.rows, models, [recorder.ledger], {}, interrupted, seconds)


def save_wire(statuses: dict[str, dict[str, Any]], folder: Path) -> None:
    """What really crossed the network, beside what the algorithm counts."""
    totals: dict[str, int] = {}
    faults: dict[str, int] = {}
    for status in statuses.values():
        for name, count in status.get("traffic", {}).items():
            totals[name] = totals.get(name, 0) + count
        for name, count in status.get("faults", {}).items():
            faults[name] = faults.get(name, 0) + count
    text = json.dumps({"traffic": totals, "refused": faults, "nodes": statuses}, indent=1)
    (folder / "wire.json").write_text(text + "\n", encoding="utf-8")
