"""Data from outside: a CSV file that grows, a user's generator, an MQTT topic. Part of the real world."""

import csv
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from archipel.deploy.post import LOG
from archipel.deploy.store import Halted
from archipel.deploy.view import View
from archipel.errors import BadInput, Missing
from archipel.loading import load
from archipel.node import cosines

PAUSE = 0.05  # seconds until a generator that had nothing new is asked again
POLL = 0.1  # seconds between two looks at data that comes from the outside
END = object()  # of a generator


class SampleSource:
    """Samples that come one by one, from the outside: inputs and a target."""

    skipped = 0  # rows that could not be read

    def __init__(self, view: View):
        if not view.task.streams or not {"features", "target"} <= set(view.task.sample._fields):
            raise BadInput("deploy.data", "(given)", "an algorithm that learns from a stream, sample by sample")
        self.task = view.task
        self.next: tuple[Any, float] | None = None
        self.taken = 0
        self.over = False  # nothing will ever come again

    def fetch(self) -> tuple[Any, float] | None:
        """The next inputs and their target; None where there are none yet."""
        raise NotImplementedError

    def ready(self) -> bool:
        if self.next is None:
            self.next = self.fetch()
        return self.next is not None

    def wakes(self, now: float) -> float:
        return now + POLL

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

    def __init__(self, view: View, path: Path):
        super().__init__(view)
        self.path, self.offset, self.behind = path, 0, 0
        self.names: list[str] = []
        if not path.is_file():
            raise BadInput("deploy.data", str(path), "a CSV file with a header; its rows may come later")

    def line(self) -> list[str] | None:
        """The cells of the next line that is not empty; None where there is none, or not written to its end yet."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self.offset:
                    right = f"a file that only grows; {self.offset} bytes of it were read before"
                    raise BadInput("deploy.data", str(self.path), right)
                file.seek(self.offset)
                while (line := file.readline()).endswith(b"\n"):
                    self.behind = file.tell()
                    cells = next(csv.reader([line.decode("utf-8-sig")]), [])
                    if any(cell.strip() for cell in cells):
                        return cells
        except FileNotFoundError:
            return None  # it is being replaced
        except UnicodeDecodeError as problem:
            raise BadInput("deploy.data", str(self.path), "text in UTF-8") from problem
        return None

    def fetch(self) -> tuple[Any, float] | None:
        if not self.names:
            self.names = [name.strip() for name in self.header()]
        cells = self.line() if self.names else None
        if cells is None:
            return None
        try:
            values = [float(cell) for cell in cells]
        except ValueError as problem:
            raise BadInput("deploy.data", ",".join(cells), "a row of numbers") from problem
        if len(values) != len(self.names):
            raise BadInput("deploy.data", ",".join(cells), f"{len(self.names)} numbers, as the header says")
        at = self.names.index("target") if "target" in self.names else len(self.names) - 1
        return values[:at] + values[at + 1 :], values[at]

    def header(self) -> list[str]:
        """The names of the columns; nothing while they are not written yet."""
        offset, self.offset = self.offset, 0
        names = self.line() or []
        self.offset = offset or (self.behind if names else 0)
        return names

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

    It runs in a thread of its own, one sample ahead: it may wait for a sensor as long as it likes, while the node
    answers its neighbours.
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

    def fetch(self) -> tuple[Any, float] | None:
        if self.thread is None:
            self.thread = threading.Thread(target=self.draw, args=(self.taken,), daemon=True)
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
        try:
            inputs, target = found
            return np.asarray(inputs, float), float(target)
        except (TypeError, ValueError) as problem:
            raise BadInput("deploy.data", repr(found), "a generator that yields (inputs, target)") from problem


class MqttSource(SampleSource):
    """Messages of an MQTT topic: numbers with commas between them, the target last.

    The broker keeps what is published while the node is away (quality of service 1 and a session of the node's name).
    What is not a sample is somebody else's: it is left alone, and said once.
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
        self.strange = 0
        version = mqtt.CallbackAPIVersion.VERSION2
        self.client = mqtt.Client(version, client_id=f"archipel-{view.member.name}", clean_session=False)
        self.client.on_message = lambda client, given, message: self.box.put(bytes(message.payload))
        self.client.on_connect = lambda client, *_: client.subscribe(topic, qos=1)
        self.client.connect_async(name, int(port or 1883))
        self.client.loop_start()

    def fetch(self) -> tuple[Any, float] | None:
        while not self.box.empty():
            message = self.box.get()
            try:
                values = [float(cell) for cell in message.decode().split(",")]
                self.sample_of(np.array(values[:-1]), values[-1])
                return values[:-1], values[-1]
            except (ValueError, IndexError):  # BadInput among them
                self.strange += 1
                if self.strange == 1:
                    LOG.warning("not a sample: %r (further ones are left alone in silence)", message[:60])
        return None


def source_of(view: View, data: str, folder: Path) -> SampleSource:
    """What `data` names; paths are meant from the folder of the description."""
    if data.startswith("mqtt://"):
        host, _, topic = data.removeprefix("mqtt://").partition("/")
        return MqttSource(view, host, topic)
    path, _, function = data.partition(".py:")
    if function:
        return GeneratorSource(view, load(f"{folder / path}.py:{function}", "deploy.data"))
    return CsvSource(view, folder / path)
