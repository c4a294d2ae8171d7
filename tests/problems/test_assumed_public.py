"""What a problem takes from everyone's data without noise is said wherever a guarantee is printed."""

from dataclasses import replace

import numpy as np
import pytest

from archipel.algorithms.online import OnlineFed
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.errors import Missing
from archipel.federation import Federation
from archipel.privacy.policy import Privacy
from archipel.problems.clustered import BeijingStations
from archipel.problems.networked import Regression
from archipel.problems.own import Files
from archipel.topology import Peers

PRIVATE = Privacy(epsilon=1.0, clip=1.0)


@pytest.fixture
def folder(tmp_path):
    for k in range(3):
        x = np.random.default_rng(k).standard_normal((8, 2))
        np.savez(tmp_path / f"sensor-{k}.npz", x=x, y=x.sum(1))
    return str(tmp_path / "*.npz")


def terms(problem):
    return (
        Federation(problem, ZcdpNfl(), Peers(shape="ring"), privacy=PRIVATE, rounds=5).instance().plan.accountant.terms
    )


def test_scales_that_are_taken_from_the_data_are_assumed_to_be_public(folder):
    assert terms(Files(folder, standardise=False)).how == "enforced"
    scaled = terms(Files(folder))
    assert scaled.how == "assumed" and "scales" in scaled.assumptions[-1].what


def test_so_is_the_weight_that_the_thesis_takes_from_the_data():
    small = {"clients": 3, "samples": 4, "size": 2, "test": 3}
    assert terms(Regression("elastic-net", **small)).how == "assumed"
    assert terms(Regression("elastic-net", l1=0.1, **small)).how == "enforced"
    assert terms(Regression("ridge", **small)).how == "enforced"


def test_stations_are_in_standard_units():
    try:
        found = terms(BeijingStations())
    except Missing:
        pytest.skip("Beijing air is not on this machine")
    assert found.how == "assumed" and "scales" in found.assumptions[-1].what


@pytest.mark.parametrize(("unit", "how"), [("sample", "assumed"), ("client", "enforced")])
def test_one_sample_is_in_others_where_its_clients_mean_stands(unit, how, tmp_path):
    """It pays for itself, and moves the mean of its client's samples, which stands in the missing cells of others."""
    shown = []
    for value in (0.0, 9.0):
        for name in ("a", "b"):
            (tmp_path / f"{name}.csv").write_text(f"x,y\n{value if name == 'a' else 0.0},1\n2,3\n,5\n4,5\n")
        problem = Files(str(tmp_path), missing="mean", standardise=False)
        private = replace(PRIVATE, unit=unit)
        instance = Federation(problem, OnlineFed(), privacy=private, rounds=4).instance()
        shown.append(np.array(instance.task.source.x))
        assert instance.plan.accountant.terms.how == how
    assert (shown[0] != shown[1]).any(1).sum() == 2  # the sample's own row, and that without a value
