"""PAO-Fed and Online-Fed with a [privacy] table: noise enters with the sample, and each sample pays once."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from archipel import Delay, Environment, Federation, Linear, OnlineFed, PaoFed, Synthetic
from archipel.algorithms.online import PsoFed
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.node import Moment, row
from archipel.parts import NONE, Node, Settings
from archipel.parts.learn.online import Steps, refining
from archipel.parts.protect import sample as at_sample
from archipel.parts.protect.sample import Private, bound
from archipel.privacy.account import accounts
from archipel.privacy.accounting import record
from archipel.privacy.noise import GAUSSIAN, disturb
from archipel.privacy.policy import Privacy
from archipel.privacy.releases import Gaussian, Laplace
from archipel.problems.stored import Seen
from archipel.simulate.plain import PlainEngine
from archipel.simulate.rounds import SILENT

STREAM = Synthetic(clients=12, features=16, test=20, horizon=40, samples=(10, 20, 30, 40))
ROUGH = Environment(availability=(0.6, 0.3, 0.1, 1.0), stride=2, delay=Delay(delta=0.5, limit=4))


def federation(algorithm=None, privacy=None, rounds=40, **parts):
    parts = {"environment": ROUGH, "engine": "plain"} | parts
    return Federation(STREAM, algorithm or PaoFed(limit=4), privacy=privacy, rounds=rounds, **parts)


def played(described):
    instance = described.instance()
    described.engine_of(instance).advance(0, described.rounds)
    return instance


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
    updates = sample.plan.tables["client"].protect.releases[:, 0]
    assert updates.tolist() == [10, 20, 30, 40] * 3  # also while away
    paid = sample.plan.accountant.paid(sample.plan.tables)
    assert paid.epsilon == pytest.approx(np.full(12, record(Gaussian(mu)).epsilon(1e-5).epsilon))
    paid = client.plan.accountant.paid(client.plan.tables)
    expected = [(record(Gaussian(mu)) * int(n)).epsilon(1e-5).epsilon for n in updates]
    assert paid.epsilon == pytest.approx(expected, rel=1e-6)


def test_noise_enters_every_update_also_of_those_who_are_away():
    """The models of clients that never talk: their updates are noised all the same, as was paid for."""
    described = federation(
        privacy=Privacy(noise=3.0, clip=0.1), environment=Environment(availability=0.0), precision="float64"
    )
    instance = described.instance()
    engine, models = described.engine_of(instance), [np.zeros((12, 16))]
    for n in range(40):
        engine.advance(n, n + 1)
        models.append(instance.plan.tables["client"].model.copy())
    steps = np.diff(models, axis=0)
    moved = np.abs(steps).max(2) > 0
    assert moved.sum() == 3 * (10 + 20 + 30 + 40)
    values = steps[moved].ravel()
    assert values.std() == pytest.approx(3.0, rel=4 / math.sqrt(2 * values.size))


# --- a sample is in one noised update, and nowhere else --------------------------------------------------------------

WHEN = 6  # the round of the sample that is replaced
SELDOM, ALWAYS = 3, 7  # whose it is: someone who is there in 3 rounds of 10, or in all of them


def transcript(described, who, sample, further, monkeypatch):
    """Everything that is said and kept, round by round, with one sample replaced and so much more noise upon it."""
    instance = described.instance()
    observe, moment_key = instance.task.observe, key_of(instance.seed, who, WHEN)

    def seen(source, empty, moment):
        fresh, data = observe(source, empty, moment)
        if (moment.node, moment.round) == (who, WHEN):
            data.features[:], data.target[0] = sample
        return fresh, data

    def shifted(values, law, scale, key):
        disturb(values, law, scale, key)
        if key == moment_key:
            values += further

    monkeypatch.setattr(at_sample, "disturb", shifted)
    engine, said = PlainEngine(instance._replace(task=instance.task._replace(observe=seen, ahead=None))), []
    for n in range(described.rounds):
        engine.advance(n, n + 1)
        mail = engine.rounds.mails[1]
        words = {k: [part[k].copy() for part in mail.words] for k in np.flatnonzero(mail.lates != SILENT).tolist()}
        said.append((words, instance.plan.tables["client"].model.copy(), instance.plan.tables["server"].model.copy()))
    return said


def alike(one, other):
    """The same words by the same clients, and the same models."""
    if one[0].keys() != other[0].keys():
        return False
    words = ((a, b) for k in one[0] for a, b in zip(one[0][k], other[0][k]))
    return all(np.allclose(a, b, atol=1e-10) for a, b in (*words, *zip(one[1:], other[1:])))


@pytest.mark.parametrize("unit", ["sample", "client"])
@pytest.mark.parametrize(
    ("algorithm", "who"),
    [
        (PaoFed(limit=4, portion=1), SELDOM),
        (PaoFed(limit=4, variant="U1", portion=3), SELDOM),
        (PaoFed(limit=4, variant="C0"), SELDOM),
        (PaoFed(limit=4, order="random", most_recent=False), SELDOM),
        (PaoFed(limit=4, download="full", ignore=5), ALWAYS),
        (PaoFed(limit=4, autonomous=False), ALWAYS),
        (PsoFed(limit=4, asked=0.8), ALWAYS),
        (OnlineFed(limit=4), ALWAYS),
    ],
    ids=["one parameter", "U1", "C0", "random order", "full download", "not alone", "PSO-Fed", "Online-Fed"],
)
def test_a_sample_is_in_one_noised_update_and_nowhere_else(algorithm, who, unit, monkeypatch):
    """With noise that differs by what the sample changed in its own update, at most `change`, nothing differs ever.

    Whatever was said up to then, and is said late, in part, by others or by the server afterwards, in a rough world.
    So the noise of that one update hides the sample everywhere: there is nothing else to charge.
    """
    described = federation(algorithm, Privacy(noise=0.5, clip=0.3, unit=unit), rounds=20, precision="float64")
    rng = np.random.default_rng(2)
    samples = [(rng.standard_normal(16), rng.standard_normal() * 5) for _ in range(2)]
    one, plain = (transcript(described, who, sample, 0.0, monkeypatch) for sample in samples)
    update = one[WHEN][1][who] - plain[WHEN][1][who]
    assert 0 < np.linalg.norm(update) <= 2 * 0.4 * 0.3
    assert all(alike(a, b) for a, b in zip(one[:WHEN], plain[:WHEN]))
    assert not all(alike(a, b) for a, b in zip(one[WHEN + 1 :], plain[WHEN + 1 :]))
    shifted = transcript(described, who, samples[1], update, monkeypatch)
    assert all(alike(a, b) for a, b in zip(one, shifted))


@pytest.mark.parametrize(("mechanism", "order"), [("gaussian", 2), ("laplace", 1)])
def test_no_update_is_longer_than_the_clip(mechanism, order):
    """With noise so small that it does not matter, an update is at most step * clip."""
    privacy = Privacy(noise=1e-9, clip=0.05, mechanism=mechanism)
    described = federation(privacy=privacy, environment=Environment(availability=0.0), precision="float64")
    instance = described.instance()
    engine, longest, before = described.engine_of(instance), 0.0, np.zeros((12, 16))
    for n in range(40):
        engine.advance(n, n + 1)
        model = instance.plan.tables["client"].model.copy()
        longest = max(longest, float(np.linalg.norm(model - before, order, 1).max()))
        before = model
    assert 0.4 * 0.05 * 0.999 < longest <= 0.4 * 0.05 * (1 + 1e-6)


def protecting(clip, learn=NONE):
    """The settings of a node that clips, in the L2 norm."""
    return Settings(learn, Private(GAUSSIAN, np.ones(4), 1, 0.8 * clip, clip, 2), NONE, NONE, NONE, 1.0, 1)


def test_clipping_takes_what_is_no_number_for_nothing():
    bounded = protecting(1.0)
    assert bound(np.float64(np.inf), np.ones(3), bounded) == 0.0
    assert bound(np.float64(np.nan), np.ones(3), bounded) == 0.0
    assert bound(np.float64(0.1), np.ones(3), bounded) == 0.1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_sample_that_is_no_number_changes_nothing(bad, kind):
    """An update that is no number would show in everything that is said later, noise or not."""
    with np.errstate(all="ignore"):
        for features, target in ((np.array([1.0, bad, 2.0]), 1.0), (np.ones(3), bad)):
            settings = protecting(1.0, Steps(kind(0.4), 0))
            account = row(accounts(np.zeros(1), np.full(1, np.inf)), 0)
            me = Node(np.ones(3, kind), np.zeros(0), NONE, account, NONE, NONE, NONE)
            data = Seen(features.astype(kind), np.full(1, target, kind))
            refine = refining(at_sample.pay, bound, at_sample.noise)
            assert refine(me, data, settings, Moment(0, 0, 1, -1, 1, True, 1.0))
            assert (me.model == 1).all() and me.protect.releases[0] == 1


@settings_of(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-(2.0**126), 2.0**126, width=32), min_size=3, max_size=3),
    st.floats(-(2.0**126), 2.0**126, width=32),
    st.sampled_from([1e-6, 1e-3, 1.0, 100.0]),
)
def test_no_update_of_any_size_is_longer_than_the_clip(features, target, clip):
    """Also where float32 is about to overflow, or to run out of small numbers."""
    z, before = np.array(features, np.float32), np.full(3, 0.5, np.float32)
    with np.errstate(all="ignore"):
        error = bound(np.float32(target) - z @ before, z, protecting(clip))
        update = np.float32(0.4) * error * z if error != 0 else np.zeros(3, np.float32)
    assert np.linalg.norm(update.astype(float)) <= 0.4 * clip


def test_who_has_spent_its_budget_neither_learns_nor_speaks():
    privacy = Privacy(noise=2.0, clip=0.5, epsilon=1.0, unit="client")
    described = federation(privacy=privacy, environment=Environment())
    instance = described.instance()
    engine = described.engine_of(instance)
    engine.advance(0, 35)
    table, messages = instance.plan.tables["client"], list(engine.messages)
    afforded = 0
    while (record(Gaussian(0.2)) * (afforded + 1)).epsilon(1e-5).epsilon <= 1.0:
        afforded += 1
    assert 0 < afforded < 10 and (table.protect.releases[:, 0] == afforded).all()
    assert (instance.plan.accountant.paid(instance.plan.tables).epsilon <= 1.0).all()
    engine.advance(35, 40)
    assert (table.protect.releases[:, 0] == afforded).all() and engine.messages[1] == messages[1]


def test_laplace_noise_is_pure_epsilon_for_a_sample():
    instance = federation(privacy=Privacy(mechanism="laplace", epsilon=0.5, clip=1.0)).instance()
    assert instance.plan.accountant.forecast().epsilon == pytest.approx(0.5, rel=1e-6)
    scale = instance.plan.tables["client"].protect.noise[0, 0]
    assert record(Laplace(2 * 0.4 * 1.0 / scale)).epsilon(1e-5).epsilon <= 0.5


def test_more_privacy_costs_more_accuracy():
    problem, algorithm = Linear(clients=20, size=4, samples=100, noise=0.1), PaoFed(step=0.05, portion=2)
    parts = {"rounds": 100, "every": 100, "engine": "plain"}
    errors = [
        Federation(problem, algorithm, privacy=Privacy(epsilon=epsilon, clip=1.0), **parts).run().final("mse")
        for epsilon in (0.5, 2.0, 8.0)
    ]
    assert errors[0] > errors[1] > errors[2]


def test_the_report_shows_what_it_costs(tmp_path):
    result = federation(privacy=Privacy(epsilon=1.5, clip=0.5, unit="client"), rounds=20, every=5).run()
    result.save(tmp_path)
    page = (tmp_path / "report.html").read_text()
    for words in ("one client replaced; enforced", "noise is added to every update before", "epsilon paid so far"):
        assert words in page
    (ledger,) = result.ledgers
    for node in ledger["nodes"]:
        over = node["over_time"]["epsilon"]
        assert over == sorted(over) and 0 < over[-1] == node["spent"]["epsilon"] <= 1.5


@pytest.mark.parametrize(
    ("privacy", "sentence"),
    [
        (Privacy(epsilon=1.0), "infinite sensitivity"),
        (Privacy(epsilon=1.0, clip=1.0, relation="add-remove"), "has news"),
    ],
)
def test_what_cannot_be_kept_is_refused(privacy, sentence):
    with pytest.raises(BadInput, match=sentence):
        federation(privacy=privacy).instance()
