"""How many acknowledged updates a second a deployed federation takes, and what an idle node costs.

    python benchmarks/deploy.py --clients 200 --seconds 10              # threads stand in for devices
    python benchmarks/deploy.py --clients 200 --seconds 10 --processes  # a process a client
    python benchmarks/deploy.py --idle                                  # CPU and memory of a node that waits

Everything goes over mutual TLS on loopback. The server keeps its checkpoints on disk, synced, before it acknowledges;
threads that stand in for devices keep none, and say what a device would say without learning it.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from archipel import Federation, PaoFed, Synthetic
from archipel.bench.measuring import peak_mb
from archipel.deploy import keys, wire
from archipel.deploy.assemble import read_status
from archipel.deploy.node import open_node
from archipel.deploy.post import PostOffice
from archipel.deploy.proxy import free_port
from archipel.deploy.real import RealWorld
from archipel.deploy.roster import roster_of
from archipel.deploy.view import View, view_of
from archipel.deploy.zenoh_link import ZenohLink, access, bare_config, tls
from archipel.deployment import Deployment

ROUNDS = 1_000_000
THREADS = 2


def federation_of(clients: int, **deploy: Any) -> Federation:
    problem = Synthetic(clients=clients, features=200, test=10, samples=(ROUNDS,), horizon=ROUNDS)
    given = Deployment(pace="quorum", deadline=30.0, patience=120.0, **deploy)
    return Federation(problem, PaoFed(step=0.1), rounds=ROUNDS, every=ROUNDS, deploy=given)


def serve(folder: Path, clients: int, address: str) -> None:
    """The server's process: writes its status until it is told to stop."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    federation = federation_of(clients, keys=str(folder / "keys"))
    node = open_node(federation, "server", folder, folder / "server", {"server": address})
    node.run(lambda: bool(stopped))
    node.close()


class Polled(ZenohLink):
    """A connection without a thread of its own: whoever stands in for its device looks at it."""

    def listen(self) -> None:
        pass

    def receive(self) -> tuple[str, bytes] | None:
        sample = self.ear.handler.try_recv()
        return None if sample is None else ("server", bytes(sample.payload))


class StandIn:
    """What a device says and takes, letter by letter, acknowledgements included; it only does not learn.

    Its own learning would be measured, not the server: 200 devices have 200 processors, these threads share one.
    """

    def __init__(self, federation: Federation, view: View, folder: Path, address: str):
        settings = bare_config([], [f"tls/{address}"], view.vocabulary.largest)
        settings |= tls(folder / "keys", view.member.name) | access(view.member.name, ["server"])
        self.link = Polled(view.member.name, ["server"], settings)
        self.office = PostOffice(RealWorld(self.link), {"server": view.salt("server")}, view.vocabulary, view.digest)
        self.update = view.vocabulary.write(1, view.plan.turns[1].word)
        self.office.ask("server", 0, 0)
        self.office.commit()

    def turn(self) -> bool:
        """Answer what the server told with an update, and ask for the next round; whether it had told anything."""
        if not self.office.pump():
            return False
        waiting = self.office.waiting("server")
        while waiting:
            told = self.office.take("server")
            if told.kind in (wire.TOLD, wire.NOTHING):
                self.office.post("server", wire.WORD, 1, told.round, self.update)
                self.office.ask("server", 0, told.round + 1)
        self.office.commit()
        return True


def stand_ins(
    federation: Federation, folder: Path, names: list[str], address: str, stop: threading.Event
) -> list[StandIn]:
    """Threads of this process that stand in for devices, each device with a connection of its own."""
    instance = federation.instance()
    made = [StandIn(federation, view_of(federation, name, instance), folder, address) for name in names]
    for i in range(THREADS):
        threading.Thread(target=attend, args=(made[i::THREADS], stop), daemon=True).start()
    return made


def attend(devices: list[StandIn], stop: threading.Event) -> None:
    """One thread stands in for several devices: Python's lock would make 200 threads stand in each other's way."""
    while not stop.is_set():
        if sum(device.turn() for device in devices) == 0:
            time.sleep(0.002)


def prepare(clients: int, folder: Path) -> tuple[Federation, list[str], str]:
    federation = federation_of(clients, keys=str(folder / "keys"))
    names = [member.name for member in roster_of(federation.instance()).members]
    keys.make(folder / "keys", {name: ["127.0.0.1"] if name == "server" else [] for name in names})
    return federation, names[1:], f"127.0.0.1:{free_port()}"


def measure(clients: int, seconds: float, processes: bool) -> dict[str, Any]:
    """Acknowledged updates a second: letters that the server has merged and saved."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        federation, names, address = prepare(clients, folder)
        command = [sys.executable, __file__, "--serve", str(folder), "--clients", str(clients), "--address", address]
        server = subprocess.Popen(command)
        stop, children, devices = threading.Event(), [], []
        try:
            if processes:
                children = [fork_device(federation, folder, name, address) for name in names]
            else:
                devices = stand_ins(federation, folder, names, address, stop)
            wait_for_round(folder, 3, 120.0)
            pids = [server.pid, *children]
            first, begun, mine = round_of(folder), time.monotonic(), time.process_time()
            before = cpu_of(pids[:1]), cpu_of(pids[1:])
            time.sleep(seconds)
            rounds, spent = round_of(folder) - first, time.monotonic() - begun
            server_cpu = cpu_of(pids[:1]) - before[0]
            device_cpu = cpu_of(pids[1:]) - before[1] + time.process_time() - mine
        finally:
            stop.set()
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            server.send_signal(signal.SIGTERM)
            server.wait(10)
        for device in devices:
            device.link.close()
        updates = max(rounds * clients, 1)
        return {
            "clients": clients,
            "processes": processes,
            "updates_a_second": round(updates / spent),
            "server_cpu_microseconds_an_update": round(1e6 * server_cpu / updates),
            "device_cpu_microseconds_an_update": round(1e6 * device_cpu / updates),
            "sent_again": sum(device.office.traffic["sent again"] for device in devices),
            "load_of_the_machine": os.getloadavg()[0],
        }


def cpu_of(pids: list[int]) -> float:
    """Seconds of CPU that processes have used."""
    total = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def fork_device(federation: Federation, folder: Path, name: str, address: str) -> int:
    """A client as a process, which keeps its checkpoints on disk (not synced: they all share one disk here)."""
    pid = os.fork()
    if pid == 0:
        deploy = Deployment(**{**vars(federation.deploy), "durable": False})
        try:
            node = open_node(federation.with_(deploy=deploy), name, folder, folder / name, {"server": address})
            node.run()
        finally:
            os._exit(1)
    return pid


def round_of(folder: Path) -> int:
    return int(read_status(folder / "server").get("round", 0))


def wait_for_round(folder: Path, n: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while round_of(folder) < n:
        if time.monotonic() > end:
            raise TimeoutError("the federation did not start")
        time.sleep(0.2)


def idle(seconds: float) -> dict[str, Any]:
    """A client that is connected and has nothing to do, since another one holds the round up."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        federation, names, address = prepare(2, folder)
        command = [sys.executable, __file__, "--serve", str(folder), "--clients", "2", "--address", address]
        server = subprocess.Popen(command)
        node = open_node(federation, names[0], folder, folder / names[0], {"server": address})
        stop = threading.Event()
        threading.Thread(target=node.run, args=(stop.is_set,), daemon=True).start()
        time.sleep(3)
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        time.sleep(seconds)
        after, spent = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - begun
        stop.set()
        server.send_signal(signal.SIGTERM)
        server.wait(10)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"idle_percent_of_a_core": round(100 * used / spent, 2), "peak_megabytes": int(peak_mb())}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clients", type=int, default=200)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--processes", action="store_true")
    options.add_argument("--idle", action="store_true")
    options.add_argument("--serve", type=Path)
    options.add_argument("--address", default="")
    given = options.parse_args()
    if given.serve:
        serve(given.serve, given.clients, given.address)
    elif given.idle:
        print(json.dumps(idle(given.seconds)))
    else:
        print(json.dumps(measure(given.clients, given.seconds, given.processes)))


if __name__ == "__main__":
    main()
