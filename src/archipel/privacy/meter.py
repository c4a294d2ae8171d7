"""The ledger's brake inside a node function: may this node release once more?

A simulation cannot call a Python ledger from compiled code. An `Account` is one running total a node, of
anything that adds up under composition (zCDP), against a limit; the ledger writes the same charges down
afterwards.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.node import kernel


class Account(NamedTuple):
    """What a node spent and may spend, in zCDP: arrays of one number, so that a table of them has rows."""

    spent: Any
    limit: Any  # `budget.gaussian_rho()`, infinite without a budget


def accounts(limits: Any) -> Account:
    """Empty accounts, a row a node."""
    limit = np.asarray(limits, float).reshape(-1, 1).copy()
    return Account(np.zeros_like(limit), limit)


@kernel
def pay(account: Any, cost: Any) -> Any:
    """Take the cost and say True, or leave the account as it is and say False: then nothing may be said."""
    if account.spent[0] + cost > account.limit[0]:
        return False
    account.spent[0] += cost
    return True


@kernel
def gaussian_cost(sensitivity: Any, sigma: Any) -> Any:
    """phi(n) = sensitivity(n)^2 / (2 sigma(n)^2), (3.13) of the thesis; infinite without noise."""
    if sensitivity == 0:
        return 0.0
    if sigma == 0:
        return np.inf
    return 0.5 * (sensitivity / sigma) ** 2
