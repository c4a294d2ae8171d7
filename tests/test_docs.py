"""Every command that the documentation shows runs."""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOW = ("archipel up", "archipel node", "archipel audit", "archipel bench", "archipel list combinations")
# have tests of their own


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


MODEL = "results/model.npz"
LONG = ("archipel run examples/", "archipel reproduce")  # minutes in all: `make test-long`
APART = ("--on dask", *LONG)  # start processes themselves, or are large: in one of their own
COMMANDS = [
    (page.name, line.split("#")[0].strip())
    for page in PAGES
    for block in blocks(page, "sh")
    for line in block.splitlines()
    if line.startswith("archipel ") and not line.startswith(SLOW)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A reader's folder: the examples, the described files, and data for them."""
    here = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", here / "examples")
    for page in PAGES:
        for block in [*blocks(page, "toml"), *blocks(page, "python")]:
            name = re.match(r"# (\S+\.(?:toml|py))", block)
            if name:
                plain = 'engine = "plain"\n' if name[1] == "own.toml" else ""  # compiled it is in test_own_parts.py
                (here / name[1]).write_text(plain + block)
    sensors = here / "sensors"
    sensors.mkdir()
    draw = np.random.default_rng(0)
    for k in range(6):
        x = draw.standard_normal((60, 2))
        lines = [f"{a},{b},{np.sin(a) + 0.1 * b}" for a, b in x]
        (sensors / f"s{k}.csv").write_text("\n".join(["depth,temperature,salinity", *lines]) + "\n")
    return here


@pytest.mark.parametrize(
    ("page", "command"),
    [pytest.param(*c, marks=pytest.mark.long if c[1].startswith(LONG) else ()) for c in COMMANDS],
    ids=[f"{page}: {command}" for page, command in COMMANDS],
)
def test_documented_commands_run(page, command, folder, archipel):
    if MODEL in command and not (folder / MODEL).exists():  # another process may have run the command that makes it
        assert archipel("run", "federation.toml", "--out", str(Path(MODEL).parent)).status == 0
    words = [word for part in shlex.split(command) for word in expanded(part, folder)][1:]
    run = apart(words, folder) if any(part in command for part in APART) else archipel(*words)
    assert run.status == 0, run.err


def apart(words, folder):
    """The command in a process of its own, to its end."""
    run = subprocess.run(
        [sys.executable, "-m", "archipel", *words],
        cwd=folder,
        env={**os.environ, "ARCHIPEL_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return SimpleNamespace(status=run.returncode, err=run.stderr)


def expanded(word, folder):
    """What a shell does with a star."""
    return sorted(str(path) for path in folder.glob(word)) or [word] if "*" in word else [word]


def test_every_example_is_a_federation():
    from archipel import Federation

    examples = sorted((ROOT / "examples").rglob("*.toml"))
    assert len(examples) >= 3
    for path in examples:
        Federation.load(path)


def test_examples_that_help_texts_name_exist():
    named = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"examples/[\w./-]+\.toml", path.read_text())
    }
    assert named and all((ROOT / name).is_file() for name in named), named


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_start_says_which_extras_its_commands_need():
    page = (ROOT / "README.md").read_text()
    for extra, command in (("exact", "mirror-descent.toml"), ("deep", "pldp-fl.toml"), ("deploy", "\narchipel up")):
        assert -400 < page.index(f"pip install 'archipel[{extra}]'") - page.index(command) < 0
    assert ". .venv/bin/activate" in page


# --- the site ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """All pages, as `make docs` has them before MkDocs: without pictures, and of two kinds only."""
    make = runpy.run_path(str(ROOT / "docs" / "make.py"))
    folder = tmp_path_factory.mktemp("site") / "docs"
    make["pages"](folder, drawn=False, kinds=("pao-fed", "zcdp-nfl"))
    return folder


def test_every_page_of_the_site_is_there_and_links_lead_somewhere(site):
    pages = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(pages) > 20 and all((site / page).is_file() for page in pages), pages
    assert {path.name for path in site.glob("*.md")} - set(pages) <= {"SECURITY.md"}
    for page in pages:
        for target in re.findall(r"\]\((?!http|figures/)([^)#\s]+)", (site / page).read_text()):
            assert (site / target).exists(), f"{page} links to {target}"


def test_choosing_is_read_off_the_registry(site):
    text = (site / "choosing.md").read_text()
    assert "| `pao-fed` |" in text.split("## For samples as they come")[1].split("## ")[0]
    assert "| star, servers, peers | yes |" in text.split("## For data that is there")[1]


def test_the_gallery_has_every_figure_and_every_claim(site):
    from archipel.figures.gallery import GALLERY

    figures = json.loads((ROOT / "docs" / "gallery.json").read_text())
    assert set(figures) == set(GALLERY) - set(GALLERY.aliases())
    text = (site / "gallery.md").read_text()
    held = text.count("| yes |"), text.count("| **no** |")
    assert sum(held) == sum(len(figure["claims"]) for figure in figures.values()) and min(held) > 20


def test_files_and_tests_that_pages_name_are_there():
    for page in PAGES:
        text = page.read_text()
        for path in re.findall(r"(?<![\w/.])(?:[a-z_]+/)+[a-z_0-9]+\.(?:py|js)\b", text):
            assert (ROOT / path).exists() or (ROOT / "src" / "archipel" / path).exists(), f"{page.name}: {path}"
        for path, words in re.findall(r"pytest (tests/\S+\.py) -k (\"[^\"]+\"|\w+)", text):
            missing = [word for word in words.strip('"').split(" or ") if word not in (ROOT / path).read_text()]
            assert not missing, f"{page.name}: {path} -k {missing}"
