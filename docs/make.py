"""The pages of the documentation in one folder, with those that are generated: python docs/make.py FOLDER.

`make docs` then builds the site with MkDocs; `zensical build` reads the same mkdocs.yml.
"""

import json
import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PAPERS = {
    "pao-fed": "PAO-Fed: asynchronous online learning that shares little",
    "zcdp-nfl": "zCDP-NFL: private, without a server",
    "pgfl": "PGFL: personal models on a graph of servers",
    "npfl": "NPFL-RL: how much to borrow, learned",
    "pldp": "PLDP-FL: each client its own privacy",
    "dissertation": "Online mirror descent and what came before",
}
KINDS = {"stream": "samples as they come", "stored": "data that is there", "deep": "networks"}


def notebook(path: Path) -> str:
    """A notebook as a page: its words, and its code as blocks."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"]).strip()
        language = "sh" if text.startswith("!") else "python"
        parts.append(
            text if cell["cell_type"] == "markdown" else f"```{language}\n{text.replace('!', '', text[:1] == '!')}\n```"
        )
    source = f"*This page is a notebook: [{path.name}](notebooks/{path.name}).*"
    return "\n\n".join([*parts, source]) + "\n"


def choosing(kinds=()) -> str:
    """Which algorithm for what: read off the registry, and off what combines."""
    from archipel.combinations import GRAPHS, PROTECTED, cell
    from archipel.reference import first_line
    from archipel.registry import ALGORITHMS

    lines = [(DOCS / "choosing.md").read_text(encoding="utf-8")]
    tables: dict[str, list[str]] = {}
    for kind in kinds or ALGORITHMS:
        cls, found = ALGORITHMS[kind], {topology: cell(kind, topology) for topology in GRAPHS}
        there = {topology: one.federation for topology, one in found.items() if one.federation is not None}
        if there:
            private = [topology for topology, one in there.items() if counted(one, PROTECTED)]
            privacy = "yes" if len(private) == len(there) else ", ".join(private) or "no"
            if not private and all(one.instance().plan.accountant for one in there.values()):
                privacy = "by keys of its own"
            row = f"| `{kind}` | {first_line(cls)} | {', '.join(there)} | {privacy} |"
            tables.setdefault(next(iter(there.values())).algorithm.data_kind, []).append(row)
    for data_kind, title in KINDS.items():
        if data_kind in tables:
            lines += [f"## For {title}", "", "| kind | what it is | runs on | private |", "|---|---|---|---|"]
            lines += [*tables[data_kind], ""]
    return "\n".join(lines)


def counted(federation, tables) -> bool:
    """Whether what it pays can be counted, with one of some [privacy] tables."""
    from archipel.errors import BadInput, Missing

    for privacy in tables:
        if privacy is None:
            continue
        try:
            if federation.with_(privacy=privacy).instance().plan.accountant is not None:
                return True
        except (BadInput, Missing):
            continue
    return False


def gallery(figures: dict, folder: Path, drawn: bool = True) -> str:
    """All figures with their verdicts; drawn from what was measured."""
    claims = [claim for figure in figures.values() for claim in figure["claims"]]
    held = sum(claim["holds"] for claim in claims)
    lines = ["# Figures of the papers, drawn again", ""]
    lines += [
        f"{len(figures)} figures and {len(claims)} claims about them: {held} hold here. Each by",
        "",
    ]
    lines += [
        "    archipel reproduce NAME --quick",
        "",
        "with fewer seeds and rounds; without it, the paper's own, and a claim may then hold. Dashed: ours.",
        "",
    ]
    for paper, title in PAPERS.items():
        lines += [f"## {title}", ""]
        for name, figure in sorted(
            figures.items(), key=lambda item: [int(n) if n.isdigit() else n for n in re.split(r"(\d+)", item[0])]
        ):
            if name.split("/")[0] == paper:
                lines += shown(name, figure, folder, drawn)
    return "\n".join(lines)


def shown(name: str, figure: dict, folder: Path, drawn: bool) -> list[str]:
    picture = f"figures/{name.replace('/', '-')}.png"
    if drawn:
        draw(name, figure, folder / picture)
    lines = [f"### {name}: {figure['title']}", "", f"![{figure['ylabel']} over {figure['xlabel']}]({picture})", ""]
    lines += ["| claim | holds | measured |", "|---|---|---|"]
    lines[-2:-2] = [f"*Archipel {figure['version']}, measured by {figure['date']}.*", ""]
    for claim in figure["claims"]:
        words = [claim["claim"], "yes" if claim["holds"] else "**no**", claim["measured"]]
        lines.append("| " + " | ".join(word.replace("|", "\\|").replace("\n", " ") for word in words) + " |")
    return [*lines, "", *([figure["note"], ""] if figure["note"] else [])]


def draw(name: str, figure: dict, path: Path) -> None:
    from archipel.figures import Claim, Figure
    from archipel.figures import gallery as drawing

    series = {
        key: tuple([float("nan") if v is None else v for v in s[a]] for a in "xy")
        for key, s in figure["series"].items()
    }
    claims = [Claim(**claim) for claim in figure["claims"]]
    how = {
        "logx": figure.get("logx", False),
        "logy": figure.get("logy", False),
        "dashed": tuple(figure.get("dashed", ())),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.draw(Figure(name, figure["title"], series, claims, figure["xlabel"], figure["ylabel"], **how), path)


def pages(folder: Path, drawn: bool = True, kinds=()) -> None:
    """Write them all; for a quick look without pictures, and with some kinds only."""
    from archipel.reference import markdown

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.py", "*.json", "__pycache__"))
    for name in ("LICENSE", "CITATION.cff"):
        shutil.copy(ROOT / name, folder / name)
    own = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "README.md")
    made = {name: (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](") for name in own}
    made |= {"index.md": made.pop("README.md"), "reference.md": markdown(), "choosing.md": choosing(kinds)}
    made["gallery.md"] = gallery(json.loads((DOCS / "gallery.json").read_text(encoding="utf-8")), folder, drawn)
    made |= {f"{path.stem}.md": notebook(path) for path in sorted((DOCS / "notebooks").glob("*.ipynb"))}
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    pages(Path(sys.argv[1]))
