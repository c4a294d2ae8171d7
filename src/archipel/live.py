"""The page of a run while it runs, on loopback, by server-sent events. While nobody looks it costs nothing."""

import json
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from archipel.errors import BadInput
from archipel.report import cards, page_data, report_page
from archipel.results import Result

LOOK = 0.3  # seconds between two looks at what was measured
STARTING = "<!doctype html><meta http-equiv=refresh content=1><title>Starting</title><p>Compiling, once."


class Live:
    """A server of one page; `watch` is told of the recorders of a run when it begins."""

    def __init__(self, described: Any, name: str, port: int = 0):
        self.described, self.name = described, name
        self.recorders: Sequence[Any] = ()
        self.ended = threading.Event()
        try:
            self.server = ThreadingHTTPServer(("127.0.0.1", port), handler_of(self))
        except OSError as problem:
            raise BadInput("--page", port, f"a port that is free ({problem.strerror}), or 0") from problem
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/"

    def watch(self, recorders: Sequence[Any]) -> None:
        self.recorders = recorders

    def result(self) -> Result | None:
        """What was measured so far, up to the round that all seeds have reached."""
        begun = [recorder for recorder in self.recorders if recorder.graph is not None and recorder.done_rows]
        if not begun:
            return None
        rows = [row for recorder in begun for row in recorder.rows[: recorder.done_rows]]
        models = [dict[str, Any]() for _ in begun]
        return Result(self.described.to_toml(), rows, models, graph=begun[0].graph, name=self.name)

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
            if self.path == "/":
                result = live.result()
                text = STARTING if result is None else report_page(result, live=True)
                self.begin("text/html; charset=utf-8")
                self.wfile.write(text.encode())
            elif self.path == "/events":
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
            """An event whenever more was measured."""
            seen = 0
            try:
                while True:
                    over, result = live.ended.is_set(), live.result()
                    if result is not None and len(result.rows) != seen:
                        seen = len(result.rows)
                        told = {"charts": page_data(result)["charts"], "cards": cards(result)}
                        self.wfile.write(f"data: {json.dumps(told)}\n\n".encode())
                        self.wfile.flush()
                    if over:
                        self.wfile.write(b"event: over\ndata: {}\n\n")
                        return
                    live.ended.wait(LOOK)
            except OSError:  # who looked has gone
                return

    return Handler
