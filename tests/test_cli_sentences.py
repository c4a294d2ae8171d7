"""What cannot be written, read or held in memory: a sentence and status 2, before anything is lost."""

import json

import numpy as np
import pytest

from archipel import Federation
from archipel.cli.run import names_of
from archipel.figures import Claim, Figure, gallery

DESCRIPTION = """
rounds = 6
every = 3
engine = "plain"
[problem]
kind = "files"
data = "sensors/*.csv"
[algorithm]
kind = "pao-fed"
portion = 1
step = 0.05
[deploy.addresses]
"Köln 1" = "localhost:7000"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "federation.toml").write_text(DESCRIPTION, encoding="utf-8")
    (tmp_path / "sensors").mkdir()
    for k in range(2):
        x = np.random.default_rng(k).standard_normal((10, 2))
        rows = [f"{a},{b},{a - b}" for a, b in x]
        (tmp_path / f"sensors/s{k}.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    (tmp_path / "taken").write_text("a file")
    return tmp_path


def raising(problem):
    def fail(*_, **__):
        raise problem

    return fail


@pytest.mark.parametrize(
    "command",
    [
        ("run", "federation.toml", "--out", "taken"),
        ("run", "federation.toml", "--out", "taken/results"),
        ("run", "federation.toml", "--record", "taken/schedule.npz"),
        ("run", "federation.toml", "--record", "sensors"),
        ("compare", "federation.toml", "--out", "taken"),
        ("reproduce", "pao-fed/3a", "--out", "taken"),
        ("up", "federation.toml", "--out", "taken"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_written_is_noticed_before_anything_runs(archipel, monkeypatch, command):
    if command[0] == "up":
        pytest.importorskip("zenoh")
    monkeypatch.setattr(Federation, "run", raising(AssertionError("it ran")))
    monkeypatch.setattr(gallery, "reproduce", raising(AssertionError("it ran")))
    refused = archipel(*command)
    assert refused.status == 2 and command[-2] in refused.err and command[-1].split("/")[0] in refused.err


def test_keys_that_cannot_be_written_are_refused(folder, archipel):
    (folder / "federation.toml").write_text(DESCRIPTION.replace("Köln 1", "server"))
    refused = archipel("keys", "federation.toml", "--out", "taken")
    assert refused.status == 2 and '--out = "taken"' in refused.err
    assert archipel("keys", "federation.toml", "--days", "99999999").status == 2


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (OSError(28, "No space left on device", "out/metrics.csv"), "out/metrics.csv: No space left on device."),
        (MemoryError("Unable to allocate 7 GiB"), "does not fit in memory (Unable to allocate 7 GiB)"),
        (MemoryError(), "does not fit in memory: fewer"),
    ],
)
def test_a_full_disk_and_a_full_memory_are_sentences(archipel, monkeypatch, problem, sentence):
    monkeypatch.setattr(Federation, "run", raising(problem))
    refused = archipel("run", "federation.toml", "--out", "out")
    assert refused.status == 2 and sentence in refused.err


@pytest.mark.parametrize("out", ["a[/red]b", "a[bold]:smile:"])
def test_folders_are_printed_as_they_are_called(archipel, out):
    told = archipel("run", "federation.toml", "--out", out)
    assert told.status == 0 and f"Report: {out}/report.html" in told.out


def test_files_are_printed_as_they_are_called(folder, archipel):
    (folder / "[red]b.toml").write_text(DESCRIPTION, encoding="utf-8")
    told = archipel("run", "[red]b.toml", "--out", "out")
    assert told.status == 0 and "[red]b" in told.out


def test_a_saved_description_runs_again_from_where_it_is(folder, archipel):
    assert archipel("run", "federation.toml", "--out", "results/first").status == 0
    saved = folder / "results/first/federation.toml"
    assert 'data = "../../sensors/*.csv"' in saved.read_text(encoding="utf-8")
    assert Federation.load(saved).deploy.addresses == {"Köln 1": "localhost:7000"}
    assert archipel("run", "results/first/federation.toml", "--out", "again").status == 0
    with np.load(folder / "results/first/models.npz") as a, np.load(folder / "again/models.npz") as b:
        assert np.array_equal(a["server"], b["server"])


def test_files_of_one_name_are_told_apart(folder, archipel):
    for name, step in (("one", "0.05"), ("two", "0.01")):
        (folder / name).mkdir()
        text = DESCRIPTION.replace('"sensors', '"../sensors').replace("0.05", step)
        (folder / name / "f.toml").write_text(text, encoding="utf-8")
    told = archipel("compare", "one/f.toml", "two/f.toml", "--out", "both")
    assert told.status == 0 and "one-f" in told.out and "two-f" in told.out
    steps = [Federation.load(folder / f"both/{name}-f/federation.toml").algorithm.step for name in ("one", "two")]
    assert steps == [0.05, 0.01]


def test_names_of_files_that_nothing_tells_apart_are_numbered(tmp_path):
    a, b, c = tmp_path / "a/f.toml", tmp_path / "b/a/f.toml", tmp_path / "g.toml"
    assert names_of([a, b, c, a]) == {"a-f": a, "a-f-2": b, "g": c, "a-f-3": a}


@pytest.mark.parametrize(("row", "words"), [("1,1e300,2", "s0, b: 1e+300"), ("1,2,-1e30", "s0, target: -1e+30")])
def test_numbers_that_the_precision_cannot_square_are_refused(folder, archipel, row, words):
    if words.endswith("e+30"):
        raw = DESCRIPTION.replace("[algorithm]", "standardise = false\n[algorithm]")
        (folder / "federation.toml").write_text(raw, encoding="utf-8")
    with (folder / "sensors/s0.csv").open("a") as file:
        file.write(row + "\n")
    refused = archipel("run", "federation.toml", "--out", "out")
    assert refused.status == 2 and words in refused.err and "float" in refused.err


def test_a_figure_that_is_stopped_says_that_nothing_was_written(archipel, monkeypatch, folder):
    monkeypatch.setattr(gallery, "reproduce", raising(KeyboardInterrupt()))
    stopped = archipel("reproduce", "pao-fed/3a", "--out", "figures")
    assert stopped.status == 130 and "nothing was written" in stopped.err
    assert not list((folder / "figures").iterdir())


def test_claims_are_printed_as_they_are(archipel, monkeypatch, folder):
    claims = [Claim("[/red] holds", True, "1"), Claim("no", False, "2")]
    figure = Figure("pao-fed/3a", "t", {"a": ([0.0], [1.0])}, claims, "x", "y", note="see [/here]")
    monkeypatch.setattr(gallery, "reproduce", lambda *_: figure)
    told = archipel("reproduce", "pao-fed/3a", "--out", "figures")
    assert told.status == 0 and "[/red] holds" in told.out and "see [/here]" in told.out
    assert json.loads((folder / "figures/pao-fed-3a.json").read_text())["figure"] == "pao-fed/3a"
