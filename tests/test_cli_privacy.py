"""archipel privacy and archipel audit."""

import io
import json

import pytest
from rich.console import Console

from archipel.cli.privacy import table_of

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


def test_what_was_taken_from_everyones_data_is_not_said_to_be_taken_from_none(tmp_path, archipel):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"{i},{i * i % 7}\n" for i in range(12)))
    problem = '[problem]\nkind = "files"\ndata = "*.csv"'
    (tmp_path / "files.toml").write_text(f'rounds = 5\n{problem}\n[algorithm]\nkind = "fedavg"\n')
    said = archipel("privacy", "files.toml").out
    assert "everyone's data: the scales of inputs and target; all of it" in said


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


def test_delta_is_measured_against_the_number_of_records(folder, archipel):
    assert "below one in 30 samples" in archipel("privacy", "federation.toml").out
    (folder / "federation.toml").write_text(DESCRIPTION.replace("delta = 1e-6", "delta = 0.05"))
    told = archipel("privacy", "federation.toml").out
    assert "too large for 30 samples" in told and "well below 0.03" in told


def test_no_table_no_claim(folder, archipel):
    (folder / "federation.toml").write_text(DESCRIPTION.split("[privacy]")[0])
    assert "nothing is protected" in archipel("privacy", "federation.toml").out
    refused = archipel("audit", "federation.toml")
    assert refused.status == 2 and "no claim to audit" in refused.err


BAD = {
    "epsilon = -1.0": "privacy.epsilon = -1.0: expected a positive",
    "epsilon = 0": "privacy.epsilon",
    "epsilon = inf": "privacy.epsilon = inf",
    "epsilon = nan": "privacy.epsilon = nan",
    'epsilon = "1"': "expected a number",
    "epsilon = true": "expected a number",
    "epsilon = []": "privacy.epsilon",
    "epsilon = [1.0, 2.0]": "one for each of the 5 clients",
    "epsilon = [1.0, -2.0, 1.0, 1.0, 1.0]": "privacy.epsilon = -2.0",
    "epsilon = { low = 2.0, high = 1.0 }": "low end is not above",
    "rho = -0.1": "privacy.rho = -0.1",
    "rho = 1.0\nepsilon = 1.0": "not both",
    "": 'privacy.epsilon = "(missing)"',
    "epsilon = 1.0\ndelta = 0.0": "privacy.delta = 0.0",
    "epsilon = 1.0\ndelta = 1.0": "privacy.delta = 1.0",
    "epsilon = 1.0\ndelta = nan": "privacy.delta = nan",
    "epsilon = 1.0\nclip = inf": "infinite sensitivity",
    "epsilon = 1.0\nclip = 0": "privacy.clip",
    "epsilon = 1.0\nclip = -1.0": "privacy.clip",
    "epsilon = 1.0\nclip = 1e300": "privacy.clip",
    "noise = -1.0": "privacy.noise",
    "noise = inf": "privacy.noise",
    'epsilon = 1.0\nschedule = "linear"': '"geometric"',
    'epsilon = 1.0\nschedule = "geometric"': "privacy.zeta",
    "epsilon = 1.0\nzeta = 0.9": "geometric",
    "epsilon = 1.0\nschedule = []": "privacy.schedule",
    "epsilon = 1.0\nschedule = [0.0, 0.0]": "noise in at least one round",
    "epsilon = 1.0\nreleases = -1": "privacy.releases",
    "epsilon = 1.0\nreleases = 1.5": "whole number",
    'rho = 1.0\ncalibration = "corollary"': "privacy.calibration",
    'epsilon = 1.0\nmechanism = "cauchy"': "gaussian, laplace",
    'epsilon = 1.0\nunit = "group"': "client, sample",
    'epsilon = 1.0\nrelation = "add-remove"': "replace-one",
    "epsilon = 1.0\nbounds = { features = -1.0 }": "privacy.bounds.features",
    "epsilon = 1.0\nbounds = { feature = 1.0 }": '"features"',
    "epsilon = 1.0\nepsilom = 1.0": '"epsilon"',
}


@pytest.mark.parametrize("table", BAD)
def test_bad_tables_end_with_one_sentence_and_status_2(folder, archipel, table):
    clipped = table if "clip" in table else table + "\nclip = 1.0"
    (folder / "federation.toml").write_text(DESCRIPTION.split("[privacy]")[0] + "[privacy]\n" + clipped + "\n")
    refused = archipel("privacy", "federation.toml")
    assert refused.status == 2 and BAD[table] in refused.err.replace("\n", " ")
    assert len(refused.err.strip().split(": expected")) == 2 and "Traceback" not in refused.err


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("clip = 1.0", "", "infinite sensitivity"),
        ('shape = "ring"', 'shape = "none"', "one piece"),
        ('shape = "ring"', "mean_degree = 0.1", "mean_degree"),
        ('"zcdp-nfl"', '"p-admm"', "enforce"),
        ("epsilon = [0.5, 1.0, 2.0, 4.0, 8.0]", "rho = 1.0", "dp-nfl"),
        ('kind = "regression"', 'kind = "regression"\nobjective = "least-absolut"', "least-absolute"),
    ],
)
def test_what_makes_no_private_federation_ends_with_status_2(folder, archipel, before, after, sentence):
    text = DESCRIPTION.replace(before, after)
    if sentence == "dp-nfl":
        text = text.replace('"zcdp-nfl"', '"dp-nfl"')
    (folder / "federation.toml").write_text(text)
    refused = archipel("privacy", "federation.toml")
    assert refused.status == 2 and sentence in refused.err.replace("\n", " "), refused.err


@pytest.mark.long
def test_an_audit_ends_well_where_the_guarantee_holds(archipel):
    told = archipel("audit", "federation.toml", "--releases", "20000", "--json")
    assert told.status == 0, told.err
    worst, typical = json.loads(told.out)
    assert worst["found"] <= worst["claimed"] == pytest.approx(8.0, rel=1e-6)
    assert not typical["refuted"]


def test_a_long_name_cuts_no_number_off():
    spent = {"rho": 1.2345, "epsilon": 7.654, "method": "the budget, at which the ledger refuses"}
    node = {"budget": {"epsilon": 8.0}, "releases": 12, "spent": spent}
    nodes = [node | {"node": name} for name in ("north", "the-general-hospital-of-the-east-by-the-river")]
    outlook = {"nodes": nodes, "delta": 1e-5, "guarantee": "enforced"}
    said = io.StringIO()
    Console(file=said, width=100).print(table_of(outlook))
    text = said.getvalue()
    assert "…" not in text and text.count("enforced") == text.count("7.654") == 2
