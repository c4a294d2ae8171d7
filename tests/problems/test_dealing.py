"""One table dealt to clients, whole groups held out, samples without a target, and the picture of who has what."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from archipel import Federation, Files, MirrorDescent
from archipel.algorithms.fedavg import FedAvg
from archipel.errors import BadInput
from archipel.problems.look import holdings
from archipel.problems.splits.dealing import Split
from archipel.problems.splits.shards import join
from archipel.report import report_page
from archipel.report.data import in_short
from archipel.topology import Peers

ROWS = 240


@pytest.fixture
def pool(tmp_path):
    """One file: two inputs, a station, a person, a label."""
    draw = np.random.default_rng(2)
    x = draw.standard_normal((ROWS, 2)).round(6)
    stations = [("north", "south.east", "west")[k % 3] for k in range(ROWS)]
    people = draw.integers(0, 30, ROWS)
    lines = [f"{a},{b},{s},p{p},{'ill' if a > b else 'well'}" for (a, b), s, p in zip(x, stations, people)]
    (tmp_path / "pool.csv").write_text("\n".join(["a,b,station,person,state", *lines]) + "\n")
    problem = Files(
        data=str(tmp_path / "pool.csv"), target="state", columns=("a", "b"), loss="logistic", standardise=False
    )
    return problem, x, np.array(stations), people


def rows_of(task, k):
    begin, end = task.source.starts[k : k + 2]
    return task.source.x[begin:end, :2]


@pytest.mark.parametrize("kind", ["iid", "uneven", "shards", "label-shards", "dirichlet", "unbalanced", "time"])
def test_every_sample_is_somebodys(pool, kind):
    """What clients learn from and are tested on together is the file, each row once."""
    problem, x, *_ = pool
    made = replace(problem, split=Split(kind=kind, clients=5 if kind != "label-shards" else 4), test=0.25)
    task = made.task(3, 10, np.float64, "stored")
    learned = np.concatenate([rows_of(task, k) for k in range(task.clients)])
    held = task.score.__self__.test.x[:, :2]
    assert task.clients == len(task.names) == made.split.clients and 50 < len(held) < 70
    assert sorted(map(tuple, np.concatenate([learned, held]))) == sorted(map(tuple, x))
    if kind == "time":  # stretches in their order: nobody's row is older than one of who came before
        places = [[int(np.flatnonzero((x == row).all(1))[0]) for row in rows_of(task, k)] for k in range(5)]
        assert all(max(before) < min(after) for before, after in pairwise(places))


def test_a_column_names_the_clients(pool):
    problem, x, stations, _ = pool
    task = replace(problem, split=Split(kind="column", column="station")).task(1, 10, np.float64, "stored")
    assert task.names == ("north", "south.east", "west")
    for k, name in enumerate(task.names):
        assert {tuple(row) for row in rows_of(task, k)} <= {tuple(row) for row in x[stations == name]}


def test_whole_groups_are_held_out(pool):
    """A person's samples are learned from or tested on, never both, whichever client has them."""
    problem, x, _, people = pool
    made = replace(problem, hold="groups", group="person", test=0.3, split=Split(kind="column", column="station"))
    task = made.task(5, 10, np.float64, "stored")
    test = task.score.__self__.test
    whose = {tuple(row): person for row, person in zip(x, people)}
    shares = []
    for k in range(3):
        learned = {whose[tuple(row)] for row in rows_of(task, k)}
        held = {whose[tuple(row)] for row in test.of(k)[0][:, :2]}
        assert not learned & held and held
        shares.append(len(held) / len(held | learned))
    assert all(0.25 < share < 0.35 for share in shares)


@pytest.mark.parametrize("loss", ["distance", "linear"])
def test_samples_without_a_target(pool, loss):
    """The mean loss of test samples by a slow loop; the regret of models that never move against the closed form."""
    problem, x, *_ = pool
    made = replace(problem, loss=loss, target="y", split=Split(kind="time", clients=3), hold="last", regret=True,
                   standardise=None)  # fmt: skip
    still = MirrorDescent(radius=2.0, step=1e-15)
    federation = Federation(
        made, still, Peers(shape="complete"), rounds=64, every=64, engine="plain", precision="float64"
    )
    result = federation.run()
    stretches = [x[80 * k : 80 * k + 80] for k in range(3)]
    learned, held = (np.concatenate([part[cut] for part in stretches]) for cut in (slice(0, 64), slice(64, 80)))
    models = result.models[0]["clients"]
    each = [(m @ s if loss == "linear" else np.sum((m - s) ** 2) / 2) for m in models for s in held]
    assert result.final("loss") == pytest.approx(np.mean(each), abs=1e-9)
    middle = learned.mean(0)
    if loss == "linear":  # zero against the ball's far end
        regret = 2.0 * len(learned) * np.linalg.norm(middle)
    else:
        regret = np.sum(learned**2) / 2 - np.sum((learned - middle) ** 2) / 2
    assert result.final("regret.static") == pytest.approx(regret / 3, rel=1e-4)  # a client's


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"group": "person"}, r"problem\.group"),
        ({"hold": "groups"}, r"problem\.group"),
        ({"hold": "groups", "group": "a"}, "no input"),
        ({"hold": "groups", "group": "nobody"}, "a column of pool.csv"),
        ({"split": Split(kind="column")}, r"problem\.split\.column"),
        ({"split": Split(kind="dirichlet", clients=1000)}, "one sample each at least"),
        ({"loss": "distance", "features": 5}, r"problem\.features"),
        ({"loss": "linear"}, r"problem\.loss.*stored data"),
    ],
)
def test_what_makes_no_sense_is_refused(pool, keys, said):
    with pytest.raises(BadInput, match=said):
        replace(pool[0], **keys).task(1, 10, np.float64, "stored")


def test_the_documents_example(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    (example,) = [text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[problem.split]" in text]
    draw = np.random.default_rng(1)
    rows = [
        f"{a},{b},{k % 50},{'ill' if a + b > 150 else 'well'}"
        for k, (a, b) in enumerate(draw.uniform(20, 130, (400, 2)))
    ]
    (tmp_path / "patients.csv").write_text("\n".join(["age,pressure,patient,state", *rows]) + "\n")
    (tmp_path / "federation.toml").write_text(example)
    result = Federation.load(tmp_path / "federation.toml", engine="plain").run()
    assert result.final("auc") > 0.9 and len(result.holdings.names) == 20


def test_who_has_what(pool):
    problem, *_ = pool
    made = replace(problem, split=Split(kind="dirichlet", clients=6, alpha=0.2))
    result = Federation(made, FedAvg(), rounds=2, every=1, engine="plain").run()
    held = result.holdings
    assert held.classes == ("ill", "well") and held.counts.shape == (6, 2)
    assert held.counts.sum(1).tolist() == [row["to learn from"] for row in result.listed]
    share = [float(row["of class 1"].rstrip(" %")) for row in result.listed]
    assert np.allclose(100 * held.counts[:, 1] / held.counts.sum(1), share, atol=0.06)
    page = report_page(result)
    assert "Who has what" in page and '"classes":["ill","well"]' in page


def test_targets_that_are_numbers_are_shown_by_fifths():
    y = np.arange(100.0)
    held = holdings(join([(np.zeros((50, 1)), y[:50]), (np.zeros((50, 1)), y[50:])]))
    assert held.classes[0].startswith("below 19.8") and held.classes[-1].startswith("from 79.2")
    assert held.counts.tolist() == [[20, 20, 10, 0, 0], [0, 0, 10, 20, 20]]


def test_a_network_on_one_file_holds_out_the_last_or_whole_groups(tmp_path):
    from archipel.problems.deep import own_pool

    x, y, trip = np.arange(50.0)[:, None], np.arange(50) % 2, np.arange(50) // 5
    np.savez(tmp_path / "pool.npz", x=x, y=y, trip=trip)
    last = own_pool(str(tmp_path / "pool.npz"), 1, "last")
    assert last.test_x[:, 0].tolist() == list(range(40, 50))
    apart = own_pool(str(tmp_path / "pool.npz"), 1, "groups", "trip")
    held = {int(v) // 5 for v in apart.test_x[:, 0]}
    assert len(held) == 2 and not held & {int(v) // 5 for v in apart.x[:, 0]}
    with pytest.raises(BadInput, match=r"problem\.group"):
        own_pool(str(tmp_path / "pool.npz"), 1, "groups", "trp")


def test_the_picture_in_a_sentence_names_the_kinds_and_says_a_number_once():
    shards = join([(np.zeros((4, 1)), np.array([1.0, 2, 1, 2]))] * 2, ["a", "b"])
    said = in_short(holdings(shards, ("ill", "well")))
    assert said == "2 clients learn from 4 samples each, and everyone has some of all 2 kinds (ill, well)."
    shards = join([(np.zeros((2, 1)), np.ones(2)), (np.zeros((3, 1)), np.array([1.0, 2, 2]))], ["a", "b"])
    assert "from 2 to 3 samples each, of 1 to 2 of 2 kinds (ill, well)" in in_short(holdings(shards, ("ill", "well")))
