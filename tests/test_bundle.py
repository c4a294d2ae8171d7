"""A model one can use: what a bundle predicts is what the run scored, with NumPy alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import archipel
from archipel import Federation, Files, Linear, PaoFed, Peers, Synthetic
from archipel.algorithms.fedavg import FedAvg
from archipel.algorithms.gossip import Gossip
from archipel.bundle import TEXT, load
from archipel.errors import BadInput
from archipel.problems.clustered import Related
from archipel.problems.synthetic import SEEN, target

SITES = ("north", "pier 1", "south")
ALONE = Path(__file__).parent / "reference" / "numpy_alone.py"


def tables(folder, labels=False):
    """Sites' files to learn from and others to test on, in units that are nobody's standard ones."""
    draw = np.random.default_rng(5)
    for part, rows in (("train", 40), ("test", 15)):
        (folder / part).mkdir(parents=True)
        for k, name in enumerate(SITES):
            temperature, depth = 12 + 6 * draw.standard_normal(rows), 400 + 90 * draw.standard_normal(rows)
            ward = draw.choice(["a", "b", "c"], rows)
            y = (
                33
                + (0.4 + 0.1 * k) * (temperature - 12)
                - 0.01 * depth
                + (ward == "b")
                + 0.1 * draw.standard_normal(rows)
            )
            told = np.where(y > np.median(y), "ill", "well") if labels else y
            lines = [",".join(map(str, row)) for row in zip(depth, ward, told, temperature)]
            (folder / part / f"{name}.csv").write_text("\n".join(["depth,ward,salinity,temperature", *lines]) + "\n")
    return folder


def files(folder, labels=False, **keys):
    where = tables(folder, labels)
    own = {"data": str(where / "train"), "test": str(where / "test"), "target": "salinity", "unit": "g/kg"}
    words = {"categories": {"ward": ["a", "b", "c"]}}
    return Files(**own, **words, **({"loss": "logistic", "positive": "ill"} if labels else {}), **keys)


def by_name(folder, name=None):
    """The test files as a user has them: columns by name, and the target."""
    found = {}
    for site in SITES if name is None else [name]:
        header, *lines = [line.split(",") for line in (folder / "test" / f"{site}.csv").read_text().splitlines()]
        for place, column in enumerate(header):
            found.setdefault(column, []).extend(line[place] for line in lines)
    return found


def cases(folder):
    """Of each kind of model: the federation, and what is asked of its bundle: (metric, rows, truth, client)."""
    draws = {"rounds": 20, "every": 10, "engine": "plain", "precision": "float64"}
    step = FedAvg(step=0.05, batch=10)
    asked = by_name
    linear, fourier = files(folder / "linear"), files(folder / "fourier", features=30, intercept=True)
    logistic, own = files(folder / "logistic", labels=True), files(folder / "own", judged="own")
    single = files(folder / "single", features=12)
    yield "linear", Federation(linear, step, **draws), [("rmse", asked(folder / "linear"), None)]
    yield (
        "fourier",
        Federation(fourier, PaoFed(step=0.2, portion=5), **draws),
        [("rmse", asked(folder / "fourier"), None)],
    )
    told = asked(folder / "logistic")
    yield "logistic", Federation(logistic, step, **draws), [("accuracy", told, None), ("loss", told, None)]
    each = [(f"rmse.node {name}", asked(folder / "own", name), name) for name in SITES]
    yield "personal", Federation(own, Gossip(step=0.05), Peers(shape="ring"), **draws), each
    rows = [("answers", asked(folder / "single"), None)]
    yield "single", Federation(single, PaoFed(step=0.2, portion=5), **{**draws, "precision": "float32"}), rows
    article = Synthetic(clients=6, features=25, test=60)
    past, noise = article.held_out(1)
    wanted = np.array([target(past, k, np.array([[1, 0.8, 0.5]], np.float32).astype(float), 0) for k in range(60)])
    drawn = {"x": past[:, SEEN].tolist(), "y": (wanted + noise).tolist()}
    yield (
        "article",
        Federation(article, PaoFed(step=0.2, portion=5), **{**draws, "precision": "float32"}),
        [("mse", drawn, None)],
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Every case, run and saved; and what a process with NumPy alone finds of it."""
    folder = tmp_path_factory.mktemp("bundles")
    runs, orders = {}, []
    for name, federation, asked in cases(folder / "data"):
        runs[name] = federation.run(), asked
        runs[name][0].save(folder / name)
        orders += [{"case": name, "model": str(folder / name / "model.npz"), "asked": one} for one in asked]
    (folder / "orders.json").write_text(json.dumps(orders))
    alone = subprocess.run(
        [sys.executable, str(ALONE), str(folder / "orders.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert alone.returncode == 0, alone.stderr
    found = {}
    for order, value in zip(orders, json.loads(alone.stdout)):
        found[order["case"], order["asked"][0]] = value
    return folder, runs, found


@pytest.mark.parametrize("case", ["linear", "fourier", "logistic", "personal", "article"])
def test_a_bundle_predicts_what_the_run_scored_with_numpy_alone(made, case):
    _, runs, found = made
    result, asked = runs[case]
    for metric, _, client in asked:
        rows = [row for row in result.named_rows() if row[1] == 20 and row[2] == metric.split()[0]]
        (scored,) = [row[3] for row in rows if client is None or row[4] == client]
        assert found[case, metric] == pytest.approx(scored, rel=1e-12, abs=0), metric
        assert scored > 0


def test_a_run_in_single_precision_is_predicted_in_it(made):
    """To the bit: the error in standard units, as the run computes it."""
    _, runs, found = made
    assert found["single", "answers"] == next(row[3] for row in runs["single"][0].rows if row[1:3] == (20, "mse"))


def test_three_lines_of_numpy_say_the_same(made, tmp_path):
    """The script of docs/model.md, as it stands there."""
    folder, runs, _ = made
    page = (Path(__file__).parents[1] / "docs" / "model.md").read_text()
    script = page.split("```python\n# by_hand.py\n")[1].split("```")[0]
    model = load(folder / "single" / "model.npz")
    rows = model.frame.table(runs["single"][1][0][1])
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "model.npz").write_bytes((folder / "single" / "model.npz").read_bytes())
    np.save(tmp_path / "rows.npy", rows)
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert np.allclose(json.loads(said.stdout), model.predict(rows), atol=1e-4)


def test_rows_come_as_arrays_by_column_or_one_by_one(made):
    folder, *_ = made
    model = load(folder / "linear" / "model.npz")
    table = by_name(folder / "data" / "linear")
    wanted = model.predict(table)
    singly = [dict(zip(table, cells)) for cells in zip(*table.values())]
    assert np.array_equal(model.predict(singly), wanted) and wanted.dtype == np.float64
    assert model.frame.columns == ("depth", "ward=a", "ward=b", "ward=c", "temperature")
    words = [[float(w == value) for w in table["ward"]] for value in "abc"]
    array = np.array([table["depth"], *words, table["temperature"]], float).T
    assert np.array_equal(model.predict(array), wanted)
    assert model.predict(array[0]) == pytest.approx(wanted[:1])
    pandas = pytest.importorskip("pandas")
    assert np.array_equal(model.predict(pandas.DataFrame(table)[["temperature", "ward", "depth"]]), wanted)


def test_rows_that_do_not_fit_are_sentences(made):
    folder, *_ = made
    model = load(folder / "linear" / "model.npz")
    good = {"depth": [400], "ward": ["a"], "temperature": [12]}
    for changed, said in (
        ({"depth": ["deep"]}, "rows, depth"),
        ({"ward": ["z"]}, 'rows, ward = "z": expected one of a, b, c'),
        ({"depth": [400, 2]}, "columns of one length"),
        ({"depth": 400}, "rows, depth = 400: expected a column: a list with a cell for each row"),
        ({"temperature": [float("nan")]}, "finite numbers"),
    ):
        with pytest.raises(BadInput, match=said):
            model.predict(good | changed)
    with pytest.raises(BadInput, match="a column temperature among them"):
        model.predict({"depth": [400], "ward": ["a"], "temprature": [12]})
    with pytest.raises(BadInput, match=r"rows of shape \(5,\): depth, ward=a"):
        model.predict(np.zeros((2, 4)))
    with pytest.raises(BadInput, match="probabilities"):
        model.probabilities(good)


def test_everyone_has_a_model_of_its_own(made):
    folder, runs, _ = made
    model = load(folder / "personal" / "model.npz")
    assert model.names == SITES
    for k, name in enumerate(SITES):
        assert np.array_equal(model.model(name), runs["personal"][0].models[0]["clients"][k])
        assert np.array_equal(model.model(k), model.model(name))
    with pytest.raises(BadInput, match="one of 3 clients \\(north, pier 1, south\\)"):
        model.model()
    with pytest.raises(BadInput, match='"north"'):
        model.model("nort")


def test_labels_are_the_users_own(made):
    folder, *_ = made
    model, table = load(folder / "logistic" / "model.npz"), by_name(folder / "data" / "logistic")
    told, chance = model.predict(table), model.probabilities(table)
    assert set(told) == {"ill", "well"} and np.array_equal(told == "ill", chance > 0.5)
    assert ((chance > 0) & (chance < 1)).all()


def test_a_bundle_says_what_it_is(made):
    folder, _runs, _ = made
    model = load(folder / "linear" / "model.npz")
    assert repr(model) == "<fedavg on files, star, after 20 rounds: server, clients>"
    assert model.told["paid"] is None and model.told["seed"] == 1 and model.frame.unit == "g/kg"
    again = Federation.from_table(__import__("tomllib").loads(model.told["description"]))
    assert again.digest() == model.told["digest"] and again.with_(rounds=7, every=3).digest() == again.digest()
    assert again.with_(seed=2).digest() != again.digest()


def test_what_was_paid_is_in_it(tmp_path):
    from archipel import Privacy, ZcdpNfl

    run = Federation(
        Linear(clients=4, size=3, samples=20, test=20), ZcdpNfl(), Peers(shape="ring"), rounds=5, every=5,
        privacy=Privacy(epsilon=2.0, clip=1.0), engine="plain",
    ).run()  # fmt: skip
    run.save(tmp_path)
    paid = load(tmp_path / "model.npz").told["paid"]
    assert paid["worst"] == run.ledger()["seeds"][0]["worst"] and 0 < paid["worst"]["epsilon"] <= 2
    assert [node["spent"] for node in paid["nodes"]] == [node["spent"] for node in run.ledger()["seeds"][0]["nodes"]]


@pytest.mark.parametrize("kind", ["at-mix", "in-turn", "individual", "summed"])
def test_what_nobody_noised_is_not_beside_what_was_paid(kind, tmp_path):
    """Where a sum is noised clients' own models are as they learned them; `archipel predict` has the common one."""
    from archipel import Privacy
    from archipel.registry import PROTECTS

    more = {"every": 2} if kind == "in-turn" else {}
    privacy = Privacy(
        epsilon=2.0, clip=1.0, unit="client", relation="replace-one" if kind == "summed" else "add-remove"
    )
    problem, algorithm = Linear(clients=12, size=3, samples=20, test=20), FedAvg(protect=PROTECTS[kind](**more))
    run = Federation(problem, algorithm, privacy=privacy, rounds=2, every=2, engine="plain").run()
    run.save(tmp_path)
    found = load(tmp_path / "model.npz")
    assert found.told["paid"]["guarantee"] == "enforced" and [*found.weights] == ["server"]
    assert (found.model() == run.models[0]["server"]).all()
    with pytest.raises(BadInput):
        found.model("client-0")


def test_related_models_predict_for_each_client(tmp_path):
    problem = Related(clients=4, tasks=2, size=3, samples=(4, 6), test=30)
    from archipel import Pgfl, Servers

    federation = Federation(
        problem, Pgfl(), Servers(servers=2, clusters=2, mean_degree=1), rounds=6, every=3, engine="plain"
    )
    result = federation.run()
    result.save(tmp_path)
    model = load(tmp_path / "model.npz")
    setup = federation.setup()
    graph, size = setup.graph, 30
    draw = np.random.default_rng([1, 402])
    truth = problem.models(draw)
    variance = draw.uniform(*problem.variances, 4)
    problem.samples_of(truth[graph.cluster], variance, draw)
    tests = [problem.observed(w, size, float(np.mean(problem.variances)), draw) for w in truth]
    each = [np.mean((tests[q][1] - model.predict(tests[q][0], k)) ** 2) for k, q in enumerate(graph.cluster)]
    assert np.mean(each) == pytest.approx(result.final("mse"), rel=1e-12)


# --- files that are not ours ----------------------------------------------------------------------------------------


def rewritten(source, path, **changes):
    """A bundle with other arrays, or other words in its text (names with a dot before them)."""
    with np.load(source) as file:
        arrays = {name: file[name] for name in file.files}
    text = json.loads(arrays[TEXT].tobytes())
    for name, value in changes.pop("text", {}).items():
        place = text["frame"] if name in text["frame"] else text
        place[name] = value
    arrays[TEXT] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    arrays |= changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


BAD = [
    {"text": {"format": 2}},
    {"text": {"names": 3}},
    {"text": {"names": ["a"]}},
    {"text": {"inputs": [4]}},
    {"text": {"inputs": []}},
    {"text": {"inputs": ["x"]}},
    {"text": {"categories": 7}},
    {"text": {"precision": "float128"}},
    {"text": {"predicts": "luck"}},
    {"text": {"predicts": "label", "labels": ["a"]}},
    {"text": {"digest": None}},
    {"text": {"target_spread": "wide"}},
    {"text": {"network": {"parameters": [["w", [2]]]}, "size": 5}},
    {TEXT: np.zeros(4, np.uint8)},
    {TEXT: None},
    {"frame.spread": np.zeros(5)},
    {"frame.center": np.zeros(4)},
    {"frame.center": None},
    {"frame.phases": np.zeros(3)},
    {"frame.scale": np.full((), np.nan)},
    {"weights.server": np.zeros(4)},
    {"weights.server": np.full(5, np.nan)},
    {"weights.server": np.array(["a"] * 5)},
    {"weights.server": np.zeros((1, 1, 1, 5))},
    {"weights.server": None, "weights.clients": None},
]


@pytest.mark.parametrize("change", BAD, ids=[str(c)[:60] for c in BAD])
def test_what_does_not_fit_together_is_refused(made, tmp_path, change):
    folder, *_ = made
    with pytest.raises(BadInput, match="model"):
        load(rewritten(folder / "linear" / "model.npz", tmp_path / "bad.npz", **change))


def test_no_pickle_no_bomb_no_torn_file(made, tmp_path):
    folder, *_ = made
    good = (folder / "linear" / "model.npz").read_bytes()
    for end in range(0, len(good), max(len(good) // 40, 1)):
        (tmp_path / "torn.npz").write_bytes(good[:end])
        with pytest.raises(BadInput, match="model"):
            load(tmp_path / "torn.npz")
    with pytest.raises(BadInput, match="model"):
        load(rewritten(folder / "linear" / "model.npz", tmp_path / "object.npz", more=np.array([{}], object)))
    np.savez_compressed(tmp_path / "bomb.npz", **{TEXT: np.zeros(1 << 20, np.uint8)})
    with pytest.raises(BadInput, match="model"):
        load(tmp_path / "bomb.npz")
    with pytest.raises(BadInput, match="a file that exists"):
        archipel.load(tmp_path / "nowhere.npz")


def places(table, before=()):
    """Every key of nested tables."""
    for name, value in table.items():
        yield (*before, name)
        if isinstance(value, dict):
            yield from places(value, (*before, name))


STRANGE = [None, 0, -1, 1e308, "x", [], {}, [[1]], 2**70, "\ud800", [None], {"a": 1}]


@pytest.mark.parametrize("kind", ["fourier", "network"])
def test_whatever_a_file_says_is_refused_with_a_sentence_or_does_no_harm(made, tmp_path, kind):
    """Every word of its text replaced by something strange, and bytes that were changed."""
    good = made[0] / "fourier" / "model.npz"
    if kind == "network":
        pytest.importorskip("torch")
        from archipel import Deep, FedAvgDeep

        small = Deep(model="mlp", clients=2, samples=60, test=20, widths=(3,))
        Federation(small, FedAvgDeep(batch=8), rounds=1, every=1).run().save(tmp_path / "run")
        good = tmp_path / "run" / "model.npz"
    with np.load(good) as file:
        arrays = {name: file[name] for name in file.files}
    text, bad, refused = json.loads(arrays[TEXT].tobytes()), tmp_path / "bad.npz", 0
    rows = np.ones((2, *text["frame"]["inputs"]))
    contents = [b"[" * 100_000]
    for place in places(text):
        for value in STRANGE:
            changed = json.loads(json.dumps(text))
            within = changed
            for name in place[:-1]:
                within = within[name]
            within[place[-1]] = value
            contents.append(json.dumps(changed).encode())
    whole, draw = good.read_bytes(), np.random.default_rng(0)
    flips = [
        (whole[:at] + bytes([value]) + whole[at + 1 :])
        for at, value in draw.integers((0, 0), (len(whole), 256), (300, 2))
    ]
    for content in (*contents, *flips):
        if len(content) == len(whole):
            bad.write_bytes(content)
        else:
            np.savez(bad, **arrays | {TEXT: np.frombuffer(content, np.uint8)})
        try:
            load(bad).predict(rows)
        except BadInput:
            refused += 1
    assert refused > 400


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(made):
    return made[0]


def test_predict_writes_the_prediction_beside_the_rows(made, archipel, tmp_path):
    folder, *_ = made
    rows = folder / "data" / "linear" / "test" / "south.csv"
    said = archipel("predict", "linear/model.npz", str(rows), "--out", str(tmp_path / "out.csv"))
    assert said.status == 0 and "15 rows" in said.out
    header, *lines = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert header == ["depth", "ward", "salinity", "temperature", "salinity predicted"]
    found, truth = (np.array([float(line[i]) for line in lines]) for i in (4, 2))
    assert f"rmse {np.sqrt(np.mean((found - truth) ** 2)):.4g} g/kg, r2 " in said.out
    assert np.array_equal(
        found, load(folder / "linear" / "model.npz").predict(by_name(folder / "data" / "linear", "south"))
    )
    said = archipel(
        "predict",
        "logistic/model.npz",
        str(folder / "data/logistic/test/south.csv"),
        "--out",
        str(tmp_path / "out.csv"),
    )
    assert said.status == 0 and "accuracy" in said.out and "probability of ill" in (tmp_path / "out.csv").read_text()


def test_a_prediction_is_written_as_the_file_is(archipel, tmp_path):
    """Semicolons and decimal commas became cells in quotes between commas, and a prediction with a point."""
    (tmp_path / "a.csv").write_text("x;y\n" + "".join(f"{i},5;{i * i % 7},0\n" for i in range(20)))
    problem = '[problem]\nkind = "files"\ndata = "a.csv"\ntarget = "y"'
    (tmp_path / "f.toml").write_text(f'rounds = 5\nengine = "plain"\n{problem}\n[algorithm]\nkind = "fedavg"\n')
    ran = archipel("run", str(tmp_path / "f.toml"), "--out", str(tmp_path / "r"))
    model, out = str(tmp_path / "r/model.npz"), tmp_path / "out.csv"
    said = archipel("predict", model, str(tmp_path / "a.csv"), "--out", str(out))
    assert ran.status == said.status == 0, ran.err + said.err
    header, first, *_ = out.read_text().splitlines()
    assert header == "x;y;y predicted" and re.fullmatch(r"0,5;0,0;-?\d+,\d+", first)
    assert archipel("predict", model, str(out), "--out", str(tmp_path / "again.csv")).status == 0
    for command in (("predict", model, str(out), "--out", str(tmp_path)), ("export", model, str(tmp_path))):
        said = archipel(*command)
        assert said.status == 2 and "a file to write, not a folder" in said.err


def test_predict_for_one_client_and_for_nobody(made, archipel, tmp_path):
    rows = str(made[0] / "data" / "own" / "test" / "north.csv")
    assert (
        archipel("predict", "personal/model.npz", rows, "--client", "pier 1", "--out", str(tmp_path / "a.csv")).status
        == 0
    )
    for options, said in (((), "one of 3 clients"), (("--client", "nort"), '"north"')):
        ended = archipel("predict", "personal/model.npz", rows, *options, "--out", str(tmp_path / "a.csv"))
        assert ended.status == 2 and said in " ".join(ended.err.split())
    (tmp_path / "short.csv").write_text("depth,ward\n1,a\n2\n")
    ended = archipel("predict", "linear/model.npz", str(tmp_path / "short.csv"))
    assert ended.status == 2 and "line 3" in ended.err


def test_nothing_is_written_over_what_is_read(made, archipel, tmp_path):
    rows, model = tmp_path / "rows.csv", tmp_path / "model.npz"
    rows.write_bytes((made[0] / "data" / "linear" / "test" / "south.csv").read_bytes())
    model.write_bytes((made[0] / "linear" / "model.npz").read_bytes())
    before = rows.read_bytes(), model.read_bytes()
    for command in (("predict", model, rows, "--out", rows), ("predict", model, rows, "--out", model)):
        ended = archipel(*map(str, command))
        assert ended.status == 2 and "which would be lost" in " ".join(ended.err.split())
    ended = archipel("export", str(model), str(model))
    assert ended.status == 2 and "which would be lost" in " ".join(ended.err.split())
    assert (rows.read_bytes(), model.read_bytes()) == before


def test_predict_refuses_what_is_no_number_and_columns_of_one_name(archipel, tmp_path):
    for text, said in (
        ("depth,ward,depth,temperature\n1,a,2,3\n", "twice.csv, column 3: 'depth'\": expected a name of its own"),
        ("depth,ward,temperature\n1,a,3\n\ndeep,a,3\n", "line 4, column depth: 'deep'\": expected a number."),
        ("depth,ward,temperature\n1,z,3\n", "twice.csv, line 2, column ward: 'z'\": expected one of a, b, c"),
        ("depth,ward,temperature,salinity\n1,a,3,low\n", "line 2, column salinity: 'low'\": expected a number."),
    ):
        (tmp_path / "twice.csv").write_text(text)
        ended = archipel("predict", "linear/model.npz", str(tmp_path / "twice.csv"), "--out", str(tmp_path / "out.csv"))
        assert ended.status == 2 and said in " ".join(ended.err.split()), ended.err
        assert not (tmp_path / "out.csv").exists()


def test_predict_leaves_open_what_lacks_a_value_and_scores_what_has_a_target(made, archipel, tmp_path):
    table, out = by_name(made[0] / "data" / "linear", "south"), tmp_path / "out.csv"
    rows = [[*map(str, cells)] for cells in zip(*(table[name] for name in ("depth", "ward", "temperature")))][:5]
    rows[1][0], rows[3][1] = "NA", ""
    wanted = load(made[0] / "linear" / "model.npz").predict(table)

    def predicted(*targets):
        lines = [",".join([*row, target]) for row, target in zip(rows, targets)]
        (tmp_path / "new.csv").write_text("\n".join(["depth,ward,temperature,salinity", *lines]))
        said = archipel("predict", "linear/model.npz", str(tmp_path / "new.csv"), "--out", str(out))
        assert said.status == 0 and "2 rows lack a value: no prediction there." in said.out, said.err
        found = [line.split(",")[-1] for line in out.read_text().splitlines()[1:]]
        assert [found[i] for i in (1, 3)] == ["", ""]
        assert [float(found[i]) for i in (0, 2, 4)] == pytest.approx([wanted[i] for i in (0, 2, 4)], rel=1e-12)
        return said.out

    said = predicted(f"{wanted[0] + 2}", "30", "", "30", f"{wanted[4] - 2}")
    assert "rmse 2 g/kg" in said and "1 row lacks a target" in said
    assert "rmse" not in predicted("", "", "", "NA", "")


def test_a_model_that_knows_means_predicts_with_them(archipel, tmp_path):
    draw = np.random.default_rng(3)
    for name in ("a", "b"):
        lines = [f"{u},{v},{u - v}" for u, v in draw.standard_normal((10, 2)).round(3).tolist()]
        (tmp_path / f"{name}.csv").write_text("\n".join(["u,v,y", *lines, ",1,2"]))
    for standardise, columns in ((True, ("u", "v")), (False, ("v",))):
        problem = Files(str(tmp_path), missing="mean", standardise=standardise, center={"v": 0.5})
        Federation(problem, FedAvg(), rounds=2, every=2, engine="plain").run().save(tmp_path / "run")
        model = load(tmp_path / "run" / "model.npz")
        assert model.frame.filled == columns
        (tmp_path / "run" / "new.csv").write_text("u,v\n1,NA\n,2\n")
        said = archipel(
            "predict", str(tmp_path / "run" / "model.npz"), str(tmp_path / "run" / "new.csv"), "--out",
            str(tmp_path / "run" / "out.csv"),
        )  # fmt: skip
        assert said.status == 0 and "filled with a mean" in said.out
        found = [line.split(",")[-1] for line in (tmp_path / "run" / "out.csv").read_text().splitlines()[1:]]
        center = np.broadcast_to(model.frame.center, 2)
        assert center[1] == 0.5 and float(found[0]) == pytest.approx(model.predict([[1, 0.5]])[0])
        if standardise:
            assert float(found[1]) == pytest.approx(model.predict([[center[0], 2]])[0])
        else:
            assert found[1] == "" and "1 row lacks a value: no prediction there." in said.out


def test_what_is_not_the_label_that_counts_is_the_other_one():
    """Where nobody sees everyone's labels, the other one has no name of its own."""
    from archipel.cli.model import score
    from archipel.problems.frame import LABEL, Frame

    frame = Frame((1,), predicts=LABEL, labels=("not ill", "ill"))
    truth = np.array(["well", "ill", "ill", "fine"], object)
    assert score(frame, np.array(["not ill", "ill", "not ill", "not ill"]), truth) == "accuracy 75 %"


@pytest.mark.parametrize("case", ["linear", "fourier", "logistic", "article"])
def test_onnx_says_the_same(made, archipel, tmp_path, case):
    runtime = pytest.importorskip("onnxruntime")
    folder, runs, _ = made
    assert archipel("export", f"{case}/model.npz", str(tmp_path / "model.onnx")).status == 0
    model = load(folder / case / "model.npz")
    given = runs[case][1][0][1]
    rows = model.frame.table(given["x"] if case == "article" else given)
    (found,) = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"rows": rows})
    wanted = model.probabilities(rows) if case == "logistic" else model.predict(rows)
    assert found.shape == wanted.shape and np.abs(found - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max())


# --- networks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_a_network_predicts_what_the_run_scored_and_so_does_onnx(tmp_path, model):
    torch = pytest.importorskip("torch")
    from archipel import Deep, FedAvgDeep
    from archipel.problems.models.networks import MODELS
    from archipel.to_onnx import save

    problem = Deep(model=model, clients=3, samples=120, test=50, center=0.2, spread=0.5)
    federation = Federation(problem, FedAvgDeep(step=0.3, batch=10), rounds=3, every=3)
    result = federation.run()
    result.save(tmp_path)
    bundle = load(tmp_path / "model.npz")
    _, test, _ = problem.dealt(1)
    assert np.mean(bundle.predict(test.x) == test.y) == result.final("accuracy")
    chance = bundle.probabilities(test.x)[np.arange(50), test.y.astype(int)]
    assert -np.log(chance).mean() == pytest.approx(result.final("loss"), rel=1e-5)
    mine = MODELS[model]((1, 8, 8), 10)
    mine.load_state_dict(bundle.state_dict())
    answers = mine(torch.from_numpy(((test.x / 16 - 0.2) / 0.5).astype(np.float32))).detach().numpy()
    assert np.abs(answers - bundle.answers(test.x)).max() < 1e-5
    runtime = pytest.importorskip("onnxruntime")
    save(bundle, tmp_path / "model.onnx")
    (found,) = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"rows": test.x.astype(float)})
    assert np.abs(found - bundle.probabilities(test.x)).max() < 1e-5


NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(64, 10)
        print("this ran")

    def forward(self, x):
        return self.out(x.flatten(1))
"""


def test_a_network_of_a_users_own_is_never_run_by_a_file(tmp_path, capsys):
    pytest.importorskip("torch")
    from archipel import Deep, FedAvgDeep
    from archipel.problems.models.networks import from_file

    (tmp_path / "net.py").write_text(NET)
    problem = Deep(model=str(tmp_path / "net.py:Net"), clients=2, samples=60, test=20)
    Federation(problem, FedAvgDeep(step=0.3, batch=10), rounds=1, every=1).run().save(tmp_path / "out")
    bundle = load(tmp_path / "out" / "model.npz")
    capsys.readouterr()
    x = np.zeros((2, 1, 8, 8))
    with pytest.raises(BadInput, match="the network itself"):
        bundle.predict(x)
    assert "this ran" not in capsys.readouterr().out
    own = from_file(str(tmp_path / "net.py:Net"), (1, 8, 8), 10)
    assert np.allclose(bundle.answers(x, module=own), bundle.state_dict()["out.bias"].numpy())
    assert bundle.predict(x, module=own).shape == (2,)
    runtime = pytest.importorskip("onnxruntime")
    from archipel.to_onnx import save

    save(bundle, tmp_path / "own.onnx", module=own)
    rows = np.random.default_rng(1).uniform(0, 16, (5, 1, 8, 8))
    (found,) = runtime.InferenceSession(tmp_path / "own.onnx").run(None, {"rows": rows})
    assert np.abs(found - bundle.probabilities(rows, module=own)).max() < 1e-5
    with pytest.raises(BadInput, match="the network of this file"):
        bundle.predict(x, module=__import__("torch").nn.Linear(3, 2))


def test_decimal_commas_are_read_and_left_as_they_are(made, archipel, tmp_path):
    folder, *_ = made
    (tmp_path / "new.csv").write_text("depth;ward;temperature;note\n400,5;a;12,25;so, so\n")
    assert (
        archipel("predict", "linear/model.npz", str(tmp_path / "new.csv"), "--out", str(tmp_path / "o.csv")).status == 0
    )
    line = (tmp_path / "o.csv").read_text().splitlines()[1]
    wanted = load(folder / "linear" / "model.npz").predict({"depth": [400.5], "ward": ["a"], "temperature": [12.25]})
    assert line == f"400,5;a;12,25;so, so;{float(wanted[0])!r}".replace(".", ",")


def test_a_network_that_predicts_numbers(tmp_path, archipel):
    pytest.importorskip("torch")
    runtime = pytest.importorskip("onnxruntime")
    from archipel import Deep, FedAvgDeep
    from archipel.to_onnx import save

    draw = np.random.default_rng(4)
    x, x_test = draw.normal(3, 2, (80, 5)), draw.normal(3, 2, (30, 5))
    np.savez(tmp_path / "own.npz", x=x, y=np.sin(x[:, 0]), x_test=x_test, y_test=np.sin(x_test[:, 0]))
    problem = Deep(data=str(tmp_path / "own.npz"), model="mlp", loss="squared", clients=2, center=3.0, spread=2.0)
    result = Federation(problem, FedAvgDeep(step=0.05, batch=8), rounds=3, every=3).run()
    result.save(tmp_path / "out")
    bundle = load(tmp_path / "out" / "model.npz")
    found = bundle.predict(x_test)
    assert np.mean((found - np.sin(x_test[:, 0])) ** 2) == pytest.approx(result.final("mse"), rel=1e-5)
    save(bundle, tmp_path / "model.onnx")
    (said,) = runtime.InferenceSession(tmp_path / "model.onnx").run(["prediction"], {"rows": x_test})
    assert said.shape == found.shape and np.abs(said - found).max() < 1e-5

    def told(**arrays):
        np.savez(tmp_path / "new.npz", **arrays)
        out = str(tmp_path / "told.csv")
        return archipel("predict", str(tmp_path / "out" / "model.npz"), str(tmp_path / "new.npz"), "--out", out)

    missing = np.where(np.arange(30)[:, None] == 3, np.nan, x_test)
    said = told(x=missing, y=np.sin(x_test[:, 0]))
    header, *lines = (tmp_path / "told.csv").read_text().splitlines()
    assert said.status == 0 and "rmse" in said.out + said.err and header == "y predicted" and lines[3] in ("", '""')
    assert [float(line) for n, line in enumerate(lines) if n != 3] == pytest.approx(np.delete(found, 3).tolist())
    for arrays in ({"y": x}, {"x": x_test[:, :4]}, {"x": x_test, "y": x}, {"x": x_test / 0.0}, {"x": np.array(["a"])}):
        said = told(**arrays)
        assert said.status == 2 and "new.npz" in said.err, arrays


# --- data sets that come by name ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["calcofi", "beijing-air", "beijing-stations"])
def test_measured_data_are_predicted_in_their_own_units(name, tmp_path):
    from archipel.algorithms.zcdp_nfl import ZcdpNfl
    from archipel.errors import Missing
    from archipel.problems.clustered import BeijingStations
    from archipel.problems.datasets import beijing, calcofi
    from archipel.problems.measured import BeijingAir, Calcofi

    draws = {"rounds": 4, "every": 4, "engine": "plain", "precision": "float64"}
    try:
        if name == "calcofi":
            federation = Federation(Calcofi(8, 800, 200, "measured", features=20), PaoFed(step=0.2, portion=5), **draws)
            data = calcofi.federate(calcofi.load(), 1, 8, 800, 200, calcofi.MEASURED)
        elif name == "beijing-air":
            federation = Federation(BeijingAir(features=10), PaoFed(step=0.2, portion=5), **draws)
            data = beijing.federate(beijing.load())
        else:
            federation = Federation(BeijingStations(), ZcdpNfl(), Peers(shape="ring"), **draws)
            data = federation.problem.split()
    except Missing:
        pytest.skip("the data are not here")
    result = federation.run()
    result.save(tmp_path)
    model = load(tmp_path / "model.npz")
    spread = model.frame.target_spread
    wanted = data.target.undo(data.test.y)
    if name == "beijing-stations":
        rows = data.inputs.undo(data.test.x[:, :-1])  # without the constant
        each = zip(model.names, zip(data.test.starts[:-1], data.test.starts[1:]))
        errors = [np.mean((model.predict(rows[a:b], who) - wanted[a:b]) ** 2) for who, (a, b) in each]
        assert np.mean(errors) / spread**2 == pytest.approx(result.final("mse"), rel=1e-9)
        assert model.frame.columns == federation.problem.columns and model.frame.target == "PM2.5"
        return
    found = model.predict(data.inputs.undo(data.test.x))
    assert np.mean((found - wanted) ** 2) / spread**2 == pytest.approx(result.final("mse"), rel=1e-9)
