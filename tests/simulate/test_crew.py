"""Threads that share the steps of a stretch: each part is played once, after all of the step before; nothing hangs."""

from collections import namedtuple
from functools import cache
from threading import Thread

import numba
import numpy as np
import pytest

from archipel import Federation, Linear, OnlineFed, PaoFed, Synthetic
from archipel.algorithms.gossip import Gossip
from archipel.node import kernel, leaves
from archipel.simulate.compile import enable
from archipel.simulate.compiled import CompiledEngine, played
from archipel.simulate.crew import ALONE, FAILED, HELPER, LEADER, NOTHING, OPEN, advancing, gate_of
from archipel.topology import Peers

Marks = namedtuple("Marks", "played early work fails")
SHARES = np.array([4, 1, 3])
ROUNDS = 200


def step_of(which):
    @kernel
    def step(n, part, parts, board, args):
        at = 3 * n + which
        for p in range(board.played.shape[1]):
            if at > 0 and p < args[(which + 2) % 3] and board.played[at - 1, p] != 1:
                board.early[0] += 1
        for k in range(args[3]):  # long enough for another thread to come
            board.work[part] += np.sin(board.work[part] + k)
        board.played[at, part] += 1
        if at == board.fails[0] and part == parts - 1:
            board.played[ROUNDS * 3 + part, part] = 1  # beyond its array

    return step


@cache
def driver_of():
    """Compiled, and not kept: where this module is not known, nobody could read it."""
    driver = advancing(tuple(map(step_of, range(3))))
    enable()
    return numba.njit(nogil=True, boundscheck=True)(driver)


def crew_played(threads, fails=-1):
    board = Marks(np.zeros((3 * ROUNDS, 4), np.int64), np.zeros(1, np.int64), np.zeros(4), np.array([fails]))
    sizes, gate = np.array([4, 1, 3, 300]), gate_of()
    gate[OPEN] = NOTHING
    driver = driver_of()
    given = 0, SHARES, gate, board, (sizes, sizes, sizes)
    driver(0, 0, ALONE, *given)
    gate[OPEN] = NOTHING
    problems = []
    helpers = [
        Thread(target=lambda: problems.append(played(driver, 0, ROUNDS, HELPER, *given))) for _ in range(1, threads)
    ]
    for helper in helpers:
        helper.start()
    problems.append(played(driver, 0, ROUNDS, LEADER, *given))
    for helper in helpers:
        helper.join()
    return board, gate, [problem for problem in problems if problem]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_part_is_played_once_and_after_the_step_before(threads):
    board, _, problems = crew_played(threads)
    assert not problems and board.early[0] == 0
    wanted = np.arange(4) < np.tile(SHARES, ROUNDS)[:, None]
    np.testing.assert_array_equal(board.played, wanted)


@pytest.mark.parametrize("at", [0, 1, 2, 299, 3 * ROUNDS - 1])
def test_nobody_waits_for_a_thread_that_failed(at):
    board, gate, problems = crew_played(3, fails=at)
    assert gate[FAILED] and len(problems) == 1 and isinstance(problems[0], IndexError)
    assert board.played[:at].sum() == np.resize(SHARES, at).sum() and not board.played[at + 1 :].any()


def test_alone_a_part_is_played_by_itself():
    board = Marks(np.zeros((3 * ROUNDS, 4), np.int64), np.zeros(1, np.int64), np.zeros(4), np.array([-1]))
    sizes = np.array([4, 1, 3, 1])
    driver_of()(0, ROUNDS, ALONE, 2, SHARES, gate_of(), board, (sizes, sizes, sizes))
    assert (
        (board.played[0::3, 2] == 1).all() and (board.played[2::3, 2] == 1).all() and board.played.sum() == 2 * ROUNDS
    )


@pytest.mark.parametrize(
    "federation",
    [
        Federation(Synthetic(clients=300, features=20, test=5), PaoFed(step=0.2), rounds=40),
        Federation(Linear(clients=200, size=6, samples=5), OnlineFed(step=0.01), rounds=40),
        Federation(Linear(clients=200, size=6, samples=5), Gossip(data="stored", step=0.01), Peers(), rounds=40),
    ],
    ids=["star", "whole", "peers"],
)
def test_no_bit_depends_on_how_many_threads_there_are(federation):
    found = []
    for threads in (1, 2, 3, 7):
        engine = CompiledEngine(federation.instance(), threads)
        for first in range(0, federation.rounds, 10):  # a stretch after the other
            engine.advance(first, first + 10)
        found.append([np.array(leaf) for table in engine.instance.plan.tables.values() for leaf in leaves(table)])
    for other in found[1:]:
        assert all(map(np.array_equal, found[0], other))
