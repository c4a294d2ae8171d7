"""From a history that breaks something to a short one that still does: faults are left out, many at a time."""

import re
from collections.abc import Callable
from typing import Any

from archipel.deploy.torture.faults import Fault
from archipel.deploy.torture.run import Outcome, play

TRIES = 120


def kind_of(wrong: str) -> str:
    """What is wrong, whoever it happened to and when."""
    return re.sub(r"[\w-]*\d[\w.-]*", "_", wrong)


def shrunk(outcome: Outcome, given: Any = None, tries: int = TRIES) -> Outcome:
    """A history with as few faults as a moderate search finds that breaks the same promise."""
    best = outcome

    def breaks(faults: list[Fault]) -> bool:
        nonlocal best
        found = play(outcome.seed, given, faults)
        if kind_of(found.wrong) != kind_of(outcome.wrong):
            return False
        best = found
        return True

    fewest(list(outcome.faults), breaks, tries)
    return play(best.seed, given, best.faults, trace=True)


def fewest(items: list[Any], holds: Callable[[list[Any]], bool], tries: int) -> list[Any]:
    """Delta debugging: a short list for which something still holds.

    >>> fewest(list(range(100)), lambda items: {17, 60} <= set(items), 200)
    [17, 60]
    """
    parts = 2
    if tries > 0 and holds([]):
        return []
    while len(items) > 1 and tries > 0:
        size = max(1, len(items) // parts)
        for begin in range(0, len(items), size):
            fewer = items[:begin] + items[begin + size :]
            tries -= 1
            if fewer and holds(fewer):
                items, parts = fewer, max(2, parts - 1)
                break
            if tries <= 0:
                break
        else:
            if size == 1:
                break
            parts = min(len(items), 2 * parts)
    return items
