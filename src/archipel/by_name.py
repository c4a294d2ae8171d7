"""Numbers that clients have by name, in tables of a description."""

from collections.abc import Mapping, Sequence
from typing import Any

from archipel.errors import BadInput, did_you_mean

OTHERS = "others"  # all who are not named


def in_order(given: Any, names: Sequence[str], key: str) -> Any:
    """Numbers by clients' names as a list in the order of the clients; "others" stands for those not named.

    >>> in_order({"east": 1.0, "others": 4.0}, ("west", "east"), "privacy.epsilon")
    (4.0, 1.0)
    """
    if not isinstance(given, Mapping):
        return given
    known = set(names)
    wrong = [name for name in given if name not in known and name != OTHERS]
    if wrong:
        raise BadInput(f"{key}.{wrong[0]}", given[wrong[0]], f"a client's name: {did_you_mean(wrong[0], known)}")
    lacking = [name for name in names if name not in given]
    if lacking and OTHERS not in given:
        few = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
        raise BadInput(key, ", ".join(given), f"a number for every client, or one for {OTHERS}: none for {few}")
    return tuple(given[name] if name in given else given[OTHERS] for name in names)
