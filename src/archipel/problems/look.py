"""Data is looked at before anything learns from it: what is constant, odd, left out or not used is said."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput, spoken
from archipel.problems import folders
from archipel.problems.files import Client
from archipel.problems.splits.shards import Shards

FAR = 10.0  # spreads between a client's middle and the others', from which on it is odd
TIMES = 30.0  # as is a client whose values spread so many times as much as the others'
RARE = 0.05  # share of a class below which accuracy says little
FEW = 4  # clients from which on one can be odd against the others
DRAWN = 500  # clients of whom a picture of who has what is kept
NAMED = 5  # remarks of one sort that are named


def remarks(shards: Shards, target: str, labels: bool, left_out: Sequence[str]) -> list[str]:
    """Sentences about what a person would want to know before a run."""
    said = []
    if left_out:
        said.append(f"Left out, as they are no tables: {listed(left_out)}.")
    if shards.x.ndim == 2:
        still = np.flatnonzero(np.ptp(shards.x, 0) == 0)
        names = [shards.columns[j] if shards.columns else f"column {j}" for j in still.tolist()]
        said += [
            f"{name} is always {shards.x[0, j]:g}: nothing can be learned from it." for name, j in zip(names, still)
        ]
    if target and len(shards.y) and np.ptp(shards.y) == 0:
        said.append(f"The target {target} is always {spoken(float(shards.y[0]))}: there is nothing to predict.")
    elif labels:
        share = float(np.mean(shards.y > 0))
        if min(share, 1 - share) < RARE:
            word = f"Only {100 * min(share, 1 - share):.2g} % of the samples are of one class"
            said.append(f"{word}: look at AUC and F1 rather than at accuracy.")
        one_sided = [shards.names[k] for k, (_, y) in enumerate(shards) if len(y) and np.ptp(y) == 0]
        if one_sided and len(one_sided) < shards.clients:
            said.append(f"{listed(one_sided)} {'has' if len(one_sided) == 1 else 'have'} samples of one class only.")
    found = odd(shards, target, labels)
    said += [f"{name}: {text}: are these other units?" for name, text in list(found.items())[:NAMED]]
    if len(found) > NAMED:
        said.append(f"{len(found) - NAMED} clients more are odd against the others.")
    return said


def missing(clients: Mapping[str, Client], how: str, centers: Mapping[str, float]) -> list[str]:
    """Sentences about rows that lack a value, and about columns of which a client has nothing."""
    none = [(name, column) for name, client in clients.items() for column in client.centred]
    lacking, said = sum(client.incomplete for client in clients.values()), []
    if lacking:
        done = {"skip": "left out", "mean": "filled with the client's own means"}[how]
        done += ", or with a center that is declared" if none else ""
        rows = "row lacks a value and is" if lacking == 1 else "rows lack a value and are"
        said.append(f"{lacking:,} {rows} {done}.")
    said += [
        f"{name} has no value of {column}: {centers[column]:g}, its declared center, stands there."
        for name, column in none[:NAMED]
    ]
    return said + ([f"So it is with {len(none) - NAMED} columns more."] if len(none) > NAMED else [])


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def odd(shards: Shards, target: str, labels: bool = False) -> dict[str, str]:
    """Clients whose values are far from, or spread far more than, the others': most often other units.

    A client's middle and spread (median, and half the distance between the quartiles) are compared with the medians of
    all clients' middles and spreads.
    """
    if shards.clients < FEW or shards.x.ndim != 2:
        return {}
    found: dict[str, str] = {}
    columns = [
        (shards.columns[j] if shards.columns else f"column {j}", shards.x[:, j]) for j in range(shards.x.shape[1])
    ]
    columns += [] if labels or not target else [(f"the target {target}", shards.y)]
    parts = [slice(a, b) for a, b in zip(shards.starts[:-1], shards.starts[1:])]
    for name, values in columns:
        quartiles = np.array([np.quantile(values[mine], (0.25, 0.5, 0.75)) for mine in parts])
        middle, spread = quartiles[:, 1], (quartiles[:, 2] - quartiles[:, 0]) / 2
        usual, around = np.median(middle), np.median(spread)
        width = max(around, np.median(np.abs(middle - usual)))
        if width == 0:
            continue
        for k in np.flatnonzero((np.abs(middle - usual) > FAR * width) | (spread > TIMES * max(around, 1e-300))):
            told = f"{name} is around {spoken(middle[k])}, in others around {spoken(usual)}"
            if spread[k] > TIMES * max(around, 1e-300):
                told += f", and spreads {spread[k] / max(around, 1e-300):,.0f} times as far"
            found.setdefault(shards.names[k], told)
    return found


class Holdings(NamedTuple):
    """Who has what: of each client, how many samples of each class, or of each fifth of the target."""

    names: tuple[str, ...]  # of the clients
    classes: tuple[str, ...]
    counts: Any  # (clients, classes)


def holdings(shards: Shards, labels: Sequence[str] = (), whole: bool = False) -> Holdings | None:
    """Two `labels` by name, whole numbers as they are, other targets by the fifth of all samples that they are in."""
    there = folders.with_data(shards)
    if there is None or there.clients > DRAWN:
        return None
    values, which = np.unique(there.y, return_inverse=True)
    if whole or len(labels):
        names = tuple(labels) if len(labels) == len(values) else tuple(f"{value:g}" for value in values.tolist())
    else:
        borders = np.unique(np.quantile(there.y, (0.2, 0.4, 0.6, 0.8)))
        which = np.searchsorted(borders, there.y, "right")
        spoke = [spoken(border) for border in borders.tolist()]
        names = (f"below {spoke[0]}", *(f"{a} to {b}" for a, b in pairwise(spoke)), f"from {spoke[-1]}")
    counts = np.zeros((there.clients, len(names)), np.int64)
    np.add.at(counts, (there.owner, which), 1)
    return Holdings(there.names, names, counts)


def table(
    shards: Shards, test: Shards, incomplete: Mapping[str, int], used: Any, labels: bool, aims: bool = True
) -> list[dict[str, Any]]:
    """A row for each client: how much it has, how much is used, and what its target looks like."""
    tested = dict(zip(test.names, test.sizes.tolist()))
    rows = []
    for k, (_, y) in enumerate(shards):
        row: dict[str, Any] = {"client": shards.names[k], "to learn from": len(y), "used": int(used[k])}
        row |= {"to test on": tested.get(shards.names[k], 0), "incomplete": incomplete.get(shards.names[k], 0)}
        if labels:
            row["of class 1"] = f"{100 * np.mean(y > 0):.3g} %"
        elif aims:
            row |= {"least": float(y.min()), "middle": float(np.median(y)), "largest": float(y.max())}
        rows.append(row)
    return rows


def check_size(given: Shards, scaled: Shards, dtype: Any, units: str = "") -> None:
    """Refuse numbers whose squares, summed, a precision cannot hold: errors would be infinite, or no numbers."""
    most = float(np.finfo(dtype).max) ** 0.4
    for name, before, after in (("inputs", given.x, scaled.x), ("target", given.y, scaled.y)):
        wrong = np.argwhere(np.abs(after) > most)
        if len(wrong):
            row = int(wrong[0][0])
            column = given.columns[wrong[0][1]] if before.ndim == 2 and given.columns else name
            where = f"{given.names[given.owner[row]]}, {column}: {before[tuple(wrong[0])]:g}"
            right = f"numbers of at most {most:.0e}{units}, whose squares {np.dtype(dtype)} can add up"
            raise BadInput("problem.data", where, right)
