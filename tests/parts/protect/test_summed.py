"""Noise that is summed, as a part: the noise of one, the sum of integers, what it costs, who is too few."""

import math

import numba
import numpy as np
import pytest

from archipel import Environment, Federation, Peers, Servers
from archipel.algorithms.fedavg import FedAvg
from archipel.auditing import examine
from archipel.errors import BadInput
from archipel.node import Edge, Moment, emptied, mapped, row
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
    words = {AtMix: 1, AtWord: 100, Summed: 100 / 99}[type(protect)]
    return math.sqrt(words) * account.noise[0, 0], 100 * float(np.std(made.run().models[0]["server"]))


def test_at_epsilon_one_a_hundred_clients_have_the_noise_of_one():
    """Within a hundredth of a trusted server's where a third may drop and nobody does; local noise has ten times it."""
    central, third, local = map(sum_noise, (AtMix(), Summed(), AtWord()))
    for said, found in (central, third, local):
        assert found == pytest.approx(said, rel=3.7 / math.sqrt(900))
    assert third[0] / central[0] < 1.01 and local[0] / central[0] > 9.9


def said_noise(terms, central, words):
    """The deviation of the noise in a sum of so many words, of a trusted server's, as settings say it."""
    stays = (terms.share * central) ** 2 + sum(terms.excess[terms.below > words] ** 2)
    return math.sqrt(words * stays) * terms.step / central


def test_with_fewer_words_more_of_the_noise_stays():
    """8 of 12 are heard: against the deviation that is found."""
    instance = federation(clients=12, size=400, rounds=1, step=1e-12, clip=1.0).with_(seed=3).instance()
    engine, terms = engine_for(instance, "plain"), instance.plan.settings
    engine.advance(0, 1)
    mail, turn, inbox = engine.rounds.mails[1], instance.plan.turns[1], emptied(instance.plan.turns[1].inbox)
    for k in range(8):
        turn.hear(inbox, row(mail.words, k), terms, Edge(k, 1.0, 0, 0, k))
    server = mapped(lambda array: 0 * array[0], instance.plan.tables["server"])
    turn.merge(server, inbox, terms, Moment(0, 0, 0, -1, 1, True, 1.0))
    central = instance.plan.tables["client"].protect.noise[0, 0]
    said = said_noise(terms.protect, central, 8)
    assert 8 * np.std(server.model) / central == pytest.approx(said, rel=3.7 / math.sqrt(800))
    assert said == pytest.approx(math.sqrt(8 * (1 - 4 / 11) / 3)) and said > 1.24 * said_noise(
        terms.protect, central, 12
    )


@pytest.mark.parametrize(
    ("protect", "most"),
    [
        (Summed(), {100: 1.006, 95: 1.03, 90: 1.07, 80: 1.11, 66: 1.19}),
        (Summed(dropping=0.15), {100: 1.006, 85: 1.03}),
        (Summed(lying=False), {100: 1.006, 80: 1.04, 66: 1.01}),
        (Summed(known=0.1), {100: 1.055, 90: 1.15}),
    ],
)
def test_of_a_hundred_clients(protect, most):
    """The noise in sums of so many, of a trusted server's: what docs/privacy.md has."""
    plan = federation(protect, clients=100, size=200, rounds=1, clip=1.0).instance().plan
    central = plan.tables["client"].protect.noise[0, 0]
    for words, limit in most.items():
        assert limit - 0.03 < said_noise(plan.settings.protect, central, words) < limit
    assert plan.masks.weight + 13 < 2.2 * 800


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
    away = Environment(availability=0.8)  # so that excess noise stays in some sums
    check_algorithm(federation(clients=5, rounds=6, environment=away).with_(engine="auto"))


def test_the_ledger_is_a_gaussians_and_rounding_is_in_it():
    """What the noise of those who are needed guarantees, from the integers alone: a discrete Gaussian's zCDP."""
    made = federation(rounds=10)
    instance, result = made.instance(), made.run()
    terms, noise = instance.plan.settings.protect, instance.plan.tables["client"].protect.noise[0, 0]
    shares = np.append(terms.share * noise, terms.excess) ** 2  # in steps
    # a server that lies has 4 of 8 words, and the noise of one more, from those who think that all 12 are in the sum
    variance = 4 * shares[0] + (8 - 4 - 1) * shares.sum()
    moved = 2 * (terms.clip / terms.step + math.sqrt(4) / 2)  # in steps, by replacing a client
    exact = 10 * moved**2 / (2 * variance)
    node = result.ledger()["seeds"][0]["nodes"][0]
    assert exact <= node["spent"]["rho"] <= 1.003 * exact
    assert node["spent"]["epsilon"] == pytest.approx(EPSILON, rel=1e-3) and node["spent"]["epsilon"] <= EPSILON
    mu = moved / math.sqrt(variance)
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
        ({"protect": Summed(bits=16), "epsilon": 0.05, "rounds": 20}, "not close"),  # 6e-5, where 5.5e-5 are covered
        ({"protect": Summed(dropping=0.5, colluding=0.5)}, "could collude"),
        ({"protect": Summed(known=0.67)}, "is not counted"),
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
