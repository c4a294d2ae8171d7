"""The compiled engine for any turns along any links: peers, servers with their clients, directed graphs.

Each turn is two kernels, one over the senders and one over the receivers; Python strings them together round by round.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from archipel.draws import key_of
from archipel.environment import available, delay, works
from archipel.node import Edge, Moment, clear, kernel, row
from archipel.simulate.compile import build, enable, lent
from archipel.simulate.instance import SERVER_KEYS, Instance, tabled
from archipel.turns import Tell, Turn

SILENT = -4  # in `lates`: said nothing this round


class Step(NamedTuple):
    """A kernel, what it is called with in a round, and what becomes of the number it returns."""

    kernel: Any
    arguments: Callable[[int], tuple[Any, ...]]
    noted: Callable[[Any], None]


class GraphEngine:
    """Plays an instance turn by turn."""

    def __init__(self, instance: Instance, parallel: bool):
        enable()
        self.instance = instance
        self.updates = 0
        self.messages = [0] * len(instance.plan.turns)
        self.said: dict[int, tuple[Any, Any]] = {}  # turn -> what everyone said last, and how late (SILENT: nothing)
        self.present = np.zeros(instance.task.clients, np.bool_)
        self.everyone = {role: np.ones(instance.count(role), np.bool_) for role in instance.plan.tables}
        self.fresh = np.zeros(instance.task.clients, np.bool_)
        self.samples = tabled(instance.task.sample, instance.task.clients)
        self.steps = self.looking(parallel)
        for i, turn in enumerate(instance.plan.turns):
            self.steps += (self.telling if isinstance(turn, Tell) else self.acting)(i, turn, parallel)

    def advance(self, first: int, last: int) -> None:
        """Play rounds first to last - 1; of none, compile only."""
        if first == last:
            for step in self.steps:
                step.kernel.compile(tuple(map(step.kernel.typeof_pyval, step.arguments(first))))
        for n in range(first, last):
            for step in self.steps:
                step.noted(step.kernel(*step.arguments(n)))

    def there(self, role: str) -> Any:
        """Who of a role can talk this round."""
        return self.present if role == self.instance.data_role else self.everyone[role]

    def sent(self, i: int) -> Callable[[int], None]:
        """Counts a turn's messages."""

        def count(messages: int) -> None:
            self.messages[i] += messages

        return count

    def learned(self, updates: int) -> None:
        """Counts local updates."""
        self.updates += updates

    def looking(self, parallel: bool) -> list[Step]:
        """The round begins: who works, has something to learn from, and can talk."""
        instance = self.instance
        kernel = looking(instance.task.observe if instance.task.streams else stored, parallel)
        rest = instance.seed, instance.task.source, self.samples, instance.conditions, self.fresh, self.present
        return [Step(kernel, lambda n: (n, *rest), lambda none: None)]

    def acting(self, i: int, turn: Turn, parallel: bool) -> list[Step]:
        """Senders act, messages travel, receivers hear and merge."""
        instance, plan = self.instance, self.instance.plan
        senders, receivers = instance.count(turn.sender), instance.count(turn.receiver)
        outbox = tabled(turn.word, senders)
        lates = np.full(senders, SILENT, np.int64)
        self.said[i] = outbox, lates
        inboxes = tabled(turn.inbox, (plan.late + 1) * receivers)
        kept = np.ones(max(senders, receivers))
        offset = 0 if turn.receiver == instance.data_role else SERVER_KEYS

        def said_by_data(n: int) -> tuple[Any, ...]:
            fan_out = instance.links_of(turn, n).fan_out
            return (
                n, instance.seed, plan.tables[turn.sender], instance.task.source, self.samples, outbox, lates, fan_out,
                plan.settings, instance.conditions, self.fresh, self.present,
            )  # fmt: skip

        def said(n: int) -> tuple[Any, ...]:
            fan_out = instance.links_of(turn, n).fan_out
            return n, instance.seed, plan.tables[turn.sender], instance.nothing, outbox, lates, fan_out, plan.settings

        def heard(n: int) -> tuple[Any, ...]:
            links = instance.links_of(turn, n)
            return (
                n, instance.seed, offset, plan.tables[turn.receiver], inboxes, outbox, lates, links.starts,
                links.senders, links.weights, kept, plan.settings, self.there(turn.receiver),
            )  # fmt: skip

        merge = Step(merging(turn, parallel), heard, self.sent(i))
        if turn.sender == instance.data_role:
            see = sampled if instance.task.streams else instance.task.observe
            return [Step(data_act(turn, see, parallel), said_by_data, self.learned), merge]
        return [Step(plain_act(turn, parallel), said, lambda none: None), merge]

    def telling(self, i: int, turn: Tell, parallel: bool) -> list[Step]:
        """Each receiver is told something by its one sender."""
        instance, plan = self.instance, self.instance.plan
        words = tabled(turn.word, instance.count(turn.receiver))

        def told(n: int) -> tuple[Any, ...]:
            links = instance.links_of(turn, n)
            return (
                n, instance.seed, plan.tables[turn.sender], plan.tables[turn.receiver], words, links.starts,
                links.senders, links.fan_out, plan.settings, self.there(turn.receiver),
            )  # fmt: skip

        return [Step(telling(turn, parallel), told, self.sent(i))]


@kernel
def stored(source: Any, sample: Any, moment: Any) -> Any:
    """Data that is there all the time is always fresh."""
    return True, sample


@kernel
def sampled(source: Any, sample: Any, moment: Any) -> Any:
    """What a node of a stream saw when the round began."""
    return True, sample


def looking(observe: Callable[..., Any], parallel: bool) -> Callable[..., Any]:
    """The round begins: who works, has something to learn from, and can talk."""
    kind = f"parallel {parallel}"

    def run(n, seed, source, samples, all_conditions, fresh, present):
        _ = kind
        for k in prange(fresh.shape[0]):
            conditions, streams = lent(all_conditions), lent(source)
            moment = Moment(k, n, key_of(seed, k, n), -1, 1, False, 1.0)
            fresh[k] = works(conditions, moment)
            if fresh[k]:
                fresh[k] = observe(streams, row(lent(samples), k), moment)[0]
            present[k] = fresh[k] and available(conditions, moment)

    return build(run, parallel)


def data_act(turn: Turn, see: Callable[..., Any], parallel: bool) -> Callable[..., Any]:
    """Nodes with data act on it."""
    act, kind = turn.act, f"parallel {parallel}"

    def run(n, seed, table, source, samples, outbox, lates, fan_out, numbers, all_conditions, fresh, present):
        _ = kind
        for k in prange(lates.shape[0]):
            lates[k] = SILENT
            if fresh[k]:
                settings = lent(numbers)
                now = Moment(k, n, key_of(seed, k, n), -1, fan_out[k], present[k], 1.0)
                data = see(lent(source), row(lent(samples), k), now)[1]
                if act(row(lent(table), k), data, row(lent(outbox), k), settings, now) and present[k]:
                    lates[k] = delay(lent(all_conditions), now)
        return fresh.sum()

    return build(run, parallel)


def plain_act(turn: Turn, parallel: bool) -> Callable[..., Any]:
    """Nodes without data act; they are always there."""
    act, kind = turn.act, f"parallel {parallel}"

    def run(n, seed, table, nothing, outbox, lates, fan_out, numbers):
        _ = kind
        for k in prange(lates.shape[0]):
            now = Moment(k, n, key_of(seed, k + SERVER_KEYS, n), -1, fan_out[k], True, 1.0)
            spoke = act(row(lent(table), k), nothing, row(lent(outbox), k), lent(numbers), now)
            lates[k] = 0 if spoke else SILENT

    return build(run, parallel)


def merging(turn: Turn, parallel: bool) -> Callable[..., Any]:
    """Receivers hear what was said to them, in the order of their links, and merge it."""
    hear, merge, kind = turn.hear, turn.merge, f"parallel {parallel}"

    def run(n, seed, offset, table, inboxes, outbox, lates, starts, senders, weights, kept, numbers, there):
        _ = kind
        nodes = there.shape[0]
        slots = inboxes[0].shape[0] // nodes
        kept[:] = 1.0
        for k in range(nodes):
            if there[k]:
                for e in range(starts[k], starts[k + 1]):
                    if 0 <= lates[senders[e]] < slots:  # what will not count stays with its sender
                        kept[senders[e]] -= weights[e]
        counts = np.zeros(nodes, np.int64)
        for k in prange(nodes):
            boxes, words, settings = lent(inboxes), lent(outbox), lent(numbers)
            if there[k]:
                for e in range(starts[k], starts[k + 1]):
                    late = lates[senders[e]]
                    if late != SILENT:
                        counts[k] += 1
                    if 0 <= late < slots:
                        box = row(boxes, ((n + late) % slots) * nodes + k)
                        hear(box, row(words, senders[e]), settings, Edge(senders[e], weights[e], late, n))
            box = row(boxes, (n % slots) * nodes + k)
            if there[k]:
                now = Moment(k, n, key_of(seed, k + offset, n), -1, starts[k + 1] - starts[k], True, kept[k])
                merge(row(lent(table), k), box, settings, now)
                clear(box)  # what is late, and finds nobody, waits until this inbox has its turn again
        return counts.sum()

    return build(run, parallel)


def telling(turn: Tell, parallel: bool) -> Callable[..., Any]:
    """Each receiver that is there takes what its one sender has for it."""
    tell, take, kind = turn.tell, turn.take, f"parallel {parallel}"

    def run(n, seed, tellers, takers, words, starts, senders, fan_out, numbers, there):
        _ = kind
        counts = np.zeros(there.shape[0], np.int64)
        for k in prange(there.shape[0]):
            if there[k]:
                s, word, settings = senders[starts[k]], row(lent(words), k), lent(numbers)
                key = key_of(seed, k, n)
                there[k] = tell(row(lent(tellers), s), word, settings, Moment(s, n, key, k, fan_out[s], True, 1.0))
                if there[k]:
                    counts[k] = 1
                    take(row(lent(takers), k), word, settings, Moment(k, n, key, s, 1, True, 1.0))
        return counts.sum()

    return build(run, parallel)
