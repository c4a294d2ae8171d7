"""The simulated world: an event queue with a virtual clock, in which every node of a federation lives.

One thread, one process; the same seed gives the same history, to the letter. A node's code is what devices run; only
what it finds behind its door (`deploy.world`) is made here.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from contextlib import nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from archipel.deploy.node import Node
from archipel.deploy.permit import permit
from archipel.deploy.roster import roster_of
from archipel.deploy.sources import ProblemSource, source_of
from archipel.deploy.store import Halted
from archipel.deploy.torture.chance import mix, uniform
from archipel.deploy.torture.disk import SimulatedDisk
from archipel.deploy.torture.noise import SeededSource
from archipel.deploy.view import view_of
from archipel.deploy.wire import HEADER, PIECE
from archipel.deploy.world import Disk, Link
from archipel.errors import BadInput, Diverged, Missing
from archipel.node import mapped
from archipel.policy import Policy
from archipel.privacy.journal import Damaged
from archipel.privacy.ledger import Ledger, Overspent
from archipel.privacy.noise import noise_from
from archipel.privacy.personal import PersonalLedgers

EXPECTED = (BadInput, Missing, Halted, Diverged, Damaged, Overspent, OSError)  # as in run_node
EPOCH = 1_700_000_000.0  # what clocks say when all begins
LOOKED_AT = 3600.0  # seconds between two status files, which nobody reads here
FEW = 8  # charges of a ledger that are lines of their own: so that they are put together in every history
AGAIN = 12  # times that a node which halts for the same reason is started again
SOON = 1e-6  # seconds that pass at least between two beats of a node


def own(value: Any) -> Any:
    """A copy of an array; anything else as it is."""
    return np.array(value) if isinstance(value, np.ndarray) else value


def once(instance: Any) -> Any:
    """An instance whose tables keep the first row only, where all are alike: a node copies its own."""

    def alike(table: Any) -> Any:
        return np.broadcast_to(table[0].copy(), table.shape) if (table == table[0]).all() else table

    tables = {role: mapped(alike, table) for role, table in instance.plan.tables.items()}
    return instance._replace(plan=instance.plan._replace(tables=tables))


class Crash(BaseException):
    """The process ends here."""


class Host:
    """A machine: its disk, its clock, and the process that runs on it, if one does."""

    def __init__(self, simulation: "Simulation", name: str, number: int, label: str = ""):
        self.simulation, self.name, self.number, self.label = simulation, name, number, label or name
        self.disk = SimulatedDisk(self.label, simulation.deploy.durable)
        self.policy: Policy | None = None  # its site's rules
        self.site: SimulatedDisk | None = None
        self.node: Any = None
        self.last: Any = None  # the node of the last life
        self.box: deque[tuple[str, bytes]] = deque()
        self.lives = 0
        self.token = 0  # of the one wake-up that counts
        self.paused = False
        self.slow = 0.0  # seconds that a beat takes
        self.rate, self.step = 1.0, 0.0  # of its clocks
        self.crash_in = 0  # points until the process ends; 0: it does not
        self.powerless = False  # the crash to come is the machine's
        self.back = 1.0  # seconds after the crash to come until it runs again
        self.sentence = ""  # why it halted
        self.halts: Counter[str] = Counter()
        self.done = False
        self.leaves = False  # it was told to leave for good
        self.unaware = False  # it does not know who was revoked
        self.sample_at = 0.0  # when its sensor has the next sample
        self.draws = 0

    def point(self) -> None:
        """Here a process may end."""
        self.simulation.points += 1
        if self.simulation.points == self.simulation.crash_at:
            raise Crash
        if self.crash_in:
            self.crash_in -= 1
            if not self.crash_in:
                raise Crash


class Door:
    """What a node's process finds around it. One for each life."""

    def __init__(self, host: Host):
        self.host, self.simulation, self.life = host, host.simulation, host.lives
        self.link: Link = self
        self.disk: Disk | None = host.disk
        self.site: Disk | None = host.site

    def now(self) -> float:
        return self.simulation.time * self.host.rate

    def clock(self) -> float:
        return EPOCH + self.simulation.time * self.host.rate + self.host.step

    def sleep(self, seconds: float) -> None:
        pass

    def chance(self) -> int:
        self.host.draws += 1
        return (mix(self.simulation.seed, self.host.number, self.host.draws, 1) >> 1) + 1

    def secure_noise(self) -> None:
        pass  # it comes from the simulation's `secret` all along

    def vouch(self, said: bytes) -> bytes:
        return signature(self.host.name, said)

    def vouched(self, name: str, said: bytes, proof: bytes) -> bool:
        return proof.rstrip(b"\0") == signature(name, said).rstrip(b"\0")

    def revoked(self) -> frozenset[str]:
        return frozenset() if self.host.unaware else self.simulation.revoked

    def rules(self) -> Any:
        return self.host.policy

    def about(self) -> dict[str, Any]:
        return {"pid": self.life, "time": self.clock()}

    # --- the link -----------------------------------------------------------------------------------------------------

    def send(self, to: str, data: bytes) -> None:
        self.host.point()
        self.simulation.carry(self.host, to, data)
        self.host.point()

    def receive(self) -> tuple[str, bytes] | None:
        return self.host.box.popleft() if self.host.box else None

    def wait(self, seconds: float) -> bool:
        return bool(self.host.box)

    def close(self) -> None:
        pass


def signature(name: str, said: bytes) -> bytes:
    """In place of a certificate's: nobody here makes up another's, unless a test does."""
    return blake2b(name.encode() + said, digest_size=16).digest()


class Sensor(ProblemSource):
    """A client's share of the problem, a sample every so often."""

    def __init__(self, view: Any, host: Host):
        super().__init__(view)
        self.host = host

    def ready(self) -> bool:
        return self.host.simulation.time >= self.host.sample_at

    def wakes(self, now: float) -> float:
        return float("inf") if self.ready() else self.host.sample_at * self.host.rate + SOON

    def look(self, moment: Any) -> tuple[bool, Any]:
        simulation = self.host.simulation
        spread = 0.75 + 0.5 * uniform(simulation.seed, self.host.number, int(moment.round), 2)
        self.host.sample_at = simulation.time + simulation.interval * spread
        return super().look(moment)


class Watcher:
    """Sees everything and does nothing; `observer.Observer` also judges."""

    def started(self, host: Host) -> None: ...
    def sends(self, host: Host, to: str, data: bytes) -> None: ...
    def beaten(self, host: Host) -> None: ...
    def halted(self, host: Host, sentence: str) -> None: ...


class Simulation:
    """A deployed federation. `interval` is how many seconds apart the samples of a client are; 0: always there."""

    def __init__(self, federation: Any, seed: int = 0, watcher: Watcher | None = None, interval: float = 0.0):
        self.federation, self.seed, self.interval = federation, seed, interval
        self.deploy = federation.deploy
        self.watcher = watcher or Watcher()
        self.secret = SeededSource(seed)
        self.revoked: frozenset[str] = frozenset()
        self.time = 0.0
        self.queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.order = 0
        self.instance = once(federation.instance())
        self.roster = roster_of(self.instance)
        self.edges = set(self.roster.edges) | {(b, a) for a, b in self.roster.edges}
        self.hosts = {m.name: Host(self, m.name, i) for i, m in enumerate(self.roster.members)}
        self.twins: list[Host] = []
        self.latency, self.speed = 0.01, float("inf")  # seconds that a frame takes, and bytes a second of a link
        self.busy: dict[tuple[str, str], float] = {}  # until when a link carries what was sent before
        self.cut: set[tuple[str, str]] = set()  # links that carry nothing
        self.links: dict[tuple[str, str], Any] = {}  # (from, to) -> (data, now, how many) -> delays of its copies
        self.frames: Counter[tuple[str, str]] = Counter()
        self.refused: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.hash = blake2b(digest_size=16)
        self.trace: list[str] | None = None
        self.points, self.crash_at = 0, -1  # places at which a process may end, and the one at which one does
        self.piece, self.first = PIECE, 0
        self.described: dict[str, Any] = {}  # who has another description than the longest one
        self.restarts = True  # whoever halts is started again, as systemd does

    def note(self, *what: Any, body: bytes = b"") -> None:
        """A line of the history. What was learned is not in its hash: another processor rounds another last bit."""
        line = f"{self.time:.6f} {' '.join(map(str, what))}"
        self.hash.update(line.encode() + b"\n")
        if self.trace is not None:
            shown = body.hex() if len(body) < 64 else blake2b(body, digest_size=8).hexdigest()
            self.trace.append(f"{line} {shown}" if body else line)

    # --- events -------------------------------------------------------------------------------------------------------

    def at(self, when: float, action: Callable[..., None], *given: Any) -> None:
        self.order += 1
        heapq.heappush(self.queue, (max(when, self.time), self.order, action, given))

    def run(self, until: float = float("inf"), enough: Callable[[], bool] = lambda: False) -> None:
        """Let time go by, until a moment, until something holds, or until nothing is left to happen."""
        with nullcontext() if self.deploy.pace == "replay" else noise_from(self.secret):
            while self.queue and self.queue[0][0] <= until and not enough():
                self.time, _, action, given = heapq.heappop(self.queue)
                action(*given)
            if self.queue and until < float("inf") and not enough():
                self.time = max(self.time, until)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def start_all(self) -> None:
        for host in self.hosts.values():
            self.at(uniform(self.seed, host.number, 3), self.start, host)

    def start(self, host: Host) -> None:
        """A process for a node, if none runs."""
        if host.node is not None or host.done:
            return
        host.lives += 1
        host.step = 0.0  # a machine that starts sets its clock
        host.box.clear()
        for disk in (host.disk, host.site):
            if disk is not None:
                disk.point = host.point
        self.note("start", host.label, host.lives)
        try:
            self.open(host)
        except Crash:
            self.crash(host)
        except EXPECTED as problem:
            self.halt(host, problem)
        else:
            host.sentence = ""
            self.at(self.time, self.wake, host, host.token)

    def open(self, host: Host) -> None:
        view = self.view(host.name)
        source = source_of(view, "", Path())
        if source is not None and self.interval:
            source = Sensor(view, host)
        allowed = permit(host.policy, self.federation, view) if host.policy else None
        host.node = host.last = Node(view, Door(host), self.deploy, source, permit=allowed, leaves=host.leaves)
        host.node.report_every = LOOKED_AT
        host.node.account.most = FEW
        self.watcher.started(host)

    def view(self, name: str) -> Any:
        """What a node's process reads of the federation when it starts, untouched by earlier lives."""
        federation = self.described.get(name, self.federation)
        pristine = self.instance if federation is self.federation else federation.instance()
        task = pristine.task._replace(source=mapped(own, pristine.task.source))
        plan, accountant = pristine.plan, pristine.plan.accountant
        if isinstance(accountant, PersonalLedgers):
            fresh = [Ledger(old.node, old.terms, old.budget, old.charges) for old in accountant.ledgers]
            protect = plan.settings.protect._replace(ledgers=fresh)
            plan = plan._replace(
                settings=plan.settings._replace(protect=protect), accountant=accountant._replace(ledgers=fresh)
            )
        return view_of(federation, name, pristine._replace(task=task, plan=plan), piece=self.piece, first=self.first)

    def beat(self, host: Host) -> None:
        """Let a node do what it can, and wake it when it wants to be woken."""
        if host.node is None or host.paused:
            return None
        host.token += 1
        try:
            wait = host.node.beat()
            self.watcher.beaten(host)
            if not wait:
                host.point()
        except Crash:
            return self.crash(host)
        except EXPECTED as problem:
            return self.halt(host, problem)
        if host.node.over:
            self.note("done", host.label, host.node.player.round)
            host.node, host.done = None, True
            return None
        if wait < float("inf"):
            self.at(self.time + max(wait / host.rate, SOON) + host.slow, self.wake, host, host.token)
        return None

    def wake(self, host: Host, token: int) -> None:
        if token == host.token:
            self.beat(host)

    def kill(self, host: Host, back: float) -> None:
        """kill -9, between two beats; it is started again after so many seconds."""
        if host.node is not None:
            host.back = back
            self.crash(host)

    def crash(self, host: Host) -> None:
        """The process is gone, or the whole machine is."""
        self.note("power" if host.powerless else "kill", host.label)
        host.node, host.crash_in = None, 0
        host.token += 1
        if host.powerless:
            for disk in (host.disk, host.site):
                if disk is not None:
                    disk.lose_power(mix(self.seed, host.number, host.lives, 4))
        host.powerless = False
        if host.back < float("inf"):
            self.at(self.time + host.back, self.start, host)

    def halt(self, host: Host, problem: BaseException) -> None:
        """It ended by itself, with a sentence; who watches over it starts it again, a few times."""
        sentence = " ".join(str(problem).split())
        self.note("halt", host.label, sentence)
        host.node, host.sentence, host.crash_in = None, sentence, 0
        host.token += 1
        host.halts[sentence] += 1
        self.watcher.halted(host, sentence)
        if self.restarts and host.halts[sentence] <= AGAIN:
            self.at(self.time + min(5.0 * 2 ** host.halts[sentence], 600.0), self.start, host)

    # --- the network --------------------------------------------------------------------------------------------------

    def carry(self, host: Host, to: str, data: bytes) -> None:
        """Bytes on their way: as long as it takes, unless something happens to them on that link."""
        self.watcher.sends(host, to, data)
        edge = host.name, to
        if edge not in self.edges:
            self.refused.append(edge)
            return
        self.frames[edge] += 1
        count = self.frames[edge]
        key = mix(self.seed, host.number, self.hosts[to].number, count)
        law = self.links.get(edge)
        if edge in self.cut:
            self.counts["frames cut"] += 1
            return
        delays = [self.latency * (0.5 + (key & 0xFFFF) / 0xFFFF)]
        if self.speed < float("inf"):
            self.busy[edge] = max(self.busy.get(edge, 0.0), self.time) + len(data) / self.speed
            delays = [self.busy[edge] - self.time + self.latency]
        if law is not None:
            delays = law(delays[0], key)
        for wait in delays:
            self.at(self.time + wait, self.deliver, host.name, to, data)

    def deliver(self, sender: str, to: str, data: bytes) -> None:
        for host in (self.hosts[to], *(twin for twin in self.twins if twin.name == to)):
            if host.node is None:
                self.counts["frames to nobody"] += 1
                continue
            self.note(sender, ">", host.label, data[: HEADER.size].hex(), len(data), body=data[HEADER.size :])
            host.box.append((sender, data))
            self.counts["frames"] += 1
            if host.slow:
                self.at(self.time + host.slow, self.wake, host, host.token)
            else:
                self.beat(host)
