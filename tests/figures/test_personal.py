"""The figures of PGFL and of the thesis' chapter 6: their names, their sentences, and (long) that each can be drawn."""

import math

import numpy as np
import pytest

from archipel.errors import Missing
from archipel.figures import beijing, npfl, personal, pgfl, pgfl_pictures
from archipel.figures.gallery import GALLERY
from archipel.figures.learning import Runs
from archipel.problems.datasets import catalogue

ARTICLE = {str(i) for i in range(1, 13)}
THESIS = {
    "5.1a": "1", "5.1b": "2", "5.1c": "3", "5.2": "4", "5.3": "5", "5.4a": "6", "5.4b": "7",
    "5.5a": "8", "5.5b": "9", "5.5c": "10", "5.6a": "11", "5.6b": "12",
}  # fmt: skip
PICTURES = {"8", "9", "10", "11", "12"}


def have(name):
    try:
        return catalogue.find(name)
    except Missing:
        return None


def runs(label, *ends):
    return Runs(label, 0.0, np.array([0, 1]), np.array([[1.0, e] for e in ends]), 1.0, 8.0)


def test_the_figures_are_there_under_all_their_names():
    assert set(pgfl.FIGURES) >= ARTICLE
    for thesis, article in THESIS.items():
        assert GALLERY[f"thesis/{thesis}"] is GALLERY[f"pgfl/{article}"]
    for name in ("6.1", "6.2", "6.3"):
        assert GALLERY[f"thesis/{name}"] is GALLERY[f"npfl/{name}"]


def test_sentences_can_fail():
    low, high = runs("low", 0.1, 0.12), runs("high", 0.9, 1.1)
    assert personal.worse("", high, low).holds and not personal.worse("", low, high).holds
    assert personal.more_accurate("", high, low).holds and not personal.more_accurate("", low, high).holds
    assert not personal.more_accurate("", high, low, by=0.9).holds
    noisy = runs("noisy", 0.2, 2.0)
    assert not personal.more_accurate("", noisy, low).holds  # within two standard errors
    assert personal.rises("", (1, 2), [low, high], 1).holds and not personal.rises("", (1, 2), [low, high], -1).holds
    assert not personal.rises("", (1, 2), [low, low], 1).holds
    up = np.array([0.05, 0.2, 0.02])
    assert npfl.up_then_down("", up).holds and not npfl.up_then_down("", up[::-1][1:]).holds
    assert npfl.down("", np.linspace(0.05, 0.0, 40)).holds and not npfl.down("", np.linspace(0.05, 0.1, 40)).holds


def test_dynamic_privacy_is_phi_over_zeta_to_the_n():
    """The article's 0.095 is the sum of phi zeta^n; the budget is that of phi / zeta^n: 1.9 in 300 rounds."""
    policy = personal.dynamic(0.001, 0.99, 300, 1.0)
    assert policy.rho == pytest.approx(sum(0.001 / 0.99**n for n in range(300))) == pytest.approx(1.94, abs=0.03)
    assert sum(0.001 * 0.99**n for n in range(300)) == pytest.approx(0.095, abs=0.001)


def test_the_intervals_of_a_table_are_students():
    from scipy.stats import t, ttest_rel

    rng = np.random.default_rng(0)
    one, other = 10 ** rng.normal(size=9), 10 ** rng.normal(size=9)
    row, loud = beijing.summed_up(one), 10 * np.log10(one)
    low, high = t.interval(0.95, 8, loud.mean(), loud.std(ddof=1) / 3)
    assert row["mse_db_low"] == pytest.approx(low) and row["mse_db_high"] == pytest.approx(high)
    found = ttest_rel(10 * np.log10(one), 10 * np.log10(other)).confidence_interval()
    claim = beijing.compared("", one, other)
    assert f"{found.low:+.2f} to {found.high:+.2f}" in claim.measured and claim.holds == (found.high < 0)


def test_figures_of_organs_say_that_they_are_not_here(tmp_path, monkeypatch):
    monkeypatch.setenv("ARCHIPEL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    problem, missing = pgfl_pictures.organs("organs-alike", pgfl_pictures.ALIKE)
    assert "OrganAMNIST is not on this machine" in missing and problem.tasks == pgfl_pictures.ALIKE


@pytest.mark.long
@pytest.mark.parametrize("name", [*(f"pgfl/{n}" for n in pgfl.FIGURES), *(f"npfl/{n}" for n in npfl.FIGURES)])
def test_it_can_be_drawn(name):
    paper, _, figure = name.partition("/")
    wanted = "beijing-air" if figure == "beijing" else "mnist" if figure in PICTURES and paper == "pgfl" else None
    if wanted and not have(wanted):
        pytest.skip(f"{wanted} is not on this machine")
    drawn = GALLERY[name](True, None)
    assert drawn.claims and all(len(x) == len(y) > 0 for x, y in drawn.series.values())
    assert all(math.isfinite(value) for _, y in drawn.series.values() for value in y)
