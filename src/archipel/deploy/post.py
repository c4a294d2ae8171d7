"""Letters between neighbours: each arrives once, in order, and stays in the outbox until it was answered.

The rule that makes a crash harmless: what a node posts leaves only after the checkpoint that holds it (`commit`), and
what it took is acknowledged only after the checkpoint that holds its effect. A node that is killed comes back as it was
at its last checkpoint; nobody saw anything later. It sends nothing new to a neighbour before it has heard it: who has
got more than this state knows of proves that it is not the last one. Acknowledgements are cumulative and ride on what
is sent anyway.

Two stores that meet tell each other who they are (`wire.HELLO`). A node that comes back with an empty disk is a new
one, and its neighbours start to count anew.
"""

import logging
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from archipel.deploy import exchange, pieces, wire
from archipel.deploy.exchange import Letter, Neighbour
from archipel.deploy.wire import Frame, Greeting, Refused, Vocabulary, near
from archipel.deploy.world import World

LOG = logging.getLogger("archipel.deploy")
WINDOW = 1024  # and frames
SOONEST, LONGEST = 0.3, 6.0  # seconds until something unanswered is sent again, as answers usually take
LATEST = 30.0  # the same, after it was sent again and again in vain
TICK = 0.05  # seconds between two looks at what is due
FOREVER = float("inf")
BURST = 16  # letters sent again at once


class PostOffice:
    """One node's letters, to and from all its neighbours."""

    def __init__(self, world: World, neighbours: Mapping[str, bytes], vocabulary: Vocabulary, digest: bytes):
        self.world, self.link, self.vocabulary, self.digest = world, world.link, vocabulary, digest
        self.mine = world.chance()
        self.restored = False
        self.neighbours = {
            name: Neighbour(name, self.mine, first=vocabulary.first, salt=salt) for name, salt in neighbours.items()
        }
        self.window = max(4, min(WINDOW, pieces.ROOM // (wire.HEADER.size + vocabulary.widest)))
        self.revoked: frozenset[str] = frozenset()
        self.faults: Counter[str] = Counter()
        self.traffic: Counter[str] = Counter()
        self.posted = False  # something waits for a checkpoint to leave
        self.took, self.took_at = False, 0.0  # something was taken that no checkpoint holds, and since when
        self.fresh: set[str] = set()  # who was heard since somebody last looked
        self.anew: set[str] = set()  # with whom counting began since somebody last looked
        self.owing = False  # a neighbour waits for an acknowledgement it missed
        self.met: tuple[str, bytes] | None = None  # a greeting that waits for the next checkpoint
        self.alarm = 0.0  # when something is due

    # --- for the node -------------------------------------------------------------------------------------------------

    def post(self, to: str, kind: int, turn: int, round: int, body: bytes = b"") -> None:
        """Put a letter into the outbox. It leaves after the next checkpoint."""
        other = self.neighbours[to]
        if other.left:
            return
        self.posted = True
        letter = Letter(kind, turn, False, round, body)
        if kind == wire.QUIET and other.next_out > other.safe_out:
            last = other.letters[-1]
            if last.kind == wire.QUIET and last.turn == turn and not last.also_asks:
                other.letters[-1] = letter  # silence up to a round says it all
                return
        if not other.letters:
            other.when = self.world.now()  # from here on an answer is expected
        other.drop_superseded(letter)
        other.letters.append(letter)

    def ask(self, to: str, turn: int, round: int) -> None:
        """Ask a neighbour for what it tells in its first Tell; on the back of a letter that has not left yet, if any.

        A letter of a turn may ask for the Tell that comes next: in the same round, or at the start of the next one.
        """
        other = self.neighbours[to]
        if other.next_out > other.safe_out:
            last = other.letters[-1]
            if last.kind in (wire.WORD, wire.QUIET) and last.round == (round if last.turn < turn else round - 1):
                other.letters[-1] = last._replace(also_asks=True)
                self.posted = True
                return
        self.post(to, wire.ASK, turn, round)

    def ask_ahead(self, to: str) -> None:
        """Let the letter just posted also ask for the next round."""
        other = self.neighbours[to]
        if not other.left:
            other.letters[-1] = other.letters[-1]._replace(also_asks=True)

    def waiting(self, name: str) -> deque[Frame]:
        """What came from a neighbour and was not taken yet."""
        return self.neighbours[name].waiting

    def take(self, name: str) -> Frame:
        """Take the next letter from a neighbour: its effect must be in the next checkpoint."""
        if not self.took:
            self.took, self.took_at = True, self.world.now()
        return self.neighbours[name].waiting.popleft()

    def state(self) -> dict[str, Any]:
        """All that a checkpoint must hold."""
        counts = {"traffic": dict(self.traffic), "faults": dict(self.faults)}
        return {"mine": self.mine, **exchange.kept(self.neighbours), **counts}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.mine, self.restored = state["mine"], True
        self.traffic.update(state["traffic"])
        self.faults.update(state["faults"])
        exchange.recall(state, self.neighbours)

    def commit(self) -> None:
        """The checkpoint is on disk: what was posted may leave, what was taken is acknowledged."""
        for other in self.neighbours.values():
            other.safe_out, other.safe_in = other.next_out, other.taken
        self.posted = self.took = False
        self.flush()

    # --- the network --------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what may leave, and acknowledgements that nothing else carries."""
        now = self.world.now()
        for other in self.neighbours.values():
            if other.theirs and (other.heard or not self.restored):
                self.send_new(other, now)
                if other.told != other.safe_in or other.owes:
                    self.transmit(other, wire.pack(wire.ACK, 0, False, other.tags[0], 0, other.safe_in, 0))

    def send_new(self, other: Neighbour, now: float) -> None:
        """What a checkpoint holds and was not sent yet, as far as the window reaches."""
        last = min(other.safe_out, other.acked + self.window)
        away = other.wait >= LATEST or (other.wait > other.usual and other.sent - other.acked >= exchange.CROWDED // 2)
        if other.sent >= last or (other.sent > other.acked and away):  # who does not answer gets no more
            return
        if other.sent == other.acked and other.sending is None:
            other.resend = now + other.wait
            self.alarm = min(self.alarm, other.resend)
        if other.stamp[0] < other.acked or other.stamp[1] == 0:
            other.stamp = other.sent, now
        while other.sent < last:
            other.gone = max(other.gone, other.sent + 1)
            if self.in_pieces(other, other.sent):
                if not pieces.send(self, other, now):
                    break
            else:
                self.send_letter(other, other.sent)
            other.sent += 1

    def in_pieces(self, other: Neighbour, seq: int) -> bool:
        """Whether a letter is too large for a frame."""
        return len(other.letters[seq - other.acked].body) > self.vocabulary.piece

    def learn(self, other: Neighbour, seconds: float) -> None:
        """An answer may take a while: learn how long."""
        other.usual = min(max(SOONEST, 2.5 * seconds, 0.5 * other.usual), LONGEST)

    def send_letter(self, other: Neighbour, seq: int) -> None:
        letter = other.letters[seq - other.acked]
        head = letter.kind, letter.turn, letter.also_asks, other.tags[0], seq, other.safe_in, letter.round
        self.transmit(other, wire.pack(*head, letter.body))

    def transmit(self, other: Neighbour, data: bytes) -> None:
        other.told, other.owes = other.safe_in, False
        self.send(other, data)

    def say_status(self, to: str, round: int, body: bytes) -> None:
        """Tell a neighbour how it goes: once, and without an answer."""
        other = self.neighbours[to]
        if other.theirs and other.heard:
            self.transmit(other, wire.pack(wire.STATUS, 0, False, other.tags[0], 0, other.safe_in, round, body))

    def known(self) -> dict[str, dict[str, Any]]:
        """What is known of each neighbour, for whoever looks on."""
        return {name: other.known() for name, other in self.neighbours.items()}

    def send(self, other: Neighbour, data: bytes) -> None:
        self.traffic["frames out"] += 1
        self.traffic["bytes out"] += len(data)
        if other.name not in self.revoked:
            self.link.send(other.name, data)

    def greet(self, other: Neighbour) -> None:
        data = wire.greet(Greeting(other.mine, other.theirs, other.safe_in, other.salted(self.digest)))
        self.traffic["hellos"] += 1
        self.send(other, data)
        other.pause = min(2 * other.pause, LATEST)
        other.hello = self.world.now() + other.pause

    def tick(self) -> None:
        """Greet who was not heard yet, send again what was not answered; `alarm` is when there is more to do.

        A repeated letter is the one in the outbox, byte for byte: noise is never drawn again.
        """
        now = self.world.now()
        if now < self.alarm:
            return
        soon = FOREVER
        for other in self.neighbours.values():
            if not other.heard and not other.left:  # who left greets if it comes back
                if now >= other.hello:
                    self.greet(other)
                soon = min(soon, other.hello)
            if other.theirs and (other.sent > other.acked or other.sending):
                if now >= other.resend:
                    self.send_again(other)
                    other.wait, other.stamp = min(2 * other.wait, LATEST), (other.sent, 0.0)
                    other.resend = now + other.wait
                soon = min(soon, other.resend)
        self.alarm = max(soon, now + TICK)

    def send_again(self, other: Neighbour) -> None:
        """The first letters that were not answered. Of a large one it is asked what is missing."""
        many = BURST if other.wait < LATEST else 1
        for seq in range(other.acked, min(other.sent, other.acked + many)):
            if self.in_pieces(other, seq):
                other.doubted = seq
                pieces.probe(self, other, seq)
            else:
                self.send_letter(other, seq)
            self.traffic["sent again"] += 1
        if other.sending:
            other.sending.probed = True
            pieces.probe(self, other, other.sent)

    def pump(self) -> bool:
        """Take in what the network has; whether anything came."""
        self.tick()
        count = 0
        while count < WINDOW and (found := self.next_frame()) is not None:
            self.arrived(*found)
            count += 1
        if self.owing:
            self.owing = False
            self.flush()
        return count > 0

    def next_frame(self) -> tuple[str, bytes] | None:
        """What the network has; a greeting only if all that was taken is in a checkpoint."""
        found, self.met = self.met or self.link.receive(), None
        if found is not None and self.took and wire.is_greeting(found[1]):
            self.met, found = found, None
        return found

    def arrived(self, sender: str, data: bytes) -> None:
        """One frame from the network. Whatever it is, it does no harm."""
        self.traffic["frames in"] += 1
        self.traffic["bytes in"] += len(data)
        other = self.neighbours.get(sender)
        try:
            if other is None:
                raise Refused("from a stranger")
            if sender in self.revoked:
                raise Refused("of a certificate that was revoked")
            other.came += len(data)
            frame = self.vocabulary.read(data)
            if frame.kind == wire.HELLO:
                self.greeted(other, wire.greeting_of(frame))
            elif frame.tag != other.tags[1] or not other.theirs:
                if self.world.now() >= other.hello:
                    self.greet(other)
                raise Refused("from another life")
            else:
                self.accept(other, frame)
        except Refused as refused:
            self.faults[refused.fault] += 1
            if self.faults[refused.fault] == 1:
                LOG.warning("refused a message from %s: %s (further ones are only counted)", sender, refused.fault)

    def accept(self, other: Neighbour, frame: Frame) -> None:
        """A frame of this exchange: what it acknowledges, and what it brings."""
        ack = near(frame.ack, other.acked)
        if ack > self.out(other):
            raise self.unsent(other)
        if frame.kind == wire.LOST and near(frame.seq, other.next_in) > other.next_in:
            other.ahead = other.ahead or self.restored
            raise Refused("has got more answers than this state knows of")
        if self.restored and not other.heard and not (frame.kind == wire.ACK and frame.also_asks):
            if self.world.now() >= other.hello:  # it may not have saved all that it took: its answer will tell
                self.greet(other)
            return
        if ack > other.acked:
            self.acknowledged(other, ack)
        elif ack < other.acked and other.wait > other.usual:  # what is said again in vain is not for this state of it
            self.say_lost(other)
        self.hear_from(other)
        other.round = max(other.round, frame.round)
        if frame.kind == wire.STATUS:
            other.said = frame.body
        if frame.kind in (wire.ACK, wire.LOST, wire.STATUS):
            return
        if frame.kind in (wire.GOT, wire.HAVE):
            (pieces.hear_got if frame.kind == wire.GOT else pieces.hear_have)(self, other, frame)
            return
        seq = near(frame.seq, other.next_in)
        if seq < other.next_in or seq in other.held:
            self.traffic["repeats"] += 1
            other.owes = self.owing = True
            if frame.kind == wire.SOME:
                pieces.say_got(self, other, frame, self.vocabulary.pieces(frame.turn), 0)
            return
        if seq >= other.safe_in + self.window:
            raise Refused("beyond the window")
        letter = pieces.hear(self, other, seq, frame) if frame.kind == wire.SOME else frame
        if letter is None:
            return
        other.held[seq] = letter
        while other.next_in in other.held:
            other.waiting.append(other.held.pop(other.next_in))
            other.next_in += 1

    def out(self, other: Neighbour) -> int:
        """What a neighbour may have got, up to here: before it is heard, nothing of this life."""
        return other.safe_out if other.heard or not self.restored else other.gone

    def unsent(self, other: Neighbour) -> Refused:
        """A neighbour has got more than was sent: a lie, unless it is what the first contact after a restart shows."""
        other.ahead = other.ahead or (self.restored and not other.heard)
        return Refused("acknowledges what was never sent")

    def hear_from(self, other: Neighbour) -> None:
        self.owing = self.owing or not other.heard  # what waited for this goes out
        other.heard, other.when, other.seen = True, self.world.now(), self.world.clock()
        if not other.twice:
            other.pause = exchange.HELLO_EVERY
        self.fresh.add(other.name)

    def acknowledged(self, other: Neighbour, ack: int) -> None:
        """Letters before `ack` are safe with the neighbour."""
        now = self.world.now()
        for _ in range(ack - other.acked):
            other.letters.popleft()
        seq, when = other.stamp
        if not when:  # it was sent again, so nobody knows what was answered: do not go back to repeating too soon
            other.usual = min(other.wait, LONGEST)
        elif seq < ack:
            self.learn(other, now - when)
            other.stamp = ack, 0.0
        if ack > other.sent:
            other.sending = None
        other.acked, other.sent, other.wait = ack, max(other.sent, ack), other.usual
        other.resend = now + other.wait
        self.send_new(other, now)

    def greeted(self, other: Neighbour, greeting: Greeting) -> None:
        """A neighbour says which store it has, and what it knows of ours."""
        other.differs = greeting.digest != other.salted(self.digest)
        if other.differs:
            raise Refused("runs another description")
        if not greeting.mine:
            raise Refused("a store without a number")
        is_new = greeting.mine != other.theirs
        if is_new:
            self.start_anew(other, greeting)
        knows_us = greeting.yours == other.mine
        known = knows_us and not is_new
        if known and greeting.expects > self.out(other):
            raise self.unsent(other)
        if known:
            self.answer(other)
        if known and greeting.expects < other.acked:  # an old greeting, or an older state: it will know
            self.say_lost(other)
        if knows_us and other.acked <= greeting.expects <= other.safe_out:
            other.sent, other.sending = greeting.expects, None  # what it missed while it was away goes out again
            self.acknowledged(other, greeting.expects)
        self.hear_from(other)
        if not known and (not other.twice or self.world.now() >= other.hello):
            self.greet(other)

    def answer(self, other: Neighbour) -> None:
        """Tell who greets all that was taken of it, which a checkpoint holds. The rest it says again."""
        other.drop_untaken()
        self.transmit(other, wire.pack(wire.ACK, 0, True, other.tags[0], 0, other.safe_in, 0))

    def say_lost(self, other: Neighbour) -> None:
        """A neighbour knows of fewer letters than it has answered: tell it, as its state is an older one."""
        self.transmit(other, wire.pack(wire.LOST, 0, False, other.tags[0], other.acked, other.safe_in, 0))

    def start_anew(self, other: Neighbour, greeting: Greeting) -> None:
        """The neighbour's store is a new one. What it has not got is numbered from 0, and waits for a checkpoint.

        If it has counted with this node before, it must count anew too: to it, this node has a new store. So it is
        where an earlier store is back, which may have got letters under these numbers that it has not saved yet.
        """
        counted = (greeting.yours == other.mine and greeting.expects > other.first) or greeting.mine in other.earlier
        if other.theirs:
            self.traffic["neighbours that lost their disk"] += 1
            self.note_change(other, greeting.mine)
        other.left = False
        self.begin(other, self.world.chance() if counted else other.mine, greeting.mine)

    def forget(self, other: Neighbour) -> None:
        """Keep nothing for a neighbour that is silent. If it comes back, the two count anew."""
        self.traffic["letters dropped"] += len(other.letters)
        other.drop_letters()
        self.begin(other, self.world.chance(), other.theirs)

    def count_anew(self, other: Neighbour) -> None:
        """Begin again with a neighbour that has got more than this state knows of: to it, this is a new store."""
        self.begin(other, self.world.chance(), other.theirs)
        other.ahead = False
        self.greet(other)

    def begin(self, other: Neighbour, mine: int, theirs: int) -> None:
        """Two stores that have not counted yet. Letters of pairs before may be under way: they had other tags."""
        while wire.tag(theirs, mine) in other.past:
            mine = self.world.chance()
        other.begin(mine, theirs)
        self.posted = True
        self.anew.add(other.name)

    def note_change(self, other: Neighbour, theirs: int) -> None:
        """Two processes of one name, with a folder each, would greet for ever: say so, and greet slowly."""
        if other.changes(theirs, self.world.now()):
            LOG.warning("%s seems to run twice, with two states: end one of them", other.name)
