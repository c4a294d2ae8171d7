"""How far this machine is from its limit: each topology against vectorised NumPy and against the bare arithmetic.

Everything of a row is measured in one process, on one thread, in seconds of the processor, in turn, and the best of
several counts: so ratios hold on a busy machine too. An update is a round of one client that has something to learn.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from archipel import bench_numpy
from archipel.errors import BadInput, did_you_mean
from archipel.node import table_of

REPEATS = 5
SECONDS = 0.25  # that one measurement should take
STRETCH = 10  # rounds at least, as between two measurements of a run
CACHE = 1 << 26  # bytes that no cache is taken to hold
Progress = Callable[[int, int, str], None]
Play = Callable[[int], Any]


class Case(NamedTuple):
    """A row of the bench, at several sizes."""

    sizes: tuple[int, ...]
    federation: Callable[[int], Any]
    rendition: Any  # of `bench_numpy`
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

    return Federation(Linear(clients=clients, size=bench_numpy.FEATURES, samples=400), OnlineFed(step=0.001))


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


def built(name: str) -> Callable[..., Any]:
    from archipel.simulate import kernels
    from archipel.simulate.compile import build

    return build(vars(kernels)[name])


def bare_star(instance: Any) -> Play:
    clients, source, size = instance.task.clients, instance.task.source, bench_numpy.FEATURES
    models, z = table_of((clients, size), np.float32), table_of((size,), np.float32)
    x = np.random.default_rng(0).standard_normal((clients, 4)).astype(np.float32)
    y, kernel = x.sum(1), built("features")
    return lambda rounds: kernel(rounds, models, x, y, z, source, np.float32(0.4))


def bare_mean(instance: Any) -> Play:
    source, kernel = instance.task.source, built("mean")
    models, words = (table_of((instance.task.clients, source.x.shape[1]), source.x.dtype) for _ in range(2))
    server = models[0].copy()
    return lambda rounds: kernel(rounds, models, words, source.x, source.y, server, models.dtype.type(0.001))


def bare_peers(instance: Any) -> Play:
    """A digraph's peers have one sample each, as if it were drawn."""
    edges, task, kernel = instance.links["peer", "peer"][0], instance.task, built("graph")
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
    from archipel.simulate.kernels import Agreeing

    client, graph = instance.plan.tables["client"], instance.graph
    data, weight = client.learn.data, client.learn.shrinkage + instance.plan.settings.learn.penalty
    shrunk, place = -data.curve[:, 0] / (data.curve[:, 0] + weight), graph.server * graph.clusters + graph.cluster
    shape, places = client.model.shape, graph.servers * graph.clusters
    models, duals, bases, sums = map(table_of, (shape, shape, (places, shape[1]), (places, shape[1])))
    own = (placed(data.basis[:, 0]), placed(shrunk), placed(data.moment[:, 0]), 1.0 / weight[:, 0])
    share = 1.0 / np.maximum(np.bincount(place, minlength=places), 1)
    return Agreeing(models, duals, *own, place, bases, sums, share)


def bare_servers(instance: Any) -> Play:
    from archipel.simulate.records import held

    of, kernel, penalty = agreeing(instance), built("servers"), float(instance.plan.settings.learn.penalty)
    tables, along = held(of), np.zeros(of.basis.shape[1])
    return lambda rounds: kernel(rounds, tables, along, penalty)


def placed(given: Any) -> Any:
    """A copy that begins where tables of a run do."""
    made = table_of(given.shape, given.dtype)
    made[...] = given
    return made


CASES = {
    "star": Case(
        (256, 10_000, 100_000, 1_000_000), star, bench_numpy.Star, bare_star,
        "two hundred cosines a sample; from 100,000 clients, two passes over a model in memory",
    ),
    "w1": Case((256,), w1, bench_numpy.Mean, bare_mean, "bytes: a sample is read once, from memory", 400),
    "gossip": Case(
        (1_000, 100_000), peers("gossip"), bench_numpy.Gossip, bare_peers, "bytes: six neighbours' models, at random",
        moved=peers_moved, least=peers_least(2),
    ),
    "zcdp-nfl": Case(
        (1_000, 100_000), peers("zcdp-nfl"), bench_numpy.Consensus, bare_peers,
        "bytes: six neighbours' models, and five vectors of one's own", 200, peers_moved, peers_least(4),
    ),
    "zcdp-nfl, private": Case(
        (1_000, 100_000), peers("zcdp-nfl", True), bench_numpy.Consensus, bare_peers,
        "draws: forty normal ones a word", 200,
    ),
    "servers": Case(
        (10_000, 100_000), servers, bench_numpy.Clusters, bare_servers, "bytes: a client's factors, read twice",
        moved=servers_moved, least=servers_least,
    ),
    "digraph": Case(
        (1_000, 100_000), digraph(False), bench_numpy.Mirror, bare_peers, "draws: a hundred uniform ones a sample",
        moved=peers_moved, least=peers_least(3),
    ),
    "digraph, private": Case(
        (1_000, 100_000), digraph(True), bench_numpy.Mirror, bare_peers, "draws: two hundred, half of them Laplace"
    ),
}  # fmt: skip


# --- measuring ------------------------------------------------------------------------------------------------------


def measure(quick: bool, progress: Progress | None = None, only: str = "") -> dict[str, Any]:
    """All rows; each size in a process of its own, so that its peak memory is its own."""
    known = [*CASES, "deep"]
    if only and only not in known:
        raise BadInput("--only", only, did_you_mean(only, known))
    jobs = [(name, size) for name in CASES for size in CASES[name].sizes if not quick or size < 1_000_000]
    jobs = [job for job in [*jobs, ("deep", 100)] if not only or job[0] == only]
    found = []
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    for i, (name, size) in enumerate(jobs):
        if progress:
            progress(i, len(jobs), f"{name} {size}")
        command = [sys.executable, "-m", "archipel.bench", name, str(size)]
        said = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | one)
        found.append(json.loads(said.stdout))
    return {"rows": [row for row in found if row]}


def measured(name: str, clients: int) -> dict[str, Any]:
    """One row: the engine, the bare kernel and NumPy in turn."""
    case = CASES[name]
    federation = case.federation(clients).with_(rounds=case.rounds, every=case.rounds, engine="serial")
    instance = federation.instance()
    begun = time.process_time()
    engine = federation.engine_of(instance)
    compiling = time.process_time() - begun
    engine.advance(0, 1)
    peak, done = peak_mb(), [1]
    bare, rendition = case.bare(instance), case.rendition(instance)
    bare(1)

    def ours(rounds: int) -> float:
        before, first = engine.updates, done[0]
        done[0] = first + rounds
        engine.advance(first, done[0])
        return float(engine.updates - before)

    def numpy(rounds: int) -> float:
        before = rendition.updates
        for _ in range(rounds):
            rendition.step()
        return float(rendition.updates - before)

    def kernel(rounds: int) -> float:
        bare(rounds)
        return float(rounds * clients)

    works: dict[str, Callable[[int], float]] = {"ours": ours, "kernel": kernel, "numpy": numpy}
    rounds = {what: some_rounds(work, case.rounds // 16) for what, work in works.items()}
    rounds["ours"] = max(rounds["ours"], STRETCH)
    best = dict.fromkeys(works, 0.0)
    for _ in range(REPEATS):
        for what, work in works.items():
            if done[0] + rounds["ours"] <= case.rounds:
                best[what] = max(best[what], rate(work, rounds[what]))
    return {
        "row": name,
        "clients": clients,
        "updates_per_s": round(best["ours"]),
        "numpy_updates_per_s": round(best["numpy"]),
        "kernel_updates_per_s": round(best["kernel"]),
        "times_numpy": round(best["ours"] / best["numpy"], 2),
        "times_kernel": round(best["kernel"] / best["ours"], 2),
        "peak_mb": round(peak),
        "compile_s": round(compiling, 1),
        "bound": case.bound,
    } | bytes_of(case, instance, best["numpy"])


def bytes_of(case: Case, instance: Any, numpy: float) -> dict[str, Any]:
    """What the bare kernel moves; and how many times NumPy's updates a second any rendition could have, which takes
    from memory what no cache holds from round to round, at the pace of a copy.
    """
    if case.moved is None or case.least is None:
        return {}
    least, pace = case.least(instance), copied()
    found = {"moved": round(case.moved(instance)), "least": round(least), "copied_gb_s": pace}
    beyond = least * instance.task.clients > CACHE
    return found | ({"times_numpy_at_most": round(pace * 1e9 / least / numpy, 1)} if beyond else {})


def copied() -> float:
    """How many GB a second of the processor a copy reads and writes here, of more than any cache holds."""
    source = np.ones(1 << 23)
    target = source.copy()
    best = min(timed(lambda: np.copyto(target, source)) for _ in range(REPEATS))
    return round(2 * source.nbytes / best / 1e9, 1)


def some_rounds(work: Callable[[int], float], most: int) -> int:
    """How many rounds take long enough to be measured; some are played to see."""
    rounds = 1
    while rounds < most:
        begun = time.process_time()
        work(rounds)
        seconds = time.process_time() - begun
        if seconds > SECONDS / 4:
            return max(1, min(most, round(rounds * SECONDS / seconds)))
        rounds *= 4
    return most


def rate(work: Callable[[int], float], rounds: int) -> float:
    """Updates a second of the processor."""
    begun = time.process_time()
    updates = work(rounds)
    return updates / (time.process_time() - begun)


def timed(work: Callable[[], Any]) -> float:
    """Seconds of the processor that a piece of work takes."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def peak_mb() -> float:
    """The most memory this process has had, in MB. Where Linux says it: ru_maxrss may be that of who started it."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    try:
        import resource
    except ImportError:  # not on this system
        return math.nan
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def deep(clients: int) -> dict[str, Any]:
    """A network of 2,410 weights: side by side, one by one, and bare PyTorch as everyone writes it."""
    import tempfile

    try:
        import torch
    except ImportError:
        return {}
    from archipel import Federation
    from archipel.algorithms.deep import FedAvgDeep
    from archipel.problems.deep import Deep

    torch.set_num_threads(1)
    draw, each, batch = np.random.default_rng(0), 60, 10
    x, y = draw.integers(0, 256, (clients * each, 64), np.uint8), draw.integers(0, 10, clients * each)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/data.npz", x=x, y=y, x_test=x[:10], y_test=y[:10])
        problem = Deep(data=f"{folder}/data.npz", model="mlp", clients=clients)
        federation = Federation(problem, FedAvgDeep(0.05, batch), rounds=100)
        instances = {name: federation.with_(engine=name).instance() for name in ("auto", "plain")}
    engines = {name: federation.with_(engine=name).engine_of(made) for name, made in instances.items()}
    module, source = instances["auto"].task.learner.module, instances["auto"].task.source
    start, done = [p.detach().clone() for p in module.parameters()], dict.fromkeys([*engines, "bare"], 0)

    def play(name: str) -> None:
        engines[name].advance(done[name], done[name] + 1)
        done[name] += 1

    def bare() -> None:
        total = [torch.zeros_like(p) for p in start]
        own = [p.clone().requires_grad_() for p in start]
        for k in range(clients):
            for p, first in zip(own, start):
                p.data.copy_(first)
            order = torch.randperm(each) + int(source.starts[k])
            for rows in order.split(batch):
                answers = torch.func.functional_call(module, dict(zip(names, own)), (source.x[rows].float() / 255,))
                slopes = torch.autograd.grad(torch.nn.functional.cross_entropy(answers, source.y[rows]), own)
                torch._foreach_add_([p.data for p in own], slopes, alpha=-0.05)
            torch._foreach_add_(total, [p.data for p in own], alpha=1 / clients)
        start[:] = total

    names = [name for name, _ in module.named_parameters()]
    works = {"auto": lambda: play("auto"), "plain": lambda: play("plain"), "bare": bare}
    best = {name: min(timed(work) for _ in range(REPEATS + 2)) for name, work in works.items()}
    steps = clients * each // batch
    return {
        "row": "deep",
        "clients": clients,
        "updates_per_s": round(steps / best["auto"]),
        "numpy_updates_per_s": round(steps / best["plain"]),
        "kernel_updates_per_s": round(steps / best["bare"]),
        "times_numpy": round(best["plain"] / best["auto"], 2),
        "times_kernel": round(best["auto"] / best["bare"], 2),
        "peak_mb": round(peak_mb()),
        "compile_s": 0.0,
        "bound": "the overhead of a call, shared by all clients; steps, beside one client by one and bare PyTorch",
    }


def table(figures: dict[str, Any]) -> Any:
    """The figures for a terminal."""
    from rich.table import Table

    names = ("row", "clients", "updates/s", "x NumPy", "at most", "x bare kernel's time", "peak MB", "compiling, s")
    grid = Table(*names)
    for row in figures["rows"]:
        keys = ("row", "clients", "updates_per_s", "times_numpy", "times_numpy_at_most", "times_kernel")
        cells = (row.get(key, "") for key in (*keys, "peak_mb", "compile_s"))
        grid.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells))
    grid.caption = "one thread, seconds of the processor; at most x NumPy, by the bytes that have to be moved"
    return grid


if __name__ == "__main__":
    what, size = sys.argv[1], int(sys.argv[2])
    print(json.dumps(deep(size) if what == "deep" else measured(what, size)))
