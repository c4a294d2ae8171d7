"""Inter-cluster learning as a part, shown with FedAvg on one server; FedAvg itself against descent written again."""

from dataclasses import replace

import numpy as np
import pytest

from archipel import Federation, Linear
from archipel.algorithms.fedavg import FedAvg
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.parts.learn.epochs import shuffle
from archipel.parts.mix.borrow import borrow, taus_of
from archipel.problems.clustered import Related, segments
from archipel.testing import check_algorithm
from archipel.topology import Star

SMALL = Related(clients=12, size=4, samples=(3, 9), spread=0.3, test=20)
STAR = Star(clusters=3)


def played(algorithm, topology=STAR, rounds=10, problem=SMALL):
    federation = Federation(problem, algorithm, topology, rounds=rounds, engine="plain")
    instance = federation.instance()
    federation.engine_of(instance).advance(0, rounds)
    return instance.plan.tables, federation.setup()


def test_borrowing_is_10():
    rng = np.random.default_rng(0)
    own, out = rng.normal(size=(4, 3)), np.zeros((4, 3))
    borrow(out, own, 0.3, np.ones(4))
    slow = [0.7 * own[q] + 0.3 / 3 * sum(own[r] for r in range(4) if r != q) for q in range(4)]
    assert np.allclose(out, slow)
    borrow(out, own, 0.3, np.array([1, 0, 1, 0]))
    assert np.allclose(out[0], 0.7 * own[0] + 0.3 * own[2])
    borrow(out, own, 0.3, np.array([0, 1, 0, 0]))
    assert np.allclose(out[1], own[1])  # nobody to borrow from


def test_taus_are_a_number_a_decay_or_a_list():
    assert np.allclose(taus_of(0.4, 0.98, 3), [0.4 * 0.98**n for n in (1, 2, 3)])
    assert np.allclose(taus_of((0.3, 0.2, 0.1, 0.0), 1.0, 3), [0.3, 0.2, 0.1])


def test_fedavg_with_whole_steps_is_gradient_descent_on_each_clusters_samples():
    """One step a round on all samples: the mean by samples is a step on the pooled loss."""
    tables, setup = played(FedAvg(step=0.03), rounds=12)
    (shards,) = segments(setup.task)[0]
    for q in range(3):
        rows = np.flatnonzero(setup.graph.cluster[shards.owner] == q)
        x, y, w = shards.x[rows], shards.y[rows], np.zeros(4)
        for _ in range(12):
            w = w - 0.03 * 2 * x.T @ (x @ w - y) / len(y)
        assert np.allclose(tables["server"].mix.model[0, q], w, atol=1e-12)


def test_one_cluster_ignores_tau_and_tau_mixes_the_others():
    one, _ = played(FedAvg(tau=0.5), Star())
    plain, _ = played(FedAvg(), Star())
    assert np.array_equal(one["server"].model, plain["server"].model)
    mixed, _ = played(FedAvg(tau=0.5), rounds=1)
    apart, _ = played(FedAvg(), rounds=1)
    hat = apart["server"].mix.model[0]
    expected = 0.5 * hat + 0.25 * (hat.sum(0) - hat)
    assert np.allclose(mixed["server"].mix.model[0], expected)


def test_borrowing_helps_clusters_with_little_data():
    few = replace(SMALL, clients=9, size=20, samples=(4, 4), spread=0.05, noise=0.05)
    alone, mixed = (
        Federation(few, FedAvg(tau=tau), STAR, rounds=150, every=150, engine="plain").run() for tau in (0.0, 0.3)
    )
    assert mixed.final("msd.server") < 0.6 * alone.final("msd.server")


def test_batches_pass_over_all_samples_once():
    order = np.zeros(11, np.int64)
    orders = []
    for epoch in range(3):
        shuffle(order, 11, key_of(1, 2, 3), epoch)
        assert sorted(order) == list(range(11))
        orders.append(tuple(order))
    assert len(set(orders)) == 3


def test_local_epochs_are_descent_in_that_order():
    tables, setup = played(FedAvg(step=0.02, batch=2, epochs=2), Star(), rounds=1, problem=replace(SMALL, clients=3))
    total, samples = np.zeros(4), 0
    for k, (x, y) in enumerate(segments(setup.task)[0][0]):
        w, order = np.zeros(4), np.zeros(len(y), np.int64)
        for epoch in range(2):
            shuffle(order, len(y), key_of(1, k, 0), epoch)
            for i in range(0, len(y), 2):
                mine = order[i : i + 2]
                w = w - 0.02 * 2 * x[mine].T @ (x[mine] @ w - y[mine]) / len(mine)
        total, samples = total + len(y) * w, samples + len(y)
    assert np.allclose(tables["server"].model[0], total / samples, atol=1e-13)


@pytest.mark.parametrize(
    "change, key",
    [
        ({"step": 0.0}, "algorithm.step"),
        ({"step": np.inf}, "algorithm.step"),
        ({"epochs": 0}, "algorithm.epochs"),
        ({"tau": 2.0}, "algorithm.tau"),
    ],
)
def test_bad_numbers_are_sentences(change, key):
    with pytest.raises(BadInput) as caught:
        Federation(SMALL, replace(FedAvg(), **change), STAR, rounds=2).run()
    assert caught.value.key == key


@pytest.mark.long
@pytest.mark.parametrize("algorithm", [FedAvg(batch=3, epochs=2, tau=0.2, asked=0.6), FedAvg()])
def test_engines_agree(algorithm):
    check_algorithm(Federation(SMALL, algorithm, STAR, rounds=10), parallel=True)
    logistic = Linear(clients=8, size=5, samples=20, loss="logistic")
    check_algorithm(Federation(logistic, algorithm, Star(), rounds=10))
