"""A node at work: it plays its steps as they become possible, keeps checkpoints, and talks to its neighbours.

NumPy is all it needs, beside the network: no compiler, no SciPy, no Matplotlib is loaded on a device.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from archipel.deploy import grow, keys, wire
from archipel.deploy.accounts import Join, account_of
from archipel.deploy.checkpoint import restore, state_of
from archipel.deploy.events import Events
from archipel.deploy.gate import Gate
from archipel.deploy.learned import MODEL
from archipel.deploy.pace import FOREVER, pace_of
from archipel.deploy.permit import Permit, permit
from archipel.deploy.player import Player
from archipel.deploy.post import LOG, PostOffice
from archipel.deploy.site import SiteLedger, joined
from archipel.deploy.sources import source_of
from archipel.deploy.store import ANEW, Halted, Store
from archipel.deploy.trace import Trace, write_status
from archipel.deploy.view import View, view_of
from archipel.deploy.world import World
from archipel.errors import BadInput, reading
from archipel.node import named_leaves
from archipel.policy import read_policy
from archipel.turns import Tell

IDLE = 0.5  # seconds between two looks around, where nothing happens
STATUS = 0.5  # seconds between two status files
MANY, GATHER = 32, 0.001  # with so many neighbours, wait so many seconds for more letters and sort them together
ACKNOWLEDGE = 2.0  # seconds that an acknowledgement waits for something to ride on
STEPS = 256  # steps done at once before the network is looked at again


class Node:
    """One member of a federation. In a world without a disk it keeps nothing.

    It never waits by itself: `beat` does what can be done now and says how long there will be nothing to do without
    news. `run` beats until all is over.
    """

    def __init__(
        self,
        view: View,
        world: World,
        deploy: Any,
        source: Any = None,
        linger: float = 1.0,
        permit: Permit | None = None,
        leaves: bool = False,
    ):
        self.view, self.world, self.deploy, self.linger, self.leaves = view, world, deploy, linger, leaves
        self.gate = Gate(world, permit) if permit else None
        world.link = self.gate or world.link  # from here on nothing leaves but through the gate, if there is one
        self.store = Store(world.disk, deploy.durable, view.vocabulary.piece) if world.disk else None
        self.trace = Trace(world.disk) if world.disk else None
        self.pace = pace_of(deploy, view.member.name, view.roster.leaders(), world)
        neighbours = {name: view.salt(name) for name in view.roster.neighbours(view.member.name)}
        self.office = PostOffice(world, neighbours, view.vocabulary, view.digest)
        self.extent = grow.extent(view)
        self.sites: list[SiteLedger] = []
        join: Join = (lambda ledger: self.sites.append(joined(world, permit, ledger))) if permit else (lambda _: None)
        self.account = account_of(view, world.disk, not self.pace.replay, join)
        self.account.limited = permit is not None and bool(permit.policy.privacy.key)
        if self.account.private and not self.pace.replay:
            world.secure_noise()
        self.player = Player(view, world, self.office, self.pace, source, self.account)
        self.begun, self.anxious = world.now(), True
        self.left: float | None = None  # when it had played its last round
        self.quiet = 0.0  # since when nothing is left unanswered
        self.answered: list[tuple[int, int]] = []  # of what is: letters, and pieces of the next one
        self.over, self.looked = False, self.begun
        self.reported, self.report_every = -FOREVER, STATUS
        self.checkpoints = 0
        self.events = Events(self, deploy.status, permit is None or "status" in permit.policy.leaves)
        self.resume()
        self.latest = self.status()  # for whoever looks on
        self.events.begin()

    def resume(self) -> None:
        """Go on from the last checkpoint, if there is one."""
        record = self.store.load() if self.store else None
        if record is not None:
            if record["digest"] != self.view.digest.hex():
                right = f"the state of this federation, not of another one ({ANEW})"
                raise BadInput("deploy.state", str(self.world.disk.path) if self.world.disk else "", right)
            grow.check(record["extent"], self.extent, self.view)
            restore(self.player, record)
            grow.reopen(self.player, record["extent"])
            if self.player.gone and not self.leaves:
                raise Halted(f"{self.view.member.name} has left this federation; {ANEW}.")
            self.office.flush()
        elif self.store:  # before anything is charged: else nobody could tell whether what was paid for has left
            self.save()
        self.measure()

    def remember(self, status: dict[str, Any]) -> None:
        """What was known of the neighbours in its last life: for whoever looks on, so it is in no checkpoint."""
        for name, known in status.get("neighbours", {}).items() if self.office.restored else ():
            if name in self.office.neighbours:
                self.office.neighbours[name].remember(known)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Play until all rounds are over and all letters are answered, or until told to stop."""
        many = len(self.office.neighbours) >= MANY
        while not stop() and not self.over:
            wait = self.beat()
            if self.over or not self.world.link.wait(min(wait, IDLE)) or not many:
                continue
            self.world.sleep(GATHER)
        self.report(now=True)
        if not self.player.finished and not self.player.gone:
            self.events.stop()

    def beat(self) -> float:
        """Take in what came, do what can be done, save it, send it; returns the seconds to wait for news."""
        if self.leaves and self.left is None:
            self.leave()
        self.bar(self.world.revoked())
        self.obey(self.world.rules())
        came = self.office.pump()
        if self.office.met:  # who starts again is answered with all that was taken
            self.save()
            came |= self.office.pump()
        if came:
            self.player.notice()
        if self.left is not None:
            return self.stay(came)
        if self.go_on():
            return 0.0
        if self.player.finished:
            self.measure()
            self.keep_model()
            self.events.end()
            self.say_goodbye()
            self.left = self.quiet = self.world.now()
            self.report(now=True)
            return self.stay(came)
        owed = self.acknowledge()
        self.check_patience()
        self.forget()
        self.report()
        worried = self.begun + self.deploy.patience if self.anxious else FOREVER
        soon = min(self.player.wakes(), self.office.alarm, owed, worried, self.events.tell())
        return max(0.0, soon - self.world.now())

    def bar(self, revoked: frozenset[str]) -> None:
        """Who was revoked takes no further part: nothing is heard of it, nothing is kept for it, nobody waits."""
        if self.view.member.name in revoked:
            raise Halted(f"{self.view.member.name}: its certificate was revoked.")
        self.office.revoked = revoked
        for name in revoked & self.office.neighbours.keys():
            if not self.office.neighbours[name].left:
                LOG.warning("%s was revoked: going on without it", name)
                self.player.mailbox.leaves(name)

    def obey(self, policy: Any) -> None:
        """The site's rules may change at any time: what they forbid now halts the node, the rest holds from here on."""
        if self.gate is None or policy is None or policy == self.gate.policy:
            return
        assert self.gate.permit.again is not None
        permit = self.gate.permit.again(policy)
        LOG.info("%s: the site's policy has changed", self.view.member.name)
        self.gate.permit, self.gate.policy = permit, policy
        self.account.limited = bool(policy.privacy.key)
        for site in self.sites:
            site.obey(permit, site.ledger.charges)
        self.events.allow("status" in policy.leaves)

    def acknowledge(self) -> float:
        """Save and acknowledge what was taken, where nothing else does so for a while; returns when that will be.

        An acknowledgement rides on what is sent anyway. In rounds that take long there is nothing, and its sender would
        say it again and again, and learn that answers take as long as rounds do.
        """
        if not self.office.took:
            return FOREVER
        now = self.world.now()
        if now >= self.office.took_at + ACKNOWLEDGE:
            self.save()
            return FOREVER
        return self.office.took_at + ACKNOWLEDGE

    def go_on(self) -> bool:
        """All steps that are possible now, then a checkpoint; whether there may be more."""
        done, player = 0, self.player
        while done < STEPS and not player.finished and player.ready():
            player.run()
            done += 1
            if player.at == 0:
                self.measure()
        if done or self.office.posted:
            self.save()
        return done == STEPS

    def save(self) -> None:
        """First the checkpoint, then the letters."""
        if self.store is not None:
            self.store.save({"digest": self.view.digest.hex(), "extent": self.extent, **state_of(self.player)})
            self.checkpoints += 1
            self.account.leaving()
        self.office.commit()
        if self.store is not None:
            self.account.settle()

    def stay(self, came: bool) -> float:
        """Stay until nothing is left unanswered, and a little longer for those who missed our answers."""
        assert self.left is not None
        if (
            self.office.took or self.office.posted
        ):  # so that what came in is acknowledged, and who was met late gets its letters
            self.save()
        now = self.world.now()
        waiting = [other for other in self.office.neighbours.values() if other.letters]
        if waiting:
            self.quiet = now
            answered = [(other.acked, other.sending.first if other.sending else 0) for other in waiting]
            if answered != self.answered or (self.gate and self.gate.shut):  # a last word may take long to arrive
                self.answered, self.left = answered, now
        end = min(self.quiet + self.linger, self.left + max(self.deploy.patience, self.linger))
        self.over = now >= end
        self.report(now=self.over)
        return 0.0 if self.over else min(end, self.office.alarm) - now

    def leave(self) -> None:
        """Take no further part: say what is in the outbox and goodbye, and stay until that is answered."""
        if not self.player.gone:
            self.player.gone = True
            for name in self.office.neighbours:
                self.office.post(name, wire.OVER, 0, self.player.round)
            self.save()
        self.left = self.quiet = self.world.now()

    def forget(self) -> None:
        """Nothing is kept for who has not answered for very long; it is not waited for anyway."""
        now = self.world.now()
        if now < self.looked + self.deploy.forget / 10 or self.pace.replay:
            return
        self.looked = now
        for name, other in self.office.neighbours.items():
            if other.letters and now > max(other.when, self.begun) + self.deploy.forget:
                LOG.warning("%s has not answered for %g seconds: its letters are dropped", name, self.deploy.forget)
                self.office.forget(other)
        self.player.ask_again()

    def say_goodbye(self) -> None:
        """A server tells who still asks that it is over."""
        if self.pace.replay:
            return
        for i, turn in enumerate(self.view.plan.turns):
            if isinstance(turn, Tell) and turn.sender == self.view.member.role:
                for other in self.view.says(i, 0):
                    self.office.post(other.name, wire.OVER, i, self.view.rounds)
        self.save()

    def check_patience(self) -> None:
        """A node that reaches nobody says so, rather than wait for ever; in a replay, one that lacks anybody.

        A state that is not the last one would release again, with other noise, what it was charged for once.
        """
        neighbours = self.office.neighbours.values()
        ahead = [other for other in neighbours if other.ahead]
        if ahead and (self.account.private or len(neighbours) == 1):
            raise Halted(f"{self.view.member.name}: {self.why([other.name for other in ahead], '')}")
        for other in ahead:  # one of many may lie, and what is not private may be said again
            LOG.warning("%s has got more than this state knows of: counting anew with it", other.name)
            self.office.count_anew(other)
        if self.anxious and self.gate and self.gate.shut:
            self.begun = self.world.now()
        if not self.anxious or self.world.now() < self.begun + self.deploy.patience:
            return
        done = self.player.mailbox.has_said_all
        silent = [
            name
            for name, other in self.office.neighbours.items()
            if not (other.heard or other.left or done(name, self.view.rounds))
        ]
        if silent and (self.pace.replay or not any(other.heard for other in neighbours)):
            raise Halted(f"{self.view.member.name}: {self.why(silent, f'for {self.deploy.patience:g} seconds')}")
        self.anxious = False
        if silent:
            LOG.warning("%s Going on without.", self.why(silent, "so far"))

    def why(self, silent: list[str], since: str) -> str:
        """Why these neighbours do not take part, as far as this node can know."""
        ahead = [name for name in silent if self.office.neighbours[name].ahead]
        if ahead:
            return (
                f"this state is older than what has left it: {', '.join(ahead[:3])} has got more than it knows of. "
                f"Restore the last one ({self.world.disk.path if self.world.disk else ''}), or, {ANEW}."
            )
        differ = [name for name in silent if self.office.neighbours[name].differs]
        if differ:
            return (
                f"{', '.join(differ[:3])} runs another description. All nodes need the same one; only addresses, "
                "keys, state, data and budgets may differ."
            )
        return (
            f"no answer from {', '.join(silent[:3])} {since}. Are they running, are the addresses right, "
            "and are the certificates from the same authority?"
        )

    def keep_model(self) -> None:
        """Write what was learned."""
        if self.world.disk is not None:
            paid = self.account.total(self.player.me)
            model = self.view.learned.packed(self.player.me, self.player.round, paid)
            self.world.disk.replace(MODEL, model, durable=True)

    # --- for whoever looks on -----------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Write the row down at the measured rounds; after a jump, for the last of them."""
        n, player = self.player.round, self.player
        mark = n if n >= self.view.rounds else n - n % self.view.every
        if self.trace is None or mark <= self.trace.last:
            return
        row = {f"me.{name}": array for name, array in named_leaves(player.me)}
        counts = {"messages": list(player.messages), "updates": int(player.updates)}
        self.trace.write({"round": mark, **counts, **row})

    def report(self, now: bool = False) -> None:
        """How it is doing, every now and then."""
        moment = self.world.now()
        if self.world.disk is None or (moment < self.reported + self.report_every and not now):
            return
        self.reported = moment
        self.events.look()
        self.latest = self.status() | {"done": self.player.finished or self.player.gone, "gone": self.player.gone}
        write_status(self.world.disk, self.latest)

    def status(self) -> dict[str, Any]:
        """The numbers of the live table."""
        traffic = self.office.traffic
        return {
            "name": self.view.member.name,
            **self.world.about(),
            "round": self.player.round,
            "present": self.player.present,
            "heard": sum(other.heard for other in self.office.neighbours.values()),
            "bytes": traffic["bytes out"] + traffic["bytes in"],
            "traffic": dict(traffic),
            "faults": dict(self.office.faults + self.player.mailbox.faults),
            "too late": self.player.too_late,
            "skipped": self.player.source.skipped if self.player.source else 0,
            "paid": self.account.total(self.player.me),
            "rounds": self.view.rounds,
            "held back": self.gate.held if self.gate else 0,
            "neighbours": self.office.known(),
        }

    def close(self) -> None:
        self.world.link.close()
        self.account.close()
        if self.store:
            self.store.close()
        if self.trace:
            self.trace.close()
        if self.world.disk:
            self.world.disk.close()


def open_node(
    federation: Any,
    name: str,
    base: Path,
    folder: Path | None,
    addresses: dict[str, str],
    linger: float = 1.0,
    policy: Path | None = None,
    leaves: bool = False,
) -> Node:
    """A node of a federation in the real world. `base` is the folder of the description, `policy` the site's rules."""
    from archipel.deploy.real import read_status, real_world
    from archipel.deploy.zenoh_link import access, bare_config, tls

    deploy = federation.deploy
    with reading():
        view = view_of(federation, name, base=base)
    allowed = permit(read_policy(policy), federation, view) if policy else None
    certificates = base / deploy.keys
    keys.check(certificates, name)
    neighbours = view.roster.neighbours(name)
    listen = [f"tls/{addresses[name]}"] if name in addresses else []
    calls = [f"tls/{addresses[other]}" for other in view.roster.calls(name, addresses)]
    settings = bare_config(listen, calls, view.vocabulary.largest)
    settings |= tls(certificates, name) | access(name, neighbours)
    with reading():
        source = source_of(view, deploy.data, base)
    site = policy.parent / "site" if policy else None
    state = folder or base / deploy.state / name
    world = real_world(name, neighbours, settings, state, site, certificates / keys.REVOKED, policy)
    try:
        node = Node(view, world, deploy, source, linger, allowed, leaves)
        node.remember(read_status(state))
        return node
    except BaseException:
        world.link.close()
        raise
