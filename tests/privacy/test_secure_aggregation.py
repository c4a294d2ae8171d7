"""Secure aggregation: sums exact whoever drops out and when, masks that say nothing, liars named, what it costs."""

import hashlib
import itertools
import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from archipel.privacy.secure_aggregation import (
    NONCE,
    Client,
    GivenUp,
    Revealed,
    Server,
    aggregated,
    agreed,
    committed,
    expanded,
    threshold_of,
)
from archipel.privacy.shamir import PRIME, secret_of, shares_of

SIZE = 5


def keyed(*seed):
    """Entropy that a seed settles: for tests alone."""
    counter = itertools.count()
    return lambda n: hashlib.shake_256(repr((seed, next(counter))).encode()).digest(n)


def group(count, seed=0, size=SIZE, dtype=np.uint32, signed=False, least=1, maker=Client):
    """A server, its clients, and their numbers."""
    need, draw = threshold_of(count), np.random.default_rng(seed)
    secrets = {k: keyed("identity", seed, k)(32) for k in range(count)} if signed else {}
    public = {k: Ed25519PrivateKey.from_private_bytes(s).public_key().public_bytes_raw() for k, s in secrets.items()}
    clients = {
        k: maker(k, need, least, b"round 7", keyed(seed, k), secrets.get(k), public or None) for k in range(count)
    }
    top = np.iinfo(dtype).max
    values = {k: draw.integers(0, top, size, dtype, endpoint=True) for k in range(count)}
    return Server(need, size, dtype, b"round 7"), clients, values


def plain_sum(values, who):
    return np.sum([values[k] for k in who], axis=0, dtype=values[0].dtype)


# --- secrets ---------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.integers(0, 8), st.integers(0, 2**30))
def test_any_threshold_of_shares_is_the_secret(secret, threshold, more, seed):
    holders = np.random.default_rng(seed).choice(50, threshold + more, replace=False).tolist()
    shares = shares_of(secret, holders, threshold, keyed(seed))
    chosen = np.random.default_rng(seed + 1).permutation(holders)[:threshold].tolist()
    assert secret_of({k: shares[k] for k in chosen}, threshold) == secret
    assert threshold == 1 or secret_of({k: shares[k] for k in chosen[1:]}, threshold) is None
    assert threshold == 1 or len({bytes(1) + secret, *shares.values()}) == 1 + len(shares)


def test_fewer_shares_fit_any_secret():
    """Two shares of three: for every other secret there is a third share that makes it."""
    shares = shares_of(bytes(31) + b"\7", [0, 1, 2], 3, keyed(1))
    for other in (0, 1, 2**255):
        a, b = (int.from_bytes(shares[k], "big") for k in (0, 1))
        third = (other - 3 * a + 3 * b) % PRIME  # f(0) = 3 f(1) - 3 f(2) + f(3)
        assert secret_of({0: shares[0], 1: shares[1], 2: third.to_bytes(33, "big")}, 3) == other.to_bytes(32, "big")


# --- sums ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("signed", [False, True])
def test_the_sum_is_the_sum(dtype, signed):
    server, clients, values = group(7, dtype=dtype, signed=signed)
    assert np.array_equal(aggregated(server, clients, values), plain_sum(values, range(7)))
    assert not server.liars


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 12), st.data())
def test_it_is_exact_with_a_third_dropping_at_any_point(count, data):
    """Who drops before its numbers are masked is not in the sum; who drops later is."""
    leaving = data.draw(st.lists(st.integers(0, count - 1), max_size=count // 3, unique=True))
    when = {k: data.draw(st.integers(0, 5)) for k in leaving}
    server, clients, values = group(count, seed=count, signed=data.draw(st.booleans()))
    found = aggregated(server, clients, values, lambda stage: [k for k in leaving if when[k] == stage])
    assert np.array_equal(found, plain_sum(values, [k for k in range(count) if when.get(k, 9) > 2]))


@pytest.mark.parametrize("stage", range(5))
def test_more_than_a_third_and_the_round_is_given_up(stage):
    server, clients, values = group(9)
    with pytest.raises(GivenUp, match=r"needed|fewer"):
        aggregated(server, clients, values, lambda now: range(4) if now == stage else ())


@pytest.mark.long
def test_a_hundred_clients_of_whom_a_third_leave_one_after_the_other():
    server, clients, values = group(100, size=200)
    found = aggregated(server, clients, values, lambda stage: range(stage * 7, min(stage * 7 + 7, 33)))
    assert np.array_equal(found, plain_sum(values, range(21, 100)))


# --- what a server sees ----------------------------------------------------------------------------------------------


def test_masked_numbers_look_like_noise_whatever_they_hide():
    """All zeros, masked: every byte as likely as any other, also where all but one client tell what they know."""
    server, clients, values = group(6, size=20_000)
    values = {k: np.zeros_like(v) for k, v in values.items()}
    aggregated(server, clients, values)
    for masked in server.masked.values():
        counts = np.bincount(masked.view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
        assert abs(np.corrcoef(masked[:-1], masked[1:])[0, 1]) < 0.03
    alone = server.masked[0] - expanded(clients[0].seed, 20_000, np.uint32)  # its own mask is known after the sum
    assert stats.chisquare(np.bincount(alone.view(np.uint8), minlength=256)).pvalue > 1e-4
    pair = np.corrcoef(server.masked[0], server.masked[1])[0, 1]
    assert abs(pair) < 0.03


def test_every_pair_has_a_mask_of_its_own():
    clients = [Client(k, 1, entropy=keyed(k)) for k in range(4)]
    keys = [one.advertise()[32:64] for one in clients]
    seeds = {(i, j): agreed(clients[i].mask_key, keys[j], b"mask") for i in range(4) for j in range(4) if i != j}
    assert len({*seeds.values()}) == 6 and all(seeds[i, j] == seeds[j, i] for i, j in seeds)


def test_other_rounds_have_other_masks():
    mine, theirs = Client(0, 1, entropy=keyed(4)), Client(1, 1, entropy=keyed(5)).advertise()[32:64]
    assert agreed(mine.mask_key, theirs, b"mask" + b"1") != agreed(mine.mask_key, theirs, b"mask" + b"2")


def test_a_server_that_lies_about_who_is_left_gets_nothing():
    server, clients, values = group(6, signed=True)
    shown = server.collect_keys({k: c.advertise() for k, c in clients.items()})
    sent = server.collect_shares({k: c.share(shown) for k, c in clients.items()})
    left = server.collect_masked({k: c.mask(values[k], *sent[k]) for k, c in clients.items()})
    half = [0, 1, 2, 3]  # client 5's seed from some, its key from others
    signatures = {k: clients[k].agree(left if k > 2 else half) for k in left}
    for k, lists in ((5, left), (0, half)):
        with pytest.raises(GivenUp, match="signatures on who is left"):
            clients[k].reveal(lists, signatures)
    with pytest.raises(GivenUp, match="two lists"):
        clients[5].reveal(half, signatures)
    with pytest.raises(GivenUp, match="both seeds"):
        clients[0].rescue([5])  # whose key it would give out, by the list it signed


def test_keys_that_the_server_made_up_are_refused():
    server, clients, _ = group(4, signed=True)
    shown = server.collect_keys({k: c.advertise() for k, c in clients.items()})
    shown[2] = Client(2, 3, entropy=keyed("server")).advertise() + bytes(64)
    with pytest.raises(GivenUp, match="as client 2's are not signed"):
        clients[0].share(shown)
    server, clients, _ = group(4)
    shown = server.collect_keys({k: c.advertise() for k, c in clients.items()})
    shown[1] = Client(1, 3, entropy=keyed("server")).advertise()
    with pytest.raises(GivenUp, match="cannot be"):
        clients[1].share(shown)


def test_with_too_few_to_share_the_noise_nobody_reveals():
    server, clients, values = group(9, least=8)
    with pytest.raises(GivenUp, match="7 clients are left, fewer than 8"):
        aggregated(server, clients, values, lambda stage: (3, 4) if stage == 2 else ())


# --- clients that lie ------------------------------------------------------------------------------------------------


class WrongShare(Client):
    """Returns shares that it was not dealt."""

    def reveal(self, survivors, signatures=None):
        said = super().reveal(survivors, signatures)
        return Revealed(said.seed, {k: bytes(len(s)) for k, s in said.keys.items()})


class WrongSeed(Client):
    def reveal(self, survivors, signatures=None):
        return super().reveal(survivors, signatures)._replace(seed=bytes(32))


class NoSeed(WrongSeed):
    """Deals shares of another seed than it has, and commits to that."""

    def share(self, advertised):
        own, self.seed = self.seed, bytes(32)
        said = super().share(advertised)
        self.seed = own
        return said._replace(seed=hashlib.sha256(own).digest())


class NoKey(Client):
    """Deals shares of another key than it advertised; it matters when it drops out."""

    def share(self, advertised):
        made = super().share(advertised)
        wrong = shares_of(bytes(32), sorted(self.keys), self.threshold, self.entropy)
        dealt = {k: wrong[k] + bytes(16) + wrong[k] + bytes(16) for k in self.keys}
        sealed = {k: self.sealing(k, True).encrypt(NONCE, dealt[k], None) for k in made.sealed}
        return made._replace(sealed=sealed, commitments={k: committed(v) for k, v in dealt.items()})


class Garbled(Client):
    """Seals something else than it committed to."""

    def share(self, advertised):
        made = super().share(advertised)
        return made._replace(sealed={k: bytes(len(box)) for k, box in made.sealed.items()})


class Lazy(Client):
    """Deals to some only."""

    def share(self, advertised):
        made = super().share(advertised)
        made.sealed.popitem()
        return made


class Short(Client):
    def mask(self, values, sealed, commitments):
        return super().mask(values, sealed, commitments)[:-1]


class Copycat(Client):
    """Advertises the keys of another."""

    def advertise(self):
        return Client(1, 1, entropy=keyed(0, 1)).advertise()


def lied(kind, who=2, count=9, drops=None):
    server, clients, values = group(count)
    clients[who] = kind(who, threshold_of(count), 1, b"round 7", keyed(0, who))
    return server, aggregated(server, clients, values, drops), values


GONE = {5: 2}  # client 5 leaves before it sends its numbers


def drop(stage):
    return [k for k, when in GONE.items() if when == stage]


@pytest.mark.parametrize(("kind", "how", "counted"), [
    (WrongShare, "another share", True), (WrongSeed, "another seed", True), (Lazy, "to everyone", False),
    (Short, "other than 5 integers", False), (Copycat, "or another's", False),
])  # fmt: skip
def test_a_liar_is_named_and_the_sum_is_right(kind, how, counted):
    server, found, values = lied(kind, drops=drop)
    who = [k for k in range(9) if k != 5 and (counted or k != 2)]
    assert list(server.liars) == [2] and how in server.liars[2]
    assert np.array_equal(found, plain_sum(values, who))


@pytest.mark.parametrize(("kind", "sentence"), [
    (NoSeed, "client 2 dealt shares of no seed"), (Garbled, "cannot open what client 2 sealed"),
])  # fmt: skip
def test_or_the_round_is_given_up_with_a_sentence_that_names_it(kind, sentence):
    with pytest.raises(GivenUp, match=sentence):
        lied(kind)


def test_who_deals_shares_of_no_key_and_leaves_is_named():
    with pytest.raises(GivenUp, match="client 2 dealt shares of no key"):
        lied(NoKey, drops=lambda stage: [2] if stage == 2 else ())


# --- what it costs ---------------------------------------------------------------------------------------------------


def weight(message):
    """The bytes of a message, without any framing."""
    if isinstance(message, (bytes, np.ndarray)):
        return len(bytes(message))
    if isinstance(message, dict):
        return sum(weight(part) for part in message.values())
    return sum(weight(part) for part in message)


@pytest.mark.parametrize("count", [30, pytest.param(100, marks=pytest.mark.long)])
def test_beyond_set_up_a_word_is_at_most_2_2_times_as_long(count):
    """200 parameters in 32 bits, as float32 has: the masked word, who is left, a seed, and a few shares."""
    server, clients, values = group(count, size=200)
    shown = server.collect_keys({k: c.advertise() for k, c in clients.items()})
    sent = server.collect_shares({k: c.share(shown) for k, c in clients.items()})
    masked = {k: c.mask(values[k], *sent[k]) for k, c in clients.items() if k > count // 20}
    left = server.collect_masked(masked)
    said = {k: clients[k].reveal(left) for k in left}
    server.collect_revealed(said)
    assert np.array_equal(server.total(), plain_sum(values, left))
    up = max(weight(masked[k]) + weight(said[k]) for k in left)
    down = math.ceil(count / 8)  # who is left, a bit each
    assert (up + down) / (4 * 200) < 2.2
