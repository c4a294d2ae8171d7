"""Regression among peers: what it refuses."""

import numpy as np
import pytest

from archipel.errors import BadInput
from archipel.problems.networked import Regression, solution


@pytest.mark.parametrize("key", ["noise", "l1", "l2"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_numbers_that_are_none_are_refused(key, value):
    with pytest.raises(BadInput, match=f"problem.{key}"):
        Regression(**{key: value}).task(1, 1, np.float64, "stored")


def test_a_reference_that_no_solver_finds_is_a_sentence():
    """The solver's own error came out where the l1 part is beyond all scale."""
    pytest.importorskip("cvxpy")
    with pytest.raises(BadInput, match=r"problem\.reference.*not found"):
        solution(Regression("logistic", clients=4, samples=6, size=3, test=5, l1=1e100), 1)
