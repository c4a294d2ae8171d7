"""The audit finds most of what is lost, never claims more, and catches three ways of cheating."""

import numpy as np
import pytest

from archipel.errors import BadInput
from archipel.privacy.audit import (
    Counts,
    at_most,
    audit,
    gaussian_audit,
    mu_by_accuracy,
    mu_by_ranks,
    mu_by_tails,
)
from archipel.privacy.bounding import clip_l2
from archipel.privacy.gaussian import epsilon_of, mu_of
from archipel.privacy.ledger import Ledger, Terms
from archipel.privacy.releases import Gaussian

DELTA, RELEASES = 1e-5, 100_000


def normal_scores(mu, seed, n=RELEASES):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), rng.normal(size=n) + mu


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_most_of_a_gaussian_release_is_found_and_never_more_than_all(epsilon, seed):
    found = gaussian_audit(*normal_scores(mu_of(epsilon, DELTA), seed), DELTA)
    assert 0.8 * epsilon <= found.epsilon <= epsilon
    assert not found.epsilon > epsilon and found.releases == RELEASES


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("releases", ["scores", "vectors"])
def test_so_it_is_for_many_seeds(epsilon, releases):
    """30 audits of a release of one value, and of one that spreads its change over four of ten."""
    direction = np.zeros(10)
    direction[:4] = 0.5
    for seed in range(30):
        a, b = (np.random.default_rng([seed, which]).normal(size=(RELEASES, 10)) for which in (0, 1))
        b += mu_of(epsilon, DELTA) * direction
        found = (
            gaussian_audit(a, b, DELTA)
            if releases == "vectors"
            else gaussian_audit(a @ direction, b @ direction, DELTA)
        )
        assert 0.8 * epsilon <= found.epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_most_of_a_laplace_release_is_found_without_knowing_its_law(epsilon):
    rng = np.random.default_rng(5)
    found = audit(rng.laplace(size=RELEASES), rng.laplace(size=RELEASES) + epsilon, DELTA)
    assert 0.8 * epsilon <= found.epsilon <= epsilon


def test_the_direction_of_the_scores_does_not_matter():
    a, b = normal_scores(0.5, 9)
    assert gaussian_audit(a, b, DELTA).epsilon == pytest.approx(gaussian_audit(-a, -b, DELTA).epsilon, rel=1e-9)


def test_nothing_is_found_where_nothing_is_lost():
    claims = [gaussian_audit(*normal_scores(0.0, seed, 20_000), DELTA, 0.95).epsilon > 0 for seed in range(40)]
    assert sum(claims) <= 6  # two expected at 95 %; seven would happen once in 300 times


def test_the_bound_holds_with_the_confidence_it_names():
    """100 audits at 90 %: ten wrong ones allowed, and four standard deviations more."""
    for mu in (0.3, 1.5):
        wrong = [gaussian_audit(*normal_scores(mu, seed, 4000), DELTA, 0.9).mu > mu for seed in range(100)]
        assert sum(wrong) <= 10 + 4 * 3
    rng = np.random.default_rng(8)
    pairs = [(rng.laplace(size=2000), rng.laplace(size=2000) + 1) for _ in range(100)]
    assert sum(audit(a, b, DELTA, 0.9).epsilon > 1 for a, b in pairs) <= 10 + 4 * 3


def test_each_test_statistic_alone_has_its_confidence():
    mu, risk, wrong = 0.8, 0.1, np.zeros(3)
    for seed in range(200):
        a, b = normal_scores(mu, seed, 1500)
        counts = Counts((a > mu / 2).sum(), (b <= mu / 2).sum(), 1500)
        tails = Counts((a > 2).sum(), (b <= 2).sum(), 1500)
        wrong += [
            mu_by_accuracy(counts, risk) > mu,
            mu_by_tails(tails, risk) > mu,
            mu_by_ranks([(a, b)], risk) > mu,
        ]
    assert np.all(wrong <= 20 + 4 * 4.3)


def test_clopper_and_pearson_by_its_definition():
    from scipy.stats import binom

    for errors in (0, 3, 50):
        bound = float(at_most(errors, 100, 0.05))
        assert binom.cdf(errors, 100, bound) == pytest.approx(0.05, rel=1e-9)
    assert at_most(100, 100, 0.05) == 1.0


# --- a small mechanism: the mean of clipped values, released a few times ----------------------------------


def run(data, sigma, bound, rounds, n, rng):
    """`rounds` noised releases of a mean of vectors, clipped to `bound` one by one, n times over."""
    clipped = data.copy()
    for record in clipped:
        clip_l2(record, bound)
    mean = clipped.mean(0)
    return (mean + sigma * rng.normal(size=(n, rounds, mean.size))).reshape(n, -1)


NEIGHBOURS = np.zeros((2, 10, 3))  # ten records of three values; the worst case: one replaced by its opposite
NEIGHBOURS[0, 0] = [1.0, 0.0, 0.0]
NEIGHBOURS[1, 0] = [-1.0, 0.0, 0.0]
SENSITIVITY = 2 * 1.0 / 10


def claimed_and_found(sigma, real_sigma, rounds, charged, bound=1.0, data=NEIGHBOURS, n=40_000):
    """What the ledger says after `charged` releases of `sigma`, and what the audit finds in what was run."""
    ledger = Ledger("client", Terms("sample", "replace-one"))
    for moment in range(charged):
        ledger.charge(moment, Gaussian(SENSITIVITY / sigma))
    rng = np.random.default_rng(4)
    a, b = (run(d, real_sigma, bound, rounds, n, rng) for d in data)
    return ledger.epsilon(DELTA).epsilon, gaussian_audit(a, b, DELTA)


def test_an_honest_mechanism_passes_over_several_rounds():
    for rounds in (1, 4):
        claimed, found = claimed_and_found(sigma=0.4, real_sigma=0.4, rounds=rounds, charged=rounds)
        assert 0.8 * claimed <= found.epsilon <= claimed


def test_half_the_noise_is_caught():
    claimed, found = claimed_and_found(sigma=0.4, real_sigma=0.2, rounds=2, charged=2)
    assert found.epsilon > claimed and found.epsilon > 1.5 * claimed


def test_a_forgotten_charge_is_caught():
    claimed, found = claimed_and_found(sigma=0.4, real_sigma=0.4, rounds=2, charged=1)
    assert found.epsilon > claimed


def test_a_bound_that_is_not_enforced_is_caught():
    wild = NEIGHBOURS * 2.5  # records beyond the bound: harmless where it is enforced
    claimed, enforced = claimed_and_found(sigma=0.4, real_sigma=0.4, rounds=1, charged=1, data=wild)
    assert enforced.epsilon <= claimed
    claimed, assumed = claimed_and_found(sigma=0.4, real_sigma=0.4, rounds=1, charged=1, data=wild, bound=np.inf)
    assert assumed.epsilon > claimed


def test_a_rare_leak_is_found_in_the_tail():
    """One release in fifty shows its data: hardly more right answers, but a tail no such Gaussian has."""
    a, b = normal_scores(0.1, 1)
    leaks = np.random.default_rng(2).random(RELEASES) < 0.02
    found = gaussian_audit(a, np.where(leaks, 50.0, b), DELTA)
    assert "tails" in found.test and found.epsilon > 3 * epsilon_of(0.1, DELTA)
    assert audit(a, np.where(leaks, 50.0, b), DELTA).epsilon > 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: audit(np.zeros(10), np.zeros(10), DELTA),
        lambda: audit(np.zeros(1000), np.full(1000, np.nan), DELTA),
        lambda: audit(np.zeros(1000), np.zeros(1000), 0.0),
        lambda: gaussian_audit(np.zeros(1000), np.zeros(1000), DELTA, confidence=1.0),
        lambda: gaussian_audit(np.zeros((1000, 2)), np.zeros((1000, 3)), DELTA),
    ],
)
def test_too_little_to_judge_is_refused(wrong):
    with pytest.raises(BadInput, match="expected"):
        wrong()


def test_releases_without_any_noise_are_told_apart_in_many_dimensions():
    """No spread to divide by: any difference tells, and is found."""
    a, b = np.zeros((1000, 6)), np.zeros((1000, 6))
    b[:, 2] = 1e-3
    assert gaussian_audit(a, b, 1e-5).epsilon > 10 and gaussian_audit(a, a, 1e-5).epsilon == 0
