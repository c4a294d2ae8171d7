"""Real processes over mutual TLS on loopback end with the model of the simulation; chaos does not show."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from harness import simulated
from test_replay import TABLE

from archipel import PaoFed, Synthetic
from archipel.deploy.chaos import Chaos
from archipel.deploy.proxy import free_port
from archipel.deploy.store import Halted
from archipel.deploy.trace import read_status
from archipel.deploy.up import Fleet
from archipel.federation import Federation
from archipel.privacy.journal import FileJournal

pytest.importorskip("zenoh")


def deployed(federation, folder, look=lambda fleet, statuses: None, seconds=60.0, proxied=False, **deploy):
    """Run a federation as processes; the fleet and the result."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "federation.toml"
    path.write_text(federation.to_toml())
    fleet = Fleet(path, Federation.load(path), folder / "out", proxied, durable=False, **deploy)
    return fleet, fleet.run(look, seconds)


def assert_same_files(folder, engine, federation, result):
    """models.npz and metrics.csv are those of the simulation."""
    wanted = federation.algorithm.models(engine.stage.plan.tables)
    with np.load(folder / "out" / "models.npz") as found:
        assert set(found) == set(wanted)
        for name, model in wanted.items():
            np.testing.assert_array_equal(found[name], model)
    counted = [result.final(f"parameters.{turn.sender}-{turn.receiver}") for turn in engine.stage.plan.turns]
    assert counted == [n * engine.stage.plan.parameters[i] for i, n in enumerate(engine.messages)]
    for name in ("metrics.csv", "ledger.json", "federation.toml", "report.html", "wire.json"):
        assert (folder / "out" / name).stat().st_size > 0


@pytest.mark.parametrize("name", ["pao-fed-c2", "zcdp-nfl", "pgfl", pytest.param("pldp-fl", marks=pytest.mark.long)])
def test_processes_end_with_the_simulated_model(name, tmp_path):
    federation = TABLE[name]
    fleet, result = deployed(federation, tmp_path, pace="replay")
    assert_same_files(tmp_path, simulated(federation), federation, result)
    assert not fleet.pids and fleet.nursery.returncode == 0
    marks = sorted({row[1] for row in result.rows})
    assert marks == sorted({*range(0, federation.rounds, federation.every), federation.rounds})
    wire = json.loads((tmp_path / "out" / "wire.json").read_text())
    assert wire["traffic"]["bytes out"] > 0 and not wire["refused"]


def chaotic(name, tmp_path, faults, pace, **changes):
    """A replay with faults: the run finishes, and nothing of them is left in the model."""
    federation = TABLE[name].with_(**changes)
    chaos = Chaos(7, faults, pace)
    _, result = deployed(federation, tmp_path, chaos.look, 600, True, pace="replay")
    assert chaos.done == faults and min(chaos.counts.values()) > 0, chaos.counts
    engine = simulated(federation)
    assert_same_files(tmp_path, engine, federation, result)
    return engine


def test_fifty_faults(tmp_path):
    """kill -9, pauses and cut links: no update is lost or counted twice, so the model is the simulation's."""
    chaotic("pao-fed-c2", tmp_path, 50, 0.1, rounds=2500, every=500)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "faults", "rounds"), [("pao-fed-c2", 250, 9000), ("zcdp-nfl", 150, 2500), ("pgfl", 100, 700)]
)
def test_five_hundred_faults(name, faults, rounds, tmp_path):
    """On all kinds of nodes: clients, servers and peers. Ledgers hold exactly what was said, no less and no more."""
    engine = chaotic(name, tmp_path, faults, 0.15, rounds=rounds, every=rounds)
    if name == "zcdp-nfl":
        paid = engine.stage.plan.tables["peer"]
        for k, folder in enumerate(sorted((tmp_path / "out" / "nodes").iterdir())):
            journal = FileJournal(folder / "ledger.journal")
            charges = [entry["release"]["rho"] for entry in journal.entries if "release" in entry]
            journal.close()
            assert sum(charges) == pytest.approx(paid.spent[k, 0], rel=1e-9)


@pytest.mark.long
def test_faults_in_a_real_run_cost_less_than_half_a_decibel(tmp_path):
    """Rounds by quorum: who is killed misses rounds, and is waited for at most until the deadline."""
    problem = Synthetic(clients=8, features=60, test=300, samples=(2500,), horizon=2500)
    federation = Federation(problem, PaoFed(step=0.4), rounds=2500, every=500)
    _, calm = deployed(federation, tmp_path / "calm", seconds=300.0, pace="quorum", quorum=0.7, deadline=0.5)
    chaos = Chaos(3, 60, 0.15)
    _, rough = deployed(
        federation, tmp_path / "rough", chaos.look, 300.0, True, pace="quorum", quorum=0.7, deadline=0.5
    )
    assert chaos.done == 60
    lost = 10 * np.log10(rough.final("mse") / calm.final("mse"))
    assert abs(lost) < 0.5, f"{lost:.2f} dB"


def test_one_sentence_where_nobody_answers(tmp_path):
    path = tmp_path / "federation.toml"
    text = TABLE["pao-fed-c2"].to_toml()
    path.write_text(text.replace("patience = 60.0", "patience = 1.0"))
    (tmp_path / "more").write_text("")
    described = path.read_text().replace("[deploy.addresses]", '[deploy.addresses]\nserver = "127.0.0.1:9"')
    path.write_text(described)
    command = [sys.executable, "-m", "archipel"]
    made = subprocess.run([*command, "keys", str(path)], capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    found = subprocess.run(
        [*command, "node", str(path), "--name", "client-1"], capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 1
    assert found.stderr.count("\n") == 1 and "no answer from server for 1 seconds" in found.stderr
    nobody = subprocess.run(
        [*command, "node", str(path), "--name", "client-9"], capture_output=True, text=True, timeout=60
    )
    assert nobody.returncode == 2 and "client-5" in nobody.stderr


@pytest.mark.long
def test_the_guides_two_terminals(tmp_path):
    """`archipel keys`, then a process for each node, as docs/deploy.md says; one of them is killed on the way."""
    path = tmp_path / "federation.toml"
    path.write_text(
        'rounds = 400\n[problem]\nkind = "synthetic"\nclients = 2\n[algorithm]\nkind = "pao-fed"\nstep = 0.2\n'
        f'[deploy]\npace = "quorum"\ndurable = false\n[deploy.addresses]\nserver = "127.0.0.1:{free_port()}"\n'
    )
    command = [sys.executable, "-m", "archipel"]
    assert subprocess.run([*command, "keys", str(path)], capture_output=True, timeout=60).returncode == 0
    small = [sys.executable, "-m", "archipel.deploy.member", str(path), "--name"]
    nodes = [subprocess.Popen([*command, "node", str(path), "--name", "server"])]
    nodes += [subprocess.Popen([*small, f"client-{k}"]) for k in range(2)]
    state = tmp_path / "state" / "client-0"
    end = time.monotonic() + 60
    while read_status(state).get("round", 0) < 50 and time.monotonic() < end:
        time.sleep(0.05)
    nodes[1].kill()
    nodes.append(subprocess.Popen([*small, "client-0"]))
    assert [node.wait(90) for node in nodes] == [0, -9, 0, 0]
    assert all(read_status(tmp_path / "state" / name)["done"] for name in ("server", "client-0", "client-1"))


def test_a_fleet_that_cannot_go_on_says_why(tmp_path):
    with pytest.raises(Halted, match="Not done after 3 seconds"):
        deployed(TABLE["pao-fed-c2"].with_(rounds=100_000), tmp_path, seconds=3.0, pace="replay")


def test_a_device_loads_neither_compiler_nor_plots(tmp_path):
    """What a node's process has loaded after it has played all its rounds."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from harness import Village
from archipel import Federation, PaoFed, Synthetic
village = Village(Federation(Synthetic(clients=2, features=8, test=5), PaoFed(step=0.1), rounds=5))
village.run()
import archipel.deploy.node, archipel.deploy.zenoh_link, archipel.deploy.member
heavy = [m for m in ("numba", "llvmlite", "scipy", "matplotlib", "torch", "cvxpy", "dp_accounting", "opendp",
                     "pandas", "sklearn", "rich", "typer") if m in sys.modules]
print(heavy)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr
