"""The accountant: paid before anything is said, never more than the limit, and the ledger it leaves."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.environment import Environment
from archipel.federation import Federation
from archipel.node import row
from archipel.privacy.account import accounts, pay
from archipel.privacy.accountant import spend_all
from archipel.privacy.accounting import record
from archipel.privacy.alike import AlikeAccountant
from archipel.privacy.ledger import Terms
from archipel.privacy.policy import Privacy, Range
from archipel.privacy.releases import Gaussian
from archipel.problems.networked import Regression
from archipel.problems.splits.shards import numbered
from archipel.topology import Peers


def paid(costs, limit, per_sample):
    me = row(accounts(1.0, [limit]), 0)
    for cost in costs:
        pay(me, cost, int(per_sample))
    return me


@given(
    st.lists(st.tuples(st.floats(0.01, 1), st.booleans()), min_size=1, max_size=12), st.floats(0.01, 4), st.booleans()
)
def test_nobody_pays_more_than_the_forecast_whichever_rounds_it_misses(rounds, limit, per_sample):
    costs = [cost for cost, _ in rounds]
    me = paid([cost for cost, there in rounds if there], limit, per_sample)
    total, count = spend_all(np.array([costs]), [limit], per_sample)
    assert me.spent[0] <= total[0] * (1 + 1e-12) and total[0] <= limit and me.releases[0] <= count[0]
    always = paid(costs, limit, per_sample)
    if per_sample or always.releases[0] == len(costs):  # the limit does not bind
        assert total[0] == pytest.approx(always.spent[0], rel=1e-12) and count[0] == always.releases[0]


@given(st.floats(0.01, 1), st.integers(1, 12), st.floats(0.01, 4))
def test_a_forecast_of_rounds_that_cost_the_same_is_what_an_account_pays(cost, rounds, limit):
    me, (total, count) = paid([cost] * rounds, limit, False), spend_all(np.full((1, rounds), cost), [limit])
    assert total[0] == me.spent[0] and count[0] == me.releases[0]


def test_who_misses_cheap_rounds_pays_for_a_dear_one():
    """Always there it pays 0.2 and falls silent; the dear round alone costs 0.9."""
    total, count = spend_all(np.array([[0.1, 0.1, 0.9]]), [1.0, 5.0, 0.05])
    assert total.tolist() == pytest.approx([1.0, 1.1, 0.0]) and count.tolist() == [2, 3, 0]


# --- ledgers of a run -----------------------------------------------------------------------------------------------


def run(privacy, rounds=40, availability=1.0, seeds=1):
    problem = Regression(clients=4, samples=5, size=3, test=5)
    parts = {"rounds": rounds, "every": 10, "environment": Environment(availability=availability), "engine": "plain"}
    return Federation(problem, ZcdpNfl(), Peers(shape="ring"), privacy=privacy, **parts).run(seeds)


def test_the_ledger_grows_over_time_and_is_written(tmp_path):
    result = run(Privacy(epsilon=Range(1.0, 3.0), clip=1.0, delta=1e-6), seeds=2)
    result.save(tmp_path)
    saved = json.loads((tmp_path / "ledger.json").read_text())
    assert saved["private"] and len(saved["seeds"]) == 2
    for ledger in saved["seeds"]:
        assert ledger["unit"] == "sample" and ledger["relation"] == "replace-one" and ledger["guarantee"] == "enforced"
        for node in ledger["nodes"]:
            over = node["over_time"]
            assert over["round"] == [0, 10, 20, 30, 40]
            assert over["rho"][0] == 0 and (np.diff(over["rho"]) > 0).all() and (np.diff(over["epsilon"]) > 0).all()
            assert over["rho"][-1] == node["spent"]["rho"]
            mu = math.sqrt(2 * node["spent"]["rho"])
            assert node["spent"]["epsilon"] == pytest.approx(record(Gaussian(mu)).epsilon(1e-6).epsilon, rel=1e-9)
            assert node["spent"]["epsilon"] <= node["budget"]["epsilon"]
    page = (tmp_path / "report.html").read_text()
    assert "what each client has paid" in page and "enforced" in page and "epsilon paid so far" in page
    rows = [row for row in result.rows if row[2] == "epsilon.node"]
    assert {row[1] for row in rows} == {0, 10, 20, 30, 40} and len(rows) == 2 * 5 * 4


def test_what_is_assumed_says_so_wherever_it_is_printed(tmp_path):
    from archipel.report import summary

    result = run(Privacy(epsilon=1.0, clip=1.0, enforce=False))
    result.save(tmp_path)
    assert "assumed" in summary(result)["privacy"]
    assert "assumed" in (tmp_path / "report.html").read_text()
    (ledger,) = json.loads((tmp_path / "ledger.json").read_text())["seeds"]
    assert ledger["guarantee"] == "assumed" and {node["guarantee"] for node in ledger["nodes"]} == {"assumed"}


def test_no_noise_is_written_as_no_guarantee(tmp_path):
    result = run(Privacy(noise=0.0))
    result.save(tmp_path)
    (ledger,) = json.loads((tmp_path / "ledger.json").read_text())["seeds"]
    assert ledger["worst"]["epsilon"] is None
    assert "nothing is protected" in ledger["nodes"][0]["spent"]["method"]


def test_who_is_away_pays_nothing():
    (ledger,) = run(Privacy(noise=0.5, clip=1.0), availability=0.4).ledgers
    (whole,) = run(Privacy(noise=0.5, clip=1.0)).ledgers
    for some, all_ in zip(ledger["nodes"], whole["nodes"]):
        assert 0 < some["releases"] < all_["releases"] == 40
        assert some["spent"]["rho"] < all_["spent"]["rho"]


def test_a_million_clients_fit_into_a_ledger():
    """Of many clients one entry stands for all whose numbers are the same."""
    from archipel import PaoFed, Synthetic

    privacy = Privacy(noise=2.0, clip=0.5, epsilon=1.0, unit="client")
    described = Federation(Synthetic(clients=1200, features=4, test=5), PaoFed(portion=2), privacy=privacy, rounds=6)
    result = described.with_(engine="plain", every=3).run()
    (ledger,) = result.ledgers
    assert sum(node["clients"] for node in ledger["nodes"]) == 1200
    assert 1 < len(ledger["nodes"]) <= 7
    table = described.instance().plan.accountant.outlook()
    assert [node["clients"] for node in table["nodes"]] == [1200]
    result.pictures()


def test_many_clients_of_any_accountant_are_written_once_where_their_numbers_are_the_same():
    many = 1200
    terms = Terms("sample", "add-remove")
    found = AlikeAccountant((Gaussian(0.1),) * many, terms, 1e-5, numbered(many), 3, "client", 1.0).outlook()
    assert [node["clients"] for node in found["nodes"]] == [many] and found["worst"]["epsilon"] > 0
