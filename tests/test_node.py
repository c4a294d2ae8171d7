"""The verbs: their NumPy form and their loop give the same."""

import numpy as np
import pytest

from archipel import node
from archipel.node import FAST

draw = np.random.default_rng(0)


def arrays(dtype):
    a, b, m = (draw.standard_normal(shape).astype(dtype) for shape in (7, 7, (5, 7)))
    return a, b, m, draw.standard_normal(5).astype(dtype)


CALLS = {
    "dot": lambda f, a, b, m, v: f(a, b),
    "assign": lambda f, a, b, m, v: (f(a, b), a)[1],
    "add_scaled": lambda f, a, b, m, v: (f(a, a.dtype.type(0.3), b), a)[1],
    "matvec": lambda f, a, b, m, v: (f(v, m, a), v)[1],
    "add_matvec_transposed": lambda f, a, b, m, v: (f(a, a.dtype.type(0.5), m, v), a)[1],
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_verb_and_its_loop_agree(name, dtype):
    verb = getattr(node, name)
    a, b, m, v = arrays(dtype)
    one = CALLS[name](verb, a.copy(), b, m, v.copy())
    two = CALLS[name](FAST[verb], a.copy(), b, m, v.copy())
    tolerance = 1e-6 if dtype == np.float32 else 1e-14  # of sums of a few numbers of size one, which may cancel
    np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("inputs", [1, 3, 4, 9])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 2e-15)])
def test_features_of_any_dimension(inputs, dtype, tolerance):
    x = draw.standard_normal(inputs).astype(dtype)
    directions = draw.standard_normal((inputs, 33)).astype(dtype)
    phases = draw.uniform(0, 2 * np.pi, 33).astype(dtype)
    one, two = np.zeros(33, dtype), np.zeros(33, dtype)
    node.cosines(one, phases, directions, x, dtype(0.3))
    FAST[node.cosines](two, phases, directions, x, dtype(0.3))
    assert np.abs(one - two).max() < tolerance


def test_the_cosine_holds_for_large_phases():
    phases = np.linspace(-300, 300, 1001)
    out = np.zeros(1001)
    FAST[node.cosines](out, phases, np.zeros((1, 1001)), np.zeros(1), 1.0)
    assert np.abs(out - np.cos(phases)).max() < 2e-13  # what reducing a phase of 300 loses


def test_a_record_knows_its_weight():
    from archipel.parts.share.portions import Portion

    assert node.weight_of(Portion(np.zeros(4, np.float32), np.zeros(1, np.uint32))) == 4 * 4 + 4
