"""A node builds its own part from its own data: the same row, the same settings, and no file of another is opened."""

import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from harness import Village, simulated

from archipel import Environment, Federation
from archipel.clients import Clients, Site
from archipel.deploy.view import view_of
from archipel.deployment import Deployment
from archipel.errors import BadInput
from archipel.loading import load
from archipel.node import named_leaves
from archipel.parts.mix.mean import Mean
from archipel.privacy.policy import Bounds, Privacy
from archipel.problems.deep import Deep
from archipel.problems.own import Files
from archipel.registry import ALGORITHMS
from archipel.topology import Digraph, Peers, Servers, Star

NAMES = ("ann", "bob", "cleo", "dora", "emil", "fay")
SIZES = (30, 42, 36, 54, 33, 45)
UNITS = {name: {"center": 10.0, "spread": 5.0} for name in ("a", "b", "c", "d")}
SMALL = {
    "pldp-fl": {"batch": 8, "draws": 2, "step": 0.05},
    "mirror-deep": {"batch": 8, "step": 0.05},
    "dp-fedavg-deep": {"batch": 8, "step": 0.05, "epsilon": 4.0},
    "fedavg-deep": {"batch": 8, "step": 0.05},
    "fedavg": {"batch": 5},
    "fedbuff": {"buffer": 3},
}
LATER = {  # the same kinds, otherwise
    "fedavg-deep": {"batch": 8, "step": 0.05, "sampling": "optimal", "draws": 2},
    "pldp-fl": {"batch": 8, "draws": 2, "step": 0.05, "sampling": "weight"},
    "mirror-deep": {"batch": 8, "step": 0.05, "noise": "laplace"},
    "pgfl": {"form": "published", "tau": 0.3, "force": True},
    "npfl-rl": {"policy": "dpg", "epochs": 3},
}
TOPOLOGIES = {
    "star": Star(),
    "two clusters": Star(clusters=2),
    "servers": Servers(servers=2, shape="ring"),
    "discovered": Servers(servers=2, shape="ring", clusters="discover"),
    "peers": Peers(shape="ring"),
    "peers discover": Peers(shape="ring", clusters="discover"),
    "digraph": Digraph(),
}
PRIVACY = {
    "openly": None,
    "clipped": Privacy(epsilon=2.0, clip=1.0),
    "bounded": Privacy(epsilon=2.0, bounds=Bounds(2.0, 3.0, 4.0)),
}
WEIGH = ("fedavg-deep", "pldp-fl")  # their servers may draw clients by their samples


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder a client, with two files in it."""
    base, draw = tmp_path_factory.mktemp("own"), np.random.default_rng(7)
    for name, size in zip(NAMES, SIZES):
        x = draw.normal(10, 5, (size, 3))
        y = x @ [0.5, -0.3, 0.2] + draw.normal(8, 1, size)
        (base / name / "readings").mkdir(parents=True)
        for part, rows in enumerate(np.array_split(np.c_[x, y], 2)):
            lines = "".join(",".join(map(repr, row)) + "\n" for row in rows.tolist())
            (base / name / "readings" / f"{part}.csv").write_text("a,b,c,d\n" + lines)
    return base


def problem_in(base, **keys):
    keys = {"target": "d", "columns": ("a", "b", "c"), "scale": UNITS, "features": 9} | keys
    return Files(data=str(base / "{name}" / "readings" / "*.csv"), **keys)


def padded(array, shape):
    """A node's own scratch is as long as its own data needs; everyone's as long as the longest."""
    found = np.zeros(shape, array.dtype)
    found[tuple(map(slice, array.shape))] = array
    return found


def differences(whole, mine, role, number):
    """What of a node's row and of the settings is not what everyone's data make it."""
    rows = zip(named_leaves(whole.plan.tables[role]), named_leaves(mine.plan.tables[role]))
    for (path, theirs), (_, ours) in rows:
        theirs, ours = theirs[number], ours[number]
        if not np.array_equal(theirs, padded(ours, theirs.shape), equal_nan=True):
            yield f"row.{path}"
    clients = whole.task.clients if role == whole.data_role else -1
    found = unequal(whole.plan.settings, mine.plan.settings, "settings", number, clients)
    yield from (path for path in found if clients > 0 or not path.startswith("settings.learn."))  # servers do not learn


def unequal(theirs, ours, path, number, clients):
    """Of what has a place for each client only the node's own counts."""
    if isinstance(theirs, tuple) and hasattr(theirs, "_fields"):
        for name in theirs._fields:
            yield from unequal(getattr(theirs, name), getattr(ours, name), f"{path}.{name}", number, clients)
    elif isinstance(theirs, list | tuple):
        if clients < 0 and path.endswith("ledgers"):
            return  # of clients, which a server has none of
        pairs = [(theirs[number], ours[number])] if len(theirs) == clients else zip(theirs, ours)
        for one, other in pairs:
            yield from unequal(one, other, path, number, -1)
    elif isinstance(theirs, np.ndarray):
        if theirs.ndim and len(theirs) == clients:
            theirs, ours = theirs[number], ours[number]
        if not np.array_equal(theirs, ours, equal_nan=True):
            yield path
    elif isinstance(theirs, bool | int | float | str | np.generic):
        if theirs != ours:
            yield path
    elif type(theirs) is not type(ours):
        yield path


def cases(kind, base):
    """A kind on every topology, with and without privacy, where it runs."""
    cls = ALGORITHMS[kind]
    for keys in (SMALL.get(kind, {}), LATER.get(kind)):
        for topology in TOPOLOGIES.values() if keys is not None else ():
            for policy in PRIVACY.values():
                try:
                    made = Federation(
                        problem_in(base), cls(**keys), topology, privacy=policy, rounds=25,
                        clients=Clients(NAMES, samples=SIZES),
                    )  # fmt: skip
                    yield made, made.instance()
                except BadInput:
                    continue  # it does not run so, whoever has the data


@pytest.fixture(scope="module")
def tasks():
    """What was made already, by all that it is made from beside the files."""
    return {}


@pytest.fixture
def each_task_once(tasks, monkeypatch):
    """The task of a site is the same for all kinds, topologies and policies: files are read, and looked at, once."""
    made = Files.task

    def task(problem, seed, rounds, dtype, data_kind, people):
        key = seed, rounds, dtype, data_kind, people
        if key not in tasks:
            tasks[key] = made(problem, seed, rounds, dtype, data_kind, people)
        return tasks[key]

    monkeypatch.setattr(Files, "task", task)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_a_node_needs_its_own_data_only(kind, folders, each_task_once):
    """Every kind, on all topologies that it runs on: what others' data would change is found here."""
    built = 0
    for federation, whole in cases(kind, folders):
        where = type(federation.topology).__name__, federation.privacy
        for name, role, number in [("cleo", whole.data_role, 2), ("server", "server", 0)]:
            if role not in whole.plan.tables:
                continue
            for declared in (SIZES, ()):
                site = federation.with_(clients=Clients(NAMES, samples=declared))
                try:
                    mine = site.instance(setup=site.setup(site=Site(name, folders / name)))
                except BadInput as problem:
                    assert problem.key == "clients.samples" and not declared and kind in WEIGH, (where, str(problem))
                    with pytest.raises(BadInput, match=r"clients\.samples"):
                        site.instance()  # in a simulation too
                    continue
                everyone = whole if declared else site.instance()
                assert list(differences(everyone, mine, role, number)) == [], (where, name, declared)
                built += 1
    assert built


# --- deployed, each from its own folder -----------------------------------------------------------------------------

OPENED: list[str] = []
sys.addaudithook(lambda event, given: OPENED.append(str(given[0])) if event == "open" else None)

AWAY = Environment(availability=(0.7, 0.9, 1.0))
PROTECTED = {  # kinds whose point is privacy, with it
    "zcdp-nfl": "clipped", "dp-nfl": "clipped", "zcdp-grad-nfl": "clipped", "p-admm": "bounded", "npfl-rl": "bounded",
    "mirror-descent": "clipped", "dual-averaging": "clipped", "dp-fedavg": "clipped",
}  # fmt: skip


def described(kind, base):
    """A federation of a kind on its own topology, over folders."""
    cls = ALGORITHMS[kind]
    keys = SMALL.get(kind, {})
    own = {"peers": Peers(shape="ring", clusters=2), "servers": Servers(servers=2, shape="ring", clusters=2)}
    topology = getattr(cls, "topologies", ("star",))[0]
    return Federation(
        problem_in(base), cls(**keys), own.get(topology) or {"star": Star(), "digraph": Digraph()}[topology], AWAY,
        PRIVACY[PROTECTED.get(kind, "openly")], rounds=12, clients=Clients(NAMES, samples=SIZES), engine="plain",
    )  # fmt: skip


def alone(base, folder, name):
    """A copy of a client's folder, as its own machine has it; a server's is empty."""
    folder.mkdir(parents=True)
    if name in NAMES:
        shutil.copytree(base / name / "readings", folder / "readings")
    return folder


def deployed(federation, folders, tmp_path, own):
    """Play it with every node in a folder of its own, and compare; `own` is the problem where nothing else is."""
    opened = {}

    def view(name):
        mine = federation.with_(problem=own, deploy=Deployment(pace="replay"))
        folder = alone(folders, tmp_path / name, name)
        OPENED.clear()
        found = view_of(mine, name, base=folder)
        opened[name] = {path for path in OPENED if "readings" in path}
        return found

    village = Village(federation, view=view)
    village.run()
    engine = simulated(federation)
    for role, table in engine.instance.plan.tables.items():
        for number, name in enumerate(village.roster.names[role]):
            assert len(opened[name]) == (2 if name in NAMES else 0)
            assert all(path.startswith(str(tmp_path / name)) for path in opened[name])
            mine = dict(named_leaves(village.nodes[name].player.me))
            for path, theirs in named_leaves(table):
                close = {"rtol": 0, "atol": 1e-6 if theirs.dtype == np.float64 else 1e-4}
                ours = padded(mine[path], theirs[number].shape)
                np.testing.assert_allclose(ours, theirs[number], **close, err_msg=f"{name} {path}")
    models = federation.algorithm.models(engine.instance.plan.tables)
    best = models["server"] if "server" in models else models["clients"]
    assert sum(engine.messages) > 20 and np.abs(best).max() > 1e-3


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_deployed_from_private_folders_it_ends_with_the_model_of_the_simulation(kind, folders, tmp_path):
    """Everyone's folder holds its own data only, everyone's process opens nothing else; replayed, it is the same."""
    deployed(described(kind, folders), folders, tmp_path, problem_in(tmp_path / "nowhere"))


DEEP = {
    "fedavg-deep": {"batch": 8, "sampling": "weight", "draws": 2},
    "dp-fedavg-deep": {"batch": 8, "epsilon": 8.0},
    "mirror-deep": {"batch": 8},
    "pldp-fl": {"batch": 8, "draws": 2},
}


def network(**keys):
    return Deep(model="mlp", widths=(4,), shape=(3,), spread=10.0, **keys)


@pytest.mark.parametrize("kind", DEEP)
def test_networks_too(kind, folders, tmp_path):
    """A small network on the same files, whose target is made a class."""
    pytest.importorskip("torch")
    pictures = tmp_path / "pictures"
    for name in NAMES:
        (pictures / name / "readings").mkdir(parents=True)
        for path in (folders / name / "readings").iterdir():
            rows = np.loadtxt(path, delimiter=",", skiprows=1)
            np.savez(pictures / name / "readings" / f"{path.stem}.npz", x=rows[:, :3], y=(rows[:, 3] > 10).astype(int))
    cls, place = ALGORITHMS[kind], "{name}/readings/*.npz"
    topology = Digraph() if kind == "mirror-deep" else Star()
    federation = Federation(
        network(data=str(pictures / place), classes=2), cls(step=0.05, **DEEP[kind]), topology, AWAY,
        rounds=8, clients=Clients(NAMES, samples=SIZES),
    )  # fmt: skip
    deployed(federation, pictures, tmp_path / "nodes", network(data=str(tmp_path / "nowhere" / place), classes=2))
    mine = federation.instance(setup=federation.setup(site=Site("cleo", pictures / "cleo"))).plan.tables
    rows = next(table for role, table in mine.items() if role != "server").model
    assert np.flatnonzero(rows.any(1)).tolist() == [2], "what others start from takes no memory of one's own"


def test_weights_by_samples_are_the_same_whether_they_are_public_or_said_in_words(folders, tmp_path):
    """FedAvg of networks weighs by samples: those that nobody knows beforehand come with what is said."""
    public = described("fedavg-deep", folders)
    hidden = public.with_(clients=Clients(NAMES))
    models = [simulated(one).instance.plan.tables["server"].model for one in (public, hidden)]
    np.testing.assert_allclose(*models, rtol=0, atol=1e-12)
    deployed(hidden, folders, tmp_path, problem_in(tmp_path / "nowhere"))
    alike = public.with_(algorithm=replace(public.algorithm, mix=Mean(10)))
    assert np.abs(simulated(alike).instance.plan.tables["server"].model - models[0]).max() > 1e-6


def test_a_sites_own_data_set(tmp_path):
    """A function of the client's name makes a torch data set; a site makes its own only, a server none."""
    torch = pytest.importorskip("torch")
    (tmp_path / "my_data.py").write_text(
        "import torch\nMADE = []\n\nclass Mine(torch.utils.data.Dataset):\n"
        "    def __init__(self, name):\n        self.count = 10 * len(name)\n"
        "    def __len__(self):\n        return self.count\n"
        "    def __getitem__(self, i):\n        return torch.tensor([i, 1.0, 2.0]), i % 2\n\n"
        "def make(name):\n    MADE.append(name)\n    return Mine(name)\n"
    )
    (tmp_path / "federation.toml").write_text(
        'rounds = 3\n[problem]\nkind = "deep"\ndata = "my_data.py:make"\nmodel = "mlp"\nshape = [3]\nclasses = 2\n'
        '[clients]\nnames = ["ann", "bo"]\nsamples = [30, 20]\n[algorithm]\nkind = "fedavg-deep"\nbatch = 4\n'
    )
    federation = Federation.load(tmp_path / "federation.toml")
    made = load(str(tmp_path / "my_data.py:make"), "").__globals__["MADE"]
    for name, sizes in (("bo", [0, 16]), ("server", [0, 0])):
        made.clear()
        task = view_of(federation, name, base=tmp_path).task
        assert np.diff(task.source.starts).tolist() == sizes and made == [n for n in [name] if n == "bo"]
    federation.run()
    assert isinstance(task.source.x, torch.Tensor) and set(made) == {"ann", "bo"}
