"""The bench: its NumPy renditions do the engine's work, where nothing is drawn; and a row has its ratios."""

import numpy as np
import pytest

from archipel import bench
from archipel.bench import cases, kernels, measuring
from archipel.errors import BadInput

SMALL = {"w1": 7, "gossip": 40, "zcdp-nfl": 40, "servers": 500}


def learned(name, tables, rendition):
    if name == "w1":
        return tables["server"].model[0], rendition.model
    if name == "servers":
        return tables["client"].mix.base, rendition.base
    return tables["peer"].model, rendition.models


@pytest.mark.parametrize("name", SMALL)
def test_a_rendition_does_the_same_work(name):
    case = bench.CASES[name]
    federation = case.federation(SMALL[name]).with_(rounds=400, every=400, engine="plain", precision="float64")
    instance = federation.instance()
    rendition, engine = case.rendition(instance), federation.engine_of(instance)
    engine.advance(0, 4)
    for _ in range(4):
        rendition.step()
    ours, theirs = learned(name, instance.plan.tables, rendition)
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    assert np.abs(theirs).max() > 1e-4
    assert rendition.updates == engine.updates


def test_the_bare_kernel_of_servers_is_their_arithmetic():
    """Where servers do not talk and nothing is borrowed, it ends with the engine's models."""
    from archipel.algorithms.pgfl import ClusterFl
    from archipel.simulate.records import held

    federation = cases.servers(500).with_(algorithm=ClusterFl(), rounds=4, every=4, engine="plain")
    instance = federation.instance()
    of, engine = cases.agreeing(instance), federation.engine_of(instance)
    cases.built(kernels.servers)(4, held(of), np.zeros(of.basis.shape[1]), float(instance.plan.settings.learn.penalty))
    engine.advance(0, 4)
    client = instance.plan.tables["client"]
    for ours, theirs in ((client.model, of.models), (client.mix.dual, of.duals), (client.mix.base, of.bases[of.place])):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)
        assert np.abs(theirs).max() > 1e-4


def test_a_row_has_its_ratios(monkeypatch):
    monkeypatch.setattr(measuring, "SECONDS", 0.02)  # a row, not a measurement
    monkeypatch.setattr(measuring, "REPEATS", 2)
    row = measuring.measured("gossip", 50)
    assert row["times_numpy"] == pytest.approx(row["updates_per_s"] / row["numpy_updates_per_s"], abs=0.01)
    assert row["times_kernel"] == pytest.approx(row["kernel_updates_per_s"] / row["updates_per_s"], abs=0.01)
    assert min(row["updates_per_s"], row["peak_mb"]) > 0


def test_a_row_that_is_none_is_refused():
    with pytest.raises(BadInput, match="--only"):
        bench.measure(True, only="stars")
