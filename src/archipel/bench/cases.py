"""What is measured: for each row a federation, the same in NumPy, and the bare arithmetic."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from archipel.bench import kernels, renditions
from archipel.node import table_of

Play = Callable[[int], Any]


class Case(NamedTuple):
    """A row of the bench, at several sizes."""

    sizes: tuple[int, ...]
    federation: Callable[[int], Any]
    rendition: Any  # of `renditions`
    bare: Callable[[Any], Play]
    bound: str  # what bounds it
    rounds: int = 2000  # of the federation, more than are played
    moved: Callable[[Any], float] | None = None  # bytes that the bare kernel reads and writes for an update
    least: Callable[[Any], float] | None = None  # those that every rendition has to take from memory, or bring there


def star(clients: int) -> Any:
    """PAO-Fed-C2 with the article's delays and availability."""
    from archipel import Delay, Environment, Federation, PaoFed, Synthetic

    environment = Environment(availability=(0.25, 0.1, 0.025, 0.005), stride=4, delay=Delay())
    return Federation(Synthetic(clients=clients), PaoFed(), environment=environment)


def w1(clients: int) -> Any:
    """One step on one fresh sample each, averaged; 200 weights."""
    from archipel import Federation, Linear, OnlineFed

    return Federation(Linear(clients=clients, size=renditions.FEATURES, samples=400), OnlineFed(step=0.001))


def peers(algorithm: str, private: bool = False) -> Callable[[int], Any]:
    """Five samples of 40 inputs each, and six neighbours."""

    def made(clients: int) -> Any:
        from archipel import Federation, Linear
        from archipel.algorithms.gossip import Gossip
        from archipel.algorithms.zcdp_nfl import ZcdpNfl
        from archipel.privacy.policy import Privacy
        from archipel.topology import Peers

        consensus = ZcdpNfl(penalty=0.5, step=0.02, decay=0.5)
        kind: Any = Gossip(data="stored", step=0.01) if algorithm == "gossip" else consensus
        privacy = Privacy(rho=1.0, clip=1.0) if private else None
        problem, topology = Linear(clients=clients, size=40, samples=5), Peers(shape="random", mean_degree=6.0)
        return Federation(problem, kind, topology, privacy=privacy)

    return made


def digraph(private: bool) -> Callable[[int], Any]:
    """Mirror descent on linear losses in a ball, 100 weights, ten out-links on average."""

    def made(clients: int) -> Any:
        from archipel import Federation
        from archipel.algorithms.mirror import MirrorDescent
        from archipel.privacy.policy import Privacy
        from archipel.problems.drifting import Drifting
        from archipel.topology import Digraph

        privacy = Privacy(mechanism="laplace", epsilon=1.0, clip=2.0) if private else None
        problem = Drifting(clients=clients, size=100, loss="linear")
        return Federation(problem, MirrorDescent(), Digraph(mean_degree=10.0), privacy=privacy)

    return made


def servers(clients: int) -> Any:
    """PGFL: three clusters, 60 weights, a hundred clients a server."""
    from archipel import Federation
    from archipel.algorithms.pgfl import Pgfl
    from archipel.problems.clustered import Related
    from archipel.topology import Servers

    topology = Servers(servers=clients // 100, clusters=3)
    return Federation(Related(clients=clients), Pgfl(tau=0.2, decay=0.95), topology)


# --- the bare arithmetic --------------------------------------------------------------------------------------------


def built(kernel: Callable[..., Any]) -> Callable[..., Any]:
    from archipel.simulate.compile import build

    return build(kernel)


def bare_star(instance: Any) -> Play:
    clients, source, size = instance.task.clients, instance.task.source, renditions.FEATURES
    models, z = table_of((clients, size), np.float32), table_of((size,), np.float32)
    x = np.random.default_rng(0).standard_normal((clients, 4)).astype(np.float32)
    y, kernel = x.sum(1), built(kernels.features)
    return lambda rounds: kernel(rounds, models, x, y, z, source, np.float32(0.4))


def bare_mean(instance: Any) -> Play:
    source, kernel = instance.task.source, built(kernels.mean)
    models, words = (table_of((instance.task.clients, source.x.shape[1]), source.x.dtype) for _ in range(2))
    server = models[0].copy()
    return lambda rounds: kernel(rounds, models, words, source.x, source.y, server, models.dtype.type(0.001))


def bare_peers(instance: Any) -> Play:
    """A digraph's peers have one sample each, as if it were drawn."""
    edges, task, kernel = instance.links["peer", "peer"][0], instance.task, built(kernels.graph)
    real = instance.plan.tables["peer"].model.dtype.type
    models, words = (table_of((task.clients, task.size), real) for _ in range(2))
    if task.streams:
        x = np.random.default_rng(0).standard_normal((task.clients, task.size)).astype(real)
        y = np.zeros(task.clients, real)
    else:
        x, y = task.source.x, task.source.y
    weights = np.asarray(edges.weights, real)
    return lambda rounds: kernel(rounds, models, words, x, y, edges.starts, edges.senders, weights, real(0.001))


def peers_moved(instance: Any) -> float:
    """One's samples; one's model, read and written; a word written; the neighbours' read."""
    task, model = instance.task, instance.plan.tables["peer"].model
    each = 1 if task.streams else len(task.source.y) / task.clients
    heard = len(instance.links["peer", "peer"][0].senders) / task.clients
    return float((each + 3 + heard) * model[0].nbytes)


def peers_least(vectors: int) -> Callable[[Any], float]:
    """One's samples, if they are not drawn, and as many vectors of one's own, read or written. A neighbour's word may
    be in the cache; and no order of a random graph's nodes saves a round's reading, or several rounds'.
    """

    def least(instance: Any) -> float:
        task, model = instance.task, instance.plan.tables["peer"].model
        each = 0 if task.streams else len(task.source.y) / task.clients
        return float((each + vectors) * model[0].nbytes)

    return least


def servers_least(instance: Any) -> float:
    """Those factors that are not padding, and the moment, read; the dual, read and written. A model need not be."""
    data = instance.plan.tables["client"].learn.data
    return float((np.count_nonzero(data.curve[:, 0]) / len(data.curve) + 3) * data.moment[0, 0].nbytes)


def servers_moved(instance: Any) -> float:
    """A client's factors and moment; its dual, read and written; its model, written."""
    basis = instance.plan.tables["client"].learn.data.basis[0, 0]
    return float(basis.nbytes + 4 * basis[0].nbytes)


def agreeing(instance: Any) -> Any:
    """The tables of PGFL for its bare kernel, all at zero."""
    client, graph = instance.plan.tables["client"], instance.graph
    data, weight = client.learn.data, client.learn.shrinkage + instance.plan.settings.learn.penalty
    shrunk, place = -data.curve[:, 0] / (data.curve[:, 0] + weight), graph.server * graph.clusters + graph.cluster
    shape, places = client.model.shape, graph.servers * graph.clusters
    models, duals, bases, sums = map(table_of, (shape, shape, (places, shape[1]), (places, shape[1])))
    own = (placed(data.basis[:, 0]), placed(shrunk), placed(data.moment[:, 0]), 1.0 / weight[:, 0])
    share = 1.0 / np.maximum(np.bincount(place, minlength=places), 1)
    return kernels.Agreeing(models, duals, *own, place, bases, sums, share)


def bare_servers(instance: Any) -> Play:
    from archipel.simulate.records import held

    of, kernel, penalty = agreeing(instance), built(kernels.servers), float(instance.plan.settings.learn.penalty)
    tables, along = held(of), np.zeros(of.basis.shape[1])
    return lambda rounds: kernel(rounds, tables, along, penalty)


def placed(given: Any) -> Any:
    """A copy that begins where tables of a run do."""
    made = table_of(given.shape, given.dtype)
    made[...] = given
    return made


CASES = {
    "star": Case(
        (256, 10_000, 100_000, 1_000_000), star, renditions.Star, bare_star,
        "two hundred cosines a sample; from 100,000 clients, two passes over a model in memory",
    ),
    "w1": Case((256,), w1, renditions.Mean, bare_mean, "bytes: a sample is read once, from memory", 400),
    "gossip": Case(
        (1_000, 100_000), peers("gossip"), renditions.Gossip, bare_peers, "bytes: six neighbours' models, at random",
        moved=peers_moved, least=peers_least(2),
    ),
    "zcdp-nfl": Case(
        (1_000, 100_000), peers("zcdp-nfl"), renditions.Consensus, bare_peers,
        "bytes: six neighbours' models, and five vectors of one's own", 200, peers_moved, peers_least(4),
    ),
    "zcdp-nfl, private": Case(
        (1_000, 100_000), peers("zcdp-nfl", True), renditions.Consensus, bare_peers,
        "draws: forty normal ones a word", 200,
    ),
    "servers": Case(
        (10_000, 100_000), servers, renditions.Clusters, bare_servers, "bytes: a client's factors, read twice",
        moved=servers_moved, least=servers_least,
    ),
    "digraph": Case(
        (1_000, 100_000), digraph(False), renditions.Mirror, bare_peers, "draws: a hundred uniform ones a sample",
        moved=peers_moved, least=peers_least(3),
    ),
    "digraph, private": Case(
        (1_000, 100_000), digraph(True), renditions.Mirror, bare_peers, "draws: two hundred, half of them Laplace"
    ),
}  # fmt: skip
