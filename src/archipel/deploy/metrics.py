"""A node's numbers for Prometheus, and whether it is well, on an address of one's own; off unless asked for."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from archipel.errors import BadInput

STALE = 60.0  # seconds after which a node that has not looked around is not well


def families(status: dict[str, Any]) -> Iterator[tuple[str, str, str, list[tuple[dict[str, str], float]]]]:
    """Name, type, meaning and values of each metric, from what a node says of itself."""
    traffic = status["traffic"]
    ways = ("out", "in")
    yield "round", "gauge", "the round that was reached", [({}, status["round"])]
    yield "rounds", "gauge", "how many rounds there are", [({}, status["rounds"])]
    for what in ("bytes", "frames"):
        found = [({"way": way}, traffic.get(f"{what} {way}", 0)) for way in ways]
        yield f"{what}_total", "counter", f"{what} that were sent and received", found
    yield "sent_again_total", "counter", "letters that were sent again", [({}, traffic.get("sent again", 0))]
    yield "refused_total", "counter", "messages refused", [({"fault": f}, n) for f, n in status["faults"].items()]
    yield "held_back_total", "counter", "messages that the policy held back", [({}, status["held back"])]
    yield "rows_skipped_total", "counter", "rows that arrived and could not be read", [({}, status["skipped"])]
    if status["paid"] is not None:
        yield "paid_rho", "gauge", "what was paid in privacy, in zCDP", [({}, status["paid"])]
    near = status["neighbours"].items()
    yield "neighbour_up", "gauge", "whether it was heard", [({"neighbour": k}, n["heard"]) for k, n in near]
    yield "neighbour_round", "gauge", "the round it spoke of", [({"neighbour": k}, n["round"]) for k, n in near]
    seen = [({"neighbour": k}, n["seen"]) for k, n in near if n["seen"]]
    yield "neighbour_seen_timestamp_seconds", "gauge", "when it was heard last", seen
    paid = [({"neighbour": k}, n["paid"]) for k, n in near if n.get("paid") is not None]
    yield "neighbour_paid_rho", "gauge", "what it said that it paid, in zCDP", paid


def exposition(status: dict[str, Any]) -> str:
    """The numbers as Prometheus reads them (text format 0.0.4)."""
    lines = []
    for name, kind, meaning, values in families(status):
        lines += [f"# HELP archipel_{name} {meaning}", f"# TYPE archipel_{name} {kind}"]
        for labels, value in values:
            named = {"node": status["name"]} | labels
            said = ",".join(f"{key}={json.dumps(word, ensure_ascii=False)}" for key, word in named.items())
            lines.append(f"archipel_{name}{{{said}}} {float(value):.17g}")
    return "\n".join(lines) + "\n"


class Metrics:
    """Serves /metrics and /health of a node, from the last status that it made."""

    def __init__(self, address: str, node: Any):
        host, colon, port = address.rpartition(":")
        if not (colon and host and port.isdigit() and int(port) < 65536):
            raise BadInput("--metrics", address, 'a text "host:port", such as "127.0.0.1:9464"')
        try:
            self.server = ThreadingHTTPServer((host.strip("[]"), int(port)), handler_of(node))
        except OSError as problem:
            raise BadInput("--metrics", address, f"an address that is free ({problem.strerror})") from problem
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def handler_of(node: Any) -> type[BaseHTTPRequestHandler]:
    """Answers the two questions that there are."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            status = node.latest
            if self.path == "/metrics":
                self.answer(200, "text/plain; version=0.0.4; charset=utf-8", exposition(status))
            elif self.path == "/health":
                age = max(0.0, time.time() - status["time"])
                well = age < STALE
                told = {"well": well, "round": status["round"], "rounds": status["rounds"], "seconds": round(age, 1)}
                self.answer(200 if well else 503, "application/json", json.dumps(told) + "\n")
            else:
                self.send_error(404)

        def answer(self, code: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
