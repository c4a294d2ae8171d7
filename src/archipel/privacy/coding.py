"""Masks that can be taken off a sum by those who are left, whoever they are. NumPy alone.

A client's mask is the value of a polynomial at some points, and every client holds its value at a point of its own.
Polynomials add up: what `needed` clients hold of a sum's polynomial gives the mask of the sum, and nothing else of the
masks in it. What `secret` of them hold of one client's says nothing about its mask (packed sharing: Franklin and Yung,
STOC 1992; one mask for a sum: So et al., MLSys 2022).

Nobody is sent a share. Holder j's is a *pad* that it and the dealer can both make from the key that they agreed on
once; `needed` pads make a polynomial, and for the other holders the dealer adds to its word how far the polynomial is
from their pads. So in a round everyone sends its masked word with these corrections, hears who is in the sum, and sends
the sum of its pads for these.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

PRIMES = {16: 2**16 - 15, 24: 2**24 - 3, 32: 2**32 - 5}  # the largest of so many bits

SEED = 32  # bytes of what decides a client's excess noise


class GivenUp(RuntimeError):
    """The sum cannot be had, or must not: a sentence that says why."""


class Code(NamedTuple):
    """How words are masked. Any `clients` - `needed` may drop, and any `secret` may tell what they know."""

    clients: int
    needed: int
    secret: int
    size: int  # numbers in a word
    bits: int  # of each
    longest: float = np.inf  # L2 norm of a sum of honest words, at most
    excess: Any = None  # privacy.excess.Excess, where noise is taken off again: answers carry a seed

    @property
    def prime(self) -> int:
        return PRIMES[self.bits]

    @property
    def packed(self) -> int:
        """Numbers of a mask that are values of one polynomial."""
        return self.needed - self.secret

    @property
    def rows(self) -> int:
        """Polynomials of a mask; numbers of a pad."""
        return -(-self.size // self.packed)

    @property
    def weight(self) -> int:
        """Bytes that a client says in a round: its masked word, the corrections, its answer."""
        numbers = self.size + self.corrected * self.rows + self.rows
        return numbers * self.bits // 8 + (SEED if self.excess else 0)

    @property
    def corrected(self) -> int:
        """Holders for whom a word has corrections: the last ones."""
        return self.clients - self.needed


def code_of(clients: int, dropping: float, colluding: float, size: int, bits: int, longest: float = np.inf) -> Code:
    """The code where these shares of the clients may drop, and collude; more may collude where that costs nothing.

    >>> code_of(100, 0.34, 0.4, 200, 24)[:3]
    (100, 66, 41)
    """
    needed = clients - int(dropping * clients + 1e-9)
    code = Code(clients, needed, max(1, int(colluding * clients + 1e-9)), size, bits, longest)
    return code._replace(secret=needed - -(-size // code.rows)) if code.packed > 0 else code


# --- numbers modulo a prime below 2^32: products fit 64 bits ---------------------------------------------------------


def inverse(values: Any, prime: int) -> Any:
    """1 / values: their power prime - 2."""
    found, square, power = np.ones_like(values), values, prime - 2
    while power:
        if power & 1:
            found = found * square % prime
        square, power = square * square % prime, power >> 1
    return found


def times(matrix: Any, values: Any, prime: int) -> Any:
    """matrix @ values."""
    found = np.zeros((matrix.shape[0], values.shape[1]), np.uint64)
    for k in range(matrix.shape[1]):
        found = (found + matrix[:, k, None] * values[k]) % prime
    return found


@lru_cache(maxsize=16)
def lagrange(at: tuple[int, ...], of: tuple[int, ...], prime: int) -> Any:
    """(at, of): what values at the points `of` weigh in those at others, of polynomials with so many coefficients."""
    here, there = np.array(at, np.int64)[:, None], np.array(of, np.int64)
    gaps = ((here - there) % prime).astype(np.uint64)
    own = ((there[:, None] - there) % prime).astype(np.uint64)
    np.fill_diagonal(own, 1)
    whole, under = np.ones((len(at), 1), np.uint64), np.ones(len(of), np.uint64)
    for k in range(len(of)):
        whole = whole * gaps[:, k, None] % prime
        under = under * own[:, k] % prime
    return whole * inverse(gaps, prime) % prime * inverse(under, prime) % prime


# --- words ----------------------------------------------------------------------------------------------------------


def masked(code: Code, values: Any, pads: Any) -> tuple[Any, Any]:
    """A word, masked, and its corrections, from the dealer's pads, (clients, rows): uint64 below the prime."""
    free = tuple(range(1, code.needed + 1))
    rest = tuple(range(code.needed + 1, code.clients + code.packed + 1))
    made = times(lagrange(rest, free, code.prime), pads[: code.needed], code.prime)
    mask = made[code.corrected :].T.reshape(-1)[: code.size]
    fixes = (made[: code.corrected] + (code.prime - pads[code.needed :])) % code.prime
    return (values + mask) % code.prime, fixes


def unmasked(code: Code, total: Any, fixes: Any, answers: Mapping[int, Any]) -> tuple[Any, list[int]]:
    """The sum of words, from the sum of masked ones, of their corrections, and holders' sums of pads.

    Also the holders whose answers do not fit the others'. A few more answers than needed show that; if none fits, or if
    what comes out is longer than honest words can add up to, it is given up.
    """
    if len(answers) < code.needed:
        raise GivenUp(f"{len(answers)} clients answered, {code.needed} are needed to take the masks off the sum")
    held = {j: pad + fixes[j - code.needed] if j >= code.needed else pad for j, pad in answers.items()}
    held = {j: pad % code.prime for j, pad in held.items()}
    wrong = [] if fit(code, held) else misfits(code, held)
    good = sorted(held.keys() - set(wrong))[: code.needed]
    secrets = tuple(range(code.clients + 1, code.clients + code.packed + 1))
    weights = lagrange(secrets, tuple(j + 1 for j in good), code.prime)
    mask = times(weights, np.stack([held[j] for j in good]), code.prime).T.reshape(-1)[: code.size]
    found = (total % code.prime + (code.prime - mask)) % code.prime
    if np.linalg.norm(centred(found, code.prime)) > code.longest:
        raise GivenUp("the sum is longer than clipped words and their noise can make it: somebody lied in this round")
    return found, wrong


def fit(code: Code, held: Mapping[int, Any]) -> bool:
    """Whether all values lie on polynomials of the right degree."""
    who = sorted(held)
    first, rest = who[: code.needed], who[code.needed :]
    if not rest:
        return True
    weights = lagrange(tuple(j + 1 for j in rest), tuple(j + 1 for j in first), code.prime)
    made = times(weights, np.stack([held[j] for j in first]), code.prime)
    return np.array_equal(made, np.stack([held[j] for j in rest]))


def misfits(code: Code, held: Mapping[int, Any]) -> list[int]:
    """The one holder without whom all others' values fit."""
    if len(held) > code.needed + 1:
        for j in held:
            if fit(code, {k: pad for k, pad in held.items() if k != j}):
                return [j]
    raise GivenUp("what clients answered does not fit together, and not by one of them alone: somebody lied")


def centred(values: Any, prime: int) -> Any:
    """Numbers modulo the prime, as the nearest to zero."""
    signed = values.astype(np.int64)
    return np.where(signed > prime // 2, signed - prime, signed).astype(float)


# --- bytes ----------------------------------------------------------------------------------------------------------


def packed(values: Any, bits: int) -> Any:
    """Numbers as bytes, as few as they need."""
    return np.ascontiguousarray(values, "<u8").reshape(-1, 1).view(np.uint8)[:, : bits // 8].reshape(-1)


def unpacked(body: Any, code: Code) -> Any:
    """Numbers from bytes; what is no number modulo the prime is refused."""
    wide = np.zeros((len(body) // (code.bits // 8), 8), np.uint8)
    wide[:, : code.bits // 8] = np.asarray(body, np.uint8).reshape(len(wide), -1)
    found = wide.view("<u8").reshape(-1).astype(np.uint64)
    if len(found) and found.max() >= code.prime:
        raise ValueError("a number that is none modulo the prime")
    return found
