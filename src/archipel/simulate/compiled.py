"""The compiled engine: the rounds of `simulate.rounds` as one kernel, around an algorithm's node functions.

Whole stretches of rounds are one call. Of several threads each calls the same kernel, and plays those parts of a step
that are free (`simulate.crew`): kernels are serial, threads are outside, and no bit depends on how many there are.
"""

import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np

from archipel.loading import IN_KERNEL
from archipel.simulate.compile import build, compiling, entry
from archipel.simulate.crew import ALONE, FAILED, HELPER, LEADER, NOTHING, OPEN, advancing, gate_of
from archipel.simulate.instance import Instance
from archipel.simulate.laid import SHARED, Played, rounds_of
from archipel.simulate.records import held


class CompiledEngine(Played):
    """Plays an instance; `step_by_step` if all words are to be looked at after a round."""

    def __init__(self, instance: Instance, threads: int = 1, step_by_step: bool = False):
        self.instance, self.threads = instance, threads
        self.rounds = rounds_of(instance, threads, step_by_step)
        self.board, self.arguments = held(self.rounds.board), held(self.rounds.arguments)
        self.shares = np.array([threads if instance.count(role) >= SHARED else 1 for role in self.rounds.roles])
        self.gate = gate_of()
        self.kernel = build(advancing(self.rounds.steps))
        with compiling():
            self.play = entry(self.kernel, 0, 0, ALONE, 0, self.shares, self.gate, self.board, self.arguments)
        self.orders: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(1, self.shares.max())]
        self.done: SimpleQueue[BaseException | None] = SimpleQueue()
        for orders in self.orders:
            Thread(target=serve, args=(self.play, orders, self.done), daemon=True).start()
            weakref.finalize(self, orders.put, None)

    def advance(self, first: int, last: int) -> None:
        """Play rounds first to last - 1."""
        self.rounds.begin(first, last)
        self.gate[OPEN], self.gate[FAILED] = NOTHING, 0
        given = 0, self.shares, self.gate, self.board, self.arguments
        for orders in self.orders:
            orders.put((first, last, HELPER, *given))
        problems = [played(self.play, first, last, LEADER if self.orders else ALONE, *given)]
        problems += [self.done.get() for _ in self.orders]
        for problem in filter(None, problems):
            problem.add_note(f'{IN_KERNEL}, in rounds {first} to {last - 1}; engine = "plain" says which')
            raise problem


def played(play: Callable[..., Any], *order: Any) -> BaseException | None:
    """What became of an order. Nobody waits for a thread that failed: the gate says so."""
    try:
        play(*order)
    except BaseException as problem:
        order[5][FAILED] = 1
        return problem
    return None


def serve(play: Callable[..., Any], orders: Any, done: Any) -> None:
    """A thread that plays what it is told."""
    while (order := orders.get()) is not None:
        done.put(played(play, *order))
        del order
