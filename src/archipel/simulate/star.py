"""The compiled engine for a star: one kernel plays whole rounds, a client's state stays in the processor's cache."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange

from archipel.draws import key_of
from archipel.environment import available, delay, works
from archipel.node import Edge, Moment, clear, row
from archipel.simulate.compile import build, enable, lent
from archipel.simulate.instance import SERVER_KEYS, Instance, tabled
from archipel.turns import Plan

NOTHING = -1  # in `lates`: no message this round
UPDATES, DOWN, UP, ARRIVED = 0, 1, 2, 3  # what is counted


class StarEngine:
    """Plays a star; whole stretches of rounds in one call."""

    def __init__(self, instance: Instance, parallel: bool):
        plan, clients = instance.plan, instance.task.clients
        down, up = plan.turns
        blocks = blocks_of(clients) if parallel else 1
        self.counts = np.zeros((blocks, 8), np.int64)  # a row fills a line of the cache: threads do not share it
        self.kernel = driver(plan, instance.task.observe, parallel)
        self.instance = instance
        self.tables = (
            plan.tables["client"],
            plan.tables["server"],
            instance.task.source,
            tabled(instance.task.sample, blocks),
            tabled(down.word, blocks),
            tabled(up.word, clients),
            np.full(clients, NOTHING, np.int16),
            tabled(up.inbox, plan.late + 1),
            plan.settings,
            instance.conditions,
            self.counts,
        )

    def advance(self, first: int, last: int) -> None:
        """Play rounds first to last - 1."""
        self.kernel(first, last, self.instance.seed, *self.tables)

    @property
    def updates(self) -> int:
        """Local learning steps so far."""
        return int(self.counts[:, UPDATES].sum())

    @property
    def messages(self) -> list[int]:
        """Messages so far: down, up."""
        return [int(self.counts[:, DOWN].sum()), int(self.counts[:, UP].sum())]


def blocks_of(clients: int) -> int:
    """Into how many pieces threads share the clients: enough to balance, few enough to be cheap."""
    return max(1, min(clients // 16, max(16, clients // 256)))


def driver(plan: Plan, observe: Callable[..., Any], parallel: bool) -> Callable[..., Any]:
    """The compiled function that plays rounds `first` to `last` of a star."""
    enable()
    down, up = plan.turns
    tell, take, act, hear, merge = down.tell, down.take, up.act, up.hear, up.merge
    kind = "parallel" if parallel else "serial"

    def advance(
        first, last, seed,  # the rounds to play
        all_clients, servers, source,  # what nodes keep
        samples, asked, outbox, lates, inboxes,  # scratch: a row a block, a client, or a round to come
        numbers, all_conditions, counts,  # settings, conditions, what was done
    ):  # fmt: skip
        _ = kind
        nodes, blocks, slots = lates.shape[0], samples[0].shape[0], inboxes[0].shape[0]
        block = (nodes + blocks - 1) // blocks  # how many never changes a result: blocks share nothing
        for n in range(first, last):
            for b in prange(blocks):
                # Only arguments can cross into a prange, so what is lent is lent in here.
                clients, server = lent(all_clients), row(lent(servers), 0)
                streams, messages = lent(source), lent(outbox)
                settings, conditions = lent(numbers), lent(all_conditions)
                scratch, question = row(lent(samples), b), row(lent(asked), b)
                updates, told, said = 0, 0, 0
                for k in range(b * block, min(nodes, (b + 1) * block)):
                    lates[k] = NOTHING
                    key = key_of(seed, k, n)
                    moment = Moment(k, n, key, 0, 1, False, 1.0)
                    if not works(conditions, moment):
                        continue
                    fresh, data = observe(streams, scratch, moment)
                    if not fresh:
                        continue
                    updates += 1
                    present = available(conditions, moment)
                    if present:
                        present = tell(server, question, settings, Moment(0, n, key, k, nodes, True, 1.0))
                    client = row(clients, k)
                    now = Moment(k, n, key, 0, 1, present, 1.0)
                    if present:
                        told += 1
                        take(client, question, settings, now)
                    if act(client, data, row(messages, k), settings, now):
                        said += 1
                        lates[k] = delay(conditions, moment)
                counts[b, UPDATES] += updates
                counts[b, DOWN] += told
                counts[b, UP] += said
            words, boxes, steering = lent(outbox), lent(inboxes), lent(numbers)
            for k in range(nodes):
                if 0 <= lates[k] < slots:
                    counts[0, ARRIVED] += 1
                    hear(row(boxes, (n + lates[k]) % slots), row(words, k), steering, Edge(k, 1.0, lates[k], n))
            arrived = row(boxes, n % slots)
            closing = Moment(0, n, key_of(seed, SERVER_KEYS, n), -1, nodes, True, 1.0)
            merge(row(lent(servers), 0), arrived, steering, closing)
            clear(arrived)

    return build(advance, parallel)
