"""Trackers: their own readers give back what was measured.

TensorBoard's is among the libraries of `make test`; the others are large, and `make test-trackers` sets them up apart.
"""

import json
import subprocess
import sys
import types

import pytest

from archipel import Federation, PaoFed, Synthetic
from archipel.errors import BadInput, Missing
from archipel.trackers import check, log

APART = "large: make test-trackers"
SMALL = Federation(Synthetic(clients=4, features=8, test=10), PaoFed(portion=2), rounds=20, every=10, engine="plain")


@pytest.fixture(scope="module")
def result():
    found = SMALL.run(2)
    found.name = "small"
    return found


def wanted(result, seed):
    return [(n, v) for s, n, m, v, _ in result.rows if (s, m) == (seed, "mse")]


def test_tensorboard_reads_what_was_logged(result, tmp_path):
    from tensorboard.backend.event_processing import event_accumulator as reading

    log(result, f"tensorboard:{tmp_path}")
    for seed in (1, 2):
        found = reading.EventAccumulator(str(tmp_path / f"small-seed-{seed}")).Reload().Scalars("mse")
        assert [(e.step, pytest.approx(e.value, rel=1e-6)) for e in found] == wanted(result, seed)


def test_mlflow_reads_what_was_logged(result, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason=APART)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log(result, f"mlflow:{(tmp_path / 'runs').as_uri()}")
    client = mlflow.MlflowClient((tmp_path / "runs").as_uri())
    (experiment,) = [e for e in client.search_experiments() if e.name == "archipel"]
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert runs["small-seed-1"].data.params["problem.clients"] == "4"
    for seed in (1, 2):
        history = client.get_metric_history(runs[f"small-seed-{seed}"].info.run_id, "mse")
        assert [(m.step, m.value) for m in history] == wanted(result, seed)


def test_trackio_reads_what_was_logged(result, tmp_path, monkeypatch):
    """In its own process: it reads where to write when it is imported."""
    pytest.importorskip("trackio", reason=APART)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    script = (
        "import json, sys, trackio\n"
        "from archipel import Federation\n"
        "from archipel.trackers import log\n"
        "result = Federation.load('small.toml').run(2)\n"
        "result.name = 'small'\n"
        "log(result, 'trackio:study')\n"
        "runs = {run.name: run for run in trackio.Api().runs('study')}\n"
        "read = {n: trackio.SQLiteStorage.get_logs('study', n) for n in runs}\n"
        "told = {n: [[row['step'], row['mse']] for row in rows] for n, rows in read.items()}\n"
        "config = runs['small-seed-1'].config['problem.clients']\n"
        "print(json.dumps([config, told]), file=sys.stderr)\n"
    )
    (tmp_path / "small.toml").write_text(SMALL.to_toml())
    run = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    config, told = json.loads(run.stderr.splitlines()[-1])
    assert config == "4"
    for seed in (1, 2):
        assert [tuple(row) for row in told[f"small-seed-{seed}"]] == wanted(result, seed)


def test_wandb_kept_what_was_logged(result, tmp_path, monkeypatch):
    """Offline; what its library wrote is read by its messages, out of a log of LevelDB (blocks of 32 kB)."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason=APART)
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_DIR", str(tmp_path)), ("WANDB_SILENT", "true")):
        monkeypatch.setenv(name, value)
    log(result, "wandb:study")
    sys.modules["wandb"].teardown()  # waits for its writer, as the end of a process does
    told = {}
    for path in tmp_path.glob("wandb/offline-run-*/*.wandb"):
        content, at, whole = path.read_bytes(), 7, b""
        name, rows = "", []
        while at + 7 <= len(content):
            if 32_768 - at % 32_768 < 7:  # the rest of a block is empty
                at += 32_768 - at % 32_768
            size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
            whole, at = whole + content[at + 7 : at + 7 + size], at + 7 + size
            if kind in (1, 4):  # whole, or its last piece
                record, whole = messages.Record.FromString(whole), b""
                if record.WhichOneof("record_type") == "run":
                    name = record.run.display_name
                    config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
                elif record.WhichOneof("record_type") == "history":
                    rows.append({i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item})
        told[name] = [(row["_step"], row["mse"]) for row in rows if "mse" in row]
        assert config["problem.clients"] == "4"
    assert told == {f"small-seed-{seed}": wanted(result, seed) for seed in (1, 2)}


def test_trackers_with_projects_are_given_rounds_and_values(result, monkeypatch):
    """Weights & Biases has the same API as Trackio and is asked the same; here without its library."""
    told = []
    fake = types.SimpleNamespace(
        init=lambda **how: told.append(("init", how["project"], how["name"])),
        log=lambda values, step: told.append((step, values["mse"])),
        finish=lambda: told.append("finish"),
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    log(result, "wandb:study")
    assert told[0] == ("init", "study", "small-seed-1") and told[1:4] == wanted(result, 1) and told[4] == "finish"


def test_who_is_not_known_or_not_here_is_a_sentence(monkeypatch):
    with pytest.raises(BadInput, match='"tensorboard"'):
        check("tensorbord:logs")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(Missing, match="pip install wandb"):
        check("wandb:study")
