"""Runs a federation: seeds side by side, measurements on the way, what was done so far kept on Ctrl-C."""

import math
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import numpy as np

from archipel.bundle import about
from archipel.describe import without_numpy
from archipel.environment import may_be_late
from archipel.errors import BadInput, Diverged
from archipel.privacy.accountant import MANY
from archipel.results import Result, Row
from archipel.simulate.checkpoint import LARGE, NOWHERE, Keep, Watch, restore, save, size_of, sums_of
from archipel.simulate.engine import Counted, Engine, cores
from archipel.simulate.instance import Instance

Progress = Callable[[int, int, str], None]  # rounds done, rounds in all (over all seeds), what is going on


class Recorder:
    """One seed's run and what was measured of it. A `strict` one ends where a model is not finite any more."""

    def __init__(self, federation: Any, seed: int, side_by_side: bool, strict: bool = True, keep: Keep = NOWHERE):
        self.setup: Any = None  # where it is made already
        self.keep = keep
        self.engine_of: Callable[[Instance], Engine] | None = None  # another than the federation's
        self.sums: dict[str, int] = {}  # of the data, and of what the stream remembers at first
        self.federation, self.seed, self.side_by_side, self.strict = federation, seed, side_by_side, strict
        self.rows: list[Row] = []
        self.models: dict[str, Any] = {}
        self.graph: Any = None
        self.task: Any = None
        self.ledger: Any = None
        self.before: Any = None  # what was paid for the weights that it starts from
        self.paid: list[tuple[int, Any]] = []  # at every measurement, what everyone had paid; of few clients only
        self.done = 0
        self.done_rows = 0  # of the measurements that are whole
        self.seconds = 0.0

    def play(self, stop: threading.Event, note: Callable[[int, str], None]) -> "Recorder":
        """Play all rounds, measuring every so often, until done or told to stop."""
        federation = self.federation
        saved = self.keep.found(federation, self.seed)
        setup, self.setup = self.setup or federation.setup(self.seed), None
        if saved is None and self.keep.start is not None:
            self.before = self.keep.model(federation, self.seed).told["paid"]
            setup = self.keep.begun(federation, setup)
        instance = federation.instance(self.seed, setup)
        self.graph, self.task = instance.graph, instance.task
        if self.seed == federation.seed and instance.plan.late == 0 and may_be_late(instance.conditions):
            warnings.warn("Messages may be late here, and this algorithm counts none that is.", stacklevel=2)
        note(0, "compiling, once")
        engine = self.engine_of(instance) if self.engine_of else federation.engine_of(instance, self.side_by_side)
        watch, kept = Watch(self.keep.seconds), -1
        self.sums = sums_of(instance) if self.keep != NOWHERE else {}
        measured = saved is not None and restore(saved, self, instance, engine.rounds)
        self.models = federation.algorithm.models(instance.plan.tables)
        note(self.done, "")
        if not measured and self.is_mark():
            self.measure(instance, engine)
        while self.done < federation.rounds and not stop.is_set():
            until = min(federation.rounds, self.done - self.done % federation.every + federation.every)
            begun = time.perf_counter()
            engine.advance(self.done, until)
            self.seconds += time.perf_counter() - begun
            note(until - self.done, "")
            self.done = until
            last = until == federation.rounds or stop.is_set()
            if watch.due() or (last and self.keeps(instance, engine)):  # before the end is measured: it may not be it
                self.save(instance, engine, False)
                kept = until
            self.measure(instance, engine)
        if kept < self.done and self.keeps(instance, engine):
            self.save(instance, engine, True)
        if instance.plan.accountant:
            self.ledger = instance.plan.accountant.ledger(instance.plan.tables, self.paid)
            if self.before is not None:
                self.ledger["before"] = self.before
        return self

    def is_mark(self) -> bool:
        """Whether models are measured in this round."""
        return self.done % self.federation.every == 0 or self.done == self.federation.rounds

    def keeps(self, instance: Instance, engine: Engine) -> bool:
        """Whether the state is kept where a run ends: if it is asked for, or not large."""
        small = self.keep.folder is not None and size_of(instance, engine.rounds) <= LARGE
        return small or self.keep.seconds < math.inf

    def save(self, instance: Instance, engine: Engine, measured: bool) -> None:
        """A checkpoint."""
        if self.keep.folder is not None:
            path = self.keep.path(self.seed, self.seed == self.federation.seed, self.keep.folder)
            save(path, self, instance, engine.rounds, measured)

    def measure(self, instance: Instance, engine: Counted) -> None:
        """Scores of the models, and what was sent so far."""
        self.models = self.federation.algorithm.models(instance.plan.tables)
        if self.strict and not all(map(finite, self.models.values())):
            raise Diverged(f"By round {self.done} a model is NaN or infinite (seed {self.seed}). {self.advice()}")
        scores = instance.task.score(self.models, self.done)
        if instance.plan.measure:
            scores = scores | instance.plan.measure(instance.plan.tables, self.done)
        if instance.plan.accountant:
            paid = instance.plan.accountant.paid(instance.plan.tables)
            if len(paid.rho) <= MANY:
                self.paid.append((self.done, paid))
            scores = scores | {"rho.node": paid.rho[:MANY], "epsilon.node": paid.epsilon[:MANY]}
        for metric, value in scores.items():
            if getattr(value, "ndim", 0):
                self.rows += [(self.seed, self.done, metric, float(v), str(k)) for k, v in enumerate(value)]
            else:
                self.rows.append((self.seed, self.done, metric, float(value), ""))
        sent: dict[str, float] = {}  # several turns may go one way
        for i, turn in enumerate(instance.plan.turns):
            for unit, weight in (("parameters", instance.plan.parameters[i]), ("bytes", instance.plan.weight(i))):
                metric = f"{unit}.{turn.sender}-{turn.receiver}"
                sent[metric] = sent.get(metric, 0.0) + engine.messages[i] * weight
        for metric, value in sent.items():
            self.add(metric, value)
        self.add("updates", engine.updates)
        self.done_rows = len(self.rows)

    def about(self) -> tuple[dict[str, Any], Any]:
        """What the bundle of this seed's models tells, and what stands around them."""
        names = self.graph.names or self.task.names
        told = about(self.federation, self.task, self.seed, self.done, names, self.ledger, self.before)
        if self.federation.algorithm.noises_sums:  # what was paid covers sums, not what is in them
            told["without"] = ["clients"]
        return told, self.task.frame

    def advice(self) -> str:
        """What to change, in the words of the algorithm."""
        for key, change in (("step", "A smaller"), ("penalty", "Another")):
            if hasattr(self.federation.algorithm, key):
                return f"{change} algorithm.{key}, or data in smaller units, may help."
        return "Data in smaller units may help."

    def add(self, metric: str, value: float) -> None:
        self.rows.append((self.seed, self.done, metric, float(value), ""))


def finite(model: Any) -> bool:
    """Whether all numbers are finite. A sum says so without a copy; where it overflows, look at each."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(model)) or np.isfinite(model).all())


def side_by_side(works: list[Callable[[], Any]], workers: int, stop: threading.Event) -> bool:
    """All works, some at a time; whether all were done: Ctrl-C and errors stop them where they can be stopped."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: set[Future[Any]] = {pool.submit(work) for work in works}
        try:
            while waiting:
                finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
        except BaseException as problem:
            stop.set()
            for future in waiting:
                future.cancel()
            wait(waiting)
            if not isinstance(problem, KeyboardInterrupt):
                raise
            return False
    return True


def run(
    federation: Any,
    seeds: int = 1,
    progress: Progress | None = None,
    theory: dict[str, float] | None = None,
    watch: Callable[[list[Recorder]], None] | None = None,
    keep: Keep = NOWHERE,
    play: Callable[..., Recorder] = Recorder.play,
) -> Result:
    """Every seed once; several go side by side on the cores. Who brings `theory` also judges what diverges.

    `watch` is given the recorders before they begin, to look into while they run. `keep` says where states are kept,
    `play` where a recorder is played: here, or on a cluster.
    """
    seeds = without_numpy(seeds)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise BadInput("seeds", seeds, "a whole number, at least 1")
    strict = theory is None
    setup = federation.setup() if theory is None else None
    theory = federation.check(setup) if theory is None else theory
    stop, lock = threading.Event(), threading.Lock()
    total, done = seeds * federation.rounds, [0]

    def note(rounds: int, what: str) -> None:
        with lock:
            done[0] += rounds
            if progress:
                progress(done[0], total, what)

    recorders = [Recorder(federation, federation.seed + i, seeds > 1, strict, keep) for i in range(seeds)]
    recorders[0].setup = setup
    if watch:
        watch(recorders)
    workers = min(seeds, cores()) if play is Recorder.play else seeds  # that only wait
    interrupted = not side_by_side([partial(play, recorder, stop, note) for recorder in recorders], workers, stop)
    if strict and not interrupted:  # what theory says can only be known by playing more
        theory = theory | federation.algorithm.extra_theory(federation)
    begun = [recorder for recorder in recorders if recorder.rows]
    return Result(
        federation.to_toml(),
        [row for recorder in begun for row in recorder.rows],
        [recorder.models for recorder in begun],
        [recorder.ledger for recorder in begun],
        theory,
        interrupted,
        sum(recorder.seconds for recorder in begun),
        begun[0].graph if begun else None,
        unit=begun[0].task.unit if begun else "",
        notes=begun[0].task.notes if begun else (),
        listed=list(begun[0].task.listed) if begun else [],
        holdings=begun[0].task.holdings if begun else None,
        about=[recorder.about() for recorder in begun],
    )
