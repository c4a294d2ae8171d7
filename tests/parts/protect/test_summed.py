"""Noise that is summed, as a part: the noise of one, the sum of integers, what it costs, who is too few."""

import math

import numba
import numpy as np
import pytest

from archipel import Environment, Federation, Peers, Servers
from archipel.algorithms.fedavg import FedAvg
from archipel.auditing import examine
from archipel.errors import BadInput
from archipel.parts.mix.mean import Mean
from archipel.parts.protect.mix import AtMix
from archipel.parts.protect.summed import Summed, quantise, unwrap, wrap
from archipel.parts.protect.word import AtWord
from archipel.parts.share.whole import Whole
from archipel.privacy.accounting import record
from archipel.privacy.policy import Privacy
from archipel.privacy.releases import Gaussian
from archipel.problems.linear import Linear
from archipel.simulate.compile import enable
from archipel.simulate.engine import engine_for
from archipel.testing import check_algorithm

EPSILON, DELTA = 1.0, 1e-5


def federation(protect=None, clients=12, size=4, rounds=6, step=0.05, environment=None, clip=0.5, **policy):
    policy = {"epsilon": EPSILON, "unit": "client", "delta": DELTA} | policy
    algorithm = FedAvg(
        step=step, epochs=1, protect=protect or Summed(), share=Whole(change=True), mix=Mean(0)
    )  # fmt: skip
    return Federation(
        Linear(clients=clients, size=size, samples=8), algorithm, environment=environment or Environment(),
        privacy=Privacy(clip=clip, **policy), rounds=rounds, every=rounds, engine="plain",
    )  # fmt: skip


def sum_noise(protect):
    """The deviation of the noise in a sum of 100 clients, as it is said, and as found without learning."""
    made = federation(protect, clients=100, size=450, rounds=1, step=1e-12, clip=1.0).with_(seed=2)
    tables = made.instance().plan.tables
    account = tables["server" if isinstance(protect, AtMix) else "client"].protect
    words = {AtMix: 1, AtWord: 100, Summed: 100 / getattr(made.instance().plan.masks, "needed", 1)}[type(protect)]
    return math.sqrt(words) * account.noise[0, 0], 100 * float(np.std(made.run().models[0]["server"]))


def test_at_epsilon_one_a_hundred_clients_have_the_noise_of_one():
    """Within a tenth of a trusted server's, if 15 may drop; local noise has ten times as much."""
    central, summed, third, local = map(sum_noise, (AtMix(), Summed(dropping=0.15), Summed(), AtWord()))
    for said, found in (central, summed, third, local):
        assert found == pytest.approx(said, rel=3.7 / math.sqrt(900))
    assert summed[0] / central[0] < 1.1 < third[0] / central[0] < 1.24 and local[0] / central[0] > 9.9


def test_the_server_steps_by_the_sum_of_integers():
    """Against words on the wire, added up as Python's integers; in a replay of masks the sum is the same."""
    instance = federation().instance()
    engine, terms = engine_for(instance, "plain"), instance.plan.settings.protect
    before = instance.plan.tables["server"].model[0].copy()
    engine.advance(0, 1)
    words = engine.rounds.mails[1].words.values
    assert words.min() >= 0 and words.max() < terms.prime
    total = np.array([sum(column) % terms.prime for column in words.T.tolist()])
    total = np.where(total > terms.prime // 2, total - terms.prime, total) * terms.step
    model = instance.plan.tables["server"].model[0]
    assert np.allclose(model, before + total / 12, rtol=1e-12 if model.dtype == float else 1e-5)


def test_with_masks_the_sum_is_the_same_to_the_bit():
    from archipel.privacy.coding import unmasked
    from archipel.privacy.secure_aggregation import Masker, public

    instance = federation().instance()
    engine_for(instance, "plain")
    engine, code = engine_for(instance, "plain"), instance.plan.masks
    engine.advance(0, 1)
    words = engine.rounds.mails[1].words.values
    secrets = [bytes([k + 1]) * 32 for k in range(12)]
    clients = [Masker(code, k, s, [public(s) for s in secrets]) for k, s in enumerate(secrets)]
    said = [clients[k].mask(words[k], 0) for k in range(12)]
    answers = {k: clients[k].answer(range(12), 0) for k in range(12)}
    found, wrong = unmasked(code, sum(w for w, _ in said), sum(f for _, f in said), answers)
    assert not wrong and np.array_equal(found, words.sum(0) % code.prime)


def test_words_are_the_same_when_compiled():
    enable()

    @numba.njit
    def compiled(out, model, before, total, prime):
        quantise(out, model, before, 0.5, 1e-4)
        wrap(out, prime)
        unwrap(total, out, prime, 1e-4)

    model, before = np.random.default_rng(0).normal(size=(2, 50))
    for start in (before, 0.99 * model, np.full(50, np.nan)):
        found = [(np.zeros(50, np.int64), np.zeros(50)) for _ in range(2)]
        compiled(found[0][0], model, start, found[0][1], 65521)
        compiled.py_func(found[1][0], model, start, found[1][1], 65521)
        assert all(np.array_equal(a, b) for a, b in zip(*found))
        change = model - start
        clipped = change * min(1.0, 0.5 / np.linalg.norm(change)) if np.isfinite(change).all() else 0 * model
        assert np.abs(found[0][1] - clipped).max() <= 0.5e-4 + 1e-12


@pytest.mark.long
def test_it_is_the_same_when_compiled():
    check_algorithm(federation(clients=4, rounds=4).with_(engine="auto"))


def test_the_ledger_is_a_gaussians_and_rounding_is_in_it():
    """What the noise of those who are needed guarantees, from the integers alone: a discrete Gaussian's zCDP."""
    made = federation(rounds=10)
    instance, result = made.instance(), made.run()
    terms, noise = instance.plan.settings.protect, instance.plan.tables["client"].protect.noise[0, 0]
    deviation = terms.share * noise  # of a share, in steps
    moved = 2 * (terms.clip / terms.step + math.sqrt(4) / 2)  # in steps, by replacing a client
    exact = 10 * moved**2 / (2 * terms.needed * deviation**2)
    node = result.ledger()["seeds"][0]["nodes"][0]
    assert exact <= node["spent"]["rho"] <= 1.003 * exact
    assert node["spent"]["epsilon"] == pytest.approx(EPSILON, rel=1e-3) and node["spent"]["epsilon"] <= EPSILON
    mu = moved / (math.sqrt(terms.needed) * deviation)
    assert record(*[Gaussian(mu)] * 10).epsilon(DELTA).epsilon <= EPSILON


def test_a_sum_of_too_few_is_given_up():
    """With half away in a round: fewer than 8 of 12 words move nothing."""
    made = federation(environment=Environment(availability=0.6), rounds=1)
    counts = []
    for seed in range(12):
        instance = made.with_(seed=seed).instance()
        before = instance.plan.tables["server"].model[0].copy()
        engine = engine_for(instance, "plain")
        engine.advance(0, 1)
        counts.append(engine.messages[1])
        moved = not np.array_equal(before, instance.plan.tables["server"].model[0])
        assert moved == (engine.messages[1] >= 8)
    assert min(counts) < 8 <= max(counts)


def test_audits_agree_with_the_ledger():
    found = examine(federation(Summed(dropping=0.0), rounds=2, epsilon=8.0), releases=800, engine="plain", rounds=1)
    assert all(not verdict.refuted and verdict.guarantee == "enforced" for verdict in found)
    assert found[0].found > 0.2 * found[0].claimed


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mechanism": "laplace"}, "do not add up"),
        ({"relation": "add-remove"}, "not hidden"),
        ({"clip": math.inf}, "integers have ends"),
        ({"epsilon": tuple(1.0 + k for k in range(12))}, "share the noise"),
        ({"protect": Summed(bits=16), "size": 400, "epsilon": 200.0}, "no room|not close"),
        ({"protect": Summed(dropping=0.5, colluding=0.5)}, "could collude"),
        ({"clients": 1}, "hides nothing"),
    ],
)
def test_it_is_refused_where_it_does_not_hold(change, sentence):
    with pytest.raises(BadInput, match=sentence):
        federation(**change).instance()


@pytest.mark.parametrize(
    ("topology", "sentence"),
    [(Peers(shape="ring"), "nobody sums"), (Servers(servers=5, shape="ring"), "share equally")],
)
def test_other_topologies_say_why(topology, sentence):
    with pytest.raises(BadInput, match=sentence):
        federation().with_(topology=topology).instance()


def test_without_noise_it_is_a_sum_all_the_same():
    made = federation(epsilon=None, noise=0.0)
    openly = federation(AtMix(), epsilon=None, noise=0.0)
    assert np.allclose(made.run().models[0]["server"], openly.run().models[0]["server"], atol=1e-5)
