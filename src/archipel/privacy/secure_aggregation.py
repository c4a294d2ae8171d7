"""Secure aggregation: a server learns the sum of its clients' integers, and nothing else of them.

Bonawitz et al., CCS 2017, whose rounds these are, as state machines without a clock or a network: a message in, a
message out. A client adds two masks modulo 2^k: one of its own, and one for each other client, which the other takes
off. Seeds are shared in secret, so that the masks of who drops out can be removed by the others:

    keys    every client: two X25519 keys                                      round 0
    share   its seeds, shared out, each share sealed for its holder            round 1
    mask    its numbers, masked                                                round 2
    agree   a signature on who is still there, where a server may lie          round 3
    reveal  its own seed, and its shares of the seeds of who is gone           round 4
    rescue  its shares of the own seeds of who went while revealing

Of nobody both seeds are ever given out. `threshold` clients are needed to reveal anything; up to threshold - 1 who
tell the server all they know learn nothing of the others but their sum. A share is committed to when it is dealt, so
that who deals or returns a wrong one is named.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import Missing
from archipel.privacy.shamir import SECRET, SHARE, secret_of, shares_of

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
except ImportError as lacking:
    raise Missing("Secure aggregation needs cryptography: pip install 'archipel[deploy]'.") from lacking

DIGEST, SIGNATURE = 32, 64
NONCE = bytes(12)  # every key seals one message

Entropy = Callable[[int], bytes]


class GivenUp(RuntimeError):
    """The sum cannot be had, or must not: a sentence that says why."""


class Shares(NamedTuple):
    """What a client says in round 1."""

    seed: bytes  # a commitment to its own seed
    sealed: dict[int, bytes]  # for every holder, both shares
    commitments: dict[int, bytes]  # to them: of the key's, then of the seed's


class Revealed(NamedTuple):
    seed: bytes  # its own
    keys: dict[int, bytes]  # its shares of the mask keys of those who are gone


# --- primitives -----------------------------------------------------------------------------------------------------


def digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def expanded(seed: bytes, size: int, dtype: Any) -> Any:
    """A mask: the key stream of ChaCha20, as integers."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(size * np.dtype(dtype).itemsize)), dtype)


def agreed(key: bytes, other: bytes, purpose: bytes) -> bytes:
    """The secret of two keys, for one purpose: HMAC-SHA-256 of X25519's."""
    shared = X25519PrivateKey.from_private_bytes(key).exchange(X25519PublicKey.from_public_bytes(other))
    return hmac.digest(shared, b"archipel secure aggregation: " + purpose, "sha256")


def public(key: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def listed(members: Iterable[int], context: bytes) -> bytes:
    """Who is still there, as it is signed."""
    return digest(b"survivors", context, *(k.to_bytes(4, "big") for k in sorted(members)))


def signed_by(key: bytes, signature: bytes, what: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, what)
    except (InvalidSignature, ValueError):
        return False
    return True


# --- a client -------------------------------------------------------------------------------------------------------


class Client:
    """One client in one aggregation. `least`: with fewer who add their noise to the sum, it reveals nothing.

    `identity` signs, and `identities` are all clients' public keys, where the server may lie about who is there.
    `context` names the aggregation, so that a signature is good for one.
    """

    def __init__(
        self, number: int, threshold: int, least: int = 1, context: bytes = b"", entropy: Entropy = os.urandom,
        identity: bytes | None = None, identities: Mapping[int, bytes] | None = None,
    ):  # fmt: skip
        self.number, self.threshold, self.least, self.context, self.entropy = number, threshold, least, context, entropy
        self.identity, self.identities = identity, identities or {}
        self.seal_key, self.mask_key, self.seed = entropy(SECRET), entropy(SECRET), entropy(SECRET)
        self.keys: dict[int, bytes] = {}
        self.held: dict[int, bytes] = {}  # by dealer: its two shares
        self.survivors: frozenset[int] = frozenset()

    def advertise(self) -> bytes:
        """Round 0: two public keys, and a signature where there are identities."""
        keys = public(self.seal_key) + public(self.mask_key)
        return keys + self.sign(b"keys" + self.context + keys)

    def sign(self, what: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.identity).sign(what) if self.identity else b""

    def share(self, advertised: Mapping[int, bytes]) -> Shares:
        """Round 1: shares of the mask key and of the own seed, sealed for every holder."""
        if len(advertised) < self.threshold:
            raise GivenUp(f"client {self.number} was shown {len(advertised)} keys, fewer than {self.threshold}")
        for k, message in advertised.items():
            keys, signature = message[:64], message[64:]
            if self.identities and not signed_by(self.identities[k], signature, b"keys" + self.context + keys):
                raise GivenUp(f"the keys shown to client {self.number} as client {k}'s are not signed by it")
            self.keys[k] = keys
        own = public(self.seal_key) + public(self.mask_key)
        if self.keys.get(self.number) != own or len({*self.keys.values()}) < len(self.keys):
            raise GivenUp(f"client {self.number} was shown keys that cannot be: the server lies")
        holders = sorted(self.keys)
        pair = [shares_of(s, holders, self.threshold, self.entropy) for s in (self.mask_key, self.seed)]
        dealt = {k: pair[0][k] + self.entropy(16) + pair[1][k] + self.entropy(16) for k in holders}
        sealed = {k: self.sealing(k, True).encrypt(NONCE, dealt[k], None) for k in holders if k != self.number}
        self.held[self.number] = dealt[self.number]
        return Shares(digest(self.seed), sealed, {k: committed(share) for k, share in dealt.items()})

    def sealing(self, other: int, outwards: bool) -> ChaCha20Poly1305:
        """What seals a message between two clients, one key per direction."""
        ends = (self.number, other) if outwards else (other, self.number)
        purpose = b"seal" + self.context + b"".join(end.to_bytes(4, "big") for end in ends)
        return ChaCha20Poly1305(agreed(self.seal_key, self.keys[other][:32], purpose))

    def mask(self, values: Any, sealed: Mapping[int, bytes], commitments: Mapping[int, bytes]) -> Any:
        """Round 2: the values, masked, modulo 2^k. `sealed` and `commitments` are, by dealer, for this client."""
        if len(sealed) + 1 < self.threshold:
            raise GivenUp(f"client {self.number} was given {len(sealed) + 1} shares, fewer than {self.threshold}")
        for k, box in sealed.items():
            try:
                share = self.sealing(k, False).decrypt(NONCE, box, None)
            except InvalidTag:
                share = b""
            if committed(share) != commitments[k]:
                raise GivenUp(f"client {self.number} cannot open what client {k} sealed for it: one of them lies")
            self.held[k] = share
        size, dtype = len(values), values.dtype
        masked = values + expanded(self.seed, size, dtype)
        for k in sealed:
            shared = expanded(agreed(self.mask_key, self.keys[k][32:], b"mask" + self.context), size, dtype)
            masked = masked + shared if self.number < k else masked - shared
        return masked

    def agree(self, survivors: Iterable[int]) -> bytes:
        """Round 3: a signature on the list of those whose numbers are in the sum. Only one list is ever signed."""
        self.fix(survivors)
        return self.sign(listed(self.survivors, self.context))

    def fix(self, survivors: Iterable[int]) -> None:
        chosen = frozenset(survivors)
        if self.survivors and chosen != self.survivors:
            raise GivenUp(f"client {self.number} was shown two lists of survivors: the server lies")
        if self.number not in chosen or not chosen <= self.held.keys():
            raise GivenUp(f"client {self.number} was shown survivors that cannot be")
        if len(chosen) < max(self.threshold, self.least):
            few = f"{len(chosen)} clients are left, fewer than {max(self.threshold, self.least)}"
            raise GivenUp(f"client {self.number} reveals nothing: {few}")
        self.survivors = chosen

    def reveal(self, survivors: Iterable[int], signatures: Mapping[int, bytes] | None = None) -> Revealed:
        """Round 4: the own seed, and shares of the mask keys of those who dealt shares and are gone."""
        self.fix(survivors)
        what = listed(self.survivors, self.context)
        signers = [k for k, s in (signatures or {}).items() if k in self.survivors]
        if self.identities:
            good = sum(signed_by(self.identities[k], (signatures or {})[k], what) for k in signers)
            if good < self.threshold:
                raise GivenUp(f"client {self.number} saw {good} signatures on who is left, {self.threshold} are needed")
        gone = self.held.keys() - self.survivors
        return Revealed(self.seed, {k: self.held[k][: SHARE + 16] for k in gone})

    def rescue(self, missing: Iterable[int]) -> dict[int, bytes]:
        """Shares of the own seeds of survivors who did not reveal theirs."""
        wanted = frozenset(missing)
        if not self.survivors or not wanted <= self.survivors:
            raise GivenUp(f"client {self.number} was asked for both seeds of one client: the server lies")
        return {k: self.held[k][SHARE + 16 :] for k in wanted}


def committed(share: bytes) -> bytes:
    """Commitments to both shares: each is hidden by 16 random bytes."""
    half = SHARE + 16
    return digest(share[:half]) + digest(share[half:])


# --- the server -----------------------------------------------------------------------------------------------------


class Server:
    """The server in one aggregation. Who does not answer, or lies, is left out; `liars` says who lied, and how."""

    def __init__(self, threshold: int, size: int, dtype: Any = np.uint32, context: bytes = b""):
        self.threshold, self.size, self.dtype, self.context = threshold, size, np.dtype(dtype), context
        self.liars: dict[int, str] = {}
        self.keys: dict[int, bytes] = {}
        self.dealt: dict[int, Shares] = {}
        self.masked: dict[int, Any] = {}
        self.seeds: dict[int, bytes] = {}
        self.key_shares: dict[int, dict[int, bytes]] = {}  # by dealer, by holder
        self.seed_shares: dict[int, dict[int, bytes]] = {}

    def enough(self, count: int, what: str) -> None:
        if count < self.threshold:
            named = "".join(f"; client {k} {how}" for k, how in sorted(self.liars.items()))
            raise GivenUp(f"{count} clients {what}, {self.threshold} are needed{named}")

    def collect_keys(self, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Round 0: what every client is shown in round 1."""
        for k, message in messages.items():
            if len(message) not in (64, 64 + SIGNATURE) or message[:64] in [m[:64] for m in self.keys.values()]:
                self.liars[k] = "sent keys that are none, or another's"
            else:
                self.keys[k] = message
        self.enough(len(self.keys), "sent keys")
        return dict(self.keys)

    def collect_shares(self, messages: Mapping[int, Shares]) -> dict[int, tuple[dict[int, bytes], dict[int, bytes]]]:
        """Round 1: what each client is sent in round 2: by dealer, the sealed shares and the commitments to them."""
        for k, message in messages.items():
            others = self.keys.keys() - {k}
            sizes = {len(box) for box in message.sealed.values()} | {2 * (SHARE + 16) + 16}
            pairs = {len(pair) for pair in message.commitments.values()} | {2 * DIGEST}
            known = message.sealed.keys() == others and message.commitments.keys() == self.keys.keys()
            if not known or len(sizes) + len(pairs) > 2 or len(message.seed) != DIGEST:
                self.liars[k] = "did not deal a share to everyone"
            else:
                self.dealt[k] = message
        self.enough(len(self.dealt), "dealt shares")
        dealers = self.dealt.items()
        return {
            k: (
                {dealer: said.sealed[k] for dealer, said in dealers if dealer != k},
                {dealer: said.commitments[k] for dealer, said in dealers if dealer != k},
            )
            for k in self.dealt
        }

    def collect_masked(self, messages: Mapping[int, Any]) -> list[int]:
        """Round 2: who is left, for all to agree upon."""
        for k, values in messages.items():
            if np.shape(values) != (self.size,) or values.dtype != self.dtype:
                self.liars[k] = f"sent other than {self.size} integers of {8 * self.dtype.itemsize} bits"
            elif k in self.dealt:
                self.masked[k] = values
        self.enough(len(self.masked), "sent their numbers")
        return sorted(self.masked)

    def collect_revealed(self, messages: Mapping[int, Revealed]) -> list[int]:
        """Round 4: whose own seeds are missing, to be rescued."""
        gone = self.dealt.keys() - self.masked.keys()
        for holder, message in messages.items():
            if digest(message.seed) == self.dealt[holder].seed:
                self.seeds[holder] = message.seed
            else:
                self.liars[holder] = "revealed another seed than it had committed to"
            self.check_shares(holder, {k: message.keys.get(k, b"") for k in gone}, slice(0, DIGEST), self.key_shares)
        return sorted(self.masked.keys() - self.seeds.keys())

    def collect_rescued(self, messages: Mapping[int, dict[int, bytes]]) -> None:
        """Shares of the own seeds that were missing."""
        for holder, message in messages.items():
            self.check_shares(holder, message, slice(DIGEST, 2 * DIGEST), self.seed_shares)

    def check_shares(self, holder: int, shares: Mapping[int, bytes], which: slice, into: dict[Any, Any]) -> None:
        """Keep shares that are what was dealt; name who returns another."""
        for dealer, share in shares.items():
            if digest(share) == self.dealt[dealer].commitments[holder][which]:
                into.setdefault(dealer, {})[holder] = share[:SHARE]
            else:
                self.liars[holder] = "returned another share than it was dealt"

    def total(self) -> Any:
        """The sum of the numbers of all who are left, modulo 2^k."""
        found = np.zeros(self.size, self.dtype)
        for k, values in self.masked.items():
            found = found + values - expanded(self.seed_of(k), self.size, self.dtype)
        for k in sorted(self.dealt.keys() - self.masked.keys()):
            key = self.key_of(k)
            for other in self.masked:
                shared = agreed(key, self.keys[other][32:64], b"mask" + self.context)
                mask = expanded(shared, self.size, self.dtype)
                found = found - mask if other < k else found + mask
        return found

    def seed_of(self, k: int) -> bytes:
        """A survivor's own seed, as it said or as the others' shares give it."""
        if k in self.seeds:
            return self.seeds[k]
        shares = self.seed_shares.get(k, {})
        self.enough(len(shares), f"returned a share of client {k}'s seed")
        seed = secret_of(shares, self.threshold)
        if seed is None or digest(seed) != self.dealt[k].seed:
            raise GivenUp(f"client {k} dealt shares of no seed: it lied, and its mask cannot be removed")
        return seed

    def key_of(self, k: int) -> bytes:
        """The mask key of who is gone."""
        shares = self.key_shares.get(k, {})
        self.enough(len(shares), f"returned a share of client {k}'s key")
        key = secret_of(shares, self.threshold)
        if key is None or public(key) != self.keys[k][32:64]:
            raise GivenUp(f"client {k} dealt shares of no key: it lied, and its masks cannot be removed")
        return key


# --- the whole ------------------------------------------------------------------------------------------------------


def threshold_of(clients: int) -> int:
    """Two thirds: a third may drop out; two lists signed by so many share a third of all, who sign only one."""
    return clients - clients // 3


def aggregated(server: Server, clients: Mapping[int, Client], values: Mapping[int, Any], drops: Any = None) -> Any:
    """One aggregation, played in memory. `drops(stage)` are those who are gone from a stage on."""
    gone: set[int] = set()

    def there(stage: int) -> list[int]:
        gone.update(drops(stage) if drops else ())
        return [k for k in clients if k not in gone]

    shown = server.collect_keys({k: clients[k].advertise() for k in there(0)})
    forwarded = server.collect_shares({k: clients[k].share(shown) for k in there(1) if k in shown})
    masked = {k: clients[k].mask(values[k], *forwarded[k]) for k in there(2) if k in forwarded}
    left = server.collect_masked(masked)
    signatures = {k: clients[k].agree(left) for k in there(3) if k in left}
    missing = server.collect_revealed({k: clients[k].reveal(left, signatures) for k in there(4) if k in signatures})
    if missing:
        holders = [k for k in there(5) if k in signatures and k not in missing]
        server.collect_rescued({k: clients[k].rescue(missing) for k in holders})
    return server.total()
