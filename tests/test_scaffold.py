"""A new folder runs: its description, and its script."""

import runpy

import pytest

from archipel import Federation
from archipel.errors import BadInput
from archipel.scaffold import copy_example, examples, scaffold


def test_what_is_made_runs(tmp_path, monkeypatch, capsys):
    scaffold(tmp_path / "buoys")
    monkeypatch.chdir(tmp_path / "buoys")
    federation = Federation.load("federation.toml", engine="plain")
    assert federation.setup().task.clients == 6 and not federation.setup().task.notes
    assert federation.run().final("rmse") < 0.45
    runpy.run_path("compare.py")
    assert "OnlineFed" in capsys.readouterr().out
    with pytest.raises(BadInput, match="does not exist yet"):
        scaffold(tmp_path / "buoys")


def test_every_example_comes_with_the_package(tmp_path):
    names = [name for name, _ in examples()]
    assert {"pao-fed-c2", "zcdp-nfl", "pldp-fl"} < set(names) and len(names) == len(set(names))
    copy_example("zcdp-nfl", tmp_path / "here")
    assert Federation.load(tmp_path / "here" / "federation.toml").algorithm.__class__.__name__ == "ZcdpNfl"
    with pytest.raises(BadInput, match='"zcdp-nfl"'):
        copy_example("zcdp-nfi", tmp_path / "there")
