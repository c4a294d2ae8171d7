"""Sweeps: one description, many values of some of its keys; Optuna chooses what to try.

Every trial is written down as it ends, so that a sweep that was killed goes on where it was.
"""

import json
import math
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from archipel.describe import read_toml
from archipel.errors import BadInput, Diverged, Findings, Missing, did_you_mean
from archipel.federation import Federation, place

UPWARDS = ("accuracy", "auc", "f1", "r2", "rand")  # metrics of which more is better
FILE = "trials.journal"
ENOUGH = 8  # trials that ended with different values, before anything is said of keys


class Worse(Exception):
    """A trial that is not worth going on with."""


class Axis(NamedTuple):
    """One key and what it may be: some values, or a range."""

    key: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    def kept(self) -> str:
        """What stays as it is while a sweep goes on: Optuna takes wider ranges, not other values.

        >>> Axis("seed", (1, 2)).kept(), Axis("algorithm.step", (), 0.1, 1.0, log=True).kept()
        ('seed=1,2', 'algorithm.step=low:high:log')
        """
        values = ",".join(map(str, self.values)) or ("low:high" + ":whole" * self.whole + ":log" * self.log)
        return f"{self.key}={values}"


def axis_of(text: str) -> Axis:
    """What the command line says of a key.

    >>> axis_of("privacy.epsilon=1,2,4").values
    (1, 2, 4)
    >>> axis_of("algorithm.step=0.1:1.0:log")
    Axis(key='algorithm.step', values=(), low=0.1, high=1.0, log=True, whole=False)
    """
    key, equals, given = text.partition("=")
    if not equals or not key or not given:
        raise BadInput("sweep", text, "a key and its values, as in algorithm.step=0.1:1.0:log or privacy.epsilon=1,2,4")
    parts = given.split(":")
    if len(parts) == 1:
        return Axis(key, tuple(value_of(word) for word in given.split(",")))
    ends = [value_of(word) for word in parts[:2]]
    good = all(isinstance(end, int | float) and math.isfinite(end) for end in ends) and ends[0] < ends[1]
    if len(parts) > 3 or (len(parts) == 3 and parts[2] != "log") or not good:
        raise BadInput("sweep", text, "a range low:high, or low:high:log")
    if len(parts) == 3 and ends[0] <= 0:
        raise BadInput("sweep", text, "a range above 0, where it is logarithmic")
    whole = all(isinstance(end, int) for end in ends)
    return Axis(key, (), float(ends[0]), float(ends[1]), len(parts) == 3, whole)


def value_of(word: str) -> Any:
    """A value as TOML has it; a word without quotes is a text."""
    import tomllib

    try:
        return tomllib.loads(f"x = {word}")["x"]
    except tomllib.TOMLDecodeError:
        return word


def described(path: Path, changes: Mapping[str, Any]) -> Federation:
    """A description with other values of some keys."""
    table = read_toml(path)
    for key, value in changes.items():
        inner = table
        *sections, name = key.split(".")
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise BadInput("sweep", key, f"a key of the description: {section} is none with keys of its own")
        inner[name] = value
    place(table, path.parent)
    return Federation.from_table(table)


class Sweep(NamedTuple):
    """What is tried, how often, and what is wanted of it."""

    path: Path
    axes: tuple[Axis, ...]
    folder: Path
    metric: str = "mse"
    seeds: int = 1
    trials: int = 0  # 0: every point of a grid, or 50
    how: str = "tpe"
    jobs: int = 0
    prune: bool = False  # stop what looks worse than most did at the same round

    def check(self) -> None:
        """Refuse what cannot be tried, all of it at once."""
        found, keys = Findings(), [axis.key for axis in self.axes]
        for i, axis in enumerate(self.axes):
            if axis.key in keys[:i]:
                found.add(BadInput("sweep", axis.key, "each key once"))
            unknown = self.unknown(axis.key)
            if unknown:
                found.add(BadInput("sweep", axis.key, unknown))
                continue
            for value in axis.values or ((int if axis.whole else float)(end) for end in (axis.low, axis.high)):
                with found:
                    described(self.path, {axis.key: value})
        found.refuse()

    def unknown(self, key: str) -> str:
        """What a key that stands in no description should have been: said once, not for each value."""
        if "." in key or key in (field.name for field in fields(Federation)):
            return ""
        from archipel.reference import everything

        longer = sorted({entry.key for entry in everything()[0] if entry.key.endswith(f".{key}")}, key=len)
        named = did_you_mean(key, (field.name for field in fields(Federation)))
        return f"a whole key, such as {longer[0]}" if longer else f"a known key or section: {named}"

    def of_what(self) -> dict[str, str]:
        """What the trials in a folder have in common: others there would be compared with what they are not."""
        table = read_toml(self.path)
        for axis in self.axes:
            *sections, name = axis.key.split(".")
            inner: Any = table
            for section in sections:
                inner = inner.get(section, {})
            inner.pop(name, None)
        return {
            "keys": " ".join(sorted(axis.kept() for axis in self.axes)),
            "metric": self.metric,
            "seeds": str(self.seeds),
            "description": sha256(json.dumps(table, sort_keys=True, default=str).encode()).hexdigest()[:16],
        }

    def own(self, study: Any) -> Any:
        """The study of this sweep; trials of another one stay where they are, unless none of them came to anything."""
        now, before = self.of_what(), study.user_attrs.get("of what")
        if before is not None and before != now:
            if any(trial.state.name in ("COMPLETE", "RUNNING") for trial in study.get_trials(deepcopy=False)):
                other = next(name for name in now if now[name] != before.get(name))
                theirs = "another description" if other == "description" else f"{other} {before.get(other)}"
                right = f"a folder of its own: the trials in it are of {theirs}"
                raise BadInput("--out", str(self.folder), right)
            (self.folder / FILE).unlink()
            study = self.study()
        study.set_user_attr("of what", now)
        return study

    def prepared(self) -> Any:
        """The study, with the points of a grid that are left."""
        self.check()
        study = self.own(self.study())
        optuna = needed()
        states = optuna.trial.TrialState
        for trial in study.get_trials(states=(states.RUNNING,)):  # of a sweep that was killed
            study.tell(trial.number, state=states.FAIL)
        if self.is_grid:
            done = [t.params or t.system_attrs.get("fixed_params") for t in self.kept(study)]
            for point in points(self.axes):
                if point not in done:
                    study.enqueue_trial(point)
        return study

    def run(self) -> Any:
        """Try them, several at once; returns Optuna's study."""
        self.prepared()
        jobs = self.jobs or os.cpu_count() or 1
        if jobs == 1:
            work(self)
        else:
            context = multiprocessing.get_context("spawn")
            workers = [context.Process(target=work_on, args=(self,)) for _ in range(jobs)]
            for worker in workers:
                worker.start()
            try:
                for worker in workers:
                    worker.join()
            except KeyboardInterrupt:
                for worker in workers:
                    worker.terminate()
                    worker.join()
                raise
        return self.study()

    def run_on(self, client: Any) -> Any:
        """Try them on a Dask cluster, one job a trial."""
        from distributed import wait

        optuna, study, flying = needed(), self.prepared(), dict[Any, Any]()
        slots = self.jobs or sum(client.nthreads().values())
        while flying or self.left(study):
            while len(flying) < slots and self.left(study):
                trial = study.ask()
                changes = {axis.key: suggested(trial, axis) for axis in self.axes}
                flying[client.submit(tried, self.path.resolve(), changes, self.seeds, self.metric, pure=False)] = trial
            for job in wait(list(flying), return_when="FIRST_COMPLETED").done:
                trial = flying.pop(job)
                try:
                    study.tell(trial, job.result())
                except (Diverged, BadInput) as problem:
                    if in_vain(problem, study):
                        raise
                    trial.set_user_attr("why", str(problem))
                    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return study

    def kept(self, study: Any) -> list[Any]:
        """The trials that count: done, or about to be."""
        states = needed().trial.TrialState
        return study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED, states.WAITING))

    @property
    def is_grid(self) -> bool:
        return all(axis.values for axis in self.axes) and not self.trials

    def study(self) -> Any:
        """The trials so far, in the sweep's folder."""
        optuna = needed()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        backend = optuna.storages.journal.JournalFileBackend(str(self.folder / FILE))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend), study_name="sweep", load_if_exists=True,
            sampler=samplers[self.how](), direction="maximize" if self.metric in UPWARDS else "minimize",
        )  # fmt: skip

    def left(self, study: Any) -> bool:
        """Whether there is more to try."""
        states = needed().trial.TrialState
        if self.is_grid:
            return bool(study.get_trials(deepcopy=False, states=(states.WAITING,)))
        ended = (states.COMPLETE, states.PRUNED, states.RUNNING)
        return len(study.get_trials(deepcopy=False, states=ended)) < (self.trials or 50)


def work_on(sweep: Sweep) -> None:
    """As a process of its own, which whoever started it ends: Ctrl-C reaches both."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work(sweep)


def work(sweep: Sweep) -> None:
    """Try one after another until nothing is left; several processes do, side by side."""
    optuna = needed()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    study = sweep.study()
    vain: list[Exception] = []

    def trying(trial: Any) -> float:
        changes = {axis.key: suggested(trial, axis) for axis in sweep.axes}
        try:
            return tried(sweep.path, changes, sweep.seeds, sweep.metric, trial if sweep.prune else None)
        except (Diverged, BadInput, Worse) as problem:  # a step that is too large for these data, for example
            trial.set_user_attr("why", str(problem))
            vain.extend([problem] if in_vain(problem, study) else [])
            raise optuna.TrialPruned from problem

    while sweep.left(study) and not vain:
        study.optimize(trying, n_trials=1)


def in_vain(problem: Exception, study: Any) -> bool:
    """Whether no trial will come to anything: a metric that there is not, and that none had so far."""
    unknown = isinstance(problem, BadInput) and problem.key == "metric"
    return unknown and all(trial.value is None for trial in study.get_trials(deepcopy=False))


def tried(path: Path, changes: Mapping[str, Any], seeds: int, metric: str, trial: Any = None) -> float:
    """What comes of some values; a `trial` is told on the way, and may end it."""
    federation = described(path, changes)
    if trial is None:
        return reached_by(federation.run(seeds), metric)
    recorders: list[Any] = []
    told: set[int] = set()

    def look(done: int, total: int, what: str) -> None:
        rows = [row for recorder in recorders for row in recorder.rows[: recorder.done_rows] if row[2] == metric]
        reached = min((recorder.done for recorder in recorders if recorder.done_rows), default=0)
        values = [row[3] for row in rows if row[1] == reached]
        if len(values) == seeds and reached and reached not in told:
            told.add(reached)
            trial.report(sum(values) / seeds, reached)
            if trial.should_prune():
                raise Worse(f"worse than most by round {reached:,}")

    return reached_by(federation.run(seeds, look, watch=recorders.extend), metric)


def reached_by(result: Any, metric: str) -> float:
    """What a run came to; one that was stopped came to nothing, and is tried again."""
    if result.interrupted:
        raise KeyboardInterrupt
    return float(result.final(metric))


def suggested(trial: Any, axis: Axis) -> Any:
    """What is tried of a key."""
    if axis.values:
        return trial.suggest_categorical(axis.key, axis.values)
    if axis.whole:
        return trial.suggest_int(axis.key, int(axis.low), int(axis.high), log=axis.log)
    return trial.suggest_float(axis.key, axis.low, axis.high, log=axis.log)


def points(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Every point of a grid."""
    found: list[dict[str, Any]] = [{}]
    for axis in axes:
        found = [point | {axis.key: value} for point in found for value in axis.values]
    return found


def rows(study: Any, metric: str) -> list[dict[str, Any]]:
    """A tidy table: a row for each trial that ended, the best first."""
    up = study.direction.name == "MAXIMIZE"
    ended = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished() and t.state.name != "FAIL"]
    reached = {t.number: t.value if t.state.name == "COMPLETE" else None for t in ended}  # not what it had when stopped
    found = [
        {"trial": t.number, **t.params, metric: reached[t.number], "why": t.user_attrs.get("why", "")} for t in ended
    ]
    return sorted(found, key=lambda row: math.inf if row[metric] is None else -row[metric] if up else row[metric])


def importance(study: Any) -> dict[str, float]:
    """Which keys mattered, the most first; nothing where too few trials ended to say so."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    if len({t.value for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"}) < ENOUGH:
        return {}
    return {
        key: float(share)
        for key, share in get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()).items()
    }


def needed() -> Any:
    """Optuna, or a sentence."""
    try:
        import optuna
    except ImportError:
        raise Missing("Sweeps need Optuna: pip install 'archipel[sweep]'.") from None
    return optuna
