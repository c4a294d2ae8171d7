"""A node's account: what it pays before it releases anything, inside node functions.

`scale_of` is the only way to the noise of a round: it looks up the scale, finds what the release costs, pays, and gives
the scale; or takes nothing and gives a number below 0, and then nothing may be released. `accountant` reads the same
records in a simulation, `deploy.accounts` on a device.
"""

import math
from decimal import ROUND_CEILING, Context
from typing import Any, NamedTuple

import numpy as np

from archipel.node import exact
from archipel.privacy.noise import LAPLACE, NONE
from archipel.privacy.releases import Gaussian, Laplace, Release

UP = Context(prec=12, rounding=ROUND_CEILING)
UNPAID = -1.0  # of a scale: the release cannot be paid


class Account(NamedTuple):
    """Arrays of one number per node, all in zCDP but `noise` and `releases`."""

    noise: Any  # the scale of the noise in the first round
    spent: Any  # for the unit of the policy: `dearest` where every sample pays for itself, else `summed`
    limit: Any  # infinite without a budget
    releases: Any
    dearest: Any  # one release, at most: what a sample that is used once has paid
    summed: Any  # all releases: what a client has paid


class Spending(NamedTuple):
    """The settings of an account: the same for all nodes."""

    law: Any  # of the noise
    shape: Any  # (rounds,): the scale in a round over that of the first; below 0 where nothing may be released
    per_sample: Any  # 1: every sample is used once and pays for itself; 0: costs add up


def accounts(noise: Any, limit: Any) -> Account:
    """Empty accounts, a row per node, of noise scales and limits."""
    noise, limit = (np.asarray(column, float).reshape(-1, 1).copy() for column in (noise, limit))
    return Account(noise, np.zeros_like(limit), limit, *(np.zeros_like(limit) for _ in range(3)))


@exact
def release_cost(law: Any, sensitivity: Any, scale: Any) -> Any:
    """The zCDP of one release with noise of this law and scale; infinite without noise.

    Gaussian: phi(n) = sensitivity^2 / (2 scale^2), (3.13) of the thesis. Laplace: see `releases.rho_of`.
    """
    if sensitivity == 0:
        return 0.0
    if scale == 0 or law == NONE:
        return np.inf
    ratio = sensitivity / scale
    return min(0.5 * ratio * ratio, ratio) if law == LAPLACE else 0.5 * ratio * ratio


def release_of(law: int, cost: float) -> Release:
    """The release that costs this: what a ledger writes down. `release_cost` the other way round.

    Rounded up, in the 12th digit: so that releases that are alike are written alike, and one accountant's work.

    >>> release_of(LAPLACE, release_cost(LAPLACE, 0.5, 1.0))
    Laplace(epsilon=0.5)
    """
    ratio = cost if law == LAPLACE and cost > 2 else math.sqrt(2 * cost)
    ratio = float(UP.create_decimal_from_float(ratio))
    return Laplace(ratio) if law == LAPLACE else Gaussian(ratio)


@exact
def pay(account: Any, cost: Any, per_sample: Any) -> Any:
    """Take the cost and say True; or take nothing and say False: then nothing may be released."""
    total = max(account.spent[0], cost) if per_sample == 1 else account.spent[0] + cost
    if not total <= account.limit[0]:
        return False
    account.spent[0] = total
    account.dearest[0] = max(account.dearest[0], cost)
    account.summed[0] += cost
    account.releases[0] += 1.0
    return True


@exact
def scale_of(account: Any, settings: Any, sensitivity: Any, moment: Any) -> Any:
    """The scale of this round's noise, paid for; below 0 if it cannot be: then nothing may be released."""
    if moment.round >= settings.shape.shape[0] or settings.shape[moment.round] < 0.0:
        return UNPAID
    scale = account.noise[0] * settings.shape[moment.round]
    if not pay(account, release_cost(settings.law, sensitivity, scale), settings.per_sample):
        return UNPAID
    return scale
