"""A node at work: it plays its steps as they become possible, keeps checkpoints, and talks to its neighbours.

NumPy is all it needs, beside the network: no compiler, no SciPy, no Matplotlib is loaded on a device.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from archipel.deploy import keys, wire
from archipel.deploy.accounts import account_of
from archipel.deploy.checkpoint import restore, state_of
from archipel.deploy.pace import pace_of
from archipel.deploy.player import Player
from archipel.deploy.post import LOG, PostOffice
from archipel.deploy.sources import source_of
from archipel.deploy.store import ANEW, Halted, Store
from archipel.deploy.trace import Trace, write_status
from archipel.deploy.transport import Link
from archipel.deploy.view import View, view_of
from archipel.errors import BadInput
from archipel.turns import Tell

IDLE = 0.5  # seconds between two looks around, where nothing happens
STATUS = 0.5  # seconds between two status files
MANY, GATHER = 32, 0.001  # with so many neighbours, wait so many seconds for more letters and sort them together
STEPS = 256  # steps done at once before the network is looked at again


class Node:
    """One member of a federation. Without a folder it keeps nothing: for tests and benchmarks."""

    def __init__(self, view: View, link: Link, deploy: Any, folder: Path | None = None, source: Any = None):
        self.view, self.link, self.deploy, self.folder = view, link, deploy, folder
        self.store = Store(folder, deploy.durable) if folder else None
        self.trace = Trace(folder) if folder else None
        self.pace = pace_of(deploy, view.member.name, view.roster.leaders())
        neighbours = view.roster.neighbours(view.member.name)
        self.office = PostOffice(link, neighbours, view.vocabulary, view.digest)
        self.account = account_of(view, folder, not self.pace.replay)
        if self.account.private and not self.pace.replay:
            from archipel.privacy.noise import use_secure_noise

            use_secure_noise()
        self.player = Player(view, self.office, self.pace, source, self.account)
        self.begun, self.anxious = time.monotonic(), True
        self.reported = 0.0
        self.checkpoints = 0
        self.resume()

    def resume(self) -> None:
        """Go on from the last checkpoint, if there is one."""
        record = self.store.load() if self.store else None
        if record is not None:
            if record["digest"] != self.view.digest.hex():
                right = f"the state of this federation, not of another one ({ANEW})"
                raise BadInput("deploy.state", str(self.folder), right)
            restore(self.player, record)
            self.office.flush()
        self.measure()

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self, stop: Callable[[], bool] = lambda: False, linger: float = 1.0) -> None:
        """Play until all rounds are over and all letters are answered, or until told to stop."""
        while not stop() and not self.player.finished:
            self.turn()
            self.check_patience()
        if self.player.finished:
            self.say_goodbye()
            self.wait_for_answers(stop, linger)
        self.report(done=self.player.finished)

    def turn(self, longest: float = IDLE) -> None:
        """Do what can be done, save it, send it; then wait for something to come in."""
        busy = self.go_on()
        wait = 0.0 if busy else min(longest, max(0.0, self.player.wakes() - time.monotonic()))
        if self.office.pump(wait):
            if len(self.office.neighbours) >= MANY and longest:
                time.sleep(GATHER)
                self.office.pump(0.0)
            self.player.notice()
        self.report()

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
            self.store.save({"digest": self.view.digest.hex(), **state_of(self.player)})
            self.checkpoints += 1
        self.office.commit()

    def say_goodbye(self) -> None:
        """A server tells who still asks that it is over."""
        if self.pace.replay:
            return
        for i, turn in enumerate(self.view.plan.turns):
            if isinstance(turn, Tell) and turn.sender == self.view.member.role:
                for other in self.view.says(i, 0):
                    self.office.post(other.name, wire.OVER, i, self.view.rounds)
        self.save()

    def wait_for_answers(self, stop: Callable[[], bool], linger: float) -> None:
        """Stay until nothing is left unanswered, and a little longer for those who missed our answers."""
        quiet, end = time.monotonic(), time.monotonic() + max(self.deploy.patience, linger)
        while not stop() and time.monotonic() < min(quiet + linger, end):
            if self.office.posted:  # for a neighbour that was met after the last round
                self.save()
            if self.office.pump(min(IDLE, linger)):
                self.player.notice()
                self.save()  # so that what came in is acknowledged
            if any(other.letters for other in self.office.neighbours.values()):
                quiet = time.monotonic()
            self.report(done=True)

    def check_patience(self) -> None:
        """A node that reaches nobody says so, rather than wait for ever; in a replay, one that lacks anybody.

        A state that is not the last one would release again, with other noise, what it was charged for once.
        """
        neighbours = self.office.neighbours.values()
        if self.account.private or len(neighbours) == 1:  # one of many may lie
            ahead = [other.name for other in neighbours if other.ahead]
            if ahead:
                raise Halted(f"{self.view.member.name}: {self.why(ahead, '')}")
        if not self.anxious or time.monotonic() < self.begun + self.deploy.patience:
            return
        silent = [name for name, other in self.office.neighbours.items() if not other.heard]
        if silent and (self.pace.replay or len(silent) == len(self.office.neighbours)):
            raise Halted(f"{self.view.member.name}: {self.why(silent, f'for {self.deploy.patience:g} seconds')}")
        self.anxious = False
        if silent:
            LOG.warning("%s Going on without.", self.why(silent, "so far"))

    def why(self, silent: list[str], since: str) -> str:
        """Why these neighbours do not take view, as far as this node can know."""
        ahead = [name for name in silent if self.office.neighbours[name].ahead]
        if ahead:
            return (
                f"this state is older than what has left it: {', '.join(ahead[:3])} has got more than it knows of. "
                f"Restore the last one ({self.folder}), or, {ANEW}."
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

    # --- for whoever looks on -----------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Write the row down at the measured rounds; after a jump, for the last of them."""
        n, player = self.player.round, self.player
        mark = n if n >= self.view.rounds else n - n % self.view.every
        if self.trace is None or mark <= self.trace.last:
            return
        row = {f"me.{name}": array for name, array in zip(player.me._fields, player.me)}
        counts = {"messages": list(player.messages), "updates": int(player.updates)}
        self.trace.write({"round": mark, **counts, **row})

    def report(self, done: bool = False) -> None:
        """How it is doing, every now and then."""
        now = time.monotonic()
        if self.folder is None or (now < self.reported + STATUS and not done):
            return
        self.reported = now
        write_status(self.folder, self.status() | {"done": done})

    def status(self) -> dict[str, Any]:
        """The numbers of the live table."""
        traffic = self.office.traffic
        return {
            "name": self.view.member.name,
            "pid": os.getpid(),
            "time": time.time(),
            "round": self.player.round,
            "present": self.player.present,
            "heard": sum(other.heard for other in self.office.neighbours.values()),
            "bytes": traffic["bytes out"] + traffic["bytes in"],
            "traffic": dict(traffic),
            "faults": dict(self.office.faults + self.player.mailbox.faults),
            "too late": self.player.too_late,
            "paid": self.account.total(self.player.me),
        }

    def close(self) -> None:
        self.link.close()
        self.account.close()
        if self.store:
            self.store.close()
        if self.trace:
            self.trace.close()


def open_node(federation: Any, name: str, base: Path, folder: Path | None, addresses: dict[str, str]) -> Node:
    """A node of a federation on a real network. `base` is the folder of the description."""
    from archipel.deploy.zenoh_link import ZenohLink, access, bare_config, tls

    deploy = federation.deploy
    view = view_of(federation, name)
    certificates = base / deploy.keys
    keys.check(certificates, name)
    neighbours = view.roster.neighbours(name)
    listen = [f"tls/{addresses[name]}"] if name in addresses else []
    calls = [f"tls/{addresses[other]}" for other in view.roster.calls(name, addresses)]
    settings = bare_config(listen, calls, view.vocabulary.largest)
    settings |= tls(certificates, name) | access(name, neighbours)
    source = source_of(view, deploy.data, base)
    link = ZenohLink(name, neighbours, settings)
    try:
        return Node(view, link, deploy, folder or base / deploy.state / name, source)
    except BaseException:
        link.close()
        raise
