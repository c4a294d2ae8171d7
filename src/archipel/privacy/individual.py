"""Individual accounting: every unit pays for what it said itself, not for the worst that anyone could say.

A unit (a record, a client) whose clipped contribution has norm s pays mu = s / sigma of a Gaussian release, and takes
part until its own budget is spent; its last contribution is shortened to what is left. That the payments depend on the
data, and each on all releases before it, costs nothing: with Gaussian noise, contributions with sum of mu_t^2 <= mu^2
are mu-GDP whatever decides them (a fully adaptive filter: Smith, Thakurta, ICML 2022; at every Renyi order: Feldman,
Zrnic, NeurIPS 2021). For units that are added or removed.

What a unit has paid is as secret as its data: it stays where the data is, and a ledger shows the budget.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.node import exact


class Filter(NamedTuple):
    """What every unit has paid, and may, in zCDP."""

    spent: Any  # (units,)
    limit: Any  # (units,)


def filters(limits: Any) -> Filter:
    """Nothing spent yet."""
    limits = np.array(limits, float)
    return Filter(np.zeros_like(limits), limits)


@exact
def own_factor(filter: Any, i: Any, norm: Any, clip: Any, scale: Any) -> Any:
    """By how much unit i's contribution of this norm is shortened, to the clip and to what is left; paid for.

    Infinite norms and those that are no numbers count as nothing: they add nothing and pay nothing.
    """
    if not norm < np.inf or norm <= 0.0 or not scale > 0.0:
        return 0.0
    room = scale * math.sqrt(2.0 * max(filter.limit[i] - filter.spent[i], 0.0))
    allowed = min(min(norm, clip), room)
    filter.spent[i] = min(filter.spent[i] + 0.5 * (allowed / scale) ** 2, filter.limit[i])
    return allowed / norm


def left(filter: Filter) -> Any:
    """The share of units that can still add something. Secret, as the payments are."""
    return np.mean(filter.spent < filter.limit * (1 - 1e-9))
