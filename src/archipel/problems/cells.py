"""Cells of a table: numbers, labels, and what is missing."""

from typing import Any

import numpy as np

MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-")  # how cells say that they have nothing to say


def as_numbers(cells: Any) -> tuple[Any, list[int]]:
    """A column as numbers, NaN where a cell is missing, and the places of what is neither."""
    try:
        numbers = np.asarray(cells, float)
    except ValueError:
        numbers = np.array([number_of(cell) for cell in cells], float)
        bad = [i for i, cell in enumerate(cells) if np.isnan(numbers[i]) and str(cell).strip().lower() not in MISSING]
        return numbers, bad + np.flatnonzero(np.isinf(numbers)).tolist()
    return numbers, np.flatnonzero(np.isinf(numbers)).tolist()


def number_of(cell: Any) -> float:
    return float(cell) if is_number(cell) else float("nan")


def is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def filled(table: Any) -> Any:
    """Missing numbers as the mean of their column, of this client alone; 0 where it has none."""
    there = ~np.isnan(table)
    mean = np.where(there, table, 0.0).sum(0) / np.maximum(there.sum(0), 1)
    return np.where(there, table, mean)


def label_of(cell: Any) -> str:
    """A label as text: 1, 1.0 and "1" are the same; "" where it is missing.

    >>> label_of(1.0), label_of(" Yes "), label_of("n/a"), label_of(True)
    ('1', 'Yes', '', '1')
    """
    if is_number(cell):
        return "" if np.isnan(float(cell)) else f"{float(cell):g}"
    text = str(cell).strip()
    return "" if text.lower() in MISSING else text
