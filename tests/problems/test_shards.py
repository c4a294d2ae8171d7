"""The table of all clients' data, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.problems.splits import shards
from archipel.problems.splits.shards import Shards


def some(sizes=(2, 1, 4), columns=3, seed=0):
    draw = np.random.default_rng(seed)
    parts = [(draw.standard_normal((n, columns)), draw.standard_normal(n)) for n in sizes]
    return shards.join(parts), parts


def test_each_client_finds_its_own_samples():
    all_of_them, parts = some()
    assert all_of_them.clients == 3
    np.testing.assert_array_equal(all_of_them.sizes, [2, 1, 4])
    np.testing.assert_array_equal(all_of_them.owner, [0, 0, 1, 2, 2, 2, 2])
    for (x, y), (mine, wanted) in zip(parts, all_of_them):
        np.testing.assert_array_equal(x, mine)
        np.testing.assert_array_equal(y, wanted)
    assert np.shares_memory(all_of_them.of(2)[0], all_of_them.x)


def test_dealing_pooled_samples_gathers_them_client_by_client():
    x, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    dealt = shards.gather(x, y, [np.array([4, 0]), np.array([], int), np.array([1, 2, 3])], names="abc")
    np.testing.assert_array_equal(dealt.y, [4, 0, 1, 2, 3])
    np.testing.assert_array_equal(dealt.sizes, [2, 0, 3])
    np.testing.assert_array_equal(dealt.of(0)[0], x[[4, 0]])


def wrong(**changes):
    good = {"x": np.ones((4, 2)), "y": np.ones(4), "starts": np.array([0, 1, 4]), "names": ("a", "b")}
    return good | changes


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"x": np.ones((3, 2))}, "shards.x"),
        ({"x": np.ones(4)}, "shards.x"),
        ({"y": np.ones((4, 1))}, "shards.x"),
        ({"starts": np.array([0, 1, 3])}, "shards.starts"),
        ({"starts": np.array([1, 2, 4])}, "shards.starts"),
        ({"starts": np.array([0, 5, 4])}, "shards.starts"),
        ({"starts": np.array([4])}, "shards.starts"),
        ({"names": ("a",)}, "shards.names"),
        ({"names": ("a", "a")}, "shards.names"),
        ({"columns": ("depth",)}, "shards.columns"),
        ({"y": np.array(["1", "2", "3", "4"])}, "shards.y"),
    ],
)
def test_tables_that_do_not_fit_are_refused(changes, word):
    Shards(**wrong())
    with pytest.raises(BadInput, match=word):
        Shards(**wrong(**changes))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_named_by_client_and_row(bad):
    x = np.ones((4, 2))
    x[2, 1] = bad
    with pytest.raises(BadInput, match="row 1 of client b"):
        Shards(**wrong(x=x))
    with pytest.raises(BadInput, match=r"shards\.y = .*row 0 of client a"):
        Shards(**wrong(y=np.array([bad, 1, 1, 1])))


def test_names_sort_as_they_are_numbered():
    for clients in (1, 9, 10, 11, 100, 101):
        names = shards.numbered(clients)
        assert list(names) == sorted(names) and len(set(names)) == clients


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
)
def test_held_out_samples_are_taken_exactly_once_and_leave_everyone_one(sizes, fraction, seed):
    total = sum(sizes)
    everything = Shards(
        np.arange(float(total))[:, None],
        np.arange(total),
        np.cumsum([0, *sizes]),
        shards.numbered(len(sizes)),
    )
    wanted = [min(round(fraction * n), n - 1) if n else 0 for n in sizes]
    if sum(wanted) == 0:
        with pytest.raises(BadInput, match=r"problem\.test"):
            shards.hold_out(everything, fraction, seed)
        return
    for rest, held in (shards.hold_out(everything, fraction, seed), shards.hold_last(everything, fraction)):
        np.testing.assert_array_equal(np.sort(np.concatenate([rest.y, held.y])), np.arange(total))
        np.testing.assert_array_equal(held.sizes, wanted)
        owner = everything.owner
        np.testing.assert_array_equal(owner[held.y], held.owner)
        np.testing.assert_array_equal(owner[rest.y], rest.owner)
    for k in range(len(sizes)):
        mine, theirs = rest.of(k)[1], held.of(k)[1]
        assert not len(theirs) or mine.max() < theirs.min()


def test_the_seed_settles_what_is_held_out():
    everything, _ = some((30, 40))
    same = [shards.hold_out(everything, 0.3, 5)[1].y for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.array_equal(same[0], shards.hold_out(everything, 0.3, 6)[1].y)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 2, float("nan")])
def test_a_fraction_is_between_nought_and_one(fraction):
    with pytest.raises(BadInput, match=r"problem\.test"):
        shards.hold_last(some()[0], fraction)


@pytest.mark.parametrize("columns, told", [((), "column 1 of the inputs = "), (("a", "wind", "c"), "wind = ")])
def test_a_value_beyond_all_scale_is_refused(columns, told):
    """One value of 1e200 has an infinite deviation, which would erase the column of everyone."""
    values, _ = some((40,))
    values.x[3, 1] = 1e200
    with pytest.raises(BadInput, match=rf"{told}1e\+200: expected numbers whose squares"):
        shards.standard(values.x, columns)
    with pytest.raises(BadInput, match="target"):
        shards.standard(values.x[:, 1])


def test_units_come_from_the_training_set_alone():
    train, _ = some((40, 60), seed=1)
    train.x[:, 1] = 7.0
    test, _ = some((5,), seed=2)
    both = shards.standardised(train, test)
    np.testing.assert_allclose(both.train.x.mean(0), 0, atol=1e-14)
    np.testing.assert_allclose(both.train.x.std(0), [1, 0, 1], atol=1e-14)
    np.testing.assert_allclose(both.train.y.std(), 1)
    np.testing.assert_allclose(both.test.x[:, 0], (test.x[:, 0] - train.x[:, 0].mean()) / train.x[:, 0].std())
    np.testing.assert_allclose(both.target.undo(both.test.y), test.y)
    np.testing.assert_allclose(both.inputs.undo(both.train.x), train.x)
