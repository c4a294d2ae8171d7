"""Audits from one run: the papers' numbers, coins that are as good as they can be, and honest scores never refuted."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from archipel.errors import BadInput
from archipel.privacy import one_run
from archipel.privacy.gaussian import epsilon_of
from archipel.privacy.one_run import Guesses


def p_value(found, epsilon, delta):
    """The chance of so many right guesses, at most, of anything that is (epsilon, delta)-DP: Theorem 5.2."""
    chance = 1 / (1 + math.exp(-epsilon))
    bare = float(binom.sf(found.right - 1, found.made, chance))
    if delta == 0 or found.right == 0:
        return bare
    below = np.cumsum(binom.pmf(np.arange(found.right - 1, -1, -1), found.made, chance))
    extra = float((below / np.arange(1, found.right + 1)).max())
    return min(bare + 2 * found.canaries * delta * extra, 1.0)


def epsilon_in_one_run(found, delta, risk):
    """epsilon is at least this, but for a chance of `risk`."""
    return one_run.largest(lambda epsilon: p_value(found, epsilon, delta) < risk)


def test_the_paper_s_own_example():
    """Steinke, Nasr, Jagielski, appendix D: 75 of 100 guesses on 1,000 canaries, delta 1e-4, 95 %: 0.673."""
    assert epsilon_in_one_run(Guesses(1000, 100, 75), 1e-4, 0.05) == pytest.approx(0.673, abs=1e-3)


def test_without_delta_it_is_the_binomial():
    found = Guesses(500, 200, 150)
    epsilon = epsilon_in_one_run(found, 0.0, 0.05)
    assert binom.sf(149, 200, 1 / (1 + math.exp(-epsilon))) == pytest.approx(0.05, rel=1e-3)


def naive_p(found, epsilon, delta):
    chance, total, most = 1 / (1 + math.exp(-epsilon)), 0.0, 0.0
    for i in range(1, found.right + 1):
        total += binom.pmf(found.right - i, found.made, chance)
        most = max(most, total / i)
    return min(binom.sf(found.right - 1, found.made, chance) + most * delta * 2 * found.canaries, 1.0)


@pytest.mark.parametrize(("made", "right"), [(1, 1), (10, 3), (100, 60), (1000, 800)])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-2])
def test_p_values_are_those_of_the_loop(made, right, delta):
    for epsilon in (0.0, 0.5, 2.0):
        found = Guesses(1000, made, right)
        assert p_value(found, epsilon, delta) == pytest.approx(naive_p(found, epsilon, delta), rel=1e-9)


def scores(mu, canaries, seed):
    draw = np.random.default_rng(seed)
    included = draw.random(canaries) < 0.5
    return draw.normal(size=canaries) + mu * included, included


def test_as_good_as_jax_privacy_on_the_same_scores():
    """Its own test's scores: 10,000 quantiles in and out; its bounds at 95 %, delta 1e-6, thresholds corrected for."""
    at = norm.ppf((np.arange(10_000) + 0.5) / 10_000)
    theirs = {1: (1.13346, 2.164749), 2: (2.311945, 4.7218075), 4: (4.395568, 9.133752)}
    for shift, (plain, curve) in theirs.items():
        values, included = np.concatenate([at, at + shift]), np.repeat([False, True], 10_000)
        count = one_run.best_count(20_000, epsilon_of(float(shift), 1e-6), 1e-6, 0.05)
        found = one_run.guessed(values, included, count)
        assert one_run.gaussian_epsilon(found, 1e-6, 0.05) > curve
        few = one_run.guessed(values, included, 400)
        assert max(epsilon_in_one_run(g, 1e-6, 0.05) for g in (found, few)) > 0.98 * plain


def test_a_gaussian_at_epsilon_four_is_found_above_one_and_never_above_itself():
    """1,000 canaries whose scores are as good as a mechanism allows that is just epsilon = 4 at delta 1e-5."""
    from archipel.privacy.gaussian import mu_of

    mu = mu_of(4.0, 1e-5)
    count = one_run.best_count(1000, 4.0, 1e-5, 0.05)
    found = [one_run.gaussian_epsilon(one_run.guessed(*scores(mu, 1000, s), count), 1e-5, 0.05) for s in range(100)]
    assert np.median(found) > 1.7 and max(found) < 4.0
    assert np.mean(np.array(found) > 1.0) > 0.9


def test_the_level_is_kept_by_the_best_coin_of_all():
    """Randomised response, which meets the bound: refuted in at most so many runs as the risk says."""
    epsilon, draw = 1.0, np.random.default_rng(5)
    refuted = 0
    for _ in range(400):
        right = int(draw.binomial(300, 1 / (1 + math.exp(-epsilon))))
        refuted += epsilon_in_one_run(Guesses(300, 300, right), 0.0, 0.05) > epsilon
    assert refuted <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05)


def test_nothing_is_found_where_nothing_is():
    for seed in range(40):
        found = one_run.guessed(*scores(0.0, 500, seed), 200)
        assert one_run.gaussian_epsilon(found, 1e-5, 1e-3) == 0.0 == epsilon_in_one_run(found, 1e-5, 1e-3)


def test_bad_scores_are_refused():
    for values, count in (([math.nan, 1.0, 2.0], 2), ([1.0, 2.0, 3.0], 4), ([1.0, 2.0], 2)):
        with pytest.raises(BadInput):
            one_run.guessed(values, [True, False, True], count)
    assert one_run.guessed([3.0, 1.0, 2.0], [True, False, True], 2) == Guesses(3, 2, 2)
