"""Clients that lie: what they say is what their kind of attack says, in every engine; everyone else does as before."""

from dataclasses import replace

import numpy as np
import pytest

from archipel import Algorithm, Delay, Drifting, Environment, Federation, Linear
from archipel.algorithms.fedavg import FedAvg
from archipel.algorithms.mirror import DualAveraging, MirrorDescent
from archipel.algorithms.online import OnlineFed, PaoFed
from archipel.environment import ATTACKS, Attack
from archipel.errors import BadInput
from archipel.node import leaves, named_leaves
from archipel.parts.learn.online import OnlineStep
from archipel.parts.mix.robust import CentredClipping, Median
from archipel.parts.protect.individual import Individual
from archipel.parts.protect.mix import AtMix
from archipel.parts.protect.summed import Summed
from archipel.parts.protect.word import AtWord
from archipel.parts.share.portions import Portions
from archipel.parts.share.quantised import Quantised
from archipel.parts.share.signs import Signs
from archipel.parts.share.top_k import TopK
from archipel.parts.share.whole import Whole
from archipel.privacy.policy import Privacy
from archipel.problems.losses.online import ONLINE_LOSSES
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_engines_agree
from archipel.topology import Digraph, Peers, Servers, Star
from reference.engine import ReferenceEngine

DATA = Linear(clients=10, size=5, samples=40, test=20)
ROUGH = Environment(availability=0.7, delay=Delay(delta=0.4, limit=3))
FORGED = [kind for kind in ATTACKS if kind != "labels"]
GRAPHS = {
    "star": Star(),
    "servers": Servers(servers=3, shape="complete"),
    "peers": Peers(mean_degree=4),
    "digraph": Digraph(),
}


def lied_to(kind, algorithm, topology, share=0.3, strength=0.0, environment=ROUGH, **more):
    environment = replace(environment, attack=Attack(share, kind, strength))
    return Federation(DATA, algorithm, topology, environment, rounds=12, precision="float64", **more)


def assert_reference_agrees(federation):
    ours, theirs = federation.instance(), federation.instance()
    plain, slow = PlainEngine(ours), ReferenceEngine(theirs)
    for engine in (plain, slow):
        engine.advance(0, federation.rounds)
    for role, table in ours.plan.tables.items():
        for (field, mine), other in zip(named_leaves(table), leaves(theirs.plan.tables[role])):
            assert np.allclose(mine, other, rtol=1e-9, atol=1e-12, equal_nan=True), (role, field)
    assert plain.messages == slow.messages


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ATTACKS)
def test_lies_are_what_the_reference_says(kind, graph):
    assert_reference_agrees(lied_to(kind, PaoFed(step=0.1, portion=2), GRAPHS[graph]))
    assert_reference_agrees(lied_to(kind, OnlineFed(step=0.1, mix=Median()), GRAPHS[graph]))


@pytest.mark.parametrize("share", [TopK(2), TopK(2, feedback=False), Portions(2), Whole(True), Quantised(), Signs(0.1)])
def test_a_lie_that_is_the_truth_changes_nothing(share):
    """What a liar writes takes the place of what it wrote as everyone does: a memory counts a change once."""
    algorithm = Algorithm(learn=OnlineStep(0.1), share=share)
    lied = lied_to("scaled", algorithm, Star(), share=0.5, strength=1.0, engine="plain")
    models = [federation.run().models[0] for federation in (lied, lied.with_(environment=ROUGH))]
    for role in models[0]:
        np.testing.assert_allclose(models[0][role], models[1][role], atol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "a-little-is-enough"])
def test_lies_about_changes_and_protected_words(kind):
    privacy = Privacy(epsilon=5.0, clip=0.5, unit="client")
    assert_reference_agrees(lied_to(kind, Algorithm(share=Whole(True), mix=CentredClipping()), Star()))
    assert_reference_agrees(lied_to(kind, Algorithm(protect=AtWord()), Peers(), privacy=privacy))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", FORGED)
def test_lies_are_about_what_is_shared_in_place_of_a_model(kind, graph):
    """Dual averaging shares sums of gradients; its models follow from them."""
    drifting = Drifting(clients=10, size=5)
    lied = lied_to(kind, DualAveraging(), GRAPHS[graph]).with_(problem=drifting)
    assert_reference_agrees(lied)
    true = lied.with_(environment=ROUGH)
    models = [federation.with_(engine="plain").run().models[0] for federation in (lied, true)]
    assert all(np.abs(models[0][role] - models[1][role]).max() > 0.01 for role in models[0])


def test_a_sign_flip_of_everyone_turns_the_sums_around():
    """One round, everyone there: the server has heard -strength times the mean gradient, and the liars know better."""
    drifting, attack = Drifting(clients=10, size=5), Attack(1.0, "sign-flip", 3.0)
    tables = []
    for environment in (Environment(attack=attack), Environment()):
        instance = Federation(drifting, DualAveraging(), Star(), environment, rounds=1).instance()
        PlainEngine(instance).advance(0, 1)
        tables.append(instance.plan.tables)
    (forged, lied), (true, told) = ((table["server"].learn.mean, table["client"].learn.mean) for table in tables)
    assert np.allclose(forged, -3 * true, atol=1e-12) and np.array_equal(lied, told)


def test_engines_tell_the_same_lies_about_sums():
    federation = lied_to("a-little-is-enough", DualAveraging(), Peers()).with_(problem=Drifting(clients=10, size=5))
    check_engines_agree(federation, parallel=False)


@pytest.mark.parametrize("kind", ["gaussian", "a-little-is-enough", "labels"])
def test_engines_tell_the_same_lies(kind):
    check_engines_agree(lied_to(kind, OnlineFed(step=0.1, mix=Median()), Star()), parallel=True)


@pytest.mark.long
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ATTACKS)
def test_engines_tell_the_same_lies_everywhere(kind, graph):
    check_engines_agree(lied_to(kind, PaoFed(step=0.1, portion=2), GRAPHS[graph]), parallel=True)


def test_who_lies_is_drawn_by_the_seed_and_as_many_as_the_share_says():
    attack = Attack(0.3)
    drawn = [attack.liars(10, seed) for seed in range(20)]
    assert all(liars.sum() == 3 for liars in drawn) and len({tuple(liars) for liars in drawn}) > 10
    assert np.array_equal(drawn[3], attack.liars(10, 3)) and not Attack(0.0).liars(10, 1).any()


def test_a_sign_flip_of_everyone_walks_uphill():
    federation = lied_to("sign-flip", OnlineFed(step=0.05), Star(), share=1.0, strength=1.0, environment=Environment())
    honest = federation.with_(environment=Environment())
    forged, true = federation.instance(), honest.instance()
    for instance in (forged, true):
        PlainEngine(instance).advance(0, 1)
    assert np.allclose(forged.plan.tables["server"].model, -true.plan.tables["server"].model, atol=1e-12)
    assert np.array_equal(forged.plan.tables["client"].model, true.plan.tables["client"].model)


def test_little_and_inner_product_equal_their_formulas():
    for kind, expected in (
        ("a-little-is-enough", lambda c: c.mean(0) - 2 * c.std(0)),
        ("inner-product", lambda c: -2 * c.mean(0)),
    ):
        federation = lied_to(kind, OnlineFed(step=0.05), Star(), 0.3, 2.0, Environment())
        instance = federation.instance()
        engine = PlainEngine(instance)
        engine.advance(0, 1)  # all models were zero before it
        liars = federation.environment.attack.liars(10, 1) > 0
        said = engine.rounds.mails[1].words.values
        models = instance.plan.tables["client"].model
        spoke = engine.rounds.mails[1].lates == 0
        assert np.allclose(said[liars & spoke], expected(models[~liars & spoke]))
        assert np.array_equal(said[~liars & spoke], models[~liars & spoke])


def test_labels_are_turned_around_for_liars_only():
    federation = lied_to("labels", OnlineFed(), Star())
    liars = federation.environment.attack.liars(10, 1) > 0
    true, lied = federation.with_(environment=Environment()).setup().task, federation.setup().task
    from archipel.node import Moment, emptied

    for k in range(10):
        moment = Moment(k, 0, 1, -1, 1, True, 1.0)
        (there, one), (_, other) = (task.observe(task.source, emptied(task.sample), moment) for task in (true, lied))
        assert not there or other.target[0] == (-one.target[0] if liars[k] else one.target[0])


def test_stored_labels_too():
    from archipel.problems.poisoned import turned_around

    task = Linear(clients=4, size=3, samples=5, loss="logistic").task(1, 5, np.float64, "stored")
    lied = turned_around(task, np.array([0, 1, 0, 0], np.uint8))
    assert np.array_equal(lied.source.y[5:10], -task.source.y[5:10])
    assert np.array_equal(np.delete(lied.source.y, range(5, 10)), np.delete(task.source.y, range(5, 10)))
    digits = task._replace(source=task.source._replace(y=np.arange(20.0) % 10))
    assert turned_around(digits, np.array([1, 0, 0, 0], np.uint8)).source.y[:5].tolist() == [9, 8, 7, 6, 5]


@pytest.mark.parametrize("loss", ONLINE_LOSSES)
def test_labels_are_turned_around_or_refused_where_there_are_none(loss):
    """Liars among all move what is learned; a slope and a point have no label, and the attack would be none."""
    federation = lied_to("labels", MirrorDescent(), Star(), environment=Environment())
    federation = federation.with_(problem=Drifting(clients=10, size=5, loss=loss), engine="plain")
    if loss in ("linear", "distance"):
        with pytest.raises(BadInput, match=r"environment\.attack\.kind .*no target to turn around"):
            federation.setup()
    else:
        lied, true = federation.run(), federation.with_(environment=Environment()).run()
        assert np.abs(lied.models[0]["server"] - true.models[0]["server"]).max() > 1e-3


def test_what_cannot_be_attacked_says_so(tmp_path):
    from archipel import SignSgd
    from archipel.deploy.fleet import Fleet
    from archipel.deploy.view import view_of

    federation = lied_to("gaussian", OnlineFed(), Star())
    with pytest.raises(BadInput, match="only the simulator plays clients that lie"):
        view_of(federation, "server")
    with pytest.raises(BadInput, match="only the simulator plays clients that lie"):
        Fleet(tmp_path / "f.toml", federation, tmp_path)
    with pytest.raises(BadInput, match=r"environment\.attack\.kind"):
        Attack(kind="rude")
    with pytest.raises(BadInput, match="others are told a direction, and lies are about models"):
        federation.with_(algorithm=SignSgd(), precision="").instance()


@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("protect", [AtMix(), Individual(), Summed(colluding=0.1)])
def test_a_sum_in_which_liars_repeat_what_others_say_is_not_called_private(protect, kind):
    """At epsilon 4 a client moved a noised sum by more than its clip: twice the zCDP that was paid."""
    relation = "add-remove" if isinstance(protect, Individual) else "replace-one"
    privacy = Privacy(epsilon=4.0, clip=0.5, unit="client", relation=relation)
    lies = replace(Environment(), attack=Attack(0.3, kind))
    instance = Federation(DATA, FedAvg(protect=protect), Star(), lies, privacy, rounds=3).instance()
    unpaid = isinstance(protect, Individual) and kind != "labels"  # longer than what its liar paid for
    heard = kind in ("a-little-is-enough", "inner-product")
    assert instance.plan.accountant.terms.how == ("assumed" if heard or unpaid else "enforced")


def test_liars_who_repeat_noised_words_cost_nothing_more():
    """What honest clients say has been noised, and paid for."""
    lies = replace(Environment(), attack=Attack(0.3, "a-little-is-enough"))
    algorithm, privacy = OnlineFed(protect=AtWord()), Privacy(epsilon=4.0, clip=0.5)
    federation = Federation(DATA, algorithm, Star(), lies, privacy, rounds=3)
    assert federation.instance().plan.accountant.terms.how == "enforced"
