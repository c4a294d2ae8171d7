"""Masked words on the network: the turns of secure aggregation (`privacy.secure_aggregation`) around those of a plan.

Before the first round every client shows its key to the server, and is told everyone's. In a round a client's word is
masked; when the server has collected words it says whose, clients answer, and the sum comes out of its masks, without
the noise that it does not need (`privacy.excess`), and goes where a simulation's does. All are turns as others are, and
what a node remembers between them is in its checkpoint.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from archipel.deploy import wire
from archipel.deploy.grow import ANY_ROUND
from archipel.deploy.pace import FOREVER
from archipel.deploy.post import LOG
from archipel.deploy.store import ANEW, Halted
from archipel.deploy.world import World
from archipel.errors import BadInput
from archipel.node import NOTHING, SAID, emptied
from archipel.privacy.coding import SEED, Code, GivenUp, packed, unmasked, unpacked
from archipel.privacy.excess import later, seed_of
from archipel.turns import Plan, Tell, Turn

KEY, PROOF = 32, 1024  # bytes of a public key, and of what shows whose it is, at most
WORD = 1  # the turn in which clients speak to their server: 0 is what it tells them


class Masked(NamedTuple):
    """A word and its corrections, as bytes."""

    masked: Any


class Listed(NamedTuple):
    """Whose words are in a sum, a bit each."""

    listed: Any


class Pads(NamedTuple):
    """An answer, and the seed of the noise that the sum does not need; zeros: there is none."""

    pads: Any
    seed: Any


class Shown(NamedTuple):
    """One client's public key and the proof that it is its own, or everyone's."""

    keys: Any


class Collected(NamedTuple):
    """What came in of a turn, by sender, or added up."""

    total: Any
    fixes: Any
    there: Any


class Masks:
    """What one node knows of masks, and the turns that it takes with them."""

    def __init__(self, plan: Plan, deploy: Any, group: Sequence[int]):
        code: Code = plan.masks
        if deploy.pace == "clock":
            right = '"quorum": words are masked, and a sum needs two answers of its clients, not a period'
            raise BadInput("deploy.pace", "clock", right)
        self.code, self.own, self.secret = code, plan.turns[WORD], b""
        self.group, self.place = group, {number: i for i, number in enumerate(group)}  # clients of one server
        self.keys: list[bytes] = []  # everyone's, at a server with proofs; none: the beginning is not over
        self.masker: Any = None
        self.seed = b""  # of the excess in the last word
        self.listed, self.listed_in = np.zeros(code.clients, np.uint8), -1  # who is in the sum, and of which round
        self.inner = emptied(self.own.word)
        self.held = self.collected()
        width, first = code.bits // 8, len(plan.turns)
        word = Masked(np.zeros((code.size + code.corrected * code.rows) * width, np.uint8))
        listed = Listed(np.zeros(-(-code.clients // 8), np.uint8))
        seed = np.zeros(SEED if code.excess else 0, np.uint8)
        pads = Pads(np.zeros(code.rows * width, np.uint8), seed)
        seeds = np.zeros((code.clients, len(seed)), np.uint8)
        answers = Collected(np.zeros((code.clients, code.rows), np.uint64), seeds, np.zeros(code.clients, np.uint8))
        one, everyone = (Shown(np.zeros(count * (KEY + PROOF), np.uint8)) for count in (1, code.clients))
        speak = self.own._replace(
            act=self.mask, hear=self.collect, merge=self.close, word=word, inbox=self.collected(), side_by_side=None
        )
        self.turns = (
            *plan.turns[:WORD], speak, *plan.turns[WORD + 1 :],
            Tell("server", "client", self.tell, self.take, listed),
            Turn("client", "server", self.answer, self.hear, self.open, pads, answers),
            Turn("client", "server", self.answer, self.hear, self.open, one, answers),
            Tell("server", "client", self.tell, self.take, everyone),
        )  # fmt: skip
        self.order = [*range(WORD + 1), first, first + 1, *range(WORD + 1, first)]
        self.show, self.told = first + 2, first + 3

    def collected(self) -> Collected:
        code = self.code
        sizes = (code.size, np.uint64), (code.corrected * code.rows, np.uint64), (code.clients, np.uint8)
        return Collected(*(np.zeros(size, dtype) for size, dtype in sizes))

    @property
    def over(self) -> bool:
        """Whether the beginning is."""
        return bool(self.keys)

    def wakes(self) -> float:
        """Only letters bring it on."""
        return FOREVER

    # --- the beginning ------------------------------------------------------------------------------------------------

    def begin(self, player: Any) -> list[tuple[Any, Any]]:
        """What a node does before its first round: what it waits for, and what it does then."""
        self.player = player
        if not player.view.has_data:
            player.pace.least = self.code.needed
            return [(self.can_gather, self.gather)]
        self.secret = self.secret or secret_of(player.world)
        return [(player.always, self.say_key), (lambda _: self.told in player.mailbox.told, self.learn_keys)]

    def say_key(self, _: int = -1) -> None:
        from archipel.privacy.secure_aggregation import public

        office, server = self.player.office, self.player.view.hears(0, 0)[0].name
        key = public(self.secret)
        office.post(server, wire.WORD, self.show, 0, key + self.player.world.vouch(self.claim(key)).ljust(PROOF, b"\0"))
        if not self.keys:
            office.post(server, wire.ASK, self.told, 0)

    def learn_keys(self, _: int = -1) -> None:
        """Everyone's key, each with the proof that it is its own: the server only carries them."""
        shown = split(bytes(self.player.mailbox.told.pop(self.told).body), self.code.clients)
        view, world = self.player.view, self.player.world
        for name, entry in zip(self.names, shown):
            if name != view.member.name and not world.vouched(name, self.claim(entry[:KEY]), entry[KEY:]):
                raise Halted(f"{view.member.name}: the key shown as {name}'s is not signed by it: the server lies.")
        self.know([entry[:KEY] for entry in shown])

    @property
    def names(self) -> list[str]:
        everyone = self.player.view.roster.names["client"]
        return [everyone[number] for number in self.group]

    def claim(self, key: bytes) -> bytes:
        """What is signed: a key, for this federation's masks."""
        return b"archipel masks" + self.player.view.digest + key

    def know(self, keys: Sequence[bytes]) -> None:
        """A client knows everyone's key."""
        from archipel.privacy.secure_aggregation import Masker

        member, digest = self.player.view.member, self.player.view.digest
        try:
            self.masker = Masker(self.code, self.place[member.number], self.secret, keys, digest)
        except GivenUp as reason:
            right = f"A state that was lost cannot be begun anew alone: restore it, or let all nodes begin ({ANEW})"
            raise Halted(f"{member.name}: {reason}. {right}.") from reason
        self.keys = list(keys)

    def can_gather(self, _: int = -1) -> bool:
        """Everyone has shown its key."""
        return {said.who for said in self.player.mailbox.words[self.show]} >= self.player.tables[WORD].heard.keys()

    def gather(self, _: int = -1) -> None:
        known = self.player.tables[WORD].heard
        words = self.player.mailbox.collect(self.show, ANY_ROUND)
        shown = {self.place[known[said.who].number]: said.body for said in words}
        self.keys = [bytes(shown[k]) for k in range(self.code.clients)]
        self.notice()

    def notice(self) -> None:
        """A server tells everyone's keys, at any time, to who asks. One that lost its state is shown them again."""
        office, asks = self.player.office, self.player.mailbox.asks
        for name in office.anew if self.player.view.has_data and (self.keys or self.player.at) else ():
            if not any(letter.turn == self.show for letter in office.neighbours[name].letters):
                self.say_key()
        for who in [who for who, (turn, _) in asks.items() if turn == self.told and self.keys]:
            del asks[who]
            office.post(self.player.mailbox.names[who], wire.TOLD, self.told, 0, b"".join(self.keys))

    # --- a round ------------------------------------------------------------------------------------------------------

    def mask(self, me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
        """A client acts as in a simulation, and masks what it says, with noise for those who may drop."""
        came = self.own.act(me, data, self.inner, settings, moment)
        if came == SAID:
            values, excess = self.inner.values.copy(), self.code.excess
            if excess:
                replayed = self.player.pace.replay
                self.seed = seed_of(self.inner.seed[0]) if replayed else secret_of(self.player.world)
                excess.add(values, self.seed, 0, int(moment.round))
            word, fixes = self.masker.mask(values % self.code.prime, int(moment.round))
            said.masked[:] = packed(np.append(word, fixes.reshape(-1)), self.code.bits)
        return came

    def collect(self, inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        numbers = unpacked(said.masked, self.code)
        inbox.total[:] += numbers[: self.code.size]
        inbox.fixes[:] += numbers[self.code.size :]
        inbox.there[self.place[edge.sender]] = 1

    def close(self, me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """Whose words came is whose are in the sum."""
        self.held, self.listed_in = Collected(*(array.copy() for array in inbox)), int(moment.round)
        if (count := int(inbox.there.sum())) < self.code.needed:
            LOG.warning("round %d is given up: %d words, %d are needed", moment.round, count, self.code.needed)

    def tell(self, me: Any, said: Any, settings: Any, moment: Any) -> bool:
        said.listed[:] = np.packbits(self.held.there)
        return bool(self.held.there.sum() >= self.code.needed)

    def take(self, me: Any, said: Any, settings: Any, moment: Any) -> None:
        self.listed, self.listed_in = np.unpackbits(said.listed)[: self.code.clients].copy(), int(moment.round)

    def answer(self, me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
        """The sum of the pads for those who are in the sum; nothing where something is wrong with the list.

        Who is in it itself tells the seed of what its noise has too much there.
        """
        if self.listed_in != moment.round:
            return NOTHING
        listed, excess = np.flatnonzero(self.listed).tolist(), self.code.excess
        try:
            pads = self.masker.answer(listed, int(moment.round))
        except GivenUp as reason:
            LOG.warning("round %d: %s", moment.round, reason)
            return NOTHING
        said.pads[:] = packed(pads, self.code.bits)
        if excess and self.masker.said == moment.round and self.masker.number in listed:
            kept = excess.kept(len(listed))
            if kept < len(excess.below):
                said.seed[:] = np.frombuffer(later(self.seed, kept), np.uint8)
        return SAID

    def hear(self, inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        inbox.total[self.place[edge.sender]] = unpacked(said.pads, self.code)
        inbox.fixes[self.place[edge.sender]] = said.seed
        inbox.there[self.place[edge.sender]] = 1

    def open(self, me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """The sum, out of its masks, goes where a simulation's does."""
        code, count = self.code, int(self.held.there.sum())
        if count < code.needed or self.listed_in != moment.round:
            return
        answers = {int(k): inbox.total[k] for k in np.flatnonzero(inbox.there)}
        try:
            total, wrong = unmasked(code, self.held.total, self.held.fixes.reshape(code.corrected, -1), answers)
        except GivenUp as reason:
            LOG.warning("round %d is given up: %s", moment.round, reason)
            return
        for name in (self.names[k] for k in wrong):
            LOG.warning("round %d: what %s answered, or was dealt, does not fit: left out", moment.round, name)
        heard = emptied(self.own.inbox)
        heard.total[:] = total
        for k in np.flatnonzero(inbox.fixes.any(1) * self.held.there).tolist() if code.excess else ():
            code.excess.add(heard.total, bytes(inbox.fixes[k]), code.excess.kept(count), int(moment.round), -1)
        heard.heard[0] = count
        self.own.merge(me, heard, settings, moment)

    # --- a checkpoint -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        rounds = [self.masker.said, self.masker.answered] if self.masker else [-1, -1]
        known = {
            "secret": self.secret,
            "seed": self.seed,
            "keys": b"".join(self.keys),
            "rounds": [self.listed_in, *rounds],
        }
        return {**known, "listed": self.listed, **self.held._asdict()}

    def restore(self, state: dict[str, Any]) -> None:
        self.secret, self.seed, self.listed = bytes(state["secret"]), bytes(state["seed"]), np.array(state["listed"])
        self.keys = split(bytes(state["keys"]), self.code.clients)
        self.held = Collected(*(np.array(state[name]) for name in Collected._fields))
        self.listed_in, said, answered = state["rounds"]
        if self.keys and self.secret:
            self.know(self.keys)
            self.masker.said, self.masker.answered = said, answered


def split(body: bytes, count: int) -> list[bytes]:
    """So many equal parts; none of nothing."""
    size = len(body) // count
    return [body[i * size : (i + 1) * size] for i in range(count)] if size else []


def secret_of(world: World) -> bytes:
    """A key that nobody can foresee."""
    return hashlib.sha256(repr([world.chance() for _ in range(8)]).encode()).digest()
