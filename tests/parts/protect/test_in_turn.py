"""Noise of a server that cancels in the sum of rounds: who is asked when, what it costs (brute force), what it buys."""

import itertools
import math

import numpy as np
import pytest
from scipy.linalg import toeplitz

from archipel import Environment, Federation, Linear, Peers, Servers
from archipel.algorithms.fedavg import FedAvg
from archipel.auditing import examine
from archipel.errors import BadInput
from archipel.node import Moment, mapped
from archipel.parts.mix.mean import Sums
from archipel.parts.protect import in_turn
from archipel.parts.protect.in_turn import InTurn
from archipel.parts.protect.mix import AtMix
from archipel.privacy import correlated as correlation
from archipel.privacy.accounting import record
from archipel.privacy.correlated import strategy
from archipel.privacy.personal import release_of
from archipel.privacy.policy import Privacy
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_algorithm
from archipel.topology import Star

DELTA, STAR = 1e-5, Star()


def federation(protect=None, clients=12, size=3, rounds=10, asked=1.0, step=0.05, topology=STAR, **policy):
    private = {"epsilon": 4.0, "unit": "client", "relation": "add-remove", "delta": DELTA, "clip": 0.5} | policy
    algorithm = FedAvg(step=step, asked=asked, protect=protect or InTurn(every=4))
    return Federation(
        Linear(clients=clients, size=size, samples=8), algorithm, topology,
        privacy=Privacy(**private), rounds=rounds, every=rounds, engine="plain",
    )  # fmt: skip


def dense(rounds, bands):
    """C."""
    column = np.concatenate([[1.0], strategy(rounds, "banded", bands).settings.weight, np.zeros(rounds)])[:rounds]
    return np.tril(toeplitz(np.where(np.arange(rounds) < bands, column, 0.0)))


@pytest.mark.parametrize(("rounds", "every", "bands"), [(10, 3, 3), (9, 4, 2), (7, 7, 7), (5, 1, 1), (9, 2, 2)])
def test_a_client_pays_for_the_worst_rounds_and_changes(rounds, every, bands):
    """All rounds that a client may be in, in each a change this way, that way or none: how far C x moves."""
    made = federation(InTurn(every=every, bands=bands), rounds=rounds)
    plan = made.instance().plan
    worst = 0.0
    for first in range(every):
        for signs in itertools.product((-1.0, 0.0, 1.0), repeat=len(range(first, rounds, every))):
            moved = np.zeros(rounds)
            moved[first::every] = signs
            worst = max(worst, np.linalg.norm(dense(rounds, bands) @ moved))
    mu = 0.5 * worst / plan.tables["server"].protect.noise[0, 0]
    exact = record(release_of(mu, 1.0, "add-remove")).epsilon(DELTA).epsilon
    said = plan.accountant.forecast().epsilon.max()
    assert 0.9 * said < exact <= said * (1 + 1e-9) and said == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize("topology", [STAR, Servers(servers=3, shape="ring")], ids=["star", "servers"])
def test_everyone_is_asked_in_its_turn_and_in_secret_then(topology):
    made = federation(rounds=12, clients=24, asked=0.7, topology=topology)
    instance = made.instance()
    engine, times = PlainEngine(instance), np.zeros((12, 24))
    for n in range(12):
        before = instance.plan.tables["client"].before.copy()
        engine.advance(n, n + 1)
        spoke = (instance.plan.tables["client"].before != before).any(1)
        times[n, spoke] = 1
    turns = np.arange(12)[:, None] % 4 == np.arange(24) % 4
    assert not times[~turns].any() and 0.4 < times[1:][turns[1:]].mean() < 0.95


def test_a_models_noise_is_that_of_the_matrices(monkeypatch):
    """Clients that hardly learn: the server's model is A C^-1 z over how many it expected, and cycles are paid for."""
    drawn = []

    def draw(values, law, scale, key):
        drawn.append(scale * np.random.default_rng(len(drawn)).normal(size=len(values)))
        values += drawn[-1].astype(values.dtype)

    monkeypatch.setattr(correlation, "disturb", draw)
    instance = federation(InTurn(every=4, bands=3), step=1e-15).instance()
    start = instance.plan.tables["server"].model[0].copy()
    PlainEngine(instance).advance(0, 10)
    added = np.linalg.solve(dense(10, 3), np.array(drawn))
    account = instance.plan.tables["server"].protect
    assert np.allclose(instance.plan.tables["server"].model[0] - start, added.sum(0) / 3, rtol=1e-6, atol=1e-12)
    assert account.releases[0, 0] == 3 and instance.plan.accountant.paid(instance.plan.tables).epsilon[0] <= 4.0


def row_of(made):
    instance = made.instance()
    return mapped(lambda array: array[0].copy(), instance.plan.tables["server"]), instance.plan.settings


def played(rounds, noise_sum):
    me, settings = row_of(federation(InTurn(every=4), size=5, rounds=12))
    for n in rounds:
        inbox = Sums(np.zeros(5), np.zeros(1))
        assert noise_sum(inbox, me, settings, Moment(0, n, 77 + n, -1, 1, True, 1.0))
        yield inbox.total, me


def test_rounds_that_were_left_out_stand_in_the_matrix_all_the_same(monkeypatch):
    """Else two rounds of a client would be nearer than `every`: C times what was added is the draws."""
    monkeypatch.setattr(correlation, "disturb", lambda values, law, scale, key: np.add(values, key - 76, out=values))
    added, rounds = np.zeros((12, 5)), [0, 1, 2, 5, 6, 11]
    for n, (total, _) in zip(rounds, played(rounds, in_turn.noise_sum)):
        added[n] = total
    found = dense(12, 4) @ added
    assert all(np.allclose(found[n], n + 1) for n in rounds)


def test_many_parameters_are_noised_alike(monkeypatch):
    """By the thousand as one by one, given the same draws."""
    monkeypatch.setattr(correlation, "disturb", lambda values, law, scale, key: np.add(values, scale * key, out=values))
    monkeypatch.setattr(in_turn, "add_gaussian", lambda values, scale, key, _: np.add(values, scale * key, out=values))
    rounds = [0, 1, 2, 3, 6, 7, 8, 9]
    for (one, first), (other, second) in zip(played(rounds, in_turn.noise_sum), played(rounds, in_turn.noise_long_sum)):
        assert np.allclose(one, other) and np.allclose(first.protect.past.noise, second.protect.past.noise)


def test_asked_in_secret_a_turn_costs_less():
    """The accountant's own: so many sampled Gaussians."""
    made = federation(InTurn(every=2), asked=0.3, rounds=20, epsilon=2.0)
    plan = made.instance().plan
    mu = 0.5 * strategy(20, "banded", 2).sensitivity / plan.tables["server"].protect.noise[0, 0]
    exact = (record(release_of(mu, 0.3, "add-remove")) * 10).epsilon(DELTA).epsilon
    assert exact <= 2.0 * (1 + 1e-6) and exact == pytest.approx(2.0, rel=2e-3)


def test_the_audit_agrees_with_the_ledger():
    verdict = examine(federation(InTurn(every=8), rounds=4, epsilon=8.0), releases=200, engine="plain", rounds=3)[0]
    assert verdict.guarantee == "enforced" and 0.1 * verdict.claimed < verdict.found <= verdict.claimed <= 8.0


@pytest.mark.long
def test_it_is_the_same_when_compiled_and_the_audit_comes_near():
    check_algorithm(federation(clients=5, rounds=8).with_(engine="auto", environment=Environment(availability=0.8)))
    verdicts = (examine(federation(p, rounds=4), releases=20_000, rounds=4) for p in (InTurn(every=2), AtMix()))
    for verdict in itertools.chain(*verdicts):  # of independent noise too, whose accounts are the server's as well
        assert (0.6 if verdict.pair == "worst case" else 0.0) * verdict.claimed <= verdict.found <= verdict.claimed


@pytest.mark.long
def test_where_it_is_no_secret_who_is_asked_the_error_is_much_smaller():
    """500 clients, 25 a round, 200 rounds, 100 parameters, the best of two steps: independent noise, and four bands."""

    def error(bands, epsilon):
        made = federation(InTurn(every=20, bands=bands), 500, 100, 200, clip=0.1, epsilon=epsilon).with_(engine="auto")
        return min(
            made.with_(algorithm=FedAvg(step=s, protect=InTurn(every=20, bands=bands))).run(2).final("mse")
            for s in (0.4, 0.1)
        )

    assert error(4, 8.0) < 0.8 * error(1, 8.0) and error(10, 2.0) < 0.2 * error(1, 2.0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mechanism": "laplace"}, "where noise is correlated"),
        ({"schedule": "geometric", "zeta": 0.9}, "where noise is correlated"),
        ({"epsilon": None, "noise": 1.0}, "where noise is correlated"),
        ({"protect": InTurn(every=13)}, "as many as a server has"),
        ({"protect": InTurn(every=4, bands=5)}, "at most every = 4"),
        ({"topology": Peers(shape="ring")}, "nobody is trusted"),
        ({"unit": "sample"}, "as a whole"),
    ],
)
def test_it_is_refused_where_it_does_not_hold(change, sentence):
    with pytest.raises(BadInput, match=sentence):
        federation(**change).instance()


def test_without_bands_and_turns_it_is_noise_at_the_mix():
    one, other = federation(InTurn(every=1)), federation(AtMix())
    assert np.allclose(one.run().models[0]["server"], other.run().models[0]["server"])
    assert math.isclose(*(f.instance().plan.tables["server"].protect.noise[0, 0] for f in (one, other)))
