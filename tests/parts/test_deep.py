"""Learners as parts: on all topologies against matrices, noise at the mix, servers that draw, deployed as simulated."""

import numpy as np
import pytest
from scipy import stats

from archipel import Delay, Environment, Federation, Linear, Synthetic
from archipel.algorithms.composed import Algorithm
from archipel.algorithms.deep import DpFedAvgDeep, FedAvgDeep, MirrorDeep
from archipel.algorithms.online import OnlineFed
from archipel.algorithms.pldp_fl import PldpFl
from archipel.draws import SELECTED, key_of, uniform
from archipel.errors import BadInput
from archipel.node import Edge
from archipel.parts.ask.drawn import Drawn
from archipel.parts.learn.deep import DpSgd, GradientStep
from archipel.parts.learn.online import OnlineStep
from archipel.parts.mix.mean import Mean
from archipel.parts.protect.batch import AtBatch
from archipel.parts.protect.in_turn import InTurn
from archipel.parts.protect.mix import AtMix
from archipel.parts.protect.personal import Personal
from archipel.parts.protect.word import AtWord
from archipel.parts.share.portions import Portions
from archipel.parts.share.whole import Whole
from archipel.privacy.noise import SecureSource, noise_from, secret_uniform
from archipel.privacy.policy import Privacy
from archipel.testing import check_algorithm
from archipel.topology import Digraph, Peers, Servers, Star, matrix
from reference.sampling import sampled

SMALL = Linear(clients=6, size=4, samples=30, test=20)
RING = Servers(servers=3, shape="ring")
LATE = Environment(availability=(0.9, 0.7), delay=Delay(delta=0.4, limit=3))


def prepared(algorithm, rounds, topology=None, problem=SMALL, **more):
    federation = Federation(problem, algorithm, topology or Star(), rounds=rounds, precision="float64", **more)
    instance = federation.instance(1)
    return instance, federation.engine_of(instance)


def trained(source, models, step):
    """One step of everyone on all its samples."""
    found = []
    for k, model in enumerate(models):
        mine = slice(source.starts[k], source.starts[k + 1])
        x, y = source.x[mine], source.y[mine]
        found.append(model - step * 2 * x.T @ (x @ model - y) / len(y))
    return np.array(found)


# --- topologies -----------------------------------------------------------------------------------------------------


def test_peers_gossip_what_local_training_made():
    """D-PSGD: w' = W trained(w), with Metropolis weights."""
    instance, engine = prepared(FedAvgDeep(0.05, 30), 8, Peers(shape="ring"))
    mix, models = matrix(instance.graph.links()), np.zeros((6, 4))
    mix += np.diag(1 - mix.sum(1))
    for n in range(8):
        models = mix @ trained(instance.task.source, models, 0.05)
        engine.advance(n, n + 1)
        assert instance.plan.tables["peer"].model == pytest.approx(models, abs=1e-12)
    assert np.ptp(models, axis=0).max() > 1e-3


def test_one_way_links_push_what_local_training_made():
    """Stochastic gradient push: x' = W (w z), w' = W w, and z is x / w; a change counts over the mass."""
    instance, engine = prepared(FedAvgDeep(0.05, 30), 8, Digraph(mean_degree=2.0, shares="random"))
    mix, models, mass = matrix(instance.graph.links()), np.zeros((6, 4)), np.ones(6)
    for n in range(8):
        change = trained(instance.task.source, models, 0.05) - models
        models = models + change / np.maximum(mass, 0.5)[:, None]
        models, mass = mix @ (mass[:, None] * models), mix @ mass
        models /= mass[:, None]
        engine.advance(n, n + 1)
        assert instance.plan.tables["peer"].model == pytest.approx(models, abs=1e-12)
        assert instance.plan.tables["peer"].mix.mass[:, 0] == pytest.approx(mass, abs=1e-12)


@pytest.mark.parametrize("algorithm", [FedAvgDeep(0.05, 30), MirrorDeep("none", batch=30, step=0.05)])
def test_several_servers_average_their_clients_and_then_each_other(algorithm):
    instance, engine = prepared(algorithm, 6, RING)
    mix, servers = matrix(instance.graph.links()), np.zeros((3, 4))
    mix += np.diag(1 - mix.sum(1))
    for n in range(6):
        local = trained(instance.task.source, servers[instance.graph.server], 0.05)
        servers = mix @ np.stack([local[instance.graph.server == s].mean(0) for s in range(3)])
        engine.advance(n, n + 1)
        assert instance.plan.tables["server"].model == pytest.approx(servers, abs=1e-12)


def test_mirror_descent_with_a_server_is_fedavg_with_one_step():
    mirror, one = prepared(MirrorDeep("none", batch=30, step=0.05), 5)
    average, two = prepared(FedAvgDeep(0.05, 30, local_steps=1), 5)
    one.advance(0, 5)
    two.advance(0, 5)
    assert mirror.plan.tables["server"].model == pytest.approx(average.plan.tables["server"].model, abs=1e-12)


def test_late_changes_count_up_to_the_limit():
    """A change that is late by the limit moves the model; one that is later does not."""
    always = Environment(delay=Delay("fixed", rounds=2, limit=2))
    for limit, learns in ((1, False), (2, True)):
        instance, engine = prepared(FedAvgDeep(0.05, 30, limit=limit), 6, environment=always)
        engine.advance(0, 6)
        assert instance.plan.tables["server"].model.any() == learns


# --- noise at the mix -----------------------------------------------------------------------------------------------


CENTRAL = Privacy(epsilon=8.0, unit="client", relation="add-remove", clip=0.5)
AVERAGED = {"protect": AtMix(), "share": Whole(change=True), "mix": Mean(0)}
STREAM = Synthetic(clients=8, features=10, test=20, horizon=60, samples=(60,))


def test_online_kinds_are_protected_at_the_mix_compiled_as_plain():
    federation = Federation(STREAM, OnlineFed(step=0.2, asked=0.6, **AVERAGED), privacy=CENTRAL, rounds=20, every=20)
    check_algorithm(federation)
    result = federation.run()
    assert 7.9 < result.ledgers[0]["worst"]["epsilon"] <= 8.0 and result.ledgers[0]["unit"] == "client"
    nodes = federation.with_(topology=RING, engine="plain").run().ledgers[0]["nodes"]
    assert [node["node"] for node in nodes] == [f"every client of server {s}" for s in range(3)]
    assert {node["releases"] for node in nodes} == {20}


def test_without_a_target_it_is_counted_in_zcdp():
    noise = Privacy(noise=2.0, unit="client", relation="add-remove", clip=0.5)
    result = Federation(STREAM, OnlineFed(step=0.2, asked=0.6, **AVERAGED), privacy=noise, rounds=20, every=20).run()
    assert result.ledgers[0]["nodes"][0]["spent"]["rho"] == pytest.approx(20 * 0.25**2 / 2)


def test_that_nobody_sees_whom_a_server_asks_is_assumed_where_it_makes_sums_cheaper():
    """Who watches the network sees it. Counted in zCDP, where asking in secret makes nothing cheaper, it may."""
    in_zcdp = Privacy(rho=0.5, unit="client", relation="add-remove", clip=0.5)
    for protect in (AtMix(), InTurn(every=2)):
        for asked, privacy, how in ((1.0, CENTRAL, "enforced"), (0.5, CENTRAL, "assumed"), (0.5, in_zcdp, "enforced")):
            if privacy is in_zcdp and isinstance(protect, InTurn):
                continue  # it takes an epsilon
            algorithm = OnlineFed(asked=asked, **(AVERAGED | {"protect": protect}))
            accountant = Federation(STREAM, algorithm, privacy=privacy, rounds=4).instance().plan.accountant
            assert accountant.terms.how == how
            watched = [held.how for held in accountant.terms.assumptions if "watches the network" in held.what]
            assert watched == (["assumed"] if how == "assumed" else [])
    assert prepared(DpFedAvgDeep(0.1, 30), 4)[0].plan.accountant.terms.how == "assumed"
    assert prepared(DpFedAvgDeep(0.1, 30, asked=1.0), 4)[0].plan.accountant.terms.how == "enforced"


def test_one_client_moves_a_sum_by_the_clip_at_most_and_one_without_a_norm_by_nothing():
    instance, _ = prepared(DpFedAvgDeep(0.1, 30, clip=0.3), 4)
    turn, settings = instance.plan.turns[1], instance.plan.settings
    for value in (1e-3, 1.0, 1e30, np.nan, np.inf):
        inbox = type(turn.inbox)(np.zeros(4), np.zeros(4))
        turn.hear(inbox, type(turn.word)(np.array([value, 0.0, -value, 0.0])), settings, Edge(0, 1.0, 0, 0))
        norm = np.linalg.norm(inbox.total)
        assert norm <= 0.3 and (norm > 0.29) == (1.0 <= value <= 1e30) and (norm > 0) == np.isfinite(value)


def test_who_is_asked_and_the_noise_are_secret_on_a_device():
    key = key_of(1, 2, 3)
    assert secret_uniform(key, SELECTED) == uniform(key, SELECTED)
    with noise_from(SecureSource()):
        drawn = [secret_uniform(key, SELECTED) for _ in range(200)]
    assert len({*drawn}) == 200 and stats.kstest(drawn, "uniform").pvalue > 1e-6


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"share": Whole()}, "algorithm.share.kind"),
        ({"share": Portions(4)}, "algorithm.share.kind"),
        ({"mix": Mean(3)}, "algorithm.mix"),
        ({"mix": Mean(0, by_samples=True)}, "algorithm.mix"),
        ({"ask": Drawn("uniform", 2, 0)}, "algorithm.ask.kind"),
        ({"protect": AtBatch()}, "algorithm.protect.kind"),
        ({"protect": Personal()}, "algorithm.protect.kind"),
    ],
)
def test_what_cannot_be_protected_at_the_mix_says_why(change, key):
    with pytest.raises(BadInput) as caught:
        Federation(STREAM, Algorithm(**(AVERAGED | change)), privacy=CENTRAL, rounds=5).instance()
    assert caught.value.key == key


@pytest.mark.parametrize(
    "algorithm",
    [
        Algorithm(learn=GradientStep(batch=10), protect=AtBatch(epsilon=8.0)),
        FedAvgDeep(learn=GradientStep(batch=10), protect=AtBatch(epsilon=8.0)),
        Algorithm(learn=DpSgd(batch=10), protect=Personal(), ask=Drawn("uniform", 2, 1)),
        PldpFl("uniform", batch=10, draws=2, protect=Personal()),
    ],
    ids=["at-batch", "at-batch, fedavg-deep", "personal", "personal, pldp-fl"],
)
def test_a_privacy_table_that_a_part_would_not_look_at_is_refused(algorithm):
    """Who asks for 0.1 must not get the 8 of the part."""
    assert Federation(SMALL, algorithm, rounds=4).instance().plan.accountant.forecast().epsilon.max() > 7
    with pytest.raises(BadInput) as caught:
        Federation(SMALL, algorithm, privacy=Privacy(epsilon=0.1, clip=1.0), rounds=4).instance()
    assert caught.value.key == "privacy"


def test_among_peers_nobody_is_trusted_with_a_sum():
    with pytest.raises(BadInput, match="nobody is trusted"):
        Federation(STREAM, Algorithm(**AVERAGED), Peers(), privacy=CENTRAL, rounds=5).instance()
    with pytest.raises(BadInput, match="a server that is trusted"):
        Federation(SMALL, DpFedAvgDeep(batch=30), Peers(), rounds=5)


# --- a server that draws --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "topology"), [(Whole(change=True), Star()), (Portions(4), RING)])
def test_any_composition_with_a_server_may_draw_whom_it_asks(share, topology):
    algorithm = Algorithm(learn=OnlineStep(0.2, False), share=share, ask=Drawn("uniform", 1, 2))
    check_algorithm(Federation(STREAM, algorithm, topology, LATE, rounds=12))


@pytest.mark.parametrize(
    ("algorithm", "privacy"),
    [
        (FedAvgDeep(0.05, 30, sampling="optimal", draws=2, protect=AtWord()), Privacy(epsilon=2.0, clip=0.5)),
        (MirrorDeep(batch=10, ask=Drawn("optimal", 2, 1)), None),
        (PldpFl(batch=10, learn=GradientStep(batch=10), protect=AtBatch()), None),
    ],
    ids=["at-word", "at-batch", "at-batch, pldp-fl"],
)
def test_a_gradient_norm_that_nobody_pays_for_is_not_said(algorithm, privacy):
    """G_i of algorithm 1, line 3, is of a client's data: without noise one sample moves it as far as it likes."""
    with pytest.raises(BadInput, match="no gradient norm that it may say"):
        Federation(SMALL, algorithm, privacy=privacy, rounds=4).instance()
    open_ones = Federation(SMALL, FedAvgDeep(0.05, 30, sampling="optimal", draws=2), rounds=4)
    private = Federation(SMALL, PldpFl(batch=10, draws=2), rounds=4)
    assert all("norm" in made.instance().plan.turns[1].word._fields for made in (open_ones, private))


def test_each_server_draws_its_own_clients():
    problem = Linear(clients=9, size=4, samples=30, test=20)
    instance, engine = prepared(FedAvgDeep(0.05, 30, sampling="uniform", draws=2, pretrain=0), 10, RING, problem)
    server, asked = instance.graph.server, np.zeros(9)
    for n in range(10):
        asked += sampled((server == 0) / 3, 2, 1, n) > 0  # by the first server's own key
        engine.advance(n, n + 1)
    found = instance.plan.tables["client"].share.asked[:, 0]
    assert found[server == 0].tolist() == asked[server == 0].tolist()
    assert all(10 <= found[server == s].sum() <= 20 for s in range(3))
    with pytest.raises(BadInput, match="fewer draws"):
        prepared(PldpFl("uniform", draws=2, batch=30), 4, RING)
