"""Who can talk to whom: `star`, `servers` (a graph of servers with their clients), `peers` (undirected),
`digraph`.

A topology is described by one of four dataclasses and built for a run:

>>> graph = Peers(shape="ring").build(clients=5, seed=0)
>>> graph.links().senders[:2].tolist()
[1, 4]
"""

from archipel.topology.digraph import Digraph
from archipel.topology.kinds import Graph, Peers, Servers, Star
from archipel.topology.links import Links, from_pairs, matrix

TOPOLOGIES: dict[str, type] = {"star": Star, "servers": Servers, "peers": Peers, "digraph": Digraph}

__all__ = ["TOPOLOGIES", "Digraph", "Graph", "Links", "Peers", "Servers", "Star", "from_pairs", "matrix"]
