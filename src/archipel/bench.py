"""How fast this machine simulates: PAO-Fed against vectorised NumPy and against the bare arithmetic, in one run."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (256, 10_000, 100_000, 1_000_000)
REPEATS = 5
FEATURES = 200
Progress = Callable[[int, int, str], None]


def measure(quick: bool, progress: Progress | None = None) -> dict[str, Any]:
    """All figures; each size in a process of its own, so that its peak memory is its own."""
    jobs = [f"pao_fed {clients}" for clients in (SIZES[:3] if quick else SIZES)] + ["w1"]
    found = []
    for i, job in enumerate(jobs):
        if progress:
            progress(i, len(jobs), job)
        command = [sys.executable, "-m", "archipel.bench", *job.split()]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {"pao_fed": found[:-1], "w1": found[-1]}


def pao_fed(clients: int) -> dict[str, float]:
    """PAO-Fed-C2 with the article's delays and availability; whole rounds, interleaved, the best of several."""
    from archipel import Delay, Environment, Federation, PaoFed, Synthetic

    environment = Environment(availability=(0.25, 0.1, 0.025, 0.005), stride=4, delay=Delay())
    federation = Federation(Synthetic(clients=clients), PaoFed(), environment=environment, engine="parallel")
    instance = federation.instance()
    engine = federation.engine_of(instance)
    rounds = max(1, min(400, 2_000_000 // clients))
    engine.advance(0, 1)
    peak = peak_mb()
    best, kernel, numpy_rate, n = 0.0, 0.0, 0.0, 1
    bare = bare_kernel(instance, clients)
    bare(1)
    rendition = NumpyRendition(instance, clients)
    few = max(1, min(100, 200_000 // clients))
    for _ in range(REPEATS):
        before = engine.updates
        seconds = timed(partial(engine.advance, n, n + rounds))
        best = max(best, (engine.updates - before) / seconds)
        kernel = max(kernel, rounds * clients / timed(lambda: bare(rounds)))
        n += rounds
    for _ in range(2 if clients > 100_000 else REPEATS):
        before = rendition.updates
        seconds = timed(lambda: rendition.play(few))
        numpy_rate = max(numpy_rate, (rendition.updates - before) / seconds)
    return {
        "clients": clients,
        "updates_per_s": round(best),
        "numpy_updates_per_s": round(numpy_rate),
        "ratio": round(best / numpy_rate, 2),
        "kernel_updates_per_s": round(kernel),
        "peak_mb": round(peak),
    }


def w1() -> dict[str, float]:
    """256 clients, 200 weights, one step on one fresh sample each, averaged: through the public interface."""
    from archipel import Federation, Linear, OnlineFed

    problem = Linear(clients=256, size=FEATURES, samples=400)
    federation = Federation(problem, OnlineFed(step=0.001), rounds=400, every=400, engine="serial")
    federation.run()
    best = max(rate(federation.run()) for _ in range(REPEATS))
    x = np.random.default_rng(1).standard_normal((100, 256, FEATURES)).astype(np.float32)
    y = x @ np.ones(FEATURES, np.float32)
    plain = max(100 * 256 / timed(lambda: numpy_w1(x, y)) for _ in range(REPEATS))
    return {"updates_per_s": round(best), "numpy_updates_per_s": round(plain)}


def rate(result: Any) -> float:
    """Local updates a second of a run."""
    return float(result.final("updates") / result.seconds)


def numpy_w1(x: Any, y: Any) -> Any:
    """The same work, vectorised over clients."""
    model = np.zeros(FEATURES, np.float32)
    for features, target in zip(x, y):
        error = target - features @ model
        models = model + np.float32(0.001) * error[:, None] * features
        model = models.mean(0)
    return model


def timed(work: Callable[[], Any]) -> float:
    """Seconds that a piece of work takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def peak_mb() -> float:
    """The most memory this process has had, in MB. Where Linux says it: ru_maxrss may be that of who started it."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bare_kernel(instance: Any, clients: int) -> Callable[[int], None]:
    """Features, dot and update alone, over as many models, on all cores: the limit that a whole run cannot beat."""
    from concurrent.futures import ThreadPoolExecutor

    from archipel.simulate.compile import build
    from archipel.simulate.engine import cores
    from archipel.simulate.kernels import bare

    kernel, parts = build(bare), cores()
    models, source = np.zeros((clients, FEATURES), np.float32), instance.task.source
    x = np.random.default_rng(0).standard_normal((clients, 4)).astype(np.float32)
    y, pool = x.sum(1), ThreadPoolExecutor(parts)

    def play(rounds: int) -> None:
        def some(part: int) -> None:
            ends = clients * part // parts, clients * (part + 1) // parts
            kernel(rounds, *ends, models, x, y, np.zeros(FEATURES, np.float32), source, np.float32(0.4))

        list(pool.map(some, range(parts)))

    return play


class NumpyRendition:
    """PAO-Fed-C2 as a person would write it in vectorised NumPy: all clients at once."""

    def __init__(self, instance: Any, clients: int):
        self.source, self.settings = instance.task.source, instance.plan.settings
        self.chance = instance.conditions.chance[0].astype(np.float32)
        self.models = np.zeros((clients, FEATURES), np.float32)
        self.server = np.zeros(FEATURES, np.float32)
        self.past = np.zeros((clients, 5), np.float32)
        self.draw = np.random.default_rng(1)
        self.flying: dict[int, list[tuple[Any, int, int]]] = {}
        self.round, self.updates = 0, 0

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            self.step()
            self.round += 1

    def step(self) -> None:
        """One round of all clients, then the server's."""
        clients, law = len(self.models), self.source.law
        fresh = np.flatnonzero(self.draw.random(clients, np.float32) < law[:, 4] / self.source.when[0])
        mine, past = law[fresh], self.past[fresh]
        u = mine[:, 1] + mine[:, 2] * self.draw.standard_normal(len(fresh), np.float32)
        past = np.concatenate([(mine[:, 0] * past[:, 0] + np.sqrt(1 - mine[:, 0] ** 2) * u)[:, None], past[:, :-1]], 1)
        self.past[fresh] = past
        target = np.sqrt(past[:, 0] ** 2 + np.sin(np.pi * past[:, 3]) ** 2)
        target += (0.8 - 0.5 * np.exp(-(past[:, 1] ** 2))) * past[:, 4]
        target += mine[:, 3] * self.draw.standard_normal(len(fresh), np.float32)
        z = self.source.scale[0] * np.cos(past[:, [0, 1, 4, 3]] @ self.source.directions + self.source.phases)
        there = self.draw.random(len(fresh), np.float32) < self.chance[fresh]
        portion = (np.arange(4) + 4 * self.round) % FEATURES
        models = self.models[fresh]
        models[np.ix_(there, portion)] = self.server[portion]
        error = target - np.einsum("kd,kd->k", models, z)
        models += (self.settings.learn.step * error)[:, None] * z
        self.models[fresh] = models
        self.updates += len(fresh)
        self.send(models[there][:, (portion + 4) % FEATURES])
        self.merge()

    def send(self, said: Any) -> None:
        """Each message is late by a geometric number of rounds."""
        late = np.floor(np.log(self.draw.random(len(said))) / np.log(0.2)).astype(int)
        start = (4 * (self.round + 1)) % FEATURES
        for age in range(11):
            if (late == age).any():
                self.flying.setdefault(self.round + age, []).append((said[late == age], start, age))

    def merge(self) -> None:
        """(14) and (15), the most recent first."""
        seen = np.zeros(FEATURES, bool)
        for values, start, age in sorted(self.flying.pop(self.round, []), key=lambda message: message[2]):
            portion = (np.arange(4) + start) % FEATURES
            new = portion[~seen[portion]]
            change = values.mean(0)[~seen[portion]] - self.server[new]
            self.server[new] += self.settings.mix.weights[age] * change
            seen[portion] = True


def table(figures: dict[str, Any]) -> Any:
    """The figures for a terminal."""
    from rich.table import Table

    grid = Table("clients", "updates/s", "NumPy", "ratio", "bare kernel", "peak MB", title="PAO-Fed-C2, 200 features")
    for row in figures["pao_fed"]:
        grid.add_row(*(f"{row[key]:,}" for key in row))
    w1_row = figures["w1"]
    grid.caption = f"W1: {w1_row['updates_per_s']:,} updates/s (NumPy {w1_row['numpy_updates_per_s']:,})"
    return grid


if __name__ == "__main__":
    what = sys.argv[1]
    print(json.dumps(pao_fed(int(sys.argv[2])) if what == "pao_fed" else w1()))
