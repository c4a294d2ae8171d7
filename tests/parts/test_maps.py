"""Mirror maps: closed forms, CVXPY, and what every Bregman projection must satisfy."""

import math
import warnings

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.errors import BadInput
from archipel.node import FAST
from archipel.parts.learn import maps as mirror
from archipel.parts.learn.constraints import LINEAR, SLOPES, SQUARE, USES, Measured
from archipel.problems import regions
from archipel.simulate import compile
from reference import bregman

SIZE = 6
BOX = regions.box(np.linspace(-1, 0, SIZE), np.linspace(0.1, 2, SIZE))
EUCLIDEAN = {
    "anywhere": mirror.euclidean(regions.anywhere(SIZE)),
    "ball": mirror.euclidean(regions.ball(SIZE, 1.5)),
    "box": mirror.euclidean(BOX),
    "simplex": mirror.euclidean(regions.simplex(SIZE)),
    "floored": mirror.euclidean(regions.simplex(SIZE, 2.0, 0.3)),
}
MAPS = EUCLIDEAN | {
    "entropy": mirror.entropy(regions.simplex(SIZE)),
    "floored entropy": mirror.entropy(regions.simplex(SIZE, 2.0, 0.3)),
}
seeds = st.integers(0, 2**32 - 1)


def points(seed, many):
    """Random vectors, some with ties and zeros, of all sizes."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(many, SIZE)) * 10.0 ** rng.uniform(-2, 1, (many, 1))
    return np.where(rng.uniform(size=found.shape) < 0.2, np.round(found), found)


def solve(problem):
    """As exactly as the solver can; it warns where it stops short of 1e-12, and 1e-6 is asked of us."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)


def inside(x, map_settings):
    out = np.empty(SIZE)
    regions.project(out, x, map_settings)
    return out


def proper(x, map_settings):
    """A point of the map's region, in its interior where the divergence needs that."""
    out = np.empty(SIZE)
    mirror.from_dual(out, x, map_settings)
    return out


# --- closed forms and CVXPY -------------------------------------------------------------------------------


@given(seeds, st.floats(0.001, 5))
def test_entropy_is_exponentiated_gradient(seed, step):
    rng = np.random.default_rng(seed)
    x, gradient = rng.dirichlet(np.ones(SIZE)), rng.normal(size=SIZE)
    out = np.empty(SIZE)
    mirror.map_of(MAPS["entropy"]).step(out, x, gradient, step, MAPS["entropy"])
    expected = [x[j] * math.exp(-step * gradient[j]) for j in range(SIZE)]
    total = math.fsum(expected)
    np.testing.assert_allclose(out, [value / total for value in expected], rtol=1e-12, atol=1e-14)


def test_entropy_does_not_overflow():
    out, simplex = np.empty(3), mirror.entropy(regions.simplex(3))
    mirror.map_of(simplex).step(out, np.ones(3) / 3, np.array([-1e4, 0.0, 1e4]), 1.0, simplex)
    np.testing.assert_array_equal(out, [1, 0, 0])


@pytest.mark.parametrize("name", MAPS)
def test_steps_agree_with_cvxpy(name):
    """(5.12) as it is printed, handed to a solver: argmin of <gradient, x'> + B(x' || x) / step."""
    cp = pytest.importorskip("cvxpy")
    map_settings, rng = MAPS[name], np.random.default_rng(5)
    for _ in range(4):
        x, gradient = proper(rng.normal(size=SIZE), map_settings), 3 * rng.normal(size=SIZE)
        out, new = np.empty(SIZE), cp.Variable(SIZE)
        mirror.map_of(map_settings).step(out, x, gradient, 0.7, map_settings)
        entropic = map_settings.geometry == mirror.ENTROPY
        away = cp.sum(cp.kl_div(new, x)) if entropic else cp.sum_squares(new - x) / 2
        problem = cp.Problem(cp.Minimize(gradient @ new + away / 0.7), regions.in_cvxpy(new, map_settings))
        solve(problem)
        np.testing.assert_allclose(out, new.value, atol=1e-6)


@pytest.mark.parametrize("name", EUCLIDEAN)
def test_projections_agree_with_cvxpy(name):
    cp = pytest.importorskip("cvxpy")
    for x in points(7, 6):
        new = cp.Variable(SIZE)
        problem = cp.Problem(cp.Minimize(cp.sum_squares(new - x)), regions.in_cvxpy(new, EUCLIDEAN[name]))
        solve(problem)
        np.testing.assert_allclose(inside(x, EUCLIDEAN[name]), new.value, atol=1e-6)


# --- what must hold for all points ------------------------------------------------------------------------


@given(seeds)
def test_projections_end_inside_and_stay(seed):
    for name, map_settings in EUCLIDEAN.items():
        x = inside(points(seed, 1)[0], map_settings)
        if name == "ball":
            assert np.linalg.norm(x) <= 1.5 * (1 + 1e-12)
        elif name != "anywhere":
            assert (x >= map_settings.low - 1e-12).all() and (x <= map_settings.high + 1e-12).all()
        if "simplex" in name or "floored" in name:
            assert abs(x.sum() - map_settings.radius) < 1e-11
        np.testing.assert_allclose(inside(x, map_settings), x, atol=1e-12)


@given(seeds)
def test_projections_do_not_expand(seed):
    for map_settings in EUCLIDEAN.values():
        x, y = points(seed, 2)
        moved = np.linalg.norm(inside(x, map_settings) - inside(y, map_settings))
        assert moved <= np.linalg.norm(x - y) * (1 + 1e-9) + 1e-12


@given(seeds)
def test_three_point_identity(seed):
    """B(x || y) + B(y || z) - B(x || z) = <grad R(z) - grad R(y), x - y>, for any Bregman divergence."""
    rng = np.random.default_rng(seed)
    for map_settings in MAPS.values():
        x, y, z = (proper(rng.normal(size=SIZE), map_settings) for _ in range(3))
        at_y, at_z = np.empty(SIZE), np.empty(SIZE)
        at_y, at_z = bregman.to_dual(y, map_settings), bregman.to_dual(z, map_settings)
        between = bregman.divergence(x, y, map_settings) + bregman.divergence(y, z, map_settings)
        assert abs(between - bregman.divergence(x, z, map_settings) - (at_z - at_y) @ (x - y)) < 1e-10


@given(seeds, st.floats(0.01, 3))
def test_generalised_pythagoras(seed, step):
    """Lemma 1 of chapter 5, (5.15): <x' - d, step g> <= B(d || x) - B(d || x') - B(x' || x) for d in X."""
    rng = np.random.default_rng(seed)
    for map_settings in MAPS.values():
        x, d = (proper(rng.normal(size=SIZE), map_settings) for _ in range(2))
        gradient, new = rng.normal(size=SIZE), np.empty(SIZE)
        mirror.map_of(map_settings).step(new, x, gradient, step, map_settings)
        gained = bregman.divergence(d, x, map_settings) - bregman.divergence(d, new, map_settings)
        assert step * gradient @ (new - d) <= gained - bregman.divergence(new, x, map_settings) + 1e-9


@given(seeds)
def test_divergence_is_convex_in_its_second_argument(seed):
    """What lets push-sum mix models, assumption 3 of chapter 5: mixing never moves away from a comparator."""
    rng = np.random.default_rng(seed)
    for map_settings in MAPS.values():
        x, *others = (proper(rng.normal(size=SIZE), map_settings) for _ in range(4))
        shares = rng.dirichlet(np.ones(3))
        mixed = bregman.divergence(x, shares @ np.array(others), map_settings)
        assert mixed <= sum(s * bregman.divergence(x, y, map_settings) for s, y in zip(shares, others)) + 1e-12


@pytest.mark.parametrize("name", MAPS)
def test_dual_and_back(name):
    x, back = proper(np.arange(SIZE) / 3.0, MAPS[name]), np.empty(SIZE)
    mirror.from_dual(back, bregman.to_dual(x, MAPS[name]), MAPS[name])
    np.testing.assert_allclose(back, x, atol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_start_is_where_the_map_is_smallest(name):
    middle, rng = mirror.start(MAPS[name]), np.random.default_rng(1)
    entropic = MAPS[name].geometry == mirror.ENTROPY
    regulariser = (lambda x: np.sum(x * np.log(x))) if entropic else (lambda x: x @ x / 2)
    for _ in range(50):
        other = proper(rng.normal(size=SIZE), MAPS[name])
        assert regulariser(middle) <= regulariser(other) + 1e-12


def test_width_is_the_largest_divergence():
    """sqrt(max B), reached between two corners and exceeded nowhere."""
    for name in ("ball", "box", "simplex", "floored", "floored entropy"):
        map_settings, rng = MAPS[name], np.random.default_rng(2)
        corners = [regions.lowest(map_settings, slope) for slope in rng.normal(size=(60, SIZE))]
        corners += [-corner for corner in corners] if name == "ball" else []
        corners += [map_settings.low, map_settings.high] if name == "box" else []
        found = max(bregman.divergence(x, y, map_settings) for x in corners for y in corners)
        assert found <= mirror.width(map_settings) ** 2 + 1e-12
        assert found >= mirror.width(map_settings) ** 2 * (1 - 1e-12)


# --- the step that fits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_noisy_length_is_that_of_the_noise(kind):
    """E||noise||_*^2 in both dual norms: drawn, not derived."""
    rng = np.random.default_rng(3)
    draw = rng.laplace if kind == "laplace" else rng.normal
    noise = draw(scale=1.3, size=(200_000, SIZE))
    euclidean = mirror.noisy_length(0.0, 1.3, SIZE, kind, MAPS["ball"]) ** 2
    assert np.mean(np.sum(noise**2, axis=1)) == pytest.approx(euclidean, rel=0.02)
    largest = np.mean(np.max(np.abs(noise), axis=1) ** 2)
    entropic = mirror.noisy_length(0.0, 1.3, SIZE, kind, MAPS["entropy"]) ** 2
    assert largest == pytest.approx(entropic, rel=0.02)


def test_steps_shrink_and_wait_for_a_comparator_that_moves():
    still = [mirror.fitted_step(mirror.Pace(2.0, 4.0, 0.0, 0.0, 0.0, 0.5), t) for t in range(100)]
    np.testing.assert_allclose(still, 0.5 / np.sqrt(np.arange(1, 101)))
    moving = np.array([mirror.fitted_step(mirror.Pace(2.0, 4.0, 3.0, 0.5, 0.0, 0.5), t) for t in range(100)])
    assert (np.diff(moving) < 0).all() and (moving > still).all()


# --- refusals, compilation --------------------------------------------------------------------------------


def test_refusals_name_what_is_wrong():
    with pytest.raises(BadInput, match="entropy needs the simplex"):
        mirror.entropy(regions.ball(3))
    with pytest.raises(BadInput, match=r"region\.radius"):
        regions.ball(3, -1)
    with pytest.raises(BadInput, match=r"region\.high"):
        regions.box([0, 1], [1, 0])
    with pytest.raises(BadInput, match=r"region\.floor"):
        regions.simplex(3, 1.0, 1.0)
    with pytest.raises(BadInput, match="bounded region"):
        regions.lowest(regions.anywhere(3), np.ones(3))
    with pytest.raises(BadInput, match=r"privacy\.noise"):
        mirror.noisy_length(1.0, 1.0, 3, "uniform", MAPS["ball"])


def test_exponentiated_gradient_where_a_component_is_gone():
    """A zero stays zero, however good its slope; the others are what they would be without it."""
    x, slopes = np.array([0.0, 1e-300, 0.5]), np.array([-1e6, -1e4, 3.0])
    for step in (0.01, 1.0, 1e18):
        out = np.empty(3)
        mirror.exponentiated(out, x, slopes, step)
        logs = np.log(x[1:]) - step * slopes[1:]
        np.testing.assert_allclose(out, [0.0, *np.exp(logs - logs.max())], rtol=1e-9)


VERBS = [verb for verb in FAST if verb.__module__ in ("archipel.problems.regions", "archipel.parts.learn.maps")]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
@settings(max_examples=50)
@given(seed=seeds)
def test_verbs_and_their_loops_agree(verb, seed):
    """The NumPy form that devices run and the loop that is compiled, on the same input."""
    x, y = points(seed, 2)
    if verb.__name__ in ("normalise", "exponentiated"):
        x, y = np.abs(x) + 1e-9, np.abs(y) + 1e-9
    rest = {
        "into_ball": (1.5,),
        "into_box": (BOX.low, BOX.high),
        "onto_simplex": (2.0, 0.3),
        "exponentiated": (y, 0.3),
        "normalise": (2.0, 0.3),
    }.get(verb.__name__, ())
    plain, loop = np.empty(SIZE), np.empty(SIZE)
    verb(plain, x, *rest)
    FAST[verb](loop, x, *rest)
    np.testing.assert_allclose(loop, plain, rtol=1e-11, atol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("form", [LINEAR, SQUARE])
@pytest.mark.parametrize("name", MAPS)
def test_compiled_maps_and_constraints_are_the_plain_ones(name, form):
    (step, lead), use, slope = mirror.map_of(MAPS[name]), USES[form], SLOPES[form]
    compile.enable()

    def run(out, dual, rise, x, g, settings, budget):
        step(out, x, g, 0.3, settings)
        lead(dual, g, settings)
        slope(rise, out, 0, budget)
        return use(out, 0, budget, 3)

    x, g = mirror.start(MAPS[name]), np.array([0.1, -2.0, 0.4, 1.0, 0.0, -0.3])
    budget = Measured(abs(g), np.array([0.1, 0.2]), 1.0, 1.0, 1.0, 1.0)
    plain, compiled = np.empty((3, SIZE)), np.empty((3, SIZE))
    found = [each(*rows, x, g, MAPS[name], budget) for each, rows in ((run, plain), (numba.njit(run), compiled))]
    np.testing.assert_allclose(compiled, plain, atol=1e-13)
    assert found[0] == pytest.approx(found[1], abs=1e-13)
