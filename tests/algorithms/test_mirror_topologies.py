"""Mirror descent and dual averaging with a server, several servers, or neighbours: against what they generalise."""

from dataclasses import replace

import numpy as np
import pytest

from archipel import Environment, Federation
from archipel.algorithms.dp_fedavg import DpFedAvg
from archipel.algorithms.mirror import (
    DualAveraging,
    LagrangianDescent,
    MirrorDescent,
    OnlineGradientDescent,
    OnlinePushSum,
    PublishedMirrorDescent,
    SaddleMirrorDescent,
)
from archipel.environment import Delay
from archipel.errors import BadInput
from archipel.parts.learn.constraints import Budget
from archipel.parts.mix.mean import Mean
from archipel.parts.mix.push_sum import PushSum
from archipel.parts.protect.sample import AtSample
from archipel.parts.share.portions import Portions
from archipel.privacy.policy import Privacy
from archipel.problems.drifting import Drifting
from archipel.problems.regions import ball, projected
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_algorithm
from archipel.topology import Digraph, Peers, Servers, Star, matrix

SMALL = Drifting(clients=6, size=3)
LINEAR = replace(SMALL, loss="linear")
COMPLETE = Digraph("complete")
LAPLACE = Privacy(mechanism="laplace", epsilon=1.0, clip=1.5)
ENERGY = Budget("energy", 1.0, 0.1)
ENTROPY = {"region": "simplex", "map": "entropy", "floor": 0.01}
TWO = Servers(servers=2, shape="complete")
ROUGH = Environment(availability=0.7, delay=Delay(delta=0.3, limit=2))

KINDS = {
    "mirror descent": (SMALL, MirrorDescent()),
    "entropy": (replace(SMALL, space="simplex"), MirrorDescent(**ENTROPY)),
    "saddle": (SMALL, SaddleMirrorDescent(constraint=ENERGY)),
    "queue": (SMALL, LagrangianDescent(constraint=ENERGY)),
    "private cost": (LINEAR, LagrangianDescent(constraint=Budget("sample"))),
    "dual averaging": (LINEAR, DualAveraging()),
    "dual averaging, entropy": (replace(LINEAR, space="simplex"), DualAveraging(**ENTROPY)),
    "gradient descent": (SMALL, OnlineGradientDescent()),
    "push-sum": (SMALL, OnlinePushSum()),
    "published": (replace(SMALL, space="simplex"), PublishedMirrorDescent()),
}


def played(federation):
    """The instance after all rounds, and all models that were played: a star's are those that clients were told."""
    instance = federation.instance()
    engine, role, models = PlainEngine(instance), instance.data_role, []
    for n in range(federation.rounds):
        here = instance.plan.tables["server" if role == "client" else role].model
        models.append(np.repeat(here, instance.task.clients, 0) if len(here) == 1 else here.copy())
        engine.advance(n, n + 1)
    return instance, np.array(models)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_one_server_with_everyone_there_is_a_complete_graph_with_equal_shares(name, private):
    problem, algorithm = KINDS[name]
    if private and isinstance(algorithm, PublishedMirrorDescent):
        pytest.skip("it has noise of its own")
    privacy = LAPLACE if private else None
    star, graph = (
        Federation(problem, algorithm, each, privacy=privacy, rounds=25, every=25) for each in (Star(), COMPLETE)
    )
    (_, told), (_, pushed) = played(star), played(graph)
    np.testing.assert_allclose(told, pushed, atol=1e-10)
    ours, theirs = (each.with_(engine="plain").run() for each in (star, graph))
    for meter in ("regret.static", "regret.dynamic", "violation", "epsilon.event", "epsilon.client"):
        assert (meter in ours.metrics()) == (meter in theirs.metrics())
        if meter in ours.metrics():
            assert ours.final(meter) == pytest.approx(theirs.final(meter), abs=1e-9)


@pytest.mark.parametrize("mixing", ["push-sum", "plain"])
def test_among_peers_metropolis_weights_written_out(mixing):
    algorithm = MirrorDescent(mixing=mixing, step=0.5)
    instance, models = played(Federation(SMALL, algorithm, Peers(shape="ring"), rounds=20))
    features, _ = instance.task.oracle.past(0, 20)
    graph, model = matrix(instance.graph.links()), np.zeros((6, 3))
    assert np.allclose(graph.sum(0), 1) and np.allclose(graph, graph.T)
    for n in range(20):
        np.testing.assert_allclose(models[n], model, atol=1e-12)
        model = graph @ projected(model - 0.5 / np.sqrt(n + 1) * (model - features[n]), ball(3))


def test_two_servers_written_out():
    """Servers average their clients' steps, then each other's models, by Metropolis weights."""
    instance = Federation(SMALL, MirrorDescent(step=0.5), TWO, rounds=15).instance()
    engine, features = PlainEngine(instance), instance.task.oracle.past(0, 15)[0]
    mine = np.eye(2)[instance.graph.server]
    mean, graph, model = mine.T / mine.sum(0)[:, None], matrix(instance.graph.links()), np.zeros((2, 3))
    for n in range(15):
        np.testing.assert_allclose(instance.plan.tables["server"].model, model, atol=1e-12)
        engine.advance(n, n + 1)
        told = mine @ model
        model = graph @ mean @ projected(told - 0.5 / np.sqrt(n + 1) * (told - features[n]), ball(3))


def test_dual_averaging_with_two_servers_is_one_learner_if_they_agree():
    """Two servers of three clients each that hear each other with one half: the mean gradient of all, every round."""
    instance, models = played(Federation(LINEAR, DualAveraging(), TWO, rounds=20))
    slopes, steps = instance.task.oracle.past(0, 20)[0].mean(1), instance.plan.settings.learn.steps
    for n in range(1, 20):
        leader = projected(-steps.width / steps.length / np.sqrt(n + 1) * slopes[:n].sum(0)[None], ball(3))
        np.testing.assert_allclose(models[n], np.repeat(leader, 2, 0), atol=1e-12)


def test_dp_fedavg_written_out():
    """A server, or two that average theirs: steps along means of gradients, back into the ball."""
    for topology in (Star(), TWO):
        instance, _ = played(Federation(SMALL, DpFedAvg(step=2.0, decay=0.5, radius=0.5), topology, rounds=12))
        features, servers = instance.task.oracle.past(0, 12)[0], instance.graph.servers
        mine, graph = (
            np.eye(servers)[instance.graph.server],
            matrix(instance.graph.links()) if servers > 1 else np.eye(1),
        )
        mean, model = mine.T / mine.sum(0)[:, None], np.zeros((servers, 3))
        for n in range(12):
            slope = mean @ (mine @ model - features[n])
            model = graph @ projected(model - 2.0 / np.sqrt(n + 1) * slope, ball(3, 0.5))
        np.testing.assert_allclose(instance.plan.tables["server"].model, model, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("topology", [Star(), TWO, Peers(shape="ring")], ids=["star", "servers", "peers"])
@pytest.mark.parametrize("name", KINDS)
def test_they_keep_what_every_algorithm_promises_everywhere(name, topology):
    problem, algorithm = KINDS[name]
    privacy = None if isinstance(algorithm, PublishedMirrorDescent) else LAPLACE
    if isinstance(algorithm, MirrorDescent):
        algorithm = replace(algorithm, limit=2)
    check_algorithm(Federation(problem, algorithm, topology, ROUGH, privacy, rounds=12), parallel=True)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mirror descent", "dual averaging"])
def test_float32_differs_by_its_rounding_only(name):
    problem, algorithm = KINDS[name]
    check_algorithm(Federation(problem, algorithm, COMPLETE, ROUGH, LAPLACE, rounds=12, precision="float32"))


@pytest.mark.parametrize(
    ("algorithm", "topology", "privacy", "what"),
    [
        (DpFedAvg(), Peers(), None, "a server keeps the model"),
        (DpFedAvg(), Digraph(), None, "a server keeps the model"),
        (MirrorDescent(mix=Mean()), Digraph(), None, "weighs nodes as a whole"),
        (MirrorDescent(mix=PushSum()), Digraph(), None, "weighs nodes as a whole"),
        (MirrorDescent(share=Portions(1)), Digraph(), None, "whole models"),
        (MirrorDescent(protect=AtSample()), Digraph(), LAPLACE, "leave the region"),
        (PublishedMirrorDescent(start="printed"), Star(), None, "three peers"),
    ],
)
def test_parts_that_do_not_go_together_are_refused_with_a_sentence(algorithm, topology, privacy, what):
    with pytest.raises(BadInput, match=what):
        Federation(replace(SMALL, space="simplex"), algorithm, topology, privacy=privacy).instance()


def test_a_mix_of_another_kind_can_take_its_place():
    """With a server any mix will do; neighbours may take plain steps towards each other."""
    for topology in (Star(), Peers(shape="ring")):
        ours, other = (
            played(Federation(SMALL, each, topology, rounds=10))[1]
            for each in (MirrorDescent(), MirrorDescent(mix=Mean(0)))
        )
        np.testing.assert_allclose(ours, other, atol=1e-12)
