"""Numba is itself again when a kernel of ours has been compiled, and compiles the same without the lighter parts."""

import numpy as np
import pytest

from archipel import Federation, PaoFed, Synthetic
from archipel.errors import BadInput
from archipel.node import leaves
from archipel.simulate import lighter
from archipel.simulate.compile import compiling
from archipel.simulate.compiled import CompiledEngine


def as_they_are():
    return [getattr(owner, name) for owner, name, _ in lighter.REPLACED]


def test_numba_is_itself_again_also_after_an_error():
    before = as_they_are()
    with pytest.raises(BadInput), compiling(), compiling():
        assert not lighter.TRIED or as_they_are() == [mine for _, _, mine in lighter.REPLACED]
        for kept in lighter.KEPT:
            kept["of a function"] = "what it was called with"
        raise BadInput("a key", 0, "an error while it compiles")
    assert as_they_are() == before and not any(lighter.KEPT)


def test_kernels_are_the_same_without_it(monkeypatch, tmp_path):
    """Compiled twice, from nothing: to the bit."""
    federation = Federation(Synthetic(clients=5, features=6, test=5), PaoFed(step=0.2, portion=2), rounds=10)

    def played():
        from archipel.simulate.compile import build
        from archipel.simulate.crew import advancing

        build.cache_clear()
        advancing.cache_clear()
        monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / str(lighter.TRIED)))
        engine = CompiledEngine(federation.instance())
        engine.advance(0, federation.rounds)
        return [np.array(leaf) for table in engine.instance.plan.tables.values() for leaf in leaves(table)]

    quick = played()
    monkeypatch.setattr(lighter, "TRIED", False)
    assert all(map(np.array_equal, quick, played()))
