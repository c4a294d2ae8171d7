"""Every sample to exactly one client, nobody empty, and each split what it says."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.problems.splits import partition

quick = settings(max_examples=50, deadline=None)
labels_of = st.lists(st.integers(0, 6), min_size=1, max_size=80).map(np.array)


def is_a_partition(members, samples):
    """Each sample once, nobody empty, each client in the order of the data."""
    assert all(len(mine) > 0 for mine in members)
    assert all(np.all(np.diff(mine) > 0) for mine in members)
    np.testing.assert_array_equal(np.sort(np.concatenate(members)), np.arange(samples))


@quick
@given(labels=labels_of, data=st.data(), seed=st.integers(0, 2**40))
def test_each_sample_goes_to_one_client_and_nobody_is_empty(labels, data, seed):
    samples = len(labels)
    clients = data.draw(st.integers(1, samples))
    kinds = len(np.unique(labels))
    cases = {
        "iid": {},
        "uneven": {"power": data.draw(st.floats(0, 4))},
        "shards": {"each": data.draw(st.integers(1, samples // clients))},
        "dirichlet": {"alpha": data.draw(st.floats(1e-3, 1e3))},
        "label-shards": {"pieces": samples},
        "unbalanced": {"fewest": 1, "most": data.draw(st.integers(-(-kinds // clients), 9))},
    }
    for kind, more in cases.items():
        members = partition.split(kind, labels, clients, seed, **more)
        assert len(members) == clients, kind
        is_a_partition(members, samples)
        for mine, again in zip(members, partition.split(kind, labels, clients, seed, **more)):
            np.testing.assert_array_equal(mine, again)


@quick
@given(groups=st.lists(st.integers(0, 20), min_size=1, max_size=80).map(np.array), data=st.data())
def test_whole_groups_stay_together(groups, data):
    clients = data.draw(st.integers(1, len(np.unique(groups))))
    near = data.draw(st.sampled_from([None, groups % 3]))
    members = partition.whole_groups(groups, clients, 1, weights=(1, 2, 3, 4), near=near)
    is_a_partition(members, len(groups))
    owners = [{k for k, mine in enumerate(members) if g in groups[mine]} for g in np.unique(groups)]
    assert all(len(owner) == 1 for owner in owners)
    if near is not None:  # the clients' spans of the ordering value do not overlap
        for before, after in pairwise(members):
            assert near[before].max() <= near[after].min()


def test_groups_are_dealt_in_proportion_to_the_weights():
    members = partition.whole_groups(np.repeat(np.arange(1000), 3), 8, 0, weights=(1, 2, 3, 4))
    np.testing.assert_array_equal([len(m) // 3 for m in members], [50, 100, 150, 200] * 2)


def test_a_column_makes_a_client_of_each_value():
    members, names = partition.by_column(np.array(["sea", "air", "sea", "ice"]))
    assert names == ("air", "ice", "sea")
    assert [list(m) for m in members] == [[1], [3], [0, 2]]


@quick
@given(
    total=st.integers(0, 500),
    weights=st.lists(st.floats(0, 1e3), min_size=1, max_size=30),
    least=st.integers(0, 4),
)
def test_apportioned_numbers_sum_up_and_stay_near_their_share(total, weights, least):
    if sum(weights) <= 0 or total < least * len(weights):
        with pytest.raises(BadInput):
            partition.apportion(total, weights, least)
        return
    sizes = partition.apportion(total, weights, least)
    assert sizes.sum() == total and sizes.min() >= least
    if least == 0:
        assert np.max(np.abs(sizes - total * np.array(weights) / np.sum(weights))) < 1 + 1e-6


def test_iid_clients_are_of_one_size_and_alike():
    labels = np.repeat(np.arange(10), 1000)
    members = partition.iid(len(labels), 7, 3)
    assert {len(m) for m in members} <= {len(labels) // 7, len(labels) // 7 + 1}
    for mine in members:  # chi-squared with 9 degrees of freedom: beyond 40 once in a hundred thousand
        seen = np.bincount(labels[mine], minlength=10)
        assert np.sum((seen - seen.mean()) ** 2 / seen.mean()) < 40


def test_uneven_sizes_follow_the_power_law():
    sizes = np.sort([len(m) for m in partition.uneven(100_000, 50, 0, power=1.5)])[::-1]
    slope = np.polyfit(np.log(np.arange(1, 51)), np.log(sizes), 1)[0]
    assert slope == pytest.approx(-1.5, abs=0.01)


def test_shards_have_few_labels():
    labels = np.random.default_rng(0).integers(0, 10, 6000)
    for each in (1, 2, 3):
        members = partition.shards(labels, 20, 4, each=each)
        assert max(len(np.unique(labels[m])) for m in members) <= 2 * each
        assert max(map(len, members)) - min(map(len, members)) <= each


def test_pieces_of_labels_never_mix_more_labels_than_pieces():
    """The dissertation's setting: ten labels in three pieces, three for each of ten clients."""
    labels = np.random.default_rng(0).integers(0, 10, 6000)
    members = partition.label_shards(labels, 10, 1, pieces=3)
    assert max(len(np.unique(labels[m])) for m in members) <= 3
    assert min(map(len, members)) > 3 * 500 / 3


def test_a_small_alpha_gives_few_labels_and_a_large_one_all_alike():
    """The expected sum of squared shares of one label among K clients is (1 + alpha) / (1 + K alpha)."""
    labels = np.repeat(np.arange(200), 300)
    for alpha in (0.05, 0.5, 5.0):
        members = partition.dirichlet(labels, 12, 0, alpha=alpha)
        shares = np.stack([np.bincount(labels[m], minlength=200) for m in members]) / 300
        assert np.mean(np.sum(shares**2, 0)) == pytest.approx((1 + alpha) / (1 + 12 * alpha), rel=0.12)


def test_unbalanced_clients_have_few_labels_and_power_law_sizes():
    labels = np.repeat(np.arange(10), 6000)
    for seed in range(5):
        members = partition.unbalanced(labels, 10, seed, fewest=1, most=4, power=1.0)
        assert all(1 <= len(np.unique(labels[m])) <= 4 for m in members)
    for seed in range(4):
        sizes = [len(m) for m in partition.unbalanced(labels, 300, seed, fewest=2, most=6, power=1.0)]
        slope = np.polyfit(np.log(np.arange(1, 301)), np.log(np.sort(sizes)[::-1]), 1)[0]
        assert slope == pytest.approx(-1.0, abs=0.05)


def test_other_seeds_deal_otherwise():
    labels = np.repeat(np.arange(5), 40)
    for kind in ("iid", "uneven", "shards", "label-shards", "dirichlet", "unbalanced"):
        one, two = (partition.split(kind, labels, 5, seed) for seed in (1, 2))
        assert any(len(a) != len(b) or np.any(a != b) for a, b in zip(one, two)), kind


@pytest.mark.parametrize(
    "kind, clients, more, key",
    [
        ("iid", 0, {}, "problem.clients"),
        ("iid", 7, {}, "problem.clients"),
        ("dirichlet", 2, {"alpha": 0.0}, "problem.alpha"),
        ("dirichlet", 2, {"alpha": float("inf")}, "problem.alpha"),
        ("shards", 2, {"each": 4}, "problem.each"),
        ("shards", 2, {"each": 0}, "problem.each"),
        ("label-shards", 5, {"pieces": 1}, "problem.pieces"),
        ("label-shards", 2, {"pieces": 0}, "problem.pieces"),
        ("unbalanced", 2, {"fewest": 3, "most": 2}, "problem.fewest"),
        ("unbalanced", 1, {"fewest": 1, "most": 2}, "problem.most"),
        ("uneven", 2, {"power": -1.0}, "problem.power"),
        ("uneven", 2, {"powr": 1.0}, 'problem.powr = 1.0: expected "power"'),
        ("iid", 2, {"power": 1.0}, "problem.power"),
        ("dirichle", 2, {}, 'expected "dirichlet"'),
        ("groups", 2, {}, "problem.split"),
    ],
)
def test_what_cannot_be_dealt_is_refused_with_the_key(kind, clients, more, key):
    with pytest.raises(BadInput) as error:
        partition.split(kind, np.array([0, 0, 1, 1, 2, 2]), clients, 0, **more)
    assert key in str(error.value)


def test_a_real_target_has_no_labels():
    with pytest.raises(BadInput, match="whole numbers"):
        partition.dirichlet(np.array([0.5, 1.0]), 2, 0)
    with pytest.raises(BadInput, match=r"problem\.clients"):
        partition.whole_groups(np.array([1, 1, 1]), 2, 0)
