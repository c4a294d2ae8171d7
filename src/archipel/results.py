"""What a run leaves behind, in files that any tool opens: CSV, NPZ, JSON, TOML, HTML."""

import csv
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from archipel.describe import moved
from archipel.disk import replacing
from archipel.errors import BadInput, Missing, did_you_mean

HUGE = 1e12  # no parameter of a model that has learned something
Row = tuple[int, int, str, float, str]  # seed, round, metric, value, node ("" where it is of no node)


@dataclass(repr=False)
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
    notes: tuple[str, ...] = ()  # what was found when the data was looked at
    listed: list[dict[str, Any]] = field(default_factory=list)  # what each client has
    holdings: Any = None  # who has what, where it can be drawn: problems.look.Holdings
    about: list[tuple[dict[str, Any], Any]] = field(default_factory=list)  # a seed: what its bundle tells, its Frame

    def __repr__(self) -> str:
        """One line: what it is, and the numbers that matter."""
        scores = ", ".join(f"{name} {self.final(name):.4g}" for name in self.scores()) if self.rows else "nothing yet"
        seeds = f"{len(self.models)} seed" + ("s" if len(self.models) != 1 else "")
        return f"<Result{' of ' + self.name if self.name else ''}: {seeds}, {scores}>"

    def _repr_html_(self) -> str:
        """The page, in a notebook."""
        import html

        from archipel.report import report_page

        text = html.escape(report_page(self), quote=True)
        return f'<iframe srcdoc="{text}" style="width: 100%; height: 40rem; border: 0" title="report"></iframe>'

    def plot(self, metric: str = "", axes: Any = None) -> Any:
        """Draw a metric against the rounds with Matplotlib, the first score if none is named; returns the axes.

        "holdings" draws who has what: a bar for each client, in pieces for classes or fifths of the target.
        """
        from matplotlib import pyplot

        if metric == "holdings" and self.holdings is not None:
            axes, ends = pyplot.gca() if axes is None else axes, self.holdings.counts.cumsum(1)
            for kind, counts, end in zip(self.holdings.classes, self.holdings.counts.T, ends.T):
                axes.barh(self.holdings.names, counts, left=end - counts, label=kind)
            axes.set(xlabel="samples to learn from")
            axes.invert_yaxis()
            return axes
        metric = metric or self.scores()[0]
        axes = pyplot.gca() if axes is None else axes
        axes.plot(*zip(*self.curve(metric)), label=self.name or metric)
        axes.set(xlabel="round", ylabel=metric)
        return axes

    def frame(self) -> Any:
        """All measurements as a table of pandas, or of polars where only that is installed."""
        columns = ["seed", "round", "metric", "value", "node"]
        try:
            import pandas

            return pandas.DataFrame(self.named_rows(), columns=columns)
        except ImportError:
            pass
        try:
            import polars

            return polars.DataFrame(self.named_rows(), schema=columns, orient="row")
        except ImportError:
            raise Missing("A table of measurements needs pandas or polars: pip install pandas.") from None

    def scores(self) -> list[str]:
        """The names of what says how good the models are."""
        from archipel.report.data import scores

        return scores(self)

    def curve(self, metric: str) -> list[tuple[int, float]]:
        """(round, value) of a metric, averaged over seeds and nodes."""
        sums: dict[int, list[float]] = {}
        for _, round, name, value, _ in self.rows:
            if name == metric:
                sums.setdefault(round, []).append(value)
        if not sums:
            raise BadInput("metric", metric, did_you_mean(metric, self.metrics()))
        return [(round, float(np.mean(values))) for round, values in sorted(sums.items())]

    def final(self, metric: str) -> float:
        """The last value of a metric, averaged over seeds and nodes."""
        return self.curve(metric)[-1][1]

    def metrics(self) -> list[str]:
        """The names of what was measured."""
        return list(dict.fromkeys(row[2] for row in self.rows))

    def total(self, what: str) -> float:
        """Traffic of all links together: `parameters` or `bytes`, a mean over seeds."""
        links = [name for name in self.metrics() if name.startswith(f"{what}.")]
        if self.metrics() and not links:
            raise BadInput("total", what, '"parameters" or "bytes"')
        return sum(self.final(name) for name in links)

    def save(self, folder: str | Path) -> Path:
        """Write metrics.csv, models.npz, model.npz, ledger.json, federation.toml and report.html."""
        from archipel.bundle import write
        from archipel.report.page import write_report

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["seed", "round", "metric", "value", "node"])
            writer.writerows((s, n, m, repr(v), k) for s, n, m, v, k in self.named_rows())
        arrays: Any = self.models[0] if self.models else {}
        if len(self.models) > 1:  # of one seed they are as they are: a million clients' are not copied
            arrays = {name: np.stack([models[name] for models in self.models]) for name in arrays}
        if "clients" in arrays and self.graph is not None and len(self.graph.names):
            arrays = {**arrays, "names": np.array(self.graph.names)}
        np.savez(folder / "models.npz", **arrays)
        for i, (told, frame) in enumerate(self.about):
            name = f"model-{told['seed']}.npz" if i else "model.npz"
            with replacing(folder / name) as file:
                write(file, told, self.models[i], frame)
        (folder / "ledger.json").write_text(json.dumps(self.ledger(), indent=1) + "\n", encoding="utf-8")
        here = replace(self, description=moved(self.description, folder))
        (folder / "federation.toml").write_text(here.description, encoding="utf-8")
        write_report(here, folder / "report.html")
        return folder

    def pictures(self) -> list[tuple[str, str]]:
        """Further sections of the report, (title, HTML), that an algorithm's measurements call for."""
        from archipel.report.page import asked_section

        return [("Whom the server asked", asked_section(self))] if "asked.node" in self.metrics() else []

    def named_rows(self) -> list[Row]:
        """The measurements, with the clients' own names where they have any, as ledger.json has them."""
        names = self.graph.names if self.graph is not None else ()
        if not len(names):
            return self.rows
        return [(s, n, m, v, names[int(k)] if k and m.endswith(".node") else k) for s, n, m, v, k in self.rows]

    def grown(self) -> str:
        """A sentence about models that have grown beyond sense without becoming infinite; "" where none has."""
        tables = [model for models in self.models for model in models.values() if model.dtype.kind == "f"]
        largest = max((max(model.max(initial=0), -model.min(initial=0)) for model in tables), default=0.0)
        if not largest > HUGE:
            return ""
        return f"A model has grown to {largest:.2g}: it does not learn, it diverges. A smaller step may help."

    def ledger(self) -> dict[str, Any]:
        """What each client's data has paid, for each seed."""
        paid = [ledger for ledger in self.ledgers if ledger is not None]
        if not paid:
            return {"private": False, "note": "No [privacy] table: nothing is protected, nothing is counted."}
        return {"private": True, "seeds": paid}


def ready(folder: Path, key: str = "--out", description: Path | None = None) -> None:
    """Make a folder and see that files can be written to it: better before a run than after it.

    Results have a federation.toml among them, which must not take the place of the description that is run.
    """
    written = folder / "federation.toml"
    lost = description is not None and written.exists() and written.samefile(description)
    if lost or (key == "--out" and str(folder) == "."):
        raise BadInput(key, str(folder), "a folder of its own for the results")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise BadInput(key, str(folder), f"a folder that can be written to ({problem.strerror})") from problem
