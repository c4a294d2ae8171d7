"""Client sampling: the optimum against its conditions, CVXPY and closed forms; merging against the
average.
"""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from archipel.draws import CHOICE, key_of, uniform
from archipel.errors import BadInput
from archipel.parts.ask import sampling
from archipel.parts.ask.drawn import times_drawn
from archipel.parts.ask.sampling import known_chances, solve_p2
from archipel.theory.pldp import out_of_order
from reference.sampling import choose, optimal_by_gradient, optimal_by_noise, optimality_gap, sampled


def instance(seed, clients, spread=1.0):
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.full(clients, 2.0)) + 1e-9
    gradient, noise = np.exp(spread * rng.standard_normal((2, clients)))
    return weight / weight.sum(), gradient, noise


# --- problem P2 ---------------------------------------------------------------------------------------------


@settings(max_examples=1000, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 40), st.floats(0, 1), st.floats(0, 5), st.floats(-8, 8))
def test_optimum_meets_its_conditions_and_theorem_3(seed, clients, crowding, spread, log_tradeoff):
    draws = 1 + int(crowding * (clients - 2))
    weight, gradient, noise = instance(seed, clients, spread)
    tradeoff = 10.0**log_tradeoff
    chance = solve_p2(weight, gradient, noise, tradeoff, draws)
    assert (chance > 0).all()
    assert optimality_gap(chance, weight, gradient, noise, tradeoff, draws) < 1e-9
    assert len(out_of_order(chance, weight, gradient, noise)) == 0


def test_the_gap_sees_what_is_wrong():
    weight, gradient, noise = instance(1, 8)
    chance = solve_p2(weight, gradient, noise, 1.0, 3)
    moved = chance.copy()
    moved[np.argsort(chance)[:2]] += [1e-8, -1e-8]
    for wrong in (moved, chance * (1 + 1e-8), optimal_by_gradient(weight, gradient)):
        assert optimality_gap(wrong, weight, gradient, noise, 1.0, 3) > 1e-9
    capped = solve_p2(weight, gradient**4, noise, 1.0, 4)
    assert capped.max() == pytest.approx(1 / 4)  # so the border is met in these tests
    freed = np.minimum(capped, 0.24)
    assert optimality_gap(freed / freed.sum(), weight, gradient**4, noise, 1.0, 4) > 1e-3


@pytest.mark.parametrize(("clients", "draws", "tradeoff"), [(10, 3, 1.0), (30, 20, 0.1), (100, 10, 5.0)])
def test_optimum_agrees_with_cvxpy(clients, draws, tradeoff):
    cp = pytest.importorskip("cvxpy")
    weight, gradient, noise = instance(clients, clients)
    spread, cost = (weight * gradient) ** 2, tradeoff * (weight * noise) ** 2
    # in units of 1 / N, and of the mean term, so that the solver's tolerances mean something
    q = cp.Variable(clients)
    value = spread / spread.mean() @ cp.inv_pos(q) + cost / spread.mean() / np.sqrt(clients) @ cp.power(q, -0.5)
    problem = cp.Problem(cp.Minimize(value), [cp.sum(q) == clients, q <= clients / draws])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    ours = solve_p2(weight, gradient, noise, tradeoff, draws)
    assert ours == pytest.approx(q.value / clients, rel=1e-4, abs=1e-7)
    measured = spread @ (1 / ours) + cost @ ours**-0.5
    reference = q.value / q.value.sum()
    assert measured <= (spread @ (1 / reference) + cost @ reference**-0.5) * (1 + 1e-9)


def test_both_limits_of_corollary_1():
    weight, gradient, noise = instance(3, 50, 0.3)
    draws = 3
    by_gradient = optimal_by_gradient(weight, gradient)
    by_noise = optimal_by_noise(weight, noise)
    assert by_gradient.max() < 1 / draws and by_noise.max() < 1 / draws
    assert solve_p2(weight, gradient, noise, 1e-6, draws) == pytest.approx(by_gradient, rel=1e-3)
    assert solve_p2(weight, gradient, noise, 1e6, draws) == pytest.approx(by_noise, rel=1e-3)
    assert solve_p2(weight, gradient, noise, 0.0, draws) == pytest.approx(by_gradient, rel=1e-12)
    nothing = np.zeros(50)
    assert solve_p2(weight, nothing, noise, 1.0, draws) == pytest.approx(by_noise, rel=1e-12)
    # and in between it is neither
    middle = solve_p2(weight, gradient, noise, 1.0, draws)
    assert np.abs(middle / by_gradient - 1).max() > 0.05 < np.abs(middle / by_noise - 1).max()


def test_extreme_scales_neither_overflow_nor_stall():
    weight, gradient, noise = instance(5, 20)
    chance = solve_p2(weight, gradient * 1e150, noise * 1e150, 1.0, 3)
    assert optimality_gap(chance, weight, gradient * 1e150, noise * 1e150, 1.0, 3) < 1e-9
    steep = np.logspace(-200, 0, 20)
    chance = solve_p2(np.ones(20), steep, np.zeros(20), 1.0, 3)
    assert chance[-3:] == pytest.approx(1 / 3) and (chance > 0).all()


@pytest.mark.parametrize("draws", [100, 50_000])
def test_a_hundred_thousand_clients_within_a_second(draws):
    weight, gradient, noise = instance(0, 100_000)
    times = []
    for _ in range(2):
        start = time.process_time()
        chance = solve_p2(weight, gradient, noise, 1.0, draws)
        times.append(time.process_time() - start)
    assert min(times) < 1.0
    assert optimality_gap(chance, weight, gradient, noise, 1.0, draws) < 1e-9


def test_the_samplings_that_look_at_nobody():
    weight, _, _ = instance(2, 10, 0.2)
    assert known_chances("uniform", weight, 3) == pytest.approx(np.full(10, 0.1))
    assert known_chances("weight", 5 * weight, 3) == pytest.approx(weight)


# --- drawing and merging ------------------------------------------------------------------------------------


@given(st.integers(0, 2**63), st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 20))
def test_choice_agrees_with_an_obvious_search(seed, moment, clients, draws):
    chance = instance(seed % 1000, clients)[0]
    counts = sampled(chance, draws, seed, moment)
    key = key_of(seed, 0, moment)
    expected = np.zeros(clients, int)
    for k in range(draws):
        number = uniform(key, CHOICE, k)
        expected[
            next(i for i in range(clients) if number < chance[: i + 1].sum() / chance.sum() or i == clients - 1)
        ] += 1
    assert counts.tolist() == expected.tolist()
    assert counts.sum() == draws
    ladder = sampling.ladder_of(chance)
    assert counts.tolist() == [times_drawn(ladder, k, draws, key) for k in range(clients)]


def sampled_rounds(chance, draws, rounds, seed):
    ladder, counts = sampling.ladder_of(chance), np.zeros((rounds, len(chance)), np.int64)
    for r in range(rounds):
        choose(counts[r], ladder, draws, key_of(seed, 0, r))
    return counts


def unbiasedness(merged, updates, weight, chance, draws):
    """p-value of one chi-squared test over the coordinates: mean of the merges against the full average.

    A merge is a mean of K independent (p_i / q_i) u_i, so its covariance is known exactly.
    """
    full = weight @ updates
    covariance = ((weight**2 / chance)[:, None] * updates).T @ updates - np.outer(full, full)
    off = merged.mean(axis=0) - full
    statistic = off @ np.linalg.solve(covariance / draws / len(merged), off)
    return stats.chi2(updates.shape[1]).sf(statistic)


def merging_weights(weight, chance, counts, draws):
    """Algorithm 1, line 15: what each update counts, p_i / (K q_i) each time its client was drawn."""
    return counts * weight / (draws * chance)


@pytest.mark.parametrize("kind", sampling.SAMPLINGS)
def test_merging_is_unbiased(kind):
    weight, gradient, noise = instance(7, 10, 0.5)
    updates = np.random.default_rng(1).standard_normal((10, 6)) + np.arange(6)
    optimal = solve_p2(weight, gradient, noise, 1.0, 3)
    chance = optimal if kind == "optimal" else known_chances(kind, weight, 3)
    counts = sampled_rounds(chance, 3, 20_000, seed=11)
    assert (counts > 1).any()  # some client was drawn twice
    merged = merging_weights(weight, chance, counts, 3) @ updates
    assert unbiasedness(merged, updates, weight, chance, 3) > 1e-4
    # the test has teeth: merging as if all chances were equal, or a double draw counted once, is found out
    once = merging_weights(weight, chance, np.minimum(counts, 1), 3) @ updates
    assert unbiasedness(once, updates, weight, chance, 3) < 1e-4
    if kind != "uniform":
        careless = merging_weights(weight, np.full(10, 0.1), counts, 3) @ updates
        assert unbiasedness(careless, updates, weight, chance, 3) < 1e-4


def test_draws_have_their_chances_and_rounds_are_independent():
    chance = instance(9, 6)[0]
    counts = sampled_rounds(chance, 4, 5_000, seed=3)
    assert stats.chisquare(counts.sum(axis=0), 20_000 * chance).pvalue > 1e-4
    assert (sampled_rounds(chance, 4, 50, seed=3) == counts[:50]).all()
    assert (sampled_rounds(chance, 4, 50, seed=4) != counts[:50]).any()


def test_compiled_choice_is_the_plain_one():
    compiled = pytest.importorskip("archipel.simulate.compile")
    numba = pytest.importorskip("numba")
    compiled.enable()

    @numba.njit
    def several(counts, ladder, draws, seed):
        for r in range(counts.shape[0]):
            for k in range(counts.shape[1]):
                counts[r, k] = times_drawn(ladder, k, draws, key_of(seed, 0, r))

    chance = instance(9, 6)[0]
    counts = np.zeros((40, 6), np.int64)
    several(counts, sampling.ladder_of(chance), 4, 3)
    assert (counts == sampled_rounds(chance, 4, 40, seed=3)).all()


# --- what is refused ----------------------------------------------------------------------------------------

ONES = np.ones(4)
BAD = [
    (lambda: known_chances("uniform", ONES, 4), "algorithm.draws", "fewer draws a round than clients"),
    (lambda: known_chances("weight", ONES, 5), "algorithm.draws", "fewer draws a round than clients"),
    (lambda: solve_p2(ONES, ONES, ONES, 1.0, 4), "algorithm.draws", "fewer draws a round than clients"),
    (lambda: known_chances("uniform", ONES, 0), "algorithm.draws", "at least 1"),
    (lambda: known_chances("weight", [1, 0, 1, 1], 3), "sampling.weight[1]", "above 0"),
    (lambda: known_chances("weight", [1, 1, np.nan, 1], 3), "sampling.weight[2]", "above 0"),
    (lambda: solve_p2([1, 1, 1, np.inf], ONES, ONES, 1.0, 3), "sampling.weight[3]", "above 0"),
    (lambda: solve_p2(ONES, [1, -1, 1, 1], ONES, 1.0, 3), "sampling.gradient[1]", "0 or more"),
    (lambda: solve_p2(ONES, ONES, [1, 1, 1, np.nan], 1.0, 3), "sampling.noise[3]", "0 or more"),
    (
        lambda: solve_p2(ONES, ONES[:3], ONES, 1.0, 3),
        "sampling.gradient",
        "one number for each of 4 clients",
    ),
    (lambda: solve_p2(ONES, 0 * ONES, 0 * ONES, 1.0, 3), "sampling.gradient[0]", "above 0"),
    (lambda: solve_p2(ONES, [1, 1, 1, 0], ONES, 0.0, 3), "sampling.gradient[3]", "above 0"),
    (lambda: solve_p2(ONES, ONES, ONES, -1.0, 3), "sampling.tradeoff", "0 or more"),
]


@pytest.mark.parametrize(("call", "key", "sentence"), BAD)
def test_bad_input(call, key, sentence):
    with pytest.raises(BadInput, match=sentence) as caught:
        call()
    assert caught.value.key == key
