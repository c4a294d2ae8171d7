"""A shard of all clients has the rows of the whole, to the bit, and costs no memory for the others."""

import subprocess
import sys

import numpy as np
import pytest

from archipel import Delay, Environment, Federation, Linear, OnlineFed, PaoFed, Synthetic
from archipel.environment import Failure
from archipel.node import leaves
from archipel.shard import WHOLE, drawn, numbered, placed
from archipel.simulate.laid import rounds_of, routes_of
from archipel.topology import Servers, Star, links

CLIENTS = 83
PARTS = [slice(0, 20), slice(20, 57), slice(57, CLIENTS), WHOLE]
ROUGH = Environment(
    availability=((0.9, 0.5, 0.3), (0.2, 0.8, 1.0)), stride=2, phase=5, stragglers=0.6,
    delay=Delay(delta=0.4, limit=3), failure=Failure(share=0.3, start=4, until=9),
)  # fmt: skip
STAR = Federation(Synthetic(clients=CLIENTS, features=12), PaoFed(portion=3), environment=ROUGH, rounds=24)


def instance_of(federation, part):
    return federation.instance(3, federation.setup(3, shard=part))


@pytest.mark.parametrize("part", PARTS)
def test_rows_of_a_shard_are_those_of_the_whole(part):
    whole, some = instance_of(STAR, WHOLE), instance_of(STAR, part)
    pairs = [(a, b) for a, b in zip(leaves(whole.task.source), leaves(some.task.source), strict=True)]
    assert sum(len(a) == CLIENTS for a, _ in pairs) == 3
    for one, other in pairs:
        rows = part if len(one) == CLIENTS else WHOLE
        assert np.array_equal(one[rows], other[rows])
    for name in ("chance", "law", "broken"):
        one, other = (getattr(found.conditions, name) for found in (whole, some))
        at = (slice(None), part) if name == "chance" else part
        assert one.shape == other.shape and np.array_equal(one[at], other[at]) and len(np.unique(one)) > 1
    for one, other in zip(rounds_of(whole, 1).mails, rounds_of(some, 1).mails, strict=True):
        for a, b in zip(one.routes, other.routes, strict=True):
            a, b = np.atleast_2d(a), np.atleast_2d(b)
            assert a.shape == b.shape
            rows = part if a.shape[1] >= CLIENTS else WHOLE
            assert np.array_equal(a[:, rows], b[:, rows])
    inputs = [[row.copy() for row in found.task.inputs(2)] for found in (whole, some)]
    assert np.array_equal(*inputs)


@pytest.mark.parametrize("part", PARTS[:3])
def test_nothing_is_made_for_others(part):
    some = instance_of(STAR, part)
    others = np.ones(CLIENTS, bool)
    others[part] = False
    assert not some.task.source.law[others].any() and not some.conditions.chance[:, others].any()
    assert not some.conditions.broken[others].any() and not some.conditions.law[others].any()


def test_laws_are_the_draws_of_one_generator():
    problem, draw = Synthetic(clients=CLIENTS), np.random.default_rng([3, 1])
    theta, mean = draw.uniform(0.2, 0.9, CLIENTS), draw.uniform(-0.2, 0.2, CLIENTS)
    deviation, noise = np.sqrt(draw.uniform(0.2, 1.2, CLIENTS)), np.sqrt(draw.uniform(0.005, 0.03, CLIENTS))
    assert np.array_equal(problem.laws(CLIENTS, 3, 1)[:, :4], np.stack([theta, mean, deviation, noise], 1))


def test_draws_and_numbers_stand_where_they_belong():
    draws = np.random.default_rng([5, 6]).random((2, 10))
    assert np.array_equal(drawn([5, 6], slice(3, 7), 10, 1), draws[1, 3:7])
    assert numbered(slice(3, 6), 8).tolist() == [0, 0, 0, 3, 4, 5, 0, 0]
    assert placed(np.ones((2, 3)), slice(1, 4), 5, 1).tolist() == [[0, 1, 1, 1, 0]] * 2


@pytest.mark.parametrize("topology", [Star(), Servers(servers=1)])
def test_links_of_a_star_are_those_of_any_graph(topology):
    federation = Federation(Linear(clients=6, size=4), OnlineFed(step=0.05), topology, rounds=4)
    instance = federation.instance(1)
    graph = instance.graph
    for mail, found in zip(rounds_of(instance, 1).mails, (graph.down(), graph.up())):
        senders = 1 if mail.number == 0 else graph.clients
        assert isinstance(found, links.Links)
        fan_out = np.bincount(found.senders, minlength=senders)
        wanted = routes_of([found_edges(found, fan_out)], senders)
        for name, a, b in zip(wanted._fields, mail.routes, wanted, strict=True):
            assert a.dtype == b.dtype and np.array_equal(a, b), name


def found_edges(found, fan_out):
    from archipel.simulate.instance import Edges

    return Edges(found.starts, found.senders, found.weights, fan_out)


MEMORY = """
import sys
from pathlib import Path
from archipel import Environment, Federation, PaoFed, Synthetic
from archipel.shard import WHOLE
from archipel.simulate.laid import rounds_of

def resident():
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line).split()[1])

federation = Federation(Synthetic(clients=1_000_000, features=20), PaoFed(), environment=Environment(availability=0.5))
federation.with_(problem=Synthetic(clients=1_000, features=20)).instance(1)
before = resident()
instance = federation.instance(1, federation.setup(1, shard=slice(0, 10_000) if sys.argv[1] == "part" else WHOLE))
rounds = rounds_of(instance, 16)
rounds.begin(0, 1)
print((resident() - before) / 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_a_shard_takes_no_memory_for_the_others():
    whole, part = (
        float(subprocess.run([sys.executable, "-c", MEMORY, name], capture_output=True, check=True).stdout)
        for name in ("whole", "part")
    )
    assert whole > 60 and part < whole / 10, (whole, part)  # MB: a hundredth of the clients
