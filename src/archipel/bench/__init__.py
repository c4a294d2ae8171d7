"""How far this machine is from its limit: each topology against vectorised NumPy and against the bare arithmetic.

Everything of a row is measured in one process, on one thread, in seconds of the processor, in turn, and the best of
several counts: so ratios hold on a busy machine too. An update is a round of one client that has something to learn.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from archipel.bench.cases import CASES
from archipel.errors import BadInput, did_you_mean

Progress = Callable[[int, int, str], None]


def measure(quick: bool, progress: Progress | None = None, only: str = "") -> dict[str, Any]:
    """All rows; each size in a process of its own, so that its peak memory is its own."""
    known = [*CASES, "deep"]
    if only and only not in known:
        raise BadInput("--only", only, did_you_mean(only, known))
    jobs = [(name, size) for name in CASES for size in CASES[name].sizes if not quick or size < 1_000_000]
    jobs = [job for job in [*jobs, ("deep", 100)] if not only or job[0] == only]
    found = []
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    for i, (name, size) in enumerate(jobs):
        if progress:
            progress(i, len(jobs), f"{name} {size}")
        command = [sys.executable, "-m", "archipel.bench", name, str(size)]
        said = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | one)
        found.append(json.loads(said.stdout))
    return {"rows": [row for row in found if row]}


def table(figures: dict[str, Any]) -> Any:
    """The figures for a terminal."""
    from rich.table import Table

    names = ("row", "clients", "updates/s", "x NumPy", "at most", "x bare kernel's time", "peak MB", "compiling, s")
    grid = Table(*names)
    for row in figures["rows"]:
        keys = ("row", "clients", "updates_per_s", "times_numpy", "times_numpy_at_most", "times_kernel")
        cells = (row.get(key, "") for key in (*keys, "peak_mb", "compile_s"))
        grid.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells))
    grid.caption = "one thread, seconds of the processor; at most x NumPy, by the bytes that have to be moved"
    return grid
