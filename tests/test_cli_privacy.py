"""archipel privacy and archipel audit."""

import json
import sys
from types import SimpleNamespace

import pytest

from archipel.cli import main

DESCRIPTION = """
rounds = 30
[problem]
kind = "regression"
clients = 5
samples = 6
size = 3
[topology]
kind = "peers"
shape = "ring"
[algorithm]
kind = "zcdp-nfl"
[privacy]
epsilon = [0.5, 1.0, 2.0, 4.0, 8.0]
delta = 1e-6
clip = 1.0
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "federation.toml").write_text(DESCRIPTION)
    return tmp_path


@pytest.fixture
def archipel(folder, monkeypatch, capsys):
    """The command line in this process: its status and what it printed."""

    def call(*arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["archipel", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return SimpleNamespace(status=ended.value.code or 0, **capsys.readouterr()._asdict())

    return call


def test_it_says_what_each_client_will_have_paid_before_anything_runs(archipel):
    told = archipel("privacy", "federation.toml")
    assert told.status == 0
    for word in ("one sample", "replace-one", "enforced", "zCDP", "epsilon at 1e-06", "client-4", "30"):
        assert word in told.out, told.out
    outlook = json.loads(archipel("privacy", "federation.toml", "--json").out)
    budgets = [0.5, 1.0, 2.0, 4.0, 8.0]
    assert [node["spent"]["epsilon"] for node in outlook["nodes"]] == pytest.approx(budgets, rel=1e-6)
    assert [node["budget"]["epsilon"] for node in outlook["nodes"]] == budgets
    assert {node["releases"] for node in outlook["nodes"]} == {30}
    assert outlook["worst"]["epsilon"] == pytest.approx(8.0, rel=1e-6)


def test_it_says_assumed_where_nothing_is_enforced(folder, archipel):
    (folder / "federation.toml").write_text(DESCRIPTION + "enforce = false\n")
    told = archipel("privacy", "federation.toml").out
    assert "Guarantee: assumed" in told and "no guarantee" in told and "enforced" not in told


def test_no_table_no_claim(folder, archipel):
    (folder / "federation.toml").write_text(DESCRIPTION.split("[privacy]")[0])
    assert "nothing is protected" in archipel("privacy", "federation.toml").out
    refused = archipel("audit", "federation.toml")
    assert refused.status == 2 and "no claim to audit" in refused.err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("epsilon = -1.0", "privacy.epsilon = -1.0: expected a positive"),
        ("epsilon = 1.0\ndelta = 0.0", "privacy.delta = 0.0"),
        ("epsilon = 1.0\ndelta = 1.0", "privacy.delta = 1.0"),
        ("epsilon = 1.0", "infinite sensitivity"),
    ],
)
def test_bad_tables_end_with_status_2(folder, archipel, line, sentence):
    (folder / "federation.toml").write_text(DESCRIPTION.split("[privacy]")[0] + "[privacy]\n" + line + "\n")
    refused = archipel("privacy", "federation.toml")
    assert refused.status == 2 and sentence in refused.err.replace("\n", " ")


@pytest.mark.long
def test_an_audit_ends_well_where_the_guarantee_holds(archipel):
    told = archipel("audit", "federation.toml", "--releases", "20000", "--json")
    assert told.status == 0, told.err
    worst, typical = json.loads(told.out)
    assert worst["found"] <= worst["claimed"] == pytest.approx(8.0, rel=1e-6)
    assert not typical["refuted"]
