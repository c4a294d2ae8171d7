"""Dual averaging with push-sum: written out, against one who hears all, what noise does to it, what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from archipel import Delay, Environment, Federation
from archipel.algorithms.mirror import DualAveraging, MirrorDescent
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.node import Moment, row
from archipel.parts.learn.dual_averaging import farthest
from archipel.parts.mix.mean import Mean
from archipel.parts.mix.optimiser import Momentum
from archipel.parts.mix.pushed import Weighted
from archipel.parts.share.top_k import TopK
from archipel.parts.share.whole import Whole
from archipel.privacy.policy import Privacy
from archipel.problems.drifting import Drifting
from archipel.problems.regions import ball, box, projected, simplex
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_engines_agree
from archipel.topology import Digraph, Peers, Servers, Star, matrix

SMALL = Drifting(clients=5, size=3)
UNBALANCED = Digraph(shares="random", mean_degree=2.0, phases=3)
LAPLACE = Privacy(mechanism="laplace", epsilon=1.0, clip=1.5)
MAPS = {
    "ball": {"region": "ball"},
    "simplex": {"region": "simplex"},
    "entropy": {"region": "simplex", "map": "entropy"},
}


def played(federation):
    """The instance after all rounds, and all models that were played."""
    instance = federation.instance()
    engine, models = PlainEngine(instance), []
    for n in range(federation.rounds):
        models.append(instance.plan.tables["peer"].model.copy())
        engine.advance(n, n + 1)
    return instance, np.array(models)


def leader(name, sums):
    """argmin over X of <sums, x> + R(x), in closed form."""
    if name == "entropy":
        lifted = np.exp(-sums + sums.min(1, keepdims=True))
        return lifted / lifted.sum(1, keepdims=True)
    return projected(-sums, ball(3) if name == "ball" else simplex(3))


@pytest.mark.parametrize("name", MAPS)
def test_written_out(name):
    """sums' = W (sums + gradients), weights' = W weights, model = the leader of step sums / weights."""
    instance, models = played(Federation(SMALL, DualAveraging(**MAPS[name]), UNBALANCED, rounds=30))
    features, _ = instance.task.oracle.past(0, 30)
    sums, weights, settings = np.zeros((5, 3)), np.ones(5), instance.plan.settings.learn.steps
    for n in range(30):
        step = settings.width / settings.length / np.sqrt(n + 1)
        model = leader(name, step * sums / weights[:, None])
        np.testing.assert_allclose(models[n], model, atol=1e-12)
        graph = matrix(instance.graph.across[n % 3])
        sums, weights = graph @ (sums + model - features[n]), graph @ weights


@pytest.mark.parametrize("name", MAPS)
def test_with_everyone_in_earshot_it_is_one_learner_with_all_samples(name):
    """On a complete graph with even shares all have the model of who sees the mean gradient of all, in every round."""
    instance, models = played(Federation(SMALL, DualAveraging(**MAPS[name]), Digraph("complete"), rounds=30))
    features, _ = instance.task.oracle.past(0, 30)
    total, settings = np.zeros((1, 3)), instance.plan.settings.learn.steps
    for n in range(30):
        model = leader(name, settings.width / settings.length / np.sqrt(n + 1) * total)
        np.testing.assert_allclose(models[n], np.repeat(model, 5, 0), atol=1e-12)
        total = total + model - features[n].mean(0)


@pytest.mark.parametrize("name", MAPS)
def test_noise_costs_less_than_where_steps_are_projected_before_they_are_mixed(name):
    problem = Drifting(clients=20, size=3, loss="linear", space="ball" if name == "ball" else "simplex")
    behind = {}
    for kind in (MirrorDescent, DualAveraging):
        federation = Federation(problem, kind(**MAPS[name]), Digraph(), privacy=LAPLACE, rounds=300, every=300)
        behind[kind] = federation.with_(engine="plain").run().final("regret.network")
    assert 0 < behind[DualAveraging] < 0.7 * behind[MirrorDescent]


def test_the_step_fits_the_noise_that_the_network_leaves():
    """width / sqrt(G^2 + noise^2 / n); by hand, for Laplace noise of scale 3 a component."""

    def first(name, clients):
        problem = replace(SMALL, clients=clients, space="ball" if name == "ball" else "simplex")
        graph = Digraph(mean_degree=min(3.0, clients - 1))
        return Federation(problem, DualAveraging(**MAPS[name]), graph, privacy=LAPLACE).check()["first_step"]

    for clients in (2, 50):
        assert first("ball", clients) == pytest.approx(np.sqrt(0.5 / (1.5**2 + 3 * 18 / clients)))
        assert first("simplex", clients) == pytest.approx(np.sqrt((1 / 3) / (1.5**2 + 3 * 18 / clients)))
        assert first("entropy", clients) == pytest.approx(np.sqrt(np.log(3) / (0.75**2 + 18 / clients)))


@pytest.mark.parametrize("region", [ball(3, 2.0), box(np.array([-1.0, 1, -3]), np.array([1.0, 2, 0])), simplex(3, 2.0)])
def test_how_far_a_region_reaches(region):
    """From the point that is nearest to zero to the farthest of many others."""
    drawn = np.random.default_rng(1).normal(size=(20_000, 3)) * 10
    away = np.linalg.norm(projected(drawn, region) - projected(np.zeros((1, 3)), region), axis=1)
    found = farthest(DualAveraging().mapped(3)._replace(**region._asdict()))
    assert found == pytest.approx(away.max(), rel=0.02) and found >= away.max() - 1e-12


def test_a_box_away_from_zero_is_left_at_its_own_pace():
    """From the corner nearest to zero, as far as step and slopes say: start - step sums, projected."""
    algorithm = DualAveraging(region="box", low=10.0, high=11.0)
    instance, models = played(Federation(replace(SMALL, loss="linear"), algorithm, Digraph("complete"), rounds=20))
    slopes = instance.task.oracle.past(0, 20)[0].mean(1).cumsum(0)
    step = np.divide(*instance.plan.settings.learn.steps[:2]) / np.sqrt(np.arange(2, 21))
    np.testing.assert_allclose(models[1:, 0], np.clip(10.0 - step[:, None] * slopes[:-1], 10.0, 11.0), atol=1e-12)


def test_weights_add_up_whoever_is_away_or_opts_out():
    graph = Digraph(phases=6, fade=0.2, opt_out=0.3, window=6, mean_degree=3.0)
    instance, models = played(Federation(SMALL, DualAveraging(), graph, Environment(availability=0.6), rounds=60))
    weight = instance.plan.tables["peer"].mix.weight
    assert weight.sum() == pytest.approx(5) and (weight > 0).all() and np.isfinite(models).all()


def test_who_has_lost_all_weight_begins_anew_with_the_mean_it_had():
    instance, _ = played(Federation(SMALL, DualAveraging(), UNBALANCED, rounds=10))
    me = row(instance.plan.tables["peer"], 0)
    mean = me.learn.mean.copy()
    nothing = Moment(0, 10, key_of(1, 0, 10), -1, 1, True, 0.0)
    instance.plan.turns[0].merge(me, Weighted(np.zeros(3), np.zeros(1)), instance.plan.settings, nothing)
    np.testing.assert_allclose(me.learn.mean, mean)
    assert me.mix.weight[0] == 1 and np.isfinite(me.model).all()


def test_sums_stay_what_they_were_when_all_have_spent_their_budgets():
    """Laplace noise whose first release leaves too little for a second: pushing alone does not change the total."""
    privacy = Privacy(mechanism="laplace", epsilon=1.5, noise=2.0, clip=1.0, unit="client")

    def table(rounds):
        return played(Federation(SMALL, DualAveraging(), UNBALANCED, privacy=privacy, rounds=rounds))[0].plan.tables[
            "peer"
        ]

    once, later = table(1), table(9)
    sums = [each.learn.mean * each.mix.weight for each in (once, later)]
    assert (later.protect.releases == 1).all() and not np.allclose(*sums)
    np.testing.assert_allclose(sums[1].sum(0), sums[0].sum(0), atol=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "what"),
    [
        (DualAveraging(path=0.1, drift=0.5), "mirror-descent"),
        (DualAveraging(mixing="plain"), "push-sum"),
        (DualAveraging(region="anywhere"), "step of your own"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(algorithm, what):
    with pytest.raises(BadInput, match=what):
        Federation(SMALL, algorithm, UNBALANCED).instance()


@pytest.mark.parametrize("topology", [Star(), Servers(servers=2, shape="complete")])
@pytest.mark.parametrize("share", [Whole(change=True), TopK(3)])
def test_with_everyone_there_changes_of_the_sums_say_what_the_sums_say(share, topology):
    """A change is of what is shared, the mean gradient, not of the model that follows from it."""
    tables = []
    for said in (Whole(), share):
        federation = Federation(SMALL, DualAveraging(share=said), topology, rounds=20)
        tables.append(played_on(federation))
    for role in ("server", "client"):
        np.testing.assert_allclose(tables[1][role].learn.mean, tables[0][role].learn.mean, atol=1e-12)
        np.testing.assert_allclose(tables[1][role].model, tables[0][role].model, atol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_who_is_away_from_its_server_plays_the_leader_of_its_own_sums(name):
    """Whether it was told the sums or has its own: gradients are those at the leader, in the very next round too."""
    environment = Environment(availability=0.5)
    federation = Federation(SMALL, DualAveraging(**MAPS[name]), Star(), environment, rounds=30)
    instance = federation.instance()
    engine, settings = PlainEngine(instance), instance.plan.settings.learn.steps
    features, _ = instance.task.oracle.past(0, 30)
    tables, alone = instance.plan.tables, 0
    for n in range(30):
        step = settings.width / settings.length / np.sqrt(n + 1)
        sums = [np.repeat(tables["server"].learn.mean, 5, 0), tables["client"].learn.mean.copy()]
        engine.advance(n, n + 1)
        told, own = (
            np.isclose(tables["client"].learn.mean, each + leader(name, step * each) - features[n], atol=1e-10).all(1)
            for each in sums
        )
        assert (told | own).all()
        alone += np.count_nonzero(own & ~told)
    assert alone > 30


def played_on(federation):
    """All tables after all rounds."""
    instance = federation.instance()
    PlainEngine(instance).advance(0, federation.rounds)
    return instance.plan.tables


def test_momentum_among_peers_is_of_the_sums():
    """v = beta v + W (m + gradient) - m, m += v: written out, of the means of the gradients that peers share."""
    algorithm, graph = DualAveraging(mix=Momentum(1.0, 0.5, over=Mean(0))), Peers("ring")
    instance, models = played(Federation(SMALL, algorithm, graph, rounds=15))
    features, _ = instance.task.oracle.past(0, 15)
    weights = matrix(instance.graph.across[0])
    mean, speed, settings = np.zeros((5, 3)), np.zeros((5, 3)), instance.plan.settings.learn.steps
    for n in range(15):
        model = leader("ball", settings.width / settings.length / np.sqrt(n + 1) * mean)
        np.testing.assert_allclose(models[n], model, atol=1e-12)
        speed = 0.5 * speed + weights @ (mean + model - features[n]) - mean
        mean = mean + speed


def test_engines_agree_on_changes_of_the_sums():
    algorithm = DualAveraging(share=TopK(2), mix=Mean())
    rough = Environment(availability=0.7, delay=Delay(delta=0.4, limit=2))
    check_engines_agree(Federation(SMALL, algorithm, Star(), rough, rounds=12), parallel=False)
