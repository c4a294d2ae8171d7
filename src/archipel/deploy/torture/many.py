"""Many seeds, on all processors, and the figures of them all."""

import gc
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from archipel.deploy.torture.run import Outcome, play

YEAR = 365.25 * 86_400


@dataclass
class Figures:
    """What many seeds came to."""

    seeds: int = 0
    node_seconds: float = 0.0
    simulated: float = 0.0
    spent: float = 0.0
    stall: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[Outcome] = field(default_factory=list)
    interrupted: bool = False  # by Ctrl-C

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.simulated += outcome.seconds
        self.node_seconds += outcome.seconds * outcome.nodes
        self.stall = max(self.stall, outcome.stall)
        self.counts += outcome.counts
        if outcome.wrong:
            self.wrong.append(outcome)

    def rows(self) -> list[tuple[str, str]]:
        """For a person."""
        kinds = {key.removeprefix("fault: "): n for key, n in self.counts.items() if key.startswith("fault: ")}
        return [
            ("seeds", f"{self.seeds:,}"),
            ("faults", f"{self.counts['faults']:,}"),
            ("of these", ", ".join(f"{kind} {n:,}" for kind, n in sorted(kinds.items()))),
            ("frames delivered", f"{self.counts['frames']:,}"),
            ("frames lost, cut, late or repeated", f"{sum(self.counts[f'frames {how}'] for how in DONE_TO):,}"),
            ("hostile frames", f"{self.counts['hostile frames']:,}"),
            ("simulated time", f"{self.simulated / 86_400:,.1f} days, {self.node_seconds / YEAR:,.2f} node-years"),
            ("times real time", f"{self.simulated / max(self.spent, 1e-9):,.0f}"),
            ("longest wait after faults, beyond a round", f"{self.stall:,.0f} s"),
            ("promises broken", f"{len(self.wrong):,}"),
        ]


def seldom() -> None:
    """Garbage is looked for now and then: a history makes little, and looking took a fifth of the time."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


DONE_TO = ("lost", "cut", "late", "repeated")


def torture(
    seeds: Iterable[int],
    given: Any = None,
    jobs: int = 0,
    look: Callable[[Figures], None] = lambda figures: None,
    stop: bool = True,
) -> Figures:
    """Play seeds; with `stop`, not beyond the first that breaks a promise."""
    figures, begun = Figures(), time.monotonic()
    with ProcessPoolExecutor(jobs or os.cpu_count() or 1, initializer=seldom) as pool:
        try:
            for outcome in pool.map(partial(play, given=given), seeds, chunksize=4):
                figures.add(outcome)
                figures.spent = time.monotonic() - begun
                look(figures)
                if outcome.wrong and stop:
                    break
        except KeyboardInterrupt:
            figures.interrupted = True
        pool.shutdown(cancel_futures=True)  # what has not begun never will
    return figures
