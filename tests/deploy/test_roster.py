"""Nodes whose descriptions differ in what matters do not talk; what is a node's own may differ."""

import re
from dataclasses import replace

import pytest
from harness import Village
from test_replay import TABLE

from archipel import Environment, Federation, PaoFed, Synthetic
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.deploy.roster import roster_of
from archipel.deploy.view import view_of
from archipel.deployment import Deployment
from archipel.privacy.policy import Privacy
from archipel.problems.networked import Regression
from archipel.topology import Digraph, Peers

STREAM = Synthetic(clients=2, features=8, test=5, samples=(6,), horizon=6)
STAR = Federation(STREAM, PaoFed(step=0.2), rounds=6)
PRIVATE = Privacy(epsilon=2.0, clip=1.0)
PEERS = Federation(Regression(clients=4), ZcdpNfl(), Peers(shape="ring"), privacy=PRIVATE, rounds=3)
DIGRAPH = TABLE["mirror-fading"].with_(topology=Digraph())


def digest(federation):
    instance = federation.instance()
    return view_of(federation, roster_of(instance).members[0].name, instance).digest


def paced(federation, **deploy):
    return federation.with_(deploy=Deployment(**deploy))


@pytest.mark.parametrize(
    ("federation", "other"),
    [
        (STAR, STAR.with_(problem=replace(STREAM, width=0.5))),
        (STAR, STAR.with_(seed=2)),
        (STAR, paced(STAR, pace="clock")),
        (paced(STAR, pace="clock"), paced(STAR, pace="clock", period=2.0)),
        (paced(STAR, pace="replay"), paced(STAR.with_(environment=Environment(availability=(0.5,))), pace="replay")),
        (PEERS, PEERS.with_(privacy=replace(PRIVATE, clip=2.0))),
        (PEERS, PEERS.with_(privacy=None)),
        (DIGRAPH, DIGRAPH.with_(topology=Digraph(shares="random"))),
    ],
    ids=["features", "seed", "pace", "period", "conditions of a replay", "clip", "no privacy", "weights"],
)
def test_what_all_must_agree_on(federation, other):
    assert digest(federation) != digest(other)


@pytest.mark.parametrize(
    ("federation", "other"),
    [
        (STAR, paced(STAR, addresses={"server": "127.0.0.1:7447"}, keys="k", state="s", data="mine.csv", patience=9.0)),
        (STAR, STAR.with_(every=3)),
        (STAR, STAR.with_(environment=Environment(availability=(0.5,)))),
        (PEERS, PEERS.with_(privacy=replace(PRIVATE, epsilon=(1.0, 2.0, 3.0, 4.0)))),
    ],
    ids=["addresses and folders", "measurements", "conditions that reality plays", "budget"],
)
def test_what_is_a_nodes_own(federation, other):
    assert digest(federation) == digest(other)


def test_data_may_lie_elsewhere(tmp_path):
    found = []
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        for name in ("a", "b"):
            (tmp_path / folder / f"{name}.csv").write_text("x,y\n" + "".join(f"{i},{2 * i}\n" for i in range(10)))
        table = {"problem": {"kind": "files", "data": str(tmp_path / folder)}, "algorithm": {"kind": "online-fed"}}
        found.append(view_of(Federation.from_table(table), "server").digest)
    assert found[0] == found[1]


def test_another_description_is_what_the_last_words_say():
    village = Village(STAR, pace="quorum")
    village.kill("client-0")
    village.hosts["client-0"].disk.put({})
    village.world.federation = village.federation.with_(problem=replace(STREAM, width=0.5))
    village.world.instance = village.world.federation.instance()
    village.start("client-0")
    village.until(lambda: village.hosts["client-0"].sentence)
    said = r"client-0: server runs another description\. All nodes need the same"
    assert re.search(said, village.hosts["client-0"].sentence)
