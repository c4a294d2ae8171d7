"""Who takes part, by name, each with data of its own: the `[clients]` table of a description.

With it nobody needs anybody's data: a simulation finds each client's in a folder that has its name, a node its own and
no others. Nothing is taken from everyone's data then: it is declared, or refused.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from archipel.by_name import OTHERS, in_order
from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.topology import files

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
RESERVED = ("server", "authority", OTHERS)
FIT = "letters, digits, - and _, at most 60, and not server, authority or others"
MARK = "{name}"


class Site(NamedTuple):
    """A node's own machine: the node's name, and the folder of its data. A server's has none."""

    name: str
    folder: Path


class People(NamedTuple):
    """Everyone's name, and whose data can be seen here: everyone's in a simulation, its own at a site."""

    names: tuple[str, ...]
    samples: tuple[int, ...] = ()  # of each, where they are public
    site: Site | None = None

    @property
    def at(self) -> int | None:
        """Whose site this is, by number; -1: a server's; None: nobody's, all can be seen."""
        if self.site is None:
            return None
        return self.names.index(self.site.name) if self.site.name in self.names else -1

    def sees(self, name: str) -> bool:
        return self.site is None or self.site.name == name

    def place(self, pattern: str, name: str) -> Path:
        """Where the files of a client are."""
        folder, rest = own_part(pattern, name)
        return (folder if self.site is None else self.site.folder) / rest


def own_part(pattern: str, name: str) -> tuple[Path, Path]:
    """The folder that is a client's own, and what a pattern looks for in it.

    >>> [str(part) for part in own_part("sea/{name}/readings/*.csv", "buoy-1")]
    ['sea/buoy-1', 'readings/*.csv']
    >>> [str(part) for part in own_part("sea/{name}.csv", "buoy-1")]
    ['sea', 'buoy-1.csv']
    """
    if MARK not in pattern:
        if Path(pattern).is_absolute():
            raise BadInput("problem.data", pattern, f"a path with {MARK} in it: each client has files of its own")
        pattern = f"{MARK}/{pattern}"
    parts = Path(pattern).parts
    first = next(i for i, part in enumerate(parts) if MARK in part)
    cut = first + 1 if parts[first] == MARK else first
    folder, rest = (str(Path(*some)).replace(MARK, name) for some in (parts[:cut], parts[cut:]))
    return Path(folder), Path(rest)


@dataclass(frozen=True)
class Clients(Checked):
    """Clients that have names, and data that only they see. Without this table the problem says who its clients are.

    `samples` are public where they are given: algorithms that weigh clients by their samples need them.
    """

    section = "clients"

    names: tuple[str, ...] = key((), "the clients' names: letters, digits, - and _")
    roster: str = key("", 'a csv file in place of names, with the columns "name" and, where it is public, "samples"')
    samples: tuple[int, ...] | dict = key(
        (), "how many samples each has, in the order of the names, or a table by name; public", at_least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.roster and (self.names or self.samples):
            raise BadInput("clients.roster", self.roster, "either a roster or names")
        check_names("clients.names", self.names)
        if isinstance(self.samples, dict):
            object.__setattr__(self, "samples", in_order(self.samples, self.names, "clients.samples"))
            super().__post_init__()
        if self.samples and len(self.samples) != len(self.names):
            raise BadInput("clients.samples", list(self.samples), f"{len(self.names)} numbers, one for each name")

    def people(self, site: Site | None = None) -> People | None:
        """Everyone, as seen from a site; nobody where the problem knows its clients itself."""
        if not self.roster:
            return People(self.names, tuple(self.samples), site) if self.names else None
        table = files.read("clients.roster", self.roster, ("name",), ("samples",))
        names = tuple(table.columns["name"])
        check_names("clients.roster", names)
        if not names:
            raise BadInput("clients.roster", self.roster, "at least one name")
        cells = table.columns.get("samples", [])
        wrong = [row for row, cell in enumerate(cells) if not (cell.isascii() and cell.isdigit() and int(cell) > 0)]
        if wrong:
            raise table.bad("a positive whole number of samples", wrong[0])
        return People(names, tuple(map(int, cells)), site)


def check_names(where: str, names: tuple[str, ...]) -> None:
    """Refuse names that cannot be those of files and certificates, or of two clients."""
    for place, name in enumerate(names):
        if not NAME.fullmatch(name) or name in RESERVED:
            raise BadInput(where, name, FIT)
        if name in names[:place]:
            raise BadInput(where, name, "each name once")


def as_nodes(given: Iterable[str]) -> list[str]:
    """Names as those of nodes, which are in file names, keys and certificates; what cannot be one is "".

    >>> as_nodes(("sensor-17", "the roof", "server", "the-roof"))
    ['sensor-17', 'the-roof', '', '']
    """
    made, taken = list[str](), {*RESERVED}
    for name in given:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", str(name)).strip("-")
        made.append(plain if NAME.fullmatch(plain) and plain not in taken else "")
        taken.add(plain)
    return made


def renamed(given: Sequence[str]) -> str:
    """A sentence about names of clients that are not their nodes' names; "" where all are.

    >>> renamed(("ann", "the roof"))
    'Deployed, the roof is the node the-roof: names of nodes are letters, digits, - and _.'
    """
    made = as_nodes(given)
    unfit = [name for name, plain in zip(given, made) if not plain]
    other = [(name, plain) for name, plain in zip(given, made) if plain != name]
    if unfit:
        why = f"{unfit[0]} cannot be a node's name ({FIT}, each once)"
        numbers = "client-0" + (f" to client-{len(made) - 1}" if len(made) > 1 else "")
        return f"Deployed, all nodes are called {numbers}, in this order: {why}; with another one all keep theirs."
    if other:
        name, plain = other[0]
        more = f", and {len(other) - 1} more are changed so" if len(other) > 1 else ""
        return f"Deployed, {name} is the node {plain}{more}: names of nodes are letters, digits, - and _."
    return ""
