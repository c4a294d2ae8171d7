"""Whoever adds noise for privacy on a real device draws it from a secure source, never from the published seed."""

from functools import cache
from itertools import product

import pytest
from harness import Village
from test_replay import STORED, TABLE

from archipel import Federation, Linear, Synthetic
from archipel.algorithms.deep import DpFedAvgDeep
from archipel.deploy import wire
from archipel.deploy.real import RealWorld
from archipel.deploy.torture.noise import SeededSource
from archipel.deploy.torture.simulation import Door
from archipel.draws import SELECTED, key_of
from archipel.errors import BadInput
from archipel.privacy import noise
from archipel.privacy.noise import SecureSource, noise_from, secret_uniform
from archipel.privacy.policy import Bounds, Privacy
from archipel.problems.clustered import Related
from archipel.problems.networked import Regression
from archipel.registry import ALGORITHMS
from archipel.topology import Digraph, Peers, Servers, Star

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
    known = [secret_uniform(key, SELECTED) < 0.5 for key in keys]
    assert known == [secret_uniform(key, SELECTED) < 0.5 for key in keys] and 10 < sum(known) < 54
    with noise_from(SecureSource()):
        assert known != [secret_uniform(key, SELECTED) < 0.5 for key in keys]


# --- every kind -------------------------------------------------------------------------------------------------------

PROBLEMS = (
    Synthetic(clients=4, features=6, test=5, samples=(8,), horizon=8),
    Linear(clients=4, size=4, samples=12, test=5),
    Regression(clients=4),
    Related(clients=6, tasks=2, size=4, samples=(4, 6), test=5),
)
TOPOLOGIES = {
    "star": Star(),
    "servers": Servers(servers=2, shape="ring"),
    "peers": Peers(shape="ring"),
    "digraph": Digraph(),
}
POLICIES = (None, Privacy(epsilon=4.0, clip=1.0), Privacy(epsilon=4.0, bounds=Bounds(2.0, 3.0, 4.0)))
SMALL = {"pldp-fl": {"batch": 4, "draws": 4}, "mirror-deep": {"batch": 4}, "dp-fedavg-deep": {"batch": 4, "asked": 0.9}}


@cache
def private_form(kind, topology):
    """A small federation of a kind that pays for what it says; None where there is none."""
    for policy, problem in product(POLICIES, PROBLEMS):
        try:
            algorithm = ALGORITHMS[kind](**SMALL.get(kind, {}))
            made = Federation(problem, algorithm, TOPOLOGIES[topology], privacy=policy, rounds=6)
            if made.instance().plan.accountant is not None:
                return made
        except (BadInput, TypeError):
            continue
    return None


def forms_of(kind):
    """By topology."""
    found = {topology: private_form(kind, topology) for topology in TOPOLOGIES}
    return {topology: form for topology, form in found.items() if form is not None}


def said_by_payers(federation, secret):
    """All words of those who pay, by sender, receiver, turn and round, where what is secret comes from a seed."""
    village = Village(federation, pace="quorum")
    village.world.secret = SeededSource(secret)
    village.run()
    role = federation.instance().plan.accountant.role
    payers = set(village.roster.names[role])
    words = {}
    for sender, to, data in village.seen.sent:
        if sender in payers and data[0] & 15 in (wire.WORD, wire.TOLD):
            words[sender, to, data[1] & 0x7F, int.from_bytes(data[8:12], "little")] = data[12:]
    return words


def test_every_kind_that_pays_has_a_form_here():
    assert {kind for kind in ALGORITHMS if forms_of(kind)} >= {
        "pao-fed", "online-fed", "pldp-fl", "zcdp-nfl", "dp-nfl", "zcdp-grad-nfl", "p-admm", "npfl-rl",
        "mirror-descent", "dual-averaging", "dp-fedavg", "mirror-deep", "dp-fedavg-deep",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_no_word_that_is_paid_for_can_be_foretold(kind):
    """With the same description and the same published seed, other secrets make every noised word another one."""
    for topology, form in forms_of(kind).items():
        first, second = said_by_payers(form, 1), said_by_payers(form, 2)
        central = form.instance().plan.accountant.role == "server"
        both = [key for key in first.keys() & second.keys() if key[-1] >= (2 if central else 0)]
        assert both, f"nothing was said on {topology}"
        same = [key for key in both if first[key] == second[key]]
        assert not same, (topology, same[:5])
