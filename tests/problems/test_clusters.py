"""Clusters' tasks: every client pictures of its own task, none twice, labels as sorts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.problems.datasets import images
from archipel.problems.datasets.catalogue import DATASETS
from archipel.problems.datasets.images import Loaded, Pooled
from archipel.problems.splits import clusters
from archipel.problems.splits.clusters import DIGIT_PAIRS, DIGIT_TRIPLETS, ORGANS_ALIKE, ORGANS_APART


def made_up(each=200, labels=10):
    """Pictures whose only pixels say which picture it is and what label it has."""
    y = np.tile(np.arange(labels), each)
    x = np.zeros((len(y), 2, 2), np.uint8)
    x[:, 0, 0], x[:, 0, 1], x[:, 1, 0] = np.arange(len(y)) // 256, np.arange(len(y)) % 256, y
    pool = Pooled(x, y, tuple(map(str, range(labels))))
    return Loaded(pool, pool)


@settings(max_examples=30, deadline=None)
@given(
    tasks=st.sampled_from([DIGIT_PAIRS, DIGIT_TRIPLETS, (((0,), (1, 2), (3,)), ((9, 8), (0,)))]),
    clients=st.integers(3, 20),
    low=st.integers(1, 6),
    more=st.integers(0, 6),
    seed=st.integers(0, 99),
)
def test_everyone_has_pictures_of_the_own_task_evenly_and_nobody_has_the_same(tasks, clients, low, more, seed):
    cluster = np.arange(clients) % len(tasks)
    given_out = clusters.clustered(made_up(), tasks, cluster, (low, low + more), seed)
    pixels = np.rint(given_out.train.x * 255).astype(int)
    which = pixels[:, 0] * 256 + pixels[:, 1]
    assert len(set(which)) == len(which)
    for k, (x, y) in enumerate(given_out.train):
        task = tasks[cluster[k]]
        labels = np.rint(x[:, 2] * 255).astype(int)
        assert low <= len(y) <= low + more
        assert all(label in task[sort] for label, sort in zip(labels, y))
        per_sort = np.bincount(y, minlength=len(task))
        assert per_sort.max() - per_sort.min() <= 1
        for sort in task:
            per_label = [np.sum(labels == label) for label in sort]
            assert max(per_label) - min(per_label) <= 1
    same = clusters.clustered(made_up(), tasks, cluster, (low, low + more), seed)
    np.testing.assert_array_equal(given_out.train.x, same.train.x)


def test_each_cluster_is_judged_by_all_pictures_of_its_labels():
    data = made_up(each=5)
    test = clusters.clustered(data, DIGIT_TRIPLETS, [0, 1, 2], (6, 12), 0).test
    assert test.names == ("cluster-0", "cluster-1", "cluster-2")
    np.testing.assert_array_equal(test.sizes, [30, 30, 30])
    x, y = test.of(2)
    labels = np.rint(x[:, 2] * 255).astype(int)
    np.testing.assert_array_equal(y, np.isin(labels, [6, 8, 9]))


def test_the_articles_organs():
    name = images.ORGANS
    assert [[name[a[0]] for a in task] for task in ORGANS_ALIKE] == [
        ["lung-right", "lung-left"],
        ["liver", "lung-left"],
        ["kidney-right", "lung-left"],
    ]
    assert len({sort for task in ORGANS_APART for sort in task}) == 6


@pytest.mark.parametrize(
    "tasks, cluster, samples, key",
    [
        ([((1,), (10,))], [0], (2, 4), "labels from 0 to 9"),
        ([((1,), (1, 2))], [0], (2, 4), "no label in two"),
        ([((1,), ())], [0], (2, 4), "none empty"),
        ([((1,),)], [0], (2, 4), "two sorts"),
        (DIGIT_PAIRS, [0, 1, 3], (2, 4), "a cluster from 0 to 2"),
        (DIGIT_PAIRS, [0, 1, -1], (2, 4), "a cluster from 0 to 2"),
        (DIGIT_PAIRS, [0, 1, 1], (2, 4), "2 has none"),
        (DIGIT_PAIRS, [0, 1, 2], (0, 4), "problem.samples"),
        (DIGIT_PAIRS, [0, 1, 2], (4, 2), "problem.samples"),
        (DIGIT_PAIRS, [0, 1, 2], (500, 500), "no more pictures of"),
    ],
)
def test_what_is_no_task_is_refused(tasks, cluster, samples, key):
    with pytest.raises(BadInput) as error:
        clusters.clustered(made_up(), tasks, cluster, samples, 0)
    assert key in str(error.value)


def test_a_label_outside_the_task_is_refused():
    with pytest.raises(BadInput, match="label = 5"):
        clusters.sort_of([1, 5], DIGIT_PAIRS[0])


@pytest.mark.skipif(not DATASETS["mnist"].available(), reason="MNIST is not on this machine")
def test_the_articles_setting_on_mnist():
    """150 clients of 10 servers; a linear model tells ones from eights on the cluster's own test set."""
    cluster = np.arange(150) % 3
    given_out = clusters.clustered(images.load("mnist"), DIGIT_PAIRS, cluster, (2, 4), 0, shrink=2)
    assert given_out.train.x.shape[1] == 14 * 14
    np.testing.assert_array_equal(given_out.test.sizes[0], 1135 + 974)
    rows = np.isin(given_out.train.owner, np.flatnonzero(cluster == 0))
    x, y = given_out.train.x[rows], 2.0 * given_out.train.y[rows] - 1
    model = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ y)
    test_x, test_y = given_out.test.of(0)
    assert np.mean((test_x @ model > 0) == test_y) > 0.9
