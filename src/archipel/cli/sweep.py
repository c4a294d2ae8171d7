"""The command that tries many values of some keys."""

import csv
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from archipel.cli.screen import Description, end, say, screen

BEST = 10  # trials that the screen shows


def sweep(
    federation: Description,
    axes: Annotated[
        list[str], typer.Argument(help="Keys and what to try: algorithm.step=0.1:1.0:log, privacy.epsilon=1,2,4.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the trials; an unfinished sweep goes on.")] = Path(
        "sweep"
    ),
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Seeds of each trial.")] = 1,
    trials: Annotated[int, typer.Option("--trials", min=0, help="How many; 0: a whole grid, or 50.")] = 0,
    metric: Annotated[str, typer.Option("--metric", help="What is to be good.")] = "mse",
    how: Annotated[str, typer.Option("--how", help="tpe or random, where there are ranges.")] = "tpe",
    prune: Annotated[bool, typer.Option("--prune", help="Stop trials that look worse than most did by then.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="Trials at once; 0: one a core.")] = 0,
    on: Annotated[str, typer.Option("--on", help="A Dask cluster: dask (here), or tcp://scheduler:8786.")] = "",
) -> None:
    """Try many values of some keys: a grid, at random, or where it looks best (Optuna's TPE).

    Writes sweep.csv and sweep.html: the best, all trials as lines, and which keys mattered. Killed and started again,
    it goes on where it was.

    Example: archipel sweep federation.toml algorithm.step=0.1,0.2,0.4 --out sweep
    """
    from archipel.errors import BadInput, did_you_mean
    from archipel.report.sweep import in_words, write_sweep
    from archipel.results import ready
    from archipel.sweep import Sweep, axis_of, importance, rows

    if how not in ("tpe", "random"):
        raise BadInput("--how", how, did_you_mean(how, ("tpe", "random")))
    planned = Sweep(federation, tuple(map(axis_of, axes)), out, metric, seeds, trials, how, jobs, prune)
    planned.check()
    ready(out)
    if on:
        from archipel.cluster import connected

        with connected(on) as client:
            found = rows(planned.run_on(client), metric)
    else:
        try:
            found = rows(planned.run(), metric)
        except KeyboardInterrupt:
            end("Stopped. Run it again to go on.", 130)
    if all(row[metric] is None for row in found):  # nothing to choose from: say why
        why = found[0]["why"] if found else "none was tried"
        raise BadInput("sweep", " ".join(axes), f"values with which a run can end ({why})")
    columns = list(dict.fromkeys(name for row in found for name in row))
    with (out / "sweep.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(found)
    mattered = importance(planned.study())
    write_sweep(f"{federation.stem}: a sweep", found, metric, mattered, out / "sweep.html")
    grid = Table(*columns)
    for row in found[:BEST]:
        grid.add_row(*(in_words(row.get(name)) for name in columns))
    screen.print(grid)
    say(f"Written to {out}")


COMMANDS: dict[str, Any] = {"sweep": sweep}
