"""CalCOFI as clients: whole casts, exact numbers, a test set that nobody has seen."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.problems.datasets import calcofi
from archipel.problems.datasets.calcofi import ALL, MEASURED, Water
from archipel.problems.datasets.catalogue import DATASETS
from archipel.problems.models.fourier import fourier, mapped

real = pytest.mark.skipif(not DATASETS["calcofi"].available(), reason="CalCOFI is not on this machine")


def made_up(sizes, stations=4, seed=0):
    """Casts of these sizes; the first column is the number of the bottle."""
    draw = np.random.default_rng(seed)
    cast = np.repeat(np.arange(100, 100 + len(sizes)), sizes)
    station = draw.integers(0, stations, len(sizes))[cast - 100]
    x = draw.standard_normal((len(cast), 5))
    x[:, 0] = np.arange(len(cast))
    return Water(x, draw.standard_normal(len(cast)), cast, station, tuple(map(str, range(stations))))


def bottles(both, shards):
    """Which bottles these are, from the first column in its own units."""
    return np.rint(both.inputs.undo(shards.x)[:, 0]).astype(int)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=20, max_size=40),
    clients=st.integers(1, 4),
    seed=st.integers(0, 9),
    data=st.data(),
)
def test_casts_stay_whole_and_the_test_set_is_unseen(sizes, clients, seed, data):
    water = made_up(sizes)
    assume(sum(sizes) >= 36 + 13)  # four of the largest casts to learn from, beside the test set
    rows = data.draw(st.integers(36, sum(sizes) - 13))
    both = calcofi.federate(water, seed, clients, rows, test_rows=5)
    learnt, tested = bottles(both, both.train), bottles(both, both.test)
    assert len(learnt) == len(set(learnt)) == rows and len(tested) >= 5
    assert not set(water.cast[learnt]) & set(water.cast[tested])
    owners = {}
    for bottle, owner in zip(learnt, both.train.owner):
        assert owners.setdefault(water.cast[bottle], owner) == owner
    torn = [c for c in owners if np.sum(water.cast[learnt] == c) < np.sum(water.cast == c)]
    assert len(torn) <= 1
    for cast in set(water.cast[tested]):
        assert np.sum(water.cast[tested] == cast) == np.sum(water.cast == cast)
    np.testing.assert_allclose(both.target.undo(both.train.y), water.salinity[learnt])


def test_neighbours_go_to_one_client_in_the_order_of_time():
    water = made_up([3] * 60, stations=5)
    both = calcofi.federate(water, 1, clients=10, rows=150, test_rows=9)
    learnt = bottles(both, both.train)
    spans = [learnt[both.train.owner == k] for k in range(10)]
    for mine in spans:
        assert np.all(np.diff(mine) > 0)
    ends = [(water.station[mine].min(), water.station[mine].max()) for mine in spans]
    assert all(before[1] <= after[0] for before, after in pairwise(ends))
    counts = np.array([len(np.unique(water.cast[mine])) for mine in spans])
    shares = np.resize([1, 2, 3, 4], 10) * 50 / 23
    assert np.abs(counts - shares).max() < 1


def test_seeds_settle_who_gets_what():
    water = made_up([4] * 30)
    one, same, other = (calcofi.federate(water, s, 3, 60, 8).train.y for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    "settings, key",
    [
        ({"rows": 10**6}, "problem.rows"),
        ({"test_rows": 10**6}, "problem.rows"),
        ({"columns": ("Depth",)}, '"Depthm"'),
        ({"columns": ("Salnty",)}, "problem.columns"),
        ({"clients": 50}, "problem.clients"),
        ({"clients": 0}, "problem.clients"),
    ],
)
def test_what_the_sea_does_not_give_is_refused(settings, key):
    with pytest.raises(BadInput) as error:
        calcofi.federate(made_up([5] * 20), 0, **({"clients": 4, "rows": 40, "test_rows": 5} | settings))
    assert key in str(error.value)


@pytest.mark.parametrize(
    "change, word",
    [
        ({"Salnty": None}, "Salnty"),
        ({"T_degC": np.array([1, np.nan, 1.0])}, "row 1"),
        ({"T_degC": np.ones(2)}, "one length"),
        ({"station_id": np.array([0, 1, 2])}, "stations below 2"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(tmp_path, monkeypatch, change, word):
    arrays = {name: np.ones(3, np.float32) for name in (*ALL, "Salnty")}
    arrays |= {
        "cast_id": np.arange(3),
        "station_id": np.array([0, 1, 1]),
        "station_name": np.array(["a", "b"]),
    }
    monkeypatch.setenv("ARCHIPEL_DATA", str(tmp_path))
    np.savez(tmp_path / "calcofi.npz", **arrays)
    assert calcofi.load().stations == ("a", "b")
    np.savez(tmp_path / "calcofi.npz", **{k: v for k, v in (arrays | change).items() if v is not None})
    with pytest.raises(BadInput, match=word):
        calcofi.load()


@real
def test_the_articles_setting_is_exact_uneven_and_not_alike():
    both = calcofi.federate(calcofi.load(), seed=0)
    train = both.train
    assert (train.clients, len(train.y), train.columns) == (256, 80_000, MEASURED)
    assert 8_000 <= len(both.test.y) < 8_060  # the largest cast has 55 bottles
    by_group = [train.sizes[g::4].mean() for g in range(4)]
    # casts are dealt in these proportions, and some have fewer bottles than others
    np.testing.assert_allclose(by_group, np.array([125, 250, 375, 500]), rtol=0.15)
    means = np.array([y.mean() for _, y in train])
    assert means.var() > 10 * np.mean(1 / train.sizes)  # what alike clients' means would vary by, at least tenfold


@real
def test_what_is_computed_from_the_salinity_gives_it_away():
    """The figures that the module's docstring tells."""
    water = calcofi.load()
    errors = {}
    for columns in (MEASURED, ALL):
        both = calcofi.federate(water, 0, rows=20_000, columns=columns)  # a quarter is enough
        world = fourier(len(columns), 200, 3.0, 0)
        z = mapped(world, both.train.x)
        model = np.linalg.solve(z.T @ z + 1e-3 * np.eye(200), z.T @ both.train.y)
        errors[columns] = 10 * np.log10(np.mean((both.test.y - mapped(world, both.test.x) @ model) ** 2))
    assert errors[MEASURED] == pytest.approx(-10.5, abs=0.3)
    assert errors[ALL] < -40
