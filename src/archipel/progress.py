"""How far a run is: a bar, on a terminal and in notebooks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def watched() -> bool:
    """Whether a person waits at a prompt or a notebook; a script is silent."""
    return "ipykernel" in sys.modules or "ps1" in vars(sys)


@contextmanager
def progress_bar(name: str, console: Any = None) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal; silence elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = console or Console(stderr=True, markup=False, emoji=False)
    texts = [TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[what]}")]
    columns = (texts[0], BarColumn(), texts[1], TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None, what="")

        def update(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, what=what or f"{done} of {total}")

        yield update
