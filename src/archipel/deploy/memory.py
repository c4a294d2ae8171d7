"""A network inside one process: the twin of `zenoh_link`, for tests and for many small nodes in threads."""

import queue
import threading

from archipel.errors import BadInput


class Hub:
    """Carries bytes between the nodes of one process. Only edges that were named exist."""

    def __init__(self, edges: set[tuple[str, str]]):
        self.edges = edges
        self.boxes: dict[str, queue.SimpleQueue[tuple[str, bytes] | None]] = {}
        self.refused: list[tuple[str, str]] = []  # who tried to speak on an edge that is not its own
        self.lock = threading.Lock()

    def join(self, name: str) -> "MemoryLink":
        """A node's end. What was sent while it was away is lost, as on a real network."""
        with self.lock:
            if name in self.boxes:
                raise BadInput("name", name, "a node that has not joined yet")
            self.boxes[name] = queue.SimpleQueue()
        return MemoryLink(self, name)

    def carry(self, sender: str, to: str, data: bytes) -> None:
        if (sender, to) not in self.edges:
            self.refused.append((sender, to))
            return
        box = self.boxes.get(to)
        if box is not None:
            box.put((sender, bytes(data)))


class MemoryLink:
    """A node's end of a `Hub`."""

    def __init__(self, hub: Hub, name: str):
        self.hub, self.name = hub, name
        self.box = hub.boxes[name]

    def send(self, to: str, data: bytes) -> None:
        self.hub.carry(self.name, to, data)

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        try:
            return self.box.get(timeout=timeout) if timeout > 0 else self.box.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        with self.hub.lock:
            self.hub.boxes.pop(self.name, None)
