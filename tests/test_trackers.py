"""Trackers: their own readers give back what was measured."""

import json
import subprocess
import sys
import types

import pytest

from archipel import Federation, PaoFed, Synthetic
from archipel.errors import BadInput, Missing
from archipel.trackers import check, log

SMALL = Federation(Synthetic(clients=4, features=8, test=10), PaoFed(portion=2), rounds=20, every=10, engine="plain")


@pytest.fixture(scope="module")
def result():
    found = SMALL.run(2)
    found.name = "small"
    return found


def wanted(result, seed):
    return [(n, v) for s, n, m, v, _ in result.rows if (s, m) == (seed, "mse")]


def test_tensorboard_reads_what_was_logged(result, tmp_path):
    pytest.importorskip("tensorboardX")
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log(result, f"tensorboard:{tmp_path}")
    for seed in (1, 2):
        found = reading.EventAccumulator(str(tmp_path / f"small-seed-{seed}")).Reload().Scalars("mse")
        assert [(e.step, pytest.approx(e.value, rel=1e-6)) for e in found] == wanted(result, seed)


def test_mlflow_reads_what_was_logged(result, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
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
    pytest.importorskip("trackio")
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


def test_trackers_with_projects_are_given_rounds_and_values(result, monkeypatch):
    """Weights & Biases has the same API as Trackio and is asked the same; it is not installed here."""
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
