"""Whether parts, and the pieces that they make, are what `archipel.parts` says: a user's own file may have made them.

Too few arguments of a node function, or a table with too few rows, would else show in the middle of a run, in fifty
lines of the compiler, or as memory that a kernel reads beyond its end.
"""

from inspect import signature
from typing import Any

import numpy as np

from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.node import leaves
from archipel.parts import LearnPiece, MixPiece, ProtectPiece, SharePiece

MADE_OF = {
    "learn": ("setup, protect", "a LearnPiece"),
    "protect": ("setup, learn", "a ProtectPiece"),
    "share": ("setup", "a SharePiece"),
    "mix": ("setup, share, place", "a MixPiece"),
    "ask": ("setup, share, learn", "an AskPiece"),
}
DATA_KINDS = ("stream", "stored", "deep")
PLACES = ("nowhere", "sample", "word", "sum", "mix")
WRITE, TAKE = "said, me, settings, moment", "me, said, settings"
FUNCTIONS: dict[type, dict[str, str]] = {
    LearnPiece: {"learn": "me, data, settings, moment"},
    ProtectPiece: {
        "pay": "me, settings, moment",
        "bound": "slope, x, settings",
        "noise": "values, scale, me, settings, moment",
        "word": "me, settings, moment",
        "at_mix": "inbox, me, settings, moment",
    },
    SharePiece: {"write": WRITE, "tell": WRITE, "take": TAKE, "fold": "total, count, said, factor, settings"},
    MixPiece: {
        "hear": "inbox, said, settings, edge",
        "finish": "me, inbox, settings, moment",
        "write": WRITE,
        "tell": WRITE,
        "take": TAKE,
    },
}
RECORDS: dict[type, tuple[str, ...]] = {
    LearnPiece: (), ProtectPiece: (), SharePiece: ("word", "told"), MixPiece: ("inbox", "word", "told")
}  # fmt: skip
NUMBERS: dict[type, tuple[str, ...]] = {
    LearnPiece: (), ProtectPiece: (), SharePiece: ("parameters", "told_parameters"), MixPiece: ("more",)
}  # fmt: skip


def takes(function: Any, arguments: int) -> bool:
    """Whether a function can be called with so many arguments."""
    try:
        signature(function).bind(*range(arguments))
    except TypeError:
        return False
    return True


def count_of(arguments: str) -> int:
    """How many arguments a list of names is.

    >>> count_of("me, settings, moment"), count_of("")
    (3, 0)
    """
    return len(arguments.split(", ")) if arguments else 0


def check_part(family: str, part: Any, where: str = "") -> None:
    """Refuse what is no part of its family; `where`: it stands elsewhere than in its family's table."""
    arguments, piece = MADE_OF[family]
    right = f"a part whose make({arguments}) returns {piece} of archipel.parts"
    name, at = type(part).__name__, f"algorithm.{where or family}.kind"
    if isinstance(part, type):
        raise BadInput(at, f"{part.__name__}, a class", f"a part: {part.__name__}(...)")
    meant = getattr(part, "section", "")  # what a file's class says it is for, if it says so
    if meant.startswith("algorithm.") and meant != f"algorithm.{family}":
        raise BadInput(at, name, f"{right}; this one is for {meant}")
    needs_method(family, part, "make", arguments, right, at)
    for field, family_of, known in (("data_kind", "learn", DATA_KINDS), ("where", "protect", PLACES)):
        if family == family_of and getattr(part, field, None) not in known:
            words = ", ".join(f'"{word}"' for word in known)
            raise BadInput(at, name, f"a part with {field}, one of {words}")


def needs_method(family: str, part: Any, method: str, arguments: str, right: str = "", at: str = "") -> None:
    """Refuse a part without a method that is needed here."""
    if not takes(getattr(part, method, None), count_of(arguments)):
        right = right or f"a part with {method}({arguments}), which is needed here"
        raise BadInput(at or f"algorithm.{family}.kind", type(part).__name__, right)


def piece_of(family: str, part: Any, kind: Any, rows: int, servers: int, **given: Any) -> Any:
    """What a part makes of these, for so many nodes."""
    check_part(family, part)
    piece = part.make(*given.values())

    def refuse(right: str) -> None:
        raise BadInput(f"algorithm.{family}.kind", type(part).__name__, right)

    if not isinstance(piece, kind):
        refuse(f"a part whose make({', '.join(given)}) returns a {kind.__name__} of archipel.parts")
    optional = {name for name, value in kind._field_defaults.items() if value is None}
    given_up = {name for name in optional if getattr(piece, name) is None}
    made = {name: value for name, value in piece._asdict().items() if name not in given_up}
    for name, arguments in FUNCTIONS[kind].items():
        if name in made and not takes(made[name], count_of(arguments)):
            refuse(f"a part whose {kind.__name__} has {name}({arguments}), a function")
    for name in RECORDS[kind]:
        if name in made and not is_record(made[name]):
            refuse(f"a part whose {kind.__name__} has {name}, a named tuple of arrays of numbers")
    for name, many in (("state", rows), ("server_state", servers)):
        if name in made and (many or name == "state") and not is_table(made[name], many):
            refuse(f"a part whose {kind.__name__} has {name}, a named tuple of arrays of numbers with {many} rows each")
    if not is_named(made["settings"]):
        refuse(f"a part whose {kind.__name__} has settings, a named tuple")
    for name in NUMBERS[kind]:
        if not isinstance(made[name], int | float | np.number) or not 0 <= made[name] < np.inf:
            refuse(f"a part whose {kind.__name__} has {name}, a number that is not negative")
    late = made.get("late", 0)
    if not isinstance(late, int | np.integer) or not 0 <= late <= LATEST:
        refuse(f"a part whose {kind.__name__} has late, a whole number of rounds from 0 to {LATEST}")
    return piece


def is_named(value: Any) -> bool:
    """Whether this is a named tuple with something in it."""
    return isinstance(value, tuple) and type(value) is not tuple and len(value) > 0


def is_record(value: Any) -> bool:
    """Whether this is a record: a named tuple of arrays of numbers, or of records."""
    if not is_named(value):
        return False
    parts = [part for part in value if isinstance(part, tuple)]
    arrays = [part for part in value if not isinstance(part, tuple)]
    plain = all(isinstance(array, np.ndarray) and array.dtype.kind in "fiub" for array in arrays)
    return plain and all(map(is_record, parts))


def is_table(value: Any, rows: int) -> bool:
    """Whether this is a table of so many rows."""
    return is_record(value) and all(array.ndim > 0 and len(array) == rows for array in leaves(value))
