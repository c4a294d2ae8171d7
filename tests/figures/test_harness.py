"""The two searches for steps, against functions whose answers are known, and a small figure from end to end."""

import json
import math
from dataclasses import replace

import pytest

from archipel.algorithms.online import PaoFed
from archipel.figures import harness
from archipel.figures.gallery import reproduce, save
from archipel.figures.harness import HALVINGS, PaoFedExperiment, Scale
from archipel.problems.synthetic import Synthetic

PRECISION = 2 ** (1 / 2**HALVINGS)


@pytest.fixture
def small(monkeypatch):
    """Few clients, few features, few rounds."""
    monkeypatch.setattr(harness, "QUICK", Scale(seeds=3, rounds=200, tries=2))
    monkeypatch.setattr(harness, "DATA", Synthetic(clients=32, features=40, test=60))
    monkeypatch.setattr(harness, "KEPT", {})


class Paper(PaoFedExperiment):
    """An experiment where the error is a known function of the step, and a list of the steps that were tried."""

    def __init__(self, error):
        self.error, self.largest, self.tried = error, 1.0, []

    def start(self, algorithm):
        self.tried.append(algorithm.step)
        return self.error(algorithm.step)

    end = start


def test_matching_a_known_function():
    for wanted in (0.011, 0.1, 0.5, 0.9):
        experiment = Paper(lambda step: -math.log(step))
        found = experiment.matched(PaoFed(step=7.0), PaoFed(step=wanted)).step
        assert 1 / PRECISION < found / wanted < PRECISION
        assert max(experiment.tried) <= experiment.largest


def test_who_cannot_start_as_fast_starts_as_fast_as_it_can():
    experiment = Paper(lambda step: -5.0 if step == 9.0 else abs(math.log(step / 0.25)))
    assert experiment.matched(PaoFed(), PaoFed(step=9.0)).step == 0.25


def test_the_fast_side_of_a_start_that_gets_worse_again_is_not_taken():
    """Two steps start alike where large ones hurt; the smaller one is the method's."""
    experiment = Paper(lambda step: abs(math.log(step / 0.3)))
    found = experiment.matched(PaoFed(), PaoFed(step=0.15)).step
    assert 1 / PRECISION < found / 0.15 < PRECISION


def test_the_best_step_of_a_known_function():
    for best in (0.03, 0.2, 0.6, 5.0):
        experiment = Paper(lambda step, best=best: math.log(step / best) ** 2)
        found = experiment.best(PaoFed()).step
        assert max(experiment.tried) <= experiment.largest
        assert abs(math.log2(found / min(best, 1.0))) <= 0.25 + 1e-9  # half of half an octave


def test_a_method_that_must_start_as_itself_gets_its_own_step(small):
    experiment = PaoFedExperiment(True, None)
    for own in (0.1, 0.4):
        method = PaoFed(variant="U1", step=own)
        found = experiment.matched(replace(method, step=0.01), like=method)
        assert 1 / PRECISION < found.step / own < PRECISION
        assert replace(found, step=own) == method


def test_a_lab_plays_every_setting_once(small):
    experiment = PaoFedExperiment(True, None)
    calls = []
    watched = PaoFedExperiment(True, lambda done, total, what: calls.append(what))
    runs = experiment.play("first", PaoFed())
    again = watched.play("second", PaoFed())
    assert calls == [] and again.label == "second" and again.errors is runs.errors
    watched.play("third", PaoFed(variant="U2"))
    assert calls and all(what.startswith("third") for what in calls)


def test_a_figure_from_end_to_end(small, tmp_path):
    figure = reproduce("thesis/4.2b", quick=True)
    folder = save(figure, tmp_path)
    assert (folder / "thesis-4.2b.png").stat().st_size > 5000
    metrics = json.loads((folder / "metrics.json").read_text())
    assert set(metrics) >= {"figure", "series", "claims"}
    assert metrics["figure"] == "thesis/4.2b"
    shown = [f"PAO-Fed-U1, m = {m}" for m in (1, 4, 32)]
    assert set(metrics["series"]) == {*shown, *(f"{name}, own best step" for name in shown)}
    for line in metrics["series"].values():
        assert line["x"] == list(range(0, 201, 20)) and len(line["y"]) == 11
    for claim in metrics["claims"]:
        assert set(claim) == {"claim", "holds", "measured"}
        assert isinstance(claim["holds"], bool) and "dB" in claim["measured"]
    traffic = [metrics["numbers"][name] for name in shown]
    messages = {row["parameters"] / m for row, m in zip(traffic, (1, 4, 32))}
    assert len(messages) == 1, "all portions meet the same schedule"
    bytes_a_parameter = [row["bytes"] / row["parameters"] for row in traffic]
    assert bytes_a_parameter == pytest.approx([4 + 4 / m for m in (1, 4, 32)])  # 4 a value, and 4 for where it starts
    assert all(row["step"] == 0.4 and row["seeds"] == 3 for row in traffic)
