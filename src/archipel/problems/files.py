"""A user's own data: one file a client, named after the client.

A file is an npz with x and y, a csv with a header and a named target, or a parquet table (with pyarrow). What
is not a finite number is refused with the file and the line, before anything runs.
"""

import csv
import glob
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput, Missing, did_you_mean
from archipel.problems.datasets.npz import arrays_in
from archipel.problems.splits.shards import Shards, hold_last, hold_out, join

KEY = "problem.data"


class Client(NamedTuple):
    """One client's samples, in double precision."""

    x: Any  # (samples, ...)
    y: Any  # (samples,)
    columns: tuple[str, ...]  # of x, where they have names


def read(data: str | Path, target: str = "y", columns: Sequence[str] = (), base: str | Path | None = None) -> Shards:
    """All clients of a folder or a pattern, sorted by name; with `columns`, only these inputs.

    A relative path is meant from `base`, the folder of the description.
    """
    paths = find(data, base)
    clients = [read_client(path, target, columns) for path in paths]
    first = clients[0]
    for path, client in zip(paths, clients):
        _alike(path, client, paths[0], first)
    parts = [(_in_order(client, first.columns), client.y) for client in clients]
    return join(parts, [path.stem for path in paths], first.columns)


def read_split(
    data: str | Path,
    test: float | str | Path,
    target: str = "y",
    columns: Sequence[str] = (),
    seed: int = 0,
    hold: str = "random",
    base: str | Path | None = None,
) -> tuple[Shards, Shards]:
    """What clients learn from, and what they are judged by.

    `test` is a fraction of each client's samples, chosen at random or its last ones (`hold`), or a folder or
    pattern of test files.
    """
    everything = read(data, target, columns, base)
    if isinstance(test, str | Path):
        apart = read(test, target, columns or everything.columns, base)
        shared = {p.resolve() for p in find(data, base)} & {p.resolve() for p in find(test, base)}
        if shared:
            raise BadInput("problem.test", test, f"files that nobody learns from, unlike {min(shared).name}")
        if apart.x.shape[1:] != everything.x.shape[1:]:
            right = f"inputs of shape {everything.x.shape[1:]}, as in the training files"
            raise BadInput("problem.test", f"{test}, of shape {apart.x.shape[1:]}", right)
        return everything, apart
    if hold not in ("random", "last"):
        raise BadInput("problem.hold", hold, '"random" or "last"')
    return hold_out(everything, test, seed) if hold == "random" else hold_last(everything, test)


def find(data: str | Path, base: str | Path | None = None) -> list[Path]:
    """The files of a folder or a pattern that can be read, sorted by the name of their client."""
    where = Path(base or ".") / Path(data).expanduser()
    candidates = where.iterdir() if where.is_dir() else map(Path, glob.glob(str(where), recursive=True))
    paths = sorted((p for p in candidates if p.suffix in READERS and p.is_file()), key=lambda p: (p.stem, p))
    if not paths:
        raise BadInput(KEY, str(data), f"a folder or pattern with files that end in {', '.join(READERS)}")
    for one, two in pairwise(paths):
        if one.stem == two.stem:
            raise BadInput(KEY, f"{one.name} and {two.name}", "one file for each client")
    return paths


def read_client(path: Path, target: str = "y", columns: Sequence[str] = ()) -> Client:
    """One client's file."""
    if path.suffix not in READERS:
        raise BadInput(KEY, path.name, f"a file that ends in {', '.join(READERS)}")
    if not path.is_file():
        raise BadInput(KEY, str(path), "a file that exists")
    client = READERS[path.suffix](path, target, tuple(columns))
    if len(client.y) == 0:
        raise BadInput(KEY, path.name, "at least one sample")
    return client


# --- the formats ------------------------------------------------------------------------------------------


def read_npz(path: Path, target: str, columns: tuple[str, ...]) -> Client:
    """Arrays x (samples first) and y, or the name of the target; `columns`, if there, names the inputs."""
    arrays = arrays_in(path, KEY)
    for name in ("x", target):
        if name not in arrays:
            raise BadInput(KEY, f"{path.name} with {', '.join(arrays) or 'nothing'}", f'an array "{name}" in it')
        if arrays[name].dtype.kind not in "fiub":
            raise BadInput(KEY, f"{path.name}, {name} of {arrays[name].dtype}", "numbers")
    x, y = arrays["x"].astype(np.float64), arrays[target].astype(np.float64)
    x = x[:, None] if x.ndim == 1 else x
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
        raise BadInput(KEY, f"{path.name}, x {x.shape} and {target} {y.shape}", "one row of x for each target")
    for name, array in (("x", x), (target, y)):
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise BadInput(KEY, f"{path.name}, {name}, row {row} (from 0)", "finite numbers")
    names = tuple(map(str, arrays.get("columns", ())))
    if names and len(names) != x.shape[1]:
        raise BadInput(KEY, f"{path.name}, {len(names)} columns", f"a name for each of {x.shape[1]} columns")
    if not columns:
        return Client(x, y, names)
    places = [_place(path, name, names) for name in columns]
    return Client(x[:, places], y, columns)


def read_csv(path: Path, target: str, columns: tuple[str, ...]) -> Client:
    """A header, then comma-separated numbers."""
    try:
        header = next(_cells(path), (0, []))[1]
        inputs, places = _chosen(path, header, target, columns)
        table = _fast(path, len(header))
        table = _slow(path, header, places) if table is None else table[:, places]
    except UnicodeDecodeError:
        raise BadInput(KEY, path.name, "text in UTF-8") from None
    return Client(np.ascontiguousarray(table[:, :-1]), table[:, -1].copy(), inputs)


def read_parquet(path: Path, target: str, columns: tuple[str, ...]) -> Client:
    """A table of numbers, read by pyarrow."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise Missing(f"{path.name} is a parquet file, and reading it needs pyarrow: pip install pyarrow.") from None
    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException):
        raise BadInput(KEY, path.name, "a parquet file") from None
    header = [str(name) for name in table.column_names]
    inputs, places = _chosen(path, header, target, columns)
    arrays = []
    for place in places:
        values = table.column(place).to_numpy()
        if values.dtype.kind not in "fiub":
            raise BadInput(KEY, f"{path.name}, column {header[place]} of {values.dtype}", "numbers, none missing")
        arrays.append(values.astype(np.float64))
        if not np.isfinite(arrays[-1]).all():
            row = int(np.flatnonzero(~np.isfinite(arrays[-1]))[0])
            raise BadInput(KEY, f"{path.name}, column {header[place]}, row {row} (from 0)", "finite numbers")
    return Client(np.stack(arrays[:-1], 1), arrays[-1], inputs)


READERS = {".npz": read_npz, ".csv": read_csv, ".parquet": read_parquet}


# --- the steps of csv -------------------------------------------------------------------------------------


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not blank, with the line's number (the header has 1)."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, [cell.strip() for cell in row]


def _chosen(path: Path, header: list[str], target: str, columns: tuple[str, ...]) -> tuple[tuple[str, ...], list[int]]:
    """The inputs, and where they and (last) the target stand."""
    if not header:
        raise BadInput(KEY, path.name, "a header and at least one sample")
    for place, name in enumerate(header):
        if not name or name in header[:place]:
            raise BadInput(KEY, f"{path.name}, column {place + 1}: {name!r}", "a name of its own for each column")
    if target not in header:
        raise BadInput("problem.target", target, f"a column of {path.name}, {did_you_mean(target, header)}")
    if target in columns:
        raise BadInput("problem.columns", list(columns), f"inputs only, without the target {target}")
    inputs = columns or tuple(name for name in header if name != target)
    if not inputs:
        raise BadInput(KEY, path.name, f"at least one column beside the target {target}")
    return inputs, [_place(path, name, header) for name in (*inputs, target)]


def _place(path: Path, name: str, header: Sequence[str]) -> int:
    if name not in header:
        known = did_you_mean(name, header) if header else "which has columns without names"
        raise BadInput("problem.columns", name, f"a column of {path.name}, {known}")
    return list(header).index(name)


def _fast(path: Path, width: int) -> Any:
    """The whole table if it is all finite numbers, or None: then someone has to look line by line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a table without rows
            table = np.loadtxt(
                path, delimiter=",", skiprows=1, ndmin=2, comments=None, quotechar='"', encoding="utf-8-sig"
            )
    except ValueError:
        return None
    return table if table.shape[1] == width and np.isfinite(table).all() else None


def _slow(path: Path, header: list[str], places: list[int]) -> Any:
    """The chosen columns, line by line; what is wrong is named."""
    rows = []
    for line, cells in list(_cells(path))[1:]:
        if len(cells) != len(header):
            right = f"{len(header)} cells, as the header has"
            raise BadInput(KEY, f"{path.name}, line {line}, with {len(cells)} cells", right)
        rows.append([_number(path, line, header[p], cells[p]) for p in places])
    return np.array(rows, np.float64).reshape(-1, len(places))


def _number(path: Path, line: int, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise BadInput(KEY, f"{path.name}, line {line}, column {column}: {cell!r}", "a number") from None
    if not np.isfinite(value):
        raise BadInput(KEY, f"{path.name}, line {line}, column {column}: {cell!r}", "a finite number")
    return value


# --- clients that fit together ----------------------------------------------------------------------------


def _alike(path: Path, client: Client, first_path: Path, first: Client) -> None:
    """Everyone's model has the same size, so everyone's inputs have."""
    if set(client.columns) != set(first.columns):
        odd = sorted(set(client.columns) ^ set(first.columns))
        right = f"the columns of {first_path.name}; {', '.join(odd)} is in one of them only"
        raise BadInput(KEY, path.name, right)
    if client.x.shape[1:] != first.x.shape[1:]:
        right = f"inputs of shape {first.x.shape[1:]}, as in {first_path.name}"
        raise BadInput(KEY, f"{path.name}, with inputs of shape {client.x.shape[1:]}", right)


def _in_order(client: Client, columns: tuple[str, ...]) -> Any:
    """The inputs in the order of the first file."""
    if client.columns == columns:
        return client.x
    return client.x[:, [client.columns.index(name) for name in columns]]
