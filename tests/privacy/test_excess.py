"""Noise for those who may drop: what stays suffices whatever lists a server shows, and follows from told seeds."""

import itertools
import math

import numpy as np
import pytest

from archipel.draws import bits
from archipel.generators import add_discrete
from archipel.privacy.coding import SEED, code_of
from archipel.privacy.discrete import disturb_integers
from archipel.privacy.excess import Excess, is_key, kept_of, later, seed_of, sizes_of
from archipel.privacy.noise import release_key
from archipel.privacy.secure_aggregation import add_from


def kept_in(count, sizes, kept):
    """What a client's noise keeps in a sum of so many words."""
    return min(k for size, k in zip(sizes, kept) if count >= size)


@pytest.mark.parametrize(("clients", "needed", "known"), [(5, 4, 1), (5, 4, 2), (6, 4, 1)])
def test_the_noise_of_a_sum_suffices_whatever_lists_a_server_shows(clients, needed, known):
    """All ways to show each client a list, or none: the variance, without that of those who collude, in every sum that
    comes out of its masks. Those answer for every list, and it is 1 at the worst.
    """
    sizes = sizes_of(clients, needed, known, 8)
    kept = kept_of(sizes, clients, known)
    lists = [who for m in range(needed, clients + 1) for who in itertools.combinations(range(clients), m)]
    honest, least = range(known, clients), math.inf
    for target in {len(who): who for who in reversed(lists)}.values():  # with those who collude: the worst of its size
        # what a client has left matters, and whether it answered for this list
        left = {
            who: [kept_in(len(who), sizes, kept) if k in who else kept[-1] for k in range(clients)] for who in lists
        }
        for shown in itertools.product({target, lists[-1], lists[0], lists[-2], None}, repeat=len(honest)):
            if known + shown.count(target) < needed:
                continue
            noise = sum(kept[-1] if who is None else left[who][k] for k, who in zip(honest, shown) if k in target)
            least = min(least, noise)
    assert least == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("known", [1, 10, 20])
def test_nobody_dropping_costs_nothing_but_the_noise_that_is_known(known):
    sizes = sizes_of(100, 66, known, 8)
    kept = kept_of(sizes, 100, known)
    assert 100 * kept[0] == pytest.approx(100 / (100 - known)) and (np.diff(kept) > 0).all()
    assert sizes[0] == 100 and sizes[-1] == 66 and len(sizes) == 9


def test_with_the_same_list_for_all_it_suffices_to_the_last_share():
    sizes = sizes_of(100, 66, 1, 34, False)
    assert np.allclose((sizes - 1) * kept_of(sizes, 100, 1, False), 1.0) and len(sizes) == 35


def test_where_a_lying_server_could_take_all_of_it_off_none_is():
    assert sizes_of(3, 2, 1, 8).tolist() == [2] and kept_of(sizes_of(3, 2, 1, 8), 3, 1).tolist() == [1.0]
    assert sizes_of(100, 66, 40, 8).tolist() == [66]
    assert sizes_of(100, 100, 1, 8).tolist() == [100] and sizes_of(100, 66, 1, 0).tolist() == [66]


def exact(deviation, reach=8):
    """The chances of a discrete Gaussian."""
    at = np.arange(-math.ceil(reach * deviation), math.ceil(reach * deviation) + 1)
    chances = np.exp(-(at**2) / (2 * deviation**2))
    return at, chances / chances.sum()


@pytest.mark.parametrize("draw", [add_from, lambda v, d, _: add_discrete(v, d, 5)], ids=["a seed's", "a generator's"])
def test_draws_are_discrete_gaussians(draw):
    values = np.zeros(60_000, np.int64)
    draw(values, 4.3, bytes(range(32)))
    at, chances = exact(4.3)
    inner = 60_000 * chances > 20
    found = np.array([(values == k).sum() for k in at[inner]])
    distance = ((found - 60_000 * chances[inner]) ** 2 / (60_000 * chances[inner])).sum()
    assert distance < inner.sum() + 4.5 * math.sqrt(2 * inner.sum())
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 4.5 / math.sqrt(60_000)


@pytest.mark.parametrize("seed", [bytes(range(32)), seed_of(2**64 - 5)], ids=["secret", "of a key"])
def test_a_told_seed_gives_all_later_parts(seed):
    """The parts drawn one by one, against what is added from a part on."""
    excess = Excess(np.array([9, 8, 7]), np.array([30.0, 20.0, 10.0]), np.array([1.0, 2.0]), disturb_integers)
    parts = []
    for k, deviation in enumerate(excess.deviations):
        part = np.zeros(50, np.int64)
        key = 2**64 - 5
        for _ in range(k):
            key = release_key(key, 1)
        disturb_integers(part, 2 * deviation, key) if is_key(seed) else add_from(part, 2 * deviation, later(seed, k))
        parts.append(part)
    for first in range(4):
        values = np.full(50, 7)
        excess.add(values, later(seed, first), first, 1)
        assert np.array_equal(values, 7 + sum(parts[first:], np.zeros(50, int)))
        excess.add(values, later(seed, first), first, 1, -1)
        assert (values == 7).all()
    assert [excess.kept(m) for m in (10, 9, 8, 7, 6)] == [0, 0, 1, 2, 3]


def test_chains_do_not_meet():
    seeds = [
        later(start, k) for start in (bytes(range(32)), bytes(range(1, 33)), seed_of(7), seed_of(8)) for k in range(20)
    ]
    assert len({*seeds}) == 80 and all(len(seed) == SEED for seed in seeds)
    assert int.from_bytes(later(seed_of(7), 1)[:8], "little") == bits(7, 9, 4294967294)


def test_an_answer_has_32_bytes_more():
    code = code_of(100, 0.34, 0.4, 200, 24)
    assert code._replace(excess=object()).weight == code.weight + 32
    assert (code.weight + 32 + 13) / 800 < 1.9
