"""What is said of learning curves: differences in dB, their standard errors, and when a sentence holds."""

import numpy as np
import pytest

from archipel.figures import learning
from archipel.figures.learning import (
    START,
    Runs,
    alike,
    all_of,
    beginning,
    better,
    gap,
    level,
    reaches,
    saving,
    settled,
)
from archipel.results import Result


def runs_of(errors, label="a", rounds=None, parameters=1.0, octets=1.0):
    errors = np.asarray(errors, float)
    rounds = np.arange(errors.shape[1]) if rounds is None else np.asarray(rounds)
    return Runs(label, 0.1, rounds, errors, parameters, octets)


def constant(values, label="a"):
    return runs_of(np.repeat(np.asarray(values, float)[:, None], 3, 1), label)


def test_runs_are_read_from_a_result():
    rows = [(seed, n, "mse", 10.0 * seed + n, "") for n in (0, 5, 8) for seed in (3, 2)]
    rows += [(seed, 8, f"{what}.{way}", 7.0, "") for seed in (2, 3) for what in ("bytes", "parameters") for way in "ab"]
    runs = learning.runs_of(Result("", rows, []), "x", 0.4)["mse"]
    assert runs.errors.tolist() == [[20, 25, 28], [30, 35, 38]]
    assert (runs.parameters, runs.bytes) == (14, 14)
    rounds, curve = runs.curve()
    assert rounds == [0, 5, 8]
    assert curve == pytest.approx([10 * np.log10(mean) for mean in (25, 30, 33)])


def test_parts_of_a_run():
    rounds = np.arange(0, 2001, 20)
    runs = runs_of([np.where(rounds <= START, 5.0, np.where(rounds >= 1800, 2.0, 9.0))], rounds=rounds)
    assert beginning(runs) == [5.0]
    assert settled(runs) == [2.0]
    assert level(runs) == pytest.approx(3.0103, abs=1e-4)


def test_a_difference_of_the_same_ratio_in_every_seed_has_no_error():
    errors = np.array([0.1, 0.2, 0.5])
    difference, error = gap(2 * errors, errors)
    assert difference == pytest.approx(10 * np.log10(2))
    assert error == pytest.approx(0, abs=1e-12)


def test_the_standard_error_is_the_spread_of_differences_over_repetitions():
    draw = np.random.default_rng(1)
    seeds, repetitions = 20, 4000

    def experiment():
        common = draw.lognormal(0, 0.5, seeds)  # data that both methods see
        return gap(common * draw.lognormal(0, 0.1, seeds), 1.5 * common * draw.lognormal(0, 0.1, seeds))

    differences, errors = np.array([experiment() for _ in range(repetitions)]).T
    assert np.mean(errors) == pytest.approx(np.std(differences), rel=0.05)


def test_better_means_by_more_than_two_standard_errors_and_what_was_asked():
    draw = np.random.default_rng(2)
    noise = draw.lognormal(0, 0.05, (2, 20))
    good, bad = constant(0.8 * noise[0], "good"), constant(1.0 * noise[1], "bad")
    assert better("", good, bad).holds
    assert not better("", bad, good).holds
    assert not better("", good, bad, by=1.0).holds  # 0.97 dB
    assert not better("", constant(noise[0]), constant(noise[1] * 1.001)).holds
    assert "good -0." in better("", good, bad).measured


def test_alike_and_all_of():
    one, near, far = constant([1.0, 1.0]), constant([1.1, 1.1]), constant([1.2, 1.2])
    assert alike("", one, near).holds and alike("", near, one).holds
    assert not alike("", one, far).holds and not alike("", far, one).holds
    assert reaches("", near, one).holds and reaches("", one, far).holds and not reaches("", far, one).holds
    both = all_of("both", [alike("", one, near), alike("", one, far)])
    assert not both.holds and both.claim == "both" and both.measured.count("dB +-") == 2


def test_a_run_that_diverged_is_worse_than_any_other():
    lost, fine = constant([np.nan, 1.0], "lost"), constant([5.0, 5.0], "fine")
    assert better("", fine, lost).holds and not better("", lost, fine).holds


def test_saving_counts_parameters_and_shows_bytes():
    whole = runs_of([[1.0]], "whole", parameters=200.0, octets=800.0)
    part = runs_of([[1.0]], "part", parameters=4.0, octets=20.0)
    claim = saving("", part, whole, 0.98)
    assert claim.holds and "98.0% fewer parameters and 97.5% fewer bytes" in claim.measured
    assert not saving("", part, whole, 0.99).holds
