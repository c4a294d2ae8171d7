"""Descriptions: what is wrong is said by name, with what would be right; nothing runs before."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from archipel import Federation
from archipel.describe import moved, toml, write_toml
from archipel.errors import BadInput

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
        '[topology]\nkind = "peers"\n[algorithm]\nkind = "sign-sgd"',
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
    assert archipel("run", "nowhere.toml", cwd=tmp_path).returncode == 2
    assert archipel("list", "planets", cwd=tmp_path).returncode == 2


def test_a_network_s_name_is_no_path():
    """ "mlp" stays what it is; a file of one's own is found again from where the description is saved."""
    for name, saved in (("mlp", "mlp"), ("nets/mine.py:Net", "../nets/mine.py:Net")):
        text = f'[problem]\nkind = "deep"\nmodel = "{name}"\n'
        assert moved(text, Path("results")) == text.replace(name, saved)
