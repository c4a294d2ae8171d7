"""Deep models: flat vectors against PyTorch's own optimiser, clipping against a loop over examples, data, refusals."""

import sys
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from archipel.algorithms.online import PaoFed  # noqa: E402
from archipel.errors import BadInput, Missing  # noqa: E402
from archipel.federation import Federation  # noqa: E402
from archipel.problems.deep import Deep, cross_entropy, squared  # noqa: E402
from archipel.problems.models import networks  # noqa: E402
from archipel.problems.models.networks import Network, Units  # noqa: E402
from archipel.problems.stored import Shard  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pictures(count, side=9, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.uniform(0, 1, (count, 1, side, side)))
    return Shard(x, torch.from_numpy(rng.integers(0, 4, count)))


def network(module, data, loss=cross_entropy):
    return Network(module, loss, data.x, Units(), np.float64)


class Residual(nn.Module):
    """Branches, and a nonlinearity that overwrites what it is given."""

    def __init__(self):
        super().__init__()
        self.first, self.side = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(1, 3, 1, bias=False)
        self.last = nn.Linear(3 * 81, 4, bias=False)

    def forward(self, x):
        return self.last((torch.relu_(self.first(x)) + self.side(x)).flatten(1))


class Twice(nn.Module):
    """One layer, used twice: no layer's gradient alone."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(81, 81), nn.Linear(81, 4)

    def forward(self, x):
        x = x.flatten(1)
        return self.last(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Rows(nn.Module):
    """A linear layer that runs over rows."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(9, 5), nn.Linear(45, 4)

    def forward(self, x):
        return self.last(torch.tanh(self.inner(x[:, 0])).flatten(1))


class Mixing(nn.Module):
    """Samples are centred by their mean: what comes back to a layer is not an example's alone."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(81, 4)

    def forward(self, x):
        x = x.flatten(1)
        return self.last(x - x.mean(0))


class Pieces(nn.Module):
    """One layer on all rows of all samples: what stands where samples do is a row."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(9, 4)

    def forward(self, x):
        return self.last(x.reshape(-1, 9)).reshape(len(x), 9, 4).sum(1)


class RowsFirst(Pieces):
    """The same, with samples behind the rows."""

    def forward(self, x):
        return self.last(x[:, 0].transpose(0, 1)).sum(0)


class Tied(nn.Module):
    """A weight that is used beside its layer too; the last layer begins at zero and passes nothing back."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(81, 6), nn.Linear(81, 4)
        nn.init.zeros_(self.last.weight)

    def forward(self, x):
        return self.last(torch.tanh(self.inner(x.flatten(1))) @ self.inner.weight)


class Scaled(nn.Module):
    """A parameter that is one number, and one that does nothing."""

    def __init__(self):
        super().__init__()
        self.last, self.idle, self.scale = nn.Linear(81, 4), nn.Linear(81, 4), nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.scale * self.last(x.flatten(1))


class Choosing(Twice):
    """It looks at its answers: nothing that can be mapped over."""

    def forward(self, x):
        out = super().forward(x)
        return out if out.sum().item() > 0 else 2 * out


MODULES = {
    "cnn": (lambda: networks.cnn((1, 9, 9), 4, (3, 4, 5)), True),
    "mlp": (lambda: networks.mlp((1, 9, 9), 4, (7, 6)), True),
    "strides": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(165, 4),
        ),
        True,
    ),
    "residual": (Residual, True),
    "rows": (Rows, True),
    "twice": (Twice, False),
    "mixing": (Mixing, False),
    "pieces": (Pieces, False),
    "rows first": (RowsFirst, False),
    "tied": (Tied, False),
    "scaled": (Scaled, False),
    "choosing": (Choosing, False),
    "norm": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(196, 4)),
        False,
    ),
}


# --- flat vectors -------------------------------------------------------------------------------------------


def test_parameters_are_views_of_the_vector():
    data = pictures(3)
    net = network(networks.mlp((1, 9, 9), 4, (5,)), data)
    model = net.start()
    net.bind(model)
    model[:] = np.arange(net.size)
    assert np.concatenate([p.detach().numpy().ravel() for p in net.parameters]).tolist() == model.tolist()
    net.parameters[0].data.fill_(-1.0)
    assert (model[: net.sizes[0]] == -1).all() and model[-1] == net.size - 1


def stepped(module, x, y, step):
    """A step as everyone writes it (torch.optim takes seconds to import)."""
    module.zero_grad()
    loss = nn.functional.cross_entropy(module(x), y)
    loss.backward()
    with torch.no_grad():
        for p in module.parameters():
            p -= step * p.grad
    return float(loss.detach())


def test_steps_are_those_of_pytorch():
    data = pictures(40)
    module = networks.cnn((1, 9, 9), 4, (3, 4, 5))
    net = network(module, data)
    model, out = net.start(), np.zeros(net.size)
    own = networks.cnn((1, 9, 9), 4, (3, 4, 5)).double()
    with torch.no_grad():
        for p, q in zip(own.parameters(), net.views(net.start())):
            p.copy_(q)
    for start in range(0, 40, 8):
        rows = np.arange(start, start + 8)
        loss = net.gradient(out, model, data, rows)
        before = model.copy()
        net.descend(model, data, rows, 0.3)
        assert model == pytest.approx(before - 0.3 * out, abs=1e-14)
        theirs = stepped(own, data.x[rows], data.y[rows], 0.3)
        assert loss == pytest.approx(theirs, rel=1e-12)
    flat = np.concatenate([p.detach().numpy().ravel() for p in own.parameters()])
    assert model == pytest.approx(flat, abs=1e-12)
    assert np.abs(model - net.start()).max() > 1e-3


def clipped_slowly(module, data, rows, bound, loss, norm=2):
    """One example after another, by hand."""
    total = 0.0
    for i in rows:
        module.zero_grad()
        loss(module(data.x[i : i + 1]), data.y[i : i + 1]).backward()
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
        gradient = np.concatenate([slope.numpy().ravel() for slope in slopes])
        total = total + gradient * min(1.0, bound / np.linalg.norm(gradient, norm))
    return total


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("bound", "norm"), [(0.05, 2), (1.0, 2), (1e6, 2), (2.0, 1), (30.0, 1)])
def test_clipping_is_that_of_a_loop_over_examples(name, bound, norm):
    build, layered = MODULES[name]
    torch.manual_seed(1)
    data = pictures(20, seed=2)
    net = network(build(), data)
    assert bool(net.layered) == layered
    model, out, rows = net.start(), np.zeros(net.size), np.array([1, 4, 5, 17])
    net.clipped_sum(out, model, data, rows, bound, norm)
    net.bind(model)
    expected = clipped_slowly(net.module, data, rows, bound, cross_entropy, norm)
    assert out == pytest.approx(expected, rel=1e-9, abs=1e-10)
    assert np.linalg.norm(out, norm) <= bound * len(rows)
    assert all(p.requires_grad for p in net.parameters)


def test_what_does_nothing_has_a_gradient_of_zero():
    data = pictures(6)
    net = network(Scaled(), data)
    model, out = net.start(), np.ones(net.size)
    net.gradient(out, model, data, np.arange(6))
    net.clipped_sum(clipped := np.ones(net.size), model, data, np.arange(6), 1e6)
    net.descend(model, data, np.arange(6), 0.5)
    assert out == pytest.approx(clipped / 6, abs=1e-14) and model == pytest.approx(net.start() - 0.5 * out, abs=1e-14)
    assert np.count_nonzero(out == 0) == 81 * 4 + 4 and len(net.twins(2)) == 2


def test_a_module_that_needs_several_samples_is_not_clipped():
    """A norm over the batch without a memory: nobody's gradient is its own."""
    data = pictures(6)
    net = network(nn.Sequential(nn.BatchNorm2d(1, affine=False, track_running_stats=False), Residual()), data)
    model = net.start()
    net.gradient(np.zeros(net.size), model, data, np.arange(6))
    flat = network(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(81, 0.1, None, False, False), nn.Linear(81, 4)), data)
    with pytest.raises(BadInput, match="takes each sample alone") as caught:
        flat.clipped_sum(np.zeros(flat.size), flat.start(), data, np.arange(6), 1.0)
    assert caught.value.key == "problem.model"
    assert not net.layered and (model == net.start()).all() and all(p.requires_grad for p in net.parameters)


@pytest.mark.parametrize("norm", [1, 2])
def test_clipping_in_single_precision_stays_within_the_bound(norm):
    """Rounding must not carry an example's gradient beyond what the noise was made for."""
    rng = np.random.default_rng(5)
    x = torch.from_numpy(rng.integers(0, 256, (64, 1, 28, 28)).astype(np.uint8))
    data = Shard(x, torch.from_numpy(rng.integers(0, 10, 64)))
    net = Network(networks.cnn((1, 28, 28), 10, ()), cross_entropy, x, Units(255.0), np.float32)
    out = np.zeros(net.size, np.float32)
    for i in range(64):
        net.clipped_sum(out, net.start(), data, np.array([i]), 0.01, norm)
        assert 0.0099 < np.linalg.norm(out.astype(float), norm) <= 0.01


def test_large_batches_are_summed_in_parts(monkeypatch):
    data = pictures(30)
    net = network(networks.cnn((1, 9, 9), 4, ()), data)
    whole, parts = np.zeros(net.size), np.zeros(net.size)
    net.clipped_sum(whole, net.start(), data, np.arange(30), 0.5)
    monkeypatch.setattr("archipel.problems.models.per_example.CHUNK", 7)
    net.clipped_sum(parts, net.start(), data, np.arange(30), 0.5)
    assert parts == pytest.approx(whole, abs=1e-12)


def test_squared_loss_of_a_linear_module_is_least_squares():
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((50, 3)), rng.standard_normal(50)
    data = Shard(torch.from_numpy(x), torch.from_numpy(y))
    net = network(nn.Linear(3, 1, bias=False), data, squared)
    model, out = net.start(), np.zeros(3)
    assert net.gradient(out, model, data, np.arange(50)) == pytest.approx(np.mean((x @ model - y) ** 2))
    assert out == pytest.approx(2 * x.T @ (x @ model - y) / 50)


# --- data ---------------------------------------------------------------------------------------------------


def task_of(problem, seed=1):
    return problem.task(seed, 10, np.float32, "deep")


def labels_of(task):
    starts, y = task.source.starts, task.source.y.numpy()
    return [y[a:b] for a, b in pairwise(starts)]


@pytest.mark.parametrize(
    ("split", "settings"),
    [("iid", {}), ("uneven", {"power": 0.5}), ("shards", {"each": 1}), ("label-shards", {"pieces": 2})]
    + [("dirichlet", {"alpha": 0.1}), ("unbalanced", {"fewest": 2, "most": 2})],
)
def test_digits_in_every_split(split, settings):
    task = task_of(Deep(split=split, clients=8, **settings))
    labels = labels_of(task)
    assert len(labels) == task.clients == 8 and sum(map(len, labels)) == 1437 and min(map(len, labels)) > 0
    assert task.source.x.dtype == torch.uint8 and tuple(task.source.x.shape[1:]) == (1, 8, 8)
    kinds = [len(set(mine)) for mine in labels]
    assert {"iid": min(kinds) == 10, "uneven": min(kinds) >= 8}.get(split, max(kinds) < 10 or split == "dirichlet")


def test_a_client_for_each_value_of_a_column(tmp_path):
    rng = np.random.default_rng(0)
    who = rng.choice(["ann", "bob", "eve"], 60)
    x, y = rng.standard_normal((60, 5)), rng.integers(0, 3, 60)
    np.savez(tmp_path / "own.npz", x=x, y=y, who=who, x_test=x[:6], y_test=y[:6])
    task = task_of(Deep(data=str(tmp_path / "own.npz"), model="mlp", split="column", column="who"))
    assert task.names == ("ann", "bob", "eve")
    assert [len(m) for m in labels_of(task)] == [int(np.sum(who == n)) for n in task.names]
    with pytest.raises(BadInput, match=r"problem.column = \"whom\": expected \"who\""):
        task_of(Deep(data=str(tmp_path / "own.npz"), model="mlp", split="column", column="whom"))
    by_label = task_of(Deep(split="column", column="label"))
    assert by_label.clients == 10 and all(len(set(m)) == 1 for m in labels_of(by_label))


def test_own_data_without_a_test_set_holds_a_fifth_out(tmp_path):
    x = np.arange(100.0)[:, None] * np.ones(3)
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(100) % 4)
    task = task_of(Deep(data=str(tmp_path / "own.npz"), model="mlp", clients=5))
    assert len(task.source.y) == 80 and len(set(task.source.x[:, 0].tolist())) == 80


def test_a_folder_with_a_file_a_client(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        np.savez(tmp_path / f"{name}.npz", x=rng.standard_normal((20, 4)), y=rng.integers(0, 2, 20))
    task = task_of(Deep(data=str(tmp_path), model="mlp"))
    assert task.names == ("one", "two") and task.clients == 2 and len(task.source.y) == 32


def test_the_score_is_the_share_of_right_answers():
    problem = Deep(model="mlp", activation="tanh", center=0.3, spread=0.4)
    task = task_of(problem)
    net, model = task.learner, task.learner.start()
    pool = problem.dealt(1)[1]
    first, bias, last, offset = [v.numpy() for v in net.views(model)]
    hidden = np.tanh((pool.x.reshape(len(pool.y), -1) / 16.0 - 0.3) / 0.4 @ first.T + bias)
    answers = hidden @ last.T + offset
    score = task.score({"server": model}, 0)
    assert score["accuracy"] == pytest.approx(np.mean(answers.argmax(1) == pool.y))
    likely = answers - np.log(np.exp(answers).sum(1, keepdims=True))
    assert score["loss"] == pytest.approx(-likely[np.arange(len(pool.y)), pool.y].mean(), rel=1e-5)
    each = task.score({"clients": np.stack([model, 0 * model])}, 0)
    assert each["accuracy.node"][0] == pytest.approx(score["accuracy"])
    assert each["loss.node"][1] == pytest.approx(np.log(10), rel=1e-6)


def test_shrunk_pictures_are_means_of_squares():
    whole, small = Deep().dealt(1)[0].x, Deep(shrink=4).dealt(1)[0].x
    assert small.shape == (1437, 1, 2, 2)
    assert small[7, 0, 1, 0] == np.rint(whole[7, 0, 4:, :4].mean())


# --- a user's own module ------------------------------------------------------------------------------------

OWN = """
import torch
class Net(torch.nn.Sequential):
    def __init__(self, shape, answers):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(shape[1] * shape[2], answers))
def fixed():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
def undefined():
    net = fixed()
    net[1].weight.data.fill_(float("nan"))
    return net
def narrow():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 9))
def mixing():
    return torch.nn.Sequential(torch.nn.BatchNorm2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10))
def forgetful():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(64, 10))
def for_rows():
    return torch.nn.Linear(64, 10)
def needy(a, b, c): ...
def broken():
    return torch.nn.Linear(64)
class Lost(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
    def forward(self, x):
        return self.lair(x)
def nothing(): ...
"""

DESCRIPTION = """
rounds = 3
every = 3
[problem]
kind = "deep"
model = "MODEL"
clients = 4
[algorithm]
kind = "fedavg-deep"
"""


def test_a_module_from_a_file_beside_the_description(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "my_model.py").write_text(OWN)
    (tmp_path / "federation.toml").write_text(DESCRIPTION.replace("MODEL", "inner/my_model.py:Net"))
    (tmp_path / "plain.toml").write_text(DESCRIPTION.replace("MODEL", "mlp"))
    monkeypatch.chdir(tmp_path / "inner")
    result = Federation.load(tmp_path / "federation.toml").run()
    assert result.models[0]["server"].shape == (650,)
    assert result.final("accuracy") > 0.5
    assert Federation.load(tmp_path / "plain.toml").run().models[0]["server"].shape == (64 * 32 + 32 + 330,)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("my_model.py:undefined", "answers are finite: it returned NaN"),
        ("my_model.py:narrow", "gives 10 answers a sample"),
        ("my_model.py:mixing", "no BatchNorm2d"),
        ("my_model.py:forgetful", "no dropout"),
        ("my_model.py:for_rows", r"takes samples of shape \(1, 8, 8\)"),
        ("my_model.py:Nett", 'expected a class or function of my_model.py: "Net"'),
        ("my_model.py:broken", "a broken that can be built .TypeError"),
        ("my_model.py:Lost", r"takes samples of shape \(1, 8, 8\) .*lair"),
        ("half.py:Net", "half.py that Python can load .SyntaxError"),
        ("my_model.py:needy", "built from nothing, or from"),
        ("my_model.py:nothing", "a torch.nn.Module, not NoneType"),
        ("other.py:Net", "a Python file that exists"),
        ("cn", '"cnn"'),
    ],
)
def test_models_that_are_refused(tmp_path, monkeypatch, model, sentence):
    (tmp_path / "my_model.py").write_text(OWN)
    (tmp_path / "half.py").write_text("class Net(")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=sentence) as caught:
        task_of(Deep(model=model))
    assert caught.value.key == "problem.model"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"dataset": "digit"}, "dataset"),
        ({"split": "shard"}, "problem.split"),
        ({"widths": (3,)}, "problem.widths"),
        ({"loss": "cross"}, "problem.loss"),
        ({"samples": 10_000}, "problem.samples"),
        ({"clients": 2_000}, "problem.clients"),
        ({"data": "nowhere.npz"}, "problem.data"),
        ({"shrink": 3}, "problem.shrink"),
        ({"spread": 0.0}, "problem.spread"),
        ({"activation": "tan"}, "problem.activation"),
    ],
)
def test_data_that_is_refused(change, key):
    with pytest.raises(BadInput) as caught:
        task_of(Deep(**change))
    assert caught.value.key == key


def test_without_pytorch_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Missing, match=r"pip install 'archipel\[deep\]'"):
        task_of(Deep())


def test_algorithms_for_linear_models_refuse_a_network():
    with pytest.raises(BadInput, match="deep ones go with pldp-fl"):
        Federation(Deep(), PaoFed()).check()
