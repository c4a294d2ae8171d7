"""Reports: one HTML page with pictures inside, to open in any browser and to send to anyone."""

import html
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from archipel.results import Result

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2530; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; }
td, th { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #dde3ea; }
td:first-child, th:first-child { text-align: left; }
pre { background: #f4f6f8; padding: 1rem; overflow-x: auto; font-size: 13px; }
svg { max-width: 100%; height: auto; } .note { color: #5a6675; }
"""
SHOWN_ROWS = 100  # clients in a table
SHOWN_NODES = 12  # curves of single nodes in a picture; more would hide each other


def write_report(result: "Result", path: Path) -> None:
    """The report of one federation."""
    parts = [table(["quantity", "value"], summary(result).items())]
    if result.interrupted:
        parts.insert(0, '<p class="note">Stopped before the end: this is what was done so far.</p>')
    parts += [section(title_of(metric), picture({"": result.curve(metric)}, metric)) for metric in scores(result)]
    parts += [section(title, body) for title, body in result.pictures()]
    parts.append(section("Description", f"<pre>{html.escape(result.description)}</pre>"))
    path.write_text(page("Archipel: a federation", parts), encoding="utf-8")


def write_comparison(results: "Mapping[str, Result]", path: Path) -> None:
    """The report of several federations side by side."""
    first = next(iter(results.values()))
    rows = {name: summary(result) for name, result in results.items()}
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    parts = [table(["", *keys], ((name, *(row.get(key, "") for key in keys)) for name, row in rows.items()))]
    for metric in scores(first):
        curves = {name: result.curve(metric) for name, result in results.items() if metric in result.metrics()}
        parts.append(section(title_of(metric), picture(curves, metric)))
    parts += [
        section(f"Description of {name}", f"<pre>{html.escape(r.description)}</pre>") for name, r in results.items()
    ]
    path.write_text(page("Archipel: a comparison", parts), encoding="utf-8")


def summary(result: "Result") -> dict[str, str]:
    """The numbers a reader looks for first."""
    lines: dict[str, str] = {}
    for metric in scores(result):
        value = result.final(metric)
        lines[f"final {metric}"] = f"{10 * np.log10(value):.2f} dB" if in_decibels(metric) else f"{value:.4g}"
    if result.ledgers and result.ledgers[0]:
        lines["privacy"] = privacy_line(result.ledgers[0])
    lines["parameters sent"] = f"{result.total('parameters'):,.0f}"
    lines["bytes sent"] = f"{result.total('bytes'):,.0f}"
    lines["local updates"] = f"{result.final('updates'):,.0f}"
    words = {
        "largest_eigenvalue": "largest eigenvalue of R",
        "mean": "step bound, theorem 1 (22)",
        "mean_square": "step bound, theorem 2 (34)",
        "protective": "step allowed",
    }
    lines |= {words.get(key, key.replace("_", " ")): f"{value:.4g}" for key, value in result.theory.items()}
    if result.seconds:
        lines["updates a second"] = f"{result.final('updates') * len(result.models) / result.seconds:,.0f}"
    return lines


def scores(result: "Result") -> list[str]:
    """The metrics that say how good the models are, of the whole federation."""
    counted = ("parameters.", "bytes.", "updates", "worth.")
    parts = (".node", ".cluster")  # of the whole, which have pictures of their own
    return [name for name in result.metrics() if not name.startswith(counted) and not name.endswith(parts)]


def in_decibels(metric: str) -> bool:
    """Errors are shown in dB, as the papers do."""
    return metric.split(".")[0] in ("mse", "msd", "deviation")


def title_of(metric: str) -> str:
    """What a picture shows."""
    words = {"mse": "Mean squared test error", "accuracy": "Test accuracy", "loss": "Test loss"}
    words |= {"msd": "Squared distance to the true models, relative", "tau": "What is borrowed: tau, a mean over peers"}
    words |= {"deviation": "Squared distance to the centralised solution, relative", "rand": "Clusters found"}
    return words.get(metric, metric)


def picture(curves: Mapping[str, list[tuple[int, float]]], metric: str) -> str:
    """Learning curves as a drawing inside the page."""
    figure, axes = canvas()
    for name, curve in curves.items():
        x, y = np.array(curve, float).T
        with np.errstate(divide="ignore", invalid="ignore"):
            axes.plot(x, 10 * np.log10(y) if in_decibels(metric) else y, label=name or None, linewidth=1.6)
    axes.set_xlabel("round")
    axes.set_ylabel(f"{metric} (dB)" if in_decibels(metric) else metric)
    axes.grid(alpha=0.3)
    if any(curves):
        axes.legend(frameon=False)
    return drawn(figure)


def privacy_line(ledger: Mapping[str, Any]) -> str:
    """The worst client's total, and what it is about; `assumed` where it rests on what nobody enforced."""
    terms = ledger if "unit" in ledger else ledger["nodes"][0]
    change = "replaced" if terms["relation"] == "replace-one" else "added or removed"
    worst = ledger["worst"]["epsilon"]
    if worst is None:
        return "no noise: nothing is protected"
    about = f"one {terms['unit']} {change}"
    return f"epsilon at most {worst:.4g} at delta = {ledger['delta']:g}, {about}; {ledger['guarantee']}"


def privacy_section(ledger: Mapping[str, Any]) -> str:
    """What each client paid over time, as a picture, and in all, as a table."""
    nodes = ledger["nodes"]
    terms = ledger if "assumptions" in ledger else nodes[0]
    lines = [f"<p>{html.escape(privacy_line(ledger))}.</p>"]
    lines += [f'<p class="note">{html.escape(a["what"])}: <b>{a["how"]}</b>.</p>' for a in terms["assumptions"]]
    for name, level in ledger.get("levels", {}).items():
        lines.append(f"<p>At {name} level, {level['unit']}: epsilon at most {shown_number(level['epsilon'])}.</p>")
    if "over_time" in nodes[0]:
        lines.append(paid_picture(nodes, ledger["delta"]))
    rows = (
        (
            node["node"] if node.get("clients", 1) == 1 else f"{node['clients']:,} such as {node['node']}",
            shown_budget(node["budget"]),
            shown_number(node["spent"]["rho"]),
            shown_number(node["spent"]["epsilon"]),
            node["releases"],
            node["spent"]["method"],
        )
        for node in nodes[:SHOWN_ROWS]
    )
    lines.append(table(["client", "budget", "zCDP", f"epsilon at {ledger['delta']:g}", "releases", "how"], rows))
    if len(nodes) > SHOWN_ROWS:
        lines.append('<p class="note">All of them are in ledger.json.</p>')
    return "\n".join(lines)


def asked_section(result: "Result") -> str:
    """Whom a server that samples asked: everyone's share of the data, gradient norm, chance and times; its worth."""
    seed = result.rows[0][0]
    last = max(row[1] for row in result.rows if row[0] == seed)
    wanted = {"share": "weight", "norm": "gradient norm", "chance": "chance", "noise": "noise of a release"}
    wanted |= {"asked": "rounds asked", "stopped": "silent, its budget spent"}
    found: dict[str, dict[str, float]] = {}
    for s, n, metric, value, node in result.rows:
        if (s, n) == (seed, last) and metric.removesuffix(".node") in wanted and node:
            found.setdefault(node, {})[metric.removesuffix(".node")] = value
    columns = [name for name in wanted if any(name in row for row in found.values())]
    rows = ((f"client {k}", *(f"{row[c]:.4g}" for c in columns)) for k, row in list(found.items())[:SHOWN_ROWS])
    worth = [metric for metric in result.metrics() if metric.startswith("worth.")]
    lines = [
        f"<p>With {metric.removeprefix('worth.')} sampling what of the convergence bound depends on the choice "
        f"would be {result.final(metric):.3g} times ours.</p>"
        for metric in worth
    ]
    return "\n".join([*lines, table(["", *(wanted[c] for c in columns)], rows)])


def paid_picture(nodes: Any, delta: float) -> str:
    """Everyone's epsilon over the rounds; budgets are dashed."""
    figure, axes = canvas()
    for node in nodes[:SHOWN_NODES]:
        spent = [value if value is not None else np.nan for value in node["over_time"]["epsilon"]]
        (line,) = axes.plot(node["over_time"]["round"], spent, label=node["node"], linewidth=1.4)
        if node["budget"] and "epsilon" in node["budget"]:
            axes.axhline(node["budget"]["epsilon"], color=line.get_color(), linestyle="--", linewidth=0.8, alpha=0.5)
    axes.set(xlabel="round", ylabel=f"epsilon paid so far, at delta = {delta:g}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, ncol=2)
    return drawn(figure)


def shown_budget(budget: Mapping[str, float] | None) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in budget.items()) if budget else "none"


def shown_number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"


def canvas() -> tuple[Any, Any]:
    """An empty picture and its axes; without pyplot, which takes longer to load than a small run takes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2))
    return figure, figure.subplots()


def drawn(figure: Any) -> str:
    """A figure as SVG text."""
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", bbox_inches="tight", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
    )
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def section(title: str, body: str) -> str:
    return f"<h2>{html.escape(title)}</h2>\n{body}"


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """An HTML table."""
    lines = ["<table><tr>" + "".join(f"<th>{html.escape(str(cell))}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join(lines) + "</table>"


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page that needs nothing from outside."""
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style>\n<h1>{html.escape(title)}</h1>\n{body}\n</html>\n"
    )
