"""Fifty random histories: within a hundredth of dp-accounting's best, never below what it knows to be spent."""

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as plds
from dp_accounting.rdp import RdpAccountant

from archipel.privacy.accounting import record
from archipel.privacy.releases import Gaussian, Laplace, Sampled


def history_of(seed):
    """One to three kinds of releases, each many times: ours, and as events."""
    draw = np.random.default_rng(seed)
    ours, theirs = record(), []
    kinds = draw.choice(["gaussian", "laplace", "sampled", "sampled laplace"], draw.integers(1, 4), replace=False)
    for kind in kinds:
        times = int(draw.integers(1, 300))
        size = float(np.exp(draw.uniform(-3, 0.5)) / np.sqrt(times))
        rate = float(draw.uniform(0.01, 0.5))
        if "sampled" in kind:
            size = min(size / rate, 3.0)
        laplace = "laplace" in kind
        event = dp.LaplaceDpEvent(1 / size) if laplace else dp.GaussianDpEvent(1 / size)
        release = Laplace(size) if laplace else Gaussian(size)
        if "sampled" in kind:
            event, release = dp.PoissonSampledDpEvent(rate, event), Sampled(rate, release)
        ours = ours + record(release) * times
        theirs.append((event, times))
    return ours, theirs, float(10 ** draw.uniform(-8, -3))


def by_theirs(accountant, events, delta):
    try:
        for event, times in events:
            accountant.compose(event, times)
        return float(accountant.get_epsilon(delta))
    except (dp.UnsupportedEventError, ValueError):
        return np.inf


def at_least(events, delta, epsilon):
    """A lower bound of epsilon: the same distributions, rounded down."""
    grid, total = epsilon / 4000, None
    for event, times in events:
        rate, inner = 1.0, event
        if isinstance(event, dp.PoissonSampledDpEvent):
            rate, inner = event.sampling_probability, event.event
        make = plds.from_laplace_mechanism if isinstance(inner, dp.LaplaceDpEvent) else plds.from_gaussian_mechanism
        one = make(inner.noise_multiplier, pessimistic_estimate=False, value_discretization_interval=grid,
                   sampling_prob=rate).self_compose(times)  # fmt: skip
        total = one if total is None else total.compose(one)
    return float(total.get_epsilon_for_delta(delta))


@pytest.mark.parametrize("first", [0, pytest.param(10, marks=pytest.mark.long)])
def test_fifty_histories(first):
    for seed in range(first, 10 if first == 0 else 50):
        ours, events, delta = history_of(seed)
        found = ours.epsilon(delta).epsilon
        accountants = PLDAccountant(value_discretization_interval=max(found, 1e-3) / 4000), RdpAccountant()
        best = min(by_theirs(accountant, events, delta) for accountant in accountants)
        assert found <= best * 1.01 + 1e-9, (seed, found, best)
        assert found >= at_least(events, delta, max(found, 1e-3)) * (1 - 1e-6), (seed, found)
