"""The walk over the registry, deployed: what the matrix says combines ends, node by node, as it does simulated.

Nothing is listed by hand. `long` has every protection and mix; here is every kind, on every second of its topologies.
"""

import pytest
from harness import Village, assert_same, simulated

from archipel.combinations import cell
from archipel.environment import Environment
from archipel.errors import BadInput
from archipel.parts.kind import Composition
from archipel.registry import ALGORITHMS, MIXES, PROTECTS
from archipel.topology import TOPOLOGIES


def away(federation):
    """The same with clients that are away now and then, if it takes that."""
    there = federation.with_(environment=Environment(availability=0.7))
    try:
        there.instance()
    except BadInput:
        return federation
    return there


def check(one):
    federation = away(one.federation)
    village = Village(federation)
    village.run()
    try:
        assert_same(village, simulated(federation), 1e-5 if federation.algorithm.data_kind == "deep" else 0.0)
    except AssertionError as problem:
        raise AssertionError(f"{one._replace(federation=None)}: {problem}") from problem


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ALGORITHMS)
def test_every_kind_on_every_topology(kind, half):
    filled = [one for one in (cell(kind, topology) for topology in TOPOLOGIES) if one.federation is not None]
    shift = list(ALGORITHMS).index(kind) % len(filled)
    for one in (filled[shift:] + filled[:shift])[half::2]:
        check(one)


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind, cls in ALGORITHMS.items() if issubclass(cls, Composition)])
def test_with_every_protection_and_every_mix(kind):
    for topology in TOPOLOGIES:
        for parts in [{"protect": protect} for protect in PROTECTS] + [{"mix": mix} for mix in MIXES]:
            one = cell(kind, topology, **parts)
            if one.federation is not None:
                check(one)
