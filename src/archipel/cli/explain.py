"""The commands to begin with: new, list and explain."""

from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from archipel.cli.screen import say, screen
from archipel.errors import BadInput, did_you_mean


def new(
    folder: Annotated[Path, typer.Argument(help="A folder that is made.")],
    example: Annotated[str, typer.Option(help="One of `archipel list examples` instead, such as zcdp-nfl.")] = "",
) -> None:
    """Make a folder with data, a description and a script, all of which run.

    Example: archipel new buoys
    """
    from archipel.scaffold import copy_example, scaffold

    made = copy_example(example, folder) if example else scaffold(folder)
    many = f"{len(made)} files" if len(made) > 1 else "1 file"
    screen.print(f"{many} in {folder}. Try: cd {folder}; archipel check federation.toml", highlight=False)


def list_(
    what: Annotated[
        str, typer.Argument(help="algorithms, parts, combinations, problems, topologies, figures, datasets or examples")
    ] = "",
) -> None:
    """Name what there is.

    Example: archipel list algorithms
    """
    makers: dict[str, Callable[[], Iterator[tuple[Any, ...]]]] = {
        "algorithms": lambda: listed_kinds("algorithm"),
        "parts": listed_parts,
        "combinations": listed_combinations,
        "problems": lambda: listed_kinds("problem"),
        "topologies": lambda: listed_kinds("topology"),
        "figures": listed_figures,
        "datasets": listed_datasets,
        "examples": listed_examples,
    }
    if not what:
        say(*(f"archipel list {name}" for name in makers))
        return
    if what not in makers:
        raise BadInput("what", what, did_you_mean(what, makers))
    rows = Table.grid(padding=(0, 2))
    for row in makers[what]():
        rows.add_row(*row)
    screen.print(rows)


def explain_(
    word: Annotated[str, typer.Argument(help="A kind, a section or a key: pao-fed, privacy, privacy.clip, step.")] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the whole reference as a page.")] = False,
) -> None:
    """Say what a kind, a section or a key of a description means: type, default, range and meaning.

    Example: archipel explain privacy.clip
    """
    from archipel import reference

    if markdown:
        print(reference.markdown(), end="")
        return
    answer = reference.explain(word)
    if answer.text:
        screen.print(answer.title, style="bold", highlight=False)
        screen.print(answer.text, highlight=False)
    rows = Table.grid(padding=(0, 2))
    for entry in answer.keys:
        symbol = f" ({entry.symbol} in the paper)" if entry.symbol else ""
        lines = [f"{entry.meaning}{symbol}", f"{entry.range or entry.type}; default {entry.default}"]
        lines += [f"of {entry.kind}"] if entry.kind and not answer.text else []
        rows.add_row(Text(entry.key, "cyan"), "\n".join(line for line in lines if line))
    for kind, text in answer.kinds.items():
        rows.add_row(Text(kind, "cyan"), text)
    screen.print(rows)


def listed_kinds(section: str) -> Iterator[tuple[str, str]]:
    from archipel.reference import everything

    yield from everything()[1][section].items()


def listed_parts() -> Iterator[tuple[str, str, str]]:
    from archipel.reference import first_line
    from archipel.registry import FAMILIES

    return ((family, name, first_line(cls)) for family, names in FAMILIES.items() for name, cls in names.items())


def listed_combinations() -> Iterator[tuple[Any]]:
    """What combines; for what does not, a number, and below what it stands for."""
    from archipel.combinations import filled, matrix, tables, with_parts

    cells = list(matrix())
    share = filled(cells)
    for family, rows in tables([*cells, *with_parts()]).items():
        columns = list(dict.fromkeys(column for row in rows.values() for column in row))
        wide = max(map(len, rows)) + sum(len(column) + 3 for column in columns) + 4  # with the lines between them
        letters = dict(zip(columns, ascii_lowercase if wide > screen.width else columns))
        yes, reasons = Text("yes" if wide <= screen.width else "✓", "green"), dict[str, int]()
        grid = Table("", *letters.values(), title=f"kind x {family}", box=None, padding=(0, 1, 0, 0))
        for kind, row in rows.items():
            marks: list[Any] = []
            for column in columns:
                why = row[column].why_not
                marks.append(str(reasons.setdefault(why, len(reasons) + 1)) if why else yes)
            grid.add_row(kind, *marks)
        yield (grid,)
        yield from ((f"{letter}  {column}",) for column, letter in letters.items() if letter != column)
        yield from ((f"{number}  {why}",) for why, number in reasons.items())
    yield (f"{share:.0%} of the kinds and topologies combine.",)


def listed_figures() -> Iterator[tuple[str, str]]:
    from archipel.figures.gallery import GALLERY, describe

    return ((name, describe(name)) for name in GALLERY)


def listed_datasets() -> Iterator[tuple[str, str, str, str]]:
    from archipel.problems.datasets.catalogue import DATASETS

    here = {True: "here", False: "not here"}
    return ((d.name, here[bool(d.available())], d.description, d.licence) for d in DATASETS.values())


def listed_examples() -> Iterator[tuple[str, str]]:
    from archipel.scaffold import examples

    return ((name, opening(path.read_text(encoding="utf-8"))) for name, path in examples())


def opening(text: str) -> str:
    """The sentence that a file begins with, in as many lines of comment as it takes.

    >>> opening("# Peers learn:\\n# a mean. Nobody leads.\\nrounds = 3\\n# late")
    'Peers learn: a mean.'
    """
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), text.split("\n")))
    return comment.partition(". ")[0].rstrip(".") + "."


COMMANDS: dict[str, Any] = {"new": new, "list": list_, "explain": explain_}
