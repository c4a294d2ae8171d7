"""Hundreds of bad inputs, made from the fields themselves: each is refused with its key's name, none is accepted."""

import dataclasses
import math
import typing

import numpy as np
import pytest

from archipel import Delay, Environment, PaoFed, Synthetic
from archipel.describe import fill, keys_of, mentions, read_toml
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.problems.own import Files
from archipel.reference import KINDS, TABLES
from archipel.results import ready
from archipel.size import announcement, check_size
from commands import typed

GOOD = {"problem": {"kind": "synthetic"}, "algorithm": {"kind": "pao-fed"}}
CLASSES = [(cls, section) for section, kinds in KINDS.items() for cls in kinds.values()] + [
    (cls, section) for section, cls in TABLES.items()
]


def wrong_values(hint, right):
    """Values that a field does not accept, by its type and its range."""
    if dataclasses.is_dataclass(hint):
        yield from (3, "text", [1])
        return
    options = typing.get_args(hint) if typing.get_origin(hint) not in (None, tuple) else (hint,)
    if hint is not typing.Any:
        kinds = {bool: True, int: 3, float: 1.5, str: "no such word", dict: {"no": 1}}
        for kind, value in kinds.items():
            fits = any(mentions(option, kind) or (kind is int and mentions(option, float)) for option in options)
            if not fits and not any(dataclasses.is_dataclass(o) and kind is dict for o in options):
                yield value
    if not right.meaning or not (mentions(hint, int) or mentions(hint, float)):
        if right.choices and hint is str:
            yield "no such word"
        return
    whole = not mentions(hint, float)
    numbers = [10**30, -(10**30)] if whole else [math.nan, -math.inf]
    numbers += [] if whole or right.infinite else [math.inf]
    if math.isfinite(right.at_least):
        numbers.append(right.at_least - 1)
    if math.isfinite(right.above):
        numbers.append(right.above if not whole else int(right.above))
    if math.isfinite(right.at_most) and right.at_most < 1e15:
        numbers.append(right.at_most + 1)
    if math.isfinite(right.below):
        numbers.append(right.below)
    for number in numbers:
        value = int(number) if whole else float(number)
        yield [value] * max(right.length or (1,)) if typing.get_origin(hint) is tuple else value


CASES = [
    (cls, section, name, value)
    for cls, section in CLASSES
    for name, (hint, right) in keys_of(cls).items()
    for value in wrong_values(hint, right)
]


def test_there_are_many():
    assert len(CASES) > 1000


@pytest.mark.parametrize("cls", dict.fromkeys(cls for cls, _ in CLASSES), ids=lambda cls: cls.__name__)
def test_none_is_accepted(cls):
    for one, section, name, value in CASES:
        if one is not cls:
            continue
        required = {"data": "x", "low": 1.0, "high": 2.0} if cls is Files else {}
        with pytest.raises(BadInput) as problem:
            fill(cls, required | {name: value}, section)
            pytest.fail(f"{section}.{name} = {value!r} was accepted")
        assert any(finding.key.startswith(f"{section}.{name}") for finding in problem.value.findings), (name, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("rounds", 10**20), ("rounds", 2**63 - 1), ("rounds", 0), ("every", 0), ("seed", -1), ("precision", "float16"),
     ("engine", "fast"), ("rounds", True), ("rounds", 1.5), ("seed", math.nan), ("problem", 3), ("algorithm", [])],
)  # fmt: skip
def test_wrong_keys_above_the_sections(key, value):
    with pytest.raises(BadInput) as problem:
        Federation.from_table(GOOD | {key: value})
    assert problem.value.key.startswith(key)


def test_a_thousand_brackets_are_a_sentence(tmp_path):
    (tmp_path / "deep.toml").write_text("x = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(BadInput, match="nested"):
        read_toml(tmp_path / "deep.toml")


def test_what_does_not_fit_into_memory_is_refused_and_what_takes_long_is_announced(tmp_path):
    def made(**changes):
        return Federation.from_table(GOOD | changes)

    with pytest.raises(BadInput, match=r"problem\.clients.*GB"):
        check_size(made(problem={"kind": "synthetic", "clients": 10**11}))
    with pytest.raises(BadInput, match="every = 1"):
        check_size(made(rounds=10**10, every=1))
    check_size(made())
    assert announcement(made(rounds=100)) == ""
    assert "may take" in announcement(made(rounds=10**9, every=10**6))
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text("x,y\n1,2\n")
    own = {"kind": "files", "data": str(tmp_path)}
    for changes, clients in (
        ({}, 3),
        ({"clients": {"names": ["ann", "bob"]}}, 2),
        ({"problem": own | {"split": {"kind": "iid", "clients": 7}}}, 7),
    ):
        said = announcement(made(**{"problem": own, "rounds": 10**9, "every": 10**6} | changes))
        assert said.startswith(f"{clients},000,000,000 client updates")


def test_what_python_gives_is_kept_as_a_file_would_have_it(tmp_path):
    """Numbers of NumPy's, lists, tables and paths: they passed the check, and ended in somebody else's traceback."""
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    given = Synthetic(clients=np.int64(4), features=np.int32(6), test=np.int8(5))
    plain = Synthetic(clients=4, features=6, test=5)
    assert repr(given) == repr(plain) and Files(tmp_path).data == str(tmp_path)
    sky = Environment(availability=np.array([0.5, 0.25]), delay={"delta": 0.2})
    assert repr(sky) == repr(Environment(availability=(0.5, 0.25), delay=Delay(delta=0.2)))
    steps = PaoFed(step=np.float32(0.25), portion=np.int64(2))
    one = Federation(given, steps, environment={"availability": [0.5, 0.25]}, rounds=np.int64(5)).run(seeds=np.int64(2))
    known = Environment(availability=(0.5, 0.25))
    two = Federation(plain, PaoFed(step=0.25, portion=2), environment=known, rounds=5).run(seeds=2)
    assert one.rows == two.rows
    with pytest.raises(BadInput, match='algorithm = "PaoFed, a class"'):
        Federation(plain, PaoFed, rounds=5)
    with pytest.raises(BadInput, match='"parameters" or "bytes"'):
        two.total("byte")


def test_results_need_a_folder_of_their_own(tmp_path, monkeypatch):
    from pathlib import Path

    with pytest.raises(BadInput, match="a folder of its own"):
        ready(Path(""))
    (tmp_path / "federation.toml").write_text(
        "rounds = 3  # ours\n[problem]\nkind = 'synthetic'\nclients = 2\n[algorithm]\nkind = 'pao-fed'\n"
    )
    monkeypatch.chdir(tmp_path.parent)
    for command in ("run", "up", "compare"):
        said = typed(command, f"{tmp_path.name}/federation.toml", "--out", tmp_path)
        assert said.returncode == 2 and "a folder of its own for the results" in said.stderr
    assert "# ours" in (tmp_path / "federation.toml").read_text()
    ready(tmp_path / "results", description=tmp_path / "federation.toml")


# --- what a second look found -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"categories": {"a": 1}}, r"problem\.categories\.a = 1: expected its values"),
        ({"categories": {"a": []}}, "each once"),
        ({"categories": {"a": ["x", "x"]}}, "each once"),
        ({"separator": "ab"}, r'problem\.separator = "ab": expected one character'),
        ({"positive": "maybe"}, 'expected none, or loss = "logistic"'),
    ],
)
def test_keys_of_own_files_that_make_no_sense(keys, said):
    with pytest.raises(BadInput, match=said):
        Files(data="x", **keys)


def test_a_byte_order_mark_before_a_description_is_no_mistake(tmp_path):
    (tmp_path / "f.toml").write_text("\ufeffrounds = 3\n", encoding="utf-8")
    assert read_toml(tmp_path / "f.toml") == {"rounds": 3}


def test_folders_that_are_called_like_files_and_targets_that_never_change_are_said(tmp_path):
    (tmp_path / "b.csv").mkdir()
    for name in ("a", "c"):
        (tmp_path / f"{name}.csv").write_text("a,y\n" + "".join(f"{k},7\n" for k in range(8)))
    notes = Files(data=str(tmp_path / "*.csv")).task(1, 3, float, "stored").notes
    assert "Left out, as they are no tables: b.csv." in notes
    assert "The target y is always 7: there is nothing to predict." in notes


def test_tables_by_a_thousand_dots_and_too_many_test_samples_are_sentences(tmp_path):
    (tmp_path / "dots.toml").write_text("a." * 3000 + "b = 1\n")
    with pytest.raises(BadInput, match="nested"):
        read_toml(tmp_path / "dots.toml")
    many = Federation.from_table(GOOD | {"problem": {"kind": "synthetic", "test": 2**62}})
    with pytest.raises(BadInput, match=r"problem\.test"):
        check_size(many)
