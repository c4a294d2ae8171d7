"""Past one machine, with Dask: seeds and trials are jobs, and a large star is sharded.

A worker that holds a shard has some blocks of clients (`simulate.blocks`), and their tables stay there. In a round the
server's state goes down and what each block heard comes up; blocks are added in their order, so the bits are those of
one process. The tables come back where a run is measured. A worker that dies loses what it did since: its clients start
from there, on the workers that are left.
"""

import os
import threading
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
            recorder.engine_of = lambda instance: ShardedEngine(client, federation, instance)
            return recorder.play(stop, note)
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
    """Some blocks of a federation, on a worker. All tables are there, and memory only for the rows that are used."""

    def __init__(self, table: dict[str, Any], seed: int, first: int, last: int):
        prepare_cache()
        self.instance = Federation.from_table(table).instance(seed)
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


def rows_of(instance: Instance, first: int, last: int) -> list[Any]:
    """What the clients of some blocks have: their rows in all tables that change."""
    clients = instance.task.clients
    part = slice(clients * first // BLOCKS, clients * last // BLOCKS)
    source = [array for name, array in remembered(instance).items() if not name.endswith(".horizon")]
    return [array[part] for array in (*leaves(instance.plan.tables[instance.data_role]), *source)]


class ShardedEngine(BlockEngine):
    """Plays a large star on the workers of a cluster. What stands in its tables is as of the last stretch of rounds."""

    def __init__(self, client: Any, federation: Federation, instance: Instance):
        prepare_cache()
        super().__init__(instance)
        self.client, self.federation, self.instance = client, federation, instance
        self.shards: list[tuple[int, int, Any]] = []
        self.workers: list[tuple[int, int, str]] = []

    def advance(self, first: int, last: int) -> None:
        """Play rounds; where a worker dies, play them again without it."""
        small = [*leaves(self.instance.plan.tables["server"]), *leaves(self.mail.inboxes), self.rounds.board.counts]
        before = [array.copy() for array in small]
        while first < last:
            try:
                if not self.shards:
                    self.deal(first)
                for begun in [shard.begin(first, last) for *_, shard in self.shards]:
                    begun.result()
                super().advance(first, last)
                self.collect()
                return
            except Exception as problem:
                known = self.client.scheduler_info()["workers"]
                lost = any(worker not in known for *_, worker in self.workers)
                if not lost or not known:
                    raise
                said = f"A worker was lost; its clients go on from round {first} elsewhere ({type(problem).__name__})."
                warnings.warn(said, stacklevel=2)
                self.shards = []
                for array, kept in zip(small, before):
                    array[...] = kept
                for leaf in leaves(self.blocks.boxes):
                    leaf[...] = 0

    def deal(self, n: int) -> None:
        """Give every worker its blocks; later than at the start, with what their clients have."""
        workers = sorted(self.client.scheduler_info()["workers"])[:BLOCKS]
        ends = [BLOCKS * i // len(workers) for i in range(len(workers) + 1)]
        table, seed = table_of(self.federation), self.instance.seed
        self.workers = list(zip(ends, ends[1:], workers))
        made = [
            self.client.submit(Shard, table, seed, begin, end, actor=True, workers=[worker], pure=False)
            for begin, end, worker in self.workers
        ]
        self.shards = [(begin, end, future.result()) for (begin, end, _), future in zip(self.workers, made)]
        if n > 0:
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
        asked = [(begin, end, shard.rows()) for begin, end, shard in self.shards]
        for begin, end, future in asked:
            for mine, theirs in zip(rows_of(self.instance, begin, end), future.result()):
                mine[...] = theirs
