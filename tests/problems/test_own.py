"""A user's own data: read as it comes, looked at first, scored in its own units, by name."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from archipel import Federation, Files, MirrorDescent, OnlineFed, PaoFed
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.clients import People
from archipel.errors import BadInput
from archipel.privacy.policy import Privacy
from archipel.problems import files, folders
from archipel.problems.scoring.tested import auc, calibration, f1
from archipel.topology import Peers
from reference.own_files import read

NAMES = ("ann", "bea", "cem", "dee", "eva")


@pytest.fixture
def wards(tmp_path):
    """Five wards: temperatures and a target in mg, the last ward in micrograms; a note that is no table."""
    draw = np.random.default_rng(0)
    for name in NAMES:
        x = draw.normal(37, 1, (60, 2))
        y = 5 * x[:, 0] - 2 * x[:, 1] + 0.5 * draw.standard_normal(60)
        y *= 1000 if name == "eva" else 1
        rows = "".join(f"{a:.6f};{b:.6f};{c:.6f};3\n" for (a, b), c in zip(x, y))
        (tmp_path / f"{name}.CSV").write_text("\ufeffwarm;cold;dose;site\n" + rows.replace(".", ","), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no table")
    return tmp_path


def test_files_are_read_as_they_come(wards):
    """Capital endings, semicolons, decimal commas and a byte-order mark."""
    shards = read(wards, target="dose")
    assert shards.names == NAMES and shards.columns == ("warm", "cold", "site") and len(shards.y) == 300
    assert 30 < shards.x[0, 0] < 44


def test_what_is_odd_is_said_before_a_run(wards):
    task = Federation(Files(str(wards), target="dose"), PaoFed(portion=1), rounds=30).setup().task
    said = " ".join(task.notes)
    assert "eva: the target dose is around" in said and "times as far" in said and "ann:" not in said
    assert "site is always 3: nothing can be learned from it." in said
    assert "notes.txt" in said
    assert "150 of 240 rows to learn from will be used" in said
    assert task.listed[0] | {"least": 0, "middle": 0, "largest": 0} == {
        "client": "ann", "to learn from": 48, "used": 30, "to test on": 12, "incomplete": 0,
        "least": 0, "middle": 0, "largest": 0,
    }  # fmt: skip


def test_errors_are_in_the_targets_own_units_and_by_name(wards, tmp_path):
    (wards / "eva.CSV").unlink()
    problem = Files(str(wards), target="dose", unit="mg", columns=("warm", "cold"))
    result = Federation(problem, OnlineFed(step=0.1), rounds=200, every=100, engine="plain").run()
    assert 0.45 < result.final("rmse") < 0.8  # the noise is 0.5 mg
    assert result.final("r2") > 0.95
    result.save(tmp_path / "out")
    with (tmp_path / "out/metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "rmse.node" and row["round"] == "200"]
    assert [row["node"] for row in rows] == list(NAMES[:4])
    assert 0.3 < float(rows[0]["value"]) < 1.0
    assert " mg" in (tmp_path / "out/report.html").read_text()


def rare(folder, labels=("no", "yes"), share=0.02, rows=400):
    draw = np.random.default_rng(1)
    folder.mkdir(exist_ok=True)
    for k in range(4):
        x = draw.standard_normal(rows)
        y = x > np.quantile(x, 1 - share)
        text = "".join(f"{a},{labels[int(b)]}\n" for a, b in zip(x, y))
        (folder / f"clinic-{k}.csv").write_text("level,ill\n" + text)
    return folder


@pytest.mark.parametrize("labels", [("no", "yes"), ("0", "1"), ("-1", "1"), ("healthy", "ill"), ("False", "True")])
def test_labels_are_taken_as_they_come(tmp_path, labels):
    shards = read(rare(tmp_path / "data", labels), target="ill", labels=True)
    assert set(shards.y) == {-1.0, 1.0} and np.mean(shards.y > 0) == pytest.approx(0.02)
    other = read(tmp_path / "data", target="ill", labels=True, positive=labels[0])
    assert np.array_equal(other.y, -shards.y)


def test_three_labels_are_refused(tmp_path):
    rare(tmp_path, ("a", "b"))
    (tmp_path / "clinic-9.csv").write_text("level,ill\n1,c\n")
    with pytest.raises(BadInput, match="two classes for the logistic loss, not 3"):
        read(tmp_path, target="ill", labels=True)
    with pytest.raises(BadInput, match=r"problem\.positive"):
        read(rare(tmp_path / "two"), target="ill", labels=True, positive="maybe")


def test_a_rare_class_is_learned_with_an_intercept(tmp_path):
    """Without one, 2 % of positives gave an accuracy of 0.525."""
    problem = Files(str(rare(tmp_path / "data")), target="ill", loss="logistic")
    result = Federation(problem, ZcdpNfl(), Peers(shape="ring"), rounds=60, every=30, engine="plain").run()
    assert result.final("accuracy") > 0.95 and result.final("auc") > 0.99
    assert "AUC and F1" in " ".join(result.notes)
    plain = Files(str(tmp_path / "data"), target="ill", loss="logistic", intercept=False)
    assert Federation(plain, ZcdpNfl(), Peers(shape="ring"), rounds=1).setup().task.size == 1


def test_missing_cells_are_refused_left_out_or_filled(tmp_path):
    (tmp_path / "a.csv").write_text("x,z,y\n1,2,3\nNA,2,3\n3,,3\n5,2,\n4,2,1\n")
    with pytest.raises(BadInput) as problem:
        read(tmp_path)
    assert [f"line {line}" in str(problem.value) for line in (2, 3, 4, 5)] == [False, True, True, True]
    skipped = files.read_client(tmp_path / "a.csv", missing="skip")
    assert skipped.x.tolist() == [[1, 2], [4, 2]] and skipped.incomplete == 3
    filled = files.read_client(tmp_path / "a.csv", missing="mean")
    assert filled.x.tolist() == [[1, 2], [3.25, 2], [3, 2], [4, 2]]


def test_a_word_is_said_once_and_told_from_what_is_missing(tmp_path):
    def said(text, **how):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(BadInput) as problem:
            Files(str(tmp_path), **how).task(1, 5, float, "stored")
        return str(problem.value).splitlines()

    for how in ("refuse", "skip", "mean"):
        lines = said("x,y\n1,2\nwarm,2\ncold,2\nmild,2\nhot,2\n", missing=how)
        assert [line.split(": expected")[0][-1] for line in lines] == ['"'] * 4 and "1 cell more" in lines[3]
        assert all("missing" not in line for line in lines)
    (line,) = said("x,y\n1,2\n2,\n")
    assert line.endswith('expected a number that is finite; problem.missing = "skip" leaves such rows out.')
    assert '"skip" leaves such rows out, "mean" fills them' in said("x,y\n1,2\n,3\n")[0]
    assert 'two words are for problem.loss = "logistic"' in said("x,y\n1,yes\n2,no\n3,\n")[0]
    for text in ("x,y\n1,yes\n2,no\n3,perhaps\n", "x,y\n1,2\n2,low\n"):
        assert "logistic" not in said(text)[0]
    (line,) = said("x,y\neast,2\nwest,3\neast,4\nwest,5\neast,6\n")
    assert "a column of words needs its values in problem.categories, or is left out by problem.columns" in line


def test_columns_that_nobody_reads_may_be_called_anything(tmp_path):
    (tmp_path / "a.csv").write_text(",day,x,day,y\n0,monday,1,may,2\n1,friday,3,may,4\n")
    with pytest.raises(BadInput, match=r"a\.csv, column 1: ''.*or the columns to read in problem\.columns"):
        Files(str(tmp_path)).task(1, 5, float, "stored")
    assert Files(str(tmp_path), columns=("x",), test=0.5).task(1, 5, float, "stored").size == 1
    with pytest.raises(BadInput, match=r"column 4: 'day'.*a name of its own"):
        Files(str(tmp_path), columns=("x", "day")).task(1, 5, float, "stored")


def test_a_file_without_a_header_and_columns_of_one_file_only_are_said_to_be_so(tmp_path):
    (tmp_path / "a.csv").write_text("1.5,2\n3,4\n")
    with pytest.raises(BadInput, match=r"a\.csv, line 1: 1\.5, 2\": expected the names of the columns"):
        Files(str(tmp_path)).task(1, 5, float, "stored")
    (tmp_path / "a.csv").write_text("x,y\n3,4\n")
    (tmp_path / "b.csv").write_text("x,ph,y\n3,7,4\n")
    with pytest.raises(BadInput, match=r"b\.csv.*in problem\.columns; ph is in one only"):
        Files(str(tmp_path)).task(1, 5, float, "stored")


def test_a_column_of_which_a_client_has_nothing_has_no_mean(tmp_path):
    wards = {"ward": ("east", "west")}
    for name, x, ward in (("a", "NA", "east"), ("b", "3", "?")):
        (tmp_path / f"{name}.csv").write_text(f"x,ward,y\n{x},{ward},1\n{x},{ward},2\n")
    with pytest.raises(BadInput) as problem:
        Files(str(tmp_path), missing="mean", categories=wards).task(1, 5, float, "stored")
    said = str(problem.value).splitlines()
    assert len(said) == 2 and "a.csv, column x, which is empty" in said[0] and "declare its center" in said[0]
    assert "b.csv, column ward, which is empty" in said[1] and "center" not in said[1]
    (tmp_path / "b.csv").write_text("x,ward,y\n3,west,1\n4,,2\n")
    centred = Files(str(tmp_path), missing="mean", categories=wards, center={"x": 3.5}, test=0.5)
    client = files.read_client(tmp_path / "a.csv", **centred.reading._asdict())
    assert client.x.tolist() == [[3.5, 1, 0]] * 2 and client.centred == ("x",)
    notes = centred.task(1, 5, float, "stored").notes
    assert "a has no value of x: 3.5, its declared center, stands there." in notes
    np.savez(tmp_path / "c.npz", x=np.array([[1.0, np.nan]]), y=np.ones(1))
    with pytest.raises(BadInput, match=r"c\.npz, column x1, which is empty"):
        files.read_client(tmp_path / "c.npz", missing="mean")
    (tmp_path / "d.csv").write_text("x,y\n1,\n2,NA\n")
    with pytest.raises(BadInput, match=r"d\.csv.*at least one sample with a value of the target y"):
        files.read_client(tmp_path / "d.csv", missing="mean")


def test_a_mean_is_that_of_all_files_of_a_client(tmp_path):
    (tmp_path / "ann").mkdir()
    for name, lines in (("1", ["NA,1", ",2"]), ("2", ["3,1", "5,2"])):
        (tmp_path / "ann" / f"{name}.csv").write_text("\n".join(["x,y", *lines]))
    how = files.Reading(columns=("x",), missing="mean")
    clients = folders.read_people(People(("ann",)), f"{tmp_path}/{{name}}/*.csv", how, (1,), ("x",))
    assert clients["ann"].x.tolist() == [[4], [4], [3], [5]] and clients["ann"].incomplete == 2


def test_categories_become_columns(tmp_path):
    (tmp_path / "a.csv").write_text("ward,y\neast,1\nwest,2\n")
    client = files.read_client(tmp_path / "a.csv", categories={"ward": ("east", "west")})
    assert client.columns == ("ward=east", "ward=west") and client.x.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(BadInput, match=r"column ward: 'west'.*one of east"):
        files.read_client(tmp_path / "a.csv", categories={"ward": ("east",)})


def test_all_files_that_are_wrong_are_named_at_once(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text("x,y\n1,much\n" if name != "b" else "x,y\n1,2\n")
    with pytest.raises(BadInput) as problem:
        read(tmp_path)
    assert "a.csv" in str(problem.value) and "c.csv" in str(problem.value) and "b.csv" not in str(problem.value)


def test_units_that_are_public_leave_nothing_to_assume(wards):
    def terms(problem):
        described = Federation(
            problem, ZcdpNfl(), Peers(shape="ring"), privacy=Privacy(epsilon=1.0, clip=1.0), rounds=5
        )
        return described.instance().plan.accountant.terms

    columns = {"columns": ("warm", "cold"), "target": "dose"}
    center, scale = {"warm": 37.0, "cold": 37.0, "dose": 100.0}, {"warm": 1.0, "cold": 1.0, "dose": 10.0}
    assert terms(Files(str(wards), **columns, center=center, scale=scale)).how == "enforced"
    assert terms(Files(str(wards), **columns, center=center)).how == "assumed"
    with pytest.raises(BadInput, match=r"problem\.scale\.warm = 0"):
        Files(str(wards), scale={"warm": 0})
    with pytest.raises(BadInput, match="a column: warm"):
        Federation(Files(str(wards), **columns, scale={"worm": 1.0}), PaoFed(portion=1)).setup()


def test_a_horizon_makes_a_short_run_the_beginning_of_a_long_one(wards):
    def run(rounds):
        problem = Files(str(wards), target="dose", horizon=80)
        return Federation(problem, OnlineFed(step=0.05), rounds=rounds, every=20, engine="plain").run()

    short, long = dict(run(40).curve("mse")), dict(run(80).curve("mse"))
    assert {n: long[n] for n in short} == short


def test_scores_of_classes_are_those_of_their_definitions():
    draw = np.random.default_rng(0)
    answers, y = np.round(draw.standard_normal(50), 1), np.where(draw.random(50) < 0.4, 1.0, -1.0)
    pairs = [(a > b) + 0.5 * (a == b) for a in answers[y > 0] for b in answers[y < 0]]
    assert auc(answers, y) == pytest.approx(np.mean(pairs))
    hits, said, true = np.sum((answers > 0) & (y > 0)), np.sum(answers > 0), np.sum(y > 0)
    assert f1(answers, y) == pytest.approx(2 / (said / hits + true / hits))
    assert calibration(np.array([0.0, 0.0]), np.array([1.0, -1.0])) == 0 and np.isnan(auc(answers, np.ones(50)))


# --- for researchers: regret, and the distance to the optimum ---------------------------------------------------------


def two_clients(folder, sizes=(12, 7)):
    draw = np.random.default_rng(4)
    for k, size in enumerate(sizes):
        x = draw.standard_normal((size, 2))
        rows = "".join(f"{a},{b},{a - 2 * b + 0.1 * c}\n" for (a, b), c in zip(x, draw.standard_normal(size)))
        (folder / f"c{k}.csv").write_text("a,b,y\n" + rows)
    return Files(data=str(folder / "*.csv"), hold="last", standardise=False, test=0.2)


def test_the_stream_is_known_again_for_its_regret(tmp_path):
    """Every training sample arrives once, each client's in its order, whatever the chance of the rounds."""
    problem = replace(two_clients(tmp_path), regret=True)
    task = problem.task(3, 30, np.float64, "stream")
    features, targets = (np.concatenate(parts) for parts in zip(*(task.oracle.past(n, n + 5) for n in range(0, 30, 5))))
    for k in range(2):
        kept = np.loadtxt(tmp_path / f"c{k}.csv", delimiter=",", skiprows=1)[: (10, 6)[k]]
        places = [int(np.flatnonzero((features == row[:2]).all(1))[0]) for row in kept]
        assert places == sorted(places) and np.array_equal(targets[places], kept[:, 2])
    assert len(targets) == 16


def test_regret_of_own_files_is_against_the_best_fixed_model(tmp_path):
    """Models that never move lose the squared targets; the best fixed model is that of least squares."""
    problem = replace(two_clients(tmp_path), regret=True)
    still = MirrorDescent(radius=50.0, step=1e-15)
    federation = Federation(problem, still, Peers(shape="complete"), rounds=30, every=30, engine="plain")
    rows = np.concatenate([np.loadtxt(tmp_path / f"c{k}.csv", delimiter=",", skiprows=1)[: (10, 6)[k]] for k in (0, 1)])
    least = np.linalg.lstsq(rows[:, :2], rows[:, 2])[1][0]
    regret = (np.sum(rows[:, 2] ** 2) - least) / 2
    assert federation.run().final("regret.static") == pytest.approx(regret, rel=1e-5)
    plain = federation.with_(problem=replace(problem, regret=False)).run()
    assert not any(name.startswith("regret") for name in plain.metrics())


def test_models_of_own_files_are_compared_with_the_centralised_solution(tmp_path):
    problem = replace(two_clients(tmp_path), reference=True, l2=0.1)
    federation = Federation(problem, ZcdpNfl(), Peers(shape="complete"), rounds=40, every=40, engine="plain")
    result = federation.run()
    gram, moment = 0.1 * np.eye(2), np.zeros(2)  # sum over clients of their mean squared errors, and ridge
    for k, size in enumerate((10, 6)):
        rows = np.loadtxt(tmp_path / f"c{k}.csv", delimiter=",", skiprows=1)[:size]
        gram += rows[:, :2].T @ rows[:, :2] / size
        moment += rows[:, :2].T @ rows[:, 2] / size
    exact = np.linalg.solve(gram, moment)
    apart = sum(np.sum((model - exact) ** 2) for model in result.models[0]["clients"]) / np.sum(exact**2)
    assert result.final("deviation") == pytest.approx(apart, rel=1e-5) and apart < 0.1


def test_regret_and_reference_where_they_mean_nothing_are_refused(tmp_path):
    problem = two_clients(tmp_path)
    with pytest.raises(BadInput, match=r"problem\.regret"):
        replace(problem, regret=True).task(1, 5, np.float64, "stored")
    with pytest.raises(BadInput, match=r"problem\.reference"):
        replace(problem, reference=True).task(1, 5, np.float64, "stream")


def test_whole_files_can_be_held_out(tmp_path):
    problem = replace(two_clients(tmp_path, (12, 7, 9, 5, 6)), hold="files", test=0.4)
    seen = set()
    for seed in range(6):
        task = problem.task(seed, 5, np.float64, "stored")
        held = set(range(5)) - {int(name[1:]) for name in task.names}
        assert (
            len(held) == 2
            and task.clients == 3
            and len(task.source.y) == sum((12, 7, 9, 5, 6)[k] for k in range(5) if k not in held)
        )
        seen |= held
    assert len(seen) > 2  # by the seed
    with pytest.raises(BadInput, match="two files at least"):
        (tmp_path / "one").mkdir()
        replace(two_clients(tmp_path / "one", (8,)), hold="files").task(1, 5, np.float64, "stored")
