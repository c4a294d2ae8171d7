"""Compressed words: unbiased or contracting as their theory says, and of the size that they claim."""

import numpy as np
import pytest

from archipel import Delay, Environment, Federation, Linear, OnlineFed
from archipel.algorithms.fedavg import FedAvg
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.node import Moment, emptied, row, weight_of
from archipel.parts.mix.mean import Mean
from archipel.parts.mix.plain import Plain
from archipel.parts.mix.robust import Krum, Median
from archipel.parts.share.portions import Portions
from archipel.parts.share.quantised import Quantised
from archipel.parts.share.signs import Signs
from archipel.parts.share.top_k import TopK
from archipel.parts.share.whole import Whole
from archipel.testing import check_algorithm
from archipel.topology import Digraph, Peers

LINEAR = Linear(clients=6, size=11, samples=12)
SHARES = [Signs(0.02), Signs(0.5, bound=0.5), TopK(3), TopK(3, feedback=False), *(Quantised(b) for b in (1, 2, 4, 8))]


def sharing(share, **parts):
    return Federation(LINEAR, FedAvg(step=0.05, share=share), rounds=8, engine="plain", **parts)


class Bench:
    """A node that says changes, and what is read of them."""

    def __init__(self, share):
        self.plan = sharing(share).instance().plan
        self.node, self.piece = row(self.plan.tables["client"], 0), share.make(sharing(share).setup())

    def read(self, change, n=0):
        self.node.model[:] = self.node.before + change
        word, total, count = emptied(self.piece.word), np.zeros(11), np.zeros(11)
        settings = self.plan.settings._replace(share=self.piece.settings)
        self.piece.write(word, self.node, settings, Moment(0, n, key_of(7, 0, n), -1, 1, True, 1.0))
        self.piece.fold(total, count, word, 2.0, settings)
        assert (count == 2.0).all()
        return total / 2


VECTOR = np.random.default_rng(5).standard_normal(11) * 0.2


def test_top_k_says_the_largest_and_contracts():
    for k in (1, 3, 10, 11):
        for seed in range(20):
            vector = np.random.default_rng(seed).standard_normal(11)
            said = Bench(TopK(k, feedback=False)).read(vector)
            largest = np.argsort(-np.abs(vector))[:k]
            assert np.allclose(said[largest], vector[largest]) and np.count_nonzero(said) == k
            left = ((vector - said) ** 2).sum()
            assert left <= (1 - k / 11) * (vector**2).sum() + 1e-12  # delta = k / d


def test_what_is_said_and_remembered_is_all_that_ever_changed():
    bench, draw = Bench(TopK(2)), np.random.default_rng(6)
    changes = draw.standard_normal((40, 11))
    said = sum(bench.read(change, n) for n, change in enumerate(changes))
    np.testing.assert_allclose(said + bench.node.share.error, changes.sum(0), atol=1e-12)
    delta = 2 / 11  # Karimireddy et al., lemma 3: the memory stays bounded
    bound = 4 * (1 - delta) / delta**2 * (changes**2).sum(1).max()
    assert (bench.node.share.error**2).sum() <= bound


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_quantised_changes_are_right_on_average(bits):
    """And each is one of two neighbouring levels, so its variance is at most h^2 / 4."""
    bench, runs = Bench(Quantised(bits)), 4000
    read = np.array([bench.read(VECTOR, n) for n in range(runs)])
    step = 2 * np.abs(VECTOR).max() / (2**bits - 1)
    assert np.abs(read - VECTOR).max() <= step * (1 + 1e-9)
    assert (read.var(0) <= step**2 / 4 * 1.1).all()
    assert (np.abs(read.mean(0) - VECTOR) <= 4.5 * step / 2 / np.sqrt(runs)).all()
    assert not Bench(Quantised(bits)).read(np.zeros(11)).any()


def test_stochastic_signs_are_right_on_average():
    bound, runs = 1.0, 4000
    bench = Bench(Signs(bound, bound=bound))
    read = np.array([bench.read(VECTOR, n) for n in range(runs)])
    assert set(np.unique(read)) == {-1.0, 1.0}
    assert (np.abs(read.mean(0) - VECTOR) <= 4.5 / np.sqrt(runs)).all()
    assert np.array_equal(Bench(Signs(0.5)).read(VECTOR), 0.5 * np.sign(VECTOR))


@pytest.mark.parametrize(
    ("share", "size", "expected"),
    [
        (Signs(), 100, 13),
        (TopK(5), 100, 5 * (8 + 1)),
        (TopK(5), 300, 5 * (8 + 2)),
        (TopK(5), 70_000, 5 * (8 + 4)),
        (Quantised(4), 101, 51 + 8),
        (Quantised(2), 100, 25 + 8),
    ],
)
def test_a_word_has_the_size_of_its_bits(share, size, expected):
    described = Federation(Linear(clients=2, size=size, samples=1, test=1), FedAvg(share=share), rounds=1)
    word = share.make(described.setup()).word
    assert weight_of(word) == expected
    assert weight_of(described.instance().plan.turns[1].word) == expected + 4  # and the number of samples


def test_all_bits_or_all_components_are_the_whole_change():
    whole = sharing(Whole(change=True)).run().models[0]["server"]
    np.testing.assert_allclose(sharing(TopK(11)).run().models[0]["server"], whole, atol=1e-12)
    near = sharing(Quantised(8)).run().models[0]["server"]
    assert 0 < np.abs(near - whole).max() < 0.01


def test_with_feedback_the_largest_component_alone_learns_what_the_whole_change_does():
    models = {
        share: Federation(LINEAR, FedAvg(step=0.02, share=share), rounds=1500, every=1500, engine="plain")
        .run()
        .models[0]["server"]
        for share in (Whole(change=True), TopK(1), TopK(1, feedback=False))
    }
    whole, fed, forgetful = models.values()
    assert np.linalg.norm(fed - whole) < 0.02 * np.linalg.norm(whole)
    assert np.linalg.norm(fed - whole) < np.linalg.norm(forgetful - whole)


@pytest.mark.parametrize("topology", [Peers(shape="ring"), Digraph()])
@pytest.mark.parametrize("mix", [None, Median(), Krum(), Plain()])
@pytest.mark.parametrize("share", [TopK(2), Quantised(4), Whole(change=True)])
def test_changes_alone_never_bring_peers_together(share, mix, topology):
    """Two peers that start apart and learn nothing stay apart whatever they hear: refused, not played."""
    federation = Federation(LINEAR, FedAvg(share=share, mix=mix), topology, rounds=8)
    with pytest.raises(BadInput, match="changes alone never bring peers together"):
        federation.instance()


@pytest.mark.parametrize(
    ("share", "key"),
    [
        (TopK(12), "algorithm.share.size"),
        (Quantised(3), "algorithm.share.bits"),
        (Portions(12), "algorithm.share.size"),
        (Portions(2, download="full", ignore=11), "algorithm.share.ignore"),
    ],
)
def test_what_does_not_fit_is_refused(share, key):
    with pytest.raises(BadInput) as problem:
        sharing(share).run()
    assert problem.value.key == key


@pytest.mark.long
@pytest.mark.parametrize("share", SHARES, ids=str)
def test_engines_agree(share):
    rough = Environment(availability=0.7, delay=Delay(delta=0.5, limit=2))
    check_algorithm(sharing(share, environment=rough, precision="float64"), parallel=True)
    online = OnlineFed(step=0.05, share=share, mix=Mean(2))
    check_algorithm(Federation(LINEAR, online, environment=rough, rounds=8, precision="float64"))
