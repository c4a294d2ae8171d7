"""Reading a user's own data: one file a client, named after the client.

A file is an npz with x and y, a csv with a header and a named target, or a parquet table (with pyarrow). What cannot be
used is refused with the file and the line, everything at once, before anything runs.
"""

import csv
import glob
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput, Findings, Missing, as_written, did_you_mean
from archipel.problems.cells import MISSING, as_numbers, encoded, filled, is_number, label_of, two_of
from archipel.problems.datasets.npz import arrays_in
from archipel.problems.splits.shards import Shards, hold_clients, hold_groups, hold_last, hold_out, join

KEY = "problem.data"
SEPARATORS = (",", ";", "\t", "|")
LINES = 40  # of what is wrong with the files
OF = "a column of "
SAID = 3  # wrong cells of a file that are named one by one


class Reading(NamedTuple):
    """How files are read."""

    target: str = "y"
    columns: Sequence[str] = ()
    separator: str = ""  # "": the one that the header has most of
    missing: str = "refuse"  # or "skip" (the row), or "mean" (the client's own, of the column)
    labels: bool = False  # whether the target is one of two classes, whatever they are called
    positive: str = ""
    categories: Mapping[str, Sequence[Any]] = {}  # column: its values; each becomes a column of 0 and 1
    aside: Sequence[str] = ()  # columns that say whose or when a sample is, and are no inputs
    centers: Mapping[str, float] = {}  # column: what is declared, and stands for a column of which a client has nothing
    advised: bool = False  # whether a description may say otherwise: missing = "skip", loss = "logistic"


class Client(NamedTuple):
    """One client's samples, in double precision; labels are text until all are known."""

    x: Any  # (samples, ...)
    y: Any  # (samples,)
    columns: tuple[str, ...]  # of x, where they have names
    incomplete: int = 0  # rows that lacked something
    aside: Mapping[str, Any] = {}  # column: (samples,) words
    centred: tuple[str, ...] = ()  # columns of which it has nothing, and that hold what is declared


def read_all(data: str | Path, how: Reading, key: str = KEY) -> dict[Path, Client]:
    """Every client's file; all that is wrong in any of them is said at once."""
    found, clients = Findings(), dict[Path, Client]()
    for path in find(data, key):
        with found:
            clients[path] = read_client(path, **how._asdict())
            _alike(path, clients[path], *next(iter(clients.items())))
    found.all = in_short(found.all)
    found.refuse()
    return clients


def in_short(found: Sequence[BadInput]) -> list[BadInput]:
    """What is wrong with the files: once, where it is the same of many, and not by the page."""
    alike = dict[tuple[str, str], list[BadInput]]()
    for problem in found:
        alike.setdefault((problem.key, as_written(problem.value)), []).append(problem)
    short = list[BadInput]()
    for first, *others in alike.values():
        files = f", and of {len(others)} more" if others and first.right.startswith(OF) else ""
        short.append(BadInput(first.key, first.value, first.right + files) if files else first)
    if len(short) > LINES:
        short[LINES:] = [BadInput(KEY, f"{len(short) - LINES} lines more", "what fits there too")]
    return short


def targets(groups: Sequence[Mapping[Path, Client]], how: Reading) -> list[list[Any]]:
    """The targets of clients that were read, group by group; what labels mean is settled for all of them."""
    ys = [[client.y for client in clients.values()] for clients in groups]
    if not how.labels:
        return ys
    every = iter(encoded([y for group in ys for y in group], how.positive))
    return [[next(every) for _ in group] for group in ys]


def labels(clients: Mapping[Path, Client], test: float | str | Path, how: Reading) -> tuple[str, str]:
    """The two labels of clients that were read, the one that stands for 1 last; test files may have one of them."""
    ys = [client.y for client in clients.values()]
    if isinstance(test, str | Path) and len({label for y in ys for label in y}) < 2:
        ys += [client.y for client in read_all(test, how, "problem.test").values()]
    return two_of(ys, how.positive)


def together(clients: Mapping[Path, Client], ys: Sequence[Any]) -> Shards:
    """Clients that were read, as one table; their columns in the order of the first."""
    first = next(iter(clients.values()))
    parts = [(in_order(client, first.columns), y) for client, y in zip(clients.values(), ys)]
    return join(parts, [path.stem for path in clients], first.columns)


def read_split(
    data: str | Path, test: float | str | Path, seed: int = 0, hold: str = "random", group: str = "", **how: Any
) -> tuple[Shards, Shards]:
    """What clients learn from, and what they are tested on.

    `test` is a fraction of each client's samples, chosen at random, its last ones or whole groups (`hold`), or a folder
    or pattern of test files.
    """
    reading = Reading(aside=(group,) if group else (), **how)
    return split(read_all(data, reading), data, test, reading, seed, hold, group)


def split(
    clients: Mapping[Path, Client],
    data: str | Path,
    test: float | str | Path,
    how: Reading,
    seed: int = 0,
    hold: str = "random",
    group: str = "",
) -> tuple[Shards, Shards]:
    """Clients that were read, with a part of their samples or other files to test on."""
    if not isinstance(test, str | Path):
        everything = together(clients, targets([clients], how)[0])
        if hold == "files":
            return hold_clients(everything, test, seed)
        if hold == "groups":
            parts = hold_groups(everything, [client.aside[group] for client in clients.values()], test, seed)
            if not len(parts[1].y):
                raise BadInput("problem.group", group, "a column with two values or more in at least one client's data")
            return parts
        return hold_out(everything, test, seed) if hold == "random" else hold_last(everything, test)
    shared = {p.resolve() for p in find(data)} & {p.resolve() for p in find(test, "problem.test")}
    if shared:
        raise BadInput("problem.test", test, f"files that nobody learns from, unlike {min(shared).name}")
    first = next(iter(clients.values()))
    made = {f"{name}={label_of(v)}": name for name, values in how.categories.items() for v in values}
    columns = how.columns or tuple(dict.fromkeys(made.get(name, name) for name in first.columns))
    others = read_all(test, how._replace(columns=columns), "problem.test")
    ys = targets([clients, others], how)
    everything, apart = together(clients, ys[0]), together(others, ys[1])
    if apart.x.shape[1:] != everything.x.shape[1:]:
        right = f"inputs of shape {everything.x.shape[1:]}, as in the training files"
        raise BadInput("problem.test", f"{test}, of shape {apart.x.shape[1:]}", right)
    return everything, apart


def found_at(place: str | Path) -> Iterable[Path]:
    """All that is in a folder, or that a pattern finds."""
    where = Path(place).expanduser()
    return where.iterdir() if where.is_dir() else map(Path, glob.glob(str(where), recursive=True))


def find(data: str | Path, key: str = KEY) -> list[Path]:
    """The files of a folder or a pattern that can be read, sorted by the name of their client."""
    known = (p for p in found_at(data) if p.suffix.lower() in READERS and p.is_file())
    paths = sorted(known, key=lambda p: (p.stem, p))
    if not paths:
        raise BadInput(key, str(data), f"a folder or pattern with files that end in {', '.join(READERS)}")
    for one, two in pairwise(paths):
        if one.stem == two.stem:
            raise BadInput(key, f"{one.name} and {two.name}", "one file for each client")
    return paths


def left_out(data: str | Path) -> list[str]:
    """What is found and cannot be read, by name: files of a folder of another kind, folders with the name of a file."""
    return sorted(p.name for p in found_at(data) if p.is_file() == (p.suffix.lower() not in READERS))


def read_client(path: Path, **how: Any) -> Client:
    """One client's file."""
    return settled(as_it_is(path, Reading(**how)), path.name, Reading(**how))


def as_it_is(path: Path, how: Reading) -> Client:
    """One file; where missing cells are to be filled, they are still NaN."""
    if path.suffix.lower() not in READERS:
        raise BadInput(KEY, path.name, f"a file that ends in {', '.join(READERS)}")
    if not path.is_file():
        raise BadInput(KEY, str(path), "a file that exists")
    client = READERS[path.suffix.lower()](path, how)
    if len(client.y) == 0:
        raise BadInput(KEY, path.name, "at least one sample")
    return client


def settled(client: Client, who: str, how: Reading) -> Client:
    """A client whose missing cells are filled, where that is asked for, with means of its own; rows need a target."""
    if how.missing != "mean":
        return client
    x, centred = centred_of(client, who, how)
    keep = ~(client.y == "" if how.labels else np.isnan(client.y))
    if not keep.any():
        raise BadInput(KEY, who, f"at least one sample with a value of the target {how.target}")
    aside = {name: cells[keep] for name, cells in client.aside.items()}
    return client._replace(x=filled(x)[keep], y=client.y[keep], aside=aside, centred=centred)


def centred_of(client: Client, who: str, how: Reading) -> tuple[Any, tuple[str, ...]]:
    """The inputs, with the declared center in columns of which a client has nothing; without one there is no mean."""
    found, centred, x = Findings(), [], client.x.copy()
    words = {f"{name}={value}": name for name, values in how.categories.items() for value in values}
    lacking: dict[str, str] = {}
    for place in np.argwhere(np.isnan(x).all(0)).tolist():
        name = client.columns[place[0]] if client.columns else f"x{place if len(place) > 1 else place[0]}"
        if name in how.centers:
            x[(slice(None), *place)] = how.centers[name]
            centred.append(name)
        else:
            lacking[words.get(name, name)] = "" if name in words else ", declare its center"
    for name, center in lacking.items():
        right = f"a value in one row at least, for a mean: leave the column out{center}, or leave this client out"
        found.add(BadInput(KEY, f"{who}, column {name}, which is empty", right))
    found.refuse()
    return x, tuple(centred)


# --- the formats ------------------------------------------------------------------------------------------


def read_npz(path: Path, how: Reading) -> Client:
    """Arrays x (samples first) and y, or the name of the target; `columns`, if there, names the inputs."""
    arrays = arrays_in(path, KEY)
    for name in filter(None, ("x", how.target, *how.aside)):
        if name not in arrays:
            raise BadInput(KEY, f"{path.name} with {', '.join(arrays) or 'nothing'}", f'an array "{name}" in it')
        if name in how.aside:
            continue
        if arrays[name].dtype.kind not in ("fiubU" if how.labels and name != "x" else "fiub"):
            hint = of_words(name, arrays[name].ravel().tolist(), how) if name == how.target else ""
            raise BadInput(KEY, f"{path.name}, {name} of {arrays[name].dtype}", f"numbers{hint}")
    x = arrays["x"].astype(np.float64)
    y = arrays[how.target] if how.target else np.zeros(x.shape[:1])
    x = x[:, None] if x.ndim == 1 else x
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    for name, column in ((how.target, y), *((name, arrays[name]) for name in how.aside)):
        if x.ndim < 2 or column.ndim != 1 or len(x) != len(column):
            right = f"one row of x for each {name if name in how.aside else 'target'}"
            raise BadInput(KEY, f"{path.name}, x {x.shape} and {name} {column.shape}", right)
    names = tuple(map(str, arrays.get("columns", ())))
    if names and len(names) != x.shape[1]:
        raise BadInput(KEY, f"{path.name}, {len(names)} columns", f"a name for each of {x.shape[1]} columns")
    if how.columns and not names and len(how.columns) == x.shape[1]:
        names = tuple(how.columns)  # a file without names has them in the order of the description
    if how.columns:
        x, names = x[:, [_place(path, name, names) for name in how.columns]], tuple(how.columns)
    rows = [f"row {row} (from 0)" for row in range(len(y))]
    flat = {f"x{j}": column for j, column in enumerate(x.reshape(len(x), int(np.prod(x.shape[1:]))).T)}
    flat |= ({how.target: y} if how.target else {}) | {name: arrays[name].tolist() for name in how.aside}
    client = complete(path, flat, rows, how, "x")
    return client._replace(x=client.x.reshape(-1, *x.shape[1:]), columns=names)


def csv_lines(path: Path, separator: str = "", key: str = KEY) -> tuple[list[tuple[int, list[str]]], str]:
    """The lines of a csv that have something in them, each with its number, and what stands between their cells."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(key, path.name, "text in UTF-8") from None
    separator = separator or max(SEPARATORS, key=text.split("\n", 1)[0].count)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator)
    cells = ((reader.line_num, [cell.strip() for cell in row]) for row in reader)
    return [(number, row) for number, row in cells if any(row)], separator


def read_csv(path: Path, how: Reading) -> Client:
    """A header, then a line for each sample."""
    lines, separator = csv_lines(path, how.separator)
    header, found = lines[0][1] if lines else [], Findings()
    inputs = _chosen(path, header, how)
    for line, cells in [(line, cells) for line, cells in lines if len(cells) != len(header)][:SAID]:
        right = f"{len(header)} cells, as the header has"
        found.add(BadInput(KEY, f"{path.name}, line {line}, with {len(cells)} cells", right))
    found.refuse()
    body = list(zip(*(cells for _, cells in lines[1:]))) or [()] * len(header)
    columns = {name: list(body[header.index(name)]) for name in inputs}
    if separator != ",":  # then commas may be decimal points
        columns = {name: [cell.replace(",", ".") for cell in cells] for name, cells in columns.items()}
    return complete(path, columns, [f"line {line}" for line, _ in lines[1:]], how)


def read_parquet(path: Path, how: Reading) -> Client:
    """A table, read by pyarrow."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise Missing(f"{path.name} is a parquet file, and reading it needs pyarrow: pip install pyarrow.") from None
    try:
        stored = parquet.read_table(path)
    except (OSError, ArrowException):
        raise BadInput(KEY, path.name, "a parquet file") from None
    inputs = _chosen(path, [str(name) for name in stored.column_names], how)
    columns = {name: stored.column(name).to_pylist() for name in inputs}
    columns = {name: ["" if cell is None else cell for cell in cells] for name, cells in columns.items()}
    rows = [f"row {row} (from 0)" for row in range(stored.num_rows)]
    return complete(path, columns, rows, how)


READERS = {".npz": read_npz, ".csv": read_csv, ".tsv": read_csv, ".parquet": read_parquet}


# --- cells ------------------------------------------------------------------------------------------------


def complete(path: Path, columns: Mapping[str, Any], where: Sequence[str], how: Reading, shown: str = "") -> Client:
    """Inputs as numbers, the target as numbers or labels, columns aside as words; rows that lack something aside."""
    made, lacking = understood(path, columns, where, how, shown)
    names = tuple(name for name in made if name != how.target and name not in how.aside)
    table = np.array([made[name] for name in names], float).T.reshape(len(where), len(names))
    target = made[how.target] if how.target else np.zeros(len(where))
    keep = ~lacking if how.missing != "mean" else np.ones(len(where), bool)
    aside = {name: made[name][keep] for name in how.aside}
    return Client(np.ascontiguousarray(table[keep]), target[keep], names, int(lacking.sum()), aside)


def understood(
    path: Path, columns: Mapping[str, Any], where: Sequence[str], how: Reading, shown: str = "", key: str = KEY
) -> tuple[dict[str, Any], Any]:
    """Columns as numbers, labels and words, NaN or "" where a cell is missing, and which rows lack something."""
    found, made = Findings(), dict[str, Any]()
    lacking = np.zeros(len(where), bool)
    wrong: list[tuple[int, str, Any, str]] = []
    for name, cells in columns.items():
        if name in how.aside or (name == how.target and how.labels):
            made[name] = np.array([label_of(cell) for cell in cells], object)
            gone = made[name] == ""
        elif name in how.categories:
            known = [label_of(value) for value in how.categories[name]]
            given = [label_of(cell) for cell in cells]
            gone = np.array([cell.lower() in MISSING for cell in given], bool)
            strange = [i for i, cell in enumerate(given) if cell not in known and not gone[i]]
            wrong += [(i, name, cells[i], f"one of {', '.join(known)}") for i in strange]
            for value in known:
                made[f"{name}={value}"] = np.where(gone, np.nan, np.array([c == value for c in given], float))
        else:
            made[name], bad = as_numbers(cells)
            hint = of_words(name, cells, how) if bad else ""
            said = bad[:1] if hint and name != how.target else bad  # of a column of words one is enough
            number = f"a number{hint}"
            wrong += [(i, name, cells[i], "a finite number" if is_number(cells[i]) else number) for i in said]
            gone = np.isnan(made[name])
            gone[bad] = False
        if how.missing == "refuse":
            wrong += [(i, name, cells[i], unless(name, how)) for i in np.flatnonzero(gone).tolist()]
        lacking |= gone
    for i, name, cell, right in sorted(wrong, key=lambda one: one[0])[:SAID]:
        at = f"{path.name}, {name if not shown else (shown if name != how.target else name)}, {where[i]}"
        at = at if shown else f"{path.name}, {where[i]}, column {name}: {cell!r}"
        found.add(BadInput(key, at, right))
    if len(wrong) > SAID:
        more = f"{len(wrong) - SAID} cell{'s' if len(wrong) > SAID + 1 else ''} more"
        found.add(BadInput(key, f"{path.name}, {more}", "what fits there too"))
    found.refuse()
    return made, lacking


def unless(name: str, how: Reading) -> str:
    """What a cell that is missing should be, and what a description could say of it; nobody fills in a target."""
    words = name in (*how.aside, *how.categories) or (name == how.target and how.labels)
    right = "a value" if words else "a number that is finite"
    fills = ', "mean" fills them' if name != how.target and name not in how.aside else ""
    return f'{right}; problem.missing = "skip" leaves such rows out{fills}' if how.advised else right


def of_words(name: str, cells: Sequence[Any], how: Reading) -> str:
    """What a description could say of a column in which there is no number."""
    words = {label_of(cell) for cell in cells} - {""}
    if not how.advised or any(map(is_number, words)):
        return ""
    if name != how.target:
        return "; a column of words needs its values in problem.categories, or is left out by problem.columns"
    return '; two words are for problem.loss = "logistic"' if len(words) <= 2 else ""


# --- columns ----------------------------------------------------------------------------------------------


def _chosen(path: Path, header: list[str], how: Reading) -> tuple[str, ...]:
    """The columns that are read: inputs, what stands aside, and the target, if there is one."""
    if not header:
        raise BadInput(KEY, path.name, "a header and at least one sample")
    for place, name in enumerate(header):
        if how.columns and name not in (*how.columns, *how.aside, *how.categories, how.target):
            continue  # nobody reads it
        if not name or name in header[:place]:
            others = "" if name or not how.advised else ", or the columns to read in problem.columns"
            right = f"a name of its own for each column{others}"
            raise BadInput(KEY, f"{path.name}, column {place + 1}: {name!r}", right)
    if how.target and how.target not in header and all(map(is_number, header)):
        raise BadInput(KEY, f"{path.name}, line 1: {', '.join(header[:4])}", "the names of the columns")
    if how.target and how.target not in header:
        raise BadInput("problem.target", how.target, f"{OF}{path.name}, {did_you_mean(how.target, header)}")
    if how.target in how.columns:
        raise BadInput("problem.columns", list(how.columns), f"inputs only, without the target {how.target}")
    for name in how.aside:
        _place(path, name, header, "problem.group")
    inputs = tuple(how.columns) or tuple(name for name in header if name != how.target and name not in how.aside)
    if not inputs:
        raise BadInput(KEY, path.name, f"at least one column beside the target {how.target}")
    for name in (*inputs, *how.categories):
        _place(path, name, header, "problem.columns" if name in inputs else "problem.categories")
    return (*inputs, *how.aside, *filter(None, [how.target]))


def _place(path: Path, name: str, header: Sequence[str], key: str = "problem.columns") -> int:
    if name not in header:
        known = did_you_mean(name, header) if header else "which has columns without names"
        raise BadInput(key, name, f"{OF}{path.name}, {known}")
    return list(header).index(name)


def _alike(path: Path, client: Client, first_path: Path, first: Client) -> None:
    """Everyone's model has the same size, so everyone's inputs have."""
    if set(client.columns) != set(first.columns):
        odd = sorted(set(client.columns) ^ set(first.columns))
        right = (
            f"the columns of {first_path.name}, or those of both in problem.columns; {', '.join(odd)} is in one only"
        )
        raise BadInput(KEY, path.name, right)
    if client.x.shape[1:] != first.x.shape[1:]:
        right = f"inputs of shape {first.x.shape[1:]}, as in {first_path.name}"
        raise BadInput(KEY, f"{path.name}, with inputs of shape {client.x.shape[1:]}", right)


def in_order(client: Client, columns: tuple[str, ...]) -> Any:
    """The inputs in the order of the first file."""
    if client.columns == columns:
        return client.x
    return client.x[:, [client.columns.index(name) for name in columns]]
