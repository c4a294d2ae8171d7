"""A very small MQTT 3.1.1 broker for tests: one client, quality of service 1."""

import socket
import struct
import threading
from typing import Any


class Broker:
    """Listens on a free port; knows who connected and what it subscribed to, and can publish to it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.name, self.topics = "", []
        self.subscribed = threading.Event()
        self.number = 0
        self.client: socket.socket | None = None

    def __enter__(self) -> "Broker":
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *problem: Any) -> None:
        self.listener.close()
        if self.client:
            self.client.close()

    def serve(self) -> None:
        try:
            self.client, _ = self.listener.accept()
            while True:
                self.answer(*self.packet())
        except OSError:
            pass  # closed

    def packet(self) -> tuple[int, bytes]:
        """The kind of the next packet and its content."""
        kind, length, shift = self.read(1)[0], 0, 0
        while True:
            byte = self.read(1)[0]
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return kind >> 4, self.read(length)

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.client.recv(count - len(data))
            if not more:
                raise OSError("gone")
            data += more
        return data

    def answer(self, kind: int, content: bytes) -> None:
        if kind == 1:  # CONNECT
            self.name = text(content, 10)
            self.client.sendall(bytes([0x20, 2, 0, 0]))
        elif kind == 8:  # SUBSCRIBE
            self.topics.append(text(content, 2))
            self.client.sendall(bytes([0x90, 3]) + content[:2] + b"\1")
            self.subscribed.set()
        elif kind == 12:  # PINGREQ
            self.client.sendall(bytes([0xD0, 0]))

    def publish(self, topic: str, message: str) -> None:
        self.number += 1
        content = struct.pack(">H", len(topic)) + topic.encode() + struct.pack(">H", self.number) + message.encode()
        self.client.sendall(bytes([0x32, len(content)]) + content)


def text(content: bytes, at: int) -> str:
    (length,) = struct.unpack_from(">H", content, at)
    return content[at + 2 : at + 2 + length].decode()
