"""The commands for what was learned: predict and export."""

import csv
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

screen = Console(markup=False, emoji=False)  # names of files may look like either

Model = Annotated[Path, typer.Argument(help="A model.npz, as run, up and node write it.")]
Client = Annotated[str | None, typer.Option("--client", help="Use this client's own model.")]
Module = Annotated[
    str | None, typer.Option("--module", help='Your own network, as in "my_model.py:Net"; a model.npz never runs code.')
]


def predict(
    model: Model,
    data: Annotated[Path, typer.Argument(help="A csv with the model's columns; others may be there.")],
    client: Client = None,
    out: Annotated[Path, typer.Option("--out", help="The csv to write: the rows, and the prediction.")] = Path(
        "predictions.csv"
    ),
    module: Module = None,
) -> None:
    """Predict, in the units of the data: every row of a csv with the prediction beside it.

    Where the target is among the columns, the error is said too.

    Example: archipel predict results/model.npz new.csv --out predicted.csv
    """
    from archipel.bundle import load
    from archipel.problems.frame import LABEL, NUMBER
    from archipel.results import ready

    loaded = load(model)
    frame, (header, lines, comma) = loaded.framed(), read(data)
    columns = {name: [cells[i] for cells in lines] for i, name in enumerate(header)}
    if comma:  # may be the decimal point
        words = (*frame.categories, *([] if frame.predicts == NUMBER else [frame.target]))
        columns |= {n: [cell.replace(",", ".") for cell in cells] for n, cells in columns.items() if n not in words}
    rows = columns if frame.columns else flat(columns, frame)
    network = own_module(module, frame)
    found = loaded.predict(rows, client, network)
    beside = {f"{frame.target} predicted": found.tolist()}
    if frame.predicts == LABEL:
        beside[f"probability of {frame.labels[1]}"] = loaded.probabilities(rows, client, network).tolist()
    ready(out.parent, "out")
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*header, *beside])
        writer.writerows([*cells, *more] for cells, more in zip(lines, zip(*beside.values())))
    if frame.target in columns:
        screen.print(score(frame, found, columns[frame.target]), highlight=False, soft_wrap=True)
    screen.print(f"{len(lines):,} rows: {out}", highlight=False, soft_wrap=True)


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
    ready(out.parent, "out")
    save(loaded, out, client, own_module(module, loaded.framed()))
    screen.print(f"Written to {out}", highlight=False, soft_wrap=True)


def read(path: Path) -> tuple[list[str], list[list[str]], bool]:
    """The header of a csv, its lines, and whether commas stand in cells, not between them."""
    from archipel.errors import BadInput
    from archipel.problems.files import SEPARATORS

    if not path.is_file():
        raise BadInput("data", str(path), "a csv file that exists")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("data", path.name, "text in UTF-8") from None
    separator = max(SEPARATORS, key=text.split("\n", 1)[0].count)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator)
    lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(cell.strip() for cell in row)]
    if len(lines) < 2:
        raise BadInput("data", path.name, "a header and at least one row")
    header = lines[0][1]
    for number, cells in lines:
        if len(cells) != len(header):
            raise BadInput("data", f"{path.name}, line {number}", f"{len(header)} cells, as the header has")
    return header, [cells for _, cells in lines[1:]], separator != ","


def flat(columns: dict[str, Any], frame: Any) -> Any:
    """Cells without names, in their order, as the samples of a model whose inputs have none."""
    import numpy as np

    from archipel.errors import BadInput
    from archipel.problems.frame import numbers

    inputs = [cells for name, cells in columns.items() if name != frame.target]
    if len(inputs) != np.prod(frame.inputs):
        raise BadInput("data", f"{len(inputs)} columns", f"{np.prod(frame.inputs)} of them, beside the target")
    return numbers("data", inputs).T.reshape(-1, *frame.inputs)


def own_module(given: str | None, frame: Any) -> Any:
    """The network that a user names."""
    if given is None:
        return None
    from archipel.problems.models.networks import from_file

    return from_file(given, tuple(frame.inputs), frame.network["answers"] if frame.network else 1)


def score(frame: Any, found: Any, cells: Any) -> str:
    """How far predictions are from what is known, in the user's units."""
    import numpy as np

    from archipel.errors import spoken
    from archipel.problems.cells import label_of
    from archipel.problems.frame import NUMBER, numbers

    if frame.predicts != NUMBER:
        right = np.array([label_of(cell) for cell in cells]) == [label_of(one) for one in found]
        return f"accuracy {100 * np.mean(right):.4g} %"
    truth = numbers(frame.target, cells)
    error, spread = float(np.mean((truth - found) ** 2)), float(np.var(truth))
    explained = f", r2 {1 - error / spread:.4f}" if spread > 0 else ""
    return f"rmse {spoken(error**0.5)} {frame.unit}".rstrip() + explained


COMMANDS: dict[str, Any] = {"predict": predict, "export": export}
