"""Descriptions: TOML tables to dataclasses and back, strictly.

A key that nobody knows, a wrong type, a missing section: each is a sentence with the key's name, the value and what
would be right.
"""

import dataclasses
import json
import os
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from archipel.errors import BadInput, did_you_mean


def key(default: Any, meaning: str, **right: Any) -> Any:
    """A field of a description."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, **right})


PATHS = (
    ("problem", "data"),
    ("problem", "test"),
    ("problem", "model"),
    ("topology", "edges"),
    ("topology", "members"),
    ("topology", "groups"),
    ("environment", "replay"),
    ("environment", "delay", "file"),
)


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as a table."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as problem:
        raise BadInput("file", str(path), "a federation description that exists") from problem
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput("file", str(path), "a readable text file") from problem
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
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    values = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in fields:
            raise BadInput(f"{section}.{key}", value, f"a known key: {did_you_mean(name, fields)}")
        values[name] = convert(hints[name], value, f"{section}.{key}")
    for name, field in fields.items():
        missing = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if missing and name not in values:
            raise BadInput(f"{section}.{name}", "(missing)", "a value; this key has no default")
    return cls(**values)


def convert(hint: Any, value: Any, key: str) -> Any:
    """A TOML value as the type a field asks for."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return frozen(value)
    if origin in (typing.Union, types.UnionType):
        return convert_union(arguments, value, key)
    if dataclasses.is_dataclass(hint):
        return fill(typing.cast(type, hint), value, key)
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
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
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
    """Change a path in a description, where there is one: a network may be a name, "cnn", or "my_model.py:Net"."""
    for key in keys[:-1]:
        table = table.get(key) if isinstance(table, dict) else None
    given = table.get(keys[-1]) if isinstance(table, dict) else None
    if given and isinstance(given, str) and (keys[-1] != "model" or ".py:" in given):
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
