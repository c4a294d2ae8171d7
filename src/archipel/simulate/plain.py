"""The plain engine: the rounds of `simulate.rounds`, in plain Python, with the node functions as they are.

It names the node and the round when something fails. Deep models run through it, clients side by side: while a round
opens nobody acts yet, then all ask their learner, who answers those that ask alike in one go, or large ones on threads,
and then they go on.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from archipel.environment import delay
from archipel.node import NOTHING, SAID, Rows
from archipel.problems.models.learners import answered_together
from archipel.simulate.instance import Instance
from archipel.simulate.laid import Played, Rounds, rounds_of
from archipel.simulate.rounds import UPDATES, Mail
from archipel.turns import SideBySide, Tell

LOOPS = ("step", "play", "deliver", "answered_together")  # over nodes k, one after the other
LARGEST_KEPT = (32 << 20) - (8 << 10)  # bytes: glibc's limit, with room for its own notes and a page


class PlainEngine(Played):
    """Plays an instance round by round."""

    def __init__(self, instance: Instance, side_by_side: bool = True, threads: int = 1):
        self.instance, self.threads = instance, threads
        if instance.plan.plain_only:
            keep_what_is_freed()
        turns = instance.plan.turns
        opened = [i for i, turn in enumerate(turns[:2]) if turn.sender == instance.data_role][:1]  # by the first step
        halves = turns[opened[0]].side_by_side if opened and side_by_side else None
        if halves is None:
            self.rounds = in_rows(rounds_of(instance, 1), turns)
            return
        (i,) = opened
        waiting: list[Any] = []

        def wait(*act: Any) -> int:
            waiting.append(act)
            return NOTHING

        acts = turns[i]._replace(act=wait)
        made = rounds_of(instance._replace(plan=instance.plan._replace(turns=(*turns[:i], acts, *turns[i + 1 :]))), 1)
        first = opening_together(made.steps[0], waiting, halves, made.mails[i].lates, threads)
        self.rounds = in_rows(made._replace(steps=(first, *made.steps[1:])), turns)

    def advance(self, first: int, last: int) -> None:
        """Play rounds first to last - 1."""
        made = self.rounds
        made.begin(first, last)
        for n in range(first, last):
            for step, role, mine in zip(made.steps, made.roles, made.arguments):
                try:
                    step(n, 0, 1, made.board, mine)
                except Exception as problem:
                    problem.add_note(f"in round {n}, at {role} {who_failed(problem.__traceback__)}")
                    raise


def keep_what_is_freed() -> None:
    """Let the C library keep what a step of training frees for the next one.

    On threads other than the first, glibc gives the end of its heap back after every step, and each page of it is asked
    for anew: 7 to 15 % of the time of a CNN. What it keeps follows the largest block that was ever freed, up to 32 MiB;
    one that nobody writes to costs nothing. Settings of the user's (`MALLOC_TRIM_THRESHOLD_`) go before it.
    """
    np.empty(LARGEST_KEPT, np.uint8)


def in_rows(made: Rounds, turns: Any) -> Rounds:
    """The same rounds, over tables whose rows are made once; who forges looks at whole tables."""
    if any(not isinstance(turn, Tell) and turn.forge is not None for turn in turns):
        return made
    board = made.board._replace(nodes=Rows(made.board.nodes), others=Rows(made.board.others))
    cuts = [mail._replace(words=Rows(mail.words), inboxes=Rows(mail.inboxes)) for mail in made.mails]
    given = tuple(
        tuple(cuts[m.number] for m in mails) if not isinstance(mails, Mail) else cuts[mails.number]
        for mails in made.arguments
    )
    return made._replace(board=board, arguments=given)


def opening_together(
    open_round: Any, waiting: list[Any], halves: SideBySide, lates: Any, threads: int
) -> Callable[..., None]:
    """The first step of a round, whose acts only wait; then all of them at once."""

    def step(n: int, part: int, parts: int, board: Any, args: Any) -> None:
        waiting.clear()
        open_round(n, part, parts, board, args)
        asked = [(now.node, halves.ask(me, data, settings, now)) for me, data, _said, settings, now in waiting]
        found = answered_together(asked, halves.learner, threads)
        for (me, _data, said, settings, now), one in zip(waiting, found):
            k = now.node
            came = halves.rest(me, one, said, settings, now)
            if came != NOTHING:
                board.counts[part, UPDATES] += 1
            if came == SAID and now.present:
                lates[k] = delay(board.conditions, now)

    return step


def who_failed(trace: TracebackType | None) -> Any:
    """The node whose step it was."""
    while trace is not None:
        if trace.tb_frame.f_code.co_name in LOOPS and "k" in trace.tb_frame.f_locals:
            return trace.tb_frame.f_locals["k"]
        trace = trace.tb_next
    return "?"
