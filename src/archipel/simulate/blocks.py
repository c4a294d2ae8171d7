"""Large stars in blocks of clients: what a block says is added up by itself, and blocks are added in their order.

A sum in floating point depends on its order. There are always as many blocks, however many threads or workers play
them, so a model has the same bits on one core, on two, and on a cluster (`archipel.cluster`).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from archipel.draws import key_of
from archipel.node import FEW, Edge, Moment, clear, fetch, kernel, leaves, row, tabled
from archipel.simulate.compile import build, compiling, entry
from archipel.simulate.crew import ALONE, advancing, gate_of
from archipel.simulate.instance import SERVER_KEYS, Instance
from archipel.simulate.laid import Played, rounds_of
from archipel.simulate.openings import SOON
from archipel.simulate.records import held
from archipel.simulate.rounds import SILENT, others_of
from archipel.turns import Tell

BLOCKS = 16
LARGE = 200_000  # clients of a star, from which on it is played in blocks: adding them up takes a millisecond


def in_blocks(instance: Instance) -> bool:
    """Whether an instance is played so: one server that adds up what many clients say."""
    turns = instance.plan.turns
    star = "server" in instance.plan.tables and instance.count("server") == 1 and len(turns) == 2
    if not star or not isinstance(turns[0], Tell) or isinstance(turns[1], Tell):
        return False
    return bool(turns[1].adds and turns[1].forge is None and instance.task.clients >= LARGE)


@cache
def hearing(hear: Callable[..., Any]) -> Callable[..., Any]:
    """What the clients of a block said, into the inboxes of the block."""

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, mail: Any) -> None:
        boxes, words, settings = mail.inboxes, mail.words, board.settings
        lates, routes, slots, few = mail.lates, mail.routes, mail.slots, row(board.few, part)
        total, heard = lates.shape[0], 0
        end = total * (part + 1) // parts
        for first in range(total * part // parts, end, FEW):
            count = 0
            for k in range(first, min(first + FEW, end)):  # with one server links have the numbers of clients
                few.due[count] = k
                count += lates[k] != SILENT
            heard += count
            for j in range(count):
                fetch(words, few.due[j + SOON])
                k = few.due[j]
                late = lates[k]
                if 0 <= late < slots:
                    box = row(boxes, ((n + late) % slots) * parts + part)
                    hear(box, row(words, k), settings, Edge(k, routes.weights[k], late, n, routes.places[k]))
        board.counts[part, 1 + mail.number] += heard

    return step


@cache
def merging(merge: Callable[..., Any]) -> Callable[..., Any]:
    """The server merges what all blocks heard."""

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, mail: Any) -> None:
        table, boxes, settings = others_of(board), mail.inboxes, board.settings
        box = row(boxes, n % mail.slots)
        now = Moment(0, n, key_of(board.seed, SERVER_KEYS, n), -1, mail.lates.shape[0], True, 1.0)
        merge(row(table, 0), box, settings, now)
        clear(box)

    return step


class Blocks:
    """The blocks of an instance; any of them can be played here."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.rounds = rounds_of(instance, BLOCKS)
        turn, mail = instance.plan.turns[1], self.rounds.mails[1]
        self.boxes = tabled(turn.inbox, mail.slots * BLOCKS)
        partial = mail._replace(inboxes=self.boxes)
        self.board, self.arguments = held(self.rounds.board), held((self.rounds.arguments[0], partial))
        self.shares, self.one, self.gate = np.array([BLOCKS, BLOCKS]), np.array([1]), gate_of()
        driver = build(advancing((self.rounds.steps[0], hearing(turn.hear))))
        with compiling():
            self.kernel = entry(driver, 0, 0, ALONE, 0, self.shares, self.gate, self.board, self.arguments)

    def play(self, n: int, block: int) -> None:
        """A round of one block: its clients act, and are heard."""
        self.kernel(n, n + 1, ALONE, block, self.shares, self.gate, self.board, self.arguments)

    def slots_of(self, leaf: Any) -> Any:
        """(rounds to come, blocks, ...)."""
        return leaf.reshape(-1, BLOCKS, *leaf.shape[1:])


class BlockEngine(Played):
    """Plays a large star, on some threads."""

    def __init__(self, instance: Instance, threads: int = 1):
        self.blocks = Blocks(instance)
        self.rounds = self.blocks.rounds
        self.mail = self.rounds.mails[1]
        self.inboxes = held((self.mail,))
        self.merger = build(advancing((merging(instance.plan.turns[1].merge),)))
        with compiling():
            self.merger(0, 0, ALONE, 0, self.blocks.one, self.blocks.gate, self.blocks.board, self.inboxes)
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def advance(self, first: int, last: int) -> None:
        """Play rounds first to last - 1."""
        self.rounds.begin(first, last)
        for n in range(first, last):
            self.play_all(n)
            for total, heard in zip(leaves(self.mail.inboxes), leaves(self.blocks.boxes)):
                parts = self.blocks.slots_of(heard)
                for block in range(BLOCKS):
                    total += parts[:, block]
                heard[...] = 0
            self.merger(n, n + 1, ALONE, 0, self.blocks.one, self.blocks.gate, self.blocks.board, self.inboxes)

    def play_all(self, n: int) -> None:
        """All blocks of a round."""
        if self.pool is None:
            for block in range(BLOCKS):
                self.blocks.play(n, block)
        else:
            list(self.pool.map(lambda block: self.blocks.play(n, block), range(BLOCKS)))
