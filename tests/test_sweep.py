"""Sweeps: a grid is tried whole, once, and goes on after it was killed."""

import csv
import subprocess
import sys

import pytest

from archipel.errors import BadInput
from archipel.sweep import Sweep, axis_of, described, points, rows

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


def test_the_command_line_writes_a_table_and_a_page(path, tmp_path):
    pytest.importorskip("optuna")
    words = ["sweep", "f.toml", "algorithm.step=0.05:0.5:log", "--trials", "3", "--how", "random", "--jobs", "2"]
    run = subprocess.run([sys.executable, "-m", "archipel", *words], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    with (tmp_path / "sweep/sweep.csv").open() as file:
        values = [float(row["mse"]) for row in csv.DictReader(file)]
    assert 3 <= len(values) <= 4 and values == sorted(values)
    assert "the best first" in (tmp_path / "sweep/sweep.html").read_text()
