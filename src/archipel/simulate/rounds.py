"""What a round is: the one definition of turns, for every engine.

The functions here are plain loops over tables. The plain engine calls them as they are; the compiled one compiles them
around an algorithm's node functions. A round is a list of steps; a step can be played for a part of its nodes, so
threads share it, and no step looks at what another node does in it:

- *opening* (`simulate.openings`): nodes with data look at it, take what their server tells them, act;
- *acting*: the nodes of another turn act;
- *forging*: those who lie say something else, knowing what everyone said;
- *delivering*: receivers hear what was said to them, in the order of their links, and merge it;
- *telling*: each receiver takes what its one sender has for it.

A message leaves if its sender said something and is there. It is heard by receivers that are there when it leaves,
in the round in which it arrives. What is too late to count stays with its sender (`moment.kept`); what arrives while
its receiver is away waits until that inbox has its turn again.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from archipel.draws import key_of
from archipel.environment import delay
from archipel.node import SAID, Edge, Moment, clear, fetch, kernel, row
from archipel.simulate.instance import SERVER_KEYS

SILENT = -4  # in `lates`: said nothing this round
NEXT = 8  # links from now whose words are asked for, where they do not follow each other
UPDATES = 0  # in `counts`: local updates; then one place a turn, for its messages


class Routes(NamedTuple):
    """The links of a turn in all phases, one phase's after the other's."""

    starts: Any  # (phases, receivers + 1): whom a receiver hears
    senders: Any
    weights: Any
    places: Any  # of a sender among all that its receiver ever hears
    fan_out: Any  # (phases, senders): how many hear this one
    out_starts: Any  # (phases, senders + 1): who hears a sender
    receivers: Any
    out_weights: Any


class Mail(NamedTuple):
    """What is said in a turn, and what waits to be merged."""

    words: Any  # a row a sender, or `width` rows a part; of a Tell, a row a part or a receiver
    lates: Any  # (senders,): how many rounds late, LOST, or SILENT
    inboxes: Any  # a row a receiver for each round to come; where nothing may be late, a row a part: none waits
    routes: Routes
    slots: Any  # for how many rounds there are inboxes
    number: Any  # of the turn
    attack: Any  # of who lies, what it needs
    width: Any = 0  # senders at most of a receiver that hears them while their words are in the cache


class Board(NamedTuple):
    """What all steps share."""

    seed: Any
    nodes: Any  # the table of those that have data
    others: Any  # the table of servers, where there are any
    source: Any
    samples: Any  # a row a part, or a node
    conditions: Any
    settings: Any
    nothing: Any
    present: Any  # (nodes,): who can talk this round
    fresh: Any  # (nodes,): who has something to learn from
    few: Any  # (parts, FEW): nodes that are looked at together
    counts: Any  # (parts, 16)
    played: Any  # (nodes,): how many rounds each has played
    until: Any  # (1,): the round from which on all nodes play at once


@kernel
def nodes_of(board: Any) -> Any:
    return board.nodes


@kernel
def others_of(board: Any) -> Any:
    return board.others


@kernel
def sender_of(routes: Any, k: Any) -> Any:
    """Who tells a receiver; where there is one server, nothing is looked up."""
    return routes.senders[routes.starts[0, k]] if routes.fan_out.shape[1] > 1 else 0


# --- steps ----------------------------------------------------------------------------------------------------------


@cache
def acting(see: Callable[..., Any], act: Callable[..., Any]) -> Callable[..., Any]:
    """Nodes with data act again, in a later turn of the round."""

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, mail: Any) -> None:
        total, phase = board.present.shape[0], n % mail.routes.starts.shape[0]
        source, samples, conditions = board.source, board.samples, board.conditions
        nodes, words, settings = board.nodes, mail.words, board.settings
        for k in range(total * part // parts, total * (part + 1) // parts):
            mail.lates[k] = SILENT
            if board.fresh[k]:
                key, present = key_of(board.seed, k, n), board.present[k]
                now = Moment(k, n, key, -1, mail.routes.fan_out[phase, k], present, 1.0)
                data = see(source, row(samples, k), now)[1]
                if act(row(nodes, k), data, row(words, k), settings, now) == SAID and present:
                    mail.lates[k] = delay(conditions, now)

    return step


@cache
def acting_without_data(act: Callable[..., Any]) -> Callable[..., Any]:
    """Servers act; they are always there, and never late."""

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, mail: Any) -> None:
        total, phase = mail.lates.shape[0], n % mail.routes.starts.shape[0]
        others, words, settings = board.others, mail.words, board.settings
        for k in range(total * part // parts, total * (part + 1) // parts):
            fan_out = mail.routes.fan_out[phase, k]
            now = Moment(k, n, key_of(board.seed, k + SERVER_KEYS, n), -1, fan_out, True, 1.0)
            came = act(row(others, k), board.nothing, row(words, k), settings, now)
            mail.lates[k] = 0 if came == SAID else SILENT

    return step


@cache
def forging(forge: Callable[..., Any]) -> Callable[..., Any]:
    """Liars say something else."""

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, mail: Any) -> None:
        if part == 0:  # it looks at everyone
            nodes, words, settings = board.nodes, mail.words, board.settings
            forge(n, board.seed, nodes, words, mail.lates, mail.attack, settings)

    return step


@cache
def delivering(
    hear: Callable[..., Any], merge: Callable[..., Any], receivers: Callable[..., Any], among: bool, with_data: bool
) -> Callable[..., Any]:
    """All receivers hear and merge."""
    deliver = delivering_to_some(hear, merge, receivers, among, with_data)

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, mail: Any) -> None:
        total = mail.routes.starts.shape[1] - 1
        deliver(n, part, total * part // parts, total * (part + 1) // parts, 0, board, mail)

    return step


@cache
def delivering_to_some(
    hear: Callable[..., Any], merge: Callable[..., Any], receivers: Callable[..., Any], among: bool, with_data: bool
) -> Callable[..., Any]:
    """Receivers hear and merge. `among`: senders and receivers are the same nodes; `with_data`: they may be away."""
    offset = 0 if with_data else SERVER_KEYS

    @kernel
    def deliver(n: Any, part: Any, begin: Any, finish: Any, before: Any, board: Any, mail: Any) -> None:
        """To receivers `begin` to `finish` - 1; the words of the first `before` senders have no rows."""
        table, words, settings = receivers(board), mail.words, board.settings
        boxes, routes, lates = mail.inboxes, mail.routes, mail.lates
        phase, total = n % routes.starts.shape[0], routes.starts.shape[1] - 1
        slots, heard, end = mail.slots, 0, routes.senders.shape[0] - 1
        for k in range(begin, finish):
            if with_data and not board.present[k]:
                continue
            first, last = routes.starts[phase, k], routes.starts[phase, k + 1]
            for e in range(first, last):
                sender, later = routes.senders[e], routes.senders[min(e + NEXT, end)]
                if lates[later] != SILENT and (later != sender + NEXT or lates[later - 1] == SILENT):
                    fetch(words, later - before)  # what follows the one before it comes by itself
                late = lates[sender]
                if late != SILENT:
                    heard += 1
                if 0 <= late < slots:
                    box = row(boxes, ((n + late) % slots) * total + k if slots > 1 else part)
                    edge = Edge(sender, routes.weights[e], late, n, routes.places[e])
                    hear(box, row(words, sender - before), settings, edge)
            kept = 1.0
            if among and 0 <= lates[k] < slots:
                for e in range(routes.out_starts[phase, k], routes.out_starts[phase, k + 1]):
                    if not with_data or board.present[routes.receivers[e]]:
                        kept -= routes.out_weights[e]
            box = row(boxes, (n % slots) * total + k if slots > 1 else part)
            now = Moment(k, n, key_of(board.seed, k + offset, n), -1, last - first, True, kept)
            merge(row(table, k), box, settings, now)
            clear(box)  # what is late, and finds nobody, waits until this inbox has its turn again
        board.counts[part, 1 + mail.number] += heard

    return deliver


@cache
def telling(
    tell: Callable[..., Any],
    take: Callable[..., Any],
    tellers: Callable[..., Any],
    takers: Callable[..., Any],
    with_data: bool,
) -> Callable[..., Any]:
    """Each receiver that is there takes what its one sender has for it."""
    offset = 0 if with_data else SERVER_KEYS

    @kernel
    def step(n: Any, part: Any, parts: Any, board: Any, mail: Any) -> None:
        senders, receivers, settings = tellers(board), takers(board), board.settings
        word, routes, total = row(mail.words, part), mail.routes, mail.routes.starts.shape[1] - 1
        told = 0
        for k in range(total * part // parts, total * (part + 1) // parts):
            if with_data and not board.present[k]:
                continue
            s, key = sender_of(routes, k), key_of(board.seed, k + offset, n)
            spoke = tell(row(senders, s), word, settings, Moment(s, n, key, k, routes.fan_out[0, s], True, 1.0))
            if with_data:
                board.present[k] = spoke
            if spoke:
                told += 1
                take(row(receivers, k), word, settings, Moment(k, n, key, s, 1, True, 1.0))
        board.counts[part, 1 + mail.number] += told

    return step
