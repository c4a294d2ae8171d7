"""Reports: one HTML page that needs nothing from outside, to open in any browser and to send to anyone.

What can be read is written here; curves, the clients' table and the network are drawn by `assets/page.js` from data
that stands in the page.
"""

import dataclasses
import html
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from archipel import __version__
from archipel.bundle import costs
from archipel.deployment import Deployment
from archipel.describe import keys_of, quoted, toml
from archipel.environment import Environment
from archipel.errors import spoken
from archipel.privacy.policy import Privacy
from archipel.registry import ALGORITHMS, PROBLEMS
from archipel.report.data import Measured, charts, clients, holdings, network, scores, words_of
from archipel.topology import TOPOLOGIES

if TYPE_CHECKING:
    from pathlib import Path

    from archipel.results import Result

KINDS: Mapping[str, Mapping[str, type]] = {"problem": PROBLEMS, "algorithm": ALGORITHMS, "topology": TOPOLOGIES}
TABLES: Mapping[str, type] = {"environment": Environment, "privacy": Privacy, "deploy": Deployment}
THEORY = {
    "largest_eigenvalue": "largest eigenvalue of R",
    "mean": "step bound, theorem 1 (22)",
    "mean_square": "step bound, theorem 2 (34)",
    "protective": "step allowed",
}


def write_report(result: "Result", path: "Path") -> None:
    """Write the page of one federation."""
    path.write_text(report_page(result), encoding="utf-8")


def report_page(result: "Result", live: Any = False) -> str:
    """The page of one federation; a `live` one asks for what is new, since the stamp that this is."""
    measured = Measured(result)
    curves, graph = charts({"": measured}), network(result)
    held = holdings(result)
    data = {"charts": curves, "clients": clients(measured), "network": graph, "held": held, "live": live}
    parts = [*head(result.name or "A federation", sentence(result)), *stopped([result]), cards(measured)]
    parts += drawn(curves)
    if result.notes:
        said = "".join(f"<li>{html.escape(note)}</li>" for note in result.notes)
        parts.append(section("What was seen in the data", f"<ul>{said}</ul>"))
    parts += [section("Clients", '<div id="clients"></div>')] if data["clients"] else []
    if held:
        text = f'<p>{html.escape(held["caption"])}</p><div id="held" class="held"></div>'
        parts.append(section("Who has what", text))
    if graph:
        text = f'<p>{html.escape(graph["caption"])}</p><div id="network" class="network"></div>'
        parts.append(section("The network", text))
    paid = [ledger for ledger in result.ledgers if ledger is not None]
    parts += [section("Privacy: what each client has paid", privacy_words(paid[0]))] if paid else []
    parts += [section(title, body) for title, body in result.pictures()]
    parts.append(folded("Description", f"<pre>{description(result.description)}</pre>"))
    parts.append(folded("Theory and speed", side_by_side({"value": numbers_of_theory(result)})))
    return page(result.name or "A federation", parts, data)


def news(result: "Result") -> dict[str, Any]:
    """What is new for a live page: points of curves by their round, all else as it is now."""
    measured = Measured(result)
    told = {"charts": charts({"": measured}), "clients": clients(measured)}
    return told | {"cards": cards(measured), "lead": sentence(result)}


def status_page(title: str, told: Mapping[str, Any], live: bool = True) -> str:
    """The page of a machine: `told` has its `lead`, its `cards` and a table of others as `clients`."""
    parts = [*head(title, told["lead"]), told["cards"], section("Who it talks to", '<div id="clients"></div>')]
    return page(title, parts, {"charts": [], "clients": told["clients"], "live": live})


def write_comparison(results: "Mapping[str, Result]", path: "Path") -> None:
    """The page of several federations side by side."""
    title = ", ".join(results)
    met = f"{len(results)} federations that met the same data, absences and delays."
    parts = [*head(title, met), *stopped(results.values())]
    measured = {name: Measured(result) for name, result in results.items()}
    parts.append(section("Side by side", side_by_side({name: measured_numbers(one) for name, one in measured.items()})))
    curves = charts(measured)
    parts += drawn(curves)
    parts.append(section("Where their descriptions differ", table(["key", *results], differences(results))))
    for name, result in results.items():
        parts.append(folded(f"Description of {name}", f"<pre>{description(result.description)}</pre>"))
    theory = side_by_side({name: numbers_of_theory(result) for name, result in results.items()})
    parts.append(folded("Theory and speed", theory))
    path.write_text(page(title, parts, {"charts": curves}), encoding="utf-8")


# --- what is said -----------------------------------------------------------------------------------------------------


def head(title: str, text: str) -> list[str]:
    when = datetime.now().astimezone().strftime("%d %B %Y, %H:%M")
    about = f'<p class="soft">{when}, Archipel {__version__}</p>'
    return [f'<header><h1>{html.escape(title)}</h1><p class="lead">{html.escape(text)}</p>{about}</header>']


def stopped(results: "Iterable[Result]") -> list[str]:
    if not any(result.interrupted for result in results):
        return []
    return ['<p class="stopped">Stopped before the end: this is what was done so far.</p>']


def sentence(result: "Result") -> str:
    """What it is, in a sentence."""
    table = tomllib.loads(result.description)
    problem, algorithm = table["problem"]["kind"], table["algorithm"]["kind"]
    many = result.graph.clients if result.graph is not None else table["problem"].get("clients", 0)
    data = "files" if problem == "files" else f"{problem} data"
    where = {"star": "with one server", "servers": "with several servers", "peers": "among peers"}
    how = where.get(table["topology"]["kind"], "among peers, one way")
    seeds = f", {len(result.models)} seeds" if len(result.models) > 1 else ""
    who = f"{many:,} clients learn" if many else "Clients learn"
    return f"{who} by {algorithm} {how}, from {data}, for {table['rounds']:,} rounds{seeds}."


def final(measured: Measured, metric: str, level: bool = False) -> tuple[str, str]:
    """The last value of a metric, in dB if so wanted, and how far seeds are from each other."""
    values, unit = np.array(measured.last(metric)), measured.result.unit
    if level:
        with np.errstate(divide="ignore", invalid="ignore"):
            shown, values = f"{10 * np.log10(values.mean()):.2f} dB", 10 * np.log10(values)
    else:
        shown = spoken(float(values.mean())) + (f" {unit}" if metric == "rmse" and unit else "")
    spread = f"± {np.std(values):.2g} over {len(values)} seeds" if len(values) > 1 else ""
    return shown, spread


def cards(measured: Measured) -> str:
    """The few numbers that matter."""
    found: list[tuple[str, str, str]] = []
    result = measured.result
    for metric in scores(measured):
        value, spread = final(measured, metric)
        level = final(measured, metric, level=True)[0] if in_decibels(metric) else ""
        found.append((words_of(metric).title, value, "; ".join(filter(None, (level, spread)))))
    if result.ledgers and result.ledgers[0]:
        worst = result.ledgers[0]["worst"]["epsilon"]
        shown = f"ε ≤ {worst:.4g}" if worst is not None else "none"
        found.append(("Privacy of whom paid most", shown, result.ledgers[0]["guarantee"] if worst is not None else ""))
    found.append(("Sent, in all", size(measured.total("bytes")), f"{measured.total('parameters'):,.0f} parameters"))
    return cards_of(found)


def cards_of(found: Iterable[tuple[str, str, str]]) -> str:
    """Numbers that are looked at first: what, how much, and a word more."""
    cells = (
        f"<div><dt>{html.escape(what)}</dt><dd>{html.escape(value)}<small>{html.escape(more)}</small></dd></div>"
        for what, value, more in found
    )
    return f'<dl class="numbers">{"".join(cells)}</dl>'


def summary(result: "Result") -> dict[str, str]:
    """The numbers a reader looks for first, then what theory says."""
    return measured_numbers(Measured(result)) | numbers_of_theory(result)


def measured_numbers(measured: Measured) -> dict[str, str]:
    """How good the models are, what was paid and what was sent."""
    lines: dict[str, str] = {}
    for metric in scores(measured):
        lines[f"final {metric}"] = " ".join(final(measured, metric, in_decibels(metric))).strip()
    ledgers = measured.result.ledgers
    if ledgers and ledgers[0]:
        lines["privacy"] = privacy_line(ledgers[0])
    lines["parameters sent"] = f"{measured.total('parameters'):,.0f}"
    lines["bytes sent"] = f"{measured.total('bytes'):,.0f}"
    return lines


def numbers_of_theory(result: "Result") -> dict[str, str]:
    """What theory says of the run, and how fast it was."""
    lines = {"local updates": f"{result.final('updates'):,.0f}"}
    lines |= {THEORY.get(key, key.replace("_", " ")): f"{value:.4g}" for key, value in result.theory.items()}
    if result.seconds:
        lines["updates a second"] = f"{result.final('updates') * len(result.models) / result.seconds:,.0f}"
    return lines


def in_decibels(metric: str) -> bool:
    """Errors that papers give in dB."""
    return metric.split(".")[0] in ("mse", "msd", "deviation")


def size(count: float) -> str:
    """Bytes as people say them.

    >>> size(512), size(2_345_678)
    ('512 bytes', '2.35 MB')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:,.0f} bytes"


def moment(seconds: float | None) -> str | None:
    """A moment as people say it, where they are."""
    return datetime.fromtimestamp(seconds).isoformat(" ", "seconds") if seconds else None


# --- privacy ----------------------------------------------------------------------------------------------------------


def privacy_line(ledger: Mapping[str, Any]) -> str:
    """The worst client's total, and what it is about; `assumed` where it rests on what nobody enforced."""
    terms = ledger if "unit" in ledger else ledger["nodes"][0]
    change = "replaced" if terms["relation"] == "replace-one" else "added or removed"
    worst = ledger["worst"]["epsilon"]
    if worst is None:
        return "no noise: nothing is protected"
    about = f"one {terms['unit']} {change}"
    return f"epsilon at most {worst:.4g} at delta = {ledger['delta']:g}, {about}; {ledger['guarantee']}"


def privacy_words(ledger: Mapping[str, Any]) -> str:
    """What the guarantee means for a person in the data, and what it rests on."""
    terms = ledger if "assumptions" in ledger else ledger["nodes"][0]
    worst, unit = ledger["worst"]["epsilon"], terms["unit"]
    said = [privacy_line(ledger).capitalize() + "."]
    if worst is not None:
        times = f"{math.exp(worst):.3g} times" if worst < 20 else "any number of times"
        whose = "a single sample" if unit == "sample" else "all of a client's data"
        said.append(
            f"For a person: whoever sees everything that left the clients, and knows all other data, may become at "
            f"most {times} as sure of what {whose} says as before, but for a chance of {ledger['delta']:g}."
        )
        if unit == "sample":
            said.append("A person with several samples in the data is protected less: the numbers add up.")
    if "before" in ledger:
        cost = ", and before that ".join(costs(ledger["before"]))
        said.append(f"The weights that this run started from had cost {cost}. Who is in both data pays for both.")
    lines = [f"<p>{html.escape(text)}</p>" for text in said]
    rests = "".join(f"<li>{html.escape(a['what'])}: <b>{a['how']}</b></li>" for a in terms["assumptions"])
    lines += [f"<p>This rests on:</p><ul>{rests}</ul>"] if rests else []
    for name, level in ledger.get("levels", {}).items():
        text = f"At {name} level, {level['unit']}: epsilon at most {shown_number(level['epsilon'])}."
        lines.append(f"<p>{html.escape(text)}</p>")
    lines += ["<p>Every client's account is in ledger.json.</p>"]
    return "\n".join(lines)


def shown_number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"


def asked_section(result: "Result") -> str:
    """What a server that samples could have won by asking others; whom it asked is in the clients' table."""
    worth = [metric for metric in result.metrics() if metric.startswith("worth.")]
    return "\n".join(
        f"<p>With {metric.removeprefix('worth.')} sampling what of the convergence bound depends on the choice "
        f"would be {result.final(metric):.3g} times ours.</p>"
        for metric in worth
    )


# --- the description --------------------------------------------------------------------------------------------------


def description(text: str) -> str:
    """A description with what is a default in grey, and the meaning of each key where the pointer rests."""
    return "\n".join(lines_of(tomllib.loads(text), None, ""))


def lines_of(table: Mapping[str, Any], cls: Any, name: str) -> Iterator[str]:
    known = keys_of(cls) if cls else {}
    defaults = default_values(cls) if cls else {}
    for key, value in table.items():
        if not isinstance(value, dict):
            line = html.escape(f"{quoted(key)} = {toml(value)}")
            same = key in defaults and toml(defaults[key]) == toml(value)
            meaning = f' title="{html.escape(known[key][1].meaning)}"' if key in known else ""
            yield f"<span{meaning}{' class=default' if same else ''}>{line}</span>"
    for key, value in table.items():
        if isinstance(value, dict):
            inner = f"{name}.{quoted(key)}" if name else quoted(key)
            hint = known[key][0] if key in known else None
            yield f"\n[{html.escape(inner)}]"
            below = KINDS[key].get(value.get("kind", "")) if key in KINDS and not name else TABLES.get(inner, hint)
            yield from lines_of(value, below if dataclasses.is_dataclass(below) else None, inner)


def default_values(cls: Any) -> dict[str, Any]:
    """The defaults of a table."""
    fields = dataclasses.fields(cls)
    made = {f.name: f.default_factory() for f in fields if f.default_factory is not dataclasses.MISSING}
    return made | {f.name: f.default for f in fields if f.default not in (dataclasses.MISSING, None)}


def differences(results: "Mapping[str, Result]") -> list[tuple[str, ...]]:
    """The keys that are not the same in all descriptions."""
    flat = {name: flattened(tomllib.loads(result.description)) for name, result in results.items()}
    keys = list(dict.fromkeys(key for one in flat.values() for key in one))
    rows = [(key, *(one.get(key, "") for one in flat.values())) for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def flattened(table: Mapping[str, Any], name: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in table.items():
        inner = f"{name}.{key}" if name else key
        found |= flattened(value, inner) if isinstance(value, dict) else {inner: toml(value)}
    return found


# --- HTML -------------------------------------------------------------------------------------------------------------


def drawn(curves: list[dict[str, Any]]) -> list[str]:
    """A place for each picture, with its words for who does not see it."""
    hint = "Drag to zoom; with the keyboard: arrows, + and -, 0."
    made = [
        section(
            spec["title"],
            f'<figure id="chart{i}"><div class="plot" role="img" aria-label="{html.escape(spec["alt"])}"></div>'
            f"<figcaption>{band_words(spec)}{hint if i == 0 else ''}</figcaption></figure>",
        )
        for i, spec in enumerate(curves)
    ]
    return [f'<div class="charts">{"".join(made)}</div>'] if made else []


def band_words(spec: Mapping[str, Any]) -> str:
    banded = any(one["band"] for one in spec["series"]) and "four of five" not in spec["series"][0]["name"]
    return "Shaded: from the lowest to the highest seed. " if banded else ""


def section(title: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>\n{body}</section>"


def folded(title: str, body: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>\n{body}</details>"


def side_by_side(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Named numbers of several, side by side."""
    keys = dict.fromkeys(key for column in columns.values() for key in column)
    return table(["", *columns], ((key, *(column.get(key, "") for column in columns.values())) for key in keys))


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """An HTML table."""
    cells = "".join(f'<th scope="col">{html.escape(str(cell))}</th>' for cell in head)
    lines = [f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>']
    for first, *others in rows:
        values = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in others)
        lines.append(f'<tr><th scope="row">{html.escape(str(first))}</th>{values}</tr>')
    return "\n".join(lines) + "</tbody></table></div>"


def page(title: str, parts: Iterable[str], data: Mapping[str, Any]) -> str:
    """A whole page that needs nothing from outside."""
    asset = {name: files("archipel.report").joinpath("assets", name).read_text(encoding="utf-8") for name in ASSETS}
    safe = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)} - Archipel</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{asset['uplot.min.css']}{asset['page.css']}</style></head>\n<body><main>"
        + "\n".join(parts)
        + f'</main>\n<script type="application/json" id="data">{safe}</script>'
        f"<script>{asset['uplot.min.js']}</script><script>{asset['page.js']}</script></body></html>\n"
    )


ASSETS = ("uplot.min.css", "page.css", "uplot.min.js", "page.js")
