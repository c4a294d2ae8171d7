"""Descriptions: TOML tables to dataclasses and back, strictly.

A field says beside its type and default what it means and which values are right (`key`). A key that nobody knows, a
wrong type, a number out of its range, a missing section: each is a sentence with the key's name, the value and what
would be right, and all of a description are said at once.
"""

import dataclasses
import json
import math
import os
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from archipel.errors import BadInput, Findings, did_you_mean

PATHS = (
    ("problem", "kind"),
    ("algorithm", "kind"),
    ("algorithm", "learn", "kind"),
    ("algorithm", "protect", "kind"),
    ("algorithm", "share", "kind"),
    ("algorithm", "mix", "kind"),
    ("algorithm", "mix", "over", "kind"),
    ("algorithm", "ask", "kind"),
    ("problem", "data"),
    ("problem", "test"),
    ("problem", "model"),
    ("clients", "roster"),
    ("topology", "edges"),
    ("topology", "members"),
    ("topology", "groups"),
    ("environment", "replay"),
    ("environment", "delay", "file"),
)

REQUIRED = dataclasses.MISSING  # in place of a default
LARGEST = 1 << 62  # of whole numbers: what machines count with
HUGE = 1e12  # a bound that is not worth a word


# --- keys: what a field means and accepts -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Key:
    """What a field means, and which values are right; `symbol` is its name in the paper."""

    meaning: str = ""
    above: float = -math.inf
    at_least: float = -math.inf
    at_most: float = math.inf
    below: float = math.inf
    infinite: bool = False
    choices: tuple[str, ...] = ()
    length: tuple[int, ...] = ()
    unit: str = ""
    noun: str = ""
    symbol: str = ""

    def holds(self, number: float) -> bool:
        """Whether a number is right; NaN never is, infinity only where it was asked for."""
        if not self.infinite and (abs(number) > LARGEST if isinstance(number, int) else math.isinf(number)):
            return False
        return (self.above < number < self.below and self.at_least <= number <= self.at_most) or (
            self.infinite and number == math.inf
        )

    def range(self, whole: bool = False) -> str:
        """The numbers that are right, in words.

        >>> Key(above=0).range(), Key(at_least=0, at_most=1, noun="a share").range(), Key(at_least=1).range(whole=True)
        ('a positive number', 'a share from 0 to 1', 'a whole number, at least 1')
        >>> Key(above=0, unit="seconds").range(), Key(above=0, at_most=1).range(), Key().range()
        ('a positive number of seconds', 'a number above 0, at most 1', 'a finite number')
        """
        noun = self.noun or ("a whole number" if whole else "a number") + (f" of {self.unit}" if self.unit else "")
        above, least, below = self.above, self.at_least, self.below
        most = self.at_most if self.at_most < HUGE else math.inf
        if above > -math.inf and below < math.inf:
            return f"{noun} strictly between {plain(above)} and {plain(below)}"
        if least > -math.inf and (most < math.inf or below < math.inf):
            return f"{noun} from {plain(least)} to " + (plain(most) if most < math.inf else f"below {plain(below)}")
        if above == 0 and most == math.inf and noun.startswith("a "):
            return "a positive " + noun.removeprefix("a ")
        bounds = (("above", above), ("at least", least), ("at most", most), ("below", below))
        named = [f"{word} {plain(bound)}" for word, bound in bounds if math.isfinite(bound)]
        if not named:
            return noun if self.noun or whole or self.infinite else noun.replace("a ", "a finite ", 1)
        return f"{noun} {', '.join(named)}" if named[0].startswith("above") else f"{noun}, {', '.join(named)}"


def key(
    default: Any,
    meaning: str,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
    infinite: bool = False,
    choices: Sequence[str] = (),
    length: int | tuple[int, ...] = (),
    unit: str = "",
    noun: str = "",
    symbol: str = "",
) -> Any:
    """A field of a description: its default, one line of meaning, and the values that are right.

    The range holds for a number, for each number of a list, and for the numbers among several types; `choices` are
    the texts that are known. A default that can be called (`dict`, a dataclass) makes one for each description.
    Numbers must be finite, unless the default is not or `infinite` says so. `length` is how many items a list has
    (several: one of them).

    >>> @dataclasses.dataclass(frozen=True)
    ... class Walk(Checked):
    ...     section = "walk"
    ...     step: float = key(0.4, "how far a step goes", above=0, unit="metres", symbol="mu")
    >>> Walk(step=-1.0)
    Traceback (most recent call last):
    archipel.errors.BadInput: walk.step = -1.0: expected a positive number of metres.
    """
    infinite = infinite or (isinstance(default, float) and math.isinf(default))
    lengths = (length,) if isinstance(length, int) else length
    right = Key(meaning, above, at_least, at_most, below, infinite, tuple(choices), lengths, unit, noun, symbol)
    if default is not REQUIRED and callable(default):
        return dataclasses.field(default_factory=default, metadata={"key": right})
    return dataclasses.field(default=default, metadata={"key": right})


class Checked:
    """A part of a description that checks its keys when it is made, in Python as from a file."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_keys(self, self.section)


def check_keys(part: Any, section: str) -> None:
    """Refuse values that the fields of a part do not accept, all at once; parts within it are looked at too."""
    found = Findings()
    for name, (hint, right) in keys_of(type(part)).items():
        with found:
            value = getattr(part, name)
            label = f"{section}.{name}" if section else name
            if type(value) is hint and hint in PLAIN:
                check_value(hint, right, value, label)
            elif isinstance(value, Checked):  # it was, when it was made
                continue
            elif dataclasses.is_dataclass(value) and not isinstance(value, type):
                check_keys(value, label)
            elif value is not None or type(None) not in typing.get_args(hint):
                meant = convert(hint, without_numpy(value), label)
                check_value(hint, right, meant, label)
                if type(value) not in PLAIN:  # a number of NumPy's, a list, a table: kept as a file would have it
                    object.__setattr__(part, name, meant)
    found.refuse()


PLAIN = (bool, int, float, str)


def keys_of(cls: Any) -> dict[str, tuple[Any, Key]]:
    """The fields of a part that a description may give, each with its type and what it accepts."""
    return looked_up(cls)


@cache
def looked_up(cls: Any) -> dict[str, tuple[Any, Key]]:
    hints = typing.get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    return {field.name: (hints[field.name], field.metadata.get("key", Key())) for field in fields}


def check_value(hint: Any, right: Key, value: Any, name: str) -> None:
    """Refuse a value, or an item of a list, that a field does not accept; one that says nothing accepts its type."""
    if not right.meaning:
        return
    if isinstance(value, list | tuple):
        if right.length and len(value) not in right.length:
            count = " or ".join(map(str, right.length))
            raise BadInput(name, value, f"{count} numbers: {expected(hint, right)}")
        for item in value:
            check_value(hint, right, item, name)
    elif isinstance(value, str):
        if right.choices and value not in right.choices:
            words = [word for word in right.choices if word]
            raise BadInput(name, value, did_you_mean(value, words) if hint is str else expected(hint, right))
    elif isinstance(value, int | float) and not isinstance(value, bool) and not right.holds(value):
        raise BadInput(name, value, expected(hint, right))


def expected(hint: Any, right: Key) -> str:
    """What a field accepts, in words."""
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    words = [f'"{choice}"' for choice in right.choices if choice]
    for kind in kinds:
        if mentions(kind, float) or mentions(kind, int):
            range = right.range(whole=not mentions(kind, float))
            words.append(f"a list, each {range}" if typing.get_origin(kind) is tuple else range)
    return ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else "".join(words)


def mentions(hint: Any, wanted: type) -> bool:
    """Whether a type is, or is made of, another."""
    return hint in (wanted, Any) or any(mentions(argument, wanted) for argument in typing.get_args(hint))


def without_numpy(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's, and paths as texts."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") else value


def plain(number: float) -> str:
    """A bound as a person writes it."""
    return str(number) if isinstance(number, int) else f"{number:g}"


# --- tables -------------------------------------------------------------------------------------------------------


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as a table."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
        str(table)  # tables by dots may be nested deeper than anything can be said of them
        return table
    except FileNotFoundError as problem:
        raise BadInput("file", str(path), "a federation description that exists") from problem
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput("file", str(path), "a readable text file") from problem
    except RecursionError as problem:
        raise BadInput("file", str(path), "lists and tables that are not nested a thousand times") from problem
    except tomllib.TOMLDecodeError as problem:
        raise BadInput("file", str(path), f"valid TOML ({problem})") from problem


def choose(kinds: Mapping[str, type], table: Any, section: str, default: str = "") -> Any:
    """The dataclass that a section's `kind` names, filled with the section's keys."""
    if not isinstance(table, dict):
        raise BadInput(section, table, f"a table [{section}]")
    kind = table.get("kind", default)
    if not kind:
        raise BadInput(f"{section}.kind", "(missing)", did_you_mean("", kinds))
    if not isinstance(kind, str) or kind not in kinds:
        raise BadInput(f"{section}.kind", kind, did_you_mean(str(kind), kinds))
    return fill(kinds[kind], {key: value for key, value in table.items() if key != "kind"}, section)


def fill(cls: type, table: Any, section: str) -> Any:
    """A dataclass from a table; every key must be one of its fields and of its type."""
    if not isinstance(table, dict):
        raise BadInput(section, table, f"a table [{section}]")
    known, values, found = keys_of(cls), {}, Findings()
    for label, value in table.items():
        name = label.replace("-", "_")
        with found:
            if name not in known:
                raise BadInput(f"{section}.{label}", value, f"a known key: {did_you_mean(name, known)}")
            hint, right = known[name]
            values[name] = convert(hint, value, f"{section}.{label}")
            check_value(hint, right, values[name], f"{section}.{label}")
    for field in dataclasses.fields(cls):
        missing = field.default is REQUIRED and field.default_factory is REQUIRED
        if missing and field.name in known and field.name not in values:
            found.add(BadInput(f"{section}.{field.name}", "(missing)", "a value; this key has no default"))
    found.refuse()
    return cls(**values)


def convert(hint: Any, value: Any, key: str) -> Any:
    """A TOML value as the type a field asks for."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return frozen(value)
    if origin in (typing.Union, types.UnionType):
        return convert_union(arguments, value, key)
    if dataclasses.is_dataclass(hint):
        return value if isinstance(value, typing.cast(type, hint)) else fill(typing.cast(type, hint), value, key)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise BadInput(key, value, "a list")
        return tuple(convert(arguments[0], item, key) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    words = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false", dict: "a table"}
    raise BadInput(key, value, words.get(hint, str(hint)))


def convert_union(choices: tuple[Any, ...], value: Any, key: str) -> Any:
    """The first of several types that fits."""
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return convert(choice, value, key)
        except BadInput as problem:
            last = problem
    raise last


def frozen(value: Any) -> Any:
    """Lists as tuples, so that descriptions can be compared and hashed."""
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def as_table(thing: Any) -> dict[str, Any]:
    """A dataclass as a table, nested ones included."""
    table = {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if value is None:
            continue
        table[field.name] = as_table(value) if dataclasses.is_dataclass(value) else value
    return table


def write_toml(table: dict[str, Any], section: str = "") -> str:
    """A table as TOML: plain keys first, then the sections."""
    lines = [f"[{section}]"] if section else []
    lines += [f"{quoted(key)} = {toml(value)}" for key, value in table.items() if not isinstance(value, dict)]
    text = "\n".join(lines)
    for key, value in table.items():
        if isinstance(value, dict):
            text += "\n\n" + write_toml(value, f"{section}.{quoted(key)}" if section else quoted(key))
    return text.lstrip("\n")


def quoted(key: str) -> str:
    """A key as TOML writes it.

    >>> quoted("delay"), quoted("pier 1")
    ('delay', '"pier 1"')
    """
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)


def toml(value: Any) -> str:
    """A value as TOML writes it.

    >>> toml((1, 2.5)), toml("a\\\\b"), toml(True)
    ('[1, 2.5]', '"a\\\\\\\\b"', 'true')
    """
    value = without_numpy(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML escapes as JSON does
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float) and value != value:
        return "nan"
    return repr(value)


# --- paths --------------------------------------------------------------------------------------------------------


def rewrite(table: Any, keys: tuple[str, ...], change: Callable[[str], str]) -> None:
    """Change a path in a description, where there is one: a kind may be a name, "cnn", or "my_model.py:Net"."""
    for key in keys[:-1]:
        table = table.get(key) if isinstance(table, dict) else None
    given = table.get(keys[-1]) if isinstance(table, dict) else None
    if given and isinstance(given, str) and (keys[-1] not in ("model", "kind") or ".py:" in given):
        table[keys[-1]] = change(given)


def moved(description: str, folder: Path) -> str:
    """A description whose paths are meant from here, as it has to be written in a folder."""

    def from_there(path: str) -> str:
        there = Path(path).expanduser().resolve()
        try:
            return os.path.relpath(there, folder.resolve())
        except ValueError:  # on another drive
            return str(there)

    table = tomllib.loads(description)
    for keys in PATHS:
        rewrite(table, keys, from_there)
    return write_toml(table) + "\n"
