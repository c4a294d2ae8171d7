"""PGFL at the size that was promised: 10,000 clients on 100 servers, 60 parameters, 200 rounds.

How long that takes is a row of `archipel bench`.
"""

import pytest

from archipel import Federation
from archipel.algorithms.pgfl import Pgfl
from archipel.problems.clustered import Related
from archipel.topology import Servers

LARGE = Federation(
    Related(clients=10_000), Pgfl(tau=0.2, decay=0.95), Servers(servers=100, clusters=3), rounds=200, every=50
)


@pytest.mark.long
def test_ten_thousand_clients_learn():
    result = LARGE.run()
    assert result.final("msd") < 0.1 * result.curve("msd")[0][1]
