"""Trackers: their own readers give back what was measured."""

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


def test_trackers_with_projects_are_given_rounds_and_values(result, monkeypatch):
    """Trackio and Weights & Biases are asked as their documentation says; they are not installed here."""
    import sys
    import types

    told = []
    fake = types.SimpleNamespace(
        init=lambda **how: told.append(("init", how["project"], how["name"])),
        log=lambda values, step: told.append((step, values["mse"])),
        finish=lambda: told.append("finish"),
    )
    monkeypatch.setitem(sys.modules, "trackio", fake)
    log(result, "trackio:study")
    assert told[0] == ("init", "study", "small-seed-1") and told[1:4] == wanted(result, 1) and told[4] == "finish"


def test_who_is_not_known_or_not_here_is_a_sentence(monkeypatch):
    with pytest.raises(BadInput, match='"tensorboard"'):
        check("tensorbord:logs")
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(Missing, match="pip install wandb"):
        check("wandb:study")
