"""PAO-Fed and Online-Fed with a [privacy] table: noise enters with the sample, and each sample pays once."""

import math

import numpy as np
import pytest

from archipel import Delay, Environment, Federation, Linear, OnlineFed, PaoFed, Synthetic
from archipel.algorithms.noised import clipped
from archipel.errors import BadInput
from archipel.privacy.accounting import record
from archipel.privacy.policy import Privacy
from archipel.privacy.releases import Gaussian, Laplace

STREAM = Synthetic(clients=12, features=16, test=20, horizon=40, samples=(10, 20, 30, 40))
ROUGH = Environment(availability=(0.6, 0.3, 0.1, 1.0), stride=2, delay=Delay(delta=0.5, limit=4))


def federation(algorithm=None, privacy=None, rounds=40, **parts):
    parts = {"environment": ROUGH, "engine": "plain"} | parts
    return Federation(STREAM, algorithm or PaoFed(limit=4), privacy=privacy, rounds=rounds, **parts)


def played(described):
    stage = described.stage()
    described.engine_of(stage).advance(0, described.rounds)
    return stage


@pytest.mark.parametrize("algorithm", [PaoFed(limit=4), PaoFed(variant="U1", portion=3), OnlineFed(limit=4)])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_zero_noise_and_no_bounds_are_the_plain_algorithm(algorithm, precision):
    plain, free = (
        federation(algorithm, privacy, precision=precision).run().models[0] for privacy in (None, Privacy(noise=0.0))
    )
    for name in plain:
        assert np.abs(plain[name] - free[name]).max() <= 1e-12


def test_a_sample_pays_once_and_a_client_for_all():
    sample, client = (
        played(federation(privacy=Privacy(noise=2.0, clip=0.5, unit=unit))) for unit in ("sample", "client")
    )
    mu = 2 * 0.4 * 0.5 / 2.0
    updates = sample.plan.tables["client"].releases[:, 0]
    assert updates.tolist() == [10, 20, 30, 40] * 3  # also while away
    paid = sample.plan.purse.paid(sample.plan.tables)
    assert paid.epsilon == pytest.approx(np.full(12, record(Gaussian(mu)).epsilon(1e-5).epsilon))
    paid = client.plan.purse.paid(client.plan.tables)
    expected = [(record(Gaussian(mu)) * int(n)).epsilon(1e-5).epsilon for n in updates]
    assert paid.epsilon == pytest.approx(expected, rel=1e-6)


def test_noise_enters_every_update_also_of_those_who_are_away():
    """The models of clients that never talk: their updates are noised all the same, as was paid for."""
    described = federation(
        privacy=Privacy(noise=3.0, clip=0.1), environment=Environment(availability=0.0), precision="float64"
    )
    stage = described.stage()
    engine, models = described.engine_of(stage), [np.zeros((12, 16))]
    for n in range(40):
        engine.advance(n, n + 1)
        models.append(stage.plan.tables["client"].model.copy())
    steps = np.diff(models, axis=0)
    moved = np.abs(steps).max(2) > 0
    assert moved.sum() == 3 * (10 + 20 + 30 + 40)
    values = steps[moved].ravel()
    assert values.std() == pytest.approx(3.0, rel=4 / math.sqrt(2 * values.size))


@pytest.mark.parametrize(("mechanism", "order"), [("gaussian", 2), ("laplace", 1)])
def test_no_update_is_longer_than_the_clip(mechanism, order):
    """With noise so small that it does not matter, an update is at most step * clip."""
    privacy = Privacy(noise=1e-9, clip=0.05, mechanism=mechanism)
    described = federation(privacy=privacy, environment=Environment(availability=0.0), precision="float64")
    stage = described.stage()
    engine, longest, before = described.engine_of(stage), 0.0, np.zeros((12, 16))
    for n in range(40):
        engine.advance(n, n + 1)
        model = stage.plan.tables["client"].model.copy()
        longest = max(longest, float(np.linalg.norm(model - before, order, 1).max()))
        before = model
    assert 0.4 * 0.05 * 0.999 < longest <= 0.4 * 0.05 * (1 + 1e-6)


def test_clipping_takes_what_is_no_number_for_nothing():
    class Bounded:
        clip, norm = 1.0, 2

    assert clipped(np.float64(np.inf), np.ones(3), Bounded) == 0.0
    assert clipped(np.float64(np.nan), np.ones(3), Bounded) == 0.0
    assert clipped(np.float64(0.1), np.ones(3), Bounded) == 0.1


def test_who_has_spent_its_budget_neither_learns_nor_speaks():
    privacy = Privacy(noise=2.0, clip=0.5, epsilon=1.0, unit="client")
    described = federation(privacy=privacy, environment=Environment())
    stage = described.stage()
    engine = described.engine_of(stage)
    engine.advance(0, 35)
    table, messages = stage.plan.tables["client"], list(engine.messages)
    afforded = 0
    while (record(Gaussian(0.2)) * (afforded + 1)).epsilon(1e-5).epsilon <= 1.0:
        afforded += 1
    assert 0 < afforded < 10 and (table.releases[:, 0] == afforded).all()
    assert (stage.plan.purse.paid(stage.plan.tables).epsilon <= 1.0).all()
    engine.advance(35, 40)
    assert (table.releases[:, 0] == afforded).all() and engine.messages[1] == messages[1]


def test_laplace_noise_is_pure_epsilon_for_a_sample():
    stage = federation(privacy=Privacy(mechanism="laplace", epsilon=0.5, clip=1.0)).stage()
    assert stage.plan.purse.forecast().epsilon == pytest.approx(0.5, rel=1e-6)
    scale = stage.plan.tables["client"].noise[0, 0]
    assert record(Laplace(2 * 0.4 * 1.0 / scale)).epsilon(1e-5).epsilon <= 0.5


def test_more_privacy_costs_more_accuracy():
    problem, algorithm = Linear(clients=20, size=4, samples=100, noise=0.1), PaoFed(step=0.05, portion=2)
    parts = {"rounds": 100, "every": 100, "engine": "plain"}
    errors = [
        Federation(problem, algorithm, privacy=Privacy(epsilon=epsilon, clip=1.0), **parts).run().final("mse")
        for epsilon in (0.5, 2.0, 8.0)
    ]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize(
    ("privacy", "sentence"),
    [
        (Privacy(epsilon=1.0), "infinite sensitivity"),
        (Privacy(epsilon=1.0, clip=1.0, relation="add-remove"), "has news"),
    ],
)
def test_what_cannot_be_kept_is_refused(privacy, sentence):
    with pytest.raises(BadInput, match=sentence):
        federation(privacy=privacy).stage()
