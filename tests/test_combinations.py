"""The walk over the registry: what the matrix says combines is played, and means what the reference says it means.

Nothing is listed by hand: a kind or a part that is added to the registry is walked over.
"""

from dataclasses import replace

import numpy as np
import pytest

from archipel.combinations import cell, filled, matrix, refusal, with_parts
from archipel.environment import Delay, Environment
from archipel.errors import BadInput
from archipel.node import leaves, named_leaves
from archipel.parts.kind import Composition
from archipel.registry import ALGORITHMS, MIXES, PROTECTS
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_engines_agree
from archipel.topology import TOPOLOGIES
from reference.engine import ReferenceEngine

ROUGH = Environment(availability=0.7, delay=Delay(delta=0.4, limit=2))
ALWAYS = Environment(availability=0.7)
FILLED = 0.6  # of kinds and topologies


def rough(federation, setup=None):
    """The same with clients that are away and late, if it takes that."""
    setup = setup or federation.setup()
    for environment in (ROUGH, ALWAYS):
        try:
            there = federation.with_(environment=environment)
            there.instance(setup=setup)
            return there
        except BadInput:
            pass
    return federation


def brief(federation):
    """Of networks three rounds (the third hears what is late) of two steps: how they learn is looked at elsewhere."""
    algorithm = federation.algorithm
    if algorithm.data_kind != "deep":
        return federation
    if getattr(algorithm, "local_steps", 0) > 2:
        algorithm = replace(algorithm, local_steps=2)
    return federation.with_(algorithm=algorithm, rounds=3)


def cells_of(kind):
    yield from (cell(kind, topology) for topology in TOPOLOGIES)
    yield from cells_with_parts(kind)


def cells_with_parts(kind):
    if issubclass(ALGORITHMS[kind], Composition):
        for topology in TOPOLOGIES:
            yield from (cell(kind, topology, protect=protect) for protect in PROTECTS)
            yield from (cell(kind, topology, mix=mix) for mix in MIXES)


def name_of(one):
    return " ".join(filter(None, (one.kind, one.topology, one.protect, one.mix)))


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_plain_is_what_the_reference_says(kind):
    """On every topology; with every second of all protections and mixes, which is another one for the next kind."""
    agree([*(cell(kind, topology) for topology in TOPOLOGIES), *halves(kind)[0]])


@pytest.mark.long
@pytest.mark.parametrize("kind", ALGORITHMS)
def test_plain_is_what_the_reference_says_with_all_other_parts(kind):
    agree(halves(kind)[1])


def halves(kind):
    cells, first = list(cells_with_parts(kind)), list(ALGORITHMS).index(kind) % 2
    return cells[first::2], cells[1 - first :: 2]


def agree(cells):
    for one in cells:
        if one.federation is None:
            continue
        federation = brief(one.federation)
        setup = federation.setup()
        federation = rough(federation, setup)
        ours, theirs = federation.instance(setup=setup), federation.instance()  # nothing that both could change
        plain, slow = PlainEngine(ours, side_by_side=False), ReferenceEngine(theirs)
        for engine in (plain, slow):
            engine.advance(0, federation.rounds)
        for role, table in ours.plan.tables.items():
            for (field, mine), other in zip(named_leaves(table), leaves(theirs.plan.tables[role])):
                assert np.array_equal(mine, other, equal_nan=True), (name_of(one), role, field)
        assert plain.messages == slow.messages and plain.updates == slow.updates, name_of(one)


COVER = [(list(PROTECTS)[i % len(PROTECTS)], mix) for i, mix in enumerate(MIXES)]


@pytest.mark.parametrize("number", range(len(COVER)), ids=[" ".join(parts) for parts in COVER])
def test_every_part_is_compiled_somewhere(number):
    """Each mix with one protection, on one topology, of the first kind that takes them; `long` has all cells."""
    protect, mix = COVER[number]
    for protection in (protect, ""):
        for shift in range(len(TOPOLOGIES)):  # each on another topology
            topology = list(TOPOLOGIES)[(number + shift) % len(TOPOLOGIES)]
            for kind in ALGORITHMS:
                one = cell(kind, topology, protection, mix)
                if one.federation is not None:
                    check_engines_agree(rough(one.federation), parallel=False)
                    return
    pytest.fail("no kind takes this part")


@pytest.mark.long
@pytest.mark.parametrize("kind", ALGORITHMS)
def test_compiled_is_plain_and_threads_change_no_bit(kind, monkeypatch):
    from archipel.simulate import compiled

    monkeypatch.setattr(compiled, "SHARED", 2)  # so that a few nodes are worth a second thread
    for one in cells_of(kind):
        if one.federation is not None:
            try:
                check_engines_agree(rough(one.federation), parallel=True)
            except AssertionError as problem:
                raise AssertionError(f"{name_of(one)}: {problem}") from problem


def test_no_empty_cell_without_its_reason():
    for one in [*matrix(), *with_parts()]:
        assert (one.federation is None) == bool(one.why_not), name_of(one)
        assert one.why_not == one.why_not.strip() and not one.why_not.endswith("."), one.why_not


def test_a_kind_runs_wherever_it_does_not_refuse():
    for one in matrix():
        if one.federation is None:
            assert refusal(ALGORITHMS[one.kind], one.topology), f"{name_of(one)}: {one.why_not}"


def test_most_kinds_run_on_most_topologies():
    cells = list(matrix())
    print(f"{filled(cells):.0%} of {len(cells)} cells are filled")
    assert filled(cells) >= FILLED


def test_list_combinations_prints_it(archipel, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = archipel("list", "combinations")
    assert shown.status == 0 and all(kind in shown.out for kind in ALGORITHMS)
    assert "a vote needs one model" in shown.out and "% of the kinds and topologies" in shown.out


def test_list_combinations_cuts_no_name_on_a_narrow_screen(archipel, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = archipel("list", "combinations")
    assert all(name in shown.out for name in [*ALGORITHMS, *PROTECTS, *MIXES]) and "…" not in shown.out


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def test_every_topology_has_a_tiny_graph():
    one = cell("composed", "star")
    assert one.federation == replace(one.federation, seed=1)
    assert all(cell("composed", topology).federation for topology in TOPOLOGIES)
