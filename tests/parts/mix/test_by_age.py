"""By age, of changes: they move a model, by the mean of each age."""

import numpy as np
import pytest

from archipel import Delay, Environment, FedAvg, Federation, Linear, PaoFed
from archipel.node import Edge, Moment, emptied
from archipel.parts import Node, Place, Settings
from archipel.parts.mix.by_age import ByAge
from archipel.parts.mix.mean import Mean
from archipel.parts.share.quantised import Quantised
from archipel.parts.share.top_k import TopK
from archipel.parts.share.whole import Whole
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_engines_agree
from archipel.topology import Servers, Star
from archipel.turns import Setup

DATA = Linear(clients=6, size=5, samples=12)
GRAPHS = {"star": Star(), "servers": Servers(servers=2, shape="complete")}


class Task:
    size, clients = 4, 5


def played(algorithm, topology):
    instance = Federation(DATA, algorithm, topology, rounds=12, precision="float64").instance()
    PlainEngine(instance).advance(0, 12)
    return instance.plan.tables["server"].model


@pytest.mark.parametrize("graph", GRAPHS)
def test_with_everyone_there_changes_say_what_models_say(graph):
    models, changes = (played(FedAvg(share=Whole(change), mix=ByAge()), GRAPHS[graph]) for change in (False, True))
    np.testing.assert_allclose(changes, models, atol=1e-12)


@pytest.mark.parametrize("share", [TopK(2), Quantised(4), Whole(True)])
def test_pao_fed_of_changes_is_their_mean_where_nothing_is_late(share):
    """Its own mix is by age."""
    own, mean = (played(PaoFed(share=share, mix=mix), Star()) for mix in (None, Mean()))
    np.testing.assert_allclose(own, mean, atol=1e-12)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("recent", [False, True])
def test_changes_of_several_ages_move_the_model_by_their_weights(recent, own):
    """Against a loop over what was said; with weights of their own, sums take the place of means."""
    setup, draw = Setup(Task, None, np.float64, 10, 1), np.random.default_rng(3)
    share = Whole(True).make(setup)
    piece = ByAge(0.5, recent, 3).make(setup, share, Place(1, 5, own, False, True, 4, np.float64))
    settings = Settings(None, None, share.settings, piece.settings, None, 1.0, 0)
    inbox, model, ages = emptied(piece.inbox), draw.standard_normal(4), (1, 3, 1, 3, 3)
    changes, weights = draw.standard_normal((5, 4)), (0.1, 0.3, 0.2, 0.1, 0.2) if own else np.ones(5)
    for k, (age, change) in enumerate(zip(ages, changes)):
        word = emptied(share.word)
        word.values[:] = change
        piece.hear(inbox, word, settings, Edge(k, weights[k], age, 0, k))
    expected = model.copy()
    for age in (1,) if recent else (1, 3):
        said = [weight * change for weight, change, late in zip(weights, changes, ages) if late == age]
        expected += 0.5**age * np.sum(said, 0) / (1 if own else len(said))
    piece.finish(Node(model, model, *[None] * 5), inbox, settings, Moment(0, 0, 1, -1, 1, True, 1.0))
    np.testing.assert_allclose(model, expected, atol=1e-14)


def test_engines_agree_on_late_changes():
    rough = Environment(availability=0.7, delay=Delay(delta=0.4, limit=3))
    federation = Federation(DATA, PaoFed(share=TopK(2)), GRAPHS["servers"], rough, rounds=12, precision="float64")
    check_engines_agree(federation, parallel=False)
