"""A user's own graph from CSV files. What is wrong with a file is said with its line."""

import csv
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput


class Table(NamedTuple):
    """The cells of a CSV file, column by column."""

    key: str  # the key of the description that names the file
    path: str
    columns: dict[str, list[str]]
    lines: list[int]

    def bad(self, right: str, row: int) -> BadInput:
        """An error that points at a row."""
        cells = ",".join(column[row] for column in self.columns.values())
        return BadInput(self.key, self.path, f"{right} (line {self.lines[row]}: {cells})")


def read(key: str, path: str, needed: Sequence[str], optional: Sequence[str] = ()) -> Table:
    """A CSV file with a header; exactly the columns that are asked for."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise BadInput(key, path, f"a CSV file that can be read ({problem})") from problem
    header = rows[0][1] if rows else []
    may = f", and {', '.join(optional)} where wanted" if optional else ""
    if not set(needed) <= set(header) <= {*needed, *optional} or len(set(header)) < len(header):
        found = ", ".join(header) or "nothing"
        raise BadInput(key, path, f"a header with the columns {', '.join(needed)}{may} (found: {found})")
    for line, cells in rows[1:]:
        if len(cells) != len(header):
            raise BadInput(key, path, f"{len(header)} cells in each row (line {line}: {','.join(cells)})")
    columns = {name: [cells[i] for _, cells in rows[1:]] for i, name in enumerate(header)}
    return Table(key, path, columns, [line for line, _ in rows[1:]])


def known_names(
    tables: Sequence[tuple[Table, str]], count: int, names: Sequence[str] | None, kind: str
) -> dict[str, int]:
    """What the cells of these columns may say, and the number each stands for.

    Names that are given beforehand, where a cell uses one; else numbers from 0, where all cells are
    numbers; else the names in the files, sorted, of which there must be as many as there are nodes.
    """
    cells = {cell for table, column in tables for cell in table.columns[column]}
    if names is not None and not cells.isdisjoint(names):
        return {name: i for i, name in enumerate(names)}
    if all(_is_integer(cell) for cell in cells):
        return {str(i): i for i in range(count)}
    table = tables[0][0]
    if names is not None:
        right = f"the {kind}s' names, such as {names[0]}, or numbers from 0 to {count - 1}"
        raise BadInput(table.key, table.path, right)
    if len(cells) != count:
        raise BadInput(table.key, table.path, f"{count} different {kind}s (found {len(cells)})")
    return {name: i for i, name in enumerate(sorted(cells))}


def _is_integer(cell: str) -> bool:
    return cell.isascii() and cell.removeprefix("-").isdigit()


def numbers(table: Table, column: str, known: dict[str, int], kind: str) -> Any:
    """A column of nodes as numbers."""
    cells = table.columns[column]
    for row, cell in enumerate(cells):
        if cell not in known:
            some = list(known)
            raise table.bad(f"a {kind} from {some[0]} to {some[-1]} in column {column}", row)
    return np.array([known[cell] for cell in cells], np.int64)


def reals(table: Table, column: str) -> Any:
    """A column of weights: finite numbers that are not negative."""
    values = np.empty(len(table.lines))
    for row, cell in enumerate(table.columns[column]):
        try:
            values[row] = float(cell)
        except ValueError:
            values[row] = math.nan
        if not 0 <= values[row] < math.inf:
            raise table.bad(f"a number that is not negative in column {column}", row)
    return values


def phase_numbers(table: Table) -> Any:
    """The phase of each row; 0 where the file has no such column."""
    cells = table.columns.get("phase", ["0"] * len(table.lines))
    for row, cell in enumerate(cells):
        if not (cell.isascii() and cell.isdigit() and int(cell) < 1_000_000):
            raise table.bad("a whole number from 0 in column phase", row)
    return np.array([int(cell) for cell in cells], np.int64)


def refuse_repeats(table: Table, codes: Any, right: str) -> None:
    """Rows with the same code say the same thing twice."""
    _, first, group = np.unique(codes, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[group] != np.arange(len(codes)))
    if len(again):
        row = int(again[0])
        raise table.bad(f"{right}; it repeats line {table.lines[int(first[group[row]])]}", row)


def belongs(table: Table, column: str, client: Any, group: Any, clients: int) -> Any:
    """Which group each client is in: every client once."""
    refuse_repeats(table, client, f"each client in one {column} only")
    missing = np.setdiff1d(np.arange(clients), client)
    if len(missing):
        raise BadInput(table.key, table.path, f"a {column} for every client (none for client {missing[0]})")
    of = np.empty(clients, np.int64)
    of[client] = group
    return of
