"""Beijing's air: hourly measurements at 12 stations over four years. A station is a client.

Hours at which a station missed something are not in the data. Whatever is done here goes by the clock, so
that a gap never joins hours that are far apart: a window has the hours that are there, a forecast pairs an
hour with the one that is really `ahead` of it, or not at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.errors import BadInput, did_you_mean
from archipel.problems.datasets.catalogue import find
from archipel.problems.datasets.npz import arrays_in
from archipel.problems.splits.shards import Shards, TrainTest, gather, hold_last, standardised

KEY = "datasets.beijing-air"
FORTNIGHT, MONTH = 14 * 24, 30 * 24
DERIVED = ("wind-north", "wind-east", "time-cos", "time-sin")
ARRAYS = ("X", "columns", "wind_dir", "hour_index", "station_id", "station_name")


@dataclass(frozen=True)
class Air:
    """Measurements, station by station, in the order of time."""

    x: Any  # (hours, columns)
    columns: tuple[str, ...]  # what was measured, and what is derived from it
    hour: Any  # since the first midnight
    station: Any
    stations: tuple[str, ...]


def load() -> Air:
    """The whole data set, with the wind as a vector and the time of day as a point on a circle beside it."""
    path = find("beijing-air")
    arrays = arrays_in(path, KEY, ARRAYS)
    measured, wind = arrays["X"].astype(np.float64), arrays["wind_dir"] * (np.pi / 8)
    hour, station = arrays["hour_index"].astype(np.int64), arrays["station_id"].astype(np.int64)
    columns, names = tuple(map(str, arrays["columns"])), tuple(map(str, arrays["station_name"]))
    sizes = {len(array) for array in (measured, wind, hour, station)}
    if len(sizes) != 1 or measured.ndim != 2 or measured.shape[1] != len(columns) or "WSPM" not in columns:
        raise BadInput(KEY, path.name, "arrays of one length, a name for each column, and the wind WSPM")
    if not np.isfinite(measured).all():
        row = int(np.argwhere(~np.isfinite(measured))[0][0])
        raise BadInput(KEY, f"{path.name}, row {row}", "finite numbers")
    if np.any((np.diff(station) < 0) | ((np.diff(station) == 0) & (np.diff(hour) <= 0))):
        raise BadInput(KEY, path.name, "rows station by station, in the order of time")
    if station.min() < 0 or station.max() >= len(names):
        raise BadInput(KEY, f"{path.name}, with stations to {station.max()}", f"stations below {len(names)}")
    speed, day = measured[:, columns.index("WSPM")], hour * (2 * np.pi / 24)
    derived = np.stack([speed * np.cos(wind), speed * np.sin(wind), np.cos(day), np.sin(day)], 1)
    return Air(np.concatenate([measured, derived], 1), columns + DERIVED, hour, station, names)


def samples(air: Air, target: str = "PM2.5", columns: Sequence[str] = (), ahead: int = 0) -> tuple[Shards, Any]:
    """Each station's inputs and target, and the hour of each sample's inputs.

    With `ahead`, the target is measured that many hours after the inputs, and the inputs may have the
    target's own present value; without, they are measured at the same time. The inputs are `columns`, or else
    all that was measured (without `ahead`, all but the target). PM10 contains PM2.5: leave it out where that
    is too easy.
    """
    for name in (target, *columns):
        if name not in air.columns:
            raise BadInput("problem.columns", name, did_you_mean(name, air.columns))
    if ahead == 0 and target in columns:
        raise BadInput("problem.columns", list(columns), f"inputs without the target {target} itself")
    measured = [name for name in air.columns if name not in DERIVED and (ahead > 0 or name != target)]
    inputs = tuple(columns) or tuple(measured)
    clock = air.station * (air.hour.max() + ahead + 1) + air.hour  # increases; stations never meet
    later = np.searchsorted(clock, clock + ahead)
    there = later < len(clock)
    there[there] = clock[later[there]] == clock[there] + ahead
    rows = np.flatnonzero(there)
    x = air.x[rows][:, [air.columns.index(name) for name in inputs]]
    y = air.x[later[rows], air.columns.index(target)]
    members = [np.flatnonzero(air.station[rows] == s) for s in range(len(air.stations))]
    return gather(x, y, members, air.stations, inputs), air.hour[rows]


def window(
    air: Air,
    start: int,
    target: str = "PM2.5",
    columns: Sequence[str] = (),
    ahead: int = 0,
    train_hours: int = FORTNIGHT,
    test_hours: int = MONTH,
    least: float = 0.5,
) -> TrainTest:
    """The hours from `start` on to learn from, and those that follow to be judged by, for every station.

    No target of the training set lies in the test's time. A station that has less than the share `least` of
    either is refused: `starts` lists the hours at which none is. Standard units of all stations' training
    hours together.
    """
    end = start + train_hours
    rows = (air.hour >= start) & (air.hour < end + test_hours)
    if not rows.any():
        raise BadInput("problem.start", start, f"an hour from 0 to {air.hour.max()}")
    inside = Air(air.x[rows], air.columns, air.hour[rows], air.station[rows], air.stations)
    everything, hour = samples(inside, target, columns, ahead)
    train = everything.keep((hour >= start) & (hour + ahead < end))
    test = everything.keep((hour >= end) & (hour + ahead < end + test_hours))
    for what, part, hours in (("learn from", train, train_hours), ("test", test, test_hours)):
        thin = int(np.argmin(part.sizes))
        if part.sizes[thin] < max(least * hours, 1):
            found = f"{start} ({part.names[thin]} has {part.sizes[thin]} of {hours} hours to {what})"
            raise BadInput("problem.start", found, "an hour after which every station has enough; see starts()")
    return standardised(train, test)


def starts(air: Air, train_hours: int = FORTNIGHT, test_hours: int = MONTH, ahead: int = 0, least: float = 0.5) -> Any:
    """The midnights at which `window` can begin: every station has enough hours in both its parts."""
    shards, hour = samples(air, ahead=ahead)
    days = np.arange(0, air.hour.max() + 2 - train_hours - test_hours, 24)
    good = np.ones(len(days), bool)
    for s in range(shards.clients):
        mine = hour[shards.starts[s] : shards.starts[s + 1]]
        end = days + train_hours
        learnt = np.searchsorted(mine, end - ahead) - np.searchsorted(mine, days)
        tested = np.searchsorted(mine, end + test_hours - ahead) - np.searchsorted(mine, end)
        good &= (learnt >= max(least * train_hours, 1)) & (tested >= max(least * test_hours, 1))
    return days[good]


def federate(
    air: Air, target: str = "PM2.5", columns: Sequence[str] = (), ahead: int = 0, test: float = 0.2
) -> TrainTest:
    """All four years: each station learns from the first part of its own and is judged by the last."""
    everything, _ = samples(air, target, columns, ahead)
    return standardised(*hold_last(everything, test))
