"""CalCOFI: how salty is the sea? Bottles of water from 66 stations off California (PAO-Fed, figure 4).

The article predicts salinity from "the other available parameters". Two of those were themselves computed
from the salinity, and so give it away: the potential density STheta (with the temperature, by the equation of
state) and the oxygen saturation O2Sat (with the temperature and O2ml_L, by the solubility of oxygen).
Measured on casts that were not learnt from, least squares on 200 random Fourier features of width 3 leaves an
error of -10.5 dB of the salinity's variance with MEASURED, and of -45 dB with ALL. MEASURED is the default,
as what there is to learn; ALL is what the article's words say.

The data is as published. One bottle is plainly wrong in O2Sat (cast 33100, at the surface: 8.84 %, where its
oxygen says 102 %).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.errors import BadInput, did_you_mean
from archipel.problems.datasets.catalogue import find
from archipel.problems.datasets.npz import arrays_in
from archipel.problems.splits.partition import whole_groups
from archipel.problems.splits.shards import TrainTest, gather, one, standardised

KEY = "datasets.calcofi"
MEASURED = ("Depthm", "T_degC", "O2ml_L")
COMPUTED = ("STheta", "O2Sat")  # from the salinity, among others
ALL = MEASURED + COMPUTED
TARGET = "Salnty"
CASTS = 301  # the tag of the draw that chooses casts


@dataclass(frozen=True)
class Water:
    """Bottles, cast by cast in the order of time, from the surface down."""

    x: Any  # (bottles, 5): the columns ALL
    salinity: Any
    cast: Any  # each bottle's cast: a ship's stop, with bottles at many depths
    station: Any  # and its station
    stations: tuple[str, ...]


def load() -> Water:
    """The whole data set."""
    path = find("calcofi")
    arrays = arrays_in(path, KEY, (*ALL, TARGET, "cast_id", "station_id", "station_name"))
    sizes = {len(arrays[name]) for name in (*ALL, TARGET, "cast_id", "station_id")}
    if len(sizes) != 1:
        raise BadInput(KEY, f"{path.name}, with arrays of {sorted(sizes)} rows", "arrays of one length")
    x = np.stack([arrays[name].astype(np.float64) for name in ALL], 1)
    salinity, cast = arrays[TARGET].astype(np.float64), arrays["cast_id"].astype(np.int64)
    station, names = arrays["station_id"].astype(np.int64), tuple(map(str, arrays["station_name"]))
    bad = ~np.isfinite(x).all(1) | ~np.isfinite(salinity)
    if bad.any():
        raise BadInput(KEY, f"{path.name}, row {int(np.flatnonzero(bad)[0])}", "finite numbers")
    if station.min() < 0 or station.max() >= len(names):
        raise BadInput(KEY, f"{path.name}, with stations to {station.max()}", f"stations below {len(names)}")
    return Water(x, salinity, cast, station, names)


def federate(
    water: Water,
    seed: int,
    clients: int = 256,
    rows: int = 80_000,
    test_rows: int = 8_000,
    columns: Sequence[str] = MEASURED,
    weights: Sequence[float] = (1, 2, 3, 4),
) -> TrainTest:
    """Exactly `rows` bottles for uneven clients that differ, and a test set of casts that nobody has seen.

    Casts are chosen at random and stay whole (but for the last, which is cut so that the number of rows is
    right). A client has casts of one station, or of a few beside each other, in the order of time; client k
    has a share of the casts in proportion to weights[k mod 4], as the article's data groups of 500 to 2,000
    samples. The test set is made of whole casts, at least `test_rows` bottles. All in standard units of the
    training set.
    """
    for name in columns:
        if name not in ALL:
            raise BadInput("problem.columns", name, did_you_mean(name, ALL))
    test, train = _choose(water.cast, rows, test_rows, seed)
    near = water.station[train] * (water.cast.max() + 1) + water.cast[train]
    members = whole_groups(water.cast[train], clients, seed, weights, near)
    x, y = water.x[:, [ALL.index(name) for name in columns]], water.salinity
    shards = gather(x[train], y[train], members, columns=columns)
    return standardised(shards, one(x[test], y[test], columns=columns))


def _choose(cast: Any, rows: int, test_rows: int, seed: int) -> tuple[Any, Any]:
    """The bottles of the test set and of the training set, from different casts, in the order of the data."""
    kinds, which, sizes = np.unique(cast, return_inverse=True, return_counts=True)
    order = np.random.default_rng([seed, CASTS]).permutation(len(kinds))
    filled = np.cumsum(sizes[order])
    tests = int(np.searchsorted(filled, test_rows)) + 1
    before = int(filled[min(tests, len(kinds)) - 1])
    if before + rows > len(cast):
        right = f"at most {max(len(cast) - before, 0)} beside a test set of {test_rows}"
        raise BadInput("problem.rows", rows, right)
    trains = int(np.searchsorted(filled, before + rows)) + 1
    turn = np.empty(len(kinds), np.int64)
    turn[order] = np.arange(len(kinds))
    test = np.flatnonzero(turn[which] < tests)
    train = np.flatnonzero((turn[which] >= tests) & (turn[which] < trains))
    last = np.flatnonzero(turn[which[train]] == trains - 1)
    surplus = len(train) - rows
    return test, np.delete(train, last[len(last) - surplus :])
