"""The reference: every key of a description with its type, default, range and meaning, read off the fields."""

import dataclasses
import inspect
import json
import math
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from archipel.clients import Clients
from archipel.deployment import Deployment
from archipel.describe import REQUIRED, Key, expected, keys_of, toml
from archipel.disk import cache_home, replacing
from archipel.environment import Environment
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.parts.kind import Composition
from archipel.policy import Policy
from archipel.privacy.policy import Privacy
from archipel.registry import ALGORITHMS, FAMILIES, PROBLEMS
from archipel.topology import TOPOLOGIES

KINDS: dict[str, Mapping[str, type]] = {"problem": PROBLEMS, "algorithm": ALGORITHMS, "topology": TOPOLOGIES}
TABLES: dict[str, type] = {"clients": Clients, "environment": Environment, "privacy": Privacy, "deploy": Deployment}
TOP = (*KINDS, *TABLES)  # the fields of a description that are sections
TABLES["policy"] = Policy  # a file of its own, which lies with a site
KINDS |= {f"algorithm.{family}": names for family, names in FAMILIES.items()}


class Entry(NamedTuple):
    """One key: where it stands, and what is to be known of it."""

    section: str  # "" for the keys above all sections
    kind: str  # "" where the section has no kinds
    name: str  # "delay.step" for a key of a table inside
    type: str
    default: str
    range: str
    meaning: str
    symbol: str

    @property
    def key(self) -> str:
        """As errors name it."""
        return f"{self.section}.{self.name}" if self.section else self.name


def entries(*sections: str) -> Iterator[Entry]:
    """All keys of all kinds, or of some sections."""
    if not sections:
        yield from entries_of(Federation, "", "", "", TOP)
    for section in sections or (*KINDS, *TABLES):
        for kind in KINDS.get(section, ()):
            yield from entries_of(KINDS[section][kind], section, kind)
        if section in TABLES:
            yield from entries_of(TABLES[section], section, "")


def entries_of(cls: Any, section: str, kind: str, within: str = "", skip: tuple[str, ...] = ()) -> Iterator[Entry]:
    """The keys of one table, those of tables inside it too."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name, (hint, right) in keys_of(cls).items():
        if name in skip:
            continue
        if dataclasses.is_dataclass(hint):
            yield from entries_of(hint, section, kind, f"{within}{name}.")
            continue
        shown = default_of(fields[name])
        yield Entry(section, kind, within + name, words(hint), shown, limits(hint, right), right.meaning, right.symbol)


def words(hint: Any) -> str:
    """A type as a person says it.

    >>> words(tuple[int, ...]), words(float | None), words(int | str)
    ('list of whole numbers', 'number', 'whole number or text')
    """
    plain = {int: "whole number", float: "number", str: "text", bool: "true or false", dict: "table", Any: "anything"}
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(words(one) for one in typing.get_args(hint) if one is not type(None))
    if typing.get_origin(hint) is tuple:
        return f"list of {words(typing.get_args(hint)[0])}s"
    if dataclasses.is_dataclass(hint):
        return "table of " + ", ".join(keys_of(hint))
    return plain.get(hint, str(hint))


def default_of(field: Any) -> str:
    """A default as TOML writes it."""
    if field.default_factory is not REQUIRED:
        return toml(field.default_factory())
    if field.default is REQUIRED:
        return "(must be given)"
    return "(none)" if field.default is None or field.default == "" else toml(field.default)


def limits(hint: Any, right: Key) -> str:
    """The values that are right, where not every one of the type is."""
    bounded = any(math.isfinite(bound) for bound in (right.above, right.at_least, right.at_most, right.below))
    return expected(hint, right) if bounded or right.choices or right.unit else ""


# --- answers ----------------------------------------------------------------------------------------------------------


@cache
def everything() -> tuple[list[Entry], dict[str, dict[str, str]]]:
    """All keys, and all kinds with their first sentences: read off every kind's module, once for each version of them
    (in the user's cache), as importing them all takes longer than a person waits.
    """
    package = Path(__file__).parent
    stamp = [[str(path), path.stat().st_mtime_ns] for path in sorted(package.rglob("*.py"))]
    kept = cache_home() / "reference.json"
    try:
        told = json.loads(kept.read_text(encoding="utf-8"))
        if told["of"] == stamp:
            return [Entry(*entry) for entry in told["entries"]], told["kinds"]
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or not ours
        pass
    found = list(entries())
    lines = {section: {kind: first_line(cls) for kind, cls in kinds.items()} for section, kinds in KINDS.items()}
    with suppress(OSError):  # a home that cannot be written to
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replacing(kept) as file:
            file.write(json.dumps({"of": stamp, "entries": found, "kinds": lines}).encode())
    return found, lines


class Answer(NamedTuple):
    """What `archipel explain` says: a title, what it is, and keys (or kinds, with their first sentence)."""

    title: str
    text: str
    keys: list[Entry]
    kinds: dict[str, str]  # beside their first sentences


def explain(word: str) -> Answer:
    """A kind, a section, or a key: "pao-fed", "privacy", "privacy.clip", "pao-fed.step", "step"; "" for the whole."""
    if not word:
        sections = {f"[{name}]": keys_of(Federation)[name][1].meaning for name in TOP}
        return Answer("A description", about(Federation), list(entries_of(Federation, "", "", "", TOP)), sections)
    for section, kinds in KINDS.items():
        if word == section:
            text = f"{meaning_of(section)}. Its kind is one of these:"
            keys = merged([entry for entry in everything()[0] if entry.key == word])
            return Answer(f"[{section}]", text, keys, everything()[1][section])
        if word in kinds:
            cls = kinds[word]
            return Answer(f'[{section}] kind = "{word}"', about(cls), list(entries_of(cls, section, word)), {})
    if word in TABLES:
        return Answer(f"[{word}]", about(TABLES[word]), list(entries_of(TABLES[word], word, "")), {})
    section, listed = word.split(".")[0], everything()[0]
    inside = [e for e in listed if e.section.split(".")[0] == section] or listed
    for names in (
        lambda e: (e.key, f"{e.kind}.{e.name}"),
        lambda e: (e.name,),
        lambda e: (e.name.split(".")[-1],),
        lambda e: (e.name.rpartition(".")[0], e.key.rpartition(".")[0]),  # a table inside a section
    ):
        found = [entry for entry in inside if {word, word.replace("-", "_")} & set(names(entry))]
        if found:
            return Answer(word, "", merged(found), {})
    known = [*TOP, *(kind for kinds in KINDS.values() for kind in kinds), *{e.key for e in inside}]
    known += {entry.name.split(".")[-1] for entry in inside}
    near = get_close_matches(word, known, 3) or sorted(name for name in set(known) if name.startswith(word))[:3]
    right = (
        " or ".join(f'"{name}"' for name in near) or "a kind, a section or a key; `archipel explain` names the sections"
    )
    raise BadInput("explain", word, right)


def meaning_of(section: str) -> str:
    """What a section is for."""
    whole, _, family = section.partition(".")
    return keys_of(Composition)[family][1].meaning if family else keys_of(Federation)[whole][1].meaning


def merged(found: list[Entry]) -> list[Entry]:
    """Keys that say the same in several kinds, once."""
    kinds: dict[Entry, list[str]] = {}
    for entry in found:
        kinds.setdefault(entry._replace(kind=""), []).append(entry.kind)
    return [entry._replace(kind=", ".join(names)) for entry, names in kinds.items()]


def first_line(thing: Any) -> str:
    """The first sentence of what something says about itself."""
    return (thing.__doc__ or "").strip().split("\n")[0]


def about(cls: Any) -> str:
    """What a class says about itself."""
    return inspect.cleandoc(cls.__doc__ or "")


def markdown() -> str:
    """The whole reference as a page."""
    lines = [
        "# Reference",
        "",
        "Every key of a description, as the code has it (`archipel explain KEY` says the same).",
    ]
    blocks = [("The description", about(Federation), entries_of(Federation, "", "", "", TOP))]
    for section, kinds in KINDS.items():
        for kind, cls in kinds.items():
            blocks.append((f'[{section}] kind = "{kind}"', about(cls), entries_of(cls, section, kind)))
    blocks += [(f"[{section}]", about(cls), entries_of(cls, section, "")) for section, cls in TABLES.items()]
    for title, text, keys in blocks:
        lines += [
            "",
            f"## {title}",
            "",
            text,
            "",
            "| key | type | default | right | meaning |",
            "|---|---|---|---|---|",
        ]
        for e in keys:
            meaning = f"{e.meaning} ({e.symbol} in the paper)" if e.symbol else e.meaning
            cells = (f"`{e.name}`", e.type, f"`{e.default}`", e.range, meaning)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
