"""The commands for what was learned: predict and export."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from archipel.cli.screen import say

Model = Annotated[Path, typer.Argument(help="A model.npz, as run, up and node write it.")]
Client = Annotated[str | None, typer.Option("--client", help="Use this client's own model.")]
Module = Annotated[
    str | None, typer.Option("--module", help='Your own network, as in "my_model.py:Net"; a model.npz never runs code.')
]


def predict(
    model: Model,
    data: Annotated[
        Path,
        typer.Argument(help="A csv with the model's columns, others may be there; or an npz with x, and y if known."),
    ],
    client: Client = None,
    out: Annotated[Path, typer.Option("--out", help="The csv to write: the rows, and the prediction.")] = Path(
        "predictions.csv"
    ),
    module: Module = None,
) -> None:
    """Predict, in the units of the data: each row of a csv with the prediction beside it; of an npz, predictions alone.

    A row that lacks a value has none. Where the target is among the columns, the error is said too, of the rows that
    have one.

    Example: archipel predict results/model.npz new.csv --out predicted.csv
    """
    import numpy as np

    from archipel.bundle import load
    from archipel.results import ready

    loaded = load(model)
    keep(out, model, data)
    frame = loaded.framed()
    if data.suffix == ".npz":
        given, rows, truth = read_arrays(frame, data)
    else:
        given = read(data)
        rows, truth = inputs_of(frame, given), truth_of(frame, given)
    rows, said = with_means(frame, rows)
    whole = ~np.isnan(rows).reshape(len(rows), -1).any(1)
    beside = predicted(loaded, rows[whole], client, own_module(module, frame))
    ready(out.parent, "out")
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=given.separator)
        writer.writerow([*given.header, *beside])
        found, nothing = zip(*map(given.like, beside.values())), [""] * len(beside)
        writer.writerows([*cells, *(next(found) if there else nothing)] for cells, there in zip(given.lines, whole))
    said += [f"{some_rows(~whole)} a value: no prediction there."] if not whole.all() else []
    said += scored(frame, next(iter(beside.values())), truth, whole)
    say(*said, f"{len(given.lines):,} rows: {out}")


def export(
    model: Model,
    out: Annotated[Path, typer.Argument(help="The file to write, such as model.onnx.")],
    client: Client = None,
    module: Module = None,
) -> None:
    """Write a model as ONNX: rows in the user's units in, predictions in the user's units out.

    Example: archipel export results/model.npz model.onnx
    """
    from archipel.bundle import load
    from archipel.results import ready
    from archipel.to_onnx import save

    loaded = load(model)
    keep(out, model)
    ready(out.parent, "out")
    save(loaded, out, client, own_module(module, loaded.framed()))
    say(f"Written to {out}")


def keep(out: Path, *read: Path) -> None:
    """Refuse to write over what is read, or a folder."""
    from archipel.errors import BadInput

    if out.is_dir():
        raise BadInput("out", str(out), "a file to write, not a folder")
    for path in read:
        if out.exists() and path.exists() and out.samefile(path):
            raise BadInput("out", str(out), f"another file than {path}, which would be lost")


class Table(NamedTuple):
    """A csv as it was written."""

    path: Path
    header: list[str]
    lines: list[list[str]]
    where: list[str]  # the place of each line in the file
    separator: str  # between cells; where it is no comma, commas may be decimal points

    def column(self, name: str, words: bool = False) -> list[str]:
        cells = [line[self.header.index(name)] for line in self.lines]
        return [cell.replace(",", ".") for cell in cells] if self.separator != "," and not words else cells

    def like(self, found: Sequence[Any]) -> Sequence[Any]:
        """Numbers as the file writes them: with decimal commas, where it has them."""
        comma, point = (re.compile(rf"-?\d+{mark}\d+") for mark in (",", r"\."))
        cells = [cell for line in self.lines for cell in line]
        if self.separator == "," or not any(map(comma.fullmatch, cells)) or any(map(point.fullmatch, cells)):
            return found
        return [str(one).replace(".", ",") if isinstance(one, float) else one for one in found]


def read(path: Path) -> Table:
    """A csv with a header and rows."""
    from archipel.errors import BadInput
    from archipel.problems.files import csv_lines

    if not path.is_file():
        raise BadInput("data", str(path), "a csv file that exists")
    lines, separator = csv_lines(path, key="data")
    if len(lines) < 2:
        raise BadInput("data", path.name, "a header and at least one row")
    header = lines[0][1]
    for place, name in enumerate(header):
        if name in header[:place]:
            raise BadInput("data", f"{path.name}, column {place + 1}: {name!r}", "a name of its own for each column")
    for number, cells in lines:
        if len(cells) != len(header):
            raise BadInput("data", f"{path.name}, line {number}", f"{len(header)} cells, as the header has")
    where = [f"line {number}" for number, _ in lines[1:]]
    return Table(path, header, [cells for _, cells in lines[1:]], where, separator)


def read_arrays(frame: Any, path: Path) -> tuple[Table, Any, Any]:
    """Rows without cells to write, their x, and their y as `truth_of` has it."""
    import numpy as np

    from archipel.errors import BadInput
    from archipel.problems.cells import label_of
    from archipel.problems.datasets.npz import arrays_in
    from archipel.problems.frame import NUMBER, numbers

    if not path.is_file():
        raise BadInput("data", str(path), "an npz file that exists")
    arrays = arrays_in(path, "data", ("x",))
    rows = numbers(f"data, {path.name}, x", arrays["x"])
    if not rows.ndim or rows.size != len(rows) * np.prod(frame.inputs):
        raise BadInput("data", f"{path.name}, x of shape {rows.shape}", f"rows of shape {tuple(frame.inputs)}")
    if np.isinf(rows).any():
        raise BadInput("data", f"{path.name}, x with infinite numbers", "finite ones, or NaN where a value is missing")
    rows, truth = rows.reshape(len(rows), *frame.inputs), arrays.get("y")
    if truth is not None and truth.shape != (len(rows),):
        raise BadInput("data", f"{path.name}, y of shape {truth.shape}", f"one for each of the {len(rows)} rows")
    if truth is not None and frame.predicts == NUMBER:
        truth = numbers(f"data, {path.name}, y", truth)
    elif truth is not None:
        truth = np.array([label_of(label) for label in truth.tolist()])
    return Table(path, [], [[] for _ in rows], [], ","), rows, truth


def inputs_of(frame: Any, given: Table) -> Any:
    """Rows as numbers, NaN where a cell is missing; what is neither is refused with its line and column."""
    import numpy as np

    from archipel.errors import BadInput
    from archipel.problems.files import Reading, understood

    if frame.columns:
        frame.check_named(given.header)
    names = frame.asked if frame.columns else [name for name in given.header if name != frame.target]
    if not frame.columns and len(names) != np.prod(frame.inputs):  # cells without names count in their order
        raise BadInput("data", f"{len(names)} columns", f"{np.prod(frame.inputs)} of them, beside the target")
    how = Reading(target="", missing="skip", categories=frame.categories)
    columns = {name: given.column(name, name in frame.categories) for name in names}
    made, _ = understood(given.path, columns, given.where, how, key="data")
    return np.stack([made[name] for name in frame.columns or names], 1).reshape(-1, *frame.inputs)


def truth_of(frame: Any, given: Table) -> Any:
    """The target as numbers or labels, NaN or "" where it is missing; None where the file has no such column."""
    from archipel.problems.files import Reading, understood
    from archipel.problems.frame import NUMBER

    if frame.target not in given.header:
        return None
    how = Reading(target=frame.target, missing="skip", labels=frame.predicts != NUMBER)
    cells = given.column(frame.target, how.labels)
    return understood(given.path, {frame.target: cells}, given.where, how, key="data")[0][frame.target]


def some_rows(which: Any) -> str:
    return f"{which.sum():,} {'row lacks' if which.sum() == 1 else 'rows lack'}"


def with_means(frame: Any, rows: Any) -> tuple[Any, list[str]]:
    """Rows whose missing cells are filled as far as the model knows with what, and a sentence if any are."""
    import numpy as np

    known = np.isin(frame.columns, frame.filled)
    gone = np.isnan(rows) & known if known.any() else np.zeros(rows.shape, bool)
    if not gone.any():
        return rows, []
    which = gone.any(1)
    said = f"{some_rows(which)} a value that is filled with a mean: the center that the model has of the column."
    return np.where(gone, frame.center, rows), [said]


def predicted(loaded: Any, rows: Any, client: str | None, network: Any) -> dict[str, list[Any]]:
    """What is written beside the rows, by column: the prediction, and how likely it is, of labels."""
    from archipel.problems.frame import LABEL

    frame, columns = loaded.framed(), [f"{loaded.framed().target} predicted"]
    columns += [f"probability of {frame.labels[1]}"] if frame.predicts == LABEL else []
    loaded.model(client)
    if not len(rows):
        return {name: [] for name in columns}
    found = [loaded.predict(rows, client, network).tolist()]
    found += [loaded.probabilities(rows, client, network).tolist()] if frame.predicts == LABEL else []
    return dict(zip(columns, found))


def own_module(given: str | None, frame: Any) -> Any:
    """The network that a user names."""
    if given is None:
        return None
    from archipel.problems.models.networks import from_file

    return from_file(given, tuple(frame.inputs), frame.network["answers"] if frame.network else 1)


def scored(frame: Any, found: Any, truth: Any, whole: Any) -> list[str]:
    """Sentences about the error, of the rows that have both a prediction and a target."""
    import numpy as np

    from archipel.problems.frame import NUMBER

    if truth is None:
        return []
    there = ~np.isnan(truth) if frame.predicts == NUMBER else truth != ""
    if not (there & whole).any():
        return []
    told = [score(frame, np.array(found)[there[whole]], truth[there & whole])]
    if not there.all():
        told.append(f"{some_rows(~there)} a target: the error is that of the others.")
    return told


def score(frame: Any, found: Any, truth: Any) -> str:
    """How far predictions are from what is known, in the user's units."""
    import numpy as np

    from archipel.errors import spoken
    from archipel.problems.cells import label_of
    from archipel.problems.frame import LABEL, NUMBER

    if frame.predicts != NUMBER:
        told = np.array([label_of(one) for one in found])
        one = label_of(frame.labels[1])  # the other may be told as all that is not this one
        right = (truth == one) == (told == one) if frame.predicts == LABEL else truth == told
        return f"accuracy {100 * np.mean(right):.4g} %"
    error, spread = float(np.mean((truth - found) ** 2)), float(np.var(truth))
    explained = f", r2 {1 - error / spread:.4f}" if spread > 0 else ""
    return f"rmse {spoken(error**0.5)} {frame.unit}".rstrip() + explained


COMMANDS: dict[str, Any] = {"predict": predict, "export": export}
