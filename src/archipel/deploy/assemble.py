"""From what the nodes wrote down to the same result that a simulation gives."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from archipel.deploy.accounts import JOURNAL
from archipel.deploy.real import read_status
from archipel.deploy.roster import Roster
from archipel.deploy.trace import ROWS, entries
from archipel.deploy.wire import HEADER
from archipel.errors import BadInput
from archipel.node import leaves, named_leaves
from archipel.privacy.journal import FileJournal, parse
from archipel.privacy.ledger import ASSUMED, Charge, Ledger
from archipel.privacy.personal import PersonalLedgers
from archipel.privacy.releases import from_json
from archipel.report import moment
from archipel.results import Result
from archipel.simulate.run import Recorder


class Counts:
    """What an engine counts, added up over nodes."""

    def __init__(self, turns: int):
        self.messages, self.updates = [0] * turns, 0


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """What a node wrote down at the measured rounds."""
    path = folder / ROWS
    return entries(path.read_bytes())[0] if path.exists() else []


def rows_at(traces: dict[str, list[dict[str, Any]]], mark: int) -> dict[str, dict[str, Any]]:
    """Every node's last entry up to a round."""
    found = {}
    for name, trace in traces.items():
        before = [entry for entry in trace if entry["round"] <= mark]
        if before:
            found[name] = before[-1]
    return found


def fill(instance: Any, roster: Roster, rows: dict[str, dict[str, Any]]) -> Counts:
    """Put the nodes' rows into the tables of an instance."""
    counts = Counts(len(instance.plan.turns))
    for member in roster.members:
        entry = rows.get(member.name)
        if entry is None:
            continue
        table = instance.plan.tables[member.role]
        for name, array in named_leaves(table):
            row = entry[f"me.{name}"]  # a node's own scratch is as long as its own data need
            array[member.number][tuple(map(slice, row.shape))] = row
        counts.messages = [a + b for a, b in zip(counts.messages, entry["messages"])]
        counts.updates += entry["updates"]
    return counts


def load_ledgers(instance: Any, roster: Roster, folder: Path, until: int) -> None:
    """What the nodes' own ledgers say about the rounds before a mark, for algorithms that charge ledgers."""
    if not isinstance(instance.plan.accountant, PersonalLedgers):
        return
    ledgers = instance.plan.accountant.ledgers
    for k, name in enumerate(roster.names[instance.data_role]):
        path = folder / name / JOURNAL
        if path.exists():
            journal = FileJournal(path)
            charges = [
                Charge(entry["round"], from_json(entry["release"]), entry["times"])
                for entry in journal.entries
                if "release" in entry and entry["round"] < until
            ]
            journal.close()
            ledgers[k] = Ledger(ledgers[k].node, ledgers[k].terms, ledgers[k].budget, charges)


def assumed_by(roster: Roster, folder: Path) -> set[str]:
    """What some node's own ledger says is only assumed: in a replay, that its noise was drawn in secret."""
    found = set()
    for path in (folder / member.name / JOURNAL for member in roster.members):
        entries_of = parse(path.read_bytes(), path)[0] if path.exists() else []
        stated = [entry["terms"] for entry in entries_of if "terms" in entry]
        found |= {held["what"] for held in stated[-1]["assumptions"] if held["how"] == ASSUMED} if stated else set()
    return found


def assemble(
    federation: Any, instance: Any, roster: Roster, folder: Path, seconds: float, interrupted: bool
) -> "Deployed":
    """Measure the nodes' rows as a simulation measures its tables."""
    traces = {member.name: read_rows(folder / member.name) for member in roster.members}
    missing = [name for name, trace in traces.items() if not trace]
    if missing and interrupted:
        raise KeyboardInterrupt  # so soon that there is nothing to measure
    if missing:
        raise BadInput("out", str(folder), f"a folder in which {missing[0]} has written something")
    statuses = {member.name: read_status(folder / member.name) for member in roster.members}
    stayed = {name for name, status in statuses.items() if not status.get("gone")} or set(traces)
    last = min(trace[-1]["round"] for name, trace in traces.items() if name in stayed)
    marks = sorted({entry["round"] for trace in traces.values() for entry in trace if entry["round"] <= last})
    recorder = Recorder(federation, federation.seed, False)
    for mark in marks:
        load_ledgers(instance, roster, folder, mark)
        recorder.done = mark
        recorder.measure(instance, fill(instance, roster, rows_at(traces, mark)))
        recorder.models = {name: np.array(model) for name, model in recorder.models.items()}
    if accountant := instance.plan.accountant:
        known = {held.what for held in accountant.terms.assumptions if held.how == ASSUMED}
        accountant = accountant.assuming(tuple(sorted(assumed_by(roster, folder) - known)))
        recorder.ledger = accountant.ledger(instance.plan.tables, recorder.paid)
    recorder.graph, recorder.task = instance.graph, instance.task
    models = [recorder.models]
    result = Deployed(federation.to_toml(), recorder.rows, models, [recorder.ledger], {}, interrupted, seconds)
    result.about = [recorder.about()]
    result.wire = wire_of(instance, result, statuses)
    result.graph, result.unit = instance.graph, instance.task.unit
    result.listed = [listed(name, statuses[name]) for name in roster.names[instance.data_role]]
    return result


def listed(name: str, status: dict[str, Any]) -> dict[str, Any]:
    """A client's row in the table of clients."""
    return {
        "client": name,
        "round": status.get("round", 0),
        "last seen": moment(status.get("time")),
        "bytes sent": status.get("traffic", {}).get("bytes out", 0),
        "bytes received": status.get("traffic", {}).get("bytes in", 0),
        "rows skipped": status.get("skipped", 0),
    }


# --- the wire -------------------------------------------------------------------------------------------------------

FRAMING = 11  # bytes that Zenoh adds to a frame on TCP: counted by a proxy, see tests/deploy/test_bytes.py


@dataclass
class Deployed(Result):
    """The result of a deployment: also what really crossed the network."""

    wire: dict[str, Any] = field(default_factory=dict)

    def pictures(self) -> list[tuple[str, str]]:
        return [*super().pictures(), ("On the wire", wire_section(self.wire))]


def wire_of(instance: Any, result: Result, statuses: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Frames and bytes of all nodes, against whole models in the same messages. TLS is not counted."""
    traffic: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for status in statuses.values():
        traffic.update(status.get("traffic", {}))
        refused.update(status.get("faults", {}))
    sent = traffic["bytes out"] + FRAMING * traffic["frames out"]
    whole = 0.0
    for i, turn in enumerate(instance.plan.turns):
        way = f"{turn.sender}-{turn.receiver}"
        messages = result.final(f"parameters.{way}") / max(instance.plan.parameters[i], 1)
        whole += messages * (HEADER.size + FRAMING + instance.task.size * next(leaves(turn.word)).itemsize)
    saving = 1 - sent / whole if whole else 0.0
    totals = {"bytes": sent, "bytes with whole models": round(whole), "saving": saving}
    return {**totals, "traffic": dict(traffic), "refused": dict(refused), "nodes": statuses}


def wire_section(wire: dict[str, Any]) -> str:
    """The section of the report."""
    rows = [
        ("frames sent", f"{wire['traffic'].get('frames out', 0):,}"),
        ("bytes sent, framing included, TLS aside", f"{wire['bytes']:,}"),
        ("the same messages with whole models", f"{wire['bytes with whole models']:,}"),
        ("true saving", f"{100 * wire['saving']:.1f} %"),
        ("sent again", f"{wire['traffic'].get('sent again', 0):,}"),
        ("refused", f"{sum(wire['refused'].values()):,}"),
    ]
    return "<table>" + "".join(f"<tr><td>{what}</td><td>{value}</td></tr>" for what, value in rows) + "</table>"
