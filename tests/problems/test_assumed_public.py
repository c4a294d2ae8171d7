"""What a problem takes from everyone's data without noise is said wherever a guarantee is printed."""

import numpy as np
import pytest

from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.federation import Federation
from archipel.privacy.policy import Privacy
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
