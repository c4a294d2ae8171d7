"""An instance as steps and the tables that they work on: what engines play."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from archipel.node import FEW, Few, tabled, weight_of
from archipel.problems.task import Ahead
from archipel.shard import WHOLE
from archipel.simulate import openings, rounds
from archipel.simulate.instance import Instance
from archipel.simulate.rounds import SILENT, UPDATES, Board, Mail, Routes, nodes_of, others_of
from archipel.topology.links import places_of
from archipel.turns import Tell

SHARED = 64  # nodes of a step that are worth a second thread
CACHED = 1 << 18  # bytes of words that stay in a core's cache while others act


class Rounds(NamedTuple):
    """A federation as steps and what they work on."""

    steps: tuple[Callable[..., Any], ...]
    arguments: tuple[Any, ...]  # of the steps
    roles: tuple[str, ...]  # whose step it is
    board: Board
    mails: list[Mail]
    defers: bool  # whether clients that cannot be reached are played later
    shard: slice = WHOLE  # of nodes with data, who are there

    def begin(self, first: int, last: int) -> None:
        """A stretch of rounds, at whose end all nodes have played all of them."""
        self.board.played[self.shard] = first
        self.board.until[0] = last - 1 if self.defers else first

    @property
    def updates(self) -> int:
        """Local learning steps so far."""
        return int(self.board.counts[:, UPDATES].sum())

    @property
    def messages(self) -> list[int]:
        """Messages so far, of each turn."""
        return [int(self.board.counts[:, 1 + i].sum()) for i in range(len(self.mails))]


class Played:
    """What an engine has done: its rounds know it."""

    rounds: Rounds

    @property
    def updates(self) -> int:
        return self.rounds.updates

    @property
    def messages(self) -> list[int]:
        return self.rounds.messages


def rounds_of(instance: Instance, parts: int, step_by_step: bool = True) -> Rounds:
    """The steps of an instance's turns, for `parts` threads; two may be played as one where nobody comes between."""
    plan, task, role = instance.plan, instance.task, instance.data_role
    width = 0 if step_by_step else heard_at_once(instance)
    mails = [mail_of(instance, i, parts, 0 if i else width) for i in range(len(plan.turns))]
    steps, arguments, nodes = [], [], []

    def add(step: Callable[..., Any], argument: Any, who: str) -> None:
        steps.append(step)
        arguments.append(argument)
        nodes.append(who)

    turns = list(enumerate(plan.turns))
    done = opening_of(plan, task, role, mails, add)
    later = any(not isinstance(turn, Tell) and turn.sender == role for i, turn in turns[done:] if i != done - 1)
    for i, turn in turns[1 if width else max(done - 1, 0) :]:
        table = {end: nodes_of if end == role else others_of for end in (turn.sender, turn.receiver)}
        if isinstance(turn, Tell):
            ends = table[turn.sender], table[turn.receiver]
            add(rounds.telling(turn.tell, turn.take, *ends, turn.receiver == role), mails[i], turn.receiver)
            continue
        if i >= done and turn.sender == role:
            add(rounds.acting(openings.sampled if task.streams else task.observe, turn.act), mails[i], turn.sender)
        elif i >= done:
            add(rounds.acting_without_data(turn.act), mails[i], turn.sender)
        if turn.forge is not None:
            add(rounds.forging(turn.forge.run), mails[i], turn.sender)
        among = turn.sender == turn.receiver
        step = rounds.delivering(turn.hear, turn.merge, table[turn.receiver], among, turn.receiver == role)
        add(step, mails[i], turn.receiver)
    others = [table for name, table in plan.tables.items() if name != role]
    rows = task.clients if later else parts
    board = Board(
        instance.seed, plan.tables[role], others[0] if others else instance.nothing, task.source,
        tabled(task.sample, rows), instance.conditions, plan.settings, instance.nothing,
        np.zeros(task.clients, np.bool_), np.zeros(task.clients if later else 0, np.bool_), tabled(some_nodes(), parts),
        np.zeros((parts, 16), np.int64), np.zeros(task.clients, np.int32), np.zeros(1, np.int64),
    )  # fmt: skip
    later_on = done == 2 and defers(instance)
    return Rounds(tuple(steps), tuple(arguments), tuple(nodes), board, mails, later_on, instance.shard)


def heard_at_once(instance: Instance) -> int:
    """How many clients a server has at most, where it can hear them before those of the next one act; else 0.

    Its clients follow each other, and what they say stays in the cache; servers are enough for all threads.
    """
    plan, role = instance.plan, instance.data_role
    turn = plan.turns[0]
    if isinstance(turn, Tell) or turn.sender != role or turn.receiver == role or turn.forge is not None:
        return 0
    phases = instance.links[turn.sender, turn.receiver]
    if len(phases) > 1 or not np.array_equal(phases[0].senders, np.arange(instance.task.clients)):
        return 0
    width = int(np.diff(phases[0].starts).max(initial=0))
    return width if len(phases[0].starts) > SHARED and width * weight_of(turn.word) <= CACHED else 0


def defers(instance: Instance) -> bool:
    """Whether some clients may be away, and only they look at themselves meanwhile."""
    plan, role = instance.plan, instance.data_role
    alone = all(isinstance(turn, Tell) or turn.forge is None for turn in plan.turns)
    alone = alone and not any(role in (turn.sender, turn.receiver) for turn in plan.turns[2:])
    chance, recorded = instance.conditions.chance[:, instance.shard], instance.conditions.recorded
    return alone and (len(recorded) > 0 or bool((chance < 1).any()))


def some_nodes() -> Few:
    """Place for nodes that are looked at together, and for the numbers of those that come after the last."""
    whole = np.zeros(FEW + openings.SOON, np.int64)
    draws = whole.astype(float)
    return Few(whole, whole.copy(), whole.astype(np.uint64), draws, draws.copy(), whole.copy(), np.zeros(2, np.int64))


def opening_of(plan: Any, task: Any, role: str, mails: list[Mail], add: Callable[..., None]) -> int:
    """The first step; how many turns have had their act by it."""
    first, *rest = plan.turns
    ahead = task.ahead or Ahead(openings.everyone, openings.as_observed(task.observe))
    acts = sum(not isinstance(turn, Tell) and turn.sender == role for turn in plan.turns)
    once = ahead._replace(look=ahead.view) if ahead.view and acts == 1 else ahead  # nobody looks again
    if isinstance(first, Tell) and first.receiver == role and rest and not isinstance(rest[0], Tell):
        if rest[0].sender == role:
            add(openings.opening_by_tell(once, first.tell, first.take, rest[0].act), (mails[0], mails[1]), role)
            return 2
    elif not isinstance(first, Tell) and first.sender == role:
        if mails[0].width:
            deliver = rounds.delivering_to_some(first.hear, first.merge, others_of, False, False)
            add(openings.opening_at_servers(once, first.act, deliver), mails[0], first.receiver)
        else:
            add(openings.opening_by_act(once, first.act), mails[0], role)
        return 1
    add(openings.opening(ahead), mails[0], role)
    return 0


def mail_of(instance: Instance, i: int, parts: int, width: int) -> Mail:
    """The words, inboxes and links of a turn."""
    turn, late = instance.plan.turns[i], instance.plan.late
    senders, receivers = instance.count(turn.sender), instance.count(turn.receiver)
    edges, back = instance.links[turn.sender, turn.receiver], instance.links.get((turn.receiver, turn.sender), ())
    between = {turn.sender, turn.receiver} == {"client", "server"} and instance.count("server") == 1
    routes = routes_of_star(edges[0], back[0]) if between else routes_of(edges, senders)
    if isinstance(turn, Tell):
        return Mail(tabled(turn.word, parts), np.zeros(1, np.int16), instance.nothing, routes, 1, i, instance.nothing)
    lates = np.zeros(senders, np.int16)
    lates[instance.shard if turn.sender == instance.data_role else WHOLE] = SILENT
    rows = (late + 1) * receivers if late else min(parts, receivers)  # where none waits, one stays in the cache
    inboxes = tabled(turn.inbox, rows)
    attack = instance.nothing if turn.forge is None else turn.forge.attack
    words = tabled(turn.word, parts * width or senders)
    return Mail(words, lates, inboxes, routes, late + 1, i, attack, width)


def routes_of_star(edges: Any, back: Any) -> Routes:
    """Links between clients and their one server, and `back`: nothing is sorted, and no array is there twice."""
    return Routes(
        edges.starts[None], edges.senders, edges.weights, edges.senders,
        edges.fan_out[None], back.starts[None], back.senders, back.weights,
    )  # fmt: skip


def routes_of(phases: Any, senders: int) -> Routes:
    """Links by receiver and by sender, all phases in one."""
    starts, ends, outs, out_ends, out_weights, fan_out = [], [], [], [], [], []
    at = 0
    for edges in phases:
        receivers = np.repeat(np.arange(len(edges.starts) - 1), np.diff(edges.starts))
        order = np.argsort(edges.senders, kind="stable")
        starts.append(edges.starts + at)
        ends.append(edges.senders)
        outs.append(np.concatenate([[0], np.cumsum(edges.fan_out)]) + at)
        out_ends.append(receivers[order])
        out_weights.append(edges.weights[order])
        fan_out.append(edges.fan_out)
        at += len(edges.senders)
    weights = np.concatenate([edges.weights for edges in phases])
    places = np.concatenate(places_of([(edges.starts, edges.senders) for edges in phases]))
    return Routes(
        np.stack(starts).astype(np.int64), np.concatenate(ends).astype(np.int64), weights.astype(float), places,
        np.stack(fan_out).astype(np.int64), np.stack(outs).astype(np.int64),
        np.concatenate(out_ends).astype(np.int64), np.concatenate(out_weights).astype(float),
    )  # fmt: skip
