"""Our files, made of the archives that the owners of two data sets publish."""

import csv
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from archipel.errors import BadInput

WINDS = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")
AIR = ("PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")

WATER = ("Depthm", "T_degC", "Salnty", "O2ml_L", "STheta", "O2Sat")
YEARS = range(2003, 2021)
STATIONS = {  # the lines of the survey and their stations, which are visited in every season
    "076.7": "049.0 051.0 055.0 060.0 070.0 080.0 090.0 100.0",
    "080.0": "051.0 055.0 060.0 070.0 080.0 090.0 100.0",
    "081.8": "046.9",
    "083.3": "040.6 042.0 051.0 055.0 060.0 070.0 080.0 090.0 100.0 110.0",
    "086.7": "033.0 035.0 040.0 045.0 050.0 055.0 060.0 070.0 080.0 090.0 100.0 110.0",
    "090.0": "028.0 030.0 035.0 037.0 045.0 053.0 060.0 070.0 080.0 090.0 100.0 110.0 120.0",
    "093.3": "026.7 028.0 030.0 035.0 040.0 045.0 050.0 055.0 060.0 070.0 080.0 090.0 100.0 110.0 120.0",
}


def beijing(archive: Path, out: IO[bytes]) -> None:
    """UCI's twelve csv files: the hours at which nothing is missing, station by station."""
    found: dict[str, tuple[Any, Any, Any]] = {}
    for file, table in tables(archive, "PRSA_Data_"):
        whole = [row for row in table if "NA" not in (row["wd"], *(row[column] for column in AIR))]
        air = np.array([[float(row[column]) for column in AIR] for row in whole], np.float32)
        wind = np.array([WINDS.index(row["wd"]) for row in whole], np.int8)
        found[file.split("_")[2]] = air.reshape(-1, len(AIR)), wind, [int(row["No"]) - 1 for row in whole]
    if not found:
        raise BadInput("datasets.beijing-air", archive.name, "an archive with the files PRSA_Data_*.csv")
    names = sorted(found)
    air, wind, hour = (np.concatenate([found[name][i] for name in names]) for i in range(3))
    np.savez_compressed(
        out,
        X=air,
        columns=np.array(AIR),
        wind_dir=wind,
        wind_names=np.array(WINDS),
        hour_index=hour.astype(np.int32),
        station_id=np.repeat(np.arange(len(names), dtype=np.int32), [len(found[name][0]) for name in names]),
        station_name=np.array(names),
    )


def calcofi(archive: Path, out: IO[bytes]) -> None:
    """The casts and bottles of the database: regular stations, 2003 to 2020, where nothing is missing."""
    known = [f"{line} {name}" for line, names in STATIONS.items() for name in names.split()]
    casts: dict[str, dict[str, str]] = {}
    for _, table in tables(archive, "Cast.csv"):
        for row in table:
            if int(row["Year"]) in YEARS and row["Sta_ID"] in known:
                casts[row["Cst_Cnt"]] = row
    bottles: list[tuple[Any, ...]] = []
    for _, table in tables(archive, "Bottle.csv"):
        for row in table:
            cast = casts.get(row["Cst_Cnt"])
            if cast and all(row[column].strip() for column in WATER):
                where = [float(cast["Lat_Dec"]), float(cast["Lon_Dec"])]
                when = [int(cast["Year"]), int(cast["Quarter"])]
                numbers = [float(row[column]) for column in WATER]
                bottles.append((int(row["Cst_Cnt"]), numbers[0], known.index(cast["Sta_ID"]), *when, *where, numbers))
    if not bottles:
        right = "an archive with ..._Cast.csv and ..._Bottle.csv, with casts from 2003 to 2020"
        raise BadInput("datasets.calcofi", archive.name, right)
    bottles.sort(key=lambda bottle: bottle[:2])  # cast by cast, from the surface down
    cast_id, _, station, year, quarter, lat, lon, water = zip(*bottles)
    np.savez_compressed(
        out,
        **dict(zip(WATER, np.array(water, np.float32).T)),
        cast_id=np.array(cast_id, np.int32),
        station_id=np.array(station, np.int32),
        station_name=np.array(known),
        year=np.array(year, np.int16),
        quarter=np.array(quarter, np.int8),
        lat=np.array(lat, np.float32),
        lon=np.array(lon, np.float32),
    )


def tables(archive: Path | IO[bytes], part: str) -> Iterator[tuple[str, Iterator[dict[str, str]]]]:
    """The csv files of an archive, and of the archives in it, whose name has this part; name and rows."""
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            name = Path(info.filename).name
            if name.endswith(".zip"):
                yield from tables(io.BytesIO(zipped.read(info)), part)
            elif name.endswith(".csv") and part in name:
                with zipped.open(info) as file:
                    yield name, csv.DictReader(io.TextIOWrapper(file, "utf-8-sig", "replace", ""))


CONVERTERS: dict[str, Callable[[Path, IO[bytes]], None]] = {"beijing-air": beijing, "calcofi": calcofi}
