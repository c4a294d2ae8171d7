"""Constraints: their gradients, their exact ranges, and the refusal of those that no point satisfies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel import regions
from archipel.algorithms import constraints
from archipel.errors import BadInput
from archipel.regions import in_cvxpy

SIZE = 5
REGIONS = {
    "ball": regions.ball(SIZE, 1.5),
    "box": regions.box(np.linspace(-1, 0.2, SIZE), np.linspace(0.1, 2, SIZE)),
    "simplex": regions.simplex(SIZE),
    "floored": regions.simplex(SIZE, 2.0, 0.3),
}
seeds = st.integers(0, 2**32 - 1)
settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")


def some(seed):
    """A linear, a packet and an energy constraint, with a zero weight among them."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=SIZE)
    costs = np.abs(weights) * (rng.uniform(size=SIZE) > 0.2)
    return [
        constraints.linear(weights, rng.normal()),
        constraints.packets(costs, rng.normal()),
        constraints.energy(costs, rng.normal()),
    ]


@given(seeds)
def test_gradients_are_slopes(seed):
    rng = np.random.default_rng(seed)
    for made in [*some(seed), constraints.none(SIZE)]:
        x, toward, slope = rng.normal(size=SIZE), rng.normal(size=SIZE), np.empty(SIZE)
        made.gradient(slope, x, made.limits)
        ahead = made.value(x + 1e-4 * toward, made.limits) - made.value(x - 1e-4 * toward, made.limits)
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
                made.gradient(slope, x, made.limits)
                assert bounds.low - 1e-9 <= made.value(x, made.limits) <= bounds.high + 1e-9
                assert np.abs(slope).sum() <= bounds.gradient_l1 + 1e-9
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
        found = max(made.value(x, made.limits) for x in tries + [regions.lowest(region, -made.limits.weights)])
        assert found <= bounds.high + 1e-9
        if name != "box" or made.limits.limit != constraints.SQUARE:
            assert found == pytest.approx(bounds.high, abs=1e-9)


@given(seeds)
def test_what_no_point_satisfies_is_refused_and_nothing_else(seed):
    """At the budget that the sentence asks for, the constraint passes; a little below, it is refused."""
    for region in REGIONS.values():
        for made in some(seed):
            least = made.limits.budget + constraints.bounds(made, region).low
            constraints.check_satisfiable(made._replace(limits=made.limits._replace(budget=least)), region)
            with pytest.raises(BadInput, match="no point of the region"):
                short = made.limits._replace(budget=least - 1e-6)
                constraints.check_satisfiable(made._replace(limits=short), region)


def test_your_own_needs_a_point_that_satisfies_it():
    limits = constraints.Limits(constraints.NONE, np.zeros(2), 1.0)

    def value(x, limits):
        return np.exp(x[0]) - limits.budget

    def gradient(out, x, limits):
        out[:] = np.exp(x[0]), 0.0

    bounds = constraints.Bounds(-1.0, 2.0, 3.0, 3.0, 3.0)
    made = constraints.own(value, gradient, limits, bounds, [-1.0, 0.0])
    assert constraints.bounds(made, regions.ball(2)).size == 2
    with pytest.raises(BadInput, match=r"constraint\.witness"):
        constraints.own(value, gradient, limits, bounds, [1.0, 0.0])


def test_bad_numbers_are_refused():
    with pytest.raises(BadInput, match=r"constraint\.weights"):
        constraints.linear([1.0, np.nan], 1.0)
    with pytest.raises(BadInput, match=r"constraint\.budget"):
        constraints.linear([1.0, 1.0], np.inf)
    with pytest.raises(BadInput, match=r"constraint\.cost"):
        constraints.energy([1.0, -1.0], 1.0)
    with pytest.raises(BadInput, match="5 numbers"):
        constraints.bounds(constraints.linear([1.0, 1.0], 1.0), REGIONS["ball"])
