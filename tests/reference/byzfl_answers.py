"""Writes what byzfl 0.0.11 answers on random vectors, for `tests/parts/test_robust.py`.

byzfl itself is no dependency of the tests: it brings torchvision, which must fit torch, and seaborn.

python -m venv /tmp/byzfl && /tmp/byzfl/bin/pip install byzfl && /tmp/byzfl/bin/python tests/reference/byzfl_answers.py
"""

import sys
from pathlib import Path

import numpy as np

SHAPES = ((1, 3, 0), (5, 4, 1), (8, 13, 2), (11, 6, 5), (20, 30, 4))  # vectors, size, liars


def answers(x, f):
    """byzfl's answers."""
    from unittest.mock import MagicMock

    sys.modules.setdefault("torchvision", MagicMock())  # only its data sets need it
    import byzfl

    return {
        "median": byzfl.Median()(x),
        "trimmed-mean": byzfl.TrMean(f)(x),
        "krum": byzfl.Krum(f)(x) if len(x) > 1 else x[0],  # of one vector byzfl takes the mean of no distances
        "multi-krum": byzfl.MultiKrum(f)(x) if len(x) > 1 else x[0],
        "geometric-median": byzfl.GeometricMedian(nu=0.1, T=5)(x),
        "centred-clipping": byzfl.CenteredClipping(L=3, tau=2.0)(x),
    }


def drawn():
    """The vectors: normal, some of them far away."""
    draw = np.random.default_rng(7)
    for rows, size, f in SHAPES:
        x = draw.standard_normal((rows, size))
        x[:f] = 5 + 3 * x[:f]
        yield f"{rows}-{size}-{f}", x, f


if __name__ == "__main__":
    found = {}
    for name, x, f in drawn():
        found[f"{name}/x"] = x
        for rule, answer in answers(x, f).items():
            found[f"{name}/{rule}"] = answer
    np.savez_compressed(Path(__file__).parent / "byzfl.npz", **found)
