"""Shamir's secret sharing (CACM 1979): any `threshold` of the shares give the secret, fewer say nothing about it.

Secrets are 32 bytes, numbers below the prime 2^256 + 297; a share is 33 bytes.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

PRIME = 2**256 + 297
SECRET, SHARE = 32, 33  # bytes


def shares_of(secret: bytes, holders: list[int], threshold: int, entropy: Callable[[int], bytes]) -> dict[int, bytes]:
    """A share for every holder: a polynomial of degree threshold - 1 whose value at 0 is the secret, at holder + 1."""
    wide = 2 * SECRET  # twice as many bits as the prime has: their remainder is uniform
    slopes = [int.from_bytes(entropy(wide), "big") % PRIME for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret, "big"), *slopes]
    found = {}
    for holder in holders:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * (holder + 1) + coefficient) % PRIME
        found[holder] = value.to_bytes(SHARE, "big")
    return found


def secret_of(shares: Mapping[int, bytes], threshold: int) -> bytes | None:
    """The secret that `threshold` of these shares have; None where they have none of 32 bytes."""
    some = sorted(shares)[:threshold]
    if len(some) < threshold:
        return None
    weights = at_zero(tuple(some))
    secret = sum(weight * int.from_bytes(shares[k], "big") for weight, k in zip(weights, some)) % PRIME
    return secret.to_bytes(SECRET, "big") if secret < 1 << (8 * SECRET) else None


@lru_cache(maxsize=64)
def at_zero(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights of these holders' values at 0."""
    found = []
    for k in holders:
        over, under = 1, 1
        for other in holders:
            if other != k:
                over, under = over * (other + 1) % PRIME, under * (other - k) % PRIME
        found.append(over * pow(under, -1, PRIME) % PRIME)
    return tuple(found)
