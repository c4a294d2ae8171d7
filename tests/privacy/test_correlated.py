"""Correlated noise: the factorisations against dense linear algebra, the kernel against the matrices, what it buys."""

import math

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm, toeplitz
from scipy.special import binom

from archipel.draws import PRIVACY, key_of, normal
from archipel.errors import BadInput
from archipel.node import row
from archipel.privacy import correlated
from archipel.privacy.correlated import Correlation, Past, disturb_correlated, inverse, square_root, strategy
from archipel.privacy.noise import GAUSSIAN, SecureSource, noise_from
from archipel.simulate.compile import enable

FORMS = ["buffers", "banded", "tree"]


def lower(column):
    """The lower triangular Toeplitz matrix with this first column."""
    return np.tril(toeplitz(column))


def column_of(made):
    """C's first column, from the settings of a node."""
    weight, decay, T = made.settings.weight, made.settings.decay, made.rounds
    if made.settings.form == correlated.BANDED:
        return np.concatenate([[1.0], weight, np.zeros(T)])[:T]
    return np.array([1.0] + [float(weight @ decay**k) for k in range(T - 1)])


def tree_matrices(T):
    """C has a row for every node that is ever complete, B says which of them a sum is made of."""
    nodes = [(level, i) for level in range(T.bit_length()) for i in range(T >> level)]
    C = np.array([[(t >> level) == i for t in range(T)] for level, i in nodes], float)
    B = np.zeros((T, len(nodes)))
    for t in range(1, T + 1):
        for level in range(T.bit_length()):
            if t >> level & 1:
                B[t - 1, nodes.index((level, (t >> level) - 1))] = 1
    return B, C


def noises(made, size, scale=1.0, seed=3):
    """What a node adds in every round, and the draws behind it."""
    past = row(made.past(1, size, float), 0)
    found, drawn = np.zeros((2, made.rounds, size))
    for t in range(made.rounds):
        disturb_correlated(found[t], past, made.settings, GAUSSIAN, scale, key_of(seed, 0, t))
        drawn[t] = [scale * normal(key_of(seed, 0, t), PRIVACY, j) for j in range(size)]
    return found, drawn


def test_the_square_root_is_one():
    column = square_root(60)
    assert column == pytest.approx(binom(2 * np.arange(60), np.arange(60)) / 4.0 ** np.arange(60))
    A = np.tril(np.ones((60, 60)))
    assert np.abs(lower(column) @ lower(column) - A).max() < 1e-12
    assert np.abs(lower(inverse(column)) @ lower(column) - np.eye(60)).max() < 1e-12
    assert np.abs(sqrtm(A).real - lower(column)).max() < 1e-4  # an ill-conditioned root


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("T", [1, 2, 3, 37, 64])
def test_the_kernel_solves_with_the_matrix(form, T):
    """Toeplitz: C times what was added is what was drawn. Tree: the sums of what was added are B times the draws."""
    made = strategy(T, form, bands=5)
    added, drawn = noises(made, 3, 1.7)
    if form != "tree":
        assert np.abs(lower(column_of(made)) @ added - drawn).max() < 1e-11
        return
    B, C = tree_matrices(T)
    nodes = np.zeros((len(C), 3))
    last = [np.flatnonzero(one)[-1] for one in C]  # a node is drawn when it is complete: at most one per round
    for t in range(T):
        complete = [i for i in range(len(C)) if last[i] == t]
        for i in complete:  # the largest is drawn; the smaller ones that end with it are never needed
            nodes[i] = drawn[t] if C[i].sum() == max(C[k].sum() for k in complete) else np.nan
    used = B.any(0)
    assert np.abs(added.cumsum(0) - B[:, used] @ nodes[used]).max() < 1e-11


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("T", [1, 5, 50, 128])
def test_sensitivity_and_deviation_are_those_of_the_dense_matrices(form, T):
    made, A = strategy(T, form, bands=7), np.tril(np.ones((T, T)))
    if form == "tree":
        B, C = tree_matrices(T)
        assert np.abs(B @ C - A).max() == 0
    else:
        C = lower(column_of(made))
        B = A @ np.linalg.inv(C)
    norm = np.linalg.norm(C, axis=0).max()
    assert made.sensitivity == pytest.approx(norm, rel=1e-9)
    assert made.deviations == pytest.approx(made.sensitivity * np.linalg.norm(B, axis=1), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32))
def test_no_stream_of_participations_is_worse_than_the_sensitivity(T, count, separation, seed):
    column, draw = column_of(strategy(T)), np.random.default_rng(seed)
    rounds = sorted(draw.choice(T, min(count, T), replace=False))
    rounds = [t for i, t in enumerate(rounds) if i == 0 or t - rounds[i - 1] >= separation]
    moved = np.zeros((T, 3))
    for t in rounds:
        way = draw.normal(size=3)
        moved[t] = way / np.linalg.norm(way)
    assert np.linalg.norm(lower(column) @ moved) <= correlated.sensitivity(column, count, separation) + 1e-12


def test_as_many_times_less_as_the_issue_says():
    """Exactly, by the square root: 5.1, 9.7 and 18.7; by six buffers within a hundredth of it."""
    for T, times in ((200, 5.14), (1000, 9.69), (5000, 18.72)):
        root = math.sqrt(T) / (square_root(T) ** 2).sum()
        assert root == pytest.approx(times, abs=0.01)
        assert math.sqrt(T) / strategy(T).deviations[-1] > 0.99 * root
        assert math.sqrt(T) / strategy(T, "tree").deviations.max() > root / 3.5


@pytest.mark.parametrize("T", [2, 10, 100, 2000])
def test_no_factorisation_is_far_better(T):
    """The nuclear-norm bound: sens * deviation is at least the sum of A's singular values over T (in mean square)."""
    angles = (2 * np.arange(1, T + 1) - 1) / (4 * T + 2) * math.pi
    least = (0.5 / np.sin(angles)).sum() / T
    made = strategy(T).deviations
    assert least <= math.sqrt((made**2).mean()) <= 1.35 * least


@pytest.mark.parametrize("form", FORMS)
def test_noise_in_sums_has_the_deviation_that_is_said(form):
    made = strategy(40, form, bands=6)
    added, _ = noises(made, 4000, made.sensitivity)
    found = added.cumsum(0).std(1)
    assert found == pytest.approx(made.deviations, rel=0.06)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_the_same_when_compiled(form, dtype):
    enable()

    @numba.njit
    def compiled(values, past, settings, scale, key):
        disturb_correlated(values, past, settings, 1, scale, key)

    made = strategy(30, form, bands=4)
    plain, fast = (row(made.past(1, 5, dtype), 0) for _ in range(2))
    for t in range(30):
        a, b = np.ones(5, dtype), np.ones(5, dtype)
        disturb_correlated(a, plain, made.settings, GAUSSIAN, dtype(2.0), key_of(1, 2, t))
        compiled(b, fast, made.settings, dtype(2.0), np.uint64(key_of(1, 2, t)))
        assert np.abs(a - b).max() <= 256 * np.finfo(dtype).eps


def test_secure_noise_cancels_too():
    pytest.importorskip("opendp")
    made = strategy(64)
    past, total = row(made.past(1, 400, float), 0), np.zeros(400)
    with noise_from(SecureSource()):
        for _ in range(64):
            values = np.zeros(400)
            disturb_correlated(values, past, made.settings, GAUSSIAN, made.sensitivity, 0)
            total += values
    assert total.std() == pytest.approx(made.deviations[-1], rel=0.2)  # independent noise would have 8 times that


def test_what_makes_no_sense_is_refused():
    with pytest.raises(BadInput, match="buffers"):
        strategy(10, "buffer")
    with pytest.raises(BadInput, match="at least one"):
        strategy(0)
    with pytest.raises(BadInput, match="falls"):
        correlated.sensitivity(np.array([1.0, 2.0]))
    assert isinstance(strategy(3).settings, Correlation) and isinstance(strategy(3).past(1, 1, float), Past)
