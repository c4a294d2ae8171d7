"""Discovery: groups against clouds whose groups are known, servers and peers against the truth, agreement of all."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path

from archipel import Environment, Federation
from archipel.algorithms.npfl import Nfl, Npfl, NpflRl
from archipel.algorithms.pgfl import ClusterFl, Gfl, Pgfl
from archipel.errors import BadInput
from archipel.parts.mix import groups as discovery
from archipel.parts.mix.looking import diameter
from archipel.privacy.policy import Privacy
from archipel.problems.clustered import Related
from archipel.problems.scoring.deviation import adjusted_rand
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_algorithm, check_traffic, played
from archipel.topology import Peers, Servers
from reference.engine import ReferenceEngine

SMALL = Related(clients=24, size=8, samples=(30, 30), gammas=(-0.6, 0.0, 0.6), noise=0.1, test=20)
SERVERS = Servers(servers=4, mean_degree=2.0, clusters="discover")
PEERS = Peers(mean_degree=4.0, clusters="discover")


def clouds(rng, sizes, gap, size=20):
    """Normal clouds around points a distance apart, on a line."""
    way = rng.normal(size=size)
    way /= np.linalg.norm(way)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    return truth, rng.normal(size=(len(truth), size)) + gap * truth[:, None] * way


def test_clouds_are_found_and_noise_is_one_cloud():
    rng = np.random.default_rng(4)
    for _ in range(10):
        truth, points = clouds(rng, (30, 20, 40), 9.0)
        labels = np.zeros(90, np.int64)
        assert discovery.group(points, labels, 6, discovery.room_for(90, 20, 6)) == 3
        assert adjusted_rand(truth, labels) == 1.0
        nobody = np.zeros(60, np.int64)
        assert discovery.group(rng.normal(size=(60, 20)), nobody, 6, discovery.room_for(60, 20, 6)) == 1


def test_clouds_of_different_spread_are_told_apart():
    """The outer cloud is wide: k-means would give part of it to the tight one in the middle."""
    rng = np.random.default_rng(5)
    tight, wide = 0.2 * rng.normal(size=(30, 40)), rng.normal(size=(30, 40))
    wide[:, 0] += 4.0
    truth, labels = np.repeat([0, 1], 30), np.zeros(60, np.int64)
    assert discovery.group(np.concatenate([tight, wide]), labels, 6, discovery.room_for(60, 40, 6)) == 2
    assert adjusted_rand(truth, labels) == 1.0


def test_the_edge_of_noise_is_rarely_passed():
    """Johnstone's statistic of pure noise, by NumPy's singular values: below our threshold in 200 of 200."""
    rng = np.random.default_rng(6)
    worst = -np.inf
    for _ in range(200):
        count, size = int(rng.integers(6, 60)), int(rng.integers(5, 60))
        points = rng.normal(size=(count, size))
        points -= points.mean(0)
        squares = np.linalg.svd(points, compute_uv=False) ** 2
        along = np.zeros(count)
        top = discovery.principal(along, points, np.zeros(size), np.zeros(size))
        assert top <= squares[0] * (1 + 1e-9) and top > 0.9 * squares[0]
        worst = max(worst, discovery.stands_out(squares[0], squares.sum(), count, size))
    assert worst < discovery.BEYOND


def test_those_without_a_signature_keep_their_label():
    rng = np.random.default_rng(7)
    truth, points = clouds(rng, (15, 15), 12.0)
    everyone, stamps = np.zeros(30, np.int64), np.full(30, 3)
    stamps[:5] = 2
    everyone[:5] = 4
    assert discovery.regroup(points, stamps, everyone, 3, 6, discovery.room_for(30, 20, 6))
    assert np.all(everyone[:5] == 4) and adjusted_rand(truth[5:], everyone[5:]) == 1.0


def test_groups_keep_their_numbers():
    labels, before = np.array([0, 0, 1, 1, 2, 2]), np.array([3, 3, 1, 1, 1, 3])
    discovery.rename(labels, before, 3, 5, discovery.room_for(6, 2, 5))
    assert labels.tolist()[:4] == [3, 3, 1, 1] and labels[4] == labels[5] and labels[4] not in (1, 3)


def test_hops_are_the_diameter():
    for seed in range(5):
        links = Peers(mean_degree=3.0).build(20, seed).links()
        edges = np.zeros((20, 20))
        edges[links.receivers, links.senders] = 1
        assert diameter(links, 20) == shortest_path(edges, unweighted=True).max()


@pytest.mark.parametrize("algorithm, topology", [(Pgfl(look=12), SERVERS), (Npfl(look=12, penalty=1.0), PEERS)])
def test_clusters_are_found_and_everyone_agrees(algorithm, topology):
    federation = Federation(SMALL, algorithm, topology, rounds=30, every=30, engine="plain")
    result = federation.run()
    assert result.final("rand") == 1.0
    instance = federation.instance()
    federation.engine_of(instance).advance(0, 30)
    knowing = instance.plan.tables["server" if topology is SERVERS else "peer"]
    assert (knowing.across.everyone == knowing.across.everyone[0]).all()
    given = federation.with_(topology=replace(topology, clusters=3)).run()
    # just after the look the models are not yet those of the true clusters, but on their way
    assert result.final("msd") < 3 * given.final("msd") + 1e-3


def test_identical_tasks_are_one_cluster():
    same = replace(SMALL, gammas=(0.0, 0.0, 0.0))
    federation = Federation(same, Pgfl(look=12), SERVERS, rounds=26, every=26, engine="plain")
    instance = federation.instance()
    federation.engine_of(instance).advance(0, 26)
    assert np.all(instance.plan.tables["client"].mix.cluster == 0)


@pytest.mark.parametrize(
    "algorithm, topology, key",
    [
        (partial(Pgfl, look=2), SERVERS, "algorithm.look"),
        (partial(Pgfl, most=1), SERVERS, "algorithm.most"),
        (partial(Pgfl, curvature=-1.0), SERVERS, "algorithm.curvature"),
        (partial(Pgfl, form="published"), SERVERS, "algorithm.form"),
        (ClusterFl, SERVERS, "topology.clusters"),
        (partial(Npfl, look=1), PEERS, "algorithm.look"),
    ],
)
def test_bad_input_is_a_sentence(algorithm, topology, key):
    with pytest.raises(BadInput) as caught:
        Federation(SMALL, algorithm(), topology, rounds=3, engine="plain").run()
    assert caught.value.key == key


def test_privacy_of_discovery():
    """At servers it is made of what was released; among peers the common model is a release, and paid for."""
    policy = Privacy(rho=100.0, clip=1.0, enforce=False)
    private = Federation(SMALL, Pgfl(look=12), SERVERS, rounds=14, every=14, engine="plain", privacy=policy).run()
    open_ = Federation(SMALL, Pgfl(look=12), replace(SERVERS, clusters=3), rounds=14, every=14, engine="plain")
    spent = private.ledger()["seeds"][0]["nodes"][0]["spent"]
    assert spent == open_.with_(privacy=policy).run().ledger()["seeds"][0]["nodes"][0]["spent"]
    among = Federation(
        SMALL, Npfl(look=12), PEERS, rounds=3, every=3, engine="plain", privacy=replace(policy, noise=1.0)
    )
    alone = among.with_(topology=replace(PEERS, clusters=1)).run().ledger()["seeds"][0]["nodes"][0]["spent"]
    assert among.run().ledger()["seeds"][0]["nodes"][0]["spent"]["rho"] > 2 * alone["rho"]


def test_one_model_for_all_has_nothing_to_discover():
    for algorithm, topology in ((Gfl(), SERVERS), (Nfl(), PEERS)):
        Federation(SMALL, algorithm, topology, rounds=2, engine="plain").run()


# --- the numbers of the issue -------------------------------------------------------------------------------

ARTICLE = Related(samples=(60, 60), gammas=(-0.4, 0.0, 0.4), noise=1.0)
THESIS = replace(ARTICLE, clients=30)


def decibels(value):
    return 10 * np.log10(value)


@pytest.mark.long
def test_servers_find_the_clusters_of_the_article():
    for seed in range(1, 6):
        federation = Federation(ARTICLE, Pgfl(), Servers(clusters="discover"), rounds=200, every=50, seed=seed)
        found, given = federation.run(), federation.with_(topology=Servers(clusters=3)).run()
        assert found.final("rand") >= 0.95
        assert abs(decibels(found.final("msd")) - decibels(given.final("msd"))) < 1


@pytest.mark.long
@pytest.mark.parametrize("clients", [30, 60])
def test_peers_find_the_clusters_and_find_them_again(clients):
    topology = Peers(mean_degree=6.0, clusters="discover")
    for seed in range(1, 6):
        steady = Federation(replace(THESIS, clients=clients), Npfl(), topology, rounds=100, every=10, seed=seed)
        found, given = steady.run(), steady.with_(topology=replace(topology, clusters=3)).run()
        assert found.final("rand") >= 0.85
        assert abs(decibels(found.final("msd")) - decibels(given.final("msd"))) < 1
        changing = replace(THESIS, clients=clients, change=100, moved=0.1)
        rand = dict(steady.with_(problem=changing, rounds=150).run().curve("rand"))
        assert rand[110] < 0.95 and rand[150] >= 0.85


@pytest.mark.long
def test_servers_find_clients_that_changed_again():
    for seed in range(1, 4):
        changing = replace(ARTICLE, change=100, moved=0.1)
        found = Federation(changing, Pgfl(), Servers(clusters="discover"), rounds=150, every=1, seed=seed).run()
        rand = dict(found.curve("rand"))
        assert min(rand[n] for n in range(100, 111)) < 0.95 and rand[150] >= 0.95  # noticed within a few rounds


TABLE = {
    "pgfl": Federation(SMALL, Pgfl(look=12, tau=0.2), SERVERS, rounds=30),
    "pgfl-some": Federation(
        SMALL, Pgfl(look=12, some=3), SERVERS, environment=Environment(availability=0.8), rounds=30
    ),
    "npfl": Federation(SMALL, Npfl(look=12), PEERS, rounds=30),
    "npfl-rl": Federation(SMALL, NpflRl(look=12), PEERS, environment=Environment(availability=0.8), rounds=30),
}


def test_all_turns_of_one_way_are_counted():
    """Servers tell servers twice a round: what clients said, and models."""
    check_traffic(TABLE["pgfl"], *played(TABLE["pgfl"], "plain"))


@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_engines_agree(name):
    check_algorithm(TABLE[name], parallel=True)


def test_who_looks_around_learns_once_a_round():
    """What peers say to find out who belongs together is no update."""
    federation = Federation(SMALL, Npfl(), PEERS, rounds=6)
    plain, slow = PlainEngine(federation.instance()), ReferenceEngine(federation.instance())
    for engine in (plain, slow):
        engine.advance(0, 6)
    assert plain.updates == slow.updates == 6 * SMALL.clients and plain.messages == slow.messages
