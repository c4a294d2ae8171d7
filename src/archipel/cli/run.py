"""The commands of a simulation: run, check, compare, reproduce and bench."""

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from archipel.cli.screen import (
    Description,
    Json,
    Name,
    Out,
    Page,
    Rounds,
    errors,
    finish,
    loaded,
    say,
    screen,
    show,
    site_named,
    warn,
)
from archipel.errors import BadInput, did_you_mean, spoken
from archipel.progress import progress_bar

LISTED = 50  # clients that a table on the screen has

Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Repeat with this many seeds, side by side.")]
On = Annotated[str, typer.Option("--on", help="A Dask cluster: dask (on this machine), or tcp://scheduler:8786.")]


def run(
    federation: Description,
    out: Out = Path("results"),
    seeds: Seeds = 1,
    rounds: Rounds = 0,
    record: Annotated[Path | None, typer.Option(help="Also save the schedule of who was there and how late.")] = None,
    page: Page = "",
    checkpoint: Annotated[
        float | None, typer.Option(min=0, help="Keep the whole state in --out every so many seconds, at measurements.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the state in --out, where there is one: the same bits.")
    ] = False,
    start: Annotated[
        Path | None, typer.Option("--from", help="Go on from this model.npz: with its state beside it, or its weights.")
    ] = None,
    log: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard:DIR, mlflow:URI, trackio:PROJECT, wandb:PROJECT.")
    ] = None,
    on: On = "",
) -> None:
    """Simulate a federation.

    Writes metrics.csv, model.npz (see archipel predict), models.npz, ledger.json, federation.toml (with every default),
    report.html, and checkpoint.npz, from which more rounds go on: archipel run FILE --rounds MORE --from model.npz

    Example: archipel run examples/flagship/pao-fed-c2.toml --seeds 4 --out results
    """
    from archipel import trackers
    from archipel.report import summary
    from archipel.results import ready

    described = loaded(federation, rounds)
    for where in log or ():
        trackers.check(where)
    if record:
        if record.is_dir():
            raise BadInput("--record", str(record), "a file, such as schedule.npz")
        ready(record.parent, "--record")
    ready(out, description=federation)
    keep = kept(described, out, checkpoint, resume, start)
    if on and page:
        raise BadInput("--page", page, "none: what runs on a cluster has no live page")
    result = played(described, seeds, federation.stem, page, keep, on)
    result.name = federation.stem
    result.save(out)
    for where in log or ():
        trackers.log(result, where)
    if record:
        save_schedule(described, record)
    show({federation.stem: summary(result)})
    if grown := result.grown():
        warn(grown)
    say(f"Model: {out / 'model.npz'}")
    finish(out / "report.html", result.interrupted)


def check(federation: Description, rounds: Rounds = 0, name: Name = "") -> None:
    """Look at a description and its data without running anything: everything that is wrong or odd, at once.

    Example: archipel check examples/flagship/pao-fed-c2.toml
    """
    from archipel.clients import renamed
    from archipel.report.data import in_short
    from archipel.size import announcement, check_size

    described = loaded(federation, rounds)
    check_size(described)
    setup = described.setup(site=site_named(described, name, federation.parent) if name else None)
    theory = described.check(setup)
    described.instance(setup=setup)  # much is refused only where the parts are put together
    task = setup.task
    if task.listed:
        headings = ("\n".join(name.rsplit(" ", 1)) for name in task.listed[0])  # eighty characters are enough for all
        grid = Table(*(Column(name, overflow="fold") for name in headings))
        for row in task.listed[:LISTED]:
            grid.add_row(*(spoken(cell) if isinstance(cell, float) else str(cell) for cell in row.values()))
        screen.print(grid)
        if len(task.listed) > LISTED:
            screen.print(f"... and {len(task.listed) - LISTED} clients more.")
    held = in_short(task.holdings) if task.holdings is not None and len(task.holdings.names) > 1 else ""
    said = (held, *task.notes, renamed(setup.graph.names or task.names), announcement(described))
    say(*filter(None, said))
    bounds = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in theory.items())
    screen.print(
        f"{counted(task.clients, 'client')}, {counted(task.size, 'parameter')}: nothing is in the way.", highlight=False
    )
    if bounds:
        say(f"Theory: {bounds}.")


def counted(number: int, what: str) -> str:
    """So many of something."""
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def compare(
    federations: Annotated[list[Path], typer.Argument(help="Two or more federations, described in TOML.")],
    out: Out = Path("results"),
    seeds: Seeds = 1,
    rounds: Rounds = 0,
) -> None:
    """Simulate several federations on the same schedule and show them side by side.

    Example: archipel compare examples/flagship/*.toml --out results/demo
    """
    from archipel.report.page import summary, write_comparison
    from archipel.results import ready

    described = {name: loaded(path, rounds) for name, path in names_of(federations).items()}
    results: dict[str, Any] = {}
    for folder in (out, *(out / name for name in described)):
        for path in federations:
            ready(folder, description=path)
    for name, one in described.items():
        results[name] = played(one, seeds, name)
        results[name].name = name
        results[name].save(out / name)
        if results[name].interrupted:
            break
    write_comparison(results, out / "report.html")
    show({name: summary(result) for name, result in results.items()})
    finish(out / "report.html", any(result.interrupted for result in results.values()))


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
        with progress_bar(figure, errors) as update:
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
    say(f"Written to {folder}")


def bench(
    as_json: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the million clients.")] = False,
    only: Annotated[str, typer.Option("--only", help="One row: star, w1, gossip, servers, digraph, deep, ...")] = "",
) -> None:
    """Measure this machine: client updates a second, against vectorised NumPy and the bare kernel.

    Example: archipel bench --json > bench.json
    """
    from archipel.bench import measure, table

    with progress_bar("bench", errors) as update:
        figures = measure(quick, update, only)
    if as_json:
        print(json.dumps(figures, indent=1))
    else:
        screen.print(table(figures))


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


def kept(described: Any, out: Path, seconds: float | None, resume: bool, start: Path | None) -> Any:
    """Where a run keeps its state, and what it goes on from, which is said."""
    import math

    from archipel.bundle import costs
    from archipel.simulate.checkpoint import Keep

    start = start / "model.npz" if start is not None and start.is_dir() else start
    keep = Keep(out, math.inf if seconds is None else seconds, resume, start)
    found = keep.found(described, described.seed)
    if found is not None:
        warn(f"Going on after {found['told']['round']:,} rounds.")
    elif start is not None:
        told = keep.model(described, described.seed).told
        warn(f"Starting from the weights of {start} ({told['what']}).")
        if told["paid"] is not None:
            paid = ", and before that ".join(costs(told["paid"]))
            warn(f"They have cost {paid} already, of whom paid most: ledger.json has it as `before`.")
    return keep


def played(described: Any, seeds: int, name: str, at: str = "", keep: Any = None, on: str = "") -> Any:
    """Run a federation with a progress bar; what is to be known before is said before."""
    from archipel.registry import kind_of
    from archipel.size import announcement, check_size

    check_size(described)
    if long := announcement(described, seeds):
        warn(long)
    if kind_of(described.problem) == "files":
        warn(*described.setup().task.notes)
    if not at:
        with progress_bar(name, errors) as update, warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: errors.print(str(message))
            if not on:
                return described.run(seeds, update, keep=keep)
            from archipel.cluster import run_on

            return run_on(on, described, seeds, update, keep)
    from archipel.report.live import Live, Simulated

    view = Simulated(described, name)
    live = Live(view, at)
    warn(f"Live: {live.address}")
    try:
        with progress_bar(name, errors) as update:
            return described.run(seeds, update, watch=view.watch, keep=keep)
    finally:
        live.close()


def save_schedule(described: Any, path: Path) -> None:
    """Who was there and how late, for `environment.replay`."""
    import numpy as np

    from archipel.environment import schedule

    conditions = described.instance().conditions
    np.savez_compressed(path, schedule=schedule(conditions, described.rounds, described.seed))


COMMANDS: dict[str, Any] = {
    "run": run, "check": check, "compare": compare, "reproduce": reproduce, "bench": bench
}  # fmt: skip
