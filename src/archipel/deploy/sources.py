"""What a node learns from: the description's own problem, a CSV file that grows, a user's generator, an MQTT topic."""

import csv
import importlib.util
import queue
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from archipel.deploy.part import Part
from archipel.errors import BadInput, Missing
from archipel.node import clear, cosines

SMALL = 1 << 16  # bytes of a client's row of the data; what is larger does not change


class ProblemSource:
    """A client's own share of the description's problem, seen as in a simulation."""

    by_round = True  # what it shows belongs to a round, so rounds without data go by at once

    def __init__(self, part: Part):
        self.task, self.number = part.task, part.member.number
        self.rows: dict[str, Any] = {}
        for name, array in zip(self.task.source._fields, self.task.source):
            is_table = isinstance(array, np.ndarray) and array.ndim and len(array) == self.task.clients
            if is_table and array[self.number].nbytes <= SMALL:
                self.rows[name] = array
        self.first = {name: array[self.number].copy() for name, array in self.rows.items()}
        self.sample = type(self.task.sample)(*[np.zeros_like(array) for array in self.task.sample])

    def ready(self) -> bool:
        return True

    def look(self, moment: Any) -> tuple[bool, Any]:
        """Whether there is something new, and the data."""
        clear(self.sample)
        return self.task.observe(self.task.source, self.sample, moment)

    def keep(self, data: Any) -> dict[str, Any]:
        """What a checkpoint must hold of the data of this round: nothing, where all of it is stored anyway."""
        return {} if data is None or not self.task.streams else dict(zip(data._fields, data))

    def recall(self, kept: dict[str, Any], moment: Any) -> Any:
        """The data of this round, from a checkpoint."""
        return type(self.task.sample)(**kept) if self.task.streams else self.look(moment)[1]

    def state(self) -> dict[str, Any]:
        """What the stream remembers, as far as it changed."""
        mine = {name: array[self.number] for name, array in self.rows.items()}
        return {name: row for name, row in mine.items() if not np.array_equal(row, self.first[name])}

    def restore(self, state: dict[str, Any]) -> None:
        for name, row in state.items():
            self.rows[name][self.number] = row


class SampleSource:
    """Samples that come one by one, from the outside: inputs and a target."""

    by_round = False

    def __init__(self, part: Part):
        if not part.task.streams or not {"features", "target"} <= set(part.task.sample._fields):
            raise BadInput("deploy.data", part.plan, "an algorithm that learns from a stream")
        self.task = part.task
        self.next: tuple[Any, float] | None = None
        self.taken = 0

    def fetch(self) -> tuple[Any, float] | None:
        """The next inputs and their target; None where there are none yet."""
        raise NotImplementedError

    def ready(self) -> bool:
        if self.next is None:
            self.next = self.fetch()
        return self.next is not None

    def look(self, moment: Any) -> tuple[bool, Any]:
        if not self.ready() or self.next is None:
            return False, None
        x, y = self.next
        self.next = None
        self.taken += 1
        return True, self.sample_of(np.asarray(x, float), float(y))

    def sample_of(self, x: Any, y: float) -> Any:
        """A sample in the space of the model: through the problem's random Fourier features, where it has any."""
        sample = type(self.task.sample)(*[np.zeros_like(array) for array in self.task.sample])
        source = self.task.source
        mapped = getattr(source, "directions", np.zeros((0, 0)))
        wanted = mapped.shape[0] or len(sample.features)
        if x.shape != (wanted,) or not np.isfinite(x).all() or not np.isfinite(y):
            raise BadInput("deploy.data", f"{x.shape[0] if x.ndim else 1} inputs", f"{wanted} finite inputs, a target")
        sample.target[0] = y
        if mapped.shape[0]:
            inputs = x.astype(sample.features.dtype)
            cosines(sample.features, source.phases, source.directions, inputs, source.scale[0])
        else:
            sample.features[:] = x
        return sample

    def keep(self, data: Any) -> dict[str, Any]:
        return {} if data is None else dict(zip(data._fields, data))

    def recall(self, kept: dict[str, Any], moment: Any) -> Any:
        return type(self.task.sample)(**kept)

    def state(self) -> dict[str, Any]:
        return {"taken": self.taken}

    def restore(self, state: dict[str, Any]) -> None:
        self.taken = state["taken"]


class CsvSource(SampleSource):
    """A CSV file that grows: a header, then a row a sample; the target is the last column, or the one called target."""

    def __init__(self, part: Part, path: Path):
        super().__init__(part)
        self.path, self.offset = path, 0
        self.names: list[str] = []
        self.open()

    def open(self) -> None:
        try:
            with self.path.open("rb") as file:
                self.names = next(csv.reader([file.readline().decode()]), [])
                self.offset = self.offset or file.tell()
        except (OSError, UnicodeDecodeError) as problem:
            raise BadInput("deploy.data", str(self.path), "a CSV file with a header") from problem

    def fetch(self) -> tuple[Any, float] | None:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            line = file.readline()
        if not line.endswith(b"\n"):  # not written to its end yet
            return None
        try:
            values = [float(cell) for cell in next(csv.reader([line.decode()]), [])]
        except ValueError as problem:
            raise BadInput("deploy.data", line.decode(errors="replace").strip(), "a row of numbers") from problem
        if len(values) != len(self.names):
            raise BadInput("deploy.data", line.decode().strip(), f"{len(self.names)} numbers, as the header says")
        at = self.names.index("target") if "target" in self.names else len(self.names) - 1
        self.behind = self.offset + len(line)
        return values[:at] + values[at + 1 :], values[at]

    def look(self, moment: Any) -> tuple[bool, Any]:
        fresh, data = super().look(moment)
        if fresh:
            self.offset = self.behind
        return fresh, data

    def state(self) -> dict[str, Any]:
        return super().state() | {"offset": self.offset}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.offset = state["offset"]


class GeneratorSource(SampleSource):
    """A user's generator of (inputs, target), or of None where there is nothing new. After a restart it skips ahead."""

    def __init__(self, part: Part, make: Callable[..., Iterator[Any]]):
        super().__init__(part)
        self.samples = iter(make(part.member.name))

    def fetch(self) -> tuple[Any, float] | None:
        found = next(self.samples, None)
        return None if found is None else (found[0], found[1])

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        skipped = 0
        while skipped < self.taken and (found := next(self.samples, StopIteration)) is not StopIteration:
            skipped += found is not None


class MqttSource(SampleSource):
    """Messages of an MQTT topic: numbers with commas between them, the target last."""

    def __init__(self, part: Part, host: str, topic: str):
        super().__init__(part)
        try:
            import paho.mqtt.client as mqtt  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError as lacking:
            raise Missing("Data from MQTT needs paho-mqtt: pip install paho-mqtt.") from lacking
        self.box: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda client, given, message: self.box.put(message.payload)
        self.client.on_connect = lambda client, *_: client.subscribe(topic, qos=1)
        name, _, port = host.partition(":")
        self.client.connect_async(name, int(port or 1883))
        self.client.loop_start()

    def fetch(self) -> tuple[Any, float] | None:
        try:
            values = [float(cell) for cell in self.box.get_nowait().decode().split(",")]
        except queue.Empty:
            return None
        except ValueError:
            return None  # whoever else publishes there
        return values[:-1], values[-1]


def source_of(part: Part, data: str, folder: Path) -> Any:
    """What the `data` of a deployment names; paths are meant from the folder of the description."""
    if not part.has_data:
        return None
    if not data:
        return ProblemSource(part)
    if data.startswith("mqtt://"):
        host, _, topic = data.removeprefix("mqtt://").partition("/")
        return MqttSource(part, host, topic.format(name=part.member.name))
    path, _, function = data.format(name=part.member.name).partition(".py:")
    if function:
        return GeneratorSource(part, load(folder / f"{path}.py", function))
    return CsvSource(part, folder / path)


def load(path: Path, name: str) -> Callable[..., Iterator[Any]]:
    """A function of a user's Python file."""
    spec = importlib.util.spec_from_file_location(f"archipel_data_{path.stem}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise BadInput("deploy.data", str(path), "a Python file that exists")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise BadInput("deploy.data", name, f"a function of {path}")
    return getattr(module, name)
