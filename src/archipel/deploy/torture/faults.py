"""What a seed does to a federation. Which faults there are, and how often each, a seed chooses too (swarm testing).

A fault is a line of data: a history can be cut down, fault by fault, and the rest stays as it was.
"""

from collections import Counter
from typing import Any, NamedTuple

from archipel.deploy.node import IDLE
from archipel.deploy.store import FILES
from archipel.deploy.torture.chance import mix, uniform
from archipel.deploy.torture.hostile import hostile, posing
from archipel.deploy.torture.simulation import Host, Simulation
from archipel.deploy.wire import HEADER, near

FAIR = ("kill", "power", "full", "error", "cut", "part", "loss", "repeat", "late", "step", "pause", "slow")
FOUL = ("flip", "old", "wipe", "twin", "lie")  # what no node can undo: it may halt, never be wrong
LONG = ("cut", "part", "pause", "loss", "full")  # these may last for hours
POINTS = 40  # a process ends within so many things that it does


class Fault(NamedTuple):
    """Something that goes wrong."""

    at: float
    kind: str
    who: str
    other: str = ""  # the other end of a link
    much: float = 0.0  # seconds, or a share
    which: int = 0  # a further choice

    def __str__(self) -> str:
        ends = f"{self.who} > {self.other}" if self.other else self.who
        return f"{self.at:.3f} {self.kind} {ends} {self.much:.3f} {self.which}"


def chosen(seed: int, simulation: Simulation, until: float, count: int, foul: bool) -> list[Fault]:
    """The faults of a seed, in their order: at most `count` of them, before a moment."""
    names, edges = list(simulation.hosts), sorted(simulation.edges)
    kinds = [kind for i, kind in enumerate(FAIR) if uniform(seed, i, 10) < 0.6]
    if foul:
        kinds += [FOUL[mix(seed, 11) % len(FOUL)]]
    weights = [uniform(seed, i, 12) ** 2 for i in range(len(kinds))]
    found: list[Fault] = []
    for n in range(count if kinds else 0):
        kind = picked(kinds, weights, uniform(seed, n, 14))
        if kind in FOUL and sum(fault.kind in FOUL for fault in found) >= 3:
            continue
        who, other = edges[mix(seed, n, 15) % len(edges)]
        if kind not in ("cut", "loss", "repeat", "late", "lie"):
            who, other = names[mix(seed, n, 16) % len(names)], ""
        longest = min(until / 8, 3600.0) if kind in LONG and uniform(seed, n, 17) < 0.2 else 60.0
        much = longest * uniform(seed, n, 18) ** 2
        found.append(Fault(until * uniform(seed, n, 13), kind, who, other, much, mix(seed, n, 19) >> 33))
    if mix(seed, 41) % 8 == 1:
        staying = [m.name for m in simulation.roster.members if m.role != "server"]
        found.append(Fault(until * uniform(seed, 42), "leave", staying[mix(seed, 43) % len(staying)]))
    if mix(seed, 65) % 16 == 1:
        barred = [m.name for m in simulation.roster.members if m.role != "server"]
        found.append(
            Fault(until * uniform(seed, 46), "revoke", barred[mix(seed, 47) % len(barred)], which=mix(seed, 66) >> 33)
        )
    return sorted(found)


def picked(kinds: list[str], weights: list[float], share: float) -> str:
    """The kind at a share of all weights."""
    left = share * sum(weights)
    for kind, weight in zip(kinds, weights):
        left -= weight
        if left <= 0:
            return kind
    return kinds[-1]


class Trouble:
    """What links do to frames while faults last."""

    def __init__(self, simulation: Simulation):
        self.simulation = simulation
        self.active: Counter[tuple[str, str]] = Counter()  # (kind, edge or node) -> how many such faults last
        for sender, receiver in simulation.edges:
            simulation.links[sender, receiver] = self.law(sender, receiver)

    def law(self, sender: str, receiver: str) -> Any:
        edge, counts = f"{sender}>{receiver}", self.simulation.counts

        def carried(delay: float, key: int) -> list[float]:
            if not self.active:
                return [delay]
            on = self.active
            if on["cut", edge] or on["part", sender] or on["part", receiver]:
                counts["frames cut"] += 1
                return []
            if on["loss", edge] and key >> 16 & 255 < 100:
                counts["frames lost"] += 1
                return []
            delays = [delay]
            if on["late", edge] and key >> 24 & 255 < 128:
                counts["frames late"] += 1
                delays = [delay + 20.0 * (key >> 32 & 255) / 255]
            if on["repeat", edge] and key >> 40 & 255 < 100:
                counts["frames repeated"] += 1
                delays += [delay + 5.0 * (key >> 48 & 255) / 255]
            return delays

        return carried

    def begin(self, kind: str, where: str, seconds: float) -> None:
        self.active[kind, where] += 1
        self.simulation.at(self.simulation.time + seconds, self.end, kind, where)

    def end(self, kind: str, where: str) -> None:
        self.active[kind, where] -= 1
        self.active += Counter()


class Faults:
    """Does to a simulation what its seed chose, and counts it."""

    def __init__(self, simulation: Simulation, faults: list[Fault]):
        self.simulation, self.trouble = simulation, Trouble(simulation)
        self.copies: dict[str, dict[str, bytes]] = {}
        self.foul: Counter[str] = Counter()  # whose state was tampered with
        self.gone: set[str] = (
            set()
        )  # whose letters are lost for good: others took them, a lost disk had them, or a liar
        self.lied: set[tuple[str, str]] = set()  # who, and to whom
        for fault in faults:
            simulation.at(fault.at, self.happens, fault)

    def happens(self, fault: Fault) -> None:
        world, host = self.simulation, self.simulation.hosts[fault.who]
        if host.done:
            return
        world.note("fault", fault)
        if getattr(self, fault.kind)(host, fault) is not False:
            world.counts["faults"] += 1
            world.counts[f"fault: {fault.kind}"] += 1

    # --- processes and machines ---------------------------------------------------------------------------------------

    def kill(self, host: Host, fault: Fault) -> bool:
        """kill -9, at one of the next things that the process does."""
        if host.node is None:
            return False
        host.crash_in, host.powerless, host.back = 1 + fault.which % POINTS, False, fault.much
        return True

    def power(self, host: Host, fault: Fault) -> bool:
        """The machine stops."""
        if not self.kill(host, fault):
            return False
        host.powerless = host.disk.power_fails
        return True

    def pause(self, host: Host, fault: Fault) -> bool:
        if host.paused or host.node is None:
            return False
        host.paused = True
        self.simulation.at(self.simulation.time + fault.much, self.resume, host)
        return True

    def resume(self, host: Host) -> None:
        host.paused = False
        self.simulation.beat(host)

    def slow(self, host: Host, fault: Fault) -> None:
        host.slow = 0.001 * (1 + fault.which % 2000)
        self.simulation.at(self.simulation.time + fault.much, setattr, host, "slow", 0.0)

    def step(self, host: Host, fault: Fault) -> None:
        """Somebody sets the clock."""
        host.step += (fault.which % 20_001 - 10_000) / 2

    # --- disks --------------------------------------------------------------------------------------------------------

    def full(self, host: Host, fault: Fault) -> None:
        host.disk.full = True
        self.simulation.at(self.simulation.time + fault.much, setattr, host.disk, "full", False)

    def error(self, host: Host, fault: Fault) -> None:
        host.disk.fails = 1 + fault.which % POINTS

    def flip(self, host: Host, fault: Fault) -> bool:
        """A bit changes while the machine is off: in a checkpoint, or in what is written down for who looks on."""
        if host.node is None:
            return False
        self.simulation.kill(host, fault.much)
        self.foul[host.name] += 1
        return host.disk.flip((*FILES, "rows", "ledger.journal")[fault.which % 4], fault.which >> 2)

    def old(self, host: Host, fault: Fault) -> bool:
        """Somebody puts back a copy of the folder, made when this came up first; ledgers are kept, as the guide says.

        Not one of a state that was itself put aside for an older one: the observer follows one line of states.
        """
        before = self.copies.get(host.name)
        if before is None:
            self.copies[host.name] = host.disk.copy()
        if host.node is None or before is None:
            return False
        self.simulation.kill(host, fault.much)
        kept = {name: data for name, data in host.disk.copy().items() if name == "ledger.journal"}
        host.disk.put(before | kept)
        self.foul[host.name] += 1
        return True

    def wipe(self, host: Host, fault: Fault) -> bool:
        """The disk is replaced; the ledger was kept elsewhere."""
        if host.node is None:
            return False
        self.simulation.kill(host, fault.much)
        host.disk.put({name: data for name, data in host.disk.copy().items() if name == "ledger.journal"})
        self.foul[host.name] += 1
        self.gone.add(host.name)
        return True

    # --- links --------------------------------------------------------------------------------------------------------

    def cut(self, host: Host, fault: Fault) -> None:
        """One way, or both."""
        self.trouble.begin("cut", f"{fault.who}>{fault.other}", fault.much)
        if fault.which & 1:
            self.trouble.begin("cut", f"{fault.other}>{fault.who}", fault.much)

    def part(self, host: Host, fault: Fault) -> None:
        """A node reaches nobody."""
        self.trouble.begin("part", fault.who, fault.much)

    def loss(self, host: Host, fault: Fault) -> None:
        self.trouble.begin(fault.kind, f"{fault.who}>{fault.other}", fault.much)

    repeat = late = loss

    def leave(self, host: Host, fault: Fault) -> bool:
        """It says goodbye, and is not waited for any more."""
        if host.node is None or host.node.left is not None:
            return False
        self.simulation.at(self.simulation.time, self.says_goodbye, host)
        return True

    def says_goodbye(self, host: Host) -> None:
        host.leaves = True  # also after a crash
        self.simulation.kill(host, 0.0)

    def revoke(self, host: Host, fault: Fault) -> None:
        """Its certificate is no longer good. Whether it knows that or goes on: nobody hears it."""
        world = self.simulation
        world.revoked |= {host.name}
        host.unaware = bool(fault.which & 1)
        for other in [*world.hosts.values(), *world.twins]:  # whoever waits for letters looks around all the same
            world.at(world.time + IDLE, world.beat, other)

    # --- people -------------------------------------------------------------------------------------------------------

    def twin(self, host: Host, fault: Fault) -> None:
        """A second process with the same name and certificate, with a folder of its own, empty."""
        world = self.simulation
        label = host.name + "'" * (1 + sum(other.name == host.name for other in world.twins))  # watched apart
        twin = Host(world, host.name, host.number + 1000 + len(world.twins), label)
        twin.disk.path = f"state/{host.name}-twin"
        world.twins.append(twin)
        self.foul[host.name] += 1
        self.gone.add(host.name)
        world.start(twin)
        world.at(world.time + fault.much, self.end_twin, twin)

    def end_twin(self, twin: Host) -> None:
        twin.node, twin.done = None, True

    def lie(self, host: Host, fault: Fault) -> bool:
        """A neighbour with a valid certificate sends what it must not."""
        if host.node is None:
            return False
        self.lied.add((host.name, fault.other))
        frames = [hostile(mix(fault.which, i), host.node, fault.other) for i in range(1 + fault.which % 8)]
        other = host.node.office.neighbours[fault.other]
        said = [HEADER.unpack_from(data)[4] for data in frames if len(data) >= HEADER.size]
        victim = self.simulation.hosts[fault.other].node
        sent = victim.office.neighbours[host.name].next_out if victim else 0
        if any(other.safe_in < near(ack, other.safe_in) <= sent for ack in said):
            self.gone.add(host.name)  # it acknowledges what it has not saved, or not even got, and may lose that
        for data in frames + posing(fault.which, host.node, self.simulation.hosts[fault.other].node):
            self.simulation.counts["hostile frames"] += 1
            self.simulation.at(self.simulation.time, self.simulation.deliver, host.name, fault.other, data)
        return True
