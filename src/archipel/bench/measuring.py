"""One row: how long its works take, in turn, and how much memory."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from archipel.bench.cases import CASES, Case

REPEATS = 5
SECONDS = 0.25  # that one measurement should take
STRETCH = 10  # rounds at least, as between two measurements of a run
CACHE = 1 << 26  # bytes that no cache is taken to hold


def measured(name: str, clients: int) -> dict[str, Any]:
    """One row: the engine, the bare kernel and NumPy in turn."""
    case = CASES[name]
    federation = case.federation(clients).with_(rounds=case.rounds, every=case.rounds, engine="serial")
    instance = federation.instance()
    begun = time.process_time()
    engine = federation.engine_of(instance)
    compiling = time.process_time() - begun
    engine.advance(0, 1)
    peak, done = peak_mb(), [1]
    bare, rendition = case.bare(instance), case.rendition(instance)
    bare(1)

    def ours(rounds: int) -> float:
        before, first = engine.updates, done[0]
        done[0] = first + rounds
        engine.advance(first, done[0])
        return float(engine.updates - before)

    def numpy(rounds: int) -> float:
        before = rendition.updates
        for _ in range(rounds):
            rendition.step()
        return float(rendition.updates - before)

    def kernel(rounds: int) -> float:
        bare(rounds)
        return float(rounds * clients)

    works: dict[str, Callable[[int], float]] = {"ours": ours, "kernel": kernel, "numpy": numpy}
    rounds = {what: some_rounds(work, case.rounds // 16) for what, work in works.items()}
    rounds["ours"] = max(rounds["ours"], STRETCH)
    best = dict.fromkeys(works, 0.0)
    for _ in range(REPEATS):
        for what, work in works.items():
            if done[0] + rounds["ours"] <= case.rounds:
                best[what] = max(best[what], rate(work, rounds[what]))
    return {
        "row": name,
        "clients": clients,
        "updates_per_s": round(best["ours"]),
        "numpy_updates_per_s": round(best["numpy"]),
        "kernel_updates_per_s": round(best["kernel"]),
        "times_numpy": round(best["ours"] / best["numpy"], 2),
        "times_kernel": round(best["kernel"] / best["ours"], 2),
        "peak_mb": round(peak),
        "compile_s": round(compiling, 1),
        "bound": case.bound,
    } | bytes_of(case, instance, best["numpy"])


def bytes_of(case: Case, instance: Any, numpy: float) -> dict[str, Any]:
    """What the bare kernel moves; and how many times NumPy's updates a second any rendition could have, which takes
    from memory what no cache holds from round to round, at the pace of a copy.
    """
    if case.moved is None or case.least is None:
        return {}
    least, pace = case.least(instance), copied()
    found = {"moved": round(case.moved(instance)), "least": round(least), "copied_gb_s": pace}
    beyond = least * instance.task.clients > CACHE
    return found | ({"times_numpy_at_most": round(pace * 1e9 / least / numpy, 1)} if beyond else {})


def copied() -> float:
    """How many GB a second of the processor a copy reads and writes here, of more than any cache holds."""
    source = np.ones(1 << 23)
    target = source.copy()
    best = min(timed(lambda: np.copyto(target, source)) for _ in range(REPEATS))
    return round(2 * source.nbytes / best / 1e9, 1)


def some_rounds(work: Callable[[int], float], most: int) -> int:
    """How many rounds take long enough to be measured; some are played to see."""
    rounds = 1
    while rounds < most:
        begun = time.process_time()
        work(rounds)
        seconds = time.process_time() - begun
        if seconds > SECONDS / 4:
            return max(1, min(most, round(rounds * SECONDS / seconds)))
        rounds *= 4
    return most


def rate(work: Callable[[int], float], rounds: int) -> float:
    """Updates a second of the processor."""
    begun = time.process_time()
    updates = work(rounds)
    return updates / (time.process_time() - begun)


def timed(work: Callable[[], Any]) -> float:
    """Seconds of the processor that a piece of work takes."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def peak_mb() -> float:
    """The most memory this process has had, in MB. Where Linux says it: ru_maxrss may be that of who started it."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    try:
        import resource
    except ImportError:  # not on this system
        return math.nan
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
