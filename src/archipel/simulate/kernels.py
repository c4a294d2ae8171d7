"""Kernels that are no engine: the bare arithmetic, for the benchmark."""

from collections.abc import Callable
from typing import Any

from numba import prange

from archipel.node import add_scaled, cosines, dot


def bare_driver(parallel: bool) -> Callable[..., Any]:
    """Features, dot and update of every client, nothing else."""
    kind = f"parallel {parallel}"

    def run(rounds, models, x, y, scratch, directions, phases, scale, step):
        _ = kind
        clients, blocks = models.shape[0], scratch.shape[0]
        block = (clients + blocks - 1) // blocks
        for _round in range(rounds):
            for b in prange(blocks):
                z = scratch[b]
                for k in range(b * block, min(clients, (b + 1) * block)):
                    cosines(z, phases, directions, x[k], scale[0])
                    error = y[k] - dot(models[k], z)
                    add_scaled(models[k], step * error, z)

    return run
