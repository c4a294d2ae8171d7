"""The reference is complete: it is read off the fields, and nothing that a description may say is missing."""

import dataclasses
import subprocess
import sys

import pytest

from archipel.errors import BadInput
from archipel.reference import KINDS, TABLES, entries, explain, markdown

EVERYTHING = list(entries())


def test_every_field_of_every_kind_is_in_the_reference():
    text = markdown()
    for section, kinds in (*KINDS.items(), *((name, {"": cls}) for name, cls in TABLES.items())):
        for kind, cls in kinds.items():
            heading = f'## [{section}] kind = "{kind}"\n' if kind else f"## [{section}]\n"
            block = text.split(heading)[1].split("\n## ")[0]
            for field in dataclasses.fields(cls):
                assert f"`{field.name}`" in block or f"`{field.name}." in block, (section, kind, field.name)


@pytest.mark.parametrize(
    "word", sorted({e.key for e in EVERYTHING} | {f"{e.kind}.{e.name}" for e in EVERYTHING if e.kind})
)
def test_every_key_is_explained(word):
    answer = explain(word)
    assert answer.keys
    assert all(entry.type and entry.meaning for entry in answer.keys)


def test_kinds_sections_and_short_names_are_explained():
    assert explain("pao-fed").keys and explain("privacy").keys and explain("problem").kinds and explain("").kinds
    assert {entry.key for entry in explain("width").keys} == {"problem.width"}
    assert explain("delay.step").keys[0].range == "a whole number of rounds, at least 1"
    tested = next(entry for entry in explain("files").keys if entry.key == "problem.test")
    assert tested.range == "a folder or pattern of files, or a share strictly between 0 and 1"
    assert {e.key for e in explain("delay").keys} == {e.key for e in EVERYTHING if ".delay." in e.key}
    with pytest.raises(BadInput, match='"availability"'):
        explain("avail")
    with pytest.raises(BadInput, match=r'"privacy\.clip"'):
        explain("privacy.clp")


def test_the_command_line_explains():
    def said(*words):
        command = [sys.executable, "-m", "archipel", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "gradient" in said("explain", "privacy.clip")
    assert said("--version").startswith("archipel 0.")
    assert "Usage" in said("-h")
