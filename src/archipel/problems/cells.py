"""Cells of a table: numbers, labels, and what is missing."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from archipel.errors import BadInput, did_you_mean

MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-")  # how cells say that they have nothing to say
POSITIVE = ("1", "yes", "true", "positive", "y", "t", "+")  # of two labels, the one that stands for 1


def as_numbers(cells: Any) -> tuple[Any, list[int]]:
    """A column as numbers, NaN where a cell is missing, and the places of what is neither."""
    try:
        if any(isinstance(cell, str) and "_" in cell for cell in cells):
            raise ValueError("12_5 may be a name: Python takes it for 125")
        numbers = np.asarray(cells, float)
    except ValueError:
        numbers = np.array([float(cell) if is_number(cell) else np.nan for cell in cells])
        bad = [i for i, cell in enumerate(cells) if np.isnan(numbers[i]) and str(cell).strip().lower() not in MISSING]
        return numbers, bad + np.flatnonzero(np.isinf(numbers)).tolist()
    return numbers, np.flatnonzero(np.isinf(numbers)).tolist()


def is_number(cell: Any) -> bool:
    """Whether a cell is a number.

    >>> is_number(" 1e3 "), is_number("12_5")
    (True, False)
    """
    if isinstance(cell, str) and "_" in cell:
        return False
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def filled(table: Any) -> Any:
    """Missing numbers as the mean of their column, of this client alone, which has a number in each."""
    there = ~np.isnan(table)
    mean = np.where(there, table, 0.0).sum(0) / there.sum(0)
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


def encoded(labels: Sequence[Any], positive: str = "") -> list[Any]:
    """Two labels as -1 and 1."""
    _, one = two_of(labels, positive)
    return [np.where(client == one, 1.0, -1.0) for client in labels]


def two_of(labels: Sequence[Any], positive: str = "") -> tuple[str, str]:
    """The two labels, the one that stands for 1 last: `positive`, or what sounds like it, or the larger."""
    every = {label for client in labels for label in client}
    kinds = sorted(every, key=lambda label: (float(label) if is_number(label) else -np.inf, label))
    if len(kinds) != 2:
        shown = ", ".join(kinds[:5]) + (", ..." if len(kinds) > 5 else "")
        raise BadInput("problem.target", shown, f"two classes for the logistic loss, not {len(kinds)}")
    if positive and label_of(positive) not in kinds:
        raise BadInput("problem.positive", positive, f"one of the labels, {did_you_mean(positive, kinds)}")
    sounds = [kind for kind in kinds if kind.lower() in POSITIVE]
    one = label_of(positive) if positive else sounds[0] if len(sounds) == 1 else kinds[1]
    return next(kind for kind in kinds if kind != one), one
