"""The command line and the files it leaves."""

import csv
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from rich.markup import render

from archipel import Federation
from commands import typed
from waiting import wait_until

DESCRIPTION = """
rounds = 60
every = 20
[problem]
kind = "synthetic"
clients = 12
features = 16
test = 20
[algorithm]
kind = "pao-fed"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "federation.toml").write_text(DESCRIPTION)
    return tmp_path


def archipel(*arguments, cwd):
    run = typed(*arguments, cwd=cwd)
    assert run.returncode == 0, run.stderr
    return run


def test_a_run_leaves_files_that_other_tools_open(folder):
    command = [sys.executable, "-m", "archipel", "run", "federation.toml", "--out", "out", "--seeds", "2"]
    subprocess.run(command, cwd=folder, check=True)
    with (folder / "out/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["seed", "round", "metric", "value", "node"]
    assert {row["seed"] for row in rows} == {"1", "2"}
    assert sorted({int(row["round"]) for row in rows}) == [0, 20, 40, 60]
    with np.load(folder / "out/models.npz") as models:
        assert models["server"].shape == (2, 16)
        assert models["clients"].shape == (2, 12, 16)
    assert json.loads((folder / "out/ledger.json").read_text())["private"] is False
    assert Federation.load(folder / "out/federation.toml").rounds == 60
    report = (folder / "out/report.html").read_text()
    assert "<h1>federation</h1>" in report and "Mean squared test error" in report and "± " in report
    assert 'src="http' not in report and 'href="http' not in report  # it needs nothing from outside


def test_the_same_from_python_gives_the_same_numbers(folder):
    archipel("run", "federation.toml", "--out", "out", "--rounds", "40", cwd=folder)
    result = Federation.load(folder / "federation.toml", rounds=40).run()
    with np.load(folder / "out/models.npz") as models:
        assert np.array_equal(models["server"], result.models[0]["server"])


def test_comparing_writes_one_report(folder):
    (folder / "other.toml").write_text(DESCRIPTION.replace("pao-fed", "online-fed"))
    archipel("compare", "federation.toml", "other.toml", "--out", "both", cwd=folder)
    report = (folder / "both/report.html").read_text()
    assert "federation" in report and "other" in report and "theorem 2 (34)" in report


def test_a_recorded_schedule_can_be_replayed(folder):
    archipel("run", "federation.toml", "--out", "out", "--record", "schedule.npz", cwd=folder)
    (folder / "again.toml").write_text(DESCRIPTION + '[environment]\nreplay = "schedule.npz"\n')
    archipel("run", "again.toml", "--out", "again", cwd=folder)
    with np.load(folder / "out/models.npz") as a, np.load(folder / "again/models.npz") as b:
        assert np.array_equal(a["server"], b["server"])


@pytest.mark.parametrize("what", ["algorithms", "problems", "topologies", "figures", "datasets"])
def test_lists_are_not_empty(folder, what):
    assert len(archipel("list", what, cwd=folder).stdout.splitlines()) >= 3


def test_a_list_of_nothing_says_what_there_are_lists_of(folder):
    said = archipel("list", cwd=folder)
    assert said.returncode == 0 and "archipel list algorithms" in said.stdout and "archipel list parts" in said.stdout


def test_no_two_examples_are_told_in_the_same_words(folder):
    from archipel.cli.explain import listed_examples

    told = [what for _, what in listed_examples()]
    assert len(set(told)) == len(told) > 5


def test_ctrl_c_leaves_what_was_done_so_far(folder):
    (folder / "long.toml").write_text(DESCRIPTION.replace("rounds = 60", "rounds = 100000000"))
    command = [sys.executable, "-m", "archipel", "run", "long.toml", "--out", "out", "--checkpoint", "0"]
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs in the background ignores it otherwise
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    signal.signal(signal.SIGINT, ours)
    kept, written = folder / "out/checkpoint.npz", set()

    def four_times():
        written.update({kept.stat().st_mtime_ns} if kept.exists() else ())
        return len(written) >= 4

    try:
        wait_until(four_times, kept.parent)
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 130
    with (folder / "out/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len({row["round"] for row in rows}) > 2
    assert "Stopped before the end" in (folder / "out/report.html").read_text()


@pytest.mark.parametrize(
    "more",
    [
        '[algorithm]\nkind = "signsgd"\n[privacy]\nepsilon = 1\nclip = 1\n',
        '[algorithm]\nkind = "pao-fed"\n[topology]\nkind = "peers"\n[algorithm.share]\nkind = "signs"\n',
    ],
)
def test_what_a_run_refuses_a_check_refuses(more, tmp_path):
    problem = 'rounds = 3\n[problem]\nkind = "synthetic"\nclients = 5\nfeatures = 4\ntest = 5\n'
    (tmp_path / "f.toml").write_text(problem + more)
    run, check = (typed(command, "f.toml", cwd=tmp_path) for command in ("run", "check"))
    assert run.returncode == check.returncode == 2 and check.stderr.strip() == run.stderr.strip()


def test_the_table_of_a_check_fits_into_eighty_characters(tmp_path, monkeypatch):
    monkeypatch.setattr("archipel.cli.run.screen", Console(width=80))
    for name in ("buoy-1", "buoy-2"):
        rows = "".join(f"{k},{32.78 + k / 100:.2f}\n" for k in range(240))
        (tmp_path / f"{name}.csv").write_text(f"depth,salinity\n{rows}")
    problem = 'rounds = 3\n[problem]\nkind = "files"\ndata = "*.csv"\ntarget = "salinity"\n'
    (tmp_path / "f.toml").write_text(f'{problem}[algorithm]\nkind = "pao-fed"\nportion = 1\nstep = 0.1\n')
    said = typed("check", "f.toml", cwd=tmp_path).stdout.splitlines()
    table = [line for line in said if line[:1] in "┏┃┡│└"]
    assert len({len(line) for line in table}) == 1 and len(table[0]) <= 80 and len(table) == 7
    assert all(word in " ".join(table) for word in ("client", "to learn", "incomplete", "largest"))


def test_help_breaks_its_lines_where_the_terminal_ends(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    said = [line.strip() for line in typed("audit", "-h").stdout.splitlines()]
    begin = next(i for i, line in enumerate(said) if line.startswith("Prints lower bounds"))
    paragraph = said[begin : said.index("", begin)]
    following = [text.split()[0] for text in paragraph[1:]]
    assert len(paragraph) > 2 and all(len(a) + 1 + len(b) > 78 for a, b in zip(paragraph, following))


def test_ctrl_c_is_answered_whatever_the_command_does(monkeypatch):
    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("archipel.bench.measure", pressed)
    said = typed("bench")
    assert said.returncode == 130 and said.stderr.strip() == "Stopped."


# --- other systems ----------------------------------------------------------------------------------------------------


def test_what_only_posix_has_is_not_needed_to_simulate(tmp_path):
    """As on Windows: without resource, fcntl, fork, pread and sysconf a federation runs, and writes all its files."""
    script = (
        "import os, sys\n"
        "for name in ('resource', 'fcntl', 'pwd', 'grp', 'termios'): sys.modules[name] = None\n"
        "for name in ('fork', 'pread', 'pwrite', 'sysconf', 'getuid', 'fdatasync', 'kill'): delattr(os, name)\n"
        "import archipel.bench, archipel.cli, archipel.report.live, archipel.sweep\n"
        "from archipel import Federation, PaoFed, Synthetic\n"
        "small = Synthetic(clients=3, features=4, test=4)\n"
        "Federation(small, PaoFed(portion=2), rounds=4, engine='plain').run().save('out')\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=300)
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"report.html", "model.npz", "metrics.csv"}


def test_no_help_text_has_something_in_brackets_that_is_taken_for_a_style():
    from typer.main import get_command

    from archipel.cli import app

    commands = get_command(app).commands.values()
    texts = [text for one in commands for text in (one.help, *(getattr(given, "help", "") for given in one.params))]
    assert len(texts) > 80
    for text in filter(None, texts):
        assert render(text).plain == text


def test_on_windows_a_deployment_is_a_sentence(tmp_path, monkeypatch, capsys):
    from archipel.cli import main

    monkeypatch.setattr("archipel.cli.deploy.sys", SimpleNamespace(platform="win32"))
    monkeypatch.setattr(sys, "argv", ["archipel", "up", str(tmp_path / "f.toml")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "needs Linux, macOS or Windows" in capsys.readouterr().err


def test_the_command_line_loads_numpy_after_it_has_set_its_threads():
    """NumPy asks how many threads its BLAS has when it is loaded; spinning ones took a fifth of a short run."""
    script = "import sys, archipel.cli; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
