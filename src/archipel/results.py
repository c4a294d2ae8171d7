"""What a run leaves behind, in files that any tool opens: CSV, NPZ, JSON, TOML, HTML."""

import csv
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from archipel.describe import moved
from archipel.errors import BadInput

Row = tuple[int, int, str, float, str]  # seed, round, metric, value, node ("" where it is of no node)


@dataclass
class Result:
    """Measurements, models and ledgers of a run."""

    description: str
    rows: list[Row]
    models: list[dict[str, Any]]  # one for each seed
    ledgers: list[Any] = field(default_factory=list)
    theory: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False
    seconds: float = 0.0
    graph: Any = None  # topology.Graph of the first seed
    name: str = ""
    unit: str = ""  # of the target, where the description names it
    clients: dict[str, Any] = field(default_factory=dict)  # label: what is known of each client beside measurements

    def curve(self, metric: str) -> list[tuple[int, float]]:
        """(round, value) of a metric, averaged over seeds and nodes."""
        sums: dict[int, list[float]] = {}
        for _, round, name, value, _ in self.rows:
            if name == metric:
                sums.setdefault(round, []).append(value)
        return [(round, float(np.mean(values))) for round, values in sorted(sums.items())]

    def final(self, metric: str) -> float:
        """The last value of a metric, averaged over seeds and nodes."""
        return self.curve(metric)[-1][1]

    def metrics(self) -> list[str]:
        """The names of what was measured."""
        return list(dict.fromkeys(row[2] for row in self.rows))

    def total(self, what: str) -> float:
        """Traffic of all links together: `parameters` or `bytes`, a mean over seeds."""
        return sum(self.final(name) for name in self.metrics() if name.startswith(f"{what}."))

    def save(self, folder: str | Path) -> Path:
        """Write metrics.csv, models.npz, ledger.json, federation.toml and report.html."""
        from archipel.report import write_report

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["seed", "round", "metric", "value", "node"])
            writer.writerows((s, n, m, repr(v), k) for s, n, m, v, k in self.rows)
        names = self.models[0] if self.models else {}
        stacked = {name: np.stack([models[name] for models in self.models]) for name in names}
        arrays: Any = {name: a[0] if len(a) == 1 else a for name, a in stacked.items()}
        np.savez(folder / "models.npz", **arrays)
        (folder / "ledger.json").write_text(json.dumps(self.ledger(), indent=1) + "\n", encoding="utf-8")
        here = replace(self, description=moved(self.description, folder))
        (folder / "federation.toml").write_text(here.description, encoding="utf-8")
        write_report(here, folder / "report.html")
        return folder

    def pictures(self) -> list[tuple[str, str]]:
        """Further sections of the report, (title, HTML), that an algorithm's measurements call for."""
        from archipel.report import asked_section

        return [("Whom the server asked", asked_section(self))] if "asked.node" in self.metrics() else []

    def ledger(self) -> dict[str, Any]:
        """What each client's data has paid, for each seed."""
        paid = [ledger for ledger in self.ledgers if ledger is not None]
        if not paid:
            return {"private": False, "note": "No [privacy] table: nothing is protected, nothing is counted."}
        return {"private": True, "seeds": paid}


def ready(folder: Path, key: str = "--out") -> None:
    """Make a folder and see that files can be written to it: better before a run than after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise BadInput(key, str(folder), f"a folder that can be written to ({problem.strerror})") from problem
