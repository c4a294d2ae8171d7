"""All figures of all papers. A paper's module is loaded when one of its figures is wanted."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from archipel.errors import BadInput, did_you_mean
from archipel.figures import Draw, Figure, Progress

PAPERS = {
    "dissertation": "archipel.figures.dissertation",
    "pao-fed": "archipel.figures.pao_fed",
    "npfl": "archipel.figures.npfl",
    "pgfl": "archipel.figures.pgfl",
    "pldp": "archipel.figures.pldp",
    "zcdp-nfl": "archipel.figures.zcdp_nfl",
}

FEW = 20  # points that are marked
DASHES = ("--", "-.", ":")


class Gallery(Mapping[str, Draw]):
    """`paper/figure` to the function that draws it; other names (thesis/4.2a) lead to the same function."""

    def __init__(self, papers: Mapping[str, str]):
        self.papers = papers

    def __getitem__(self, name: str) -> Draw:
        paper, _, figure = name.partition("/")
        if paper in self.papers:
            return import_module(self.papers[paper]).FIGURES[figure]
        return self[self.aliases()[name]]

    def __iter__(self) -> Iterator[str]:
        for paper, home in self.papers.items():
            yield from (f"{paper}/{figure}" for figure in import_module(home).FIGURES)
        yield from self.aliases()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def aliases(self) -> dict[str, str]:
        """Other names of figures."""
        every = ((paper, getattr(import_module(home), "ALIASES", {})) for paper, home in self.papers.items())
        return {other: f"{paper}/{own}" for paper, aliases in every for other, own in aliases.items()}


GALLERY = Gallery(PAPERS)


def describe(name: str) -> str:
    """What a figure shows, in a line."""
    return (GALLERY[name].__doc__ or "").strip().split("\n")[0]


def reproduce(name: str, quick: bool = False, progress: Progress | None = None) -> Figure:
    """Measure a figure anew, under the name that was asked for."""
    if name not in GALLERY:
        raise BadInput("figure", name, did_you_mean(name, GALLERY))
    return replace(GALLERY[name](quick, progress), name=name)


def save(figure: Figure, folder: str | Path) -> Path:
    """Write the picture, its numbers under the same name, and metrics.json: the numbers of the latest figure."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = figure.name.replace("/", "-")
    draw(figure, folder / f"{name}.png")
    text = json.dumps(figure.metrics(), indent=1, allow_nan=False)
    for file in (f"{name}.json", "metrics.json"):
        (folder / file).write_text(text + "\n", encoding="utf-8")
    return folder


def draw(figure: Figure, path: str | Path) -> Path:
    """The picture: what the paper shows in solid lines, what we add in dashed ones."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    picture, axes = plt.subplots(figsize=(8.0, 5.0))
    colours: dict[str, str] = {}
    for i, (name, (x, y)) in enumerate(figure.series.items()):
        like = next((known for known in colours if name.startswith(known)), "")  # a variant of a series before it
        colours[name] = colours[like] if like else f"C{i % 10}"
        twins = sum(colours[other] == colours[name] for other in figure.dashed if other in colours)
        style = DASHES[(twins - 1) % len(DASHES)] if name in figure.dashed else "-"
        axes.plot(x, y, style, marker="o" if len(x) <= FEW else None, color=colours[name], label=name, lw=1.5)
    axes.set_xscale("log" if figure.logx else "linear")
    axes.set_yscale("log" if figure.logy else "linear")
    axes.set(xlabel=figure.xlabel, ylabel=figure.ylabel, title=f"{figure.name}: {figure.title}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    picture.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(picture)
    return Path(path)
