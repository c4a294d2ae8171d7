"""Draws that depend on what they are for, not on what was drawn before: a history that is cut short keeps the rest."""

MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """64 bits that a key settles, on every machine.

    >>> mix(1, 2) == mix(1, 2) != mix(2, 1)
    True
    """
    x = 0x9E3779B97F4A7C15
    for number in numbers:
        x = ((x ^ (number & MASK)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 29)) * 0x94D049BB133111EB) & MASK
        x ^= x >> 32
    return x


def uniform(*numbers: int) -> float:
    """A number from 0 to below 1 that a key settles."""
    return (mix(*numbers) >> 11) / (1 << 53)
