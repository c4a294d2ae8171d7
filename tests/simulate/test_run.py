"""A run as a whole: what ends it early."""

import numpy as np
import pytest

from archipel import Federation
from archipel.algorithms.fedavg import FedAvg
from archipel.errors import Diverged
from archipel.problems.clustered import Related
from archipel.simulate.run import finite
from archipel.topology import Star

SMALL = Related(clients=3, tasks=1, size=3, samples=(5, 8), test=10)
WILD = Federation(SMALL, FedAvg(step=1e9), Star(), rounds=60, every=20, engine="plain")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_that_diverges_says_where_and_what_to_change():
    with pytest.raises(Diverged, match=r"By round 40 .* \(seed 3\)\. A smaller algorithm\.step"):
        WILD.with_(seed=3).run()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_figure_sees_a_run_that_diverges_to_its_end():
    """It brings what theory says, and counts the run as infinitely bad."""
    result = WILD.run(theory={})
    assert max(row[1] for row in result.rows) == 60 and not np.isfinite(result.models[0]["server"]).all()


def test_only_what_is_not_finite_has_diverged():
    assert finite(np.full(4, 1e308)) and finite(np.arange(3)) and finite(np.zeros((0, 2)))
    for wrong in (np.nan, np.inf, -np.inf):
        assert not finite(np.array([[0.0, wrong], [1.0, 2.0]]))
    assert not finite(np.array([np.inf, -np.inf]))


def test_a_model_that_has_grown_beyond_sense_is_said():
    federation = WILD.with_(algorithm=FedAvg(step=5.0), rounds=20)
    assert "diverges" in federation.run().grown()
    assert not federation.with_(algorithm=FedAvg(step=0.01)).run().grown()
