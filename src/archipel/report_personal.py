"""What a report shows of clusters: the map of the federation, every cluster's curve, everyone's tau over time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from archipel.report import SHOWN_NODES, canvas, drawn, in_decibels, title_of

if TYPE_CHECKING:
    from archipel.results import Result

DRAWN_CLIENTS = 1500  # beyond which a map shows servers with the sizes of their clusters instead
DRAWN_PEERS = 400
TURNS = 300  # steps of the drawing of a graph
GOLDEN = np.pi * (3 - 5**0.5)  # the angle by which seeds of a sunflower follow each other


def sections(result: "Result") -> list[tuple[str, str]]:
    """(title, HTML) of whatever there is to show."""
    found = []
    if result.graph is not None and worth_a_map(result.graph):
        found.append(("Map of the federation", map_of(result.graph, last_clusters(result))))
    for metric in result.metrics():
        if metric.endswith(".cluster") and not metric.endswith(".server.cluster"):
            each = by_node(result, metric)
            what, names = curve_names(result.graph, len(each))
            title = f"{title_of(metric.removesuffix('.cluster'))}, of each {what}"
            found.append((title, lines(each, metric, names)))
    if "tau.node" in result.metrics():
        found.append(("What each peer borrows: tau over time", taus(result)))
    return found


# --- curves -----------------------------------------------------------------------------------------------------


def by_node(result: "Result", metric: str) -> dict[str, Any]:
    """Node to (rounds, values), a mean over seeds."""
    sums: dict[str, dict[int, list[float]]] = {}
    for _, round, name, value, node in result.rows:
        if name == metric:
            sums.setdefault(node, {}).setdefault(round, []).append(value)
    return {
        node: np.array([(round, np.mean(values)) for round, values in sorted(rounds.items())]).T
        for node, rounds in sums.items()
    }


def lines(curves: Mapping[str, Any], metric: str, names: Mapping[str, str]) -> str:
    """A curve for each node, or cluster."""
    figure, axes = canvas()
    loud = in_decibels(metric)
    for node, (x, y) in list(curves.items())[:SHOWN_NODES]:
        with np.errstate(divide="ignore", invalid="ignore"):
            axes.plot(x, 10 * np.log10(y) if loud else y, label=names.get(node, f"cluster {node}"), linewidth=1.6)
    label = metric.removesuffix(".cluster")
    axes.set(xlabel="round", ylabel=f"{label} (dB)" if loud else label)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, ncol=2)
    return drawn(figure)


def taus(result: "Result") -> str:
    """Every peer's tau, thin, and their mean; of the first seed, since peers differ between seeds."""
    first = min(row[0] for row in result.rows)
    of_peer: dict[str, list[tuple[int, float]]] = {}
    for seed, round, name, value, node in result.rows:
        if name == "tau.node" and seed == first:
            of_peer.setdefault(node, []).append((round, value))
    figure, axes = canvas()
    for curve in list(of_peer.values())[:DRAWN_PEERS]:
        axes.plot(*np.array(curve).T, linewidth=0.7, alpha=0.5)
    mean = np.mean([np.array(curve)[:, 1] for curve in of_peer.values()], 0)
    axes.plot(np.array(next(iter(of_peer.values())))[:, 0], mean, color="black", linewidth=2.0, label="mean")
    axes.set(xlabel="round", ylabel="tau")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return drawn(figure)


# --- the map ----------------------------------------------------------------------------------------------------


def worth_a_map(graph: Any) -> bool:
    """A single server without clusters needs no picture, nor do peers too many to see."""
    if graph.servers:
        return bool(graph.servers > 1 or graph.clusters != 1) and graph.servers <= DRAWN_PEERS
    return bool(graph.clients <= DRAWN_PEERS)


def last_clusters(result: "Result") -> Any:
    """Everyone's cluster at the end of the first seed's run: the graph's, or what was discovered."""
    graph = result.graph
    found = result.models[0].get("clusters") if result.models else None
    return graph.cluster if found is None or graph.clusters else np.asarray(found)


def cluster_names(graph: Any) -> dict[str, str]:
    """The names that the user gave."""
    return {str(q): name for q, name in enumerate(graph.cluster_names)} if graph is not None else {}


def curve_names(graph: Any, curves: int) -> tuple[str, dict[str, str]]:
    """Whose curves these are: clusters', or those of clients that are judged each by its own data."""
    if graph is None or curves != graph.clients:
        return "cluster", cluster_names(graph)
    return "client", {str(k): graph.names[k] if graph.names else f"client {k}" for k in range(curves)}


def map_of(graph: Any, cluster: Any) -> str:
    """Servers and their links, clients around them in the colours of their clusters; or peers and their links."""
    links = graph.links()
    place = spread(links, graph.servers or graph.clients)
    figure, axes = canvas()
    figure.set_size_inches(7.5, 6.0)
    for s, p in zip(links.receivers, links.senders):
        if s <= p or graph.servers == 0:
            axes.plot(*place[[s, p]].T, color="#9aa7b5", linewidth=0.8, zorder=1)
    groups = cluster if len(cluster) else np.zeros(graph.clients, np.int64)
    names = cluster_names(graph)
    if not graph.servers:
        dots(axes, place, groups, names, 40.0)
        named(axes, place, graph.names)
    elif graph.clients <= DRAWN_CLIENTS:
        around = place[graph.server] + petals(graph, place)
        for k, s in enumerate(graph.server):
            axes.plot(*np.stack([place[s], around[k]]).T, color="#d5dce4", linewidth=0.4, zorder=1)
        dots(axes, around, groups, names, 16.0)
        axes.scatter(*place.T, s=70, marker="s", color="#1c2530", zorder=3, label="server")
        named(axes, place, graph.server_names)
    else:
        size = np.bincount(graph.server, minlength=graph.servers)
        axes.scatter(*place.T, s=8 + 60 * size / size.max(), marker="s", color="#1c2530", zorder=3, label="server")
        named(axes, place, graph.server_names)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return drawn(figure) + f'<p class="note">{caption(graph, groups)}</p>'


def caption(graph: Any, groups: Any) -> str:
    """The map in words."""
    sizes = np.bincount(groups)
    sizes = sizes[sizes > 0]
    clusters = f"{len(sizes)} clusters of {sizes.min()} to {sizes.max()} clients" if len(sizes) > 1 else "one cluster"
    edges = len(graph.links().senders) // 2
    if graph.servers:
        return f"{graph.servers} servers with {edges} links among them, {graph.clients} clients, {clusters}."
    return f"{graph.clients} peers with {edges} links among them, {clusters}."


def dots(axes: Any, place: Any, groups: Any, names: Mapping[str, str], size: float) -> None:
    """Nodes in the colours of their clusters."""
    for i, q in enumerate(np.unique(groups)):
        who = groups == q
        label = names.get(str(q), f"cluster {q}") if i < SHOWN_NODES else None
        axes.scatter(*place[who].T, s=size, color=f"C{i % 10}", zorder=2, label=label)


def named(axes: Any, place: Any, names: Any) -> None:
    """Names beside the nodes, where they have any and are not too many."""
    for at, name in zip(place, names if len(names) <= 60 else ()):
        axes.annotate(name, at, xytext=(5, 5), textcoords="offset points", fontsize=7)


def petals(graph: Any, place: Any) -> Any:
    """Where clients stand around their server: as the seeds of a sunflower, in a disc that leaves room to others."""
    gaps = np.linalg.norm(place[:, None] - place[None], axis=-1)
    np.fill_diagonal(gaps, np.inf)
    room = 0.42 * float(np.min(gaps)) if graph.servers > 1 else 1.0
    offsets = np.zeros((graph.clients, 2))
    for s in range(graph.servers):
        who = np.flatnonzero(graph.server == s)
        far = room * np.sqrt(0.25 + 0.75 * (np.arange(len(who)) + 0.5) / max(len(who), 1))
        turn = GOLDEN * np.arange(len(who))
        offsets[who] = np.stack([far * np.cos(turn), far * np.sin(turn)], 1)
    return offsets


def spread(links: Any, nodes: int) -> Any:
    """Places for the nodes of a graph: neighbours attract, all repel (Fruchterman and Reingold, 1991)."""
    turn = 2 * np.pi * np.arange(nodes) / max(nodes, 1)
    place = np.stack([np.cos(turn), np.sin(turn)], 1)
    if nodes < 3:
        return place
    near = np.zeros((nodes, nodes))
    near[links.receivers, links.senders] = 1.0
    near = np.maximum(near, near.T)
    ideal = np.sqrt(4.0 / nodes)
    for step in np.linspace(0.2, 0.0, TURNS, endpoint=False):
        way = place[:, None] - place[None]
        far = np.maximum(np.linalg.norm(way, axis=-1), 1e-3)
        pull = ideal**2 / far**2 - near * far / ideal
        move = (way * pull[..., None]).sum(1) - 0.3 * place
        length = np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-9)
        place = place + move / length * np.minimum(length, step)
    return place
