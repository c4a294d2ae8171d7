"""What commands share: the screen, and the arguments that several have."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from archipel.errors import BadInput, did_you_mean

PLAIN: dict[str, Any] = {"markup": False, "emoji": False}  # names of files and clients may look like either
screen, errors = Console(**PLAIN), Console(stderr=True, **PLAIN)

Description = Annotated[Path, typer.Argument(help="A federation, described in TOML.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Name = Annotated[str, typer.Option("--name", help="Look at this client's own data only, on its own machine.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for the results; it is made if it does not exist.")]
Page = Annotated[
    str, typer.Option("--page", help="Serve a live page at this port of loopback (0: any), or at host:port by a token.")
]
Rounds = Annotated[int, typer.Option("--rounds", min=0, help="Play this many rounds instead of the description's.")]


def say(*sentences: str, to: Console = screen) -> None:
    """Sentences, each in a line that is as long as it is: where it breaks, the terminal decides."""
    for sentence in sentences:
        to.print(sentence, highlight=False, soft_wrap=True)


def warn(*sentences: str) -> None:
    """The same, beside what a command answers."""
    say(*sentences, to=errors)


def show_wide(table: Any, columns: int) -> None:
    """A table that needs so many columns, also where nobody looks (in a pipe)."""
    Console(width=max(screen.width, columns), **PLAIN).print(table)


def loaded(path: Path, rounds: int = 0) -> Any:
    """A description, with another number of rounds if one is given."""
    from archipel.federation import Federation

    return Federation.load(path, **({"rounds": rounds} if rounds else {}))


def site_named(described: Any, name: str, base: Path) -> Any:
    """Where a client's own data are."""
    from archipel.deploy.view import site_of

    people = described.clients.people()
    if people is None:
        raise BadInput("--name", name, "a description with a table [clients], whose data are their own")
    if name not in people.names:
        raise BadInput("--name", name, did_you_mean(name, people.names))
    return site_of(described, name, base)


def show(columns: Mapping[str, Mapping[str, str]]) -> None:
    """Named numbers, one column a federation."""
    grid = Table("", *columns)
    for key in dict.fromkeys(key for column in columns.values() for key in column):
        grid.add_row(key, *(column.get(key, "") for column in columns.values()))
    screen.print(grid)


def finish(report: Path, interrupted: bool, more: str = "") -> None:
    """Say where the report is; a run that was stopped says so in its status too."""
    say(f"Report: {report}")
    if interrupted:
        errors.print(f"Stopped. What was done so far is written{more}.")
        raise typer.Exit(130)


def end(sentence: str, status: int = 1) -> NoReturn:
    """End with one sentence."""
    errors.print(sentence, style="bold", highlight=False, soft_wrap=True)
    sys.exit(status)
