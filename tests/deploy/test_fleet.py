"""Real processes over mutual TLS on loopback end with the model of the simulation."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from harness import simulated
from processes_here import assert_same_files, deployed, processes_in
from test_replay import SMALL, TABLE

from archipel.algorithms.fedavg import FedAvg
from archipel.algorithms.pldp_fl import PldpFl
from archipel.clients import Clients
from archipel.deploy import fleet
from archipel.deploy.accounts import SECRET
from archipel.deploy.assemble import assemble
from archipel.deploy.fleet import Fleet
from archipel.deploy.roster import roster_of
from archipel.deploy.store import Halted
from archipel.deploy.watch import Fleeting
from archipel.deployment import Deployment
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.problems.deep import Deep
from archipel.problems.own import Files
from archipel.report import summary
from commands import typed

pytest.importorskip("zenoh")


@pytest.mark.parametrize(
    "name", ["pao-fed-c2", "zcdp-nfl", "pgfl", "mirror-descent", pytest.param("pldp-fl", marks=pytest.mark.long)]
)
def test_processes_end_with_the_simulated_model(name, tmp_path, monkeypatch):
    federation = TABLE[name]
    if name == "pgfl":
        monkeypatch.setattr("archipel.deploy.fleet.GRACE", 0.0)  # nodes that do not end in time are made to
    fleet, result = deployed(federation, tmp_path, pace="replay")
    assert_same_files(tmp_path, simulated(federation), federation, result)
    assert not fleet.pids and fleet.starter.returncode == 0 and not processes_in(tmp_path)
    if fleet.instance.plan.accountant:  # everyone can compute a replay's noise
        (ledger,) = json.loads((tmp_path / "out" / "ledger.json").read_text())["seeds"]
        stated = ledger if "assumptions" in ledger else ledger["nodes"][0]
        assert {"what": SECRET, "how": "assumed"} in stated["assumptions"] and stated["guarantee"] == "assumed"
    marks = sorted({row[1] for row in result.rows})
    assert marks == sorted({*range(0, federation.rounds, federation.every), federation.rounds})
    wire = json.loads((tmp_path / "out" / "wire.json").read_text())
    assert wire["traffic"]["bytes out"] > 0 and not wire["refused"]
    view = Fleeting(fleet, "the fleet")  # as `archipel up --page` shows it
    news = view.news("")
    assert view.stamp() and "<h1>the fleet</h1>" in view.page()
    assert news["charts"][0]["series"][0]["x"]["rounds"] == marks
    assert len(news["clients"]["rows"]) == fleet.instance.task.clients and "last seen" in news["clients"]["columns"]


def test_clients_with_data_of_their_own_on_one_machine(tmp_path):
    """Each process builds its own part, with room for its own batches; put together they are the simulation's."""
    draw, scale = np.random.default_rng(2), {"center": 0.0, "spread": 2.0, "unit": "µm"}
    for name, size in (("ann", 20), ("bob", 31)):
        x = draw.standard_normal((size, 2))
        rows = "".join(f"{a},{b},{a - 2 * b}\n" for a, b in x)
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.csv").write_text(f"a,b,y\n{rows}")
    problem = Files(data=str(tmp_path / "{name}" / "mine.csv"), columns=("a", "b"), scale=dict.fromkeys("aby", scale))
    federation = Federation(problem, FedAvg(batch=7, step=0.2), rounds=6, every=3, clients=Clients(("ann", "bob")))
    _, result = deployed(federation, tmp_path, pace="replay")
    assert_same_files(tmp_path, simulated(federation), federation, result, apart=1e-12)
    assert summary(result)["final rmse"].endswith(" µm")


@pytest.mark.long
def test_a_network_of_pytorch_ends_with_the_simulated_model(tmp_path):
    """PLDP-FL on pictures: sampling by the server, batches and noise on the clients."""
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    problem = Deep(model="mlp", clients=5, split="iid", samples=500, test=100)
    federation = Federation(problem, PldpFl(batch=40, draws=2, step=0.1, local_steps=2), rounds=6, every=3)
    _, result = deployed(federation, tmp_path, pace="replay")
    engine = simulated(federation)
    assert_same_files(tmp_path, engine, federation, result, apart=1e-4)
    start = federation.instance().plan.tables["server"].model
    assert np.abs(engine.instance.plan.tables["server"].model - start).max() > 1e-3, "it learned something"


def test_a_run_that_is_asked_for_more_rounds_is_not_the_finished_one(tmp_path):
    """What nodes kept of another description is refused, rather than taken for the result."""
    federation = SMALL["pao-fed-c2"].with_(rounds=5)
    deployed(federation, tmp_path, pace="replay")
    with pytest.raises(Halted, match="the state of this federation, not of another one") as halted:
        deployed(federation.with_(rounds=6), tmp_path, pace="replay")
    assert halted.value.status == 2


@pytest.mark.parametrize(("ended", "status"), [(2, 2), (1, 1), (-9, 1)])
def test_up_ends_with_2_where_a_node_did(ended, status, tmp_path, monkeypatch):
    """Starting it again would not help."""
    (tmp_path / "federation.toml").write_text(SMALL["pao-fed-c2"].with_(rounds=5).to_toml())

    def run(self, look):
        self.trouble["server"] = fleet.RESTARTS
        self.ended("server", ended)

    monkeypatch.setattr(Fleet, "run", run)
    found = typed("up", "federation.toml", "--out", "out", cwd=tmp_path)
    assert found.returncode == status and f"server ended with status {ended}: " in found.stderr


@pytest.mark.parametrize("name", ["pao-fed-c2", "zcdp-nfl"])
def test_by_the_clock_an_interrupted_run_goes_on_where_it_was(name, tmp_path, monkeypatch):
    """However long ago it was interrupted, and whatever start it had then."""
    path = tmp_path / "federation.toml"
    path.write_text(SMALL[name].to_toml())
    federation = Federation.load(path).with_(deploy=Deployment(pace="clock", period=100.0))
    moment = 2e9
    monkeypatch.setattr(fleet, "time", SimpleNamespace(time=lambda: moment, monotonic=time.monotonic))
    fresh = Fleet(path, federation, tmp_path / "out").deploy.get("start", 0.0)
    assert fresh == (0.0 if name == "pao-fed-c2" else moment + fleet.HEAD_START)
    for member in roster_of(federation.instance()).members:
        (tmp_path / "out" / "nodes" / member.name).mkdir()
        was_in_round_four(tmp_path / "out" / "nodes" / member.name)
    for given in ({}, {"start": 1e9}):
        again = Fleet(path, federation, tmp_path / "out", **given)
        begins = again.deploy["start"] + 4 * 100.0
        assert begins == moment + fleet.HEAD_START
        for member in again.roster.members:
            was_in_round_four(again.nodes / member.name)


def was_in_round_four(folder):
    (folder / "status.json").write_text('{"round": 4, "done": false}')


def test_a_fleet_that_cannot_go_on_says_why(tmp_path, monkeypatch):
    """An hour goes by as soon as somebody looks."""
    sessions, passed = set(), [0.0]
    clock = SimpleNamespace(**vars(time) | {"monotonic": lambda: time.monotonic() + passed[0]})
    monkeypatch.setattr(fleet, "time", clock)

    def look(running, statuses):
        sessions.add(os.getsid(running.starter.pid))
        passed[0] = 3600.0

    with pytest.raises(Halted, match="Not done after 600 seconds"):
        deployed(SMALL["pao-fed-c2"].with_(rounds=100_000), tmp_path, look, pace="replay")
    assert not processes_in(tmp_path)
    assert sessions and os.getsid(0) not in sessions, "Ctrl-C in a terminal is for who started it"


def test_ctrl_c_before_anybody_wrote_anything_is_no_error_of_the_user(tmp_path):
    federation = SMALL["pao-fed-c2"]
    instance = federation.instance()
    with pytest.raises(KeyboardInterrupt):
        assemble(federation, instance, roster_of(instance), tmp_path, 0.0, interrupted=True)
    with pytest.raises(BadInput, match="has written something"):
        assemble(federation, instance, roster_of(instance), tmp_path, 0.0, interrupted=False)


def test_a_node_that_ends_unexpectedly_leaves_its_traceback_in_its_log(tmp_path):
    """What no sentence was made for: here an order that is not one."""
    order = {"name": "client-0", "description": "none.toml", "folder": str(tmp_path / "client-0"), "deploy": {}}
    code = (
        "import archipel.deploy.processes as processes, os\n"
        f"processes.start({order | {'changes': 3}!r}, {{}}, os.pipe())\n"
        "os.wait()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=600)
    log = (tmp_path / "client-0" / "log").read_text()
    assert log.startswith("Traceback") and log.splitlines()[-1].startswith("TypeError")


def test_a_device_loads_neither_compiler_nor_plots(tmp_path):
    """What a node's process has loaded after it has played all its rounds."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from harness import Village
from archipel import Federation, PaoFed, Synthetic
village = Village(Federation(Synthetic(clients=2, features=8, test=5), PaoFed(step=0.1), rounds=5))
village.run()
import archipel.deploy.node, archipel.deploy.zenoh_link, archipel.deploy.run_node
heavy = [m for m in ("numba", "llvmlite", "scipy", "matplotlib", "torch", "cvxpy", "dp_accounting", "opendp",
                     "pandas", "sklearn", "rich", "typer") if m in sys.modules]
print(heavy)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr
