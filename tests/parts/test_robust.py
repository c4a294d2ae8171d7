"""Robust mixes equal byzfl and NumPy; with whole words and parts of them, changes and models, heard or not."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel import FedAvg, Federation, Linear
from archipel.errors import BadInput
from archipel.node import Edge, Moment, clear, emptied, leaves, row
from archipel.parts import Node, Place, Settings
from archipel.parts.ask.drawn import Drawn
from archipel.parts.mix import rules
from archipel.parts.mix.optimiser import Momentum
from archipel.parts.mix.robust import CentredClipping, GeometricMedian, Krum, Median, MultiKrum, TrimmedMean
from archipel.parts.mix.rules import Rule, Scratch
from archipel.parts.share.portions import Portions
from archipel.parts.share.whole import Whole
from archipel.topology import Star
from archipel.turns import Setup
from reference import robust as oracle

BYZFL = np.load(Path(__file__).parents[1] / "reference" / "byzfl.npz")
CASES = sorted({name.split("/")[0] for name in BYZFL.files})
RULES = {
    "median": rules.median,
    "trimmed-mean": rules.trimmed_mean,
    "krum": rules.krum,
    "multi-krum": rules.multi_krum,
    "geometric-median": rules.geometric_median,
    "centred-clipping": rules.centred_clipping,
}
RADIUS = {"geometric-median": (0.1, 5), "centred-clipping": (2.0, 3)}


def play(rule, x, share, radius=0.0, steps=0, start=None):
    """A rule on whole vectors."""
    rows, size = x.shape
    out = np.zeros(size) if start is None else start.copy()
    scratch = Scratch(np.zeros(rows), np.zeros(rows), np.zeros(size), np.zeros(size))
    rule(out, x.copy(), np.ones_like(x), rows, scratch, Rule(share, radius, steps))
    return out


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", RULES)
def test_rules_equal_byzfl(name, case):
    rows, _size, liars = map(int, case.split("-"))
    found = play(RULES[name], BYZFL[f"{case}/x"], liars / rows, *RADIUS.get(name, ()))
    assert np.abs(found - BYZFL[f"{case}/{name}"]).max() < 1e-9


def test_the_fixture_is_what_byzfl_says_where_it_is_installed():
    pytest.importorskip("byzfl")
    from reference.byzfl_answers import answers, drawn

    for case, x, liars in drawn():
        for name, answer in answers(x, liars).items():
            assert np.abs(answer - BYZFL[f"{case}/{name}"]).max() < 1e-9


@given(rows=st.integers(1, 12), size=st.integers(1, 6), share=st.floats(0, 0.49), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_rules_equal_numpy(rows, size, share, seed):
    draw = np.random.default_rng(seed)
    x, start = draw.standard_normal((rows, size)) * 3, draw.standard_normal(size)
    f = min(int(np.ceil(share * rows - 1e-9)), (rows - 1) // 2)
    expected = {
        "median": oracle.median(x),
        "trimmed-mean": oracle.trimmed_mean(x, f),
        "krum": oracle.krum(x, f),
        "multi-krum": oracle.multi_krum(x, f),
        "geometric-median": oracle.geometric_median(x, 0.1, 5, start),
        "centred-clipping": oracle.centred_clipping(x, 2.0, 3, start),
    }
    for name, rule in RULES.items():
        if rows == 2 and "krum" in name:  # both are as good
            continue
        assert np.allclose(play(rule, x, share, *RADIUS.get(name, ()), start=start), expected[name], atol=1e-9), name


@given(st.lists(st.floats(-1e6, 1e6), min_size=0, max_size=200))
def test_the_loop_sorts_as_numpy_does(values):
    mine = np.array([*values, -7.0])
    rules.sort_first_loop(mine, len(values))
    assert np.array_equal(mine, [*np.sort(values), -7.0])


# --- pieces -----------------------------------------------------------------------------------------------------------


class Task:
    size, clients = 6, 5


SETUP = Setup(Task, Star().build(Task.clients, 1), np.float64, 10, 1)
MIXES = (Median(), TrimmedMean(), Krum(), MultiKrum(), GeometricMedian(), CentredClipping())


class Bench:
    """A receiver that hears words by hand."""

    def __init__(self, mix, share, own=False, heard=4):
        self.share = share.make(SETUP)
        place = Place(1, heard, own, False, self.share.of_change, Task.size, np.float64)
        self.piece = mix.make(SETUP, self.share, place)
        self.settings = Settings(None, None, self.share.settings, self.piece.settings, None, 1.0, 0)
        self.inbox = emptied(self.piece.inbox)
        self.model, self.before = np.arange(6.0), np.zeros(6)

    def hear(self, place, model, round=0, before=0.0):
        word = emptied(self.share.word)
        moment = Moment(place, round, 1, -1, 1, True, 1.0)
        me = Node(np.asarray(model, float), np.broadcast_to(np.asarray(before, float), 6), *[None] * 5)
        self.share.write(word, me, self.settings, moment)
        self.piece.hear(self.inbox, word, self.settings, Edge(place, 1.0, 0, round, place))

    def finish(self):
        me = Node(self.model, self.before, *[None] * 5)
        self.piece.finish(me, self.inbox, self.settings, Moment(0, 0, 1, -1, 1, True, 1.0))
        return self.model


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: type(mix).__name__)
def test_who_is_not_heard_or_is_not_finite_does_not_count(mix, own):
    few, many = Bench(mix, Whole(), own, 2), Bench(mix, Whole(), own, 4)
    for place, model in ((0, np.full(6, 1.0)), (1, np.linspace(2, 3, 6))):
        few.hear(place, model)
        many.hear(3 * place, model)
    many.hear(1, [0, 0, np.nan, 0, 0, np.inf])
    assert np.array_equal(few.finish(), many.finish())


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: type(mix).__name__)
def test_silence_changes_nothing(mix):
    for own in (False, True):
        for share in (Whole(), Whole(True), Portions(2)):
            assert np.array_equal(Bench(mix, share, own).finish(), np.arange(6.0))


@pytest.mark.parametrize("share", [Whole(), Portions(6)], ids=["whole", "portions"])
def test_a_newer_word_takes_the_place_of_an_older_one(share):
    bench = Bench(Median(), share)
    bench.hear(2, np.full(6, 100.0))
    bench.hear(2, np.full(6, 1.0), round=1)
    assert np.array_equal(bench.finish(), np.ones(6))


def test_momentum_waits_where_no_word_is_a_number_and_goes_on_where_words_agree_with_the_server():
    bench = Bench(Momentum(momentum=0.5, over=Median()), Whole())
    state = row(bench.piece.state, 0)
    state.first[:] = 1.0
    me = Node(bench.model, bench.before, None, None, None, state, None)

    def finish():
        bench.piece.finish(me, bench.inbox, bench.settings, Moment(0, 0, 1, -1, 1, True, 1.0))
        clear(bench.inbox)
        return bench.model - np.arange(6.0)

    bench.hear(0, np.full(6, np.nan))
    assert np.array_equal(finish(), np.zeros(6)) and np.array_equal(state.first, np.ones(6))
    bench.hear(1, np.arange(6.0))
    assert np.allclose(finish(), 0.5) and np.allclose(state.first, 0.5)


def test_coordinates_are_mixed_among_those_who_said_something_of_them():
    bench = Bench(Median(), Portions(2, coordinated=False, next=False))
    for place, value in ((0, 10.0), (1, 20.0), (3, 30.0)):  # of 6 parameters: 0 and 1, 2 and 3, 0 and 1 again
        bench.hear(place, np.full(6, value))
    assert bench.finish().tolist() == [20, 20, 20, 20, 4, 5]


def test_whole_vectors_take_what_was_not_said_from_the_receiver():
    bench = Bench(MultiKrum(share=0), Portions(2, coordinated=False, next=False))
    bench.hear(0, np.full(6, 10.0))
    bench.hear(1, np.full(6, 20.0))
    mine = np.arange(6.0)
    said = np.array([[10, 10, *mine[2:]], [0, 1, 20, 20, 4, 5]])
    assert np.allclose(bench.finish(), said.mean(0))


def test_changes_move_a_server():
    server = Bench(Median(), Whole(True))
    for place, change in enumerate((1.0, 2.0, 50.0, 60.0)):
        server.hear(place, np.full(6, 100 + change), before=100.0)
    assert np.allclose(server.finish(), np.arange(6.0) + 26)
    assert all(np.isfinite(array).all() for array in leaves(server.inbox))


@pytest.mark.parametrize("mix", [*MIXES, Momentum(over=Median())], ids=lambda mix: type(mix).__name__)
def test_who_is_drawn_has_a_weight_that_these_rules_would_take_for_a_smaller_model(mix):
    """A word comes as p / (K q) of itself: the median of thirds of a model is none of them."""
    for share in (Whole(), Whole(True)):
        algorithm = FedAvg(share=share, mix=mix, ask=Drawn(draws=3))
        with pytest.raises(BadInput, match=r"algorithm\.mix\.kind .*weigh as their chances say"):
            Federation(Linear(clients=6, size=3, samples=30), algorithm, rounds=5).instance()


def test_own_model_is_one_more_among_peers():
    bench = Bench(Median(), Whole(), own=True)
    bench.hear(0, np.full(6, -1.0))
    bench.hear(2, np.full(6, 9.0))
    assert np.array_equal(bench.finish(), np.arange(6.0))
