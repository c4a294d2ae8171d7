"""PGFL: exact form at the optimum, published form beside it, what it equals in special cases, what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

from archipel import Environment, Federation
from archipel.algorithms.pgfl import ClusterFl, Gfl, Pgfl
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.parts.mix.cluster_admm import choose
from archipel.privacy.bounding import Bounds
from archipel.privacy.policy import Privacy
from archipel.problems.clustered import Related, segments
from archipel.testing import check_algorithm
from archipel.theory import pgfl as theory
from archipel.topology import Servers, Star
from reference import pgfl as proved

SMALL = Related(clients=20, size=4, samples=(2, 6), spread=0.3, noise=0.2, test=20)
NOT_FINITE = (np.nan, np.inf)
GRAPH = Servers(servers=5, mean_degree=2.4, clusters=3)


def played(algorithm, topology=GRAPH, rounds=250, problem=SMALL, seed=1, privacy=None):
    """The tables after some rounds of the plain engine, and their setup."""
    federation = Federation(problem, algorithm, topology, rounds=rounds, seed=seed, engine="plain", privacy=privacy)
    instance = federation.instance()
    federation.engine_of(instance).advance(0, rounds)
    return instance.plan.tables, federation.setup(), instance


def decibels(value):
    return 10 * np.log10(value)


def solution(setup, algorithm):
    return algorithm.optima(setup, algorithm.view(setup))[0]


# --- the optimum --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["random", "ring", "complete", "grid"])
def test_the_exact_form_reaches_the_centralised_solution(shape):
    """Everyone takes part, tau = 0: below -100 dB on any connected graph of servers."""
    algorithm = Pgfl(regularisation=0.1)
    tables, setup, _ = played(algorithm, replace(GRAPH, shape=shape), rounds=240)
    mine = solution(setup, algorithm)[setup.graph.cluster]
    worst = np.max(np.sum((tables["client"].model - mine) ** 2, 1) / np.sum(mine**2, 1))
    assert decibels(worst) < -100
    assert np.allclose(tables["server"].model[setup.graph.server, setup.graph.cluster], mine, atol=1e-5)


def test_it_gets_there_at_a_linear_rate():
    algorithm = Pgfl(regularisation=0.1)
    federation = Federation(SMALL, algorithm, GRAPH, rounds=250, every=10, engine="plain")
    rounds, deviation = np.array(federation.run().curve("deviation")).T
    rate = proved.linear_rate(rounds[5:], deviation[5:])
    assert rate.factor < 0.97 and rate.fit > 0.98


def test_servers_without_clients_of_a_cluster_pass_it_on():
    """A path of servers of which the middle one has no client of cluster 0."""
    problem = Related(clients=9, tasks=2, size=3, samples=(2, 4), test=5)
    algorithm = Pgfl(regularisation=0.1)
    for seed in range(1, 40):
        setup = Federation(problem, algorithm, Servers(servers=3, mean_degree=1.34, clusters=2), seed=seed).setup()
        middle = int(np.argmax(setup.graph.links().degree))
        lacking = set(range(2)) - set(setup.graph.cluster[setup.graph.server == middle])
        if lacking:
            break
    tables, setup, _ = played(algorithm, Servers(servers=3, mean_degree=1.34, clusters=2), 600, problem, seed)
    assert lacking
    mine = solution(setup, algorithm)[setup.graph.cluster]
    assert decibels(np.mean((tables["client"].model - mine) ** 2)) < -100


def test_asking_some_clients_reaches_the_same_solution():
    algorithm = Pgfl(regularisation=0.1, some=2)
    tables, setup, _ = played(algorithm, rounds=700, problem=replace(SMALL, clients=15))
    mine = solution(setup, algorithm)[setup.graph.cluster]
    assert decibels(np.mean(np.sum((tables["client"].model - mine) ** 2, 1) / np.sum(mine**2, 1))) < -60


def test_logistic_clusters_reach_their_solution():
    problem = replace(SMALL, loss="logistic", relation="turned", spread=1.0)
    algorithm = Pgfl(penalty=0.4, regularisation=0.3)
    tables, setup, _ = played(
        algorithm, Servers(servers=3, shape="ring", clusters=2), 300, replace(problem, clients=12, tasks=2)
    )
    mine = solution(setup, algorithm)[setup.graph.cluster]
    assert decibels(np.mean(np.sum((tables["client"].model - mine) ** 2, 1) / np.sum(mine**2, 1))) < -100


def test_the_optimum_stays_where_it_is():
    """Started there, with its duals, the exact form does not move."""
    algorithm = Pgfl(regularisation=0.1, start="optimum")
    tables, setup, _ = played(algorithm, rounds=5)
    assert np.allclose(tables["client"].model, solution(setup, algorithm)[setup.graph.cluster], atol=1e-11)


# --- as published -------------------------------------------------------------------------------------------


def slow_published(setup, penalty, regularisation, tau, rounds, cluster, clusters):
    """(4) to (10) in matrices, for clients whose cluster is not negative."""
    graph, (shards,) = setup.graph, segments(setup.task)[0]
    size, links = setup.task.size, setup.graph.links()
    near = np.eye(graph.servers)
    near[links.receivers, links.senders] = 1
    base = np.zeros((graph.servers, clusters, size))
    dual, model = np.zeros((graph.clients, size)), np.zeros((graph.clients, size))
    count = np.bincount(graph.server)
    for _ in range(rounds):
        for k in range(graph.clients):
            if cluster[k] >= 0:
                x, y = shards.of(k)
                hessian = 2 * x.T @ x / len(y) + (2 * regularisation / count[graph.server[k]] + penalty) * np.eye(size)
                pull = 2 * x.T @ y / len(y) + dual[k] + penalty * base[graph.server[k], cluster[k]]
                model[k] = np.linalg.solve(hessian, pull)
        hat = np.zeros_like(base)
        for q in range(clusters):
            means = {}
            for s in range(graph.servers):
                who = [k for k in range(graph.clients) if graph.server[k] == s and cluster[k] == q]
                if who:
                    means[s] = np.mean([model[k] - dual[k] / penalty for k in who], 0)
            for s in range(graph.servers):
                around = [means[p] for p in means if near[s, p]]
                if around:
                    hat[s, q] = np.mean(around, 0)
        for q in range(clusters):
            others = [hat[:, r] for r in range(clusters) if r != q]
            base[:, q] = (1 - tau) * hat[:, q] + tau * np.mean(others, 0) if others else hat[:, q]
        for k in range(graph.clients):
            if cluster[k] >= 0:
                dual[k] += penalty * (base[graph.server[k], cluster[k]] - model[k])
    return model, base


@pytest.mark.parametrize("tau", [0.0, 0.4])
def test_the_published_form_is_a_slow_loop(tau):
    tables, setup, _ = played(Pgfl(form="published", tau=tau), rounds=12)
    model, base = slow_published(setup, 4.0, 0.01, tau, 12, setup.graph.cluster, 3)
    assert np.allclose(tables["client"].model, model, atol=1e-10)
    assert np.allclose(tables["server"].model, base, atol=1e-10)


def test_the_published_form_stops_short_of_the_optimum():
    algorithm = Pgfl(form="published", regularisation=0.1)
    tables, setup, _ = played(algorithm, rounds=200)
    mine = solution(setup, algorithm)[setup.graph.cluster]
    stuck = decibels(np.mean(np.sum((tables["client"].model - mine) ** 2, 1) / np.sum(mine**2, 1)))
    assert -60 < stuck < -10


def test_a_penalty_at_which_it_diverges_is_refused_unless_forced():
    algorithm = Pgfl(form="published", regularisation=1.0, penalty=0.05)
    federation = Federation(SMALL, algorithm, GRAPH, rounds=150, every=150, engine="plain")
    with pytest.raises(BadInput, match="below which") as caught:
        federation.run()
    assert caught.value.key == "algorithm.penalty"
    least = float(caught.value.right.split()[2].rstrip(","))
    forced = federation.with_(algorithm=replace(algorithm, force=True)).run()
    assert forced.final("deviation") > 100 and forced.theory["growth_of_errors"] > 1
    near = federation.with_(algorithm=replace(algorithm, penalty=1.05 * least)).run()
    assert near.final("deviation") < 1
    beyond = federation.with_(algorithm=replace(algorithm, penalty=0.8 * least, force=True), rounds=600, every=150)
    curve = [value for _, value in beyond.run().curve("deviation")]
    assert curve[-1] > curve[-2] > curve[-3]


# --- special cases ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["exact", "published"])
def test_one_cluster_is_gfl(form):
    ours, _, _ = played(Pgfl(form=form, tau=0.4), replace(GRAPH, clusters=1), 30)
    gfl, _, _ = played(Gfl(form=form, tau=0.4), GRAPH, 30)
    assert np.allclose(ours["client"].model, gfl["client"].model, atol=1e-8)


@pytest.mark.parametrize("form", ["exact", "published"])
def test_one_server_is_cluster_fl(form):
    ours, _, _ = played(Pgfl(form=form, tau=0.4), Servers(servers=1, clusters=3), 30)
    alone, _, _ = played(ClusterFl(form=form, tau=0.4), Star(clusters=3), 30)
    assert np.allclose(ours["client"].model, alone["client"].model, atol=1e-8)


def test_cluster_fl_is_every_server_alone():
    together, setup, _ = played(ClusterFl(form="published"), GRAPH, 15)
    graph = setup.graph
    apart = Federation(SMALL, ClusterFl(), Servers(servers=5, shape="none", clusters=3)).setup()
    assert np.array_equal(apart.graph.server, graph.server) and len(apart.graph.links().senders) == 0
    model, _ = slow_published(apart, 4.0, 0.01, 0.0, 15, graph.cluster, 3)
    assert np.allclose(together["client"].model, model, atol=1e-8)


@pytest.mark.parametrize("form", ["exact", "published"])
def test_without_borrowing_a_cluster_is_alone(form):
    """tau = 0: other clusters' data, whatever they are, change nothing."""
    tables, setup, instance = played(Pgfl(form=form), rounds=20)
    q = setup.graph.cluster
    others = np.flatnonzero(np.repeat(q, segments(setup.task)[0][0].sizes) != 0)
    setup.task.source.y[others] *= -7
    changed = Pgfl(form=form).plan(setup)
    instance = instance._replace(plan=changed, task=setup.task)
    Federation(SMALL, Pgfl(), GRAPH, engine="plain").engine_of(instance).advance(0, 20)
    same = changed.tables["client"].model[q == 0]
    assert np.allclose(same, tables["client"].model[q == 0], atol=1e-8)
    assert not np.allclose(changed.tables["client"].model[q == 1], tables["client"].model[q == 1], atol=1e-2)


def test_a_published_cluster_alone_is_a_slow_loop_of_its_clients():
    tables, setup, _ = played(Pgfl(form="published"), rounds=15)
    alone = np.where(setup.graph.cluster == 2, 0, -1)
    model, _ = slow_published(setup, 4.0, 0.01, 0.0, 15, alone, 1)
    assert np.allclose(tables["client"].model[alone == 0], model[alone == 0], atol=1e-8)


# --- who is asked, and privacy ------------------------------------------------------------------------------


def test_servers_ask_as_many_as_they_should():
    federation = Federation(SMALL, Pgfl(some=2), GRAPH, rounds=40, every=40, engine="plain")
    result = federation.run()
    assert result.final("parameters.client-server") == 40 * 5 * 2 * SMALL.size
    tables, _, _ = played(Pgfl(some=2), rounds=40)
    assert np.all(tables["server"].mix.heard == 1)  # all were asked at some time
    everyone, _, _ = played(Pgfl(some=5), rounds=5)
    all_asked, _, _ = played(Pgfl(), rounds=5)
    assert np.array_equal(everyone["client"].model, all_asked["client"].model)


def test_three_of_fifteen_are_asked_everyone_as_often():
    counts, pairs = np.zeros(15), np.zeros((15, 15))
    for n in range(3000):
        asked = np.zeros(15, np.int64)
        choose(asked, 15, 3, key_of(5, 2, n))
        assert asked.sum() == 3
        counts += asked
        pairs += np.outer(asked, asked)
    assert chisquare(counts).pvalue > 1e-3
    assert chisquare(pairs[np.triu_indices(15, 1)]).pvalue > 1e-3  # any two together as often as any other two


def dynamic(phi, zeta, rounds, gradient=1.0):
    """Dynamic zCDP as the article has it: phi_0 in the first round, the variance times zeta after each."""
    total = phi * sum(zeta**-n for n in range(rounds))
    schedule = "geometric" if zeta < 1 else "constant"
    return Privacy(rho=total, schedule=schedule, zeta=zeta, clip=gradient, enforce=False)


def test_noise_is_paid_for_by_those_who_speak():
    """phi(n) = phi_0 / zeta^n each time a client speaks, (43) and (47); who is not asked pays nothing."""
    privacy = dynamic(0.01, 0.9, 6, gradient=2.0)
    tables, setup, _ = played(Pgfl(), rounds=6, privacy=privacy)
    client = tables["client"]
    reach = client.protect.change[:, 0] / 4.0
    assert np.allclose(client.protect.spent, 0.01 * sum(0.9**-n for n in range(6)))
    sizes = segments(setup.task)[0][0].sizes
    assert np.allclose(reach, proved.sensitivity(2.0, 4.0, sizes))
    assert np.allclose(client.protect.noise[:, 0] ** 2, reach**2 / (2 * 0.01))
    drift = (client.protect.told - client.model) / (client.protect.noise * 0.9**2.5)
    assert abs(np.std(drift) - 1) < 0.15
    some, _, _ = played(Pgfl(some=1), rounds=1, privacy=privacy)
    assert np.sum(some["client"].protect.spent > 0) == 5


def test_who_cannot_pay_is_silent():
    privacy = dynamic(0.01, 1.0, 2)
    federation = Federation(SMALL, Pgfl(), GRAPH, rounds=6, engine="plain", privacy=replace(privacy, releases=2))
    instance = federation.instance()
    engine = federation.engine_of(instance)
    engine.advance(0, 6)
    assert engine.messages[0] == 2 * 20 and np.allclose(instance.plan.tables["client"].protect.spent, 0.02)


def test_sensitivity_holds_for_neighbouring_data():
    """(43) with enforced bounds: replacing one sample moves a client's model by 2 C / (rho D) at most."""
    privacy = Privacy(rho=0.1, bounds=Bounds(features=1.0, target=1.0, radius=1.0))
    federation = Federation(SMALL, Pgfl(penalty=0.7), GRAPH, rounds=1, engine="plain", privacy=privacy)
    rng, moved = np.random.default_rng(0), []
    for _ in range(20):
        instances = [federation.instance(), federation.instance()]
        source = instances[1].task.source
        first = source.starts[:-1]
        setup = federation.setup()
        setup.task.source.x[first] = 9 * rng.normal(size=(20, SMALL.size))
        setup.task.source.y[first] = 9 * rng.normal(size=20)
        instances[1] = instances[1]._replace(plan=Pgfl(penalty=0.7).plan(setup), task=setup.task)
        for instance in instances:
            federation.engine_of(instance).advance(0, 1)
        one, two = (instance.plan.tables["client"] for instance in instances)
        moved.append(np.linalg.norm(one.model - two.model, axis=1) / (one.protect.change[:, 0] / 0.7))
    assert 0.05 < np.max(moved) <= 1
    worst = privacy.gradient_bound("squared", SMALL.size)
    assert np.allclose(
        one.protect.change[:, 0] / 0.7, 2 * worst / (0.7 * segments(federation.setup().task)[0][0].sizes)
    )


def test_a_minimisers_gradients_cannot_be_clipped():
    with pytest.raises(BadInput, match="minimisers") as caught:
        Federation(SMALL, Pgfl(), GRAPH, rounds=2, privacy=Privacy(rho=0.1, clip=1.0)).run()
    assert caught.value.key == "privacy.clip"


# --- theorem 2 ----------------------------------------------------------------------------------------------


def test_the_bound_28_is_its_double_sum():
    taus, eta = np.array([0.3, 0.1, 0.0, 0.5]), 1.7
    slow = [sum(taus[i] * eta * np.prod(1 - taus[i + 1 : n + 1]) for i in range(n + 1)) for n in range(len(taus))]
    assert np.allclose(theory.borrowing_bound(taus, eta), slow)
    assert np.isclose(proved.single_bound(0.5, eta), theory.borrowing_bound(np.array([0.0, 0.0, 0.5]), eta)[-1])


def test_theorem_2_is_counted_beside_a_run():
    federation = Federation(SMALL, Pgfl(form="published", tau=0.2), GRAPH, rounds=40, every=40, engine="plain")
    result = federation.run()
    assert result.theory["rounds_beyond_(28)_from_the_optimum"] == 0
    assert result.theory["rounds_beyond_(28)_from_zero"] >= 0
    impact = theory.impact(federation, "zero")
    tables, _, _ = played(Pgfl(form="published", tau=0.2), rounds=40)
    twin, _, _ = played(Pgfl(form="published"), rounds=40)
    far = np.max(np.sum((tables["server"].model - twin["server"].model) ** 2, -1))
    assert np.isclose(impact.distance[-1], far)


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, key",
    [
        ({"penalty": 0.0}, "algorithm.penalty"),
        ({"tau": 1.2}, "algorithm.tau"),
        ({"tau": (0.1, 0.2)}, "algorithm.tau"),
        ({"form": "exakt"}, "algorithm.form"),
        ({"some": -1}, "algorithm.some"),
        ({"decay": 0.0}, "algorithm.decay"),
        ({"start": "here"}, "algorithm.start"),
        ({"regularisation": -0.1}, "algorithm.regularisation"),
        *(({key: v}, f"algorithm.{key}") for key in ("penalty", "edge_penalty", "regularisation") for v in NOT_FINITE),
        ({"curvature": np.nan}, "algorithm.curvature"),
    ],
)
def test_bad_numbers_are_sentences(change, key):
    with pytest.raises(BadInput) as caught:
        Federation(SMALL, replace(Pgfl(), **change), GRAPH, rounds=5).run()
    assert caught.value.key == key


def test_a_graph_in_pieces_is_for_cluster_fl_only(tmp_path):
    broken = Servers(servers=5, shape="none", clusters=3)
    with pytest.raises(BadInput, match="one piece"):
        Federation(SMALL, Pgfl(), broken, rounds=2).run()
    Federation(SMALL, ClusterFl(), broken, rounds=2, engine="plain").run()
    groups = tmp_path / "groups.csv"
    groups.write_text("client,cluster\n" + "".join(f"{k},{k % 3}\n" for k in range(19)))
    with pytest.raises(BadInput, match="19"):
        Federation(SMALL, Pgfl(), replace(GRAPH, groups=str(groups)), rounds=2).run()
    groups.write_text("client,cluster\n" + "".join(f"{k},{k % 2}\n" for k in range(20)))
    with pytest.raises(BadInput, match="in every cluster"):
        Federation(SMALL, Pgfl(), replace(GRAPH, groups=str(groups)), rounds=2).run()


# --- engines ------------------------------------------------------------------------------------------------

TINY = Related(clients=12, tasks=2, size=4, samples=(2, 6), test=9)
RING = Servers(servers=3, shape="ring", clusters=2)
ROUGH = Environment(availability=0.7)
TABLE = {
    "exact": Federation(TINY, Pgfl(some=2, tau=0.3), RING, rounds=12),
    "exact-rough": Federation(TINY, Pgfl(), RING, environment=ROUGH, rounds=12),
    "published": Federation(TINY, Pgfl(form="published", tau=0.3, decay=0.9), RING, rounds=12),
    "private": Federation(TINY, Pgfl(form="published", some=2), RING, privacy=dynamic(0.01, 0.9, 12), rounds=12),
    "logistic": Federation(replace(TINY, loss="logistic"), Pgfl(penalty=0.5), RING, rounds=12),
    "gfl": Federation(TINY, Gfl(), RING, rounds=12),
    "clusterfl": Federation(TINY, ClusterFl(tau=0.2), RING, rounds=12),
    "changing": Federation(replace(TINY, change=6, moved=0.5), Pgfl(), RING, rounds=12),
}


@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_engines_agree(name):
    check_algorithm(TABLE[name], parallel=True)
