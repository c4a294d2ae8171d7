"""`archipel new`: a folder with data, a description and a script, all of which run."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copy

import numpy as np

from archipel.errors import BadInput, did_you_mean

DESCRIPTION = """# What is learned, by whom, and what goes wrong. `archipel explain KEY` says what a key means.
rounds = 300

[problem]
kind = "files"              # one file a client
data = "sensors/*.csv"
target = "salinity"
unit = "g/kg"
features = 50               # random Fourier features: a nonlinear model of fixed size
horizon = 300               # a shorter run is then the beginning of a longer one

[algorithm]
kind = "pao-fed"            # shares a few parameters at a time
portion = 4
step = 0.3

[environment]
availability = [0.5, 0.25]  # half of the clients are there every second round, the others one round in four
"""

SCRIPT = '''"""The same from Python: run it, look at it, change it."""

from archipel import Federation, OnlineFed

federation = Federation.load("federation.toml")
for algorithm in (federation.algorithm, OnlineFed(step=0.3)):
    result = federation.with_(algorithm=algorithm).run()
    print(type(algorithm).__name__, f"{result.final('rmse'):.3f} g/kg,", f"{result.total('bytes'):,.0f} bytes sent")
'''


def examples() -> Iterator[tuple[str, Path]]:
    """The descriptions that come with the package, by name."""
    return ((path.stem, path) for path in sorted((Path(__file__).parent / "examples").rglob("*.toml")))


def copy_example(name: str, folder: Path) -> list[Path]:
    """One of the examples, in a new folder."""
    known = dict(examples())
    if name not in known:
        raise BadInput("--example", name, did_you_mean(name, known))
    check_new(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return [Path(copy(known[name], folder / "federation.toml"))]


def check_new(folder: Path) -> None:
    """What is there is never written over."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput("new", str(folder), "a folder that does not exist yet, or is empty")


def scaffold(folder: Path, clients: int = 6, samples: int = 240) -> list[Path]:
    """Write the three of them into a new folder."""
    check_new(folder)
    (folder / "sensors").mkdir(parents=True, exist_ok=True)
    draw, made = np.random.default_rng(7), []
    for k in range(clients):
        depth, warmth = draw.uniform(0, 100, samples), draw.normal(12, 3, samples)
        salt = 33 + 2 / (1 + np.exp(-(depth - 50) / 12)) - 0.04 * (warmth - 12) + 0.05 * draw.standard_normal(samples)
        lines = [f"{a:.1f},{b:.2f},{c:.3f}" for a, b, c in zip(depth, warmth, salt)]
        made.append(folder / "sensors" / f"buoy-{k + 1}.csv")
        made[-1].write_text("\n".join(["depth,temperature,salinity", *lines]) + "\n", encoding="utf-8")
    for name, text in (("federation.toml", DESCRIPTION), ("compare.py", SCRIPT)):
        made.append(folder / name)
        made[-1].write_text(text, encoding="utf-8")
    return made
