"""How a round begins: nodes with data look at it, take what their server tells them, act.

A node that cannot be reached hears nothing and is not heard. So where nothing else looks at clients (`laid.defers`),
rounds that they play alone are played later, in one go, while they stand in the cache: when they can talk again, or a
stretch of rounds ends. What they draw does not depend on when they do, so no bit does.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from archipel.draws import key_of, u64
from archipel.environment import available, available_of, delay, works
from archipel.node import FEW, NOTHING, SAID, Moment, fetch, kernel, rare, row
from archipel.problems.task import Ahead
from archipel.simulate.rounds import SILENT, UPDATES, sender_of

SOON = 2  # nodes from now whose rows are asked for: one takes about as long as memory does


@kernel
def sampled(source: Any, sample: Any, moment: Any) -> Any:
    """What a node of a stream saw when the round began."""
    return True, sample


@kernel
def everyone(source: Any, few: Any, count: Any) -> Any:
    """Who has something new is seen when one looks."""
    return count


@cache
def as_observed(observe: Callable[..., Any]) -> Callable[..., Any]:
    @kernel
    def look(source: Any, sample: Any, moment: Any, _first: Any, _second: Any) -> Any:
        return observe(source, sample, moment)

    return look


@rare
def due(n: Any, first: Any, last: Any, board: Any, few: Any) -> Any:
    """Who of nodes `first` to `last` - 1 plays now: all, or those that can be reached; nobody is there yet."""
    conditions, seed, count = board.conditions, board.seed, 0
    many = board.fresh.shape[0] > 0  # what a node saw is kept for a later turn
    for k in range(first, last):
        board.present[k] = False
        if many:
            board.fresh[k] = False
    if n < board.until[0]:
        for j in range(last - first):
            few.keys[j] = key_of(seed, first + j, n)
        count = available_of(conditions, few, first, last, n)
    else:
        for k in range(first, last):
            few.due[count] = k
            count += 1
    few.at[0], few.at[1] = 0, board.played[few.due[0]]
    return count


@cache
def gathering(draw: Callable[..., Any]) -> Callable[..., Any]:
    @rare
    def gather(n: Any, count: Any, board: Any, few: Any) -> Any:
        """Some of the rounds that nodes who are due have not played: those in which they may have something new."""
        seed, some, at, m = board.seed, 0, few.at[0], few.at[1]
        while at < count and some < FEW:
            k = few.due[at]
            if some < 2 * SOON:  # the first ones are needed before there is time to ask for them
                fetch(board.nodes, k)
            few.nodes[some], few.rounds[some] = k, m
            some += works(board.conditions, Moment(k, m, u64(0), -1, 1, False, 1.0))
            m += 1
            if m > n:
                board.played[k] = m
                at += 1
                m = board.played[few.due[at]]
        few.at[0], few.at[1] = at, m
        for j in range(some):
            few.keys[j] = key_of(seed, few.nodes[j], few.rounds[j])
        return draw(board.source, few, some)

    return gather


@cache
def opening(ahead: Ahead) -> Callable[..., Any]:
    """Nodes with data look at it; nobody acts yet."""
    gather, look = gathering(ahead.draw), ahead.look

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, args: Any) -> None:
        total, many = board.present.shape[0], board.fresh.shape[0] > 0
        source, samples, conditions, few = board.source, board.samples, board.conditions, row(board.few, part)
        end = total * (part + 1) // parts
        for first in range(total * part // parts, end, FEW):
            count = due(n, first, min(first + FEW, end), board, few)
            for j in range(gather(n, count, board, few)):
                k = few.nodes[j]
                moment = Moment(k, n, u64(few.keys[j]), -1, 1, False, 1.0)
                sample = row(samples, k if many else part)
                fresh, _data = look(source, sample, moment, float(few.first[j]), float(few.second[j]))
                board.present[k] = fresh and available(conditions, moment)
                if many:
                    board.fresh[k] = fresh

    return step


@cache
def opening_by_act(ahead: Ahead, act: Callable[..., Any]) -> Callable[..., Any]:
    """All nodes with data look at it and act."""
    play = acting_of_some(ahead, act)

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, up: Any) -> None:
        total = board.present.shape[0]
        play(n, part, total * part // parts, total * (part + 1) // parts, 0, board, up)

    return step


@cache
def opening_at_servers(ahead: Ahead, act: Callable[..., Any], deliver: Callable[..., Any]) -> Callable[..., Any]:
    """The clients of a server act, and it hears them while their words are in the cache; then those of the next."""
    play = acting_of_some(ahead, act)

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, up: Any) -> None:
        starts = up.routes.starts
        total = starts.shape[1] - 1
        for s in range(total * part // parts, total * (part + 1) // parts):
            before = starts[0, s] - part * up.width
            play(n, part, starts[0, s], starts[0, s + 1], before, board, up)
            deliver(n, part, s, s + 1, before, board, up)

    return step


@cache
def acting_of_some(ahead: Ahead, act: Callable[..., Any]) -> Callable[..., Any]:
    gather, look = gathering(ahead.draw), ahead.look

    @kernel
    def play(n: Any, part: Any, begin: Any, end: Any, before: Any, board: Any, up: Any) -> None:
        """Nodes `begin` to `end` - 1 look at their data and act; words of the first `before` nodes have no rows."""
        phase = n % up.routes.starts.shape[0]
        source, samples, conditions, few = board.source, board.samples, board.conditions, row(board.few, part)
        nodes, words, settings = board.nodes, up.words, board.settings
        many, updates = board.fresh.shape[0] > 0, 0
        for first in range(begin, end, FEW):
            last = min(first + FEW, end)
            for k in range(first, last):
                up.lates[k] = SILENT
            for j in range(gather(n, due(n, first, last, board, few), board, few)):
                k, key = few.nodes[j], u64(few.keys[j])
                if few.nodes[j + SOON] > k + SOON:  # rows that follow each other come by themselves
                    fetch(nodes, few.nodes[j + SOON])
                moment, sample = Moment(k, n, key, -1, 1, False, 1.0), row(samples, k if many else part)
                fresh, data = look(source, sample, moment, float(few.first[j]), float(few.second[j]))
                if not fresh:
                    continue
                if many:
                    board.fresh[k] = True
                present = available(conditions, moment)
                board.present[k] = present
                now = Moment(k, n, key, -1, up.routes.fan_out[phase, k], present, 1.0)
                came = act(row(nodes, k), data, row(words, k - before), settings, now)
                if came != NOTHING:
                    updates += 1
                if came == SAID and present:
                    up.lates[k] = delay(conditions, now)
        board.counts[part, UPDATES] += updates

    return play


@cache
def opening_by_tell(
    ahead: Ahead, tell: Callable[..., Any], take: Callable[..., Any], act: Callable[..., Any]
) -> Callable[..., Any]:
    """Nodes with data look at it, take what their server has for them, and act: a node's row stays in the cache."""
    gather, look = gathering(ahead.draw), ahead.look

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, args: Any) -> None:
        down, up = args
        total, phase = board.present.shape[0], n % up.routes.starts.shape[0]
        source, samples, conditions, few = board.source, board.samples, board.conditions, row(board.few, part)
        nodes, servers, settings = board.nodes, board.others, board.settings
        words, question = up.words, row(down.words, part)
        many = board.fresh.shape[0] > 0
        updates, told, end = 0, 0, total * (part + 1) // parts
        for first in range(total * part // parts, end, FEW):
            last = min(first + FEW, end)
            for k in range(first, last):
                up.lates[k] = SILENT
            count = due(n, first, last, board, few)
            while few.at[0] < count:
                for j in range(gather(n, count, board, few)):
                    k, m, key = few.nodes[j], int(few.rounds[j]), u64(few.keys[j])  # a round as elsewhere
                    later = few.nodes[j + SOON]
                    if later != few.nodes[j + SOON - 1]:  # not one that plays several rounds
                        fetch(nodes, later)
                    moment, sample = Moment(k, m, key, -1, 1, False, 1.0), row(samples, k if many else part)
                    fresh, data = look(source, sample, moment, float(few.first[j]), float(few.second[j]))
                    if not fresh:
                        continue
                    if many:
                        board.fresh[k] = True
                    present = m == n and available(conditions, moment)
                    client = row(nodes, k)
                    if present:
                        s = sender_of(down.routes, k)
                        teller = Moment(s, n, key, k, down.routes.fan_out[0, s], True, 1.0)
                        present = tell(row(servers, s), question, settings, teller)
                        if present:
                            told += 1
                            take(client, question, settings, Moment(k, n, key, s, 1, True, 1.0))
                    board.present[k] = present
                    now = Moment(k, m, key, -1, up.routes.fan_out[phase, k], present, 1.0)
                    came = act(client, data, row(words, k), settings, now)
                    if came != NOTHING:
                        updates += 1
                    if came == SAID and present:
                        up.lates[k] = delay(conditions, now)
        board.counts[part, UPDATES] += updates
        board.counts[part, 1 + down.number] += told

    return step
