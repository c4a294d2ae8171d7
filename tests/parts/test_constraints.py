"""Constraints: their gradients, their exact ranges, and the refusal of those that no point satisfies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.parts.learn import constraints
from archipel.problems import regions
from archipel.problems.regions import in_cvxpy

SIZE = 5
REGIONS = {
    "ball": regions.ball(SIZE, 1.5),
    "box": regions.box(np.linspace(-1, 0.2, SIZE), np.linspace(0.1, 2, SIZE)),
    "simplex": regions.simplex(SIZE),
    "floored": regions.simplex(SIZE, 2.0, 0.3),
}
seeds = st.integers(0, 2**32 - 1)


def some(seed):
    """A linear, a packet and an energy constraint, with a zero weight among them."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=SIZE)
    costs = np.abs(weights) * (rng.uniform(size=SIZE) > 0.2)
    return [
        constraints.constrained("linear", weights, rng.normal()),
        constraints.constrained("packets", costs, rng.normal()),
        constraints.constrained("energy", costs, rng.normal()),
    ]


@given(seeds)
def test_gradients_are_slopes(seed):
    rng = np.random.default_rng(seed)
    for made in some(seed):
        x, toward, slope = rng.normal(size=SIZE), rng.normal(size=SIZE), np.empty(SIZE)
        budget = constraints.Measured(made.weights, np.array([9.0, made.budget]), 1.0, 1.0, 1.0, 1.0)
        constraints.SLOPES[made.form](slope, x, None, budget)
        assert constraints.USES[made.form](x, None, budget, 5) == pytest.approx(made.value(x))  # budgets in turn
        ahead = made.value(x + 1e-4 * toward) - made.value(x - 1e-4 * toward)
        assert ahead / 2e-4 == pytest.approx(slope @ toward, abs=1e-7)


@given(seeds)
def test_no_point_exceeds_the_bounds(seed):
    rng = np.random.default_rng(seed)
    for region in REGIONS.values():
        for made in some(seed):
            bounds, slope = constraints.bounds(made, region), np.empty(SIZE)
            for _ in range(5):
                x = np.empty(SIZE)
                regions.project(x, 2 * rng.normal(size=SIZE), region)
                budget = constraints.Measured(made.weights, np.array([made.budget]), 1.0, 1.0, 1.0, 1.0)
                constraints.SLOPES[made.form](slope, x, None, budget)
                assert bounds.low - 1e-9 <= made.value(x) <= bounds.high + 1e-9
                assert np.linalg.norm(slope) <= bounds.gradient_l2 + 1e-9
                assert np.abs(slope).max() <= bounds.gradient_max + 1e-9


@pytest.mark.parametrize("name", REGIONS)
def test_the_lowest_value_agrees_with_cvxpy(name):
    cp = pytest.importorskip("cvxpy")
    for made in some(11):
        x, region = cp.Variable(SIZE), REGIONS[name]
        problem = cp.Problem(cp.Minimize(made.expression(x)), in_cvxpy(x, region))
        problem.solve(solver="CLARABEL")
        assert float(problem.value) == pytest.approx(constraints.bounds(made, region).low, abs=1e-6)


@pytest.mark.parametrize("name", REGIONS)
def test_the_highest_value_is_reached(name):
    """By brute force: linear and convex functions are largest at corners, or on the sphere."""
    rng, region = np.random.default_rng(4), REGIONS[name]
    for made in some(12):
        tries = [regions.lowest(region, slope) for slope in [*np.eye(SIZE), *-np.eye(SIZE)]]
        tries += [regions.lowest(region, slope) for slope in rng.normal(size=(2000, SIZE))]
        bounds = constraints.bounds(made, region)
        found = max(made.value(x) for x in tries + [regions.lowest(region, -made.weights)])
        assert found <= bounds.high + 1e-9
        if name != "box" or made.form != constraints.SQUARE:
            assert found == pytest.approx(bounds.high, abs=1e-9)


@given(seeds)
def test_what_no_point_satisfies_is_refused_and_nothing_else(seed):
    """At the budget that the sentence asks for, the constraint passes; a little below, it is refused."""
    for region in REGIONS.values():
        for made in some(seed):
            least = made.budget + constraints.bounds(made, region).low
            constraints.check_satisfiable(made._replace(budget=least), region)
            with pytest.raises(BadInput, match="no point of the region"):
                constraints.check_satisfiable(made._replace(budget=least - 1e-6), region)


def test_bad_numbers_are_refused():
    with pytest.raises(BadInput, match=r"constraint\.cost"):
        constraints.constrained("linear", [1.0, np.nan], 1.0)
    with pytest.raises(BadInput, match=r"constraint\.budget"):
        constraints.constrained("linear", [1.0, 1.0], np.inf)
    with pytest.raises(BadInput, match=r"constraint\.cost"):
        constraints.constrained("energy", [1.0, -1.0], 1.0)
    with pytest.raises(BadInput, match="5 numbers"):
        constraints.bounds(constraints.constrained("linear", [1.0, 1.0], 1.0), REGIONS["ball"])
