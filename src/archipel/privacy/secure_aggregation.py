"""Secure aggregation: a server learns the sum of its clients' integers, and nothing else of them.

What a client knows and does; `coding` has the arithmetic. In a round:

    mask    its word, masked, with corrections                        to the server
    hear    who is in the sum                                         from the server
    answer  the sum of its pads for these, once                       to the server

Any pair of clients has a key of its own, from X25519 keys that are shown once; a pad is the key stream of ChaCha20
under that key, with the round for its nonce.
"""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np

from archipel.errors import Missing
from archipel.privacy.coding import Code, GivenUp, masked
from archipel.privacy.discrete import rejected

try:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as lacking:
    raise Missing("Secure aggregation needs cryptography: pip install 'archipel[deploy]'.") from lacking

KEY = 32  # bytes of a key, secret or public
WIDE = 16  # bytes of which a number modulo the prime is made: uniform but for 2^-96


def public(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agreed(secret: bytes, other: bytes, *purposes: bytes) -> list[bytes]:
    """The keys that two clients have in common, one for each purpose."""
    try:
        shared = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as problem:
        raise GivenUp("a client shows a key that gives everyone the same secret: it lies") from problem
    infos = (b"archipel secure aggregation " + purpose for purpose in purposes)
    return [HKDF(hashes.SHA256(), KEY, salt=None, info=info).derive(shared) for info in infos]


def stream(key: bytes, n: int, many: int) -> Any:
    """The n-th key stream of a key: so many uniform numbers of 64 bits."""
    nonce = bytes(8) + n.to_bytes(8, "little")
    return np.frombuffer(Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor().update(bytes(8 * many)), "<u8")


def expanded(key: bytes, n: int, count: int, prime: int) -> Any:
    """Uniform numbers modulo the prime: the key stream of a round, 16 bytes a number."""
    wide = stream(key, n, count * WIDE // 8).reshape(count, 2)
    return (wide[:, 0] % prime * (2**64 % prime) % prime + wide[:, 1] % prime) % prime


def add_from(values: Any, deviation: float, seed: bytes) -> None:
    """Add discrete Gaussian noise that a seed decides to integers, in place.

    Of numbers of 53 bits: each is what it should be but for a chance of some 2^-50.
    """
    streams = count()
    if deviation > 0:
        rejected(values, deviation, lambda n: ((stream(seed, next(streams), 3 * n) >> 11) + 0.5).reshape(3, n) / 2**53)


class Masker:
    """One client. It masks one word in a round, and answers for one list."""

    def __init__(self, code: Code, number: int, secret: bytes, keys: Sequence[bytes], context: bytes = b""):
        self.code, self.number = code, number
        if keys[number] != public(secret) or len({*keys}) < code.clients:
            raise GivenUp(f"client {number} was shown keys that cannot be: the server lies, or this client is another")
        me, ends = number.to_bytes(4, "big"), [k.to_bytes(4, "big") for k in range(code.clients)]
        pairs = [agreed(secret, key, context + me + end, context + end + me) for key, end in zip(keys, ends)]
        self.dealt, self.held = [list(side) for side in zip(*pairs)]  # by holder, by dealer
        self.said = self.answered = -1  # rounds

    def mask(self, values: Any, n: int) -> tuple[Any, Any]:
        """A word of round n, masked, and its corrections."""
        if n <= self.said:
            raise GivenUp(f"client {self.number} was to mask a second word in round {n}")
        self.said = n
        code = self.code
        pads = np.stack([expanded(key, n, code.rows, code.prime) for key in self.dealt])
        return masked(code, np.asarray(values, np.uint64), pads)

    def answer(self, listed: Iterable[int], n: int) -> Any:
        """The sum of its pads for those who are in round n's sum."""
        who = sorted({*listed})
        if n <= self.answered:
            raise GivenUp(f"client {self.number} was asked twice in round {n}: the server lies")
        if len(who) < self.code.needed or not 0 <= who[0] <= who[-1] < self.code.clients:
            few = f"{len(who)} clients in the sum, {self.code.needed} are needed"
            raise GivenUp(f"client {self.number} says nothing: {few}, for their noise too")
        self.answered = n
        total = np.zeros(self.code.rows, np.uint64)
        for k in who:
            total = (total + expanded(self.held[k], n, self.code.rows, self.code.prime)) % self.code.prime
        return total
