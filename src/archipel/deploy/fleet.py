"""A whole federation on this machine: a process a node, mutual TLS on loopback, the same files as a simulation."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from archipel.deploy import keys
from archipel.deploy.assemble import assemble
from archipel.deploy.proxy import Proxy, free_port
from archipel.deploy.roster import Roster, refuse_attack, roster_of
from archipel.deploy.store import Halted
from archipel.deploy.trace import read_status
from archipel.deploy.units import FILE, read_units
from archipel.deploy.view import instance_of_all
from archipel.results import Result

LONG = 1e9  # seconds that a node stays after its last round: until it is told to go
LITTLE = 1 << 16  # bytes: less than this is a full disk
HEAD_START = 3.0  # seconds until the first round of those who follow the clock
AT_ONCE, STARTING = 16, 2.0  # nodes that are being started at a time, and seconds after which the next one is
NICE = 10  # of nodes that call others: those that are called have more to do
GRACE = 30.0  # seconds in which a node ends that is told to, before it is made to: a machine may be busy
ENDING = 60.0  # and in which the process ends that starts them
RESTARTS = 3  # of a node that ends by itself, with an error, before the whole is given up


class Ended(Halted):
    """A node ended with an error. What starting it again does not help against is so for all of them: 2."""

    def __init__(self, sentence: str, status: int):
        super().__init__(sentence)
        self.status = 2 if status == 2 else 1


class Fleet:
    """The processes of a deployment on this machine."""

    def __init__(self, description: Path, federation: Any, folder: Path, proxied: bool = False, **deploy: Any):
        self.description, self.federation, self.folder = description.resolve(), federation, folder.resolve()
        refuse_attack(federation)
        self.instance = instance_of_all(federation, self.description.parent)
        self.roster: Roster = roster_of(self.instance)
        self.nodes = self.folder / "nodes"
        self.nodes.mkdir(parents=True, exist_ok=True)
        listeners = self.roster.leaders()
        self.ports = {name: free_port() for name in listeners}
        self.keys = self.folder / "keys"
        hosts = {member.name: ["127.0.0.1"] if member.name in self.ports else [] for member in self.roster.members}
        keys.make(self.keys, hosts)
        self.deploy = {"keys": str(self.keys), "addresses": {}, **self.together(), **deploy, **self.clock(deploy)}
        self.proxies: dict[tuple[str, str], Proxy] = {}
        addresses = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}
        self.orders = {member.name: self.order(member.name, addresses, proxied) for member in self.roster.members}
        self.pids: dict[str, int] = {}
        self.trouble: Counter[str] = Counter()
        self.expected: set[int] = set()  # processes that were killed on purpose
        self.queued: deque[str] = deque()
        self.starting: dict[str, float] = {}  # who was just started, and when
        self.restarting: dict[str, float] = {}  # who is started again, and when
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.begun = time.monotonic()

    def order(self, name: str, addresses: dict[str, str], proxied: bool) -> dict[str, Any]:
        """What a node's process needs to know. With proxies, each call goes through one of its own."""
        known = dict(addresses)
        if proxied:
            for other in self.roster.calls(name, addresses):
                self.proxies[name, other] = Proxy(self.ports[other])
                known[other] = f"127.0.0.1:{self.proxies[name, other].port}"
        changes = {"rounds": self.federation.rounds}
        (self.nodes / name / "status.json").unlink(missing_ok=True)  # of an earlier run
        return {
            "name": name,
            "description": str(self.description),
            "folder": str(self.nodes / name),
            "addresses": known,
            "deploy": self.deploy,
            "changes": changes,
            "linger": LONG,
            "orphans": "end",
            "rules": False,  # nothing leaves this machine
            "nice": 0 if name in self.ports else NICE,
        }

    def together(self) -> dict[str, Any]:
        """What differs where all nodes share one machine: it starts them one after the other, and has one disk.

        Hundreds of nodes that each force every checkpoint to that disk do little else. A node that is killed loses
        nothing by it, only a machine that stops; ledgers are forced to disk all the same.
        """
        patience = max(self.federation.deploy.patience, 2.0 * len(self.roster.members))
        return {"durable": False, "patience": patience}

    def clock(self, deploy: dict[str, Any]) -> dict[str, Any]:
        """Nodes that follow the clock without one server need the moment of the first round.

        After an interruption all go on in the round in which they were: no rounds went by while nobody ran.
        """
        given = vars(self.federation.deploy) | deploy
        reached = max(status.get("round", 0) for status in self.statuses().values())
        if given["pace"] != "clock" or not (reached or (not given["start"] and len(self.roster.leaders()) > 1)):
            return {}
        return {"start": time.time() + HEAD_START - reached * given["period"]}

    # --- processes ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the process that starts nodes, then all nodes: those that listen first."""
        self.starter = subprocess.Popen(
            [sys.executable, "-m", "archipel.deploy.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process: it ends the others
        )
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        self.queued.extend(sorted(self.orders, key=lambda name: name not in self.ports))
        self.start_next()

    def start_next(self) -> None:
        """Start the next nodes: not more at a time than a machine can, since those that wait would call in vain."""
        now = time.monotonic()
        for name, since in list(self.starting.items()):
            if now > since + STARTING or (self.nodes / name / "status.json").exists():
                del self.starting[name]
        while self.queued and len(self.starting) < AT_ONCE:
            name = self.queued.popleft()
            self.starting[name] = now
            self.start(name)

    def listen(self) -> None:
        """Take down what the process that starts nodes reports."""
        assert self.starter.stdout is not None
        for line in self.starter.stdout:
            self.events.put(json.loads(line))

    def start(self, name: str) -> None:
        assert self.starter.stdin is not None
        self.starter.stdin.write((json.dumps(self.orders[name]) + "\n").encode())
        self.starter.stdin.flush()

    def kill(self, name: str) -> bool:
        """kill -9, if it runs."""
        pid = self.pids.get(name)
        if pid is None:
            return False
        self.expected.add(pid)
        self.signal(name, signal.SIGKILL)
        return True

    def signal(self, name: str, number: int) -> None:
        pid = self.pids.get(name)
        if pid is not None:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                self.pids.pop(name, None)

    def watch(self) -> None:
        """Take in what happened to the processes; start again who ended and should not have."""
        while not self.events.empty():
            event = self.events.get()
            name = event["name"]
            if event["event"] == "started":
                self.pids[name] = event["pid"]
                continue
            if self.pids.get(name) == event["pid"]:
                del self.pids[name]
            if event["pid"] in self.expected:
                self.restarting.setdefault(name, time.monotonic())
            elif event["status"] != 0:
                self.ended(name, event["status"])
        self.start_next()
        for name, when in list(self.restarting.items()):
            if time.monotonic() >= when and name not in self.pids:
                del self.restarting[name]
                self.start(name)

    def ended(self, name: str, status: int) -> None:
        """A node ended with an error: its last words, if they are for the user; else another try."""
        self.trouble[name] += 1
        if status in (1, 2) or self.trouble[name] > RESTARTS:
            raise Ended(f"{name} ended with status {status}: {self.last_words(name)}", status)
        self.restarting[name] = time.monotonic() + 0.2

    def last_words(self, name: str) -> str:
        log = self.nodes / name / "log"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
        if shutil.disk_usage(self.nodes).free < LITTLE:  # its last words may have found no room either
            return f"{self.nodes}: No space left on device. Its last checkpoint is whole; make room and run it again."
        return lines[-1] if lines else "it said nothing."

    def close(self) -> None:
        """End all processes, by their ids."""
        for name in list(self.pids):
            self.signal(name, signal.SIGCONT)
            self.signal(name, signal.SIGTERM)
        end = time.monotonic() + GRACE
        while self.pids and time.monotonic() < end:
            self.bury()
            time.sleep(0.02)
        for name in list(self.pids):
            self.kill(name)
        if self.starter.stdin:
            self.starter.stdin.close()
        try:
            self.starter.wait(ENDING)
        except subprocess.TimeoutExpired:  # its nodes are gone: nothing is lost with it
            self.starter.kill()
        self.listener.join(ENDING)
        self.bury()
        for proxy in self.proxies.values():
            proxy.close()

    def bury(self) -> None:
        """Forget the processes that have ended."""
        while not self.events.empty():
            event = self.events.get()
            if event["event"] == "ended" and self.pids.get(event["name"]) == event["pid"]:
                del self.pids[event["name"]]

    # --- how it goes --------------------------------------------------------------------------------------------------

    def statuses(self) -> dict[str, dict[str, Any]]:
        """What every node last said of itself."""
        return {member.name: read_status(self.nodes / member.name) for member in self.roster.members}

    def finished(self, statuses: dict[str, dict[str, Any]]) -> bool:
        return all(status.get("done") for status in statuses.values())

    def run(self, look: Callable[["Fleet", dict[str, Any]], None], seconds: float = float("inf")) -> Result:
        """Run to the end, or until Ctrl-C; `look` is called several times a second."""
        interrupted = False
        self.open()
        try:
            statuses = self.statuses()
            while not self.finished(statuses):
                if time.monotonic() > self.begun + seconds:
                    behind = min((s.get("round", -1), name) for name, s in statuses.items())
                    raise Halted(f"Not done after {seconds:g} seconds: {behind[1]} is in round {behind[0]}.")
                self.watch()
                look(self, statuses)
                time.sleep(0.1)
                statuses = self.statuses()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            self.close()
        spent = time.monotonic() - self.begun
        if self.federation.problem.finds_units:
            self.instance = instance_in_units(self.federation, self.nodes / self.roster.leaders()[0])
        result = assemble(self.federation, self.instance, self.roster, self.nodes, spent, interrupted)
        result.save(self.folder)
        (self.folder / "wire.json").write_text(json.dumps(result.wire, indent=1) + "\n", encoding="utf-8")
        return result


def instance_in_units(federation: Any, server: Path) -> Any:
    """What nodes are measured by, in the units that they found; a simulation's, if they did not get so far."""
    written = server / FILE
    known = read_units(federation.problem, written.read_text(encoding="utf-8")) if written.exists() else None
    return federation.instance(setup=federation.setup(known=known))
