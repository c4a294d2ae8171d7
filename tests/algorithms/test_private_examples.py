"""The examples of private learning among peers do learn: clearly better than every peer alone."""

from pathlib import Path

import numpy as np
import pytest

from archipel.federation import Federation
from archipel.problems.networked import OBJECTIVES, centralised, solution

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = ["zcdp-nfl", "zcdp-nfl-elastic-net", "zcdp-nfl-least-absolute", "zcdp-nfl-logistic"]


def alone(problem, seed):
    """The deviation, summed over peers, of what everyone finds by itself and without noise."""
    x, y = problem.drawn(seed)
    kept = problem.clients * problem.samples
    x, y = x[:kept], y[:kept]
    loss, (l1, l2) = OBJECTIVES[problem.objective][0], problem.regulariser(x, y)
    own = [
        centralised(*mine, 1 / problem.samples, loss, l1 / problem.clients, l2 / problem.clients)
        for mine in zip(np.split(x, problem.clients), np.split(y, problem.clients))
    ]
    exact = solution(problem, seed)
    return ((np.array(own) - exact) ** 2).sum() / (exact**2).sum()


@pytest.mark.parametrize("name", NAMES)
def test_an_example_says_what_it_will_cost_and_enforces_it(name):
    accountant = Federation.load(FOLDER / f"{name}.toml").instance().plan.accountant
    assert accountant.terms.how == "enforced"
    assert (
        accountant.forecast().epsilon == pytest.approx(2.0, rel=1e-6) and (accountant.forecast().epsilon <= 2.0).all()
    )


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_private_peers_learn_clearly_better_than_alone(name):
    described = Federation.load(FOLDER / f"{name}.toml").with_(every=200)
    for seed in (1, 4):
        result = described.with_(seed=seed).run()
        gain = 10 * np.log10(alone(described.problem, seed) / result.final("deviation"))
        assert gain > 2.0
        assert result.ledgers[0]["worst"]["epsilon"] <= 2.0
