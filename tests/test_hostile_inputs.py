"""Inputs that a seed makes wrong: a sentence and status 2 each, never a traceback; what must be refused is."""

import sys

import pytest

import hostile
from archipel.cli import main


def played(capsys, monkeypatch, here, argv):
    """A command's status, and what it said."""
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "argv", ["archipel", *argv])
    try:
        main()
    except SystemExit as ended:
        return ended.code or 0, "".join(capsys.readouterr())
    return 0, "".join(capsys.readouterr())


def survived(seed, count, tmp_path, capsys, monkeypatch):
    for here, name, must, argv in hostile.cases(seed, count, tmp_path):
        status, said = played(capsys, monkeypatch, here, argv)
        assert status in ((2,) if must else (0, 1, 2)), (name, argv, said)
        assert "Traceback" not in said and (said.strip() or not status), (name, argv)


def test_what_is_not_made_wrong_is_accepted(tmp_path, capsys, monkeypatch):
    here = hostile.prepared(tmp_path / "here")
    for table in hostile.SMALL:
        (here / "fine.toml").write_text(hostile.described(table))
        assert played(capsys, monkeypatch, here, ["run", "fine.toml", "--out", "out"])[0] == 0, table


def test_some_bad_inputs(tmp_path, capsys, monkeypatch):
    survived(1, 30, tmp_path, capsys, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_bad_inputs(tmp_path, capsys, monkeypatch, seed):
    survived(seed, 500, tmp_path, capsys, monkeypatch)
