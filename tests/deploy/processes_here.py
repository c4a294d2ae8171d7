"""A federation as real processes over mutual TLS on loopback, and what its files must hold."""

import os
import subprocess
import sys
import threading

import numpy as np

from archipel.deploy.fleet import Fleet
from archipel.federation import Federation


def deployed(federation, folder, look=lambda fleet, statuses: None, seconds=600.0, proxied=False, **deploy):
    """Run a federation as processes; the fleet and the result."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "federation.toml"
    path.write_text(federation.to_toml())
    fleet = Fleet(path, Federation.load(path), folder / "out", proxied, **{"durable": False, **deploy})
    return fleet, fleet.run(look, seconds)


def assert_same_files(folder, engine, federation, result, apart=0.0):
    """models.npz and metrics.csv are those of the simulation, to the last bit where nothing else is said."""
    wanted = federation.algorithm.models(engine.instance.plan.tables)
    with np.load(folder / "out" / "models.npz") as found:
        assert set(found) - {"names"} == set(wanted)
        for name, model in wanted.items():
            np.testing.assert_allclose(found[name], model, rtol=0, atol=apart)
    counted = [result.final(f"parameters.{turn.sender}-{turn.receiver}") for turn in engine.instance.plan.turns]
    assert counted == [n * engine.instance.plan.parameters[i] for i, n in enumerate(engine.messages)]
    for name in ("metrics.csv", "ledger.json", "federation.toml", "report.html", "wire.json"):
        assert (folder / "out" / name).stat().st_size > 0


def archipel(*arguments, seconds=600.0, **options):
    """The command, to its end, in a process of its own; `commands.typed` has it in this one."""
    command = [sys.executable, "-m", "archipel", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, **options)


class Process:
    """A command that runs beside the test: what it says, and its end, by force if need be."""

    def __init__(self, *command, **options):
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
        self.words: list[str] = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        self.words.extend(self.process.stderr)

    def end(self, seconds=600.0):
        """Its status."""
        status = self.process.wait(seconds)
        self.reader.join(seconds)
        return status

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def processes_in(folder):
    """The processes of this machine that were started for a folder: none may be left behind."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read()
            held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue  # gone, or another user's
        if int(pid) != os.getpid() and (str(folder).encode() in line or any(str(folder) in path for path in held)):
            found.append(int(pid))
    return found
