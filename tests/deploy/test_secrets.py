"""On a real device what must be secret is not drawn from the description's seed."""

import numpy as np
import pytest

from archipel.draws import key_of
from archipel.generators import poisson_batch
from archipel.privacy.noise import SecureSource, noise_from


def test_batches_are_secret_where_noise_is():
    key = key_of(1, 2, 3)
    known = poisson_batch(200, 0.5, key, 0)
    assert np.array_equal(known, poisson_batch(200, 0.5, key, 0))
    pytest.importorskip("opendp")
    with noise_from(SecureSource()):
        drawn = [poisson_batch(200, 0.5, key, 0) for _ in range(3)]
    assert not any(np.array_equal(known, other) for other in drawn)
    assert not np.array_equal(drawn[0], drawn[1])
    assert all(50 < len(batch) < 150 for batch in drawn)
