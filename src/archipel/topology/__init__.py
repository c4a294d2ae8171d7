"""Who can talk to whom: `star`, `servers` (a graph of servers with their clients), `peers` (undirected),
`digraph`.

A topology is described by one of four dataclasses and built for a run:

>>> graph = Peers(shape="ring").build(clients=5, seed=0)
>>> graph.links().senders[:2].tolist(), connected(graph.links())
([1, 4], True)
"""

from archipel.topology.connectivity import (
    algebraic_connectivity,
    components,
    connected,
    laplacian,
    mixing_rate,
    strongly_connected,
)
from archipel.topology.digraph import Digraph
from archipel.topology.kinds import Graph, Peers, Servers, Star
from archipel.topology.links import (
    Links,
    averaging,
    even_shares,
    from_pairs,
    matrix,
    metropolis,
    present_only,
    receiver_keeps,
    sender_keeps,
)

TOPOLOGIES: dict[str, type] = {"star": Star, "servers": Servers, "peers": Peers, "digraph": Digraph}

__all__ = [
    "TOPOLOGIES", "Digraph", "Graph", "Links", "Peers", "Servers", "Star", "algebraic_connectivity", "averaging",
    "components", "connected", "even_shares", "from_pairs", "laplacian", "matrix", "metropolis", "mixing_rate",
    "present_only", "receiver_keeps", "sender_keeps", "strongly_connected",
]  # fmt: skip
