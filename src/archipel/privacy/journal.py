"""The durable form of a ledger: an append-only file that a crash cannot make forget.

One line a charge, `checksum json`, and the checksum covers the line before it too. A charge is written and
forced to disk before `append` returns. On opening:

- a last line that was cut short (no line end, or blocks that were never written and read as zeros) belongs to
  a charge that never
  returned: it is cut off, and nothing was released for it;
- any other line that does not fit its checksum means damage: the file is refused, because a charge might be
  forgotten.

The first line, and a further one whenever they change, states the terms: what was once only assumed stays
`assumed`.

A line ends with a blank; with a plus once the words that were charged so far leave, under a checkpoint that is saved: a
state that knows of fewer charges is an older one. That byte need not be forced to disk: after a crash the checkpoint
itself is there.

So that it does not grow for ever, lines of the same release are put together now and then, in a new file that takes the
place of this one at once.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from archipel.disk import LockedFile, sync_folder
from archipel.errors import BadInput
from archipel.privacy.ledger import ASSUMED, Assumption, Budget, Charge, Ledger, Terms
from archipel.privacy.releases import as_json, from_json

SEED = "archipel ledger 1"
LEFT = b"+\n"  # the end of a line


class Damaged(RuntimeError):
    """A journal whose lines do not fit their checksums. No release may be made on its word."""


def _line(entry: dict[str, Any], before: str) -> tuple[bytes, str]:
    text = json.dumps(entry, separators=(",", ":"), allow_nan=False)
    check = hashlib.blake2b((before + text).encode(), digest_size=8).hexdigest()
    return f"{check} {text} \n".encode(), check


def fits(line: bytes, expected: bytes) -> bool:
    """Whether this is the line, left or not; once lines had no such byte."""
    return line in (expected, expected[:-2] + LEFT, expected[:-2] + b"\n")


def parse(content: bytes, path: Path, check: str = SEED) -> tuple[list[dict[str, Any]], int, str]:
    """The entries, how many bytes are good, and the last checksum; `check` is that of the line before them."""
    entries: list[dict[str, Any]] = []
    good = 0
    while good < len(content):
        end = content.find(b"\n", good)
        if end < 0:
            break  # cut short
        line = content[good : end + 1]
        try:
            entry = json.loads(line[17:].rstrip(b" +\n"))
            expected, now = _line(entry, check)
        except ValueError:
            entry, expected, now = None, b"", ""
        if not fits(line, expected):
            last = content.find(b"\n", end + 1) < 0
            if last and b"\0" in line:
                break
            number = len(entries) + 1
            raise Damaged(f"{path}: line {number} does not fit its checksum. Restore it: a charge may be lost.")
        entries.append(entry)
        good, check = end + 1, now
    return entries, good, check


def chained(entries: Iterable[dict[str, Any]]) -> tuple[bytes, str]:
    """A whole file of these entries, and its last checksum."""
    lines, check = [], SEED
    for entry in entries:
        line, check = _line(entry, check)
        lines.append(line)
    return b"".join(lines), check


class FileJournal:
    """An open journal file. Only one at a time: a second process is refused.

    `file` is what keeps the lines, where that is not a file of this machine (`deploy.world.File`); `known` is how much
    of it was read before, and its checksum then: only what came since is in `entries`. `renew` puts a whole new file in
    its place, and opens it.
    """

    renew: Callable[[bytes], Any] | None = None

    def __init__(self, path: str | os.PathLike[str], file: Any = None, known: tuple[int, str] = (0, SEED)):
        self.path = Path(path)
        fresh = file is None and not self.path.exists()
        self.file = LockedFile(self.path, "ledger", "a file that no other process has open") if file is None else file
        try:
            begin, check = known
            content = self.file.read(max(begin - 1, 0))
            if begin and content[:1] != b"\n":
                raise Damaged(f"{self.path}: it is shorter than it was. Restore it: charges are lost.")
            content = content[1:] if begin else content
            self.entries, good, self.check = parse(content, self.path, check)
            self.others = [entry for entry in self.entries if "release" not in entry]
            left = content.count(b"\n", 0, content.rfind(LEFT) + len(LEFT)) if LEFT in content else 0
            self.left, self.lines = lines_of(self.entries[:left]), lines_of(self.entries)
            self.size = begin + good
            if not begin or good < len(content):
                self.file.truncate(self.size)
                self.file.sync()
            if fresh:
                sync_folder(self.path.parent)  # so that a crash does not lose the new file's name
        except BaseException:
            self.file.close()
            raise
        self.broken = False

    def write(self, entry: dict[str, Any]) -> None:
        """One line, on disk when this returns. After a failure that cannot be undone everything further is
        refused.
        """
        if self.broken:
            raise Damaged(f"{self.path}: an earlier write failed. Open the ledger anew before releasing anything.")
        line, check = _line(entry, self.check)
        self.broken = True  # until we know better
        try:
            self.file.write(line, self.size)
            self.file.sync()
        except OSError:
            self.file.truncate(self.size)
            self.file.sync()
            self.broken = False
            raise
        self.broken = False
        self.size, self.check = self.size + len(line), check
        if "release" not in entry:
            self.others.append(entry)

    def leave(self, count: int) -> None:
        """So many charges are for words that leave: worth a mark if that is all of them."""
        if self.left < count == self.lines:
            self.file.write(LEFT, self.size - len(LEFT))
            self.left = count

    def append(self, charge: Charge) -> None:
        self.write(entry_of(charge))
        self.lines += charge.lines

    def fold(self, charges: Iterable[Charge]) -> None:
        """Keep these charges, which say the same, in place of all."""
        if self.renew is None or self.broken:
            return
        content, check = chained([*self.others, *map(entry_of, charges)])
        if self.left == self.lines:
            content = content[: -len(LEFT)] + LEFT
        self.broken = True  # where it fails nobody knows which file is there
        file = self.renew(content)
        self.file.close()
        self.file, self.size, self.check, self.broken = file, len(content), check, False

    def close(self) -> None:
        self.file.close()


def open_ledger(
    path: str | os.PathLike[str], node: str, terms: Terms, budget: Budget | None = None, file: Any = None
) -> Ledger:
    """The ledger kept in a file, with everything that was ever charged to it; a new one where there is no
    file.

    Node, unit and relation must be those of the file. The budget may change, what was spent does not.
    """
    journal = FileJournal(path, file)
    try:
        stated = [entry["terms"] for entry in journal.entries if "terms" in entry]
        charges = [charge_of(entry) for entry in journal.entries if "release" in entry]
        for before in stated:
            for key, now in (("node", str(node)), ("unit", terms.unit), ("relation", terms.relation)):
                if before[key] != now:
                    raise BadInput(f"ledger {key}", now, f'"{before[key]}", as {path} says')
        once = (
            {a["what"] for before in stated for a in before["assumptions"] if a["how"] == ASSUMED} if charges else set()
        )
        kept = [Assumption(a.what, ASSUMED if a.what in once else a.how) for a in terms.assumptions]
        gone = [Assumption(what, ASSUMED) for what in sorted(once - {a.what for a in kept})]
        terms = Terms(terms.unit, terms.relation, tuple(kept + gone))
        entry = {"node": str(node), **terms.as_json(), "budget": budget.as_json() if budget else None}
        if not stated or stated[-1] != entry:
            journal.write({"terms": entry})
        return Ledger(node, terms, budget, charges, journal)
    except BaseException:
        journal.close()
        raise


def lines_of(entries: Iterable[dict[str, Any]]) -> int:
    """How many charges these are, however many became one."""
    return sum(entry.get("lines", 1) for entry in entries if "release" in entry)


def entry_of(charge: Charge) -> dict[str, Any]:
    entry = {"round": charge.round, "release": as_json(charge.release), "times": charge.times}
    return entry if charge.lines == 1 else entry | {"lines": charge.lines}


def charge_of(entry: dict[str, Any]) -> Charge:
    return Charge(entry["round"], from_json(entry["release"]), entry["times"], entry.get("lines", 1))
