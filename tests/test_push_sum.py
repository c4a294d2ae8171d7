"""Push-sum on a graph, against products of matrices and against drawn numbers."""

import numpy as np
import pytest

from archipel.topology import Digraph, matrix
from archipel.topology.push_sum import disagreement, push, rarity

GRAPHS = {
    "one": Digraph(shares="random", mean_degree=2.0),
    "three": Digraph(shares="random", mean_degree=2.0, phases=3),
    "fading": Digraph(phases=4, fade=0.2, opt_out=0.2, window=4, mean_degree=3.0),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_round_is_a_product(name):
    links, values = GRAPHS[name].build(6, 3).across[0], np.arange(6.0)
    np.testing.assert_allclose(push(links, values), matrix(links) @ values)


@pytest.mark.parametrize("name", GRAPHS)
def test_rarity_is_the_mean_of_one_over_weight(name):
    phases, weights = GRAPHS[name].build(6, 3).across, np.ones(6)
    found = rarity(phases, 2500)  # longer than is looked at
    for n in range(2500):
        assert found[n] == pytest.approx(np.mean(1 / weights), rel=1e-6)
        weights = matrix(phases[n % len(phases)]) @ weights


@pytest.mark.parametrize("name", GRAPHS)
def test_disagreement_is_that_of_drawn_numbers(name):
    """The root of the mean square over 20,000 draws of everything that was pushed; and a worst case for the sum."""
    phases, rounds, draws = GRAPHS[name].build(6, 3).across, 30, 20_000
    drawn = np.random.default_rng(1).choice([-1.0, 1.0], (rounds, 6, draws))
    sums, weights = np.zeros((6, draws)), np.ones(6)
    found = disagreement(phases, rounds)
    for n in range(rounds):
        graph = matrix(phases[n % len(phases)])
        sums, weights = graph @ (sums + drawn[n]), graph @ weights
        apart = sums / weights[:, None] - drawn[: n + 1].mean(1).sum(0)
        assert found[n, 0] == pytest.approx(np.sqrt((apart**2).mean(1)).mean(), rel=0.02)
        assert found[n, 1] >= np.abs(apart).max(1).mean() - 1e-9 and found[n, 1] > found[n, 0]


def test_where_all_hear_all_nobody_is_apart():
    assert np.allclose(disagreement(Digraph("complete").build(7, 0).across, 5), 0)
