"""The dissertation's figures 2.1, 2.2 and 4.1: what they show, and which of their claims hold."""

import pytest

from archipel.figures.gallery import GALLERY, describe, reproduce


def test_all_figures_of_the_dissertation_are_in_the_book():
    for name in ("2.1", "2.2", "4.1", "5.1", "5.2"):
        assert f"dissertation/{name}" in GALLERY and describe(f"dissertation/{name}")


@pytest.mark.long
@pytest.mark.parametrize("name", ["2.1", "2.2"])
def test_models_come_together_but_not_at_the_optimum_and_without_a_gradient(name):
    claims = {claim.claim: claim.holds for claim in reproduce(f"dissertation/{name}", quick=True).claims}
    together, optimum, gradient, anything = claims.values()
    assert together and not optimum and not gradient and not anything


@pytest.mark.long
def test_4_1_draws_the_bounds_as_printed_and_regret_below_them():
    figure = reproduce("dissertation/4.1", quick=True)
    ends = [y[-1] for y in (curve[1] for curve in figure.series.values())]
    assert ends[:3] == pytest.approx([10.1, 11.0, 10.0])
    assert max(ends[3:]) < 10.1 and len(ends) == 6
    held = {claim.claim: claim.holds for claim in figure.claims}
    assert held["the proposed bound is below that of [91]"] and not held["the proposed bound over T decays to zero"]
