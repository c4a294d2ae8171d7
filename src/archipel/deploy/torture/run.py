"""One seed: a federation, its conditions, its faults, and whether all that was promised held."""

import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from archipel.deploy.post import LOG
from archipel.deploy.torture.chance import mix, uniform
from archipel.deploy.torture.families import families
from archipel.deploy.torture.faults import Fault, Faults, chosen
from archipel.deploy.torture.observer import Observer
from archipel.deploy.torture.reference import Wrong
from archipel.deploy.torture.simulation import EPOCH, Simulation
from archipel.deploy.wire import PIECE
from archipel.deployment import Deployment
from archipel.errors import BadInput

PACES = ("quorum", "clock", "replay")
INTERVALS = (2.0, 600.0, 14_400.0, 86_400.0)  # seconds between two samples, or rounds
FOUL = 0.35  # of all seeds: people tamper with a node's state, run it twice, or lie
COUNT = 130  # faults at most


@dataclass
class Outcome:
    """What came of a seed."""

    seed: int
    family: str
    pace: str
    wrong: str = ""
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0  # simulated
    nodes: int = 0
    hash: str = ""
    stall: float = 0.0  # the longest time without progress when faults had ceased, beyond a round's own
    done: int = 0
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"seed {self.seed} ({self.family}, {self.pace}): {self.wrong or 'all that was promised held'}"


@dataclass(frozen=True)
class Setting:
    """What a seed chooses beside the faults."""

    family: str
    federation: Any
    interval: float
    latency: float
    calm: float
    bound: float
    foul: bool
    piece: int  # bytes of a letter that go at once
    first: int  # the number of the first letter: of what is on the wire, 16 bits, it soon comes round


@lru_cache(maxsize=1)
def known() -> dict[str, Any]:
    return families()


def setting(seed: int, given: Any = None) -> Setting:
    """The federation of a seed, or a user's own, and how its rounds go by."""
    names = list(known())
    family = "given" if given is not None else names[seed % len(names)]
    federation = known()[family] if given is None else given
    pace = PACES[mix(seed, 30) % 3] if given is None else federation.deploy.pace
    interval = INTERVALS[mix(seed, 31) % len(INTERVALS)]
    deadline = interval * (0.1, 0.5, 2.0)[mix(seed, 32) % 3]
    deploy = Deployment(
        pace=pace,
        quorum=(1.0, 0.5)[mix(seed, 33) % 2],
        deadline=max(deadline, 1.0),
        period=interval,
        start=EPOCH + 5.0 if pace == "clock" else 0.0,
        patience=max(60.0, interval / 10),
        durable=mix(seed, 34) % 4 > 0,
    )
    federation = federation.with_(deploy=deploy, every=max(1, federation.rounds // 3))
    latency = (0.002, 0.05, 0.5)[mix(seed, 35) % 3]
    calm = 0.5 * federation.rounds * interval
    turns = 4
    bound = 2.5 * interval + (turns * deploy.deadline if pace == "quorum" else 0.0) + BOUND
    piece = 16 if mix(seed, 38) % 8 == 1 else PIECE
    first = 65_536 - mix(seed, 48) % 40 if mix(seed, 44) % 4 == 1 else 0
    return Setting(family, federation, interval, latency, calm, bound, uniform(seed, 36) < FOUL, piece, first)


BOUND = 60.0  # seconds in which, beyond its own time, a round ends when faults have ceased


def play(seed: int, given: Any = None, faults: list[Fault] | None = None, trace: bool = False) -> Outcome:
    """Play a seed to its end, with its own faults or with those that are given."""
    chosen_here = setting(seed, given)
    observer = Observer()
    pace = chosen_here.federation.deploy.pace
    world = Simulation(chosen_here.federation, seed, observer, 0.0 if pace == "clock" else chosen_here.interval)
    if world.instance.plan.masks is not None:
        right = "another: the reference that nodes are held to cannot say masked words again, which are said once"
        raise BadInput("algorithm.protect.kind", "summed", right)
    if chosen_here.federation.problem.finds_units:
        raise BadInput("problem.scale", "private", "a table of units: faults begin with the first round")
    for name in world.hosts if given is not None else ():
        world.view(name)  # what no node would start with is refused
    world.latency, world.piece, world.first = chosen_here.latency, chosen_here.piece, chosen_here.first
    world.trace = [] if trace else None
    for host in world.hosts.values():
        host.rate = 1 + 2e-4 * (uniform(seed, host.number, 37) - 0.5)
    observer.watch(world, chosen_here.calm, chosen_here.bound)
    if faults is None:
        faults = chosen(seed, world, chosen_here.calm, COUNT, chosen_here.foul)
    doing = Faults(world, faults)
    observer.tampered, observer.gone, observer.lied = doing.foul, doing.gone, doing.lied
    world.start_all()
    level = LOG.level
    LOG.setLevel(logging.CRITICAL)
    outcome = Outcome(seed, chosen_here.family, pace, faults=faults, nodes=len(world.hosts))
    try:
        world.at(chosen_here.calm, cease, world, doing)
        watch(world, observer, chosen_here)
    except Wrong as wrong:
        outcome.wrong = str(wrong)
    except Exception as problem:  # a node must not end like this
        outcome.wrong = f"{type(problem).__name__}: {problem}"
    finally:
        LOG.setLevel(level)  # not by its attribute: a logger remembers what it did not say
    world.note("end", outcome.wrong)
    outcome.counts, outcome.seconds, outcome.hash = world.counts, world.time, world.hash.hexdigest()
    outcome.done = sum(host.done for host in world.hosts.values())
    outcome.stall, outcome.trace = max(0.0, observer.stall - chosen_here.interval), world.trace or []
    return outcome


def cease(world: Simulation, doing: Faults) -> None:
    """From here on nothing goes wrong."""
    doing.trouble.active.clear()
    for host in [*world.hosts.values(), *world.twins]:
        host.slow, host.crash_in, host.disk.full, host.disk.fails = 0.0, 0, False, 0
        if host.paused:
            doing.resume(host)
    for twin in world.twins:
        doing.end_twin(twin)
    for host in world.hosts.values():
        if host.node is None and not host.done:
            world.start(host)


def watch(world: Simulation, observer: Observer, chosen_here: Setting) -> None:
    """To the end of all rounds, with a look at who gets on."""
    rounds, interval = chosen_here.federation.rounds, chosen_here.interval
    end = 3 * rounds * max(interval, chosen_here.federation.deploy.deadline) + 10 * chosen_here.bound

    waiting = list(world.hosts.values())

    def over() -> bool:
        while waiting and (waiting[-1].done or waiting[-1].unaware):
            waiting.pop()
        return not waiting

    while world.time < end and world.queue and not over():
        world.run(min(end, world.time + max(chosen_here.bound / 4, 1.0)), over)
        if world.time > chosen_here.calm:
            observer.check_progress()
    observer.check_all()
