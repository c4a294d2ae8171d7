"""Eclipse Zenoh as the network: mutual TLS, only chosen edges, and nobody speaks under another's name.

What `a` says to `b` is published under the key `archipel/a/b`, and `b` alone may subscribe to it. Every node enforces
this for all its neighbours, by the name in their certificates: a put on another key is dropped before it reaches us.
Scouting is off: a node knows the addresses of those it connects to, and talks to nobody else.

Zenoh drops what is put during an outage, without an error: `post.PostOffice` sends it again.
"""

import atexit
import json
import queue
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from archipel.errors import BadInput, Missing

LEASE = 10_000  # milliseconds after which a silent connection counts as lost
GREETING = 30_000  # and in which two nodes must have shown each other their certificates, on slow machines too
EAR = 1 << 14  # frames that wait to be heard; further ones wait in the network
PATIENCE = 1_000_000  # microseconds that a piece of something large waits for room on its link
QUEUE = 16  # batches of 64 KB that wait to leave
RETRY = {"period_init_ms": 100, "period_max_ms": 4000, "period_increase_factor": 2}


def zenoh() -> Any:
    try:
        import zenoh
    except ImportError as lacking:
        raise Missing("Talking to other nodes needs Eclipse Zenoh: pip install 'archipel[deploy]'.") from lacking
    return zenoh


def key(sender: str, receiver: str) -> str:
    """Where `sender` publishes what it says to `receiver`."""
    return f"archipel/{sender}/{receiver}"


def bare_config(listen: list[str], connect: list[str], largest: int) -> dict[str, Any]:
    """The settings of a node that listens and connects at these endpoints, and takes messages up to `largest` bytes."""
    return {
        "mode": "peer",
        "listen": {"endpoints": listen, "exit_on_failure": True},
        "connect": {"endpoints": connect, "timeout_ms": -1, "exit_on_failure": False, "retry": RETRY},
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "timestamping/enabled": False,
        "transport/shared_memory/enabled": False,
        "transport/unicast/open_timeout": GREETING,
        "transport/unicast/accept_timeout": GREETING,
        "transport/unicast/max_sessions": 10_000,
        "transport/unicast/accept_pending": 1_000,
        "transport/link/tx/lease": LEASE,
        "transport/link/tx/queue/size/data": QUEUE,
        "transport/link/tx/queue/congestion_control/drop/max_wait_before_drop_fragments": PATIENCE,
        "transport/link/rx/max_message_size": largest + 1024,
    }


def tls(folder: Path, name: str) -> dict[str, Any]:
    """Show our own certificate, and ask everyone for one from our authority."""
    certificate, private = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    return {
        "transport/link/protocols": ["tls"],
        "transport/link/tls": {
            "root_ca_certificate": str(folder / "authority.pem"),
            "listen_certificate": certificate,
            "listen_private_key": private,
            "connect_certificate": certificate,
            "connect_private_key": private,
            "enable_mtls": True,
            "verify_name_on_connect": True,
            "close_link_on_expiration": True,
        },
    }


def access(name: str, neighbours: Iterable[str]) -> dict[str, Any]:
    """A neighbour may say things to us in its own name, and hear what we say to it. All else is denied."""
    rules, subjects, policies = [], [], []
    for other in neighbours:
        for flow, message, allowed in (
            ("ingress", "put", key(other, name)),
            ("egress", "declare_subscriber", key(other, name)),
            ("egress", "put", key(name, other)),
            ("ingress", "declare_subscriber", key(name, other)),
        ):
            rule = {"id": f"{other} {flow} {message}", "permission": "allow", "flows": [flow], "messages": [message]}
            rules.append(rule | {"key_exprs": [allowed]})
        subjects.append({"id": other, "cert_common_names": [other]})
        policies.append({"rules": [rule["id"] for rule in rules[-4:]], "subjects": [other]})
    lists = {"rules": rules, "subjects": subjects, "policies": policies}
    return {"access_control": {"enabled": True, "default_permission": "deny", **lists}}


class ZenohLink:
    """One node's end of a Zenoh network."""

    def __init__(self, name: str, neighbours: Iterable[str], settings: dict[str, Any]):
        library = zenoh()
        config = library.Config()
        for path, value in settings.items():
            config.insert_json5(path, json.dumps(value))
        self.error = library.ZError
        self.box: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self.first: tuple[str, bytes] | None = None  # taken out of the box by `wait`, for `receive`
        try:
            self.session = library.open(config)
        except library.ZError as problem:
            raise cannot_open(settings, str(problem)) from problem
        # One queue for all neighbours, whoever they are, and one thread that empties it. What a neighbour sees is a
        # subscription to its own key (of which nothing is kept): only then is a number on the wire enough for the key.
        self.ear = self.session.declare_subscriber(key("*", name), library.handlers.FifoChannel(EAR))
        self.known = [
            self.session.declare_subscriber(key(n, name), library.handlers.RingChannel(1)) for n in neighbours
        ]
        self.mouths = {n: self.session.declare_publisher(key(name, n)) for n in neighbours}
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        atexit.register(self.close)  # a thread that listens while Python ends would crash it

    def listen(self) -> None:
        """Move what came in into the box: all there is at once, since every change of thread costs."""
        with suppress(self.error):  # closed
            while True:
                self.put(self.ear.handler.recv())
                while (sample := self.ear.handler.try_recv()) is not None:
                    self.put(sample)

    def put(self, sample: Any) -> None:
        """The key says who spoke: `access` lets nobody put under another's."""
        self.box.put((str(sample.key_expr).split("/")[1], bytes(sample.payload)))

    def send(self, to: str, data: bytes) -> None:
        with suppress(self.error):  # not connected: it will be sent again
            self.mouths[to].put(data)

    def receive(self) -> tuple[str, bytes] | None:
        found, self.first = self.first, None
        try:
            return self.box.get_nowait() if found is None else found
        except queue.Empty:
            return None

    def wait(self, seconds: float) -> bool:
        if self.first is None:
            with suppress(queue.Empty):
                self.first = self.box.get(timeout=seconds) if seconds > 0 else self.box.get_nowait()
        return self.first is not None

    def close(self) -> None:
        atexit.unregister(self.close)
        with suppress(self.error):  # closed before
            self.session.close()
            self.ear.undeclare()
        self.listener.join()


def cannot_open(settings: dict[str, Any], problem: str) -> Exception:
    """Why the network could not be joined, as a sentence."""
    listen, problem = settings["listen"]["endpoints"], problem.split(" at /")[0]  # where in Zenoh is of no use
    if "in use" in problem:
        return BadInput("deploy.addresses", ", ".join(listen), "an address whose port no other program uses")
    if "assign requested address" in problem:
        return BadInput("deploy.addresses", ", ".join(listen), "an address of this machine to listen on")
    if "ertificate" in problem or ".pem" in problem or ".key" in problem:
        return BadInput("deploy.keys", problem, "certificates as `archipel keys` makes them")
    return BadInput("deploy.addresses", ", ".join(listen) or "(none)", f"a network that can be joined ({problem})")
