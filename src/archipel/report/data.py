"""What a page shows of a result, as plain data: curves with bands over seeds, the clients' table, the network."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from archipel.results import Result

COUNTED = ("parameters.", "bytes.", "updates", "worth.")
SINGLE = (".node", ".cluster")  # of one client or cluster each
TABLED = ("rho", "share", "norm", "chance", "noise", "stopped")
UNDRAWN = (*TABLED, "auc", "f1", "calibration", "r2")  # of single clients: in their table only
FACTOR = 5  # from the least to the largest value, from which on an axis is logarithmic at first
SHOWN_NODES = 8  # curves of single nodes in a picture; of more, the middle and the spread
DRAWN_CLIENTS, DRAWN_LINKS = 1500, 5000  # of the picture of a network
LISTED_CLIENTS = 20_000
FEW = 5  # kinds of targets that a sentence names


class Words(NamedTuple):
    """How a metric is spoken of; on a logarithmic axis where it spans decades."""

    title: str
    label: str
    log: bool = False


METRICS = {
    "mse": Words("Mean squared test error", "mean squared error", True),
    "rmse": Words("Test error, in the target's own units", "root mean squared error", True),
    "r2": Words("Share of the target's variance that is explained (R²)", "R²"),
    "accuracy": Words("Test accuracy", "share that is right"),
    "auc": Words("How well the classes are told apart (AUC)", "AUC"),
    "f1": Words("F1 of the positive class", "F1"),
    "calibration": Words("Expected calibration error", "calibration error"),
    "loss": Words("Test loss", "loss"),
    "msd": Words("Squared distance to the true models, relative", "squared distance", True),
    "deviation": Words("Squared distance to the centralised solution, relative", "squared distance", True),
    "rand": Words("Clusters found (adjusted Rand index)", "adjusted Rand index"),
    "tau": Words("What is borrowed: tau", "tau"),
    "epsilon": Words("Privacy: what has been paid", "epsilon paid so far"),
    "rho": Words("Privacy: what has been paid", "zCDP paid so far"),
    "share": Words("Weight", "weight"),
    "norm": Words("Gradient norm", "gradient norm"),
    "noise": Words("Noise of a release", "noise of a release"),
    "asked": Words("Rounds in which the server asked", "rounds asked"),
    "stopped": Words("Silent, its budget spent", "silent, its budget spent"),
}


def is_drawn(metric: str) -> bool:
    """Whether there is a curve of what a metric says of single clients and clusters."""
    return metric.endswith(SINGLE) and metric.split(".")[0] not in UNDRAWN and ".server." not in metric


def words_of(metric: str) -> Words:
    """How a metric, of all or of single nodes, is spoken of."""
    base = metric
    for ending in SINGLE:
        base = base.removesuffix(ending)
    if base.endswith(".server") and base.removesuffix(".server") in METRICS:
        words = METRICS[base.removesuffix(".server")]
        return words._replace(title=f"{words.title}, of the servers' models")
    return METRICS.get(base, Words(base.replace(".", ", "), base))


def scores(result: "Result | Measured") -> list[str]:
    """The metrics that say how good the models are, of the whole federation; in the user's units first."""
    found = [name for name in result.metrics() if not name.startswith(COUNTED) and not name.endswith(SINGLE)]
    return sorted(found, key=lambda name: name != "rmse")


class Measured:
    """A result's measurements, sorted once: by metric and round the nodes' values, a seed each."""

    def __init__(self, result: "Result"):
        self.result = result
        self.values: dict[str, dict[int, list[dict[str, float]]]] = {}
        for (_, round, metric), rows in groupby(result.rows, itemgetter(0, 1, 2)):  # they follow each other
            self.values.setdefault(metric, {}).setdefault(round, []).append(dict(map(itemgetter(4, 3), rows)))
        sent = [metric for metric in self.values if metric.startswith("bytes.")]
        self.bytes = {n: sum(mean(self.at(m, n)) for m in sent) for n in self.rounds("updates")}
        self.paid = {n: max(self.of_nodes("epsilon.node", n)) for n in self.rounds("epsilon.node")}

    def metrics(self) -> list[str]:
        return list(self.values)

    def rounds(self, metric: str) -> list[int]:
        return sorted(self.values.get(metric, ()))

    def at(self, metric: str, round: int, node: str = "") -> list[float]:
        """What the seeds had in a round."""
        return [one[node] for one in self.values[metric][round] if node in one]

    def last(self, metric: str, node: str = "") -> list[float]:
        """What the seeds had in the last round."""
        return self.at(metric, max(self.values[metric]), node)

    def total(self, what: str) -> float:
        """Traffic of all links together: `parameters` or `bytes`, a mean over seeds."""
        return sum(mean(self.last(metric)) for metric in self.values if metric.startswith(f"{what}."))

    def of_nodes(self, metric: str, round: int) -> list[float]:
        """The nodes' values in a round, each a mean over seeds."""
        seeds = self.values[metric][round]
        return list(seeds[0].values()) if len(seeds) == 1 else [mean(self.at(metric, round, k)) for k in seeds[0]]

    def nodes(self, metric: str) -> list[str]:
        return list(self.values[metric][max(self.values[metric])][0])

    def series(self, metric: str, name: str, node: str = "") -> dict[str, Any]:
        """One curve: the mean over seeds, and the lowest and the highest of them."""
        known = {n: self.at(metric, n, node) for n in self.rounds(metric)}
        rounds = [n for n, values in known.items() if values]
        low, middle, high = ([of(known[n]) for n in rounds] for of in (min, mean, max))
        return self.curve(name, rounds, middle, low, high)

    def spread(self, metric: str) -> dict[str, Any]:
        """The middle of all nodes, and where four of five of them are."""
        rounds = self.rounds(metric)
        each = [np.sort([value for value in self.of_nodes(metric, n) if value == value]) for n in rounds]
        low, middle, high = ([between(values, share) for values in each] for share in (0.1, 0.5, 0.9))
        return self.curve("the middle client, and four of five", rounds, middle, low, high)

    def curve(self, name: str, rounds: Sequence[int], mean: Any, low: Any, high: Any) -> dict[str, Any]:
        x: dict[str, Any] = {"rounds": list(rounds)}
        if any(self.bytes.get(n) for n in rounds):
            x["bytes"] = numbers(self.bytes.get(n, 0.0) for n in rounds)
        if self.paid and max(self.paid.values()) > 0 and all(math.isfinite(v) for v in self.paid.values()):
            x["privacy"] = numbers(self.paid.get(n, 0.0) for n in rounds)
        band = any(a < b for a, b in zip(low, high))
        return {"name": name, "x": x, "mean": numbers(mean), "low": numbers(low), "high": numbers(high), "band": band}


def mean(values: Sequence[float]) -> float:
    """The mean; far faster for a few numbers than one of arrays."""
    return sum(values) / len(values)


def between(ordered: Any, share: float) -> float:
    """The value below which a share of ordered ones is, as numpy.quantile has it.

    >>> between([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    if not len(ordered):
        return math.nan
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))


def numbers(values: Iterable[Any]) -> list[float | None]:
    """Six digits are enough to draw; what is not finite is a gap."""
    return [float(f"{float(v):.6g}") if math.isfinite(v) else None for v in values]


# --- curves -----------------------------------------------------------------------------------------------------------


def charts(measured: Mapping[str, Measured]) -> list[dict[str, Any]]:
    """A picture for each score, with one line for each federation; then what single clients and clusters did."""
    found = []
    metrics = dict.fromkeys(metric for one in measured.values() for metric in one.metrics())
    doubled = {"mse", "mse.node"} if "rmse" in metrics else set()  # the same curve, in the user's units
    for metric in dict.fromkeys(metric for one in measured.values() for metric in scores(one)):
        if metric in doubled:
            continue
        there = {name: one for name, one in measured.items() if metric in one.values}
        label = {name: name if len(measured) > 1 else "" for name in there}
        found.append(chart(metric, "", [one.series(metric, label[name]) for name, one in there.items()]))
    if len(measured) > 1 and found and all("bytes" in one["x"] for one in found[0]["series"]):
        found.insert(1, found[0] | {"title": f"{found[0]['title']}, against what was sent for it", "axis": "bytes"})
    if len(measured) == 1:
        (alone,) = measured.values()
        for metric in alone.metrics():
            if is_drawn(metric) and metric not in doubled:
                found.append(single(alone, metric))
    return [one for one in found if one["series"]]


def single(measured: Measured, metric: str) -> dict[str, Any]:
    """Each node's own curve, or, of many, the middle and the spread."""
    nodes = measured.nodes(metric)
    what, name = speaker(measured.result, len(nodes))
    if len(nodes) > SHOWN_NODES:
        return chart(metric, f", of {len(nodes):,} {what}s", [measured.spread(metric)])
    return chart(metric, f", of each {what}", [measured.series(metric, name(k), k) for k in nodes])


def chart(metric: str, whose: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    words = words_of(metric)
    known = [value for one in series for value in one["mean"] if value is not None]
    decades = bool(known) and min(known) > 0 and max(known) > FACTOR * min(known)
    made = {"title": words.title + whose, "unit": words.label, "log": words.log and decades, "series": series}
    return made | {"alt": in_words(made)}


def in_words(spec: Mapping[str, Any]) -> str:
    """What a picture shows, for who does not see it."""
    said = []
    for one in spec["series"][:SHOWN_NODES]:
        known = [(n, v) for n, v in zip(one["x"]["rounds"], one["mean"]) if v is not None]
        if known:
            (first, before), (last, after) = known[0], known[-1]
            said.append(f"{one['name'] or spec['unit']}: {before:.4g} at round {first}, {after:.4g} at round {last}")
    return f"{spec['title']}. " + "; ".join(said) + "."


def speaker(result: "Result", count: int) -> tuple[str, Any]:
    """Whose numbers these are, and their names."""
    graph = result.graph
    if graph is None or count == graph.clients:
        return "client", lambda k: client_name(graph, int(k))
    names = graph.cluster_names
    return "cluster", lambda k: names[int(k)] if names else f"cluster {k}"


def client_name(graph: Any, k: int) -> str:
    return str(graph.names[k]) if graph is not None and len(graph.names) > k else f"client {k}"


# --- clients ----------------------------------------------------------------------------------------------------------


def clients(measured: Measured) -> dict[str, Any] | None:
    """A row for each client: what was measured of it at the end, and what it has paid."""
    result = measured.result
    graph = result.graph
    columns: dict[str, dict[int, Any]] = {}
    for metric in measured.metrics():
        nodes = measured.nodes(metric) if metric.endswith(SINGLE) else []
        if nodes and (metric.endswith(".node") or (graph is not None and len(nodes) == graph.clients)):
            label = words_of(metric).label.removesuffix(" so far")
            columns[label] = {int(k): mean(measured.last(metric, k)) for k in nodes}
    paid = next((ledger for ledger in result.ledgers if ledger is not None), None)
    names = {client_name(graph, k): k for k in {k for column in columns.values() for k in column}}
    for node in paid["nodes"] if paid else ():
        k = names.get(node["node"])
        if k is not None:
            budget = {key: value for key, value in (node["budget"] or {}).items() if key != "delta"}
            columns.setdefault("budget", {})[k] = " ".join(f"{key} {v:.4g}" for key, v in budget.items()) or "none"
            columns.setdefault("releases", {})[k] = node["releases"]
    for k, row in enumerate(result.listed):
        for label, value in row.items():
            if label != "client":
                columns.setdefault(label, {})[k] = value
    listed = sorted({k for column in columns.values() for k in column})[:LISTED_CLIENTS]
    if not listed:
        return None
    rows = [[client_name(graph, k), *(plain(column.get(k)) for column in columns.values())] for k in listed]
    return {"columns": ["client", *columns], "rows": rows}


def plain(value: Any) -> Any:
    """A cell that JSON can hold."""
    if isinstance(value, str) or value is None:
        return value
    return numbers([value])[0]


# --- who has what -----------------------------------------------------------------------------------------------------


def holdings(result: "Result") -> dict[str, Any] | None:
    """How many samples of which class, or of which fifth of the target, each client learns from."""
    held = result.holdings
    if held is None or len(held.names) < 2:
        return None
    return held._asdict() | {"counts": held.counts.tolist(), "caption": in_short(held)}


def in_short(held: Any) -> str:
    """The picture in a sentence."""
    sizes, kinds = held.counts.sum(1), (held.counts > 0).sum(1)
    every = f" ({', '.join(held.classes)})" if len(held.classes) <= FEW else ""
    many = f"{len(sizes)} clients learn from {span(sizes)} samples each"
    if kinds.min() == len(held.classes):
        return f"{many}, and everyone has some of all {len(held.classes)} kinds{every}."
    return f"{many}, of {span(kinds)} of {len(held.classes)} kinds{every}."


def span(numbers: Any) -> str:
    """The least and the largest, where they differ."""
    least, largest = int(numbers.min()), int(numbers.max())
    return f"{least:,}" if least == largest else f"{least:,} to {largest:,}"


# --- the network ------------------------------------------------------------------------------------------------------


def network(result: "Result") -> dict[str, Any] | None:
    """Who can talk to whom, for the page to draw; None where nothing would be seen."""
    graph = result.graph
    if graph is None or graph.clients > DRAWN_CLIENTS or (graph.servers or graph.clients) > 600:
        return None
    links = graph.links()
    pairs = {(min(a, b), max(a, b)) for a, b in zip(links.receivers.tolist(), links.senders.tolist())}
    if len(pairs) > DRAWN_LINKS:
        return None
    found = result.models[0].get("clusters") if result.models else None
    groups = graph.cluster if found is None or graph.clusters else np.asarray(found)
    hubs = [graph.server_names[i] if graph.server_names else f"server {i}" for i in range(graph.servers)]
    return {
        "hubs": hubs or [client_name(graph, k) for k in range(graph.clients)],
        "links": sorted(pairs),
        "members": graph.server.tolist() if graph.servers else [],
        "names": [client_name(graph, k) for k in range(graph.clients)] if graph.servers else [],
        "groups": np.asarray(groups).tolist(),
        "groupNames": list(graph.cluster_names),
        "caption": caption(graph, np.asarray(groups), len(pairs)),
    }


def caption(graph: Any, groups: Any, links: int) -> str:
    """The network in words."""
    sizes = np.bincount(groups) if len(groups) else np.zeros(0, int)
    sizes = sizes[sizes > 0]
    clusters = f", in {len(sizes)} clusters of {sizes.min()} to {sizes.max()} clients" if len(sizes) > 1 else ""
    if graph.servers == 1:
        return f"One server and {graph.clients} clients{clusters}."
    if graph.servers:
        return f"{graph.servers} servers with {links} links among them and {graph.clients} clients{clusters}."
    return f"{graph.clients} peers with {links} links among them{clusters}."
