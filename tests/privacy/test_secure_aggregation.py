"""Secure aggregation: sums exact whoever drops out and when, masks that say nothing, liars found, what it costs."""

import hashlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from archipel.privacy.coding import PRIMES, GivenUp, code_of, fit, lagrange, misfits, packed, times, unmasked, unpacked
from archipel.privacy.secure_aggregation import Masker, agreed, expanded, public

ROUND = 7


def group(count, size=5, bits=24, dropping=0.34, colluding=0.4, seed=0):
    """A code, its clients, and their numbers."""
    code = code_of(count, dropping, colluding, size, bits)
    secrets = [hashlib.sha256(repr((seed, k)).encode()).digest() for k in range(count)]
    keys = [public(secret) for secret in secrets]
    values = np.random.default_rng(seed).integers(0, code.prime, (count, size), np.uint64)
    return code, [Masker(code, k, secret, keys, b"a federation") for k, secret in enumerate(secrets)], values


def collected(clients, values, who):
    """The sum of masked words, and of corrections."""
    said = [clients[k].mask(values[k], ROUND) for k in who]
    return sum(word for word, _ in said), sum(fixes for _, fixes in said)


# --- arithmetic ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", PRIMES)
def test_moduli_are_the_largest_primes_of_their_bits(bits):
    def is_prime(n):
        return all(n % d for d in range(2, math.isqrt(n) + 1))

    assert is_prime(PRIMES[bits]) and not any(is_prime(n) for n in range(PRIMES[bits] + 2, 2**bits, 2))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([*PRIMES.values()]), st.integers(1, 9), st.integers(0, 2**20))
def test_values_elsewhere_are_those_of_the_polynomial(prime, count, seed):
    """Against a polynomial in Python's integers."""
    draw = np.random.default_rng(seed)
    points = [int(point) for point in draw.choice(200, count + 4, replace=False)]
    coefficients = [int(c) for c in draw.integers(0, prime, count)]
    values = [sum(c * x**i for i, c in enumerate(coefficients)) % prime for x in points]
    weights = lagrange(tuple(points[count:]), tuple(points[:count]), prime)
    found = times(weights, np.array(values[:count], np.uint64)[:, None], prime)
    assert found[:, 0].tolist() == values[count:]


@pytest.mark.parametrize("bits", PRIMES)
def test_numbers_cross_as_bytes(bits):
    code = code_of(5, 0.2, 0.2, 6, bits)
    values = np.array([0, 1, 255, 256, code.prime - 2, code.prime - 1], np.uint64)
    body = packed(values, bits)
    assert len(body) == 6 * bits // 8 and np.array_equal(unpacked(body, code), values)
    with pytest.raises(ValueError, match="none modulo"):
        unpacked(np.full(bits // 8, 255, np.uint8), code)


# --- sums ------------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 12), st.sampled_from([*PRIMES]), st.data())
def test_it_is_exact_with_a_third_dropping_at_any_point(count, bits, data):
    """Who drops before its word is not in the sum; who drops after it is."""
    leaving = data.draw(st.lists(st.integers(0, count - 1), max_size=count // 3, unique=True))
    when = {k: data.draw(st.integers(0, 1)) for k in leaving}
    code, clients, values = group(count, data.draw(st.integers(1, 9)), bits, seed=count)
    said = [k for k in range(count) if when.get(k, 9) > 0]
    total, fixes = collected(clients, values, said)
    answers = {k: clients[k].answer(said, ROUND) for k in range(count) if k not in leaving}
    found, wrong = unmasked(code, total, fixes, answers)
    assert not wrong and np.array_equal(found, values[said].sum(0) % code.prime)


def test_more_than_a_third_and_the_sum_is_given_up():
    code, clients, values = group(9)
    total, fixes = collected(clients, values, range(9))
    with pytest.raises(GivenUp, match="5 clients answered, 6 are needed"):
        unmasked(code, total, fixes, {k: clients[k].answer(range(9), ROUND) for k in range(5)})
    with pytest.raises(GivenUp, match="5 clients in the sum, 6 are needed"):
        clients[8].answer(range(5), ROUND)


# --- what a server sees ----------------------------------------------------------------------------------------------


def uniform(values, prime):
    """Whether numbers modulo a prime look as if each were as likely as any other, and told nothing of the next."""
    counts = np.bincount((values * np.uint64(256) // np.uint64(prime)).astype(int), minlength=256)
    low = np.bincount((values & np.uint64(255)).astype(int), minlength=256)
    flat = values.astype(float)
    return (
        stats.chisquare(counts).pvalue > 1e-4
        and stats.chisquare(low).pvalue > 1e-4
        and abs(np.corrcoef(flat[:-1], flat[1:])[0, 1]) < 5 / math.sqrt(len(flat))
    )


@pytest.mark.parametrize("bits", [24, 32])
def test_masked_numbers_look_like_noise_whatever_they_hide(bits):
    """All zeros, masked: words, corrections, what two words have in common, and answers."""
    code, clients, values = group(6, 20_000, bits)
    words, fixes = zip(*[client.mask(np.zeros_like(values[0]), ROUND) for client in clients])
    seen = [*words, *[one.reshape(-1) for one in fixes], (words[0] + code.prime - words[1]) % code.prime]
    seen += [client.answer(range(6), ROUND) for client in clients]
    seen += [(words[0] + code.prime - clients[0].mask(values[0] * 0, ROUND + 1)[0]) % code.prime]
    assert all(uniform(one, code.prime) for one in seen)


def rank(matrix, prime):
    """Over the integers modulo a prime, by elimination."""
    rows, found = [[int(v) % prime for v in row] for row in matrix], 0
    for column in range(len(rows[0])):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        over = pow(rows[found][column], -1, prime)
        for i in range(found + 1, len(rows)):
            factor = rows[i][column] * over % prime
            rows[i] = [(a - factor * b) % prime for a, b in zip(rows[i], rows[found])]
        found += 1
    return found


def powers(points, code):
    """What the values at these points are in the coefficients of a client's polynomial."""
    return np.array([[pow(x, i, code.prime) for i in range(code.needed)] for x in points], object).reshape(
        -1, code.needed
    )


@pytest.mark.parametrize("count", [3, 6, 13, 30])
def test_those_who_may_collude_learn_nothing_of_a_mask_and_one_more_does(count):
    """Their values and the mask are independent: the ranks add up."""
    code = code_of(count, 0.34, 0.4, 5, 24)
    mask = powers(range(count + 1, count + code.packed + 1), code)
    for colluding in (code.secret, code.secret + 1):
        known = powers(range(1, colluding + 1), code)
        both = rank([*known, *mask], code.prime)
        assert (both == rank(known, code.prime) + rank(mask, code.prime)) == (colluding == code.secret)


@pytest.mark.parametrize("count", [6, 13, 30])
def test_a_server_that_shows_different_lists_learns_nothing_of_one_client(count):
    """Some answer for a sum with a client, the others for the same without it: its mask stays unknown.

    In the coefficients of the sum without it, and of its own: what the lists and those who collude tell, and its mask.
    """
    code = code_of(count, 0.34, 0.4, 5, 24)
    zero, mask = 0 * powers([1], code), powers(range(count + 1, count + code.packed + 1), code)
    wanted = [[*zero[0], *own] for own in mask]

    def learns(colluding, answering):
        liars, others = range(1, colluding + 1), list(range(colluding + 1, count + 1))
        rows = [[*values, *values] for values in powers(others[:answering], code)]
        rows += [[*values, *zero[0]] for values in powers(others[answering:], code)]
        rows += [[*values, *zero[0]] for values in powers(liars, code)] + [[*zero[0], *v] for v in powers(liars, code)]
        return rank([*rows, *wanted], code.prime) < rank(rows, code.prime) + len(wanted)

    most = code.needed + code.secret - count  # who may collude with a server that lies
    assert most >= 0
    splits = {0, 1, (count - most) // 2, count - most - 1}
    assert not any(learns(most, answering) for answering in splits)
    assert learns(most + 1, (count - most - 1) // 2)


def test_every_pair_and_every_round_has_pads_of_its_own():
    _, clients, _ = group(4)
    dealt = {(i, j): clients[i].dealt[j] for i in range(4) for j in range(4)}
    assert len({*dealt.values()}) == 16 and all(clients[j].held[i] == key for (i, j), key in dealt.items())
    pads = {tuple(expanded(key, n, 3, 65521)) for key in dealt.values() for n in (0, 1, 2**40)}
    assert len(pads) == 48
    secrets = [bytes([k]) * 32 for k in (1, 2)]
    assert agreed(secrets[0], public(secrets[1]), b"one")[0] != agreed(secrets[0], public(secrets[1]), b"other")[0]


def test_numbers_of_a_key_stream_are_uniform_modulo_the_prime():
    assert all(uniform(expanded(bytes(32), 1, 50_000, prime), prime) for prime in PRIMES.values())


# --- who lies --------------------------------------------------------------------------------------------------------


def test_a_server_that_lies_gets_nothing():
    code, clients, values = group(6)
    secrets = [bytes([k + 1]) * 32 for k in range(6)]
    keys = [public(secret) for secret in secrets]
    with pytest.raises(GivenUp, match="keys that cannot be"):
        Masker(code, 2, bytes(31) + b"\1", keys)  # not its own among them
    with pytest.raises(GivenUp, match="keys that cannot be"):
        Masker(code, 2, secrets[2], [*keys[:5], keys[0]])
    with pytest.raises(GivenUp, match="the same secret"):
        Masker(code, 2, secrets[2], [*keys[:5], bytes(32)])
    clients[0].mask(values[0], ROUND)
    clients[0].answer(range(6), ROUND)
    with pytest.raises(GivenUp, match="a second word"):
        clients[0].mask(values[0], ROUND)
    with pytest.raises(GivenUp, match="asked twice"):
        clients[0].answer(range(5), ROUND)
    with pytest.raises(GivenUp, match="4 are needed"):
        clients[1].answer([0, 1, 2, 2], ROUND)
    with pytest.raises(GivenUp, match="needed"):
        clients[1].answer([0, 1, 2, 6], ROUND)


def lied(count, answering, liars=(2,)):
    code, clients, values = group(count, 40)
    total, fixes = collected(clients, values, range(count))
    answers = {k: clients[k].answer(range(count), ROUND) for k in range(answering)}
    for k in liars:
        answers[k] = (answers[k] + np.uint64(k + 1)) % code.prime
    return code, total, fixes, answers, values.sum(0) % code.prime


def test_a_liar_is_named_and_the_sum_is_right():
    code, total, fixes, answers, true = lied(9, 8)
    found, wrong = unmasked(code, total, fixes, answers)
    assert wrong == [2] and np.array_equal(found, true)


@pytest.mark.parametrize(("answering", "liars"), [(7, (2,)), (9, (1, 2))])
def test_or_the_sum_is_given_up(answering, liars):
    code, total, fixes, answers, _ = lied(9, answering, liars)
    with pytest.raises(GivenUp, match="somebody lied"):
        unmasked(code, total, fixes, answers)
    assert not fit(code, answers)
    with pytest.raises(GivenUp):
        misfits(code, answers)


def test_with_no_answer_to_spare_a_sum_that_is_too_long_gives_a_liar_away():
    code, clients, values = group(9, 40)
    values[:] = 1
    total, fixes = collected(clients, values, range(9))
    answers = {k: clients[k].answer(range(9), ROUND) for k in range(code.needed)}
    code = code._replace(longest=9 * math.sqrt(40) + 1e-9)
    assert np.array_equal(unmasked(code, total, fixes, answers)[0], np.full(40, 9))
    answers[1] = answers[1] + np.uint64(1)
    with pytest.raises(GivenUp, match="longer than clipped words"):
        unmasked(code, total, fixes, answers)


# --- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 30, pytest.param(100, marks=pytest.mark.long)])
def test_a_word_is_less_than_2_2_times_one_of_float32(count):
    """200 parameters, with nothing but the keys set up before: the word, corrections, who is in the sum, the answer.

    Nobody says more if others drop.
    """
    code, clients, values = group(count, 200)
    word, fixes = clients[0].mask(values[0], ROUND)
    said = sum(
        len(packed(part.reshape(-1), code.bits)) for part in (word, fixes, clients[0].answer(range(count), ROUND))
    )
    assert said == code.weight
    assert (said + math.ceil(count / 8)) / (4 * 200) < 2.0


def test_whatever_the_number_of_clients():
    """Up to 350, with the seed of excess noise: beyond 360 a client holds more than one value for each number."""
    codes = [code_of(count, 0.34, 0.4, 200, 24)._replace(excess=True) for count in range(4, 351)]
    assert max(code.weight + math.ceil(code.clients / 8) for code in codes) / 800 < 2.2


def test_pads_and_words_can_be_made_in_any_order():
    """A simulation or a device: nothing is drawn."""
    first, second = group(5)[1], group(5)[1]
    for one, n in itertools.product((first, second), (3, 9)):
        one[0].mask(np.zeros(5, np.uint64), n)
    assert np.array_equal(first[1].answer(range(5), 2**33), second[1].answer(range(5), 2**33))
