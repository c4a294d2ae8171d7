"""A federation that is all the user's own: data, server graph, who is where, who belongs together; and its report."""

import numpy as np
import pytest

from archipel import Federation
from archipel.errors import BadInput

CLIENTS = [f"pump-{i}" for i in range(8)]
DESCRIPTION = """
rounds = 40
every = 10
engine = "plain"

[problem]
kind = "files"
data = "data"
standardise = false
judged = "own"

[topology]
kind = "servers"
servers = 3
edges = "edges.csv"
members = "members.csv"
clusters = 2
groups = "groups.csv"

[algorithm]
kind = "pgfl"
tau = 0.1
decay = 0.8
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(3)
    (tmp_path / "data").mkdir()
    for i, name in enumerate(CLIENTS):
        x = rng.normal(size=(30, 3))
        y = x @ np.array([1.0, 2.0, 3.0]) * (1 if i % 2 else -1) + 0.1 * rng.normal(size=30)
        np.savez(tmp_path / "data" / f"{name}.npz", x=x, y=y)
    (tmp_path / "edges.csv").write_text("source,target\nnorth,west\nwest,south\n")
    where = ["north", "west", "south"]
    rows = "".join(f"{name},{where[i % 3]}\n" for i, name in enumerate(CLIENTS))
    (tmp_path / "members.csv").write_text("client,server\n" + rows)
    rows = "".join(f"{name},{'odd' if i % 2 else 'even'}\n" for i, name in enumerate(CLIENTS))
    (tmp_path / "groups.csv").write_text("client,cluster\n" + rows)
    (tmp_path / "own.toml").write_text(DESCRIPTION)
    return tmp_path


def test_a_users_own_federation_learns_each_clusters_model(folder):
    result = Federation.load(folder / "own.toml").run()
    assert result.final("mse") < 0.05  # the noise is 0.01; a model for all would have 14
    for name, model in zip(CLIENTS, result.models[0]["clients"]):
        sign = 1 if int(name[-1]) % 2 else -1
        assert np.allclose(model, sign * np.array([1.0, 2.0, 3.0]), atol=0.2)


def test_its_report_has_a_map_and_a_curve_for_each(folder):
    saved = Federation.load(folder / "own.toml").run().save(folder / "out")
    page = (saved / "report.html").read_text(encoding="utf-8")
    assert "3 servers with 2 links among them and 8 clients, in 2 clusters of 4 to 4" in page
    assert all(name in page for name in ("north", "west", "south"))
    assert "of each client" in page and "pump-3" in page
    assert "rounds beyond (28) from zero" in page and "rounds beyond (28) from the optimum" in page


def test_a_report_of_peers_has_everyones_tau(tmp_path):
    from archipel.algorithms.npfl import NpflRl
    from archipel.problems.clustered import Related
    from archipel.topology import Peers

    problem = Related(clients=9, size=3, samples=(6, 9), test=5)
    peers = Federation(problem, NpflRl(), Peers(mean_degree=4.0, clusters=3), rounds=6, every=2, engine="plain")
    page = (peers.run(2).save(tmp_path) / "report.html").read_text(encoding="utf-8")
    assert "What is borrowed: tau" in page and "of each cluster" in page and "9 peers with 18 links" in page


@pytest.mark.parametrize(
    "file, text, sentence",
    [
        ("groups.csv", "client,cluster\npump-0,odd\npump-1,even\n", "a cluster for every client"),
        ("groups.csv", "client,cluster\n" + "".join(f"{name},odd\n" for name in CLIENTS), "2 different clusters"),
        ("members.csv", "client,server\npump-0,north\n", "every client"),
        ("edges.csv", "source,target\nnorth,west\n", "3 different servers"),
        ("edges.csv", "source,target\nnorth,north\nwest,south\n", "itself"),
    ],
)
def test_files_that_do_not_fit_are_sentences(folder, file, text, sentence):
    (folder / file).write_text(text)
    if file == "edges.csv" and "3 different" in sentence:
        (folder / "members.csv").write_text((folder / "members.csv").read_text().replace("south", "west"))
    with pytest.raises(BadInput, match=sentence):
        Federation.load(folder / "own.toml").run()


def test_judged_by_own_samples_needs_some_of_everyone(folder):
    text = DESCRIPTION.replace('judged = "own"', 'judged = "mine"')
    (folder / "own.toml").write_text(text)
    with pytest.raises(BadInput, match="own, together"):
        Federation.load(folder / "own.toml").run()
    (folder / "test").mkdir()
    np.savez(folder / "test" / "pump-0.npz", x=np.ones((4, 3)), y=np.ones(4))
    (folder / "own.toml").write_text(DESCRIPTION.replace('data = "data"', 'data = "data"\ntest = "test"'))
    with pytest.raises(BadInput, match="of every client"):
        Federation.load(folder / "own.toml").run()
