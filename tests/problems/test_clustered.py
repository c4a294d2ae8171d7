"""Problems of clusters: data agree with the graph, scores with slow loops, bad input with sentences."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from archipel import Federation
from archipel.algorithms.pgfl import Pgfl
from archipel.errors import BadInput, Missing
from archipel.node import Moment
from archipel.problems.clustered import BeijingStations, Pictures, Related, Segments, segments
from archipel.problems.datasets import catalogue
from archipel.problems.scoring.deviation import Scorer, adjusted_rand, deviations
from archipel.problems.splits import clusters
from archipel.problems.splits.shards import join
from archipel.topology import Peers, Servers

SMALL = Related(clients=24, size=5, samples=(40, 60), gammas=(-0.4, 0.0, 0.4), noise=0.01, test=30)


def have(name):
    try:
        return catalogue.find(name)
    except Missing:
        return None


def test_data_are_those_of_the_graphs_clusters():
    setup = Federation(SMALL, Pgfl(), Servers(servers=4, clusters=3)).setup()
    (shards,), _ = segments(setup.task)
    own = np.stack([np.linalg.lstsq(x, y, rcond=None)[0] for x, y in shards])
    lengths = np.linalg.norm(own, axis=1)
    base = np.median(lengths[setup.graph.cluster == 1])
    for q, gamma in enumerate(SMALL.gammas):
        assert np.allclose(lengths[setup.graph.cluster == q] / base, 1 + gamma, atol=0.05)
    sizes = shards.sizes
    assert 40 <= sizes.min() < sizes.max() <= 60


def test_one_cluster_or_unknown_ones_leave_the_tasks_to_the_problem():
    given = SMALL.task(3, 1, np.float64, "stored", Servers(servers=4, clusters=3).build(24, 3))
    one = SMALL.task(3, 1, np.float64, "stored", Servers(servers=4).build(24, 3))
    unknown = SMALL.task(3, 1, np.float64, "stored", Servers(servers=4, clusters="discover").build(24, 3))
    for other in (one, unknown):
        assert np.array_equal(given.source.y, other.source.y)


def test_some_clients_change_their_cluster():
    problem = Related(clients=30, size=4, samples=(30, 30), gammas=(-0.5, 0.0, 0.5), noise=0.0, change=7, moved=0.2)
    task = problem.task(1, 20, np.float64, "stored", Peers(clusters=3).build(30, 1))
    assert isinstance(task.source, Segments)
    (before, after), change = segments(task)
    assert change == 7
    fits = [np.stack([np.linalg.lstsq(x, y, rcond=None)[0] for x, y in part]) for part in (before, after)]
    changed = np.linalg.norm(fits[0] - fits[1], axis=1) > 1e-6
    assert changed.sum() == 6
    for k in range(30):
        for n, part in ((6, before), (7, after)):
            fresh, mine = task.observe(task.source, task.sample, Moment(k, n, 0, -1, 1, True, 1.0))
            assert fresh and np.array_equal(mine.x, part.of(k)[0]) and np.array_equal(mine.y, part.of(k)[1])
    assert task.score({"clients": fits[0]}, 7)["msd"] < 1e-20
    assert task.score({"clients": fits[0]}, 8)["msd"] > 1e-3
    assert task.score({"clients": fits[1]}, 8)["msd"] < 1e-20


def test_scores_are_those_of_slow_loops():
    rng = np.random.default_rng(0)
    cluster, truth, models = np.array([0, 1, 1, 0, 1]), rng.normal(size=(2, 3)), rng.normal(size=(5, 3))
    test = join([(rng.normal(size=(n, 3)), rng.normal(size=n)) for n in (7, 9)])
    score = Scorer("squared", cluster, test, truth).score({"clients": models, "told": models + 1}, 0)
    msd, mse = [], []
    for k, q in enumerate(cluster):
        msd.append(sum((models[k] - truth[q]) ** 2) / sum(truth[q] ** 2))
        x, y = test.of(q)
        mse.append(np.mean([(y[i] - x[i] @ models[k]) ** 2 for i in range(len(y))]))
    assert np.isclose(score["msd"], np.mean(msd)) and np.isclose(score["mse"], np.mean(mse))
    assert np.allclose(score["msd.cluster"], [np.mean([msd[0], msd[3]]), np.mean([msd[1], msd[2], msd[4]])])
    assert np.isclose(score["msd.server"], deviations(models + 1, truth[cluster]).mean())


def test_adjusted_rand_is_scikit_learns():
    rng = np.random.default_rng(1)
    for _ in range(20):
        a, b = rng.integers(0, 4, 30), rng.integers(0, 3, 30)
        b = np.where(rng.random(30) < 0.5, a, b)
        assert np.isclose(adjusted_rand(a, b), adjusted_rand_score(a, b))


@pytest.mark.skipif(not have("mnist"), reason="MNIST is not on this machine")
def test_pictures_have_the_labels_of_their_cluster():
    graph = Servers(servers=5, clusters=3).build(30, 2)
    task = Pictures(clients=30, tasks="digit-triplets").task(2, 1, np.float64, "stored", graph)
    (shards,), _ = segments(task)
    assert set(np.unique(shards.y)) == {-1.0, 1.0} and shards.x.shape[1] == 784
    assert shards.sizes.min() >= 6 and shards.sizes.max() <= 12
    perfect = task.score({"clients": np.zeros((30, 784))}, 0)
    assert set(perfect) >= {"accuracy", "accuracy.cluster", "loss"}
    own = Pictures(clients=30, tasks=(((0,), (1,)), ((2,), (3,)), ((4,), (5,))))
    assert own.described()[1] == (((0,), (1,)), ((2,), (3,)), ((4,), (5,)))


@pytest.mark.skipif(not have("beijing-air"), reason="Beijing air is not on this machine")
def test_each_station_is_judged_by_its_own_hours():
    problem = BeijingStations()
    task, data = problem.task(1, 1, np.float64, "stored"), problem.split()
    models = np.stack([np.linalg.lstsq(x, y, rcond=None)[0] for x, y in data.train])
    score = task.score({"clients": models}, 0)
    slow = [np.mean((y - x @ models[k]) ** 2) for k, (x, y) in enumerate(data.test)]
    assert np.allclose(score["mse.cluster"], slow)
    assert data.train.x.shape[1] == 11 and data.train.sizes.max() <= 14 * 24


@pytest.mark.parametrize(
    "problem, graph, key",
    [
        (lambda: Related(clients=5, tasks=9), None, "problem.tasks"),
        (lambda: Related(samples=(0, 4)), None, "problem.samples"),
        (lambda: Related(gammas=(0.1,)), None, "problem.gammas"),
        (lambda: Related(noise=-1.0), None, "problem.noise"),
        (lambda: Related(noise=np.inf), None, "problem.noise"),
        (lambda: Related(tasks=1, gammas=(np.nan,)), None, "problem.gammas"),
        (lambda: Related(spread=np.inf), None, "problem.spread"),
        (
            lambda: Related(clients=10, tasks=2),
            Servers(servers=2, shape="ring", clusters=3).build(10, 1),
            "topology.clusters",
        ),
        (lambda: Pictures(tasks="digit-pears"), None, "problem.tasks"),
        (lambda: Pictures(tasks=((1, 8),)), None, "problem.tasks"),
    ],
)
def test_bad_input_is_a_sentence(problem, graph, key):
    with pytest.raises(BadInput) as caught:
        problem().task(1, 1, np.float64, "stored", graph)
    assert caught.value.key == key


def test_a_label_outside_the_task_is_refused():
    with pytest.raises(BadInput, match="a label of the task"):
        clusters.sort_of([1, 5], ((1,), (8,)))
