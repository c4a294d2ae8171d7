"""FedAvg and DP-FedAvg for networks: against a loop of PyTorch's own pieces, and what is refused."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from archipel.algorithms.deep import DpFedAvgDeep, FedAvgDeep  # noqa: E402
from archipel.draws import key_of  # noqa: E402
from archipel.errors import BadInput  # noqa: E402
from archipel.federation import Federation  # noqa: E402
from archipel.generators import shuffled_batches  # noqa: E402
from archipel.privacy.policy import Privacy  # noqa: E402
from archipel.problems.deep import Deep  # noqa: E402
from archipel.problems.linear import Linear  # noqa: E402
from archipel.problems.models import networks  # noqa: E402
from archipel.testing import check_algorithm  # noqa: E402
from reference.sampling import sampled  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def stepped(module, x, y, step):
    """A step as everyone writes it (torch.optim takes seconds to import)."""
    module.zero_grad()
    loss = nn.functional.cross_entropy(module(x), y)
    loss.backward()
    with torch.no_grad():
        for p in module.parameters():
            p -= step * p.grad
    return float(loss.detach())


def test_fedavg_is_the_weighted_mean_of_local_training():
    """Against a loop written with PyTorch's own pieces, over the same batches."""
    problem = Deep(model="mlp", split="uneven", clients=3, samples=300)
    federation = Federation(problem, FedAvgDeep(0.2, 16, epochs=2), rounds=2, every=2, precision="float64")
    instance = federation.instance(1)
    engine = federation.engine_of(instance)
    source, server = instance.task.source, networks.mlp((1, 8, 8), 10, ()).double()
    nn.utils.vector_to_parameters(torch.from_numpy(instance.task.learner.start()), server.parameters())
    for n in range(2):
        total = 0.0
        for k in range(3):
            x, y = (a[source.starts[k] : source.starts[k + 1]] for a in (source.x, source.y))
            own = networks.mlp((1, 8, 8), 10, ()).double()
            own.load_state_dict(server.state_dict())
            for epoch in range(2):
                for rows in shuffled_batches(len(y), 16, key_of(1, k, n), epoch):
                    stepped(own, x[rows].double() / 16, y[rows], 0.2)
            total = total + len(y) / 300 * nn.utils.parameters_to_vector(own.parameters()).detach()
        nn.utils.vector_to_parameters(total, server.parameters())
    engine.advance(0, 2)
    expected = nn.utils.parameters_to_vector(server.parameters()).detach().numpy()
    assert instance.plan.tables["server"].model[0] == pytest.approx(expected, abs=1e-12)


def test_seeds_side_by_side_are_the_seeds_alone():
    federation = Federation(Deep(model="mlp", samples=200), FedAvgDeep(batch=8), rounds=3, every=3)
    both = federation.run(2)
    alone = [federation.with_(seed=seed).run().models[0]["server"] for seed in (1, 2)]
    assert all((one["server"] == two).all() for one, two in zip(both.models, alone))
    assert (alone[0] != alone[1]).any()


def test_fedavg_beats_the_nearest_mean_picture():
    train, test, _ = Deep(clients=5).dealt(1)
    means = np.stack([train.x[train.y == digit].mean(0).ravel() for digit in range(10)])
    nearest = ((test.x.reshape(len(test.y), 1, -1) - means) ** 2).sum(2).argmin(1)
    result = Federation(Deep(model="mlp", clients=5), FedAvgDeep(0.2, 16), rounds=15, every=15).run()
    assert 0.8 < np.mean(nearest == test.y) < result.final("accuracy")


def test_what_every_algorithm_keeps_to():
    """On linear models too: the algorithm knows a model as a flat vector only."""
    problem = Linear(clients=5, size=6, samples=40, test=100, noise=0.1)
    check_algorithm(Federation(problem, FedAvgDeep(batch=20), rounds=4))
    result = Federation(problem, FedAvgDeep(batch=20, step=0.05), rounds=40, every=40).run()
    assert 0.01 * 0.7 < result.final("mse") < 0.01 * 1.5  # the noise of the observations is left


def test_local_steps_end_an_epoch_early():
    def moved(**settings):
        federation = Federation(Deep(model="mlp", samples=200), FedAvgDeep(batch=5, **settings), rounds=1, every=1)
        return federation.run().models[0]["server"]

    assert (moved(local_steps=4) == moved()).all()  # 20 samples each, batches of 5
    assert (moved(local_steps=3) != moved()).any()


@pytest.mark.parametrize("sampling", ["uniform", "weight", "optimal"])
def test_a_server_that_samples_asks_by_chance_and_merges_without_bias(sampling):
    """FedAvg with algorithm 1's lines 2 to 5 and 15, written again for linear models and whole batches."""
    problem = Linear(clients=6, size=5, samples=30, test=20)
    algorithm = FedAvgDeep(0.05, 30, sampling=sampling, draws=3, pretrain=1)
    federation = Federation(problem, algorithm, rounds=9, every=9, precision="float64")
    instance = federation.instance(1)
    engine, source = federation.engine_of(instance), instance.task.source
    x, y = source.x.reshape(6, 30, 5), source.y.reshape(6, 30)
    model, weight, asked = np.zeros(5), np.full(6, 1 / 6), np.zeros(6)
    slopes = np.array([2 * x[k].T @ (x[k] @ model - y[k]) / 30 for k in range(6)])
    norms = np.linalg.norm(slopes, axis=1)
    chance = norms / norms.sum() if sampling == "optimal" else weight  # corollary 1: nothing is noised
    assert chance.max() < 1 / 3
    for n in range(9):
        counts = sampled(chance, 3, 1, n) if n else np.ones(6)
        share = counts * weight / (3 * chance) if n else weight
        model = model - 0.05 * sum(share[k] * 2 * x[k].T @ (x[k] @ model - y[k]) / 30 for k in range(6))
        asked += counts > 0
        engine.advance(n, n + 1)
        assert instance.plan.tables["server"].model[0] == pytest.approx(model, abs=1e-10)
    assert instance.plan.tables["client"].share.asked[:, 0].tolist() == asked.tolist()
    assert instance.plan.tables["server"].share.chance[0] == pytest.approx(chance)


def test_dp_fedavg_bounds_clients_pays_and_stops():
    algorithm = DpFedAvgDeep(step=0.1, batch=8, clip=0.1, epsilon=2.0, asked=0.5)
    federation = Federation(Deep(model="mlp", samples=200), algorithm, rounds=6, every=6)
    instance = federation.instance(1)
    engine = federation.engine_of(instance)
    before = instance.plan.tables["server"].model[0].copy()
    engine.advance(0, 6)
    accountant, tables = instance.plan.accountant, instance.plan.tables
    assert 1.9 < accountant.paid(tables).epsilon[0] <= 2.0 and accountant.terms.unit == "client"
    assert accountant.forecast().epsilon[0] == accountant.paid(tables).epsilon[0]
    # noise of deviation sigma / (q N) a round, on top of updates that move the mean by clip at most
    moved = instance.plan.tables["server"].model[0] - before
    expected = tables["server"].protect.noise[0, 0] / 5 * np.sqrt(6)
    assert moved.std() == pytest.approx(expected, rel=0.1)
    after = instance.plan.tables["server"].model[0].copy()
    engine.advance(6, 8)
    assert (instance.plan.tables["server"].model[0] == after).all() and accountant.paid(tables).epsilon[0] <= 2.0


def test_a_model_that_diverges_says_where():
    with pytest.raises(BadInput, match=r"finite ones; a smaller step|became NaN") as caught:
        Federation(Deep(model="mlp", samples=200), FedAvgDeep(step=1e30, batch=5), rounds=5).run()
    assert any("in round" in note and "client" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("kind", "change", "key"),
    [
        (FedAvgDeep, {"batch": 1000}, "algorithm.batch"),
        (FedAvgDeep, {"step": 0.0}, "algorithm.step"),
        (FedAvgDeep, {"epochs": 0}, "algorithm.epochs"),
        (FedAvgDeep, {"local_steps": -1}, "algorithm.local_steps"),
        (FedAvgDeep, {"asked": 0.0}, "algorithm.asked"),
        (FedAvgDeep, {"sampling": "optimum"}, "algorithm.sampling"),
        (FedAvgDeep, {"sampling": "uniform", "draws": 10}, "algorithm.draws"),
        (FedAvgDeep, {"sampling": "uniform", "asked": 0.5}, "algorithm.asked"),
        (FedAvgDeep, {"sampling": "optimal", "pretrain": 0}, "algorithm.pretrain"),
        (DpFedAvgDeep, {"clip": 0.0}, "algorithm.clip"),
        (DpFedAvgDeep, {"epsilon": 0.0}, "algorithm.epsilon"),
        (DpFedAvgDeep, {"epsilon": 1e-300}, "algorithm.epsilon"),
        (DpFedAvgDeep, {"delta": 0.0}, "algorithm.delta"),
    ],
)
def test_fedavg_refuses(kind, change, key):
    with pytest.raises(BadInput) as caught:
        Federation(Deep(model="mlp"), kind(**change), rounds=2).instance()
    assert caught.value.key == key


def test_a_privacy_table_is_refused():
    for algorithm in (FedAvgDeep(), DpFedAvgDeep()):
        with pytest.raises(BadInput) as caught:
            Federation(Deep(model="mlp"), algorithm, privacy=Privacy(epsilon=1.0), rounds=2).instance()
        assert caught.value.key == "privacy"
