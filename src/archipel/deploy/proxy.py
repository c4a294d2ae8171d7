"""A small TCP forwarder between two nodes: it counts bytes, and it can cut the cable. For tests and `--chaos`."""

import random
import selectors
import socket
import threading
import time

from archipel.errors import Missing

CHUNK = 1 << 16
PORTS = 12_000, 32_000  # below what systems hand out to callers (from 32768 on Linux, 49152 elsewhere)


class Proxy:
    """Listens on a free port of this machine and forwards to another."""

    def __init__(self, port: int):
        self.target = port
        self.port = free_port()
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.up = self.down = 0  # bytes to the listening node, and back
        self.cut_until = 0.0
        self.speed = float("inf")  # bytes a second, both ways together
        self.ends: dict[socket.socket, tuple[socket.socket, bool]] = {}  # end -> the other one, is it the caller's
        self.running = True
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.listener, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def cut(self, seconds: float) -> None:
        """Break all connections, and let nobody through for a while."""
        self.cut_until = time.monotonic() + seconds

    def run(self) -> None:
        while self.running:
            for key, _ in self.ready.select(0.05):
                if key.fileobj is self.listener:
                    self.connect()
                else:
                    self.forward(key.fileobj)  # type: ignore[arg-type]
            if time.monotonic() < self.cut_until:
                for end in list(self.ends):
                    self.hang_up(end)

    def connect(self) -> None:
        caller, _ = self.listener.accept()
        try:
            if time.monotonic() < self.cut_until:
                raise OSError("cut")
            other = socket.create_connection(("127.0.0.1", self.target), 2)
        except OSError:
            caller.close()
            return
        for end, pair in ((caller, (other, True)), (other, (caller, False))):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.ends[end] = pair
            self.ready.register(end, selectors.EVENT_READ)

    def forward(self, end: socket.socket) -> None:
        if end not in self.ends:
            return
        other, is_caller = self.ends[end]
        try:
            data = end.recv(CHUNK)
            if data:
                other.sendall(data)
                time.sleep(len(data) / self.speed)
        except OSError:
            data = b""
        if not data:
            self.hang_up(end)
        elif is_caller:
            self.up += len(data)
        else:
            self.down += len(data)

    def hang_up(self, end: socket.socket) -> None:
        """Close both ends."""
        if end not in self.ends:
            return
        other, _ = self.ends.pop(end)
        self.ends.pop(other, None)
        for one in (end, other):
            self.ready.unregister(one)
            one.close()

    def close(self) -> None:
        self.running = False
        self.thread.join(2)
        for end in list(self.ends):
            self.hang_up(end)
        self.listener.close()
        self.ready.close()


def free_port() -> int:
    """A port of this machine that nobody uses now.

    Not one of those that the system hands out by itself: a caller could be given it while our node is being started
    again, even a caller of that very port, who would then talk to itself.
    """
    draw = random.SystemRandom()
    for _ in range(100):
        try:
            with socket.create_server(("127.0.0.1", draw.randrange(*PORTS))) as listener:
                return int(listener.getsockname()[1])
        except OSError:
            continue
    raise Missing(f"No port between {PORTS[0]} and {PORTS[1]} is free on this machine.")
