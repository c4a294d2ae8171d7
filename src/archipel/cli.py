"""The command line."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from archipel.cli_deploy import register as register_deployment
from archipel.cli_privacy import register
from archipel.errors import BadInput, Diverged, Missing, did_you_mean

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
register(app)
plain: dict[str, Any] = {"markup": False, "emoji": False}  # names of files may look like either
screen, errors = Console(**plain), Console(stderr=True, **plain)

Description = Annotated[Path, typer.Argument(help="A federation, described in TOML.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for the results; it is made if it does not exist.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Repeat with this many seeds, side by side.")]
Rounds = Annotated[int, typer.Option("--rounds", min=0, help="Play this many rounds instead of the description's.")]


def say_version(wanted: bool) -> None:
    if wanted:
        from archipel import __version__

        print(f"archipel {__version__}")
        raise typer.Exit


@app.callback()
def archipel(
    version: Annotated[bool, typer.Option("--version", callback=say_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """Federated learning where the data lives. Start with: archipel run examples/flagship/pao-fed-c2.toml"""


@app.command()
def run(
    federation: Description,
    out: Out = Path("results"),
    seeds: Seeds = 1,
    rounds: Rounds = 0,
    record: Annotated[Path | None, typer.Option(help="Also save the schedule of who was there and how late.")] = None,
) -> None:
    """Simulate a federation.

    Writes metrics.csv, models.npz, ledger.json, federation.toml (with every default) and report.html.

    Example: archipel run examples/flagship/pao-fed-c2.toml --seeds 4 --out results
    """
    from archipel.federation import Federation
    from archipel.results import ready

    described = Federation.load(federation, **({"rounds": rounds} if rounds else {}))
    if record:
        if record.is_dir():
            raise BadInput("--record", str(record), "a file, such as schedule.npz")
        ready(record.parent, "--record")
    ready(out)
    result = played(described, seeds, federation.stem)
    result.name = federation.stem
    result.save(out)
    if record:
        save_schedule(described, record)
    show({federation.stem: result})
    finish(out / "report.html", result.interrupted)


@app.command()
def compare(
    federations: Annotated[list[Path], typer.Argument(help="Two or more federations, described in TOML.")],
    out: Out = Path("results"),
    seeds: Seeds = 1,
    rounds: Rounds = 0,
) -> None:
    """Simulate several federations on the same schedule and show them side by side.

    Example: archipel compare examples/flagship/*.toml --out results/demo
    """
    from archipel.federation import Federation
    from archipel.report import write_comparison
    from archipel.results import ready

    changes = {"rounds": rounds} if rounds else {}
    described = {name: Federation.load(path, **changes) for name, path in names_of(federations).items()}
    results: dict[str, Any] = {}
    for folder in (out, *(out / name for name in described)):
        ready(folder)
    for name, one in described.items():
        results[name] = played(one, seeds, name)
        results[name].name = name
        results[name].save(out / name)
        if results[name].interrupted:
            break
    write_comparison(results, out / "report.html")
    show(results)
    finish(out / "report.html", any(result.interrupted for result in results.values()))


@app.command()
def reproduce(
    figure: Annotated[str, typer.Argument(help="A figure, such as pao-fed/2a; `archipel list figures` names them.")],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds and rounds; seconds instead of minutes.")] = False,
    out: Out = Path("figures"),
) -> None:
    """Draw a figure of a paper again, and check the claims that the paper makes about it.

    Writes the picture and its numbers, PAPER-FIGURE.png and PAPER-FIGURE.json, and metrics.json: the latest figure's.

    Example: archipel reproduce pao-fed/3a --quick --out figures
    """
    from archipel.figures.gallery import GALLERY, reproduce, save
    from archipel.results import ready

    if figure not in GALLERY:
        raise BadInput("figure", figure, did_you_mean(figure, GALLERY))
    ready(out)
    try:
        with progress_bar(figure) as update:
            drawn = reproduce(figure, quick, update)
    except KeyboardInterrupt:
        errors.print("Stopped. A figure needs all of its runs: nothing was written.")
        raise typer.Exit(130) from None
    folder = save(drawn, out)
    claims = Table("claim", "holds", "measured", title=f"{figure}: {drawn.title}")
    for claim in drawn.claims:
        claims.add_row(claim.claim, Text("yes", "green") if claim.holds else Text("no", "red"), claim.measured)
    screen.print(claims)
    if drawn.note:
        screen.print(drawn.note, highlight=False)
    screen.print(f"Written to {folder}", highlight=False, soft_wrap=True)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="algorithms, problems, topologies, figures or datasets")],
) -> None:
    """Name what there is.

    Example: archipel list algorithms
    """
    makers = {
        "algorithms": listed_algorithms,
        "problems": listed_problems,
        "topologies": listed_topologies,
        "figures": listed_figures,
        "datasets": listed_datasets,
    }
    if what not in makers:
        raise BadInput("what", what, did_you_mean(what, makers))
    rows = Table.grid(padding=(0, 2))
    for row in makers[what]():
        rows.add_row(*row)
    screen.print(rows)


@app.command("explain")
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


@app.command()
def bench(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the million clients.")] = False,
) -> None:
    """Measure this machine: client updates a second, against vectorised NumPy and the bare kernel.

    Example: archipel bench --json > bench.json
    """
    from archipel.bench import measure, table

    with progress_bar("bench") as update:
        figures = measure(quick, update)
    if as_json:
        print(json.dumps(figures, indent=1))
    else:
        screen.print(table(figures))


def listed_algorithms() -> Iterator[tuple[str, str]]:
    from archipel.registry import ALGORITHMS

    return ((name, first_line(cls)) for name, cls in ALGORITHMS.items())


def listed_problems() -> Iterator[tuple[str, str]]:
    from archipel.registry import PROBLEMS

    return ((name, first_line(cls)) for name, cls in PROBLEMS.items())


def listed_topologies() -> Iterator[tuple[str, str]]:
    from archipel.topology import TOPOLOGIES

    return ((name, first_line(cls)) for name, cls in TOPOLOGIES.items())


def listed_figures() -> Iterator[tuple[str, str]]:
    from archipel.figures.gallery import GALLERY, describe

    return ((name, describe(name)) for name in GALLERY)


def listed_datasets() -> Iterator[tuple[str, str, str, str]]:
    from archipel.problems.datasets.catalogue import DATASETS

    here = {True: "here", False: "not here"}
    return ((d.name, here[bool(d.available())], d.description, d.licence) for d in DATASETS.values())


def first_line(thing: Any) -> str:
    """The first sentence of what something says about itself."""
    return (thing.__doc__ or "").strip().split("\n")[0]


def names_of(paths: list[Path]) -> dict[str, Path]:
    """A name for each file: its own; where others are called the same, with its folder; at last, with a number."""
    stems = [path.stem for path in paths]
    names: dict[str, Path] = {}
    for path in paths:
        wanted = path.stem if stems.count(path.stem) == 1 else f"{path.resolve().parent.name}-{path.stem}"
        name, number = wanted, 1
        while name in names:
            number += 1
            name = f"{wanted}-{number}"
        names[name] = path
    return names


def played(described: Any, seeds: int, name: str) -> Any:
    """Run a federation with a progress bar."""
    with progress_bar(name) as update:
        return described.run(seeds, update)


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal; silence elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    texts = [TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[what]}")]
    columns = (texts[0], BarColumn(), texts[1], TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(name, total=None, what="")

        def update(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, what=what or f"{done} of {total}")

        yield update


def show(results: dict[str, Any]) -> None:
    """The numbers a reader looks for first, one column a federation."""
    from archipel.report import summary

    rows = {name: summary(result) for name, result in results.items()}
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    grid = Table("", *rows)
    for key in keys:
        grid.add_row(key, *(row.get(key, "") for row in rows.values()))
    screen.print(grid)


def finish(report: Path, interrupted: bool) -> None:
    """Say where the report is; a run that was stopped says so in its status too."""
    screen.print(f"Report: {report}", highlight=False, soft_wrap=True)
    if interrupted:
        errors.print("Stopped. What was done so far is written.")
        raise typer.Exit(130)


def save_schedule(described: Any, path: Path) -> None:
    """Who was there and how late, for `environment.replay`."""
    import numpy as np

    from archipel.environment import schedule

    conditions = described.instance().conditions
    np.savez_compressed(path, schedule=schedule(conditions, described.rounds, described.seed))


register_deployment(app)


def main() -> None:
    """Errors that people cause are sentences; they end with status 2."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # seeds run side by side: more threads would fight for the cores
    try:
        app()
    except (BadInput, Missing) as problem:
        end(str(problem), 2)
    except Diverged as problem:
        end(str(problem), 1)
    except MemoryError as problem:
        said = f" ({problem})" if str(problem) else ""
        end(f"This does not fit in memory{said}: fewer clients, features or samples would.", 2)
    except OSError as problem:  # a file or a folder, most often
        where = f"{problem.filename}: " if problem.filename else ""
        end(f"{where}{problem.strerror or problem}.", 2)
    except KeyboardInterrupt:
        errors.print("Stopped.")
        sys.exit(130)


def end(sentence: str, status: int) -> NoReturn:
    """End with one sentence."""
    errors.print(sentence, style="bold", highlight=False, soft_wrap=True)
    sys.exit(status)
