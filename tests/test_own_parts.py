"""Parts by name and from a user's own file: read, written back, compiled; docs/new-algorithm.md is what is tested."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from archipel import Algorithm, Federation, Synthetic
from archipel.algorithms.online import PaoFed
from archipel.describe import moved
from archipel.errors import BadInput
from archipel.parts.learn.online import OnlineStep
from archipel.parts.mix.mean import Mean
from archipel.parts.mix.optimiser import Momentum
from archipel.parts.mix.robust import TrimmedMean
from archipel.parts.share.portions import Portions
from archipel.parts.share.whole import Whole
from archipel.privacy.policy import Privacy
from archipel.registry import FAMILIES, kind_of
from archipel.testing import check_algorithm
from archipel.topology import Peers
from commands import typed

PAGE = Path(__file__).resolve().parents[1] / "docs" / "new-algorithm.md"
FILES = {
    found[1]: block
    for block in re.findall(r"```(?:python|toml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    if (found := re.match(r"# (\S+)", block))
}
STREAM = Synthetic(clients=8, features=10, test=20)


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def read(algorithm, **more):
    return Federation.from_table({"problem": {"kind": "synthetic"}, "algorithm": algorithm, **more})


def test_every_family_is_filled_by_name():
    kinds = {"learn": {"kind": "online-step", "step": 0.1}, "mix": {"kind": "trimmed-mean", "share": 0.3}}
    federation = read({"kind": "pao-fed", **kinds, "share": {"kind": "whole"}, "protect": {"kind": "openly"}})
    own = federation.algorithm
    assert own.learn == OnlineStep(step=0.1) and own.mix == TrimmedMean(share=0.3) and own.share == Whole()
    parts = own.parts(Federation(STREAM, own).setup())
    assert parts.mix == own.mix and parts.protect.where == "nowhere"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_part_is_read_and_written(family):
    for kind, cls in FAMILIES[family].items():
        federation = read({"kind": "composed", family: {"kind": kind}})
        assert type(getattr(federation.algorithm, family)) is cls and kind_of(cls()) == kind
        again = Federation.from_table(tomllib.loads(federation.to_toml()))
        assert again.algorithm == federation.algorithm


def test_what_is_wrong_in_parts_is_said_at_once():
    with pytest.raises(BadInput) as found:
        read({"kind": "pao-fed", "mix": {"kind": "trimed-mean"}, "share": {"kind": "portions", "size": 0}})
    said = [str(finding) for finding in found.value.findings]
    assert len(said) == 2 and "algorithm.share.size = 0" in said[0] and '"trimmed-mean"' in said[1]
    with pytest.raises(BadInput, match=r"algorithm.mix = 3"):
        read({"kind": "pao-fed", "mix": 3})
    with pytest.raises(BadInput, match=r"algorithm.mix.shair"):
        read({"kind": "pao-fed", "mix": {"kind": "krum", "shair": 0.1}})


def test_composed_has_defaults_and_is_what_a_kind_is():
    named = Federation(STREAM, PaoFed(step=0.3, portion=3, limit=10), rounds=30, engine="plain")
    setup = named.setup()
    parts = PaoFed(step=0.3, portion=3).parts(setup)
    same = named.with_(algorithm=Algorithm(learn=parts.learn, share=parts.share, mix=parts.mix))
    assert named.run().final("mse") == same.run().final("mse")
    assert Algorithm().parts(setup)[:4] == (OnlineStep(), parts.protect, Whole(), Mean())
    private = Federation(STREAM, Algorithm(), privacy=Privacy(epsilon=1.0, clip=0.5), rounds=5)
    assert Algorithm().parts(private.setup()).protect.where == "sample"


def test_the_files_of_the_page_are_short():
    for name in ("my_learn.py", "my_share.py", "my_mix.py"):
        lines = [
            line for line in FILES[name].splitlines() if line.strip() and not line.startswith(("#", "from", "import"))
        ]
        assert len(lines) < 30, name


def test_parts_of_a_users_files_run_and_are_written_back(folder):
    federation = Federation.load(folder / "own.toml", rounds=20)
    assert type(federation.algorithm.mix).__name__ == "Damped"
    check_algorithm(federation, parallel=True)
    again = Federation.from_table(tomllib.loads(federation.to_toml()))
    assert again.algorithm == federation.algorithm
    assert federation.with_(rounds=100).run().final("mse") < federation.with_(rounds=2).run().final("mse")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "moved.toml").write_text(moved(federation.to_toml(), elsewhere))
    assert 'kind = "../my_mix.py:Damped"' in (elsewhere / "moved.toml").read_text()
    assert Federation.load(elsewhere / "moved.toml").algorithm == federation.algorithm


def test_a_kernel_of_a_users_file_is_found_in_the_cache(folder, monkeypatch):
    script = (
        "import sys, archipel\n"
        "from archipel.simulate.compile import prepare_cache\n"
        "f = archipel.Federation.load(sys.argv[1], rounds=3, engine='serial')\n"
        "print(prepare_cache())\n"
        "if len(sys.argv) == 2:\n"
        "    e = f.engine_of(f.instance())\n"
        "    e.advance(0, 3)\n"
        "    print(sum(e.kernel.stats.cache_hits.values()))\n"
    )
    monkeypatch.setenv("ARCHIPEL_CACHE", str(folder / "cache"))
    moved_to = folder.parent / f"{folder.name}-moved"  # the same files in another place
    shutil.copytree(folder, moved_to)

    def found(*words):
        command = [sys.executable, "-c", script, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    (kept, none), (again, one) = (found(str(folder / "own.toml")) for _ in range(2))
    assert kept == again and (none, one) == ("0", "1")
    assert found(str(moved_to / "own.toml"), "only where") != [kept]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("nowhere.py:Mix", "a Python file that exists"),
        ("my_mix.py:Dampd", 'a class or function of my_mix.py: "Damped"'),
        ("broken.py:Mix", "broken.py that Python can load \\(ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_users_file_is_a_sentence(kind, sentence, folder):
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "wrong.toml").write_text(FILES["own.toml"].replace("my_mix.py:Damped", kind))
    with pytest.raises(BadInput, match=sentence) as found:
        Federation.load(folder / "wrong.toml")
    assert "algorithm.mix.kind" in str(found.value)


@pytest.mark.parametrize(
    ("before", "after"), [("def make(", "def mkae("), ("setup, share, place", "setup"), ("return MixPiece", "MixPiece")]
)
def test_a_class_that_is_no_part_is_told_what_one_is(before, after, folder):
    (folder / "other_mix.py").write_text(FILES["my_mix.py"].replace(before, after))
    (folder / "wrong.toml").write_text(FILES["own.toml"].replace("my_mix.py", "other_mix.py"))
    with pytest.raises(BadInput, match=r"mix\.kind.*a part whose make\(setup, share, place\) returns a MixPiece"):
        Federation.load(folder / "wrong.toml").instance()


@pytest.mark.parametrize(
    ("name", "before", "after", "sentence"),
    [
        (
            "learn",
            "settings, moment):\n        scale",
            "settings):\n        scale",
            "has learn(me, data, settings, moment)",
        ),
        ("learn", "np.zeros(setup.task.size, setup.dtype)", "np.zeros(3)", "array of the model's 10 parameters"),
        ("learn", "np.zeros(setup.task.size, setup.dtype)", "None", "array of the model's 10 parameters"),
        (
            "learn",
            "empty(setup.task.clients)",
            "empty(5)",
            "has state, a named tuple of arrays of numbers with 12 rows",
        ),
        ("learn", "empty(setup.task.clients)", "None", "has state, a named tuple"),
        ("learn", '"stream"', '"strem"', 'data_kind, one of "stream", "stored", "deep"'),
        ("learn", "@dataclass(frozen=True)", "", "a class under @dataclass(frozen=True)"),
        ("share", "said, factor, settings)", "said, factor)", "has fold(total, count, said, factor, settings)"),
        ("share", "np.zeros(size, np.int8)", "np.zeros(size, object)", "has word, a named tuple of arrays"),
        ("share", "size, size)", '"many", size)', "has parameters, a number that is not negative"),
        ("mix", "def finish(me, inbox, settings, moment)", "def finish(me, inbox)", "has finish(me, inbox, settings"),
        ("mix", "sums(place)", "None", "has inbox, a named tuple of arrays"),
        ("mix", "empty(place.receivers), settings", "empty(1), settings", "with 12 rows"),
        ("mix", "empty(place.receivers), settings", "empty(place.receivers), settings, -3", "has late, a whole number"),
        ("mix", "empty(place.receivers), settings", "empty(place.receivers), {}", "has settings, a named tuple"),
        ("mix", "def one_way(self)", "def two_ways(self)", "one_way(), which is needed here"),
        ("mix", "def across(self)", "def along(self)", "across(), which is needed here"),
    ],
)
def test_a_piece_that_does_not_fit_is_told_what_would(name, before, after, sentence, folder):
    own, described = FILES[f"my_{name}.py"], FILES["own.toml"].replace("features = 20", "features = 10")
    assert before in own
    (folder / f"other_{name}.py").write_text(own.replace(before, after))
    kind = {"one_way": "digraph", "across(": "servers"}.get(sentence[:7], "peers")
    described = described.replace('"peers" ', f'"{kind}" ').replace(f"my_{name}.py", f"other_{name}.py")
    described = described.replace("mean_degree = 4.0", "") if kind != "peers" else described
    (folder / "wrong.toml").write_text(described)
    with pytest.raises(BadInput) as found:
        Federation.load(folder / "wrong.toml").instance()
    assert sentence in str(found.value) and f"algorithm.{name}.kind" in str(found.value)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"mix": Mean}, 'algorithm.mix.kind = "Mean, a class": expected a part: Mean\\(...\\)'),
        ({"learn": "online-step"}, r"algorithm\.learn\.kind .*returns a LearnPiece"),
        ({"mix": Whole()}, "this one is for algorithm.share"),
        ({"protect": Mean()}, "this one is for algorithm.mix"),
        ({"ask": Mean()}, r"algorithm\.ask\.kind .*returns an AskPiece"),
        ({"mix": Momentum(over=Whole())}, r"algorithm\.mix\.over\.kind .*this one is for algorithm\.share"),
    ],
)
def test_what_is_no_part_of_its_family_is_refused(parts, sentence):
    with pytest.raises(BadInput, match=sentence):
        Federation(STREAM, Algorithm(**parts)).instance()


def test_what_a_file_does_wrong_is_a_sentence_with_its_line_and_ends_with_status_2(folder):
    own = FILES["my_mix.py"]
    line = 1 + own[: own.index("    for j")].count("\n")
    (folder / "my_mix.py").write_text(own.replace("    for j", "    1 // (moment.round - 1)\n    for j", 1))
    for engine in ("plain", "serial"):
        text = FILES["own.toml"].replace("rounds = 100", f'rounds = 3\nengine = "{engine}"')
        (folder / "wrong.toml").write_text(text)
        told = typed("run", "wrong.toml", "--out", "out", cwd=folder)
        assert told.returncode == 2 and "ZeroDivisionError" in told.stderr
        said = f"my_mix.py, line {line}, in finish" if engine == "plain" else 'in rounds 0 to 2; engine = "plain" says'
        assert said in told.stderr and "in round" in told.stderr and "Traceback" not in told.stderr


def test_what_our_own_files_do_wrong_keeps_its_traceback(folder, monkeypatch):
    def wrong(*given, **more):
        raise ZeroDivisionError

    Federation.load(folder / "own.toml")  # a user's file is there, and is not to blame
    monkeypatch.setattr(Federation, "run", wrong)
    with pytest.raises(ZeroDivisionError):
        typed("run", "own.toml", "--out", "out", cwd=folder)


def test_parts_below_and_beside_others_are_looked_for_beside_the_description(folder):
    table = '[algorithm.mix]\nkind = "momentum"\n[algorithm.mix.over]\nkind = "my_mix.py:Damped"\n'
    ask = '[algorithm.ask]\nkind = "my_ask.py:Mine"\n'
    (folder / "my_ask.py").write_text(
        "from dataclasses import dataclass\nfrom archipel.parts.ask.drawn import Drawn\n"
        "@dataclass(frozen=True)\nclass Mine(Drawn):\n    pass\n"
    )
    stream = '[problem]\nkind = "synthetic"\n[algorithm]\nkind = "online-fed"\n'
    (folder / "over.toml").write_text(stream + table + ask)
    own = Federation.load(folder / "over.toml").algorithm
    assert type(own.mix.over).__name__ == "Damped" and type(own.ask).__name__ == "Mine"


def test_an_error_in_a_part_of_ones_own_names_the_line_the_round_and_the_node(folder):
    def failing(line, engine):
        own = FILES["my_mix.py"].replace("    for j in range", f"    {line}\n    for j in range", 1)
        (folder / f"{engine}_mix.py").write_text(own)
        described = (
            FILES["own.toml"].replace("my_mix.py", f"{engine}_mix.py").replace("# own", f'engine = "{engine}" #')
        )
        (folder / "wrong.toml").write_text(described)
        with pytest.raises(Exception) as found:  # the compiler's, or Python's
            Federation.load(folder / "wrong.toml").run()
        return "\n".join(found.value.__notes__)

    said = failing("1 // (0 if moment.node == 5 and moment.round > 1 else 1)", "plain")
    assert re.fullmatch(r"in round ([2-9]|\d\d), at peer 5", said)
    said = failing("names = {}", "serial")
    assert said.startswith("Node functions cannot use this") and 'serial_mix.py", line' in said
    assert "names = {}" in said and "crew.py" not in said


def test_an_algorithm_and_a_problem_may_be_a_users_too(folder):
    (folder / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom archipel.algorithms.online import PaoFed\n"
        "from archipel.problems.synthetic import Synthetic\n"
        "@dataclass(frozen=True)\nclass Mine(PaoFed):\n    step: float = 0.1\n"
        "@dataclass(frozen=True)\nclass Few(Synthetic):\n    clients: int = 5\n"
    )
    (folder / "mine.toml").write_text(
        'rounds = 5\n[problem]\nkind = "mine.py:Few"\nfeatures = 6\ntest = 9\n'
        '[algorithm]\nkind = "mine.py:Mine"\n[algorithm.mix]\nkind = "median"\n'
    )
    federation = Federation.load(folder / "mine.toml")
    assert federation.algorithm.step == 0.1 and federation.problem.clients == 5
    assert np.isfinite(federation.with_(engine="plain").run().final("mse"))
    assert Federation.from_table(tomllib.loads(federation.to_toml())).algorithm == federation.algorithm


def test_parts_make_a_different_deployment():
    from archipel.deploy.roster import shared

    several = [
        Federation(STREAM, Algorithm(mix=mix, share=Portions(2)), Peers()) for mix in (None, Mean(), TrimmedMean())
    ]
    assert len({str(shared(federation)) for federation in several}) == 3


def test_what_is_no_problem_is_told_what_one_is():
    class Mine:
        def task(self, *given): ...

    with pytest.raises(
        BadInput, match=r"problem = \"Mine\": expected the problem, an archipel\.problems\.task\.Problem"
    ):
        Federation(Mine(), PaoFed())
