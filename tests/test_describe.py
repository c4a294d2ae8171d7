"""Descriptions: what is wrong is said by name, with what would be right; nothing runs before."""

import dataclasses
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archipel import Federation, PaoFed, Synthetic
from archipel.deployment import Deployment
from archipel.describe import Checked, fill, key, keys_of, moved, toml, write_toml
from archipel.environment import Environment
from archipel.errors import BadInput
from archipel.privacy.policy import Privacy
from archipel.registry import PROBLEMS
from archipel.topology import TOPOLOGIES
from commands import typed

GOOD = """
rounds = 20
[problem]
kind = "synthetic"
clients = 6
features = 8
test = 10
[algorithm]
kind = "pao-fed"
portion = 2
[environment]
availability = [0.5, 0.25]
[environment.delay]
delta = 0.3
limit = 4
"""

BAD = {
    "a misspelt key": ("portion = 2", "porton = 2", "algorithm.porton"),
    "a misspelt kind": ('"pao-fed"', '"pao-fde"', "algorithm.kind"),
    "a misspelt section": ("[environment]\n", "[enviroment]\n", "enviroment"),
    "an unknown top-level key": ("rounds = 20", "round = 20", "round"),
    "a text for a number": ("portion = 2", 'portion = "two"', "algorithm.portion"),
    "a fraction for a whole number": ("portion = 2", "portion = 2.5", "algorithm.portion"),
    "true for a number": ("clients = 6", "clients = true", "problem.clients"),
    "a portion larger than the model": ("portion = 2", "portion = 9", "algorithm.portion"),
    "a step beyond the stability bound": ("portion = 2", "step = 3.0", "algorithm.step"),
    "no rounds": ("rounds = 20", "rounds = 0", "rounds"),
    "a seed below zero": ("rounds = 20", "seed = -1\nrounds = 20", "seed"),
    "a seed beyond all numbers": ("rounds = 20", "seed = 99999999999999999999\nrounds = 20", "seed"),
    "waiting for ever": ("portion = 2", "limit = 1000000000000000000", "algorithm.limit"),
    "more clients than keys": ("clients = 6", "clients = 1000000000000000000", "problem.clients"),
    "no clients": ("clients = 6", "clients = 0", "problem.clients"),
    "an unknown topology": ("rounds = 20", 'topology = {kind = "torus"}\nrounds = 20', "topology.kind"),
    "a topology that does not fit": (
        '[algorithm]\nkind = "pao-fed"\nportion = 2',
        '[topology]\nkind = "digraph"\n[algorithm]\nkind = "zcdp-nfl"',
        "topology.kind",
    ),
    "a section that is no table": ("rounds = 20", "topology = 3\nrounds = 20", "topology"),
    "no algorithm": ('[algorithm]\nkind = "pao-fed"\nportion = 2', "", "algorithm"),
    "availability beyond one": ("[0.5, 0.25]", "[1.5]", "environment.availability"),
    "a delay law that nobody knows": ("delta = 0.3", 'kind = "normal"', "environment.delay.kind"),
    "a wrong precision": ("rounds = 20", 'precision = "float16"\nrounds = 20', "precision"),
    "no TOML": ("rounds = 20", "rounds = = 20", "file"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_with_its_key(what, tmp_path):
    old, new, key = BAD[what]
    assert old in GOOD
    path = tmp_path / "federation.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(BadInput) as problem:
        federation = Federation.load(path)
        federation.check()
        federation.instance()
    assert problem.value.key == key
    assert str(problem.value).endswith(".")


def test_a_resolved_description_describes_the_same_federation(tmp_path):
    path = tmp_path / "federation.toml"
    path.write_text(GOOD)
    federation = Federation.load(path, rounds=7)
    path.write_text(federation.to_toml())
    again = Federation.load(path)
    assert again == federation.with_(precision="float32")
    assert again.rounds == 7


def test_paths_are_meant_from_the_description(tmp_path):
    path = tmp_path / "federation.toml"
    path.write_text('[problem]\nkind = "files"\ndata = "sensors/*.csv"\n[algorithm]\nkind = "pao-fed"\n')
    assert Federation.load(path).problem.data == str(tmp_path / "sensors/*.csv")


def test_toml_is_written_as_it_is_read():
    import tomllib

    table = {"a": 1, "b": [1.5, 2.0], "c": {"d": 'say "hi"\\', "e": {"f": True}}, "g": 1e-7}
    table |= {"two words": {"Köln 1": "\r\t\x7f", "": {'"': 1}}, "h": [{"i j": 1}]}
    assert tomllib.loads(write_toml(table)) == table
    assert toml(np.float64(0.5)) == "0.5" and toml(np.arange(2)) == "[0, 1]"
    assert toml(float("inf")) == "inf"


def archipel(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "archipel", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_line_says_one_sentence_and_exits_with_2(tmp_path):
    (tmp_path / "f.toml").write_text(GOOD.replace("portion = 2", "porton = 2"))
    run = archipel("run", "f.toml", "--out", "out", cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr.strip().startswith("algorithm.porton = 2: expected a known key")
    assert '"portion"' in run.stderr
    assert not (tmp_path / "out").exists()
    assert typed("run", "nowhere.toml", cwd=tmp_path).returncode == 2
    assert typed("list", "planets", cwd=tmp_path).returncode == 2


def test_a_network_s_name_is_no_path():
    """ "mlp" stays what it is; a file of one's own is found again from where the description is saved."""
    for name, saved in (("mlp", "mlp"), ("nets/mine.py:Net", "../nets/mine.py:Net")):
        text = f'[problem]\nkind = "deep"\nmodel = "{name}"\n'
        assert moved(text, Path("results")) == text.replace(name, saved)


# --- keys ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    share: float = key(0.5, "a part of it", at_least=0, at_most=1, noun="a share")


@dataclass(frozen=True)
class Part(Checked):
    section = "part"
    step: float = key(0.4, "how far", above=0, unit="metres", symbol="mu")
    count: int = key(3, "how many", at_least=1)
    limit: float = key(math.inf, "no more", above=0)
    weight: float | None = key(None, "how heavy", at_least=0)
    pair: tuple[int, ...] = key((1, 2), "two of them", at_least=0, length=2)
    clusters: int | str = key(1, "groups", at_least=1, choices=("discover",))
    law: str = key("even", "which", choices=("even", "random"))
    anything: Any = key(1.0, "numbers in rows", at_least=0, at_most=1)
    inner: Inner = key(Inner, "more")
    names: dict = key(dict, "by name")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"step": 0.0}, "part.step = 0.0: expected a positive number of metres."),
        ({"step": math.nan}, "part.step = nan: expected a positive number of metres."),
        ({"step": math.inf}, "part.step = inf: expected a positive number of metres."),
        ({"step": "far"}, 'part.step = "far": expected a number.'),
        ({"count": 0}, "part.count = 0: expected a whole number, at least 1."),
        ({"count": 10**20}, "part.count = 100000000000000000000: expected a whole number, at least 1."),
        ({"count": True}, "part.count = true: expected a whole number."),
        ({"limit": -1.0}, "part.limit = -1.0: expected a positive number."),
        ({"limit": math.nan}, "part.limit = nan: expected a positive number."),
        ({"weight": -1.0}, "part.weight = -1.0: expected a number, at least 0."),
        ({"pair": (1, -1)}, "part.pair = -1: expected a list, each a whole number, at least 0."),
        ({"pair": (1,)}, "part.pair = (1,): expected 2 numbers: a list, each a whole number, at least 0."),
        ({"clusters": 0}, 'part.clusters = 0: expected "discover" or a whole number, at least 1.'),
        ({"clusters": "find"}, 'part.clusters = "find": expected "discover" or a whole number, at least 1.'),
        ({"law": "evn"}, 'part.law = "evn": expected "even" (known: even, random).'),
        ({"anything": ((0.5, 2.0),)}, "part.anything = 2.0: expected a number from 0 to 1."),
        ({"inner": {"share": 1.5}}, "part.inner.share = 1.5: expected a share from 0 to 1."),
    ],
)
def test_a_range_stands_beside_its_field(given, sentence):
    """From a table and from Python, with the same words."""
    with pytest.raises(BadInput) as problem:
        fill(Part, given, "part")
    assert str(problem.value) == sentence
    made = {name: Inner(**value) if isinstance(value, dict) else value for name, value in given.items()}
    with pytest.raises(BadInput) as problem:
        Part(**made)
    assert str(problem.value) == sentence


def test_what_is_right_passes():
    part = Part(np.float32(0.1), np.int64(2), math.inf, None, [0, 0], "discover", "random", np.ones((2, 3)))
    assert part.step == np.float32(0.1)
    assert fill(Part, {"step": 1, "weight": 0, "anything": [[0, 1], [0.5, 0.5]]}, "part").step == 1.0


def test_all_that_is_wrong_is_said_at_once():
    table = {
        "rounds": 0,
        "sed": 1,
        "problem": {"kind": "synthetic", "clients": 0, "changed": [math.nan, 1, 2]},
        "algorithm": {"kind": "pao-fde"},
        "environment": {"delay": {"step": 0, "kind": "odd"}},
    }
    with pytest.raises(BadInput) as problem:
        Federation.from_table(table)
    keys = [finding.key for finding in problem.value.findings]
    assert keys == [
        "rounds", "sed", "problem.clients", "problem.changed", "algorithm.kind", "environment.delay.step",
        "environment.delay.kind",
    ]  # fmt: skip
    assert len(str(problem.value).splitlines()) == 7


def test_swapped_arguments_are_refused():
    with pytest.raises(BadInput, match=r"problem = \"PaoFed\": expected the problem"):
        Federation(PaoFed(), Synthetic())


@pytest.mark.parametrize("cls", [*PROBLEMS.values(), *TOPOLOGIES.values(), Environment, Deployment, Privacy])
def test_every_key_says_what_it_means(cls):
    def missing(cls, at):
        for name, (hint, right) in keys_of(cls).items():
            if not right.meaning:
                yield f"{at}{name}"
            if dataclasses.is_dataclass(hint):
                yield from missing(hint, f"{at}{name}.")

    assert list(missing(cls, "")) == []
