"""The compiled engine: the rounds of `simulate.rounds` as one kernel, around an algorithm's node functions.

With one thread whole stretches of rounds are one call. With several, each step of a round is shared among them: kernels
are serial, threads are outside, and no bit depends on how many there are.
"""

from concurrent.futures import ThreadPoolExecutor

from archipel.simulate.compile import build, entry, uncollected
from archipel.simulate.instance import Instance
from archipel.simulate.laid import SHARED, Played, rounds_of
from archipel.simulate.records import held
from archipel.simulate.rounds import advancing


class CompiledEngine(Played):
    """Plays an instance."""

    def __init__(self, instance: Instance, threads: int = 1):
        self.instance, self.threads = instance, threads
        self.rounds = rounds_of(instance, threads, step_by_step=False)
        self.board, self.arguments = held(self.rounds.board), held(self.rounds.chained)
        self.pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self.kernel = build(advancing(self.rounds.steps))
        with uncollected():
            self.play = entry(self.kernel, 0, 0, -1, 0, 1, self.board, self.arguments)

    def advance(self, first: int, last: int) -> None:
        """Play rounds first to last - 1."""
        self.rounds.begin(first, last)
        if self.pool is None:
            self.play(first, last, -1, 0, 1, self.board, self.arguments)
            return
        for n in range(first, last):
            for which, role in enumerate(self.rounds.roles):
                parts = self.threads if self.instance.count(role) >= SHARED else 1
                waiting = [
                    self.pool.submit(self.play, n, n + 1, which, part, parts, self.board, self.arguments)
                    for part in range(1, parts)
                ]
                self.play(n, n + 1, which, 0, parts, self.board, self.arguments)
                for future in waiting:
                    future.result()
