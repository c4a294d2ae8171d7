"""A page while something runs, by server-sent events. While nobody looks it costs nothing.

It is served on loopback; an address beyond it needs a token, which is part of the link that is printed.
"""

import hmac
import json
import re
import secrets
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import itemgetter
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from archipel.errors import BadInput
from archipel.report.data import is_drawn
from archipel.report.page import news, report_page
from archipel.results import Result

LOOK = 0.6  # seconds between two looks at what was measured
PATIENCE = 2.0  # seconds that who looks has to be told of the end
HERE = ("127.0.0.1", "localhost", "::1")
STAMP = re.compile(r"\d{1,15}( \d{1,15})*")  # of a simulation; others tell everything each time
STARTING = "<!doctype html><meta http-equiv=refresh content=1><title>Starting</title><p>Starting."


class View(Protocol):
    """What a page is made of."""

    def stamp(self) -> Any:
        """Something else whenever there is something new; None while there is nothing to see."""

    def page(self) -> str:
        """The whole page."""

    def news(self, since: str) -> dict[str, Any]:
        """What the page is told when there is something new; it was told up to a stamp, "" where nothing yet."""


class Simulated:
    """A simulation; `watch` is told of its recorders when it begins."""

    def __init__(self, described: Any, name: str):
        self.described, self.name, self.text = described, name, ""
        self.recorders: Sequence[Any] = ()

    def watch(self, recorders: Sequence[Any]) -> None:
        self.recorders = recorders

    def begun(self) -> list[Any]:
        return [recorder for recorder in self.recorders if recorder.graph is not None and recorder.done_rows]

    def stamp(self) -> Any:
        """How many measurements each seed has, as text."""
        return " ".join(str(recorder.done_rows) for recorder in self.recorders) if self.begun() else None

    def result(self, rounds: Sequence[int] | None = None) -> Result:
        """What was measured so far; or of some rounds what is drawn, and all of the last of them."""
        begun = self.begun()
        parts = [(recorder.rows, recorder.done_rows) for recorder in begun]
        if rounds is None:
            rows = [row for found, done in parts for row in found[:done]]
        else:
            found = [rows[slice(*of_round(rows, done, n))] for rows, done in parts for n in rounds]
            tabled = {row[2] for row in found[-1] if row[4] and not is_drawn(row[2])}
            rows = [row for one in found for row in one if row[2] not in tabled or row[1] == rounds[-1]]
        if not self.text:
            self.text = self.described.to_toml()
        return Result(self.text, rows, [{} for _ in begun], graph=begun[0].graph, name=self.name)

    def page(self) -> str:
        stamp = self.stamp()  # before: what is measured meanwhile is told again
        return report_page(self.result(), live=stamp)

    def news(self, since: str) -> dict[str, Any]:
        """The rounds that a seed has reached since then, and the last one of all: as much as is new, however long."""
        told, rounds = [int(count) for count in since.split()], set[int]()
        if [count <= recorder.done_rows for count, recorder in zip(told, self.recorders)] != [True] * len(
            self.recorders
        ):
            told = [0] * len(self.recorders)  # by another run
        for recorder, count in zip(self.recorders, told):
            rounds.update(row[1] for row in recorder.rows[count : recorder.done_rows])
        rounds.add(max(recorder.rows[recorder.done_rows - 1][1] for recorder in self.begun()))
        return news(self.result(sorted(rounds)))


def of_round(rows: Sequence[Any], done: int, round: int) -> tuple[int, int]:
    """Where a round's measurements are among those of one seed, which come round by round."""
    key = itemgetter(1)
    return bisect_left(rows, round, hi=done, key=key), bisect_right(rows, round, hi=done, key=key)


class Live:
    """A server of one page, at a port of loopback or at host:port."""

    def __init__(self, view: View, address: str = "0"):
        host, _, port = str(address).rpartition(":")
        host = host.strip("[]") or HERE[0]
        if not port.isdecimal() or int(port) > 65_535:
            raise BadInput("--page", address, "a port from 0 (any) to 65535, or host:port")
        self.view, self.ended = view, threading.Event()
        self.followers: set[threading.Thread] = set()
        self.token = "" if host in HERE else secrets.token_urlsafe(16)
        try:
            self.server = ThreadingHTTPServer((host, int(port)), handler_of(self))
        except OSError as problem:
            raise BadInput("--page", address, f"a port that is free ({problem.strerror}), or 0") from problem
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.1,), daemon=True).start()

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
        for thread in tuple(self.followers):
            thread.join(PATIENCE)
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
                asked = parse_qs(urlsplit(self.path).query).get("since", [""])[0]
                self.follow(self.headers.get("Last-Event-ID", asked))
            else:
                self.send_error(404)

        def begin(self, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()

        def follow(self, since: str) -> None:
            """An event whenever there is something new; who comes again says what was the last."""
            since = since if STAMP.fullmatch(since) else ""
            live.followers.add(threading.current_thread())
            try:
                while True:
                    over, stamp = live.ended.is_set(), live.view.stamp()
                    if stamp is not None and str(stamp) != since:
                        told = json.dumps(live.view.news(since), separators=(",", ":"))
                        since = str(stamp)
                        self.wfile.write(f"id: {since}\ndata: {told}\n\n".encode())
                        self.wfile.flush()
                    if over:
                        self.wfile.write(b"event: over\ndata: {}\n\n")
                        return
                    live.ended.wait(LOOK)
            except OSError:  # who looked has gone
                return
            finally:
                live.followers.discard(threading.current_thread())

    return Handler
