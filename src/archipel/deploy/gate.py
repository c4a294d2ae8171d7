"""The gate: the one place through which bytes leave a node that has a policy, and the log of what passed.

It stands in front of the network, so nothing can be sent around it. What may not leave at all halts the node with a
sentence; what may not leave now (hours, bandwidth) is lost as on any link, and the post office says it again later.
"""

from archipel.deploy import wire
from archipel.deploy.left import Left
from archipel.deploy.permit import Permit
from archipel.deploy.store import Halted
from archipel.deploy.world import Link, World
from archipel.errors import BadInput
from archipel.policy import DAY

NOTES = "notes"  # greetings, acknowledgements, who is there and who asks: 12 to 40 bytes that carry no data
WORDLESS = {wire.HELLO, wire.ACK, wire.QUIET, wire.ASK, wire.NOTHING, wire.HERE, wire.AWAY, wire.OVER}
WORDLESS |= {wire.LOST, wire.GOT, wire.HAVE}


class Gate:
    """A link that lets through what a policy allows."""

    def __init__(self, world: World, permit: Permit):
        assert world.site is not None
        self.link: Link = world.link
        self.world, self.permit, self.policy = world, permit, permit.policy
        self.left = Left(world.site, f"{permit.name}-{permit.approval}.left")
        self.spare, self.since = 0.0, world.now()  # bytes that may leave at once: none are given for starting again
        self.held = 0  # frames that were not let through yet

    def send(self, to: str, data: bytes) -> None:
        what, number = self.check(to, data)
        if self.due(len(data)) > 0:
            self.held += 1
            return
        if self.policy.bytes_a_day:
            self.left.take(int(self.world.clock() // DAY), len(data), self.policy.bytes_a_day)
        self.spare -= len(data)
        self.left.note(self.world.clock(), to, what, number, len(data))
        self.link.send(to, data)

    def check(self, to: str, data: bytes) -> tuple[str, int]:
        """What a frame says, and of which round. The node was held to the rules before: this one is for its errors."""
        first, second, _, _, _, number = wire.HEADER.unpack_from(data)
        kind, what = first & 15, {NOTES}
        if kind == wire.STATUS:
            what = {"status"}
        elif kind not in WORDLESS:
            what = set(self.permit.contents[second & ~wire.ALSO_ASKS])
        refused = what - {NOTES, *self.policy.leaves}
        if to not in self.permit.to:
            raise Halted(str(BadInput("policy.to", list(self.permit.to), f'"{to}" among them. Nothing was sent')))
        if refused:
            right = f'"{min(refused)}" among them. Nothing was sent'
            raise Halted(str(BadInput("policy.leaves", list(self.policy.leaves), right)))
        if self.policy.rounds and number > self.policy.rounds:
            raise Halted(str(BadInput("policy.rounds", self.policy.rounds, f"at least {number}. Nothing was sent")))
        return ", ".join(sorted(what)), number

    def due(self, size: int) -> float:
        """Seconds until so many bytes may leave."""
        clock, rate = self.world.clock(), self.policy.bytes_a_second
        closed = self.policy.wait(clock)
        if closed:
            return closed
        if rate:
            now = self.world.now()
            self.spare, self.since = min(self.spare + rate * (now - self.since), float(rate)), now
            if self.spare < 0:
                return -self.spare / rate
        if self.policy.bytes_a_day and self.left.room(int(clock // DAY), self.policy.bytes_a_day) < size:
            return DAY - clock % DAY
        return 0.0

    @property
    def shut(self) -> bool:
        """Whether nothing leaves for long: who hears nobody then is not to be blamed."""
        return self.due(wire.HEADER.size) > 1.0

    def receive(self) -> tuple[str, bytes] | None:
        return self.link.receive()

    def wait(self, seconds: float) -> bool:
        return self.link.wait(seconds)

    def close(self) -> None:
        self.left.close()
        self.link.close()
