"""Sweeps: a grid is tried whole, once, and goes on after it was killed."""

import csv
import subprocess
import sys
from dataclasses import replace

import pytest

from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.sweep import Sweep, axis_of, described, points, rows
from commands import typed

DESCRIPTION = """
rounds = 20
every = 10
engine = "plain"
[problem]
kind = "synthetic"
clients = 4
features = 8
test = 20
[algorithm]
kind = "pao-fed"
portion = 2
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "f.toml").write_text(DESCRIPTION)
    return tmp_path / "f.toml"


@pytest.mark.parametrize("text", ["step", "step=", "step=2:1", "step=0:1:log", "step=1:2:3", "step=a:b"])
def test_what_cannot_be_tried_is_refused(text):
    with pytest.raises(BadInput, match="sweep"):
        axis_of(text)


def test_all_values_are_checked_before_anything_runs(path, tmp_path):
    axes = (axis_of("problem.clients=0,4,-1"), axis_of("algorithm.stp=0.1"))
    with pytest.raises(BadInput) as problem:
        Sweep(path, axes, tmp_path).check()
    assert [finding.key for finding in problem.value.findings] == [
        "problem.clients",
        "problem.clients",
        "algorithm.stp",
    ]


@pytest.mark.parametrize(
    "text, right",
    [("step=0.1,0.2", "algorithm.step"), ("nope=1,2", "a known key"), ("rounds.x=1", "rounds is none with keys")],
)
def test_a_key_that_is_none_is_said_once_and_with_what_would_be_one(path, tmp_path, text, right):
    with pytest.raises(BadInput, match=right) as problem:
        Sweep(path, (axis_of(text),), tmp_path).check()
    assert len(problem.value.findings) == 1


def test_trials_of_another_sweep_are_not_taken_for_ones_of_this(path, tmp_path):
    """Their values are of another description, or another metric: they would stand in the table as if they were not."""
    pytest.importorskip("optuna")
    first = Sweep(path, (axis_of("algorithm.step=0.1"),), tmp_path, jobs=1)
    assert len(first.run().trials) == len(first.run().trials) == 1
    axes = axis_of("rounds=10"), axis_of("algorithm.step=0.1,0.2")  # of the second Optuna made a traceback
    others = [first._replace(axes=(axis,)) for axis in axes]
    for other in (*others, first._replace(metric="parameters"), first._replace(seeds=2)):
        with pytest.raises(BadInput, match="a folder of its own"):
            other.run()
    path.write_text(DESCRIPTION.replace("portion = 2", "portion = 3"))
    with pytest.raises(BadInput, match="another description"):
        first.run()


def test_a_metric_that_there_is_not_ends_a_sweep_at_once_and_leaves_nothing(path, tmp_path):
    pytest.importorskip("optuna")
    axes = (axis_of("algorithm.step=0.1,0.2,0.3"),)
    assert len([t for t in Sweep(path, axes, tmp_path, "nope", jobs=1).run().trials if t.state.is_finished()]) == 1
    assert [trial.value is not None for trial in Sweep(path, axes, tmp_path, jobs=1).run().trials] == [True] * 3


def test_a_grid_gives_what_an_exhaustive_search_gives_and_goes_on(path, tmp_path):
    optuna = pytest.importorskip("optuna")
    axes = (axis_of("algorithm.step=0.1,0.3"), axis_of("algorithm.portion=2,4"))
    sweep = Sweep(path, axes, tmp_path, jobs=1)
    slow = {tuple(p.values()): described(path, p).run().final("mse") for p in points(axes)}
    study = sweep.study()
    study.enqueue_trial({"algorithm.step": 0.1, "algorithm.portion": 2})
    study.ask()  # a trial that was killed while it ran
    found = rows(sweep.run(), "mse")
    assert {(row["algorithm.step"], row["algorithm.portion"]): row["mse"] for row in found} == slow
    assert found[0]["mse"] == min(slow.values())
    assert len(rows(sweep.run(), "mse")) == 4  # nothing is tried twice
    assert study.direction == optuna.study.StudyDirection.MINIMIZE


def test_a_trial_that_ctrl_c_stopped_is_tried_again(path, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    axes = (axis_of("algorithm.step=0.1,0.3"),)
    slow = {p["algorithm.step"]: described(path, p).run().final("mse") for p in points(axes)}
    run = Federation.run
    with monkeypatch.context() as patched:
        patched.setattr(Federation, "run", lambda *given: replace(run(*given), interrupted=True))
        said = typed("sweep", path, "algorithm.step=0.1,0.3", "--out", tmp_path / "out", "--jobs", 1)
    assert said.returncode == 130 and "Run it again to go on" in said.stderr
    found = rows(Sweep(path, axes, tmp_path / "out", jobs=1).run(), "mse")
    assert {row["algorithm.step"]: row["mse"] for row in found} == slow


def test_the_command_line_writes_a_table_and_a_page(path, tmp_path):
    pytest.importorskip("optuna")
    words = ["sweep", "f.toml", "algorithm.step=0.05:0.5:log", "--trials", "3", "--how", "random", "--jobs", "2"]
    run = subprocess.run([sys.executable, "-m", "archipel", *words], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    with (tmp_path / "sweep/sweep.csv").open() as file:
        values = [float(row["mse"]) for row in csv.DictReader(file)]
    assert 3 <= len(values) <= 4 and values == sorted(values)
    page = (tmp_path / "sweep/sweep.html").read_text()
    assert "the best first" in page and page.count("<polyline") == len(values)


def test_what_looks_worse_than_most_is_stopped(path):
    """A trial is told of the measurements on the way, one for each, and ends where its pruner says so."""
    from archipel.sweep import Worse, tried

    class Trial:
        def __init__(self, last):
            self.last, self.told = last, []

        def report(self, value, round):
            self.told.append((round, value))

        def should_prune(self):
            return len(self.told) == self.last

    patient, short = Trial(99), Trial(1)
    found = tried(path, {"rounds": 60}, 2, "mse", patient)
    assert found == tried(path, {"rounds": 60}, 2, "mse")
    assert [round for round, _ in patient.told] == sorted({round for round, _ in patient.told})
    with pytest.raises(Worse, match="by round 10"):
        tried(path, {"rounds": 60}, 1, "mse", short)


def test_the_page_of_a_sweep_has_the_best_the_lines_and_what_mattered(path, tmp_path):
    pytest.importorskip("optuna")
    from archipel.report.sweep import Axis, write_sweep
    from archipel.sweep import importance

    found = [
        {"trial": 1, "a": 0.001, "b": "<x>", "mse": 0.1, "why": ""},
        {"trial": 0, "a": 1.0, "b": "y", "mse": 0.4, "why": ""},
        {"trial": 2, "a": 0.1, "b": "y", "mse": None, "why": "too far"},
    ]
    write_sweep("s", found, "mse", {"a": 0.9, "b": 0.1}, tmp_path / "s.html")
    text = (tmp_path / "s.html").read_text()
    assert text.count("<polyline") == 2 and "90 %" in text and "<x>" not in text and "too far" in text
    axis = Axis([0.001, 0.1, 1.0, 0.01])
    steps = [axis.place(value) for value in (0.001, 0.01, 0.1, 1.0)]
    assert axis.log and steps[0] - steps[1] == pytest.approx(steps[1] - steps[2]) == pytest.approx(steps[2] - steps[3])
    study = __import__("optuna").create_study()
    study.optimize(lambda trial: trial.suggest_float("a", 0, 1) ** 2 + 0 * trial.suggest_float("b", 0, 1), n_trials=30)
    assert next(iter(importance(study))) == "a"


def test_a_sweep_in_which_nothing_ends_says_why(path, tmp_path):
    pytest.importorskip("optuna")
    run = typed("sweep", "f.toml", "algorithm.step=0.1", "--metric", "nope", "--jobs", "1", cwd=tmp_path)
    assert run.returncode == 2 and "metric" in run.stderr and "mse" in run.stderr
    with pytest.raises(BadInput, match="each key once"):
        Sweep(path, (axis_of("rounds=1,2"), axis_of("rounds=3")), tmp_path).check()
