"""Beijing's air by the clock: gaps never join hours that are apart, and no future leaks into the past."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.problems.datasets import beijing
from archipel.problems.datasets.beijing import DERIVED, Air
from archipel.problems.datasets.catalogue import DATASETS

real = pytest.mark.skipif(not DATASETS["beijing-air"].available(), reason="Beijing air is not on this machine")


def made_up(stations=3, hours=200, missing=0.2, seed=0):
    """PM2.5 is 1000 times the station and the hour, so that a sample tells where it is from."""
    draw = np.random.default_rng(seed)
    there = draw.random((stations, hours)) >= missing
    station, hour = np.nonzero(there)
    pm = 1000.0 * station + hour
    x = np.stack([pm, pm + 0.5, draw.standard_normal(len(pm)), *draw.standard_normal((4, len(pm)))], 1)
    return Air(x, ("PM2.5", "PM10", "WSPM", *DERIVED), hour, station, tuple("abc"[:stations]))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), ahead=st.integers(0, 30), missing=st.floats(0, 0.7))
def test_a_forecast_pairs_each_hour_with_the_one_really_ahead(seed, ahead, missing):
    air = made_up(missing=missing, seed=seed)
    shards, hour = beijing.samples(air, ahead=ahead, columns=["PM10"])
    known = set(zip(air.station.tolist(), air.hour.tolist()))
    wanted = sorted((s, h) for s, h in known if (s, h + ahead) in known)
    assert list(zip(shards.owner.tolist(), hour.tolist())) == wanted
    np.testing.assert_array_equal(shards.y, 1000 * shards.owner + hour + ahead)
    np.testing.assert_array_equal(shards.x[:, 0], 1000 * shards.owner + hour + 0.5)


def test_the_inputs_leave_the_target_out_unless_it_is_ahead():
    air = made_up()
    assert beijing.samples(air)[0].columns == ("PM10", "WSPM")
    assert beijing.samples(air, "WSPM")[0].columns == ("PM2.5", "PM10")
    assert beijing.samples(air, ahead=1)[0].columns == ("PM2.5", "PM10", "WSPM")
    assert beijing.samples(air, columns=["time-sin"])[0].columns == ("time-sin",)


@pytest.mark.parametrize("ahead", [0, 5])
def test_a_window_learns_before_and_is_judged_after(ahead):
    air = made_up(missing=0.3)
    both = beijing.window(air, 24, ahead=ahead, train_hours=48, test_hours=72)
    wanted, _ = beijing.samples(air, ahead=ahead)
    for part, first, last in ((both.train, 24, 24 + 48), (both.test, 24 + 48, 24 + 48 + 72)):
        target_hour = np.rint(both.target.undo(part.y)) - 1000 * part.owner
        assert target_hour.min() >= first + ahead and target_hour.max() < last
        for k in range(3):  # nothing that is there is left out
            hours = wanted.of(k)[1] - 1000 * k
            assert part.sizes[k] == np.sum((hours >= first + ahead) & (hours < last))
    assert both.train.names == both.test.names == ("a", "b", "c")
    np.testing.assert_allclose(both.train.x.mean(0), 0, atol=1e-12)


def test_starts_are_where_a_window_is_accepted():
    air = made_up(hours=24 * 14, missing=0.35, seed=3)
    sizes = {"train_hours": 30, "test_hours": 50, "least": 0.55}
    accepted = []
    for day in range(0, 24 * 14, 24):
        if day + 80 > 24 * 14:
            break
        try:
            beijing.window(air, day, **sizes)
            accepted.append(day)
        except BadInput as error:
            assert "problem.start" in str(error)
    assert 0 < len(accepted) < 11
    np.testing.assert_array_equal(beijing.starts(air, **sizes), accepted)


def test_all_years_are_judged_by_their_end():
    both = beijing.federate(made_up(), test=0.25)
    for k in range(3):
        learnt, tested = (both.target.undo(part.of(k)[1]) for part in (both.train, both.test))
        assert learnt.max() < tested.min()
        assert len(tested) == round(0.25 * (len(learnt) + len(tested)))


def test_a_window_beyond_the_data_is_refused():
    with pytest.raises(BadInput, match=r"problem\.start = 1000"):
        beijing.window(made_up(), 1000)


@pytest.mark.parametrize(
    "settings, key",
    [
        ({"target": "PM25"}, '"PM2.5"'),
        ({"columns": ["PM100"]}, '"PM10"'),
        ({"columns": ["PM2.5"]}, "without the target"),
    ],
)
def test_what_was_not_measured_is_refused(settings, key):
    with pytest.raises(BadInput) as error:
        beijing.samples(made_up(), **settings)
    assert key in str(error.value)


@pytest.mark.parametrize(
    "change, word",
    [
        ({"hour_index": None}, "hour_index"),
        ({"X": np.ones((3, 2))}, "one length"),
        ({"X": np.full((4, 2), np.inf)}, "row 0"),
        ({"hour_index": np.array([1, 0, 0, 1])}, "order of time"),
        ({"station_id": np.array([0, 0, 2, 2])}, "stations below 2"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(tmp_path, monkeypatch, change, word):
    arrays = {
        "X": np.array([[1, 2.0], [2, 3], [3, 4], [4, 5]], np.float32),
        "columns": np.array(["PM2.5", "WSPM"]),
        "wind_dir": np.array([0, 4, 8, 12], np.int8),
        "hour_index": np.array([0, 6, 0, 1]),
        "station_id": np.array([0, 0, 1, 1]),
        "station_name": np.array(["north", "south"]),
    }
    monkeypatch.setenv("ARCHIPEL_DATA", str(tmp_path))
    np.savez(tmp_path / "beijing_air.npz", **arrays)
    air = beijing.load()
    np.testing.assert_allclose(air.x[:, 2:4], [[2, 0], [0, 3], [-4, 0], [0, -5]], atol=1e-12)  # north, east
    np.testing.assert_allclose(air.x[1, 4:], [0, 1], atol=1e-12)  # six in the morning
    np.savez(tmp_path / "beijing_air.npz", **{k: v for k, v in (arrays | change).items() if v is not None})
    with pytest.raises(BadInput, match=word):
        beijing.load()


@real
def test_the_real_air_has_twelve_stations_and_many_fortnights():
    air = beijing.load()
    assert len(air.stations) == 12 and len(air.hour) == 382_168
    days = set(beijing.starts(air).tolist())
    for day in range(0, 24 * 1400, 24 * 100):
        if day in days:
            beijing.window(air, day)
        else:
            with pytest.raises(BadInput, match=r"problem\.start"):
                beijing.window(air, day)
    both = beijing.window(air, min(days))
    assert both.train.clients == both.test.clients == 12 and both.train.x.shape[1] == 10
    assert both.train.sizes.max() <= 336 and both.test.sizes.max() <= 720
