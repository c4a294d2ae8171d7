"""docs/deploy.md, followed to the letter: its descriptions, its commands, its sentences."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from processes_here import Process, archipel

from archipel import Federation
from archipel.bundle import load
from archipel.deploy.proxy import free_port
from archipel.deploy.real import read_status
from archipel.problems.synthetic import NAMES
from commands import typed
from waiting import wait_until

pytest.importorskip("zenoh")

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
REPLAYED = '[deploy]\npace = "replay"\n\n[deploy.addresses]'
MODULES = {"archipel": ["archipel"], "archipel-node": ["archipel.deploy.run_node"]}


def block(after):
    """The indented block that follows a piece of the guide's text."""
    found = re.search(re.escape(after) + r".*?\n\n((?:    [^\n]*\n|\n)+)", GUIDE, re.DOTALL)
    return textwrap.dedent(found[1]).strip() + "\n"


def started(line, folder):
    """A command of the guide, as a process in a reader's folder."""
    return Process(sys.executable, "-m", *MODULES[line.split()[0]], *words_of(line), cwd=folder)


def words_of(line):
    """What follows the command's name."""
    return line.partition("#")[0].split()[1:]


def described(folder, rounds, **replaced):
    """The guide's description for two terminals, with other rounds, on a port that is free here."""
    text = (
        block("Say where, in the description")
        .replace("rounds = 500", f"rounds = {rounds}")
        .replace(":7447", f":{free_port()}")
    )
    for old, new in replaced.items():
        text = text.replace(f"[{old}]", f"[{old}]\n{new}")
    (folder / "federation.toml").write_text(text)


def wait_for_status(folder, name):
    """Until a node has opened its state and says how it is."""
    state = folder / "state" / name
    wait_until(lambda: "round" in read_status(state), state)


def test_two_terminals(tmp_path, capfd):
    """Keys, a process for each node in any order, and one is killed with kill -9 while it waits for the last."""
    described(tmp_path, 200, deploy="durable = false\ndeadline = 3600.0\npatience = 3600.0")  # all three take part
    keys, *nodes = block("then start the nodes, in any order").splitlines()
    made = typed(*words_of(keys), cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert {path.name for path in (tmp_path / "keys").iterdir()} >= {"authority.pem", "server.pem", "client-1.key"}
    with started(nodes[0], tmp_path) as server:
        with started(nodes[1], tmp_path) as first:
            wait_for_status(tmp_path, "client-0")
            first.process.send_signal(signal.SIGKILL)
            assert first.end() == -signal.SIGKILL
        with started(nodes[1], tmp_path) as again, started(nodes[2], tmp_path) as second:
            assert [node.end() for node in (server, again, second)] == [0, 0, 0], [server.words, again.words]
    assert all(read_status(tmp_path / "state" / name)["done"] for name in ("server", "client-0", "client-1"))
    said = capfd.readouterr().out
    rows = np.zeros((2, *load(tmp_path / "state" / "server" / "model.npz").frame.inputs))
    for name in ("server", "client-0", "client-1"):
        assert np.isfinite(load(tmp_path / "state" / name / "model.npz").predict(rows)).all()
        assert re.search(f"{name}: all 200 rounds are over. Its model: .*{name}/model.npz", said), said


def commands(title):
    """What the guide tells to type in a section."""
    section = GUIDE.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^    (archipel .*)$", section, re.MULTILINE)


def watching(folder, monkeypatch):
    """From now on processes write down, in a file of their node's name, which tables they open."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\n\ndef look(event, given):\n"
        "    if event == 'open' and str(given[0]).endswith('.csv') and '--name' in sys.argv:\n"
        f"        with open(r'{folder}/' + sys.argv[-1], 'a') as file:\n"
        "            file.write(str(given[0]) + '\\n')\n\n"
        "sys.addaudithook(look)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


def test_three_people_three_folders(tmp_path, monkeypatch):
    """At most ten commands, each person's folder apart, and the model is that of a simulation over all of them."""
    text = block("in a folder of their own").replace(":7447", f":{free_port()}").replace("rounds = 100", "rounds = 30")
    (tmp_path / "federation.toml").write_text(text.replace("[deploy.addresses]", REPLAYED))
    draw, names = np.random.default_rng(1), ("ann", "bob", "cleo")
    for folder in (tmp_path, tmp_path / "whole"):
        for name in names:
            (folder / name).mkdir(parents=True)
    for name in names:
        t, d = draw.normal(12, 6, 50), draw.normal(40, 20, 50)
        rows = "".join(f"{i},{a},{b},{30 + 0.3 * (a - 12) - 0.05 * (b - 40)}\n" for i, (a, b) in enumerate(zip(t, d)))
        for folder in (tmp_path, tmp_path / "whole"):
            (folder / name / "readings.csv").write_text(f"hour,temperature,depth,salinity\n{rows}")
    shutil.copy(tmp_path / "federation.toml", tmp_path / "whole")
    told = commands("Three people, three folders")
    assert len(told) <= 10
    (tmp_path / "new.csv").write_text("depth,temperature\n40,12\n60,18\n")
    for line in [line for line in told if " node " not in line and " predict " not in line]:
        found = typed(*words_of(line), cwd=tmp_path)
        assert found.returncode == 0, found.stderr
    watching(tmp_path / "watch", monkeypatch)
    nodes = [started(line, tmp_path) for line in told if " node " in line]
    with nodes[0], nodes[1], nodes[2], nodes[3]:
        assert [node.end() for node in nodes] == [0, 0, 0, 0], [node.words for node in nodes]
    opened = {name: set((tmp_path / "watch" / name).read_text().split()) for name in names}
    assert opened == {name: {f"{name}/readings.csv"} for name in names}, "nobody's but one's own, and the server none"
    assert not (tmp_path / "watch" / "server").exists()
    federation = Federation.load(tmp_path / "whole" / "federation.toml", engine="plain")
    simulated = federation.run().models[0]["server"]
    np.testing.assert_allclose(simulated, [0.3 * 6 / 4, -0.05 * 20 / 4], atol=0.02)  # as the readings were made
    np.testing.assert_allclose(load(tmp_path / "state" / "server" / "model.npz").model(), simulated, rtol=0, atol=1e-6)
    (line,) = [line for line in told if " predict " in line]
    found = typed(*words_of(line), cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    answers = [float(row.split(",")[-1]) for row in (tmp_path / "predictions.csv").read_text().splitlines()[1:]]
    assert answers == pytest.approx([30.0, 30 + 0.3 * 6 - 0.05 * 20], abs=0.2)


def test_up_by_replay_ends_with_the_files_of_run(tmp_path):
    """The example of the guide, with fewer clients."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = tmp_path / "examples" / "flagship" / "pao-fed-c2.toml"
    text = path.read_text().replace("clients = 256", "clients = 8")
    path.write_text('engine = "plain"\n' + text.replace("every = 20", "every = 10"))
    line = next(line for line in GUIDE.splitlines() if line.strip().startswith("archipel up"))
    words = line.split()[1:]
    words[words.index("--rounds") + 1] = "30"
    assert archipel(*words, "--replay", cwd=tmp_path).returncode == 0
    assert typed("run", path, "--rounds", 30, "--out", "run", cwd=tmp_path).returncode == 0
    up, run = tmp_path / "results" / "up", tmp_path / "run"
    assert {p.name for p in run.iterdir()} - {"checkpoint.npz"} <= {p.name for p in up.iterdir()}
    assert np.allclose(load(up / "model.npz").model(), load(run / "model.npz").model(), atol=1e-4)
    with np.load(up / "models.npz") as ours, np.load(run / "models.npz") as theirs:
        for name in set(theirs) - {"names"}:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-4)
    wire = json.loads((up / "wire.json").read_text())
    assert 0.5 < wire["saving"] < 1 and "true saving" in (up / "report.html").read_text()


@pytest.mark.long
def test_up_follows_a_schedule_that_run_recorded(tmp_path):
    path = tmp_path / "federation.toml"
    text = (ROOT / "examples" / "flagship" / "pao-fed-c2.toml").read_text().replace("clients = 256", "clients = 8")
    path.write_text('engine = "plain"\n' + text)
    simulated = archipel("run", path, "--rounds", 60, "--out", "run", "--record", "schedule.npz", cwd=tmp_path)
    assert simulated.returncode == 0, simulated.stderr
    conditions = '[environment]\nreplay = "schedule.npz"\n[environment.delay]\nlimit = 10\n'
    (tmp_path / "recorded.toml").write_text(path.read_text().partition("[environment]")[0] + conditions)
    again = archipel("up", "recorded.toml", "--rounds", 60, "--replay", "--out", "again", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    with np.load(tmp_path / "run" / "models.npz") as ours, np.load(tmp_path / "again" / "models.npz") as theirs:
        assert np.abs(ours["server"]).max() > 0
        for name in set(ours) - {"names"}:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-4)


@pytest.mark.long
def test_up_with_chaos_and_data_of_ones_own(tmp_path):
    """`--chaos 7`, a CSV file that grows at each client, rounds by quorum; it ends with the files of a run."""
    described(tmp_path, 60, deploy='data = "{name}.csv"')
    draw = np.random.default_rng(1)
    for name in ("client-0", "client-1"):
        rows = "".join(",".join(f"{x:.4f}" for x in draw.standard_normal(5)) + "\n" for _ in range(60))
        (tmp_path / f"{name}.csv").write_text(",".join((*NAMES, "y")) + "\n" + rows)
    found = archipel("up", "federation.toml", "--chaos", 7, "--out", "out", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "out" / "metrics.csv").read_text().startswith("seed,round,metric,value")
    with np.load(tmp_path / "out" / "models.npz") as models:
        assert np.abs(models["server"]).max() > 0


@pytest.mark.long
def test_the_guides_generator(tmp_path):
    """The function that the guide shows is one that a device can learn from."""
    code = block("a generator is asked to skip what was used")
    (tmp_path / "sensor.py").write_text(
        code + "\ndef read_inputs():\n    return [0.5, 0.1, 0.2, 0.3]\n\ndef read_target():\n    return 0.25\n"
    )
    described(tmp_path, 30, deploy='data = "sensor.py:samples"')
    found = archipel("up", "federation.toml", "--out", "out", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "out" / "nodes" / "client-0" / "rows").stat().st_size > 0


def test_whoever_lacks_an_address_is_named_as_the_guide_says(tmp_path):
    text = (ROOT / "examples" / "zcdp-nfl.toml").read_text()
    (tmp_path / "federation.toml").write_text(text)
    found = typed("keys", "federation.toml", cwd=tmp_path)
    assert found.returncode == 2
    said = re.sub(r"client-\d+", "client-N", found.stderr.strip())
    assert said in re.sub(r"client-\d+", "client-N", " ".join(GUIDE.split())), found.stderr


def test_sentences_of_the_guides_table_are_those_of_the_code():
    """What a reader looks up is what a node says."""
    source = ROOT / "src" / "archipel"
    code = " ".join(
        path.read_text(encoding="utf-8") for path in (source / "disk.py", *(source / "deploy").glob("*.py"))
    )
    table = GUIDE[GUIDE.index("| what you see |") :]
    sentences = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(sentences) >= 6
    for sentence in sentences:
        words = re.sub(r"no answer from server for 60 seconds", "no answer from", sentence)
        part = re.split(r" \.\.\.| \(No space", words)[0]
        assert part in code, sentence


def test_descriptions_of_the_guide_are_federations(tmp_path):
    described(tmp_path, 500)
    assert Federation.load(tmp_path / "federation.toml").deploy.pace == "quorum"
    for key in re.findall(r"`(pace|quorum|deadline|period|start|patience|data|durable)`", GUIDE):
        assert hasattr(Federation.load(tmp_path / "federation.toml").deploy, key)


@pytest.mark.long
def test_the_device_install_is_as_small_as_promised(tmp_path):
    """Real environments, as the guide says: under 150 MB, and under 450 MB with private noise; a node runs in it."""
    lines = [line for line in block("No compiler, no SciPy, no Matplotlib").splitlines() if line.startswith("pip")]
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    folder = tmp_path / "archipel"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=300)
    for line in lines:
        words = [str(source) if word == "archipel" else word for word in line.partition("#")[0].split()[1:]]
        subprocess.run([folder / "bin" / "python", "-m", "pip", *words, "-q"], check=True, timeout=900)
    described(tmp_path, 50)
    assert typed("keys", "federation.toml", cwd=tmp_path).returncode == 0
    assert typed("approve", "federation.toml", "--yes", cwd=tmp_path).returncode == 0  # rules are kept there too
    own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [folder / "bin" / "archipel-node", "federation.toml", "--name"]
    nodes = [Process(*command, name, cwd=tmp_path, env=own) for name in ("server", "client-0", "client-1")]
    with nodes[0], nodes[1], nodes[2]:
        assert [node.end() for node in nodes] == [0, 0, 0], [node.words for node in nodes]
    assert len(list((tmp_path / "site").glob("client-1-*.left"))) == 1
    print(f"a device: {megabytes(folder):.0f} MB")
    assert megabytes(folder) < 150
    noise = next(line for line in GUIDE.splitlines() if re.match(r"    pip install .*opendp", line))
    subprocess.run([folder / "bin" / "python", "-m", "pip", *noise.partition("#")[0].split()[1:], "-q"], check=True)
    assert megabytes(folder) < 450


@pytest.mark.long
@pytest.mark.parametrize(("how", "least"), [(["--processes"], 1000), ([], 5000)], ids=["processes", "threads"])
def test_acknowledged_updates_a_second_that_two_cores_have_time_for(how, least):
    """200 clients and a server, by the time of the processors that an update takes: other tests run beside this one.

    benchmarks/deploy.py prints the updates a second themselves, which only a quiet machine shows.
    """
    found = measured(["--clients", "200", "--seconds", "8", *how])
    server, device = (found[f"{who}_cpu_microseconds_an_update"] for who in ("server", "device"))
    assert 2e6 / (server + device) >= least and 1e6 / server >= least, found


@pytest.mark.long
def test_a_node_that_waits_costs_next_to_nothing():
    found = measured(["--idle", "--seconds", "10"])
    assert found["idle_percent_of_a_core"] < 1 and found["peak_megabytes"] < 80, found


def measured(options):
    """What benchmarks/deploy.py prints."""
    command = [sys.executable, ROOT / "benchmarks" / "deploy.py", *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def megabytes(folder):
    """As `du -m` counts: what the files take on this disk."""
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) * 512 / 2**20
