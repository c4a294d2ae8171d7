"""A run's whole state in a file: to go on after a kill, or for more rounds, to the same bits as without a break.

Between two rounds that is all nodes' tables, the inboxes of rounds to come, what streams remember, what was counted and
measured, and ledgers that are not in tables. Draws have no state. The file is written whole or not at all.
"""

import json
import math
import time
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from archipel.bundle import Bundle, load
from archipel.disk import replacing
from archipel.errors import BadInput
from archipel.node import named_leaves
from archipel.parts.learn.regret import Meter
from archipel.privacy.accountant import Paid
from archipel.privacy.personal import PersonalLedgers
from archipel.simulate.instance import Instance
from archipel.turns import Setup

FORMAT = 1
TEXT = "archipel.json"
LARGE = 1 << 28  # bytes of a state that is left at the end of a run without being asked for
STORED = ("x", "y", "starts")  # arrays of a source that nothing changes
ROWS, PAID = ("round", "metric", "value", "node"), Paid._fields


@dataclass(frozen=True)
class Keep:
    """Where states are kept, and what a run goes on from. File i is of seed i: checkpoint.npz, checkpoint-2.npz, ..."""

    folder: Path | None = None
    seconds: float = math.inf  # between two checkpoints, which are made at measurements; infinite: at the end
    resume: bool = False  # go on from the folder's own, where there is one
    start: Path | None = None  # a model.npz: go on from the state beside it, or start from its weights

    def path(self, seed: int, first: bool, folder: Path) -> Path:
        return folder / ("checkpoint.npz" if first else f"checkpoint-{seed}.npz")

    def found(self, federation: Any, seed: int) -> dict[str, Any] | None:
        """The state that a seed goes on from."""
        first = seed == federation.seed
        if self.resume and self.folder is not None and (mine := self.path(seed, first, self.folder)).is_file():
            saved = read(mine, "--resume")
            if saved["told"]["digest"] != federation.digest() or saved["told"]["seed"] != seed:
                raise BadInput("--resume", str(mine), "a checkpoint of this description; remove it to begin anew")
            return within(saved, federation, "--resume")
        if self.start is None or not (beside := self.path(seed, first, self.start.parent)).is_file():
            return None
        saved, model = read(beside, "--from"), self.model(federation, seed).told
        same = [saved["told"][name] == model[name] for name in ("digest", "seed", "round")]
        if not all(same) or model["digest"] != federation.digest() or model["seed"] != seed:
            return None
        return within(saved, federation, "--from")

    def model(self, federation: Any, seed: int) -> Bundle:
        """The bundle of a seed; one is enough for all of them."""
        assert self.start is not None
        mine = self.start.with_name(f"model-{seed}.npz")
        return load(mine if seed != federation.seed and mine.is_file() else self.start)

    def begun(self, federation: Any, setup: Setup) -> Setup:
        """The setup, with the weights to start from."""
        return setup._replace(start=weights(self.model(federation, setup.seed), setup))


NOWHERE = Keep()


def within(saved: dict[str, Any], federation: Any, key: str) -> dict[str, Any]:
    """Refuse to go back."""
    done = saved["told"]["round"]
    if done > federation.rounds:
        raise BadInput("rounds", federation.rounds, f"at least {done:,}: so many were played before {key}")
    return saved


# --- weights to start from ------------------------------------------------------------------------------------------


def weights(bundle: Bundle, setup: Setup) -> dict[str, Any]:
    """Where clients and servers start: each client at its own model where it had one, others at the common one."""
    found, task, graph = bundle.weights, setup.task, setup.graph
    if bundle.told["size"] != task.size:
        raise BadInput("--from", f"a model of {bundle.told['size']:,} weights", f"one of {task.size:,}, as here")
    mine, theirs = task.frame, bundle.frame
    if mine is not None and theirs is not None:
        alike = mine.world is None and theirs.world is None
        if mine.world is not None and theirs.world is not None:
            alike = all(map(np.array_equal, mine.world, theirs.world))
        if not alike:
            right = f"a model of the same features: problem.features, problem.width and seed ({bundle.told['seed']})"
            raise BadInput("--from", "a model of other random features", right)
        if mine.columns != theirs.columns:
            raise BadInput("--from", f"a model of {', '.join(theirs.columns)}", f"one of {', '.join(mine.columns)}")
        if not np.allclose(mine.center, theirs.center) or not np.allclose(mine.spread, theirs.spread):
            said = "The model to start from was learned in other units: problem.center and problem.scale fix them."
            warnings.warn(said, stacklevel=2)
    own, common = found.get("clients"), found.get("server")
    if common is None:
        if own is None:
            raise BadInput("--from", "the models of a server's clusters", "a model of all clients, or of each")
        common = own.mean(0)
    clients, servers = np.repeat(common[None], task.clients, 0), np.repeat(common[None], max(graph.servers, 1), 0)
    places = {name: k for k, name in enumerate(bundle.names)} if own is not None else {}
    for k, name in enumerate(graph.names or task.names or [f"client-{k}" for k in range(task.clients)]):
        if own is not None and name in places:
            clients[k] = own[places[name]]
    if "servers" in found and found["servers"].shape == servers.shape:
        servers = found["servers"]
    return {"clients": clients.astype(setup.dtype), "servers": servers.astype(setup.dtype)}


# --- the state ------------------------------------------------------------------------------------------------------


def parts(instance: Instance, rounds: Any) -> Iterator[tuple[str, Any]]:
    """All nodes' arrays, and what is under way to them, by name."""
    for role, table in instance.plan.tables.items():
        yield from named_leaves(table, f"table.{role}.")
    for i, mail in enumerate(rounds.mails):
        if mail.slots > 1:  # else nothing waits between two rounds
            yield from named_leaves(mail.inboxes, f"inbox.{i}.")


def remembered(instance: Instance) -> dict[str, Any]:
    """What a stream may remember: its clients' tables, and over how many rounds their samples arrive."""
    source = named_leaves(instance.task.source, "source.") if instance.task.streams else iter(())
    return {name: a for name, a in source if name.endswith(".horizon") or len(a) == instance.task.clients}


def sums_of(instance: Instance) -> dict[str, int]:
    """Checksums of the data, and of what a stream remembers at first: what does not change need not be kept."""
    return {name: zlib.crc32(array) for name, array in remembered(instance).items()} | {"data": data_sum(instance)}


def size_of(instance: Instance, rounds: Any) -> int:
    return sum(int(array.nbytes) for _, array in parts(instance, rounds))


def data_sum(instance: Instance) -> int:
    """A checksum of the data that are stored: a state of other data is not this run's. Of what is large, some rows."""
    total = 0
    for name, part in named_leaves(instance.task.source):
        if name.rpartition(".")[2] in STORED:
            array = np.asarray(part)
            some: Any = np.ascontiguousarray(array[:: 1 + array.nbytes // LARGE])
            total = zlib.crc32(some, zlib.crc32(repr(array.shape).encode(), total))
    return total


def save(path: Path, recorder: Any, instance: Instance, rounds: Any, measured: bool) -> None:
    """Write the state of a run between two rounds."""
    arrays: dict[str, Any] = dict(parts(instance, rounds)) | {"counts": rounds.board.counts.sum(0)}
    for name, array in remembered(instance).items():
        if name.endswith(".horizon") or zlib.crc32(array) != recorder.sums[name]:
            arrays[name] = array
    rows = list(zip(*recorder.rows)) or [()] * 5
    metrics = list(dict.fromkeys(rows[2]))
    number = {metric: i for i, metric in enumerate(metrics)}
    columns = (rows[1], [number[metric] for metric in rows[2]], rows[3], rows[4])
    kinds = (np.int64, np.int64, np.float64, np.str_)
    arrays |= {f"rows.{name}": np.array(column, kind) for name, column, kind in zip(ROWS, columns, kinds)}
    for i, name in enumerate(PAID):
        history = [paid[i] for _, paid in recorder.paid]
        arrays[f"paid.{name}"] = np.array(history, np.str_ if name == "methods" else None)
    plan = instance.plan
    told = {
        "format": FORMAT, "digest": recorder.federation.digest(), "seed": recorder.seed, "round": recorder.done,
        "measured": measured, "data": recorder.sums["data"],
        "seconds": recorder.seconds, "metrics": metrics, "paid": [n for n, _ in recorder.paid],
        "before": recorder.before, "meter": plan.measure.state() if isinstance(plan.measure, Meter) else None,
        "charges": plan.accountant.state() if isinstance(plan.accountant, PersonalLedgers) else None,
    }  # fmt: skip
    arrays[TEXT] = np.frombuffer(json.dumps(told).encode(), np.uint8)
    with replacing(path) as file:
        np.savez(file, **arrays)


def read(path: Path, key: str) -> dict[str, Any]:
    """A state that was saved; arrays are loaded as they are asked for."""
    try:
        arrays = np.load(path, allow_pickle=False)
        told = json.loads(arrays[TEXT].tobytes())
        known = told["format"] == FORMAT and all(
            name in told for name in ("digest", "seed", "round", "measured", "data")
        )
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile):
        known = False
    if not known:
        raise BadInput(key, str(path), "a checkpoint that this version of archipel wrote; remove it to begin anew")
    return {"path": path, "key": key, "told": told, "arrays": arrays}


def restore(saved: dict[str, Any], recorder: Any, instance: Instance, rounds: Any) -> bool:
    """Be what a state says; returns whether its last round was measured."""
    told, arrays = saved["told"], saved["arrays"]
    if told["data"] != recorder.sums["data"]:
        right = "the state of a run on these data, which have changed; remove it to begin anew"
        raise BadInput(saved["key"], str(saved["path"]), right)
    source = {name: array for name, array in remembered(instance).items() if name in arrays}
    for name, array in (*parts(instance, rounds), *source.items()):
        kept = arrays[name] if name in arrays else np.zeros(0)
        if kept.shape != array.shape or kept.dtype != array.dtype:
            right = f"one of the same data: {name.partition('.')[2]} does not fit"
            raise BadInput(saved["key"], str(saved["path"]), right)
        if name.endswith(".horizon") and (kept != array).any():
            long, asked = int(kept.flat[0]), int(array.flat[0])
            said = f"Samples go on arriving over {long:,} rounds, as they did; in a run of {asked:,} from its start"
            warnings.warn(f"{said} they would over {asked:,}. problem.horizon settles it.", stacklevel=2)
        array[...] = kept
    rounds.board.counts[0] = arrays["counts"]
    columns = [arrays[f"rows.{name}"].tolist() for name in ROWS]
    metrics = told["metrics"]
    recorder.rows = [(recorder.seed, n, metrics[m], value, node) for n, m, value, node in zip(*columns)]
    history = [arrays[f"paid.{name}"] for name in PAID]
    for i, moment in enumerate(told["paid"]):
        rho, releases, epsilon, methods = (part[i] for part in history)
        recorder.paid.append((moment, Paid(rho, releases, epsilon, methods.astype(object))))
    recorder.done, recorder.done_rows, recorder.seconds = told["round"], len(recorder.rows), told["seconds"]
    plan, recorder.before = instance.plan, told["before"]
    if isinstance(plan.measure, Meter):
        plan.measure.restore(told["meter"])
    if isinstance(plan.accountant, PersonalLedgers):
        plan.accountant.restore(told["charges"])
    return bool(told["measured"])


class Watch:
    """When the next checkpoint is due."""

    def __init__(self, seconds: float):
        self.seconds, self.last = seconds, time.monotonic()

    def due(self) -> bool:
        if time.monotonic() < self.last + self.seconds:
            return False
        self.last = time.monotonic()
        return True
