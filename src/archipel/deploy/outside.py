"""Data from outside: a CSV file that grows, a user's generator, an MQTT topic. Part of the real world."""

import csv
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from archipel.deploy.post import LOG
from archipel.deploy.store import Halted
from archipel.deploy.view import View, refuse_missing
from archipel.errors import BadInput, Missing
from archipel.loading import load
from archipel.node import cosines
from archipel.problems.files import SEPARATORS

PAUSE = 0.05  # seconds until a generator that had nothing new is asked again
POLL = 0.1  # seconds between two looks at data that comes from the outside
END = object()  # of a generator


class SampleSource:
    """Samples that come one by one, from the outside: inputs and a target, in the units of whoever measured them.

    What cannot be read is skipped and counted; the first one is said in the log.
    """

    def __init__(self, view: View):
        self.task = view.task
        self.next: Any = None  # a sample
        self.taken = self.skipped = 0
        self.over = False  # nothing will ever come again

    def fetch(self) -> Any:
        """The next row, as it comes; None where there is none yet."""
        raise NotImplementedError

    def read(self, row: Any) -> tuple[Any, Any]:
        """The inputs of a row, in their order or by the names of their columns, and its target."""
        inputs, target = row
        return inputs, target

    def ready(self) -> bool:
        while self.next is None:
            row = self.fetch()
            if row is None:
                return False
            try:
                self.next = self.sample_of(*self.read(row))
            except (ValueError, TypeError, LookupError) as problem:  # BadInput among them
                self.skip(row, problem)
        return True

    def skip(self, row: Any, problem: Exception) -> None:
        """A row that is no sample."""
        self.skipped += 1
        if self.skipped == 1:
            why = " ".join(str(problem).split())
            LOG.warning("skipped, not a sample: %.60r (%s); further ones are counted in silence", row, why)

    def wakes(self, now: float) -> float:
        return now + POLL

    def look(self, moment: Any) -> tuple[bool, Any]:
        if not self.ready():
            return False, None
        sample, self.next = self.next, None
        self.taken += 1
        return True, sample

    def sample_of(self, inputs: Any, target: Any) -> Any:
        """A sample in the space of the model: in the problem's units and through its features."""
        frame = self.task.frame
        if frame is None or not frame.columns:
            return self.in_order(np.asarray(inputs, float), float(target))
        given = inputs if isinstance(inputs, Mapping) else named(frame.asked, inputs)
        rows = frame.table({name: [given[name]] for name in frame.asked})
        return self.filled(frame.mapped(rows)[0], frame.told(target))

    def in_order(self, x: Any, y: float) -> Any:
        """Inputs of a problem whose columns have no names."""
        source = self.task.source
        directions = getattr(source, "directions", np.zeros((0, 0)))
        sample = self.filled(0.0, y)
        wanted = directions.shape[0] or len(sample.features)
        if x.shape != (wanted,) or not np.isfinite(x).all() or not np.isfinite(y):
            raise BadInput("deploy.data", f"{x.shape[0] if x.ndim else 1} inputs", f"{wanted} finite inputs, a target")
        if directions.shape[0]:
            cosines(sample.features, source.phases, directions, x.astype(sample.features.dtype), source.scale[0])
        else:
            sample.features[:] = x
        return sample

    def filled(self, features: Any, target: float) -> Any:
        sample = type(self.task.sample)(*[np.zeros_like(array) for array in self.task.sample])
        sample.features[:], sample.target[0] = features, target
        return sample

    def keep(self, data: Any) -> dict[str, Any]:
        return {} if data is None else dict(zip(data._fields, data))

    def recall(self, kept: dict[str, Any], moment: Any) -> Any:
        return type(self.task.sample)(**kept)

    def state(self) -> dict[str, Any]:
        return {"taken": self.taken, "skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        self.taken, self.skipped = state["taken"], state["skipped"]


class CsvSource(SampleSource):
    """A CSV file that grows: a header, then a row a sample.

    Of a problem that names its columns these are taken, in whatever order; else the target is the last column, or the
    one called target.
    """

    def __init__(self, view: View, path: Path):
        super().__init__(view)
        self.path, self.offset, self.behind = path, 0, 0
        self.names: list[str] = []
        self.separator = ","
        path.open("rb").close()  # now, rather than when the first row is wanted

    def line(self) -> str | None:
        """The next line that is not empty; None where there is none, or not written to its end yet."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self.offset:
                    right = f"a file that only grows; {self.offset} bytes of it were read before"
                    raise BadInput("deploy.data", str(self.path), right)
                file.seek(self.offset)
                while (line := file.readline()).endswith(b"\n"):
                    self.behind = file.tell()
                    if line.strip():
                        return line.decode("utf-8-sig", errors="replace")
        except FileNotFoundError:
            pass  # it is being replaced
        return None

    def fetch(self) -> Any:
        if not self.names:
            self.header()
        return self.line() if self.names else None

    def cells(self, line: str) -> list[str]:
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=self.separator))]
        return cells if self.separator == "," else [cell.replace(",", ".") for cell in cells]

    def read(self, row: Any) -> tuple[Any, Any]:
        given = named(self.names, self.cells(row))
        frame = self.task.frame
        if frame is not None and frame.columns:
            return given, given[frame.target]
        target = given.pop("target" if "target" in given else self.names[-1])
        return list(given.values()), target

    def skip(self, row: Any, problem: Exception) -> None:
        super().skip(row, problem)
        self.offset = self.behind

    def header(self) -> None:
        """The names of the columns; nothing while they are not written yet."""
        offset, self.offset = self.offset, 0
        line = self.line()
        self.offset = offset or (self.behind if line else 0)
        if line:
            self.separator = max(SEPARATORS, key=line.count)
            self.names = self.cells(line)
            frame = self.task.frame
            for name in (*frame.asked, frame.target) if frame is not None and frame.columns else ():
                if name not in self.names:
                    raise BadInput("deploy.data", str(self.path), f"a header with a column {name}")

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
    """A user's generator of (inputs, target), or of None where there is nothing new. After a restart it skips ahead.

    Inputs are a list in the order of the problem's columns, or a table by their names. It runs in a thread of its own,
    one sample ahead: it may wait for a sensor as long as it likes, while the node answers its neighbours.
    """

    def __init__(self, view: View, make: Callable[..., Iterator[Any]]):
        super().__init__(view)
        self.make, self.name = make, view.member.name
        self.box: queue.Queue[Any] = queue.Queue(1)
        self.thread: threading.Thread | None = None

    def draw(self, skipped: int) -> None:
        """The thread: the samples behind those that were used before, then the end, or what went wrong."""
        try:
            for found in self.make(self.name):
                if found is None:
                    time.sleep(PAUSE)
                elif skipped > 0:
                    skipped -= 1
                else:
                    self.box.put(found)
            self.box.put(END)
        except Exception as problem:
            LOG.exception("%s failed", self.make.__name__)
            self.box.put(problem)

    def fetch(self) -> Any:
        if self.thread is None:
            skipped = self.taken + self.skipped
            self.thread = threading.Thread(target=self.draw, args=(skipped,), daemon=True)
            self.thread.start()
        try:
            found = self.box.get_nowait()
        except queue.Empty:
            return None
        if found is END:
            self.over = True
            return None
        if isinstance(found, Exception):
            raise Halted(f"{self.name}: {self.make.__name__} failed with {type(found).__name__}: {found}.") from found
        return found


class MqttSource(SampleSource):
    """Messages of an MQTT topic: cells with commas between them, the target last; or JSON, a table by column.

    The broker keeps what is published while the node is away (quality of service 1 and a session of the node's name).
    """

    def __init__(self, view: View, host: str, topic: str):
        super().__init__(view)
        try:
            import paho.mqtt.client as mqtt
        except ImportError as lacking:
            raise Missing("Data from MQTT needs paho-mqtt: pip install paho-mqtt.") from lacking
        name, _, port = host.partition(":")
        if not (name and topic and (port or "1883").isdigit()):
            raise BadInput("deploy.data", f"mqtt://{host}/{topic}", 'an address and a topic, as "mqtt://broker/room/1"')
        self.box: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        version = mqtt.CallbackAPIVersion.VERSION2
        self.client = mqtt.Client(version, client_id=f"archipel-{view.member.name}", clean_session=False)
        self.client.on_message = lambda client, given, message: self.box.put(bytes(message.payload))
        self.client.on_connect = lambda client, *_: client.subscribe(topic, qos=1)
        self.client.connect_async(name, int(port or 1883))
        self.client.loop_start()

    def fetch(self) -> Any:
        return None if self.box.empty() else self.box.get()

    def read(self, row: Any) -> tuple[Any, Any]:
        if row.lstrip().startswith(b"{"):
            given = json.loads(row)
            return given, given.pop(self.task.frame.target)
        *inputs, target = row.decode().split(",")
        return inputs, target


def named(columns: Sequence[str], cells: Sequence[Any]) -> dict[str, Any]:
    """Cells by the names of their columns."""
    if len(cells) != len(columns):
        raise BadInput("deploy.data", f"{len(cells)} cells", f"{len(columns)}: {', '.join(columns)}")
    return dict(zip(columns, cells))


def source_of(view: View, data: str, folder: Path) -> SampleSource:
    """What `data` names; paths are meant from the folder of the description."""
    refuse_missing(data, folder)
    if not view.task.streams or not {"features", "target"} <= set(view.task.sample._fields):
        raise BadInput("deploy.data", data, "a folder: this algorithm does not learn from a stream, sample by sample")
    if data.startswith("mqtt://"):
        host, _, topic = data.removeprefix("mqtt://").partition("/")
        return MqttSource(view, host, topic)
    path, _, function = data.partition(".py:")
    if function:
        return GeneratorSource(view, load(f"{folder / path}.py:{function}", "deploy.data"))
    return CsvSource(view, folder / path)
