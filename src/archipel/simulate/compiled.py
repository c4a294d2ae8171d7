"""The compiled engine: the rounds of `simulate.rounds` as one kernel, around an algorithm's node functions.

With one thread whole stretches of rounds are one call. With several, each step of a round is shared among them: kernels
are serial, threads are outside, and no bit depends on how many there are.
"""

import weakref
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from archipel.simulate.compile import build, compiling, entry
from archipel.simulate.instance import Instance
from archipel.simulate.laid import SHARED, Played, rounds_of
from archipel.simulate.records import held
from archipel.simulate.rounds import advancing


class CompiledEngine(Played):
    """Plays an instance."""

    def __init__(self, instance: Instance, threads: int = 1):
        self.instance, self.threads = instance, threads
        self.rounds = rounds_of(instance, threads, step_by_step=False)
        self.board, self.arguments = held(self.rounds.board), held(self.rounds.arguments)
        self.parts = [threads if instance.count(role) >= SHARED else 1 for role in self.rounds.roles]
        self.kernel = build(advancing(self.rounds.steps))
        with compiling():
            self.play = entry(self.kernel, 0, 0, -1, 0, 1, self.board, self.arguments)
        self.orders: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(1, max(self.parts))]
        self.done: SimpleQueue[BaseException | None] = SimpleQueue()
        for orders in self.orders:
            Thread(target=serve, args=(self.play, orders, self.done), daemon=True).start()
            weakref.finalize(self, orders.put, None)

    def advance(self, first: int, last: int) -> None:
        """Play rounds first to last - 1."""
        self.rounds.begin(first, last)
        if not self.orders:
            self.play(first, last, -1, 0, 1, self.board, self.arguments)
            return
        for n in range(first, last):
            for which, parts in enumerate(self.parts):
                for part in range(1, parts):
                    self.orders[part - 1].put((n, n + 1, which, part, parts, self.board, self.arguments))
                self.play(n, n + 1, which, 0, parts, self.board, self.arguments)
                problems = [self.done.get() for _ in range(1, parts)]
                for problem in filter(None, problems):
                    raise problem


def serve(play: Callable[..., Any], orders: Any, done: Any) -> None:
    """A thread that plays what it is told. Two queues take a few microseconds a step, a pool's futures sixty."""
    while (order := orders.get()) is not None:
        try:
            done.put(play(*order))
        except BaseException as problem:
            done.put(problem)
        del order
