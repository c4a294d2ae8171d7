"""The plain engine: the rounds of `simulate.rounds`, in plain Python, with the node functions as they are.

It names the node and the round when something fails. Deep models run through it.
"""

from types import TracebackType
from typing import Any

from archipel.simulate.instance import Instance
from archipel.simulate.rounds import rounds_of


class PlainEngine:
    """Plays an instance round by round."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.rounds = rounds_of(instance, 1)

    def advance(self, first: int, last: int) -> None:
        """Play rounds first to last - 1."""
        made = self.rounds
        for n in range(first, last):
            for step, role, mine in zip(made.steps, made.roles, made.arguments):
                try:
                    step(n, 0, 1, made.board, mine)
                except Exception as problem:
                    problem.add_note(f"in round {n}, at {role} {who_failed(problem.__traceback__)}")
                    raise

    @property
    def updates(self) -> int:
        return self.rounds.updates

    @property
    def messages(self) -> list[int]:
        return self.rounds.messages


def who_failed(trace: TracebackType | None) -> Any:
    """The node whose step it was."""
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "step" and "k" in trace.tb_frame.f_locals:
            return trace.tb_frame.f_locals["k"]
        trace = trace.tb_next
    return "?"
