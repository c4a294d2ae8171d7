"""A page while something runs, by server-sent events. While nobody looks it costs nothing.

It is served on loopback; an address beyond it needs a token, which is part of the link that is printed.
"""

import hmac
import json
import secrets
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from archipel.errors import BadInput
from archipel.report import news, report_page
from archipel.results import Result

LOOK = 0.3  # seconds between two looks at what was measured
RARELY = 30  # times as long as a look takes, at least, lie between two: who looks does not slow a run
HERE = ("127.0.0.1", "localhost", "::1")
STARTING = "<!doctype html><meta http-equiv=refresh content=1><title>Starting</title><p>Starting."


class View(Protocol):
    """What a page is made of."""

    def stamp(self) -> Any:
        """Something else whenever there is something new; None while there is nothing to see."""

    def page(self) -> str:
        """The whole page."""

    def news(self) -> dict[str, Any]:
        """What the page is told when there is something new."""


class Simulated:
    """A simulation; `watch` is told of its recorders when it begins."""

    def __init__(self, described: Any, name: str):
        self.described, self.name = described, name
        self.recorders: Sequence[Any] = ()

    def watch(self, recorders: Sequence[Any]) -> None:
        self.recorders = recorders

    def begun(self) -> list[Any]:
        return [recorder for recorder in self.recorders if recorder.graph is not None and recorder.done_rows]

    def stamp(self) -> Any:
        return sum(recorder.done_rows for recorder in self.begun()) or None

    def result(self) -> Result:
        """What was measured so far, up to the round that all seeds have reached."""
        begun = self.begun()
        rows = [row for recorder in begun for row in recorder.rows[: recorder.done_rows]]
        models = [dict[str, Any]() for _ in begun]
        return Result(self.described.to_toml(), rows, models, graph=begun[0].graph, name=self.name)

    def page(self) -> str:
        return report_page(self.result(), live=True)

    def news(self) -> dict[str, Any]:
        return news(self.result())


class Live:
    """A server of one page, at a port of loopback or at host:port."""

    def __init__(self, view: View, address: str = "0"):
        host, _, port = str(address).rpartition(":")
        host = host.strip("[]") or HERE[0]
        if not port.isdecimal() or int(port) > 65_535:
            raise BadInput("--page", address, "a port from 0 (any) to 65535, or host:port")
        self.view, self.ended = view, threading.Event()
        self.token = "" if host in HERE else secrets.token_urlsafe(16)
        try:
            self.server = ThreadingHTTPServer((host, int(port)), handler_of(self))
        except OSError as problem:
            raise BadInput("--page", address, f"a port that is free ({problem.strerror}), or 0") from problem
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        host, port = self.server.server_address[:2]
        return f"http://{host!s}:{port}/" + (f"?token={self.token}" if self.token else "")

    def admits(self, asked: str, host: str) -> bool:
        """Whether a request has the token; on loopback, whether it is meant for this machine and not led here."""
        if self.token:
            given = parse_qs(urlsplit(asked).query).get("token", [""])[0]
            return hmac.compare_digest(given.encode(), self.token.encode())
        return host.rpartition(":")[0].strip("[]") in HERE

    def close(self) -> None:
        """Let who looks see the end, then stop."""
        self.ended.set()
        time.sleep(2 * LOOK)
        self.server.shutdown()
        self.server.server_close()


def handler_of(live: Live) -> type[BaseHTTPRequestHandler]:
    """Answers the two questions that there are: the page, and what is new."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if not live.admits(self.path, self.headers.get("Host", "")):
                self.send_error(403)
            elif path == "/":
                text = STARTING if live.view.stamp() is None else live.view.page()
                self.begin("text/html; charset=utf-8")
                self.wfile.write(text.encode())
            elif path == "/events":
                self.begin("text/event-stream")
                self.follow()
            else:
                self.send_error(404)

        def begin(self, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()

        def follow(self) -> None:
            """An event whenever there is something new."""
            seen: Any = None
            try:
                while True:
                    over, stamp, begun = live.ended.is_set(), live.view.stamp(), time.monotonic()
                    if stamp is not None and stamp != seen:
                        seen = stamp
                        self.wfile.write(f"data: {json.dumps(live.view.news())}\n\n".encode())
                        self.wfile.flush()
                    if over:
                        self.wfile.write(b"event: over\ndata: {}\n\n")
                        return
                    live.ended.wait(max(LOOK, RARELY * (time.monotonic() - begun)))
            except OSError:  # who looked has gone
                return

    return Handler
