"""Regret meters against brute force: grids, solvers, and sums written out."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from archipel.errors import BadInput
from archipel.parts.learn.constraints import constrained
from archipel.problems import regions
from archipel.theory import comparators
from reference import regret
from reference.losses import DistanceLosses, LinearLosses, LogisticLosses, SquaredLosses

ROUNDS, CLIENTS, SIZE = 12, 3, 3
REGIONS = {
    "ball": regions.ball(SIZE, 0.8),
    "box": regions.box(-np.ones(SIZE), np.linspace(0.2, 1, SIZE)),
    "simplex": regions.simplex(SIZE),
    "floored": regions.simplex(SIZE, 1.5, 0.2),
}
seeds = st.integers(0, 2**32 - 1)


def recorded(seed):
    """One of each kind of loss, on the same kind of data."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(ROUNDS, CLIENTS, SIZE)) + rng.normal(size=SIZE)
    labels = np.where(rng.uniform(size=(ROUNDS, CLIENTS)) < 0.5, 1.0, -1.0)
    return {
        "linear": LinearLosses(inputs),
        "distance": DistanceLosses(inputs),
        "squared": SquaredLosses(inputs, rng.normal(size=(ROUNDS, CLIENTS))),
        "logistic": LogisticLosses(inputs, labels, 0.1),
    }


KINDS = list(recorded(0))


def models(seed):
    return np.random.default_rng(seed).dirichlet(np.ones(SIZE), size=(ROUNDS, CLIENTS))


# --- losses and their sums --------------------------------------------------------------------------------


@given(seeds)
def test_totals_are_the_sums_of_values(seed):
    x = np.random.default_rng(seed).normal(size=SIZE)
    for losses in recorded(seed).values():
        total = losses.total(2, 9)
        assert total.value(x) == pytest.approx(losses.values(x)[2:9].sum(), rel=1e-9, abs=1e-9)
        for toward in np.eye(SIZE):
            rise = total.value(x + 1e-5 * toward) - total.value(x - 1e-5 * toward)
            assert rise / 2e-5 == pytest.approx(total.gradient(x) @ toward, rel=1e-4, abs=1e-4)


def test_values_written_out():
    """Each loss, from its definition, one client and one round at a time."""
    played = models(1)
    for kind, losses in recorded(1).items():
        for t, u in itertools.product(range(ROUNDS), range(CLIENTS)):
            x = played[t, u]
            if kind == "linear":
                expected = losses.slopes[t, u] @ x
            elif kind == "distance":
                expected = np.linalg.norm(x - losses.centres[t, u]) ** 2 / 2
            elif kind == "squared":
                expected = (losses.targets[t, u] - losses.features[t, u] @ x) ** 2 / 2
            else:
                expected = np.log(1 + np.exp(-losses.labels[t, u] * losses.features[t, u] @ x)) + 0.05 * x @ x
            assert losses.values(played)[t, u] == pytest.approx(expected, rel=1e-12)


# --- comparators ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_comparators_agree_with_cvxpy(kind, name):
    pytest.importorskip("cvxpy")
    for seed in range(3):
        total = recorded(seed)[kind].total(0, ROUNDS)
        ours = total.value(comparators.best(total, REGIONS[name]))
        solved = total.value(comparators.best_by_cvxpy(total, REGIONS[name], ()))
        assert ours <= solved + 1e-6 and ours == pytest.approx(solved, abs=1e-4)


@given(seeds)
@settings(max_examples=30)
def test_no_point_beats_the_comparator(seed):
    rng = np.random.default_rng(seed)
    for kind, losses in recorded(seed).items():
        for region in REGIONS.values():
            total, other = losses.total(0, ROUNDS), np.empty(SIZE)
            best = comparators.best(total, region)
            regions.project(other, best, region)
            np.testing.assert_allclose(best, other, atol=1e-9, err_msg=f"{kind}: outside the region")
            for _ in range(20):
                regions.project(other, best + rng.normal(size=SIZE) * 10 ** rng.uniform(-4, 1), region)
                assert total.value(best) <= total.value(other) + 1e-6


def test_a_quadratic_with_a_flat_direction_in_a_ball():
    """Curvature zero along one axis: the minimiser is on the sphere if the slope has a part there, else inside."""
    ball = regions.ball(2, 2.0)
    inside = comparators.Quadratic(np.diag([2.0, 0.0]), np.array([-1.0, 0.0]), 0.0)
    np.testing.assert_allclose(comparators.best(inside, ball), [0.5, 0.0], atol=1e-12)
    outside = comparators.Quadratic(np.diag([2.0, 0.0]), np.array([-1.0, 1e-3]), 0.0)
    np.testing.assert_allclose(np.linalg.norm(comparators.best(outside, ball)), 2.0, atol=1e-9)


def test_static_regret_by_brute_force_on_a_grid():
    """On the simplex, all points with hundredths as components: none of them is better, one is nearly as good."""
    marks, played = [3, 7, ROUNDS], models(5)
    steps = np.linspace(0, 1, 101)
    grid = np.array([(a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1 + 1e-12])
    for kind, losses in recorded(5).items():
        found = regret.static_regret(
            regret.own_losses(losses, played), regret.static_comparator(losses, REGIONS["simplex"], marks), marks
        )
        for mark, measured in zip(marks, found):
            lost = sum(losses.values(played)[t, u] for t in range(mark) for u in range(CLIENTS))
            least = min(losses.total(0, mark).value(x) for x in grid)
            assert lost - least <= measured + 1e-7, kind  # the grid's best is no better than the exact one
            assert lost - least == pytest.approx(measured, abs=0.02)


def test_network_losses_ask_every_model_about_every_loss():
    losses, played = recorded(6)["logistic"], models(6)
    expected = np.zeros(ROUNDS)
    for t, v, u in itertools.product(range(ROUNDS), range(CLIENTS), range(CLIENTS)):
        expected[t] += losses.values(np.tile(played[t, v], (ROUNDS, 1)))[t, u] / CLIENTS
    np.testing.assert_allclose(regret.network_losses(losses, played), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_dynamic_regret_round_by_round(kind):
    losses, played, region = recorded(7)[kind], models(7), REGIONS["simplex"]
    path = regret.dynamic_comparator(losses, region)
    marks = np.arange(1, ROUNDS + 1)
    found = regret.dynamic_regret(regret.own_losses(losses, played), losses, path, marks)
    total = 0.0
    for t in range(ROUNDS):
        alone = losses.total(t, t + 1)
        total += losses.values(played)[t].sum() - alone.value(comparators.best(alone, region))
        assert found[t] == pytest.approx(total, abs=1e-6)
    assert (losses.values(path).sum(1) <= losses.values(played[:, 0]).sum(1) + 1e-6).all()


def test_path_length_written_out():
    path = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0], [0.0, 4.0]])
    np.testing.assert_allclose(regret.path_length(path, [1, 2, 3, 4]), [0, 5, 5, 8])
    np.testing.assert_allclose(regret.path_length(path, [2, 4], norm=1), [7, 10])


# --- constraints ------------------------------------------------------------------------------------------


def test_k_benchmarks_with_every_window_written_out():
    """By another solver; and longer windows allow more, so that the comparator loses less."""
    pytest.importorskip("cvxpy")
    rng = np.random.default_rng(8)
    losses, region = recorded(8)["distance"], REGIONS["simplex"]
    slopes = np.abs(rng.normal(size=(ROUNDS, CLIENTS, SIZE)))
    budgets = slopes.mean(-1) + 0.5 * rng.uniform(size=(ROUNDS, CLIENTS))  # the middle satisfies all of them
    total, previous = losses.total(0, ROUNDS), np.inf
    for length in (1, 4, ROUNDS):
        found = regret.k_benchmark_comparator(losses, region, [ROUNDS], (slopes, budgets), length)[0]
        left = []
        for t, u in itertools.product(range(ROUNDS - length + 1), range(CLIENTS)):
            left.append((budgets[t : t + length, u].sum(), slopes[t : t + length, u].sum(0)))
        other = minimize(
            total.value,
            np.full(SIZE, 1 / SIZE),
            jac=total.gradient,
            bounds=[(0, 1)] * SIZE,
            constraints=[
                {"type": "eq", "fun": lambda x: x.sum() - 1},
                {"type": "ineq", "fun": lambda x, left=left: np.array([b - a @ x for b, a in left])},
            ],
            options={"ftol": 1e-12},
        )
        assert other.success and found == pytest.approx(other.fun, abs=1e-5)
        assert found < previous - 1e-3
        previous = found


def test_equal_windows_are_kept_once():
    slopes = np.tile(np.arange(1.0, 4.0), (ROUNDS, CLIENTS, 1))
    kept = regret.windows(slopes, np.ones((ROUNDS, CLIENTS)), 4)
    np.testing.assert_allclose(kept.slopes, [[4, 8, 12]])
    np.testing.assert_allclose(kept.budgets, [4])


def test_a_constrained_comparator_stays_within_and_an_empty_set_is_refused():
    pytest.importorskip("cvxpy")
    losses, region = recorded(9)["squared"], REGIONS["box"]
    limit = constrained("linear", [1.0, 1.0, 1.0], -1.0)
    total = losses.total(0, ROUNDS)
    best = comparators.best(total, region, [limit])
    assert best.sum() <= -1 + 1e-6
    assert total.value(best) >= total.value(comparators.best(total, region))
    with pytest.raises(BadInput, match="some point of the region"):
        comparators.best(total, region, [constrained("linear", [1.0, 1.0, 1.0], -9.0)])


@pytest.mark.parametrize("form", ["linear", "energy"])
@pytest.mark.parametrize("region", [regions.ball(SIZE, 0.9), regions.anywhere(SIZE)], ids=["ball", "anywhere"])
def test_a_budget_that_binds_has_a_price(region, form):
    """Where CVXPY finds it, and exactly as much is used as there is; more than is used costs nothing."""
    pytest.importorskip("cvxpy")
    for seed, kind in ((1, "squared"), (2, "squared"), (3, "distance")):
        total = recorded(seed)[kind].total(0, ROUNDS)
        free = comparators.best(total, region)
        used = constrained(form, [1.0, 2.0, 0.5], 0.0).value(free)
        tight = constrained(form, [1.0, 2.0, 0.5], used - 0.3 * abs(used))
        found = comparators.best_at_a_price(total, region, tight)
        assert tight.value(found) == pytest.approx(0.0, abs=1e-12) and tight.value(found) <= 0
        solved = comparators.best_by_cvxpy(total, region, [tight])
        np.testing.assert_allclose(found, solved, atol=2e-4)  # as near as the solver comes
        assert total.value(found) <= total.value(solved) + 1e-6
        loose = constrained(form, [1.0, 2.0, 0.5], used + 0.1)
        np.testing.assert_array_equal(comparators.best(total, region, [loose]), free)


def test_violation_is_signed():
    values = np.array([[2.0, 0.0], [-3.0, -1.0], [4.0, 4.0]])
    np.testing.assert_allclose(regret.average_violation(values, [1, 2, 3]), [1.0, -0.5, 1.0])


# --- growth -----------------------------------------------------------------------------------------------


def test_growth_finds_the_power():
    marks = np.array([100, 1000, 10_000, 100_000])
    exact = regret.growth(marks, 3 * marks**0.62)
    assert exact.exponent == pytest.approx(0.62) and exact.high - exact.low < 1e-6
    rng = np.random.default_rng(1)
    curves = 3 * marks**0.62 * np.exp(0.2 * rng.normal(size=(10, 4)))
    several = regret.growth(marks, curves)
    assert several.low < 0.62 < several.high and several.high - several.low < 0.2


def test_the_interval_covers_as_often_as_it_says():
    """Of 300 made-up experiments with five seeds each, about 95 % of the intervals hold the true power."""
    marks, rng = np.array([10, 100, 1000]), np.random.default_rng(2)
    held = 0
    for _ in range(300):
        fit = regret.growth(marks, marks**0.5 * (1 + 0.3 * rng.uniform(-1, 1, size=(5, 3))))
        held += fit.low <= 0.5 <= fit.high
    assert 0.90 <= held / 300 <= 0.99


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(BadInput, match="positive at every mark"):
        regret.growth([1, 10, 100], [1.0, -1.0, 2.0])
    with pytest.raises(BadInput, match="three times or more"):
        regret.growth([1, 10], [1.0, 2.0])
    with pytest.raises(BadInput, match="marks"):
        regret.static_regret(np.ones(5), 0.0, [2, 9])
    with pytest.raises(BadInput, match="window"):
        regret.windows(np.ones((3, 1, 2)), np.ones((3, 1)), 4)
