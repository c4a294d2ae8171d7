"""Sees everything, all along, and says when something that was promised does not hold (`Wrong`).

- What leaves a node is in a checkpoint that survives, with what it acknowledges; said again, it is the same bytes.
- What a node takes is what its sender sent, each letter once, in order.
- Every node is what a straightforward reference becomes that is given the same letters (`reference`).
- A ledger was charged, and survives, before what it paid for leaves; no round is charged twice.
- A node that halts says why, and only for a reason that there was; when faults have ceased, all go on within a bound.
"""

import re
from collections import Counter, defaultdict
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from archipel.deploy import wire
from archipel.deploy.accounts import JOURNAL
from archipel.deploy.store import FILES, parse
from archipel.deploy.torture.reference import Did, Reference, Wrong
from archipel.deploy.torture.simulation import Host, Simulation, Watcher
from archipel.deploy.wire import near
from archipel.node import leaves, mapped
from archipel.privacy.ledger import Ledger
from archipel.turns import Turn

EXCUSED = r"older than what has left|damaged|charges, the checkpoint|does not fit its checksum|an earlier write failed"
TRANSIENT = r"no answer from|No space left|Input/output error|spent its privacy budget"
MOST = 12  # letters to a neighbour that answers
FIRST = 12  # checkpoints that show how large one is
SLACK = 400  # bytes by which a checkpoint may grow, letters aside
VARIES: tuple[str, ...] = ("post.letters", "post.bodies", "post.traffic", "post.faults", "post.earlier")
VARIES += ("delayed", "delayed words", "mailbox.words", "mailbox.bodies", "mailbox.told", "mailbox.answers")


class Mark(NamedTuple):
    """What a checkpoint holds: for each neighbour the two stores, what was posted and what was taken; and the log."""

    pairs: dict[str, tuple[int, int, int, int]]
    log: int


class Record:
    """What is known of a node, over all its lives."""

    def __init__(self) -> None:
        self.marks: dict[int, Mark] = {}
        self.log: list[Did] = []
        self.left = 0  # the last checkpoint under which something left
        self.reference: Any = None
        self.first: Any = None  # its row when it began
        self.spent: list[Any] = []  # and what its ledger had been charged by then
        self.done = 0  # entries of the log that the reference has followed
        self.safe: tuple[Any, int] = (None, 0)  # the checkpoint that survives, and the files it was found in
        self.released: set[tuple[int, int, bytes]] = set()
        self.round, self.moved = -1, 0.0  # its last round, and since when it is in it
        self.charges = 1  # that one act made, at most
        self.size = 0  # of the first checkpoints, letters aside

    def check_size(self, name: str, node: Any, state: dict[str, Any]) -> None:
        """A checkpoint holds what is on its way, and beside that no more than the first ones did."""
        size = sum(size_of(value) for key, value in state.items() if key not in VARIES)
        if node.store.number < FIRST:
            self.size = max(self.size, size)
        elif size > self.size + SLACK:
            raise Wrong(f"{name}'s checkpoint has grown from {self.size} to {size} bytes in round {node.player.round}")


def size_of(value: Any) -> int:
    """Bytes that a value of a checkpoint takes, about."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return len(value) if isinstance(value, bytes) else len(repr(value))


def content(data: bytes) -> bytes:
    """What of a letter never changes: all but its acknowledgement."""
    return data[:6] + data[8:] if len(data) < 64 else data[:6] + blake2b(data[8:], digest_size=16).digest()


class Observer(Watcher):
    """One for a simulation. `tampered` counts what people did to a node's state: it may halt then."""

    def __init__(self) -> None:
        self.world: Any = None
        self.records: defaultdict[str, Record] = defaultdict(Record)
        self.letters: dict[tuple[str, int, str, int, int], bytes] = {}
        self.words: dict[tuple[str, int, int], set[bytes]] = {}
        self.tampered: dict[str, int] = {}
        self.gone: set[str] = set()  # whose letters others took, or whose disk was lost
        self.lied: set[tuple[str, str]] = set()  # who, and to whom
        self.calm = float("inf")  # from here on there are no faults
        self.bound = float("inf")  # seconds in which a node must get on then
        self.stall = 0.0  # the longest that was seen

    def watch(self, world: Simulation, calm: float, bound: float) -> None:
        self.world, self.calm, self.bound = world, calm, bound

    def record(self, host: Host) -> Record:
        return self.records[host.label]

    # --- a life begins ------------------------------------------------------------------------------------------------

    def started(self, host: Host) -> None:
        """Go back to what the checkpoint holds, and see all that the node does."""
        record, node = self.record(host), host.node
        number = node.store.number
        if number < record.left and not self.tampered.get(host.name):
            raise Wrong(f"{host.name} came back at checkpoint {number}; something left it under {record.left}")
        if number == 1:  # a new store
            pairs = {name: (n.mine, n.theirs, 0, 0) for name, n in node.office.neighbours.items()}
            record.marks, record.left, record.reference = {1: Mark(pairs, 0)}, 1, None
            record.first = mapped(np.array, node.player.me)
            record.spent = list(getattr(getattr(node.account, "own", None), "charges", ()))
        elif number not in record.marks:
            raise Wrong(f"{host.name} found a checkpoint that it never wrote")
        del record.log[record.marks[number].log :]
        record.marks = {n: mark for n, mark in record.marks.items() if n <= number}
        record.safe = None, 0
        if record.done > len(record.log) or record.reference is None:
            view = self.world.view(host.name)
            if record.spent:  # before its disk was lost
                view.plan.accountant.ledgers[view.member.number] = Ledger(
                    host.name, node.account.own.terms, node.account.own.budget, record.spent
                )
            record.reference = Reference(view, record.first, self.words, self.world.secret)
            record.done = 0
        self.wrap(host, record)

    def wrap(self, host: Host, record: Record) -> None:
        node = host.node
        save, take, stash, counts = node.store.save, node.office.take, node.player.mailbox.stash, node.player.counts
        player, names = node.player, node.player.mailbox.names

        def saved(state: dict[str, Any]) -> None:
            neighbours = node.office.neighbours
            pairs = {name: (n.mine, n.theirs, n.next_out, n.taken) for name, n in neighbours.items()}
            record.marks[node.store.number + 1] = Mark(pairs, len(record.log))
            record.check_size(host.name, node, state)
            save(state)

        def taken(name: str) -> Any:
            other = node.office.neighbours[name]
            key = name, other.theirs, host.name, other.mine, other.taken & 0xFFFF
            frame = take(name)
            sent = self.letters.get(key)
            if sent is None or sent != content(wire.pack(*frame)):
                raise Wrong(f"{host.name} took a letter from {name} that is not its next one")
            return frame

        def stashed(i: int, frame: Any) -> None:
            before = node.player.mailbox.stashed[i]
            stash(i, frame)
            if node.player.mailbox.stashed[i] > before:
                record.log.append(Did("arrive", frame.turn, (frame.turn, names[i], frame.round)))

        def looked(i: int, said: Any) -> bool:
            found = counts(i, said)
            first = said.due - said.said <= player.plan.late
            record.log.append(Did("look", i, ((i, names[said.who], said.said), player.round, found, first)))
            return bool(found)

        node.store.save, node.office.take = saved, taken
        node.player.mailbox.stash, node.player.counts = stashed, looked
        turns = tuple(self.watched(node, record, i, turn) for i, turn in enumerate(player.plan.turns))
        player.plan = player.plan._replace(turns=turns)

    def watched(self, node: Any, record: Record, i: int, turn: Any) -> Any:
        """A turn whose functions write down what they are given."""
        secret, log = self.world.secret, record.log

        def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
            secret.drawn.clear()
            seen = mapped(np.array, data) if isinstance(data, tuple) else data
            before = node.account.count()
            came = turn.act(me, data, said, settings, moment)
            record.charges = max(record.charges, node.account.count() - before)
            body = b"".join(leaf.tobytes() for leaf in leaves(said))
            log.append(Did("act", i, (moment, seen, came, body, list(secret.drawn))))
            return came

        def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
            turn.hear(inbox, said, settings, edge)
            log.append(Did("hear", i, (edge, b"".join(leaf.tobytes() for leaf in leaves(said)))))

        def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
            turn.merge(me, inbox, settings, moment)
            log.append(Did("merge", i, moment))

        def take(me: Any, said: Any, settings: Any, moment: Any) -> None:
            turn.take(me, said, settings, moment)
            log.append(Did("take", i, (moment, b"".join(leaf.tobytes() for leaf in leaves(said)))))

        return turn._replace(act=act, hear=hear, merge=merge) if isinstance(turn, Turn) else turn._replace(take=take)

    # --- what leaves --------------------------------------------------------------------------------------------------

    def sends(self, host: Host, to: str, data: bytes) -> None:
        record, other = self.record(host), host.node.office.neighbours.get(to) if host.node else None
        if other is None:
            return
        first, turn, tag, seq, ack, n = wire.HEADER.unpack_from(data)
        kind, turn = first & 15, turn & ~wire.ALSO_ASKS
        if kind == wire.HELLO:
            return
        mark = self.surviving(host, record)
        mine, theirs, posted, taken = mark.pairs.get(to, (0, 0, 0, 0))
        if ((mine, theirs) != (other.mine, other.theirs) or ack > taken) and (ack or kind not in (wire.ACK, wire.GOT)):
            raise Wrong(f"{host.name} acknowledges to {to} what no checkpoint that survives holds")
        record.left = node_number(host)
        if kind in (wire.ACK, wire.LOST, wire.GOT, wire.HAVE):
            return
        if seq >= posted:
            raise Wrong(f"{host.name} sends to {to} a letter that no checkpoint that survives holds")
        if kind == wire.SOME:  # it is what it is a piece of, in which it must have its place
            letter, piece = other.letters[near(seq, other.acked) - other.acked], host.node.view.vocabulary.piece
            i, _ = wire.PIECED.unpack_from(data, wire.HEADER.size)
            if data[wire.HEADER.size + wire.PIECED.size :] != letter.body[i * piece : (i + 1) * piece]:
                raise Wrong(f"{host.name} sends to {to} a piece {i} that is not of its letter {seq}")
            kind = letter.kind
            data = wire.pack(kind, letter.turn, letter.also_asks, tag, seq, ack, n, letter.body)
        key = host.name, mine, to, theirs, seq
        known, self.letters[key] = self.letters.get(key), content(data)
        # who was put back by a person, and holds nothing private, may go on from there and say something else
        if known not in (None, content(data)) and (host.node.account.private or not self.tampered.get(host.name)):
            raise Wrong(f"{host.name} says letter {seq} to {to} again, with other content")
        if kind == wire.WORD:
            body = data[wire.HEADER.size :]
            self.words.setdefault((host.name, turn, n), set()).add(body)
            if host.node.account.private:
                self.paid(host, record, turn, n, body)

    def paid(self, host: Host, record: Record, turn: int, n: int, body: bytes) -> None:
        """What was charged, and survives, covers all that the wire has seen."""
        key = turn, n, blake2b(body, digest_size=16).digest()
        if key in record.released:
            return
        record.released.add(key)
        lines = host.disk.survives(JOURNAL).splitlines()
        charged = [line for line in lines if b'"round":' in line]
        together = [int(found[1]) if (found := re.search(rb'"lines":(\d+)', line)) else 1 for line in charged]
        if sum(together) < len(record.released):
            raise Wrong(f"{host.name} says what its ledger was not charged for")
        rounds = [line.split(b'"round":')[1].split(b",")[0] for line, count in zip(charged, together) if count == 1]
        if max(Counter(rounds).values(), default=0) > record.charges and not self.tampered.get(host.name):
            raise Wrong(f"{host.name}'s ledger was charged twice for one round")

    def surviving(self, host: Host, record: Record) -> Mark:
        """What the newest checkpoint holds that will be there whatever happens now."""
        versions = tuple(host.disk.version(name) for name in FILES)
        if record.safe[0] != versions:
            found = [whole for name in FILES if (whole := parse(host.disk.survives(name))) is not None]
            record.safe = versions, max((number for number, _ in found), default=0)
        return record.marks.get(record.safe[1], Mark({}, 0))

    # --- after every beat ---------------------------------------------------------------------------------------------

    def beaten(self, host: Host) -> None:
        record, node = self.record(host), host.node
        held = record.marks[node.store.number].log if node.store.number in record.marks else 0
        if held == len(record.log) and record.done < held:
            for did in record.log[record.done :]:
                record.reference.do(did)
            record.done = held
            record.reference.compare(node.player)
        if node.player.round != record.round:
            record.round, record.moved = node.player.round, self.world.time
        if self.world.time > self.calm + self.bound and not self.world.twins:
            for name, other in node.office.neighbours.items():
                gone = self.world.hosts[name].node is None or self.tampered.get(name)
                if not gone and len(other.letters) > MOST and other.heard:
                    raise Wrong(f"{len(other.letters)} letters of {host.name} to {name} are still unanswered")

    def halted(self, host: Host, sentence: str) -> None:
        if re.search(EXCUSED, sentence):
            if not self.tampered.get(host.name) and not self.was_misled(host, sentence):
                raise Wrong(f"{host.name} halted without a reason: {sentence}")
        elif not re.search(TRANSIENT, sentence) or not sentence.endswith((".", "?", ")", "e", "r")):
            raise Wrong(f"{host.name} halted: {sentence}")

    def was_misled(self, host: Host, sentence: str) -> bool:
        """After a restart a node believes who knows it first: no honest one would say that it has got more."""
        return "has got more" in sentence and any(f"{who} " in sentence for who, to in self.lied if to == host.name)

    def check_progress(self) -> None:
        """Called every now and then, when faults have ceased: who can go on goes on."""
        for host in self.world.hosts.values():
            record = self.record(host)
            if host.done or host.node is None or host.node.player.finished or self.alone(host):
                continue
            since = self.world.time - max(self.moved(record), self.calm)
            self.stall = max(self.stall, since)
            if since > self.bound:
                raise Wrong(f"{host.name} has been in round {record.round} for {since:.0f} seconds")

    def moved(self, record: Record) -> float:
        """When it last came to another round; in a replay all wait for who plays earlier rounds again, as it can."""
        if self.world.deploy.pace != "replay":
            return record.moved
        behind = (other for other in map(self.record, self.world.hosts.values()) if other.round <= record.round)
        return max(other.moved for other in behind)

    def alone(self, host: Host) -> bool:
        """Whether nobody is left with whom it could go on."""
        hosts = self.world.hosts
        if self.world.deploy.pace == "replay":  # all wait for all, and what a twin or a lost disk took is gone
            return any(other.node is None for other in hosts.values()) or bool(self.gone)
        return all(hosts[name].node is None for name in host.node.office.neighbours)


def node_number(host: Host) -> int:
    return int(host.node.store.number)
