"""The [privacy] table: what it refuses, and that its noise spends exactly what was asked for."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.describe import as_table, fill
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.privacy import pieces
from archipel.privacy.accountant import Accountant, planned_of, spend_all
from archipel.privacy.accounting import record
from archipel.privacy.bounding import Bounds
from archipel.privacy.policy import SILENT, Privacy, Range, amounts, laplace_epsilon, release_costs
from archipel.privacy.releases import Gaussian, Laplace
from reference import zcdp_nfl as proved


def read(**table):
    return fill(Privacy, table, "privacy")


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({}, "a target, epsilon or rho, or the noise itself"),
        ({"epsilon": -1.0}, "privacy.epsilon = -1.0: expected a positive"),
        ({"epsilon": 1e-300}, "a positive, finite number, at least 1e-06"),
        ({"rho": 1e-13}, "at least 1e-12"),
        ({"epsilon": {"others": 1e-9}}, "privacy.epsilon.others = 1e-09"),
        ({"epsilon": 0}, "positive"),
        ({"epsilon": [1.0, -2.0]}, "privacy.epsilon = -2.0"),
        ({"epsilon": {"low": 3.0, "high": 1.0}}, "low end"),
        ({"epsilon": math.inf}, "finite"),
        ({"epsilon": "one"}, "a number"),
        ({"epsilon": 1.0, "delta": 0.0}, "strictly between 0 and 1"),
        ({"epsilon": 1.0, "delta": 1.0}, "strictly between 0 and 1"),
        ({"rho": -0.1}, "positive"),
        ({"rho": 0.1, "epsilon": 1.0}, "either epsilon"),
        ({"noise": -1.0}, "at least 0"),
        ({"noise": math.inf}, "finite"),
        ({"epsilon": 1.0, "mechanism": "gausian"}, "gaussian"),
        ({"epsilon": 1.0, "schedule": "geometric"}, "strictly between 0 and 1"),
        ({"epsilon": 1.0, "schedule": "geometric", "zeta": 1.5}, "above 0, at most 1"),
        ({"epsilon": 1.0, "zeta": 0.5}, "geometric"),
        ({"epsilon": 1.0, "schedule": "linear"}, "a list, each a number"),
        ({"schedule": [1.0, -1.0]}, "at least 0"),
        ({"epsilon": 1.0, "unit": "row"}, "sample"),
        ({"epsilon": 1.0, "relation": "swap"}, "replace-one"),
        ({"epsilon": 1.0, "clip": 0.0}, "positive bound"),
        ({"epsilon": 1.0, "clip": -1.0}, "positive bound"),
        ({"epsilon": 1.0, "bounds": {"features": -1.0}}, "positive bound"),
        ({"epsilon": 1.0, "releases": -1}, "number of releases"),
        ({"rho": 1.0, "calibration": "corollary"}, "exact"),
        ({"epsilon": 1.0, "clipp": 1.0}, "clip"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(table, sentence):
    with pytest.raises(BadInput, match=sentence):
        read(**table)


@pytest.mark.parametrize(
    ("loss", "table"),
    [
        ("squared", {"epsilon": 1.0}),
        ("squared", {"epsilon": 1.0, "bounds": {"features": 1.0, "target": 1.0}}),
        ("absolute", {"epsilon": 1.0, "bounds": {"target": 1.0}}),
    ],
)
def test_an_infinite_sensitivity_is_refused(loss, table):
    with pytest.raises(BadInput, match="infinite sensitivity"):
        read(**table).gradient_bound(loss, 3)
    with pytest.raises(BadInput, match="infinite sensitivity"):
        read(**table).noise_of([[math.inf]], 2, 10, 1)


def test_bounds_imply_a_gradient_bound():
    bounded = {"bounds": {"features": 2.0, "target": 3.0, "radius": 1.5}}
    assert read(noise=1.0, **bounded).gradient_bound("squared", 9) == 2 * (2 * 1.5 + 3) * 2
    assert read(noise=1.0, mechanism="laplace", **bounded).gradient_bound("squared", 9) == 3 * 24
    assert read(noise=1.0, clip=0.5, **bounded).gradient_bound("squared", 9) == 0.5
    assert read(noise=1.0, bounds={"features": 2.0}).gradient_bound("absolute", 9) == 2.0


def test_a_federation_whose_algorithm_cannot_count_refuses_the_table():
    from archipel import PaoFed, Synthetic
    from archipel.parts.protect.openly import Openly

    openly = PaoFed(protect=Openly())
    with pytest.raises(BadInput, match="a part that protects"):
        Federation(Synthetic(clients=4, features=8), openly, privacy=Privacy(epsilon=1.0, clip=1.0)).instance()


@pytest.mark.parametrize(
    "privacy",
    [
        Privacy(epsilon=1.0),
        Privacy(epsilon=(1.0, 2.0), clip=0.5, unit="client"),
        Privacy(rho=Range(0.1, 0.2), bounds=Bounds(features=1.0)),
        Privacy(schedule=(1.0, 0.5), enforce=False),
    ],
)
def test_a_table_survives_the_way_to_toml_and_back(privacy):
    import tomllib

    from archipel.describe import write_toml

    again = tomllib.loads(write_toml({"privacy": as_table(privacy)}))
    assert fill(Privacy, again["privacy"], "privacy") == privacy


def test_everyones_own_budget():
    assert amounts(2.0, "", 3, 1).tolist() == [2, 2, 2]
    assert amounts((1.0, 2.0, 3.0), "", 3, 1).tolist() == [1, 2, 3]
    drawn = amounts(Range(1.0, 4.0), "", 2000, 1)
    assert drawn.min() >= 1 and drawn.max() <= 4 and abs(drawn.mean() - 2.5) < 4 * 3 / math.sqrt(12 * 2000)
    assert (drawn == amounts(Range(1.0, 4.0), "", 2000, 1)).all()
    assert (drawn != amounts(Range(1.0, 4.0), "", 2000, 2)).all()
    with pytest.raises(BadInput, match="one for each of the 3 clients"):
        amounts((1.0, 2.0), "privacy.epsilon", 3, 1)


# --- calibration ----------------------------------------------------------------------------------------------------


def forecast(privacy, sensitivities, rounds, clients=3):
    noise = privacy.noise_of(sensitivities, clients, rounds, 1)
    costs = release_costs(noise.law, sensitivities, noise.first * noise.shape)
    return noise, Accountant(privacy, privacy.terms(), 1, (), *spend_all(costs, noise.limit), noise.alike).forecast()


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.1, 20), st.floats(1e-9, 0.1), st.integers(1, 300), st.sampled_from([1.0, 0.999, 0.9]), st.floats(0, 1)
)
def test_gaussian_noise_spends_the_target_and_never_more(epsilon, delta, rounds, zeta, decay):
    schedule = {"schedule": "geometric", "zeta": zeta} if zeta < 1 else {}
    privacy = Privacy(epsilon=epsilon, delta=delta, **schedule)
    sizes = proved.sensitivity(1.0, 50, 2.0, np.array([[2], [3], [5]]), 0.4 / np.arange(1, rounds + 1) ** decay)
    noise, paid = forecast(privacy, sizes, rounds)
    assert (paid.releases == rounds).all()
    assert (paid.epsilon <= epsilon).all() and (paid.epsilon >= epsilon * (1 - 1e-6)).all()
    released = record(*[Gaussian(s / (noise.first[1, 0] * f)) for s, f in zip(sizes[1], noise.shape)])
    assert released.epsilon(delta).epsilon == pytest.approx(epsilon, rel=1e-6)


def test_zcdp_targets_are_sums():
    sizes = np.linspace(0.1, 0.3, 50)[None]
    noise, paid = forecast(Privacy(rho=0.7), sizes, 50)
    assert paid.rho == pytest.approx(0.7, rel=1e-8)
    assert (sizes**2 / (2 * noise.first[0] ** 2)).sum() == pytest.approx(0.7, rel=1e-8)


@pytest.mark.parametrize("sizes", [np.full((1, 12), 0.2), np.linspace(0.1, 0.3, 12)[None]], ids=["alike", "growing"])
@pytest.mark.parametrize("target", [{"epsilon": 1.0}, {"epsilon": 8.0}, {"rho": 0.4}])
def test_laplace_noise_stays_within_its_target(sizes, target):
    noise, paid = forecast(Privacy(mechanism="laplace", **target), sizes, 12, clients=2)
    assert (paid.releases == 12).all()
    released = record(*[Laplace(s / noise.first[0, 0]) for s in sizes[0]])
    if "rho" in target:
        assert released.rho() == pytest.approx(0.4, rel=1e-6)
    else:
        assert paid.epsilon.max() <= target["epsilon"]
        assert released.epsilon(1e-5).epsilon <= paid.epsilon.max() * (1 + 1e-9)


def test_laplace_costs_the_other_way_round():
    for epsilon in (0.01, 1.0, 1.99, 2.0, 2.5, 10.0):
        cost = float(release_costs(2, epsilon, 1.0))
        assert laplace_epsilon(cost) == pytest.approx(epsilon)


def test_noise_that_is_given_is_used_and_the_target_is_a_limit():
    noise, paid = forecast(Privacy(noise=(0.5, 1.0, 2.0), epsilon=2.0), np.full((1, 500), 0.2), 500)
    assert noise.first[:, 0].tolist() == [0.5, 1.0, 2.0]
    assert (paid.epsilon <= 2.0).all() and (paid.releases < 500).any() and (np.diff(paid.releases) > 0).all()
    one_more = record(Gaussian(0.2 / 0.5)) * int(paid.releases[0] + 1)
    assert one_more.epsilon(1e-5).epsilon > 2.0


def test_laplace_noise_that_is_given_stops_at_the_last_release_that_fits():
    _, paid = forecast(Privacy(mechanism="laplace", noise=1.0, epsilon=1.0), np.full((1, 60), 0.2), 60, clients=1)
    count = int(paid.releases[0])
    assert 0 < count < 60
    assert (record(Laplace(0.2)) * count).epsilon(1e-5).epsilon <= 1.0
    assert (record(Laplace(0.2)) * (count + 1)).epsilon(1e-5).epsilon > 1.0


def test_ones_own_schedule_is_silent_beyond_its_end():
    privacy = Privacy(schedule=(0.5, 0.25))
    assert privacy.shape(4).tolist() == [0.5, 0.25, SILENT, SILENT]
    assert privacy.noise_of([[0.1]], 2, 4, 1).first[:, 0].tolist() == [1.0, 1.0]
    shaped = Privacy(epsilon=1.0, schedule=(4.0, 2.0, 1.0)).noise_of([[0.1]], 1, 3, 1)
    released = record(*[Gaussian(0.1 / (shaped.first[0, 0] * f)) for f in (4.0, 2.0, 1.0)])
    assert released.epsilon(1e-5).epsilon == pytest.approx(1.0, rel=1e-6)


def test_where_every_sample_pays_for_itself_the_length_of_the_stream_does_not_matter():
    short, long = (Privacy(epsilon=1.0).noise_of([[0.1]], 1, n, 1, per_sample=True).first[0, 0] for n in (10, 1000))
    assert short == long
    assert record(Gaussian(0.1 / short)).epsilon(1e-5).epsilon == pytest.approx(1.0, rel=1e-6)


def test_planned_releases_are_what_the_noise_is_for():
    few, all_ = (Privacy(epsilon=1.0, releases=r).noise_of([[0.1]], 1, 100, 1).first[0, 0] for r in (25, 0))
    assert all_ == pytest.approx(2 * few)


def test_the_published_rules_never_cost_more_than_they_say():
    """The corollary's and the per-round calibration both waste noise: the exact accountant finds less than asked."""
    spent = {}
    for rule in ("exact", "corollary", "per-round"):
        _, paid = forecast(Privacy(epsilon=1.0, calibration=rule), np.full((1, 100), 0.1), 100)
        spent[rule] = paid.epsilon.max()
    assert spent["per-round"] < spent["corollary"] < spent["exact"] == pytest.approx(1.0, rel=1e-6)
    phi = forecast(Privacy(epsilon=1.0, calibration="corollary"), np.full((1, 100), 0.1), 100)[1].rho[0]
    assert phi + 2 * math.sqrt(phi * math.log(1e5)) == pytest.approx(1.0, rel=1e-6)


def test_what_is_declared_but_not_enforced_says_so():
    assert read(epsilon=1.0, clip=2.0).terms().how == "enforced"
    assert read(epsilon=1.0, clip=2.0, enforce=False).terms().how == "assumed"
    assert read(epsilon=1.0, clip=2.0, enforce=False).guard().clip == math.inf


@pytest.mark.parametrize(
    "policy",
    [
        Privacy(rho=Range(0.5, 2.0)),
        Privacy(epsilon=Range(0.5, 2.0), schedule="geometric", zeta=0.99),
        Privacy(epsilon=1.0, mechanism="laplace"),
        Privacy(rho=1.0, mechanism="laplace", releases=20),
        Privacy(epsilon=3.0, noise=2.0),
        Privacy(noise=Range(0.5, 1.0)),
    ],
)
@pytest.mark.parametrize("rows", [1, 7])
def test_clients_are_priced_a_few_at_a_time(policy, rows, monkeypatch):
    """However many at a time: the same noise, limits and plans."""
    sizes = np.random.default_rng(1).uniform(0.1, 1.0, (rows, 30))
    whole = policy.noise_of(sizes, 7, 30, 1)
    plan = planned_of(whole, sizes)
    costs = release_costs(whole.law, sizes, whole.first * whole.shape)
    np.testing.assert_array_equal(plan, spend_all(costs, whole.limit))
    monkeypatch.setattr(pieces, "PIECE", 70)
    few = policy.noise_of(lambda part: sizes[part if rows > 1 else slice(None)], 7, 30, 1)
    for one, other in zip((*whole, *plan), (*few, *planned_of(few, sizes))):
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_no_table_of_all_clients_and_rounds_is_made(monkeypatch):
    clients, rounds = 2000, 1000
    monkeypatch.setattr(pieces, "PIECE", 1 << 17)
    own, in_round = np.linspace(1, 2, clients)[:, None], np.linspace(1, 3, rounds)
    tracemalloc.start()
    noise = Privacy(rho=1.0).noise_of(lambda part: own[part] * in_round, clients, rounds, 1)
    planned_of(noise, lambda part: own[part] * in_round)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < clients * rounds * 8 / 2
