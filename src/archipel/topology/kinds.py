"""Three of the topologies, as a user describes them: star, peers, servers. `digraph` has the fourth.

Each is the `[topology]` table of a federation, field by field; `build` checks it and makes the graph of a
run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.topology import connectivity, files, shapes
from archipel.topology import links as weights
from archipel.topology.links import Links
from archipel.topology.shapes import USUAL, usual

Names = Sequence[str] | None
SHAPES = ("random", "ring", "grid", "complete", "none")
DISCOVER = "discover"  # in place of a number of clusters: the algorithm finds who belongs together


@dataclass(frozen=True)
class Graph:
    """Who can talk to whom in a run."""

    clients: int
    across: tuple[Links, ...] = ()  # among peers, or among servers; one a phase, used in turn
    server: Any = field(default_factory=lambda: np.empty(0, np.int64))  # of each client; empty without servers
    cluster: Any = field(default_factory=lambda: np.empty(0, np.int64))  # of each client
    servers: int = 0
    clusters: int = 1  # 0: they are to be discovered
    names: tuple[str, ...] = ()  # of clients, where the user gave any
    server_names: tuple[str, ...] = ()
    cluster_names: tuple[str, ...] = ()
    one_way: bool = False  # links among peers need not go both ways, and have weights of their own

    def links(self, moment: int = 0) -> Links:
        """The links among peers, or among servers, in a round."""
        return self.across[moment % len(self.across)]

    def up(self) -> Links:
        """Servers hear their clients."""
        return weights.from_pairs(self.servers, self.server, np.arange(self.clients))

    def down(self) -> Links:
        """Clients hear their server."""
        return weights.from_pairs(self.clients, np.arange(self.clients), self.server)


@dataclass(frozen=True)
class Star(Checked):
    """One server and its clients, which may be in clusters (`groups`: a CSV with client, cluster)."""

    section = "topology"

    clusters: int | str = key(
        1, "how many clusters of clients there are; discover: the algorithm finds out", at_least=1, choices=(DISCOVER,)
    )
    groups: str = key("", "a CSV with columns client and cluster; none: dealt at random, of equal size")

    def build(self, clients: int, seed: int, names: Names = None) -> Graph:
        """The graph of a run."""
        check_clients(clients, names)
        across, clusters = (weights.from_pairs(1, [], []),), _clusters(self, clients, seed, names)
        return Graph(clients, across, server=np.zeros(clients, np.int64), servers=1, **clusters)


@dataclass(frozen=True)
class Peers(Checked):
    """Clients that talk to their neighbours, both ways.

    `random`: in one piece, with round(clients * mean_degree / 2) edges. `ring`; `grid`: square, not wrapped
    around, the last row perhaps short; `complete`; `none` (needs `force`). `edges`: a CSV with source and
    target, which then is the shape.
    """

    section = "topology"

    shape: str = key("random", "the shape of the graph", choices=SHAPES)
    mean_degree: float = key(USUAL, "how many neighbours a client of a random graph has on average", at_least=0)
    edges: str = key("", "a CSV with columns source and target, in place of a shape")
    clusters: int | str = key(
        1, "how many clusters of clients there are; discover: the algorithm finds out", at_least=1, choices=(DISCOVER,)
    )
    groups: str = key("", "a CSV with columns client and cluster; none: dealt at random, of equal size")
    force: bool = key(False, "whether a graph in pieces is accepted")

    def build(self, clients: int, seed: int, names: Names = None) -> Graph:
        """The graph of a run."""
        check_clients(clients, names)
        if self.edges:
            table = files.read("topology.edges", self.edges, ("source", "target"))
            columns: list[tuple[files.Table, str]] = [(table, "source"), (table, "target")]
            known = files.known_names(columns, clients, names, "client")
            names = names or names_of(known) or None
            pairs = _edges_of(table, known, "client")
        else:
            pairs = _undirected(self.shape, clients, self.mean_degree, seed, self.force)
        links = weights.both_ways(clients, pairs)
        _refuse_pieces(links, self.edges or self.shape, self.edges, self.force, names)
        return Graph(clients, (links,), **_clusters(self, clients, seed, names))


@dataclass(frozen=True)
class Servers(Checked):
    """A graph of servers, each with its clients; clusters of clients lie across servers.

    The server graph has a shape of `Peers`, or is a CSV `edges` (source, target). Clients are spread
    evenly, in order, or by a CSV `members` (client, server); clusters are dealt at random and of equal
    size, or by a CSV `groups` (client, cluster).
    """

    section = "topology"

    servers: int = key(10, "how many servers there are", at_least=1)
    shape: str = key("random", "the shape of the graph of servers", choices=SHAPES)
    mean_degree: float = key(USUAL, "how many neighbours a server of a random graph has on average", at_least=0)
    edges: str = key("", "a CSV with columns source and target, in place of a shape")
    clients_per_server: int = key(0, "how many clients each server has; 0: as it comes", at_least=0)
    members: str = key("", "a CSV with columns client and server; none: spread evenly, in order")
    clusters: int | str = key(
        1, "how many clusters of clients there are; discover: the algorithm finds out", at_least=1, choices=(DISCOVER,)
    )
    groups: str = key("", "a CSV with columns client and cluster; none: dealt at random, of equal size")
    force: bool = key(False, "whether a server graph in pieces, and servers without clients, are accepted")

    def build(self, clients: int, seed: int, names: Names = None) -> Graph:
        """The graph of a run."""
        check_clients(clients, names)
        links, server, server_names, names = self._from_files(clients, names)
        if not self.edges:
            pairs = _undirected(self.shape, self.servers, self.mean_degree, seed, self.force)
            links = weights.both_ways(self.servers, pairs)
        if not self.members:
            server = self._spread(clients)
        _refuse_pieces(links, self.edges or self.shape, self.edges, self.force, server_names)
        empty = np.flatnonzero(np.bincount(server, minlength=self.servers) == 0)
        if len(empty) and not self.force:
            who = name_of(int(empty[0]), server_names)
            raise BadInput("topology.members", self.members, f"a client at every server (none at {who})")
        clusters = _clusters(self, clients, seed, names)
        return Graph(clients, (links,), server, servers=self.servers, server_names=server_names, **clusters)

    def _from_files(self, clients: int, names: Names) -> tuple[Any, Any, tuple[str, ...], Names]:
        """What the user's files say: both may name servers, so they are read together."""
        tables, links, server = [], None, None
        if self.edges:
            edges = files.read("topology.edges", self.edges, ("source", "target"))
            tables += [(edges, "source"), (edges, "target")]
        if self.members:
            members = files.read("topology.members", self.members, ("client", "server"))
            tables += [(members, "server")]
        if not tables:
            return None, None, (), names
        known = files.known_names(tables, self.servers, None, "server")
        if self.edges:
            links = weights.both_ways(self.servers, _edges_of(edges, known, "server"))
        if self.members:
            clients_known = files.known_names([(members, "client")], clients, names, "client")
            client = files.numbers(members, "client", clients_known, "client")
            at = files.numbers(members, "server", known, "server")
            server = files.belongs(members, "server", client, at, clients)
            names = names or names_of(clients_known) or None
        return links, server, names_of(known), names

    def _spread(self, clients: int) -> Any:
        if self.clients_per_server and self.clients_per_server * self.servers != clients:
            right = f"{clients / self.servers:g}, or 0, for {clients} clients at {self.servers} servers"
            raise BadInput("topology.clients_per_server", self.clients_per_server, right)
        if clients < self.servers:
            raise BadInput("topology.servers", self.servers, f"at most as many servers as clients ({clients})")
        return np.arange(clients) * self.servers // clients


# --- what they share ----------------------------------------------------------------------------------------


def check_clients(clients: int, names: Names) -> None:
    if clients < 1:
        raise BadInput("clients", clients, "at least 1 client")
    if names is not None and (len(names) != clients or len(set(names)) != clients):
        raise BadInput("clients", clients, f"a different name for each client (found {len(set(names))})")


def _undirected(shape: str, nodes: int, mean_degree: float, seed: int, force: bool) -> Any:
    """The edges of a shape."""
    makers: dict[str, Callable[[], Any]] = {
        "random": lambda: shapes.random_connected(nodes, _edge_count(nodes, mean_degree, force), seed),
        "ring": lambda: shapes.ring(nodes),
        "grid": lambda: shapes.grid(nodes),
        "complete": lambda: shapes.complete(nodes),
        "none": lambda: np.empty((0, 2), np.int64),
    }
    return makers[shape]() if nodes > 1 else np.empty((0, 2), np.int64)


def _edge_count(nodes: int, mean_degree: float, force: bool) -> int:
    """round(n * mean / 2) edges; a graph in one piece has at least n - 1."""
    mean_degree = usual(mean_degree, nodes)
    if mean_degree > nodes - 1:
        raise BadInput("topology.mean_degree", mean_degree, f"a number from 0 to {nodes - 1}, for {nodes} nodes")
    edges = round(nodes * mean_degree / 2)
    if edges < nodes - 1 and not force:
        right = f"at least {2 * (nodes - 1) / nodes:.4g} to join {nodes} nodes in one piece, or force = true"
        raise BadInput("topology.mean_degree", mean_degree, right)
    return edges


def _edges_of(table: files.Table, known: dict[str, int], kind: str) -> Any:
    """The edges of a user's file, each given once."""
    source, target = (files.numbers(table, end, known, kind) for end in ("source", "target"))
    loops = np.flatnonzero(source == target)
    if len(loops):
        raise table.bad(f"no link from a {kind} to itself", int(loops[0]))
    codes = np.minimum(source, target) * len(known) + np.maximum(source, target)
    files.refuse_repeats(table, codes, "each link once, as links go both ways")
    return np.stack([source, target], axis=1)


def _refuse_pieces(links: Links, value: str, edges: str, force: bool, names: Names) -> None:
    label = connectivity.components(links)
    if (label == 0).all() or force:
        return
    away = name_of(int(np.argmax(label > 0)), names)
    pieces = f"it has {len(np.unique(label))}: nothing joins {name_of(0, names)} and {away}"
    right = f"a graph in one piece ({pieces}), or force = true"
    raise BadInput("topology.edges" if edges else "topology.shape", value, right)


def _clusters(topology: Any, clients: int, seed: int, names: Names) -> dict[str, Any]:
    """What a graph knows of clusters, from a user's file or dealt, and of the clients' names."""
    count, path = topology.clusters, topology.groups
    found: dict[str, Any] = {"clusters": count, "names": tuple(names or ())}
    if isinstance(count, str):
        if path:
            raise BadInput("topology.groups", path, f'no groups where clusters = "{DISCOVER}"')
        return found | {"clusters": 0, "cluster": np.zeros(clients, np.int64)}
    if count > clients:
        right = f"a number from 1 to {clients}, so that no cluster is empty"
        raise BadInput("topology.clusters", count, right)
    if not path:
        return found | {"cluster": shapes.dealt(clients, count, seed)}
    table = files.read("topology.groups", path, ("client", "cluster"))
    labels = files.known_names([(table, "cluster")], count, None, "cluster")
    known = files.known_names([(table, "client")], clients, names, "client")
    client = files.numbers(table, "client", known, "client")
    cluster = files.numbers(table, "cluster", labels, "cluster")
    cluster = files.belongs(table, "cluster", client, cluster, clients)
    empty = np.flatnonzero(np.bincount(cluster, minlength=count) == 0)
    if len(empty):
        raise BadInput("topology.groups", path, f"at least one client in every cluster (none in {empty[0]})")
    return found | {"cluster": cluster, "names": tuple(names or names_of(known)), "cluster_names": names_of(labels)}


def names_of(known: dict[str, int]) -> tuple[str, ...]:
    """The names that a file introduced; none where it used numbers."""
    return () if all(name == str(i) for name, i in known.items()) else tuple(known)


def name_of(node: int, names: Names) -> str:
    return names[node] if names else str(node)
