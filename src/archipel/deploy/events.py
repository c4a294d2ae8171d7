"""A line for each thing that happens to a node, for the person who runs it, and what it tells its servers of itself.

Lines say who was met, who falls silent and is back, who left for good, which round was reached every minute, when all
is over and when the node is stopped before. Servers are
told something only where the description asks for it (`deploy.status`) and the site's policy lets it leave.
"""

from typing import Any

from archipel.deploy import wire
from archipel.deploy.exchange import Neighbour
from archipel.deploy.post import FOREVER, LATEST, LOG
from archipel.node import leaves

EVERY = 60.0  # seconds between two lines on the round
NAMED = 5  # neighbours that a line names


class Events:
    """What of a node is worth a line, and what it has said so far."""

    def __init__(self, node: Any, every: float, may_tell: bool):
        self.node, self.office, self.world = node, node.office, node.world
        self.met: set[str] = set()
        self.silent: set[str] = set()
        self.gone: set[str] = set()
        self.lined, self.shut = self.world.now(), False
        self.every, self.told = every, -FOREVER
        self.allow(may_tell)

    def allow(self, may_tell: bool) -> None:
        """Whether the site lets its status leave."""
        view = self.node.view
        servers = [name for name in view.roster.names.get("server", ()) if name in self.office.neighbours]
        self.tells = servers if self.every and may_tell and view.has_data else []

    def begin(self) -> None:
        """What this node is and from where it goes on."""
        view, gate = self.node.view, self.node.gate
        size = sum(array.nbytes for array in leaves(view.me))
        rules = f"under {gate.permit.approval} of its site's policy" if gate else "no policy: the site has no rules"
        LOG.info("%s: round %d of %d, %s", view.member.name, self.node.player.round, view.rounds, rules)
        self.note_missed()
        LOG.debug("%s keeps %d bytes of state, talks to %s", view.member.name, size, named(self.office.neighbours))

    def note_missed(self) -> None:
        """Rounds go by on the clock, whoever is there."""
        name, n, rounds = self.node.view.member.name, self.node.player.round, self.node.view.rounds
        missed = min(self.node.pace.begin(n) or n, rounds) - n
        if 0 < missed < rounds - n:
            LOG.info("%s: %d rounds went by on the clock while it did not run", name, missed)
        elif missed > 0:
            todo = "add rounds, or give a later deploy.start"
            LOG.warning("%s: the last %d rounds went by on the clock while it did not run: %s", name, missed, todo)

    def look(self) -> None:
        """Say what changed since the last look."""
        name, others, now = self.node.view.member.name, self.office.neighbours, self.world.now()
        met = [other for other, known in others.items() if known.heard and other not in self.met]
        gone = {other for other, known in others.items() if known.left}
        away = {other for other, known in others.items() if known.heard and is_silent(known)} - gone
        for names, what in (
            (met, "met %s"),
            (sorted(away - self.silent), "no answer from %s; what it is told waits"),
            (sorted(self.silent - away - gone), "%s answers again"),
            (sorted(gone - self.gone), "%s left for good; nobody waits for it"),
        ):
            if names:
                LOG.info("%s: " + what, name, named(names))
        self.met.update(met)
        self.silent, self.gone = away, gone
        gate = self.node.gate
        if gate and gate.shut != self.shut:
            self.shut = not self.shut
            LOG.info(
                "%s: the site's policy lets %s", name, "nothing leave for now" if self.shut else "words leave again"
            )
        if now >= self.lined + EVERY:
            self.lined = now
            sent = self.office.traffic["bytes out"]
            LOG.info("%s: round %d of %d, %d bytes sent", name, self.node.player.round, self.node.view.rounds, sent)

    def end(self) -> None:
        """The last round was played: a line, and what its servers are to know in the end."""
        LOG.info("%s: all %d rounds are over", self.node.view.member.name, self.node.view.rounds)
        self.told = -FOREVER
        self.tell()

    def stop(self) -> None:
        """Somebody ends it before its time: whoever looks for the reason in its log finds that there was one."""
        player, view = self.node.player, self.node.view
        LOG.info("%s: stopped in round %d of %d; started again it goes on", view.member.name, player.round, view.rounds)

    def tell(self) -> float:
        """Tell the servers how it goes, if that is asked for and allowed; returns when it is due again."""
        if not self.tells:
            return FOREVER
        now = self.world.now()
        if now >= self.told + self.every:
            self.told, player = now, self.node.player
            paid = self.node.account.total(player.me)
            skipped = player.source.skipped if player.source is not None else 0
            body = wire.STATE.pack(float("nan") if paid is None else paid, player.updates, skipped)
            for name in self.tells:
                self.office.say_status(name, player.round, body)
        return self.told + self.every


def is_silent(known: Neighbour) -> bool:
    """Whether a neighbour does not answer: what it was told was said again and again."""
    return known.wait >= LATEST and known.sent > known.acked


def named(names: Any) -> str:
    """A few names, and how many more.

    >>> named(["a", "b"]), named(str(i) for i in range(9))
    ('a, b', '0, 1, 2, 3, 4 and 4 more')
    """
    names = list(names)
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
