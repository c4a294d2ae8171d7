"""Whoever adds noise for privacy on a real device draws it from a secure source, never from the published seed."""

import pytest
from harness import Village
from test_replay import STORED, TABLE

from archipel import Federation
from archipel.algorithms.deep import DpFedAvgDeep
from archipel.deploy.real import RealWorld
from archipel.deploy.torture.simulation import Door
from archipel.draws import SELECTED, key_of
from archipel.generators import secret_coin
from archipel.privacy import noise
from archipel.privacy.noise import secure_noise

CENTRAL = Federation(STORED, DpFedAvgDeep(batch=10, asked=0.9), rounds=3)
PRIVATE = {name: TABLE[name] for name in ("zcdp-nfl", "mirror-descent", "pldp-fl")} | {"dp-fedavg-deep": CENTRAL}


@pytest.fixture
def asked(monkeypatch):
    """How often a node asked its world for secure noise."""
    calls = []
    monkeypatch.setattr(Door, "secure_noise", lambda self: calls.append(1))
    return calls


def test_the_real_world_has_a_secure_source(monkeypatch):
    calls = []
    monkeypatch.setattr(noise, "use_secure_noise", lambda: calls.append(1))
    RealWorld.secure_noise(None)
    assert calls == [1]


@pytest.mark.parametrize("name", PRIVATE)
def test_every_node_that_adds_noise_asks_for_a_secure_source(name, asked):
    village = Village(PRIVATE[name], pace="quorum")
    village.until(lambda: all(village.nodes.values()))
    noisy = [node for node in village.nodes.values() if node.account.private]
    role = "server" if name == "dp-fedavg-deep" else village.nodes[village.roster.members[-1].name].view.data_role
    assert {node.view.member.role for node in noisy} == {role} and len(asked) == len(noisy)
    for node in noisy:
        assert "enforced" in {held.how for held in ledger_of(node).terms.assumptions if "in secret, not" in held.what}


def ledger_of(node):
    return getattr(node.account, "ledger", None) or node.account.own


def test_a_trusted_server_keeps_the_ledger_of_all_its_clients():
    village = Village(CENTRAL)
    village.run()
    (server,) = [node for node in village.nodes.values() if node.account.private]
    assert server.view.member.role == "server" and ledger_of(server).history().releases == 3


def test_who_is_asked_is_secret_where_noise_is():
    pytest.importorskip("opendp")
    keys = [key_of(1, k, 0) for k in range(64)]
    known = [secret_coin(0.5, key, SELECTED) for key in keys]
    assert known == [secret_coin(0.5, key, SELECTED) for key in keys] and 10 < sum(known) < 54
    with secure_noise():
        assert known != [secret_coin(0.5, key, SELECTED) for key in keys]
