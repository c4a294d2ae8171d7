"""PAO-Fed against closed forms and an obvious loop."""

import numpy as np
import pytest

from archipel import Delay, Environment, Federation, Linear, OnlineFed, PaoFed, Synthetic
from archipel.algorithms.online import VARIANTS, OnlineFedSgd
from archipel.errors import BadInput
from archipel.node import Edge, Moment, emptied, row

STREAM = Synthetic(clients=12, features=16, test=20, horizon=80, samples=(80,))
ROUGH = Environment(availability=(0.7, 0.3), delay=Delay(delta=0.4, limit=3))


def server_of(federation):
    return federation.run().models[0]["server"]


def test_sharing_everything_without_delays_is_online_fedsgd():
    whole = PaoFed(variant="C1", portion=16, step=0.3)
    one = server_of(Federation(STREAM, whole, rounds=80, precision="float64", engine="serial"))
    two = server_of(Federation(STREAM, OnlineFed(step=0.3), rounds=80, precision="float64", engine="serial"))
    np.testing.assert_allclose(one, two, rtol=1e-12)


def test_whole_models_make_coordination_and_looking_ahead_meaningless():
    models = [
        server_of(
            Federation(STREAM, PaoFed(variant=v, portion=16, decay=1.0), environment=ROUGH, rounds=60, engine="serial")
        )
        for v in ("C0", "C1", "U1", "U2")
    ]
    for other in models[1:]:
        np.testing.assert_allclose(models[0], other, rtol=2e-4, atol=1e-5)


def test_ignoring_all_but_a_portion_of_a_full_download_is_partial_sharing():
    partial = Federation(STREAM, PaoFed(variant="U1", portion=4), environment=ROUGH, rounds=60, engine="serial")
    ignoring = partial.with_(algorithm=PaoFed(variant="U1", portion=4, download="full", ignore=12))
    assert np.array_equal(server_of(partial), server_of(ignoring))


def test_one_client_that_is_always_there_learns_by_lms():
    problem = Linear(clients=1, size=3, samples=50)
    federation = Federation(problem, PaoFed(portion=3, step=0.1), rounds=50, precision="float64", engine="serial")
    source = federation.instance().task.source
    model = np.zeros(3)
    for x, y in zip(source.x, source.y):
        model += 0.1 * (y - x @ model) * x
    np.testing.assert_allclose(server_of(federation), model, rtol=1e-12)


def obvious_run(federation):
    """Algorithm 1 of the article with selection matrices, written again from the text."""
    instance = federation.instance()
    task, settings = instance.task, instance.plan.settings
    size, portion = task.size, settings.share.length
    from archipel.draws import key_of
    from archipel.environment import available, delay

    def selection(k, n):
        start = portion * (n + settings.share.spread * k)
        chosen = np.zeros(size)
        chosen[np.arange(start, start + portion) % size] = 1
        return chosen

    server, clients, flying = np.zeros(size), np.zeros((task.clients, size)), []
    for n in range(federation.rounds):
        for k in range(task.clients):
            moment = Moment(k, n, key_of(instance.seed, k, n), -1, 1, False, 1.0)
            fresh, sample = task.observe(task.source, task.sample, moment)
            if not fresh:
                continue
            there = available(instance.conditions, moment)
            taken = selection(k, n) if there else np.zeros(size)
            model = taken * server + (1 - taken) * clients[k]
            error = sample.target[0] - model @ sample.features
            clients[k] = model + settings.learn.step * error * sample.features
            if there:
                late = delay(instance.conditions, moment)
                flying.append(
                    (n + late if late >= 0 else -1, late, selection(k, n + settings.share.ahead), clients[k].copy())
                )
        change, seen = np.zeros(size), np.zeros(size)
        for age in range(len(settings.mix.weights)):
            heard = [(chosen, model) for arrival, late, chosen, model in flying if arrival == n and late == age]
            if heard:
                adjusted = [chosen * (1 - seen) for chosen, _ in heard]
                deviation = sum(s * (model - server) for s, (_, model) in zip(adjusted, heard)) / len(heard)
                change += settings.mix.weights[age] * deviation
                seen = np.maximum(seen, np.max([chosen for chosen, _ in heard], 0))
        server = server + change
    return server


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_article_s_algorithm_written_again(variant):
    problem = Synthetic(clients=8, features=10, test=5, horizon=60, samples=(30, 60))
    algorithm = PaoFed(variant=variant, portion=3, limit=3)
    federation = Federation(problem, algorithm, environment=ROUGH, rounds=60, precision="float64", engine="serial")
    np.testing.assert_allclose(server_of(federation), obvious_run(federation), rtol=1e-9, atol=1e-12)


def test_only_the_most_recent_update_of_a_parameter_counts():
    algorithm = PaoFed(variant="C1", portion=2, limit=2, step=0.1)
    plan = Federation(Linear(clients=2, size=4, samples=4), algorithm, rounds=4, precision="float64").instance().plan
    up, server = plan.turns[1], row(plan.tables["server"], 0)
    inbox, new, old = emptied(up.inbox), emptied(up.word), emptied(up.word)
    new.values[:], new.start[0] = (1.0, 1.0), 0
    old.values[:], old.start[0] = (5.0, 7.0), 1
    up.hear(inbox, old, plan.settings, Edge(1, 1.0, 2, 0))
    up.hear(inbox, new, plan.settings, Edge(0, 1.0, 0, 2))
    up.merge(server, inbox, plan.settings, None)
    assert server.model.tolist() == [1.0, 1.0, 7.0, 0.0]


def test_updates_beyond_the_limit_are_discarded():
    late = Environment(delay=Delay(kind="fixed", rounds=3, limit=5))
    federation = Federation(STREAM, PaoFed(limit=2), environment=late, rounds=20, engine="serial")
    result = federation.run()
    assert not result.models[0]["server"].any()
    assert result.final("bytes.client-server") > 0


def test_learning_continues_after_the_function_changes():
    """The article argues that random features and uncoordinated sharing follow a change of the model."""
    problem = Synthetic(clients=32, features=50, horizon=1200, samples=(1200,), change=600, test=200)
    curve = dict(Federation(problem, PaoFed(variant="U1"), rounds=1200, every=100, engine="serial").run().curve("mse"))
    assert curve[600] < 0.25 < curve[700]
    assert curve[1200] < 0.6 * curve[700]


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        (PaoFed(portion=17), "algorithm.portion"),
        (PaoFed(download="full", ignore=16), "algorithm.ignore"),
        (PaoFed(step=5.0), "algorithm.step"),
        (OnlineFed(step=5.0), "algorithm.step"),
        (OnlineFedSgd(asked=0.5), "algorithm.asked"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(algorithm, key):
    with pytest.raises(BadInput) as problem:
        Federation(STREAM, algorithm, rounds=5, engine="serial").run()
    assert problem.value.key == key


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"portion": 0}, "algorithm.portion"),
        ({"variant": "C3"}, "algorithm.variant"),
        ({"step": -1.0}, "algorithm.step"),
        ({"step": float("nan")}, "algorithm.step"),
        ({"decay": 2.0}, "algorithm.decay"),
        ({"asked": 0.0}, "algorithm.asked"),
        ({"order": "wild"}, "algorithm.order"),
        ({"limit": -1}, "algorithm.limit"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(change, key):
    with pytest.raises(BadInput) as problem:
        Federation(STREAM, PaoFed(**change), rounds=5, engine="serial").run()
    assert problem.value.key == key


def test_a_step_beyond_the_bound_runs_when_forced():
    assert Federation(STREAM, PaoFed(step=2.5, force=True), rounds=5, engine="serial").run().rows
