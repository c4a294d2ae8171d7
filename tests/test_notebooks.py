"""The notebooks of the four people run, cell by cell, and show what they say; what they show is not kept in them."""

import io
import json
import os
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from archipel import cli, federation
from archipel.cli.screen import screen
from archipel.simulate.engine import engine_for

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of one's own, and the plain engine: nothing is compiled."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(federation, "engine_for", lambda instance, _, *rest: engine_for(instance, "plain", *rest))
    return tmp_path


def command(line):
    """`!archipel ...` in this process."""
    sys.argv = shlex.split(line)
    try:
        cli.main()
    except SystemExit as ended:
        assert not ended.code, line


def played(name, monkeypatch):
    """All code cells, one after the other; what they print."""
    names, said = {"__name__": "__main__"}, io.StringIO()
    monkeypatch.setattr(screen, "_file", said, raising=False)
    monkeypatch.setattr(sys, "argv", ["archipel"])
    monkeypatch.setattr(sys, "path", [os.getcwd(), *sys.path])
    for cell in json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            with redirect_stdout(said):
                command(source[1:]) if source.startswith("!") else exec(compile(source, name, "exec"), names)
    return said.getvalue(), names


def test_a_device_engineer(here, monkeypatch):
    said, names = played("device-engineer", monkeypatch)
    little, everything = names["results"].values()
    assert little.total("bytes") * 5 < everything.total("bytes")
    assert 32.8 < names["shallow"] < 33.7 and 34.3 < names["deep"] < 35.2  # the buoys' law has 33 and 35 g/kg
    assert (
        "nothing is in the way" in said
        and (here / "predicted.csv").exists()
        and (here / "results/report.html").exists()
    )


def test_a_data_scientist_of_a_hospital(here, monkeypatch):
    said, names = played("hospital", monkeypatch)
    assert "1 row lacks a value" in said
    assert set(names["scores"]) == set(names["wards"]) and min(names["scores"].values()) > 0.6
    assert names["paid"]["geriatrics"] <= 4.0 < 8.0 < names["paid"]["surgery"] <= 16.0
    page = (here / "results/report.html").read_text(encoding="utf-8")
    assert "For a person" in page and "geriatrics" in page


def test_a_researcher(here, monkeypatch):
    said, names = played("researcher", monkeypatch)
    assert len(names["seeds"]) == 3 and "is best at step" in said
    mean, robust = (float(line.split()[1]) for line in said.splitlines()[-2:])
    assert robust < mean / 2, said


def test_a_contributor(here, monkeypatch):
    said, names = played("contributor", monkeypatch)
    assert "nothing is wrong" in said and names["apart"] < 1e-5
