"""Kernels that are no engine: the bare arithmetic, for the benchmark."""

from typing import Any

from archipel.node import add_scaled, cosines, dot


def bare(rounds: Any, first: Any, last: Any, models: Any, x: Any, y: Any, z: Any, source: Any, step: Any) -> None:
    """Features, dot and update of some clients, nothing else."""
    for _ in range(rounds):
        for k in range(first, last):
            cosines(z, source.phases, source.directions, x[k], source.scale[0])
            error = y[k] - dot(models[k], z)
            add_scaled(models[k], step * error, z)
