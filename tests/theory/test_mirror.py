"""The printed bounds grow as ERRATA says they do; the sound bound holds where the sound form is run."""

import numpy as np
import pytest

from archipel.parts.learn import maps as mirror
from archipel.parts.learn.dual_averaging import DualAverage
from archipel.problems import regions
from archipel.problems.regions import projected
from archipel.theory import mirror as bounds
from archipel.topology import from_pairs
from archipel.topology.push_sum import disagreement
from reference import mirror as proved
from reference import regret
from reference.losses import DistanceLosses, LinearLosses

TIMES = np.array([10**3, 10**4, 10**5, 10**6])


def exponent(curve):
    return regret.growth(TIMES, curve).exponent


# --- as printed -------------------------------------------------------------------------------------------


def test_which_printed_bounds_are_linear_in_time():
    """(3.5), (6.14), (6.17), (4.17) with a fixed V, and (5.25) under every step: no better than standing still."""
    assert exponent(proved.regret_3_5(TIMES, 10, 0.1, 0.8)) == pytest.approx(1)
    assert exponent(proved.regret_6_14(TIMES, 10, 1.0, 1.0, 1.0)) == pytest.approx(1, abs=0.01)
    assert exponent(proved.violation_6_17(TIMES, 10, 1.0, 1.0, 1.0, 1.0)) == pytest.approx(1, abs=0.01)
    assert exponent(bounds.regret_4_17(TIMES, 1, 1, 0.1)) == pytest.approx(1, abs=0.01)
    for decay in (0.0, 0.5, 1.0):
        steps = np.arange(1.0, TIMES[-1] + 3) ** -decay
        whole = proved.regret_5_25(steps, 10, 1.0, 1.0, 0.0, proved.gap_5_22(10, 1))
        assert exponent(whole[TIMES - 1]) == pytest.approx(1, abs=0.01)


def test_what_makes_them_sublinear():
    """Summing the steps as they are, and V that grows as sqrt(T)."""
    assert exponent(proved.regret_6_14_summed(TIMES, 10, 1.0, 1.0, 1.0)) == pytest.approx(0.5)
    assert exponent(bounds.regret_4_17(TIMES, 1, np.sqrt(TIMES), 0.1)) == pytest.approx(0.5)
    assert exponent(proved.violation_4_17(TIMES, np.sqrt(TIMES))) == pytest.approx(0.75)
    assert exponent(proved.regret_2_11(TIMES, 5, 1.0)) < 0.5


def test_the_steps_of_chapter_3_sum_to_less_than_twice_the_root():
    """What (6.13) overlooks, and the terms of (6.13) with the real sum in place of T eta_1."""
    times = np.arange(1, 2001)
    steps = proved.step_chapter_3(times, 2.0, 1.5, 0.7)
    assert (np.cumsum(steps) <= 2 * np.sqrt(times) * steps[0]).all()
    real = 2.0 / steps + np.cumsum(steps) * (0.7**2 + 1.5**2)
    assert (3 * real <= proved.regret_6_14_summed(times, 3, 2.0, 1.5, 0.7) + 1e-9).all()
    assert (3 * real <= proved.regret_6_14(times, 3, 2.0, 1.5, 0.7) + 1e-9).all()


def test_figure_4_1_ends_at_one_over_epsilon():
    """Its three curves, divided by T, run from 11, 20 and 10 to 10.1, 11 and 10: none decays to zero."""
    time = np.array([1.0, 100.0])
    np.testing.assert_allclose(bounds.regret_4_17(time, 1, 1, 0.1) / time, [11, 10.1])
    np.testing.assert_allclose(bounds.regret_4_1_first_other(time, 1, 0.1) / time, [20, 11])
    np.testing.assert_allclose(bounds.regret_4_1_second_other(time, 0.1) / time, [10, 10])


def test_mixing_of_chapter_5():
    assert proved.gap_5_22(10, 1) == pytest.approx(1e-10, rel=1e-6)
    assert proved.mixing_5_22(2, 3) == pytest.approx((1 - 1 / 2**6) ** (1 / 3))
    assert proved.gap_5_22(2, 3) == pytest.approx(1 - proved.mixing_5_22(2, 3))


def test_5_25_written_out():
    steps, total = 0.5 / np.sqrt(np.arange(1, 8)), 0.0
    found = proved.regret_5_25(steps, 3, 1.5, 2.0, np.arange(1, 6) / 10, 0.2, 0.7, 1.3)
    for last in range(1, 6):
        total += 1.5**2 * steps[last] / 2
        apart = 2 * last * 1.5**2 * 3 * steps[0] * (2 + 1.3 * 3 / 0.2)
        after = (2 * 3 * 2.0 + 0.7 * 3 * last / 10) / steps[last + 1]
        assert found[last - 1] == pytest.approx(apart + total + after)


def test_noise_widths_by_drawing():
    noise = np.random.default_rng(1).laplace(scale=1 / 0.3, size=(400_000, 5))
    simplex = np.mean(noise.max(1) - noise.min(1))
    assert proved.laplace_width_on_simplex(0.3, 5) == pytest.approx(simplex, rel=0.01)
    ball = np.mean(2 * 1.5 * np.linalg.norm(noise, axis=1))
    assert proved.laplace_width_on_ball(0.3, 5, 1.5) == pytest.approx(ball, rel=0.01)


def test_noise_drawn_every_round_is_not_noise_drawn_once():
    """(6.1): what the model of round t has seen spreads as sqrt(t), not as one draw."""
    noise = np.random.default_rng(2).laplace(size=(5000, 400))
    seen = np.cumsum(noise, axis=1).std(0)
    assert seen[0] == pytest.approx(np.sqrt(2), rel=0.1)
    assert seen[-1] == pytest.approx(np.sqrt(2 * 400), rel=0.1)


# --- the sound form ---------------------------------------------------------------------------------------


def random_digraph(clients, rng):
    """Strongly connected and unbalanced; column u is what sender u gives out, and sums to one."""
    there = np.eye(clients) + np.roll(np.eye(clients), 1, axis=0) + (rng.uniform(size=(clients, clients)) < 0.2)
    weights = (there > 0) * rng.uniform(0.1, 1, size=(clients, clients))
    return weights / weights.sum(0)


def play(gradient, graph, map_settings, steps):
    """The sound form, written out: the models of all rounds, and the mean of 1 / weight in each."""
    clients = len(graph)
    models, weights = np.tile(mirror.start(map_settings), (clients, 1)), np.ones(clients)
    played, rarity, moved = [], [], np.empty_like(models)
    for t, step in enumerate(steps):
        played.append(models)
        rarity.append(np.mean(1 / weights))
        for u in range(clients):
            mirror.map_of(map_settings).step(
                moved[u], models[u], gradient(t, u, models[u]), step / weights[u], map_settings
            )
        mixed, weights = graph @ (weights[:, None] * moved), graph @ weights
        models = mixed / weights[:, None]
    return np.array(played), np.array(rarity)


@pytest.mark.parametrize("kind", ["ball", "simplex", "entropy"])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_the_sound_form_keeps_to_its_bound(kind, scale):
    """Coin flips, on which no algorithm can do better than sqrt(T); an unbalanced graph, with and without noise."""
    rounds, clients, size = 400, 5, 4
    region = regions.ball(size) if kind == "ball" else regions.simplex(size, 1.0, 0.01)
    map_settings = mirror.entropy(region) if kind == "entropy" else mirror.euclidean(region)
    width = mirror.width(map_settings)
    length = mirror.noisy_length(1.0, scale, size, "laplace", map_settings)
    steps = [mirror.fitted_step(mirror.Pace(width, length, 0.0, 0.0, 0.0, 0.5), t) for t in range(rounds)]
    marks, found, limits = np.array([50, 100, 200, 400]), [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        slopes = np.tile(np.eye(size)[0], (rounds, clients, 1)) * rng.choice([-1, 1], rounds)[:, None, None]
        noisy = slopes + scale * rng.laplace(size=slopes.shape)
        graph = random_digraph(clients, rng)
        models, rarity = play(lambda t, u, x, noisy=noisy: noisy[t, u], graph, map_settings, steps)
        losses = LinearLosses(slopes)
        best = regret.static_comparator(losses, region, marks)
        found.append(regret.static_regret(regret.own_losses(losses, models), best, marks) / clients)
        limits.append(bounds.sound_static(steps, width**2, length, rarity)[marks - 1])
    found, limits = np.mean(found, 0), np.mean(limits, 0)
    assert (found <= limits).all() and found[-1] > 0
    assert limits[-1] < rounds * regions.diameter(region)  # the bound says something


def averaged(slopes, noisy, graph, name, steps):
    """Dual averaging, written out: the models of all rounds."""
    rounds, clients, size = slopes.shape
    sums, weights, played = np.zeros((clients, size)), np.ones(clients), []
    for t in range(rounds):
        sought = -steps[t] * sums / weights[:, None]
        if name == "entropy":
            lifted = np.exp(sought - sought.max(1, keepdims=True))
            played.append(lifted / lifted.sum(1, keepdims=True))
        else:
            played.append(projected(sought, regions.ball(size) if name == "ball" else regions.simplex(size)))
        sums, weights = graph @ (sums + noisy[t]), graph @ weights
    return np.array(played)


@pytest.mark.parametrize("name", ["ball", "simplex", "entropy"])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_dual_averaging_keeps_to_its_bound(name, scale):
    """Coin flips on an unbalanced graph, with and without noise, by the numbers of the algorithm itself."""
    rounds, clients, size = 400, 5, 4
    region = regions.ball(size) if name == "ball" else regions.simplex(size)
    mapped = mirror.entropy(region) if name == "entropy" else mirror.euclidean(region)
    width = DualAverage().width(mapped)
    noise = 2 * scale**2 * (1 if name == "entropy" else size)
    length = np.sqrt(1 + noise / clients)
    steps = width / length / np.sqrt(np.arange(1, rounds + 1))
    marks, found, limits = np.array([50, 100, 200, 400]), [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        slopes = np.tile(np.eye(size)[0], (rounds, clients, 1)) * rng.choice([-1, 1], rounds)[:, None, None]
        noisy, graph = slopes + scale * rng.laplace(size=slopes.shape), random_digraph(clients, rng)
        models, losses = averaged(slopes, noisy, graph, name, steps), LinearLosses(slopes)
        best = regret.static_comparator(losses, region, marks)
        found.append(regret.static_regret(regret.own_losses(losses, models), best, marks) / clients)
        receivers, senders = np.nonzero(graph - np.diag(np.diag(graph)))
        links = from_pairs(clients, receivers, senders, graph[receivers, senders], np.diag(graph))
        apart = disagreement([links], rounds) @ [np.sqrt(2 * size) * scale, 1.0]
        limit = bounds.sound_averaged(steps, width**2, length, 1.0, np.concatenate([[0.0], apart[:-1]]))
        limits.append(limit[marks - 1])
    found, limits = np.mean(found, 0), np.mean(limits, 0)
    assert (found <= limits).all() and found[-1] > 0
    assert limits[-1] < rounds * regions.diameter(region)  # the bound says something


@pytest.mark.parametrize("pace", [0.0, 0.01])
def test_the_sound_form_keeps_to_its_bound_where_the_comparator_moves(pace):
    rounds, clients, rng = 400, 5, np.random.default_rng(3)
    angles = pace * np.arange(rounds)
    path = np.stack([np.cos(angles), np.sin(angles)], axis=1) * 0.7
    lean = 0.2 * rng.normal(size=(clients, 2))
    losses = DistanceLosses(path[:, None] + lean - lean.mean(0))
    map_settings = mirror.euclidean(regions.ball(2))
    width, length = mirror.width(map_settings), 1 + np.linalg.norm(losses.centres, axis=-1).max()
    moves = mirror.pace_of(0.7 * pace * rounds**0.5, map_settings)
    steps = [mirror.fitted_step(mirror.Pace(width, length, moves, 0.5, 0.0, 0.5), t) for t in range(rounds)]
    graph = random_digraph(clients, rng)
    models, rarity = play(lambda t, u, x: x - losses.centres[t, u], graph, map_settings, steps)
    marks = np.array([50, 100, 200, 400])
    found = regret.dynamic_regret(regret.own_losses(losses, models), losses, path, marks) / clients
    along = regret.path_length(path, np.arange(1, rounds + 1))
    limit = bounds.sound_dynamic(steps, width**2, length, along, 2.0, rarity)
    assert (found <= limit[marks - 1]).all() and limit[-1] < rounds * length * 2


def test_push_sum_finds_the_optimum_where_5_13_does_not():
    """Strongly convex losses, step 1/t, 2,000 rounds, ten unbalanced graphs: under 1 % against over 10 %."""
    clients, size, rounds = 10, 3, 2000
    for seed in range(10):
        rng = np.random.default_rng(seed)
        graph, centres = random_digraph(clients, rng), 1 + rng.normal(size=(clients, size))
        optimum = centres.mean(0)
        models, weights, printed = np.zeros((clients, size)), np.ones(clients), np.zeros((clients, size))
        for t in range(1, rounds + 1):
            moved = models - (1 / t / weights)[:, None] * (models - centres)
            mixed, weights = graph @ (weights[:, None] * moved), graph @ weights
            models = mixed / weights[:, None]
            heard = graph @ printed  # (5.13)
            printed = heard - (heard - centres) / t  # (5.12)
        away = np.linalg.norm(models - optimum, axis=1).max() / np.linalg.norm(optimum)
        away_printed = np.linalg.norm(printed - optimum, axis=1).max() / np.linalg.norm(optimum)
        assert away < 0.01 and away_printed > 0.10
