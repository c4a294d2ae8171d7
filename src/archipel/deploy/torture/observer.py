"""Sees everything, all along, and says when something that was promised does not hold (`Wrong`).

- What leaves a node is in a checkpoint that survives, with what it acknowledges; said again, it is the same bytes.
- What leaves is what the node's functions said or told, for that round and that neighbour; nothing posted gets lost.
- What a node takes is what its sender sent, each letter once, in order; none that counts is thrown away.
- Every node is what a straightforward reference becomes that is given the same letters (`reference`).
- A ledger was charged, and survives, before what it paid for leaves; not for less, and for no round twice.
- A node that halts says why, and only for a reason that there was; when faults have ceased, all go on within a bound.
- In the end all are done, and have waited for answers; who played a replay is what a simulation makes of it.
"""

import re
from collections import Counter, defaultdict
from hashlib import blake2b
from typing import Any

import numpy as np

from archipel.deploy import wire
from archipel.deploy.accounts import JOURNAL
from archipel.deploy.store import FILES, parse
from archipel.deploy.torture.record import CARRY, Mark, Record, content, counted_by, entry_of, spent_by
from archipel.deploy.torture.reference import Did, Reference, Wrong
from archipel.deploy.torture.simulation import Host, Simulation, Watcher, own
from archipel.deploy.trace import ROWS, entries
from archipel.deploy.wire import near
from archipel.node import SAID, leaves, mapped, named_leaves
from archipel.privacy.ledger import Ledger
from archipel.privacy.releases import from_json, rho_of
from archipel.turns import Turn

EXCUSED = r"older than what has left|damaged|charges, the checkpoint|does not fit its checksum|an earlier write failed"
TRANSIENT = r"no answer from|No space left|Input/output error|spent its privacy budget"
ROUNDED = 1e-5  # what networks may round otherwise, where their data lie elsewhere in memory
MOST = 12  # letters to a neighbour that answers
TRIP = 4  # latencies that a letter in pieces may take, at most: there and back


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

    def of(self, name: str) -> list[Record]:
        """The records of all processes of a name."""
        return [record for label, record in self.records.items() if label.rstrip("'") == name]

    # --- a life begins ------------------------------------------------------------------------------------------------

    def started(self, host: Host) -> None:
        """Go back to what the checkpoint holds, and see all that the node does."""
        record, node = self.record(host), host.node
        number = node.store.number
        if number < record.left and not self.tampered.get(host.name):
            raise Wrong(f"{host.name} came back at checkpoint {number}; something left it under {record.left}")
        if number == 1:  # a new store
            pairs = {name: (n.mine, n.theirs, 0, 0) for name, n in node.office.neighbours.items()}
            mark = Mark(pairs, 0, spent_by(node), counted_by(node))
            record.marks, record.left, record.reference = {1: mark}, 1, None
            record.first = mapped(np.array, node.player.me)
            record.spent = list(getattr(getattr(node.account, "own", None), "charges", ()))
        elif number not in record.marks:
            raise Wrong(f"{host.name} found a checkpoint that it never wrote")
        del record.log[record.marks[number].log :]
        record.marks = {n: mark for n, mark in record.marks.items() if n <= number}
        record.safe, record.counted = (None, 0), record.marks[number].counted
        record.posted.clear()
        record.words, record.played, record.heard = 0, None, {}
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
        post, count_anew = node.office.post, node.office.count_anew
        player, names = node.player, node.player.mailbox.names

        def saved(state: dict[str, Any]) -> None:
            neighbours = node.office.neighbours
            pairs = {name: (n.mine, n.theirs, n.next_out, n.taken) for name, n in neighbours.items()}
            record.marks[node.store.number + 1] = Mark(pairs, len(record.log), spent_by(node), record.counted)
            record.check_size(host.name, node, state)
            record.check_outboxes(host.name, node)
            save(state)

        def posted(to: str, kind: int, turn: int, round: int, body: bytes = b"") -> None:
            post(to, kind, turn, round, body)
            if kind in CARRY:
                record.posted[to].append(body)

        def counted_anew(other: Any) -> None:
            count_anew(other)
            if self.tampered.get(host.name):
                self.gone.add(host.name)  # it may have lost what it had answered, for which all wait in a replay

        def taken(name: str) -> Any:
            other = node.office.neighbours[name]
            key = name, other.theirs, host.name, other.mine, other.taken & 0xFFFF
            frame = take(name)
            sent = self.letters.get(key)
            if sent is None or sent != content(wire.pack(*frame)):
                raise Wrong(f"{host.name} took a letter from {name} that is not its next one")
            record.words += frame.kind == wire.WORD
            return frame

        def stashed(i: int, frame: Any) -> None:
            before = node.player.mailbox.stashed[i]
            stash(i, frame)
            what = "arrive" if node.player.mailbox.stashed[i] > before else "refuse"
            record.log.append(Did(what, frame.turn, (frame.turn, names[i], frame.round)))
            record.words -= 1

        def looked(i: int, said: Any) -> bool:
            found = counts(i, said)
            key = i, names[said.who], said.said
            record.log.append(Did("look", i, (key, player.round, found, said.age < 0)))
            return bool(found)

        node.store.save, node.office.take, node.office.post = saved, taken, posted
        node.office.count_anew = counted_anew
        node.player.mailbox.stash, node.player.counts = stashed, looked
        turns = tuple(self.watched(node, record, i, turn) for i, turn in enumerate(player.plan.turns))
        player.plan = player.plan._replace(turns=turns)

    def watched(self, node: Any, record: Record, i: int, turn: Any) -> Any:
        """A turn whose functions write down what they are given."""
        secret, log = self.world.secret, record.log
        hearers = {other.number: other.name for other in node.view.ever_says(i)}

        def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
            secret.drawn.clear()
            seen = mapped(own, data) if isinstance(data, tuple) else data
            before = node.account.count()
            came = turn.act(me, data, said, settings, moment)
            record.charges = max(record.charges, node.account.count() - before)
            body = b"".join(leaf.tobytes() for leaf in leaves(said))
            log.append(Did("act", i, (moment, seen, came, body, list(secret.drawn))))
            if came == SAID:
                record.said.setdefault((i, int(moment.round)), set()).add(body)
                if counted_by(node) == record.counted:
                    record.free.add((i, int(moment.round), body))
                record.counted = counted_by(node)
            return came

        def tell(me: Any, said: Any, settings: Any, moment: Any) -> Any:
            found = turn.tell(me, said, settings, moment)
            body = b"".join(leaf.tobytes() for leaf in leaves(said))
            log.append(Did("tell", i, (moment, bool(found), body)))
            if found:
                record.told.setdefault((hearers[int(moment.peer)], i, int(moment.round)), set()).add(body)
            return found

        def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
            turn.hear(inbox, said, settings, edge)
            log.append(Did("hear", i, (edge, b"".join(leaf.tobytes() for leaf in leaves(said)))))

        def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
            secret.drawn.clear()
            turn.merge(me, inbox, settings, moment)
            log.append(Did("merge", i, (moment, list(secret.drawn))))

        def take(me: Any, said: Any, settings: Any, moment: Any) -> None:
            turn.take(me, said, settings, moment)
            body, teller = b"".join(leaf.tobytes() for leaf in leaves(said)), node.view.ever_hears(i)[0].name
            key = node.view.member.name, i, int(moment.round)
            if not any(body in other.told.get(key, ()) for other in self.of(teller)):
                raise Wrong(f"{key[0]} takes in round {key[2]} what {teller} did not tell it for that round")
            log.append(Did("take", i, (moment, body)))

        if isinstance(turn, Turn):
            return turn._replace(act=act, hear=hear, merge=merge)
        return turn._replace(tell=tell, take=take)

    # --- what leaves --------------------------------------------------------------------------------------------------

    def sends(self, host: Host, to: str, data: bytes) -> None:
        record, other = self.record(host), host.node.office.neighbours.get(to) if host.node else None
        if other is None:
            return
        first, turn, tag, seq, ack, n = wire.HEADER.unpack_from(data)
        kind, turn = first & 15, turn & ~wire.ALSO_ASKS
        if to in self.world.revoked and not host.unaware:
            raise Wrong(f"{host.name} sends to {to}, which was revoked")
        if kind == wire.HELLO:
            return
        mark = self.surviving(host, record)
        mine, theirs, posted, taken = mark.pairs.get(to, (0, 0, 0, 0))
        nothing = kind in (wire.ACK, wire.GOT) and ack == other.first & 0xFFFF
        if ((mine, theirs) != (other.mine, other.theirs) or near(ack, taken) > taken) and not nothing:
            raise Wrong(f"{host.name} acknowledges to {to} what no checkpoint that survives holds")
        record.left = node_number(host)
        if kind in (wire.ACK, wire.LOST, wire.GOT, wire.HAVE):
            return
        again = data, mark, other.mine, other.theirs
        if record.again.get(to) == again:  # byte for byte what was last looked at: most of a long wait is that
            return
        if near(seq, posted) >= posted:
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
        body = data[wire.HEADER.size :]
        if kind == wire.TOLD and body not in record.told.get((to, turn, n), ()):
            raise Wrong(f"{host.name} tells {to} in round {n} what was not for it")
        if kind == wire.WORD:
            if body not in record.said.get((turn, n), ()):
                raise Wrong(f"{host.name} says in round {n} what its functions did not")
            self.words.setdefault((host.name, turn, n), set()).add(body)
            if host.node.account.private:
                self.paid(host, record, turn, n, body)
        record.again[to] = again

    def paid(self, host: Host, record: Record, turn: int, n: int, body: bytes) -> None:
        """What was charged, and survives, covers all that the wire has seen."""
        key = turn, n, blake2b(body, digest_size=16).digest()
        if key in record.released or (turn, n, body) in record.free:
            return
        record.released.add(key)
        lines = host.disk.survives(JOURNAL).splitlines()
        charged = [line for line in lines if b'"round":' in line]
        together = [int(found[1]) if (found := re.search(rb'"lines":(\d+)', line)) else 1 for line in charged]
        if sum(together) < len(record.released):
            raise Wrong(f"{host.name} says what its ledger was not charged for")
        paid = sum(rho_of(from_json(entry["release"])) * entry["times"] for entry in map(entry_of, charged))
        if paid < self.surviving(host, record).spent * (1 - 1e-9) and not self.tampered.get(host.name):
            raise Wrong(f"{host.name}'s ledger was charged {paid} for what costs more")
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
        self.check_waiting(host)
        if (node.left is not None) and record.played is None:
            record.played = self.world.time
        if node.over:
            self.check_end(host, record)
        if node.player.round != record.round:
            record.round, record.moved = node.player.round, self.world.time
        letters = self.world.federation.rounds if node.view.vocabulary.widest > self.world.piece else 0
        answered = self.calm + self.bound + letters * TRIP * self.world.latency  # in pieces they go one by one
        if self.world.time > answered and not self.world.twins:
            for name, other in node.office.neighbours.items():
                gone = self.world.hosts[name].node is None or self.tampered.get(name) or name in self.gone
                if not gone and not host.unaware and len(other.letters) > MOST and other.heard:
                    raise Wrong(f"{len(other.letters)} letters of {host.name} to {name} are still unanswered")

    def check_waiting(self, host: Host) -> None:
        """Of what came in a node holds no more than it promised room for."""
        room = host.node.office.window
        revoked = self.world.revoked if not host.unaware else ()
        for name, other in host.node.office.neighbours.items():
            if other.held and (len(other.held) > room or max(other.held) >= other.safe_in + room):
                raise Wrong(f"{host.name} holds letters of {name} beyond the window")
            if name in revoked and (
                other.letters or self.record(host).heard.setdefault(name, other.next_in) != other.next_in
            ):
                raise Wrong(f"{host.name} still has to do with {name}, which was revoked")

    def check_end(self, host: Host, record: Record) -> None:
        """Who ends has waited for answers, and wrote each measured row once."""
        record.over, node = self.world.time, host.node
        since = self.world.time - (record.played if record.played is not None else self.world.time)
        record.unanswered = any(n.letters for n in node.office.neighbours.values())
        if since < 0.9 * self.world.deploy.patience and record.unanswered:
            raise Wrong(f"{host.name} ended {since:.0f} seconds after its last round, with letters unanswered")
        rounds = [entry["round"] for entry in entries(host.disk.copy().get(ROWS, b""))[0]]
        if rounds != sorted(set(rounds)) or (not node.player.gone and rounds[-1:] != [node.view.rounds]):
            raise Wrong(f"{host.name} wrote down the rows of rounds {rounds}")

    def check_all(self) -> None:
        """When a history is over: all are, unless somebody was gone before its faults were, or was tampered with.

        Of who ended early in a replay nothing further is needed, if all that it said was answered.
        """
        hosts = self.world.hosts.values()
        records = [self.record(host) for host in hosts]
        early = [record for record in records if record.over is not None and record.over < self.calm]
        if self.world.deploy.pace == "replay":
            early = [record for record in early if record.unanswered]
        if early or self.troubled():
            return
        for host in hosts:
            if not host.done:
                round = f"in round {host.node.player.round}" if host.node else f"halted: {host.sentence}"
                raise Wrong(f"{host.name} has not come to an end: {round}")
        if self.world.deploy.pace == "replay":
            self.check_replay()

    def check_replay(self) -> None:
        """Whatever happened to it, a replay is the simulation, to the last bit."""
        from archipel.simulate.plain import PlainEngine

        within = ROUNDED if self.world.federation.algorithm.data_kind == "deep" else 0.0
        engine = PlainEngine(self.world.federation.instance(), side_by_side=False)
        engine.advance(0, self.world.federation.rounds)
        players = [host.last.player for host in self.world.hosts.values()]
        counts = [sum(each) for each in zip(*(player.messages for player in players))]
        if counts != engine.messages or sum(player.updates for player in players) != engine.updates:
            raise Wrong(f"nodes count {counts} messages, the simulation {engine.messages}, or other updates")
        for member in self.world.roster.members:
            mine = self.world.hosts[member.name].last.player.me
            table = mapped(lambda array: array[member.number], engine.instance.plan.tables[member.role])  # noqa: B023
            for (name, wanted), found in zip(named_leaves(table), leaves(mine)):
                if not np.allclose(found, wanted, within, within, equal_nan=True):
                    raise Wrong(f"{member.name}: {name} is not that of the simulation")

    def halted(self, host: Host, sentence: str) -> None:
        if host.name in self.world.revoked and sentence.endswith("was revoked."):
            return
        if re.search(EXCUSED, sentence):
            if not self.tampered.get(host.name) and not self.was_misled(host, sentence):
                raise Wrong(f"{host.name} halted without a reason: {sentence}")
            if "older than what has left" in sentence:
                self.gone.add(host.name)  # however often it is started, in a replay all wait for what was lost
        elif not re.search(TRANSIENT, sentence) or not sentence.endswith((".", "?", ")", "e", "r")):
            raise Wrong(f"{host.name} halted: {sentence}")

    def was_misled(self, host: Host, sentence: str) -> bool:
        """After a restart a node believes who knows it first: no honest one would say that it has got more."""
        return "has got more" in sentence and any(f"{who} " in sentence for who, to in self.lied if to == host.name)

    def check_progress(self) -> None:
        """Called every now and then, when faults have ceased: who can go on goes on."""
        for host in self.world.hosts.values():
            record = self.record(host)
            if host.done or host.node is None or host.node.player.finished or host.unaware:
                continue
            ended = self.ended(host)
            if ended is None and self.alone(host):
                continue
            since = self.world.time - max(self.moved(record), self.calm, ended or 0.0)
            self.stall = max(self.stall, since)
            if since > self.bound:
                raise Wrong(f"{host.name} has been in round {record.round} for {since:.0f} seconds")

    def ended(self, host: Host) -> float | None:
        """When all its neighbours had played to the end, since faults have ceased: none may leave it behind."""
        ends = [self.records[name].over for name in host.node.office.neighbours]
        whole = [when for when in ends if when is not None and when >= self.calm]
        return max(whole) if len(whole) == len(ends) and not self.troubled() else None

    def troubled(self) -> bool:
        """Whether somebody was tampered with, told to leave or revoked: not all need come to an end then."""
        told = any(host.leaves for host in self.world.hosts.values())
        return bool(told or self.tampered or self.gone or self.world.revoked)

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
            missing = (other for other in hosts.values() if other.node is None)
            return bool(self.gone) or any(not other.done or self.record(other).unanswered for other in missing)
        return all(hosts[name].node is None or name in self.world.revoked for name in host.node.office.neighbours)


def node_number(host: Host) -> int:
    return int(host.node.store.number)
