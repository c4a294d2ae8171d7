"""The gallery of figures: every name leads to a figure, and a figure becomes a picture and a JSON file."""

import json
import math
import subprocess
import sys

import pytest

from archipel.errors import BadInput, Missing
from archipel.figures import Claim, Figure
from archipel.figures.gallery import GALLERY, describe, reproduce, save

ARTICLE = ("2a", "2b", "2c", "3a", "3b", "3c", "4", "5", "6a", "6b", "6c")


def test_every_figure_has_a_line_that_says_what_it_shows():
    for name in GALLERY:
        assert callable(GALLERY[name])
        assert 20 < len(describe(name)) <= 120, name


def test_the_articles_figures_are_there_under_both_names():
    for figure in ARTICLE:
        assert GALLERY[f"thesis/4.{figure}"] is GALLERY[f"pao-fed/{figure}"]


def test_names_that_are_not_there():
    for name in ("pao-fed/9z", "nobody/1", "thesis/99", ""):
        assert name not in GALLERY
        with pytest.raises(BadInput, match="figure = "):
            reproduce(name)


def test_a_paper_is_loaded_when_it_is_wanted():
    code = "import sys, archipel.figures.gallery; print('archipel.figures.pao_fed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_a_figure_is_written_as_picture_and_json(tmp_path):
    figure = Figure(
        "paper/1",
        "a title",
        {"fine": ([0.0, 1.0], [2.0, 3.0]), "lost": ([0.0, 1.0], [2.0, math.nan])},
        [Claim("It rises.", True, "by 1")],
        "x",
        "y",
        numbers={"lost": {"step": 0.5, "final_db": math.inf}},
    )
    folder = save(figure, tmp_path / "new" / "folder")
    assert (folder / "paper-1.png").read_bytes().startswith(b"\x89PNG")

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    metrics = json.loads((folder / "metrics.json").read_text(), parse_constant=refuse)
    assert metrics["figure"] == "paper/1"
    assert metrics["series"] == {"fine": {"x": [0, 1], "y": [2, 3]}, "lost": {"x": [0, 1], "y": [2, None]}}
    assert metrics["claims"] == [{"claim": "It rises.", "holds": True, "measured": "by 1"}]
    assert metrics["numbers"] == {"lost": {"step": 0.5, "final_db": None}}


def test_figures_in_one_folder_keep_their_numbers(tmp_path):
    for name in ("paper/1", "paper/2"):
        save(Figure(name, "a title", {"a": ([0.0], [1.0])}, [], "x", "y"), tmp_path)
    for file, name in (("paper-1", "paper/1"), ("paper-2", "paper/2"), ("metrics", "paper/2")):
        assert json.loads((tmp_path / f"{file}.json").read_text())["figure"] == name


def test_a_data_set_that_is_not_here_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("ARCHIPEL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Missing, match="calcofi"):
        reproduce("pao-fed/4", quick=True)
