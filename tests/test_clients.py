"""[clients]: names, rosters, folders of one's own, and what is refused because nobody sees everyone's data."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from archipel import Federation, Linear
from archipel.algorithms.fedavg import FedAvg
from archipel.clients import Clients, People, Site
from archipel.errors import BadInput
from archipel.problems.own import Files

DESCRIPTION = """
rounds = 30
[problem]
kind = "files"
data = "readings/*.csv"
target = "salinity"
inputs = ["temperature", "depth"]
[problem.scale]
temperature = { unit = "°C", center = 12, spread = 6 }
depth = { unit = "m", center = 40, spread = 20 }
salinity = { unit = "g/kg", center = 30, spread = 4 }
[clients]
names = ["buoy-1", "buoy-2", "buoy-3"]
[algorithm]
kind = "fedavg"
"""
SIZES = {"buoy-1": 30, "buoy-2": 20, "buoy-3": 25}


@pytest.fixture
def folder(tmp_path):
    draw = np.random.default_rng(1)
    for name, size in SIZES.items():
        (tmp_path / name / "readings").mkdir(parents=True)
        t, d = draw.normal(12, 6, size), draw.normal(40, 20, size)
        rows = np.c_[t, d, 30 + 0.3 * (t - 12) - 0.05 * (d - 40)]
        for part, some in enumerate(np.array_split(rows, 2)):
            text = "".join(",".join(f"{cell:.6f}" for cell in row) + "\n" for row in some)
            (tmp_path / name / "readings" / f"{part}.csv").write_text("temperature,depth,salinity\n" + text)
    (tmp_path / "federation.toml").write_text(DESCRIPTION)
    return tmp_path


def loaded(folder, *changes, **more):
    text = DESCRIPTION
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "federation.toml").write_text(text)
    return Federation.load(folder / "federation.toml", **more)


def test_a_simulation_takes_the_folders_of_the_names(folder):
    """In declared units, by hand; several files of a client one after the other."""
    task = loaded(folder).setup().task
    assert task.unit == task.frame.unit == "g/kg"
    assert task.names == tuple(SIZES) and np.diff(task.source.starts).tolist() == [24, 16, 20]
    rows = np.concatenate(
        [np.loadtxt(folder / "buoy-1" / "readings" / f"{i}.csv", delimiter=",", skiprows=1) for i in (0, 1)]
    )
    mine = (rows - [12, 40, 30]) / [6, 20, 4]
    seen = {tuple(np.round(row, 9)) for row in np.c_[task.source.x[:24], task.source.y[:24]]}
    assert seen <= {tuple(np.round(row, 9)) for row in mine} and len(seen) == 24
    assert Federation.load(folder / "federation.toml").run().final("rmse") < 1.0


@pytest.mark.parametrize("written", ["{name}/readings/*.csv", "readings", "{name}/readings/[01].csv"])
def test_the_same_files_in_other_words(folder, written):
    whole = loaded(folder).setup().task.source
    found = loaded(folder, ("readings/*.csv", written)).setup().task.source
    assert all(np.array_equal(one, other) for one, other in zip(whole, found))


def test_a_description_that_was_written_out_is_the_same(folder):
    federation = loaded(folder)
    (folder / "out").mkdir()
    federation.run().save(folder / "out")
    again = Federation.load(folder / "out" / "federation.toml")
    assert np.array_equal(again.setup().task.source.x, federation.setup().task.source.x)
    assert again.clients == federation.clients


def test_the_documents_example(folder):
    page = (Path(__file__).parents[1] / "docs" / "data.md").read_text(encoding="utf-8")
    example = next(text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[clients]" in text)
    (folder / "federation.toml").write_text(example)
    assert Federation.load(folder / "federation.toml").run().final("rmse") < 2.0


def test_a_roster_file(folder):
    (folder / "roster.csv").write_text("name,samples\n" + "".join(f"{n},{k}\n" for n, k in SIZES.items()))
    names = 'names = ["buoy-1", "buoy-2", "buoy-3"]'
    people = loaded(folder, (names, 'roster = "roster.csv"')).clients.people()
    assert people == People(tuple(SIZES), tuple(SIZES.values()))
    assert loaded(folder, (names, 'roster = "roster.csv"')).setup().task.samples == (24, 16, 20)
    for text, said in [
        ("name\n", "one name"),
        ("name\nserver\n", "not server"),
        ("who\nann\n", "columns name"),
        ("name,samples\nann,0\n", "whole number"),
        ("name\nann\nann\n", "each name once"),
    ]:
        (folder / "roster.csv").write_text(text)
        with pytest.raises(BadInput, match=said):
            loaded(folder, (names, 'roster = "roster.csv"')).setup()


WRONG = {
    "no columns": (('inputs = ["temperature", "depth"]', ""), "problem.columns"),
    "no units": (('depth = { unit = "m", center = 40, spread = 20 }', ""), "units of depth"),
    "half a unit": (("center = 40, ", ""), "units of depth"),
    "another key": (("center = 40", "middle = 40"), "unit, center and spread"),
    "no target's units": (('salinity = { unit = "g/kg", center = 30, spread = 4 }', ""), "units of salinity"),
    "labels": (('[problem.scale]', 'loss = "logistic"\n[problem.scale]'), "problem.positive"),
    "wrong samples": (("[algorithm]", "samples = [30, 20, 26]\n[algorithm]"), "26 of buoy-3"),
    "too few samples": (("[algorithm]", "samples = [30, 20]\n[algorithm]"), "3 numbers"),
    "nobody's folder": (('"buoy-3"]', '"buoy-3", "buoy-4"]'), "files of buoy-4"),
    "names": (('"buoy-3"]', '"buoy 3"]'), "letters, digits"),
    "twice": (('"buoy-3"]', '"buoy-1"]'), "each name once"),
    "both words": (('target = "salinity"', 'target = "salinity"\ncolumns = ["depth"]'), "either inputs or columns"),
    "samples": (('kind = "fedavg"', 'kind = "fedavg-deep"\nbatch = 4\nsampling = "weight"'), "clients.samples"),
    "optimum": (('kind = "fedavg"', 'kind = "pgfl"\nstart = "optimum"\n[topology]\nkind = "star"'), "algorithm.start"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused(folder, what):
    change, said = WRONG[what]
    with pytest.raises(BadInput, match=said):
        loaded(folder, change).instance()


def test_a_problem_that_makes_its_clients_itself():
    with pytest.raises(BadInput, match="linear makes its clients itself"):
        Federation(Linear(), FedAvg(), clients=Clients(("ann",)))


def test_a_client_with_one_class_only(folder):
    """Which label counts is declared: a site cannot tell from its own."""
    for name, labels in (("a", "no no no no no"), ("b", "yes no yes no no")):
        (folder / name).mkdir()
        (folder / name / "x.csv").write_text("u,ill\n" + "".join(f"{i},{l}\n" for i, l in enumerate(labels.split())))
    keys = {
        "target": "ill",
        "columns": ("u",),
        "loss": "logistic",
        "positive": "yes",
        "scale": {"u": {"center": 2, "spread": 1}},
    }
    problem = Files(data=str(folder / "{name}" / "x.csv"), **keys)
    task = problem.task(1, 9, np.float64, "stored", People(("a", "b")))
    assert (
        np.diff(task.source.starts).tolist() == [4, 4]
        and set(task.source.y[:4]) == {-1.0}
        and set(task.source.y) == {-1.0, 1.0}
    )
    (folder / "a" / "x.csv").write_text("u,ill\n1,no\n2,yes\n3,maybe\n")
    with pytest.raises(BadInput, match="a: maybe, no, yes"):
        problem.task(1, 9, np.float64, "stored", People(("a", "b")))


def test_units_of_a_step_that_fits_are_those_that_are_public(folder):
    """zCDP-NFL chooses penalty and step by what is public: others' data do not change them."""
    federation = loaded(folder, ('kind = "fedavg"', 'kind = "zcdp-nfl"\n[topology]\nkind = "peers"\nshape = "ring"'))
    before = federation.algorithm.fit(federation.setup())
    (folder / "buoy-3" / "readings" / "0.csv").write_text("temperature,depth,salinity\n900,900,900\n")
    assert federation.algorithm.fit(federation.setup()) == before


# --- commands ---------------------------------------------------------------------------------------------------------


def test_a_site_looks_at_its_own_data_only(folder, archipel):
    alone = folder / "alone"
    alone.mkdir()
    (alone / "federation.toml").write_text(DESCRIPTION)
    (folder / "buoy-2" / "readings").rename(alone / "readings")
    told = archipel("check", str(alone / "federation.toml"), "--name", "buoy-2")
    assert (
        told.status == 0 and "buoy-2" in told.out and "buoy-1" not in told.out and "nothing is in the way" in told.out
    )
    for name, said in (("buoy-9", "buoy-2"), ("buoy-1", "nothing")):
        told = archipel("check", str(alone / "federation.toml"), "--name", name)
        assert (told.status, said in told.out + told.err) == ((2, True) if name == "buoy-9" else (0, True))
    assert "files of buoy-1" in archipel("check", str(alone / "federation.toml")).err


def test_privacy_says_what_is_public(folder, archipel):
    told = archipel("privacy", "federation.toml").out
    assert "declared: the names of 3 clients; the columns temperature, depth and salinity; the units" in told
    assert "said in every message: how many samples stand behind it" in told
    clipped = '[privacy]\nepsilon = 2.0\nclip = 1.0\n[algorithm]\nkind = "zcdp-nfl"\n[topology]\nkind = "peers"\n'
    clipped += 'shape = "ring"'
    loaded(folder, ('[algorithm]\nkind = "fedavg"', clipped))
    everyone = json.loads(archipel("privacy", "federation.toml", "--json").out)
    mine = json.loads(archipel("privacy", "federation.toml", "--json", "--name", "buoy-2").out)
    assert everyone["guarantee"] == "enforced", "declared units cost nothing"
    assert mine["nodes"] == [everyone["nodes"][1]] and mine["nodes"][0]["node"] == "buoy-2"
    assert mine["public"]["said in every message"] == [] and len(mine["public"]["declared"]) == 3


def test_keys_for_each_to_be_handed_over(folder, archipel):
    pytest.importorskip("cryptography")
    (folder / "roster.csv").write_text("name\n" + "".join(f"{name}\n" for name in SIZES))
    text = DESCRIPTION.replace('names = ["buoy-1", "buoy-2", "buoy-3"]', 'roster = "roster.csv"')
    (folder / "federation.toml").write_text(text + '[deploy.addresses]\nserver = "127.0.0.1:7447"\n')
    for name in SIZES:
        (folder / name).rename(folder / f"kept-{name}")  # it needs nobody's data
    assert archipel("keys", "federation.toml", "--sites", "out").status == 0
    given = {str(path.relative_to(folder / "out")) for path in (folder / "out").rglob("*") if path.is_file()}
    each = ("federation.toml", "roster.csv", "keys/authority.pem")
    wanted = {f"{name}/{file}" for name in SIZES for file in (*each, f"keys/{name}.pem", f"keys/{name}.key")}
    assert given == wanted
    own = folder / "out" / "buoy-1" / "federation.toml"
    own.write_text(edited := own.read_text() + "# a site's own note\n")
    said = archipel("keys", "federation.toml", "--sites", "out")
    assert said.status == 0 and "federation.toml.before" in said.err
    assert own.with_name("federation.toml.before").read_text() == edited and "own note" not in own.read_text()


def test_a_site_is_where_its_data_are(tmp_path):
    people = Clients(("ann",)).people(Site("ann", tmp_path))
    assert people.place("sea/{name}/deep/*.csv", "ann") == tmp_path / "deep" / "*.csv"
    assert people.place("deep/*.csv", "ann") == tmp_path / "deep" / "*.csv"
    assert people.place("sea/{name}.csv", "ann") == tmp_path / "ann.csv"
    assert not people.sees("bob") and Clients().people() is None
    with pytest.raises(BadInput, match=r"\{name\}"):
        people.place("/sea/readings.csv", "ann")


def test_names_that_cannot_be_those_of_nodes_are_said(tmp_path, archipel):
    for name in ("ann", "dev 2"):
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"{i},{i % 7}\n" for i in range(10)))
    table = f'rounds = 3\n[problem]\nkind = "files"\ndata = "{tmp_path}/*.csv"\n[algorithm]\nkind = "fedavg"\n'
    (tmp_path / "f.toml").write_text(table + '[deploy.addresses]\nserver = "127.0.0.1:7447"\n')

    def said(*command):
        ended = archipel(*command)
        assert ended.status == 0, ended.err
        return " ".join((ended.out + ended.err).split())

    assert "Deployed, dev 2 is the node dev-2" in said("check", str(tmp_path / "f.toml"))
    assert "Deployed, dev 2 is the node dev-2" in said("keys", str(tmp_path / "f.toml"), "--out", str(tmp_path / "k"))
    assert (tmp_path / "k" / "dev-2.pem").exists()
    (tmp_path / "dev 2.csv").rename(tmp_path / "server.csv")
    for command in (("check",), ("keys", "--out", str(tmp_path / "k"))):
        told = said(command[0], str(tmp_path / "f.toml"), *command[1:])
        assert "all nodes are called client-0 to client-1, in this order: server cannot be a node's name" in told
    (tmp_path / "server.csv").rename(tmp_path / "bob.csv")
    assert "Deployed" not in said("check", str(tmp_path / "f.toml"))


@pytest.mark.parametrize(
    "change, said",
    [
        (('names = ["buoy-1", "buoy-2", "buoy-3"]', "names = []"), "clients.names = []: expected at least one name"),
        (('target = "salinity"', 'target = "salinty"'), 'problem.target = "buoy-1: salinty": expected a column'),
        (('"depth"]', '"depth"]\ntest = "held/*.csv"'), "problem.test = "),
        (("temperature = {", '"sea (cold)" = {'), "as in temperature = { center = 12"),
    ],
    ids=["nobody", "target", "test files", "units"],
)
def test_what_is_wrong_is_named_by_its_own_key(folder, change, said):
    with pytest.raises(BadInput, match=re.escape(said)):
        loaded(folder, change).setup()


def test_units_are_asked_for_in_toml_of_columns_that_are_there_and_have_numbers(folder):
    for path in folder.glob("*/readings/*.csv"):
        path.write_text(path.read_text().replace("temperature", "Temp (°C)"))
    asked = ('inputs = ["temperature", "depth"]', 'inputs = ["Temp (°C)", "depth"]')
    with pytest.raises(BadInput) as problem:
        loaded(folder, asked, ("temperature =", "# ")).setup()
    example = re.search("as in (.*?), or standardise", str(problem.value)).group(1)
    assert tomllib.loads(example) == {"Temp (°C)": {"center": 12, "spread": 6}}
    for path in folder.glob("*/readings/*.csv"):
        path.write_text("Temp (°C),depth,salinity\nwarm,1,2\ncold,2,3\n")
    with pytest.raises(BadInput, match=r"column Temp.*a column of words needs its values in problem\.categories"):
        loaded(folder, asked, ("temperature =", "# ")).setup()


def test_a_pattern_of_test_files_that_finds_none_is_named_as_such(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(BadInput, match=r"^problem\.test = .*held"):
        Files(str(tmp_path), test=str(tmp_path / "held" / "*.csv")).task(1, 5, float, "stored")
