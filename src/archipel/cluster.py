"""Past one machine, with Dask: seeds and trials are jobs, and a large star is sharded.

A worker that holds a shard has some blocks of clients (`simulate.blocks`), and their tables stay there. In a round the
server's state goes down and what each block heard comes up; blocks are added in their order, so the bits are those of
one process. The tables come back at the end, and before that where somebody looks at clients, or every few minutes. A
worker that dies loses what was done since: all clients go on from there, on the workers that are left.
"""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from archipel.errors import BadInput, Missing
from archipel.federation import Federation, place
from archipel.node import leaves
from archipel.results import Result
from archipel.simulate import blocks
from archipel.simulate.blocks import BLOCKS, BlockEngine, Blocks, in_blocks
from archipel.simulate.checkpoint import NOWHERE, Keep, remembered
from archipel.simulate.compile import prepare_cache
from archipel.simulate.instance import Instance
from archipel.simulate.run import Recorder, run

WAITED = 10  # seconds for a scheduler to answer
BROUGHT = 120.0  # seconds at least between two times that tables come back without need
FOUND = ("rows", "models", "graph", "ledger", "before", "paid", "done", "done_rows", "seconds")  # of a recorder


@contextmanager
def connected(where: str) -> Iterator[Any]:
    """A client of Dask: of a cluster on this machine, "dask", or of the user's, "tcp://host:8786"."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise Missing("A run on a cluster needs Dask: pip install 'archipel[cluster]'.") from None
    if where == "dask":
        workers = int(os.environ.get("ARCHIPEL_THREADS") or os.cpu_count() or 1)
        options = {
            "n_workers": workers,
            "threads_per_worker": 1,
            "dashboard_address": "127.0.0.1:0",
            "host": "127.0.0.1",
        }
        with LocalCluster(**options, silence_logs=50) as cluster, Client(cluster) as client:
            yield client
        return
    if not where.startswith(("tcp://", "tls://")):
        raise BadInput("--on", where, '"dask", or the address of a scheduler, such as tcp://host:8786')
    try:
        client = Client(where, timeout=WAITED)
    except (OSError, ValueError) as problem:
        raise BadInput("--on", where, "the address of a Dask scheduler that answers") from problem
    with client:
        if not client.scheduler_info()["workers"]:
            raise BadInput("--on", where, "a Dask scheduler that has workers")
        yield client


def run_on(where: str, federation: Federation, seeds: int = 1, progress: Any = None, keep: Keep = NOWHERE) -> Result:
    """`Federation.run` on a cluster."""
    with connected(where) as client:
        return run(federation, seeds, progress, keep=keep, play=player_on(client))


def table_of(federation: Federation) -> dict[str, Any]:
    """A description that means the same on every machine that has its files."""
    table = federation.table()
    place(table, Path.cwd())
    return table


def player_on(client: Any) -> Callable[..., Recorder]:
    """How `simulate.run.run` plays a recorder on a cluster: as one job, or sharded if it is a large star."""

    def play(recorder: Recorder, stop: threading.Event, note: Callable[[int, str], None]) -> Recorder:
        federation = recorder.federation
        setup = recorder.setup or federation.setup(recorder.seed)
        recorder.setup = setup
        if setup.task.clients >= blocks.LARGE and in_blocks(federation.instance(recorder.seed, setup)):
            made: list[ShardedEngine] = []

            def engine_of(instance: Instance) -> ShardedEngine:
                begun = recorder.keep.start is not None
                made.append(ShardedEngine(client, federation, instance, recorder.keeps, begun))
                return made[0]

            recorder.engine_of = engine_of
            recorder.play(stop, note)
            made[0].collect()
            return recorder
        note(0, "on the cluster")
        job = client.submit(play_seed, table_of(federation), recorder.seed, recorder.strict, recorder.keep, pure=False)
        while not stop.is_set():
            try:
                found = job.result(timeout=0.5)
            except TimeoutError:
                continue
            vars(recorder).update(found)
            recorder.task = setup.task
            note(federation.rounds, "")
            return recorder
        job.cancel()
        return recorder

    return play


def play_seed(table: dict[str, Any], seed: int, strict: bool, keep: Keep) -> dict[str, Any]:
    """One seed, on a worker; what was found."""
    recorder = Recorder(Federation.from_table(table), seed, True, strict, keep)
    recorder.play(threading.Event(), lambda rounds, what: None)
    return {name: vars(recorder)[name] for name in FOUND}


# --- a star in shards -----------------------------------------------------------------------------------------------


class Shard:
    """Some blocks of a federation, on a worker. All tables are there, and memory only for the rows of its clients.

    A problem that computes its data (`Problem.takes_shard`) makes those of its clients only; one that reads or draws
    everyone's at once does so here too.
    """

    def __init__(self, table: dict[str, Any], seed: int, first: int, last: int, clients: int):
        prepare_cache()
        federation = Federation.from_table(table)
        setup = federation.setup(seed, shard=clients_of(first, last, clients))
        self.instance = federation.instance(seed, setup)
        self.blocks, self.first, self.last = Blocks(self.instance), first, last

    def begin(self, first: int, last: int) -> None:
        self.blocks.rounds.begin(first, last)

    def play(self, n: int, server: list[Any]) -> tuple[list[Any], Any]:
        """A round; what each block heard, and what it counted."""
        for mine, told in zip(leaves(self.instance.plan.tables["server"]), server):
            mine[...] = told
        for block in range(self.first, self.last):
            self.blocks.play(n, block)
        counts = self.blocks.rounds.board.counts
        heard = [self.blocks.slots_of(leaf)[:, self.first : self.last].copy() for leaf in leaves(self.blocks.boxes)]
        counted = counts.copy()
        counts[...] = 0
        for leaf in leaves(self.blocks.boxes):
            leaf[...] = 0
        return heard, counted

    def rows(self) -> list[Any]:
        """All that its clients have."""
        return [part.copy() for part in rows_of(self.instance, self.first, self.last)]

    def be(self, rows: list[Any]) -> None:
        for mine, given in zip(rows_of(self.instance, self.first, self.last), rows):
            mine[...] = given


def clients_of(first: int, last: int, clients: int) -> slice:
    """Who is in some blocks."""
    return slice(clients * first // BLOCKS, clients * last // BLOCKS)


def rows_of(instance: Instance, first: int, last: int) -> list[Any]:
    """What the clients of some blocks have: their rows in all tables that change."""
    part = clients_of(first, last, instance.task.clients)
    source = [array for name, array in remembered(instance).items() if not name.endswith(".horizon")]
    return [array[part] for array in (*leaves(instance.plan.tables[instance.data_role]), *source)]


class ShardedEngine(BlockEngine):
    """Plays a large star on the workers of a cluster. `keeps` says whether its state is written down at measurements;
    then, and where somebody looks at clients, tables come back after each stretch of rounds. `begun`: clients start
    from weights that no description has.
    """

    def __init__(
        self, client: Any, federation: Federation, instance: Instance, keeps: Callable[..., bool], begun: bool = False
    ):
        prepare_cache()
        super().__init__(instance)
        self.client, self.federation, self.instance, self.begun = client, federation, instance, begun
        self.shards: list[tuple[int, int, Any]] = []
        self.workers: list[tuple[int, int, str]] = []
        server = leaves(instance.plan.tables["server"])
        self.small = [*server, *leaves(self.mail.inboxes), self.rounds.board.counts]
        self.before: list[Any] = []
        self.as_of, self.done, self.brought = 0, 0, time.monotonic()  # the round of the tables that are here
        self.looked_at = bool(keeps(instance, self) or instance.plan.accountant or instance.plan.measure)

    def advance(self, first: int, last: int) -> None:
        """Play rounds; where a worker dies, play again without it what was done since tables came back."""
        if not self.before or first != self.done:
            self.remember(first)
        while first < last:
            try:
                if not self.shards:
                    first = self.as_of
                    self.deal(first)
                for begun in [shard.begin(first, last) for *_, shard in self.shards]:
                    begun.result()
                super().advance(first, last)
                self.done = last
                if self.looked_at or last == self.federation.rounds or time.monotonic() - self.brought > BROUGHT:
                    self.collect()
                return
            except Exception as problem:
                if not self.lost(isinstance(problem, OSError)):
                    raise
                said = f"A worker was lost; its clients go on from round {self.as_of} elsewhere"
                warnings.warn(f"{said} ({type(problem).__name__}).", stacklevel=2)
                self.shards = []
                for array, kept in zip(self.small, self.before):
                    array[...] = kept
                for leaf in leaves(self.blocks.boxes):
                    leaf[...] = 0

    def lost(self, cut_off: bool) -> bool:
        """Whether a worker was lost, and others are there. Who was cut off may know it before the scheduler does."""
        until = time.monotonic() + WAITED
        while True:
            known = self.client.scheduler_info()["workers"]
            if any(worker not in known for *_, worker in self.workers):
                return bool(known)
            if not cut_off or time.monotonic() > until:
                return False
            time.sleep(0.05)

    def remember(self, n: int) -> None:
        """The tables here are as of round n."""
        self.as_of, self.done, self.brought = n, n, time.monotonic()
        self.before = [array.copy() for array in self.small]

    def deal(self, n: int) -> None:
        """Give every worker its blocks; where they do not start from nothing, with what their clients have."""
        workers = sorted(self.client.scheduler_info()["workers"])[:BLOCKS]
        ends = [BLOCKS * i // len(workers) for i in range(len(workers) + 1)]
        table, seed, clients = table_of(self.federation), self.instance.seed, self.instance.task.clients
        self.workers = list(zip(ends, ends[1:], workers))
        made = [
            self.client.submit(Shard, table, seed, begin, end, clients, actor=True, workers=[worker], pure=False)
            for begin, end, worker in self.workers
        ]
        self.shards = [(begin, end, future.result()) for (begin, end, _), future in zip(self.workers, made)]
        if n > 0 or self.begun:
            for begin, end, shard in self.shards:
                shard.be([np.ascontiguousarray(part) for part in rows_of(self.instance, begin, end)]).result()

    def play_all(self, n: int) -> None:
        """The server's state down, what was heard up."""
        server = list(leaves(self.instance.plan.tables["server"]))
        asked = [(begin, end, shard.play(n, server)) for begin, end, shard in self.shards]
        for begin, end, future in asked:
            heard, counted = future.result()
            for mine, theirs in zip(leaves(self.blocks.boxes), heard):
                self.blocks.slots_of(mine)[:, begin:end] = theirs
            self.rounds.board.counts[...] += counted

    def collect(self) -> None:
        """Bring the tables here."""
        if self.as_of == self.done:
            return
        asked = [(begin, end, shard.rows()) for begin, end, shard in self.shards]
        for begin, end, future in asked:
            for mine, theirs in zip(rows_of(self.instance, begin, end), future.result()):
                mine[...] = theirs
        self.remember(self.done)
