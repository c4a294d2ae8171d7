"""The figures of chapter 3: their names, their parts, and (long) that each can be drawn."""

import math

import numpy as np
import pytest

from archipel.figures import zcdp_nfl as figures
from archipel.figures.gallery import GALLERY
from archipel.figures.learning import Runs
from archipel.problems.networked import Regression

NAMES = ("3.1a", "3.1b", "3.2", "3.3a", "3.3b")


def runs(label, *errors):
    return Runs(label, 0.1, np.array([0, 1]), np.array([[1.0, e] for e in errors]), 1.0, 8.0)


def test_the_figures_are_there_under_both_names():
    for name in NAMES:
        assert GALLERY[f"thesis/{name}"] is GALLERY[f"zcdp-nfl/{name}"]


def test_a_claim_for_all_totals_needs_all_of_them():
    good, bad = [runs("a", 0.1, 0.1), runs("a", 0.1, 0.1)], [runs("b", 1.0, 1.0), runs("b", 0.01, 0.01)]
    claim = figures.for_all("x", (1.0, 2.0), good, bad)
    assert not claim.holds and "ε = 1: -10.0 dB; ε = 2: +10.0 dB" in claim.measured
    assert figures.for_all("x", (1.0,), good[:1], bad[:1]).holds


def test_methods_are_compared_at_the_same_total():
    experiment = figures.ZcdpNflExperiment(Regression("ridge", clients=6, samples=10), 2, 1, None)
    told = {}
    for rule, algorithm in (("corollary", figures.ADMM), ("exact", figures.ADMM)):
        instance = experiment.federation(algorithm, total=8.0, calibration=rule).instance()
        told[rule] = instance.plan.accountant.forecast().epsilon.max()
    assert told["corollary"] < told["exact"] == pytest.approx(8.0, rel=1e-6)
    free = experiment.federation(figures.ADMM, total=math.inf)
    assert not free.privacy.protects and free.privacy.clip == figures.CLIP


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_drawn(name):
    figure = GALLERY[f"thesis/{name}"](True, None)
    assert figure.claims and all(len(x) == len(y) > 0 for x, y in figure.series.values())
    assert all(math.isfinite(value) for _, y in figure.series.values() for value in y)
