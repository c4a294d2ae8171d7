"""Individual accounting: noise at the mix, and each client pays for what it said itself, not for the worst case.

A client's change of norm s costs it s^2 / (2 sigma^2), and it takes part until its own budget is spent; the last change
is shortened to what is left, and after that it says that nothing changed, so that nobody sees who has spent how much.
That payments depend on the data, and each on all releases before it, costs nothing: with Gaussian noise, contributions
whose mu_t^2 sum up to mu^2 are mu-GDP whatever decides them (a fully adaptive filter: Smith, Thakurta, ICML 2022; at
every Renyi order: Feldman, Zrnic, NeurIPS 2021). The noise is what `privacy.releases` rounds of the longest changes
would need; the rounds may be more, and those whose changes are shorter are in more of them.

What a client has paid is as secret as its data. It stays in its own state and its own ledger; what is published, here
as in `archipel privacy`, is its budget.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from archipel.errors import BadInput
from archipel.node import assign, kernel
from archipel.parts import ProtectPiece
from archipel.parts.protect.mix import AtMix
from archipel.parts.protect.openly import check_needed, table_of
from archipel.privacy.account import accounts
from archipel.privacy.accountant import Accountant, Paid, account_of
from archipel.privacy.bounding import rounding
from archipel.privacy.ledger import ASSUMED, ENFORCED, Assumption
from archipel.turns import Setup

HONEST = Assumption("what a liar says is no longer than what it has paid for", ASSUMED)  # a lie of strength 5 is


@kernel
def change_norm(model: Any, before: Any) -> Any:
    """Of what a client says: of its model, less what it was told."""
    total = 0.0
    for j in range(model.shape[0]):
        total += float(model[j] - before[j]) ** 2
    return math.sqrt(total)


@kernel
def shorten(me: Any, settings: Any, moment: Any) -> Any:
    """The change, no longer than the clip and than what is left pays for; paid for."""
    account, scale = me.protect, me.protect.noise[0]
    room = scale * math.sqrt(2.0 * max(account.limit[0] - account.spent[0], 0.0))
    most = min(settings.protect.clip, room)
    norm = change_norm(me.model, me.before)
    if norm > most and norm < np.inf:
        factor = me.model.dtype.type(most / norm * (1.0 - rounding(me.model)))
        for j in range(me.model.shape[0]):
            me.model[j] = me.before[j] + factor * (me.model[j] - me.before[j])
        norm = change_norm(me.model, me.before)
    if not norm <= most:  # no number, or what rounding left is still too long
        assign(me.model, me.before)
        norm = 0.0
    cost = 0.5 * (norm / scale) ** 2
    account.spent[0] = min(account.spent[0] + cost, account.limit[0])
    account.summed[0] += cost
    account.dearest[0] = max(account.dearest[0], cost)
    account.releases[0] += 1.0
    return True


class Secret(Accountant):
    """An accountant of payments that are secret: it says what each client has paid at most, its budget."""

    __slots__ = ()

    def paid(self, tables: dict[str, Any]) -> Paid:
        account = account_of(tables[self.role])
        said = account.releases[:, 0]
        return self.priced(np.where(said > 0, account.limit[:, 0], 0.0).astype(float), said)


@dataclass(frozen=True)
class Individual(AtMix):
    """As `at-mix`, but each client pays for the length of its own changes, and takes part until its budget is spent."""

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        policy = table_of(setup)
        needed: dict[str, tuple[Any, str]] = {
            "mechanism": ("gaussian", '"gaussian": of other noise it is not known what adaptive payments add up to'),
            "schedule": ("constant", '"constant": who is in which round is decided by the payments'),
            "relation": ("add-remove", '"add-remove": a client pays for what it adds'),
        }
        check_needed(policy, needed, "where clients pay for themselves")
        if not policy.has_target:
            raise BadInput("privacy.epsilon", "(missing)", "a budget: clients take part until it is spent")
        bare = replace(policy, epsilon=None, rho=None, noise=1.0)  # the sum, and no budget of the server's
        made, clients = super().make(setup._replace(privacy=bare), learn), setup.task.clients
        drawn = policy.noise_of([[policy.clip]], clients, setup.rounds, setup.seed)
        scale = float(drawn.first.max())
        own = Assumption("a client's own payments decide how long it takes part, and stay with it", ENFORCED)
        honest = (HONEST,) if setup.attack is not None and not setup.attack.listens else ()
        terms = policy.terms(own, *honest, clipped="what a client changes")
        releases = np.full(clients, setup.rounds)
        accountant = Secret(
            policy, terms, setup.seed, setup.task.names, drawn.limit[:, 0], releases, False, "client", False
        )
        servers = np.full((setup.graph.servers, 1), np.inf)
        return made._replace(
            word=shorten, before=True, state=accounts(np.full((clients, 1), scale), drawn.limit),
            server_state=accounts(np.full_like(servers, scale), servers), accountant=accountant,
        )  # fmt: skip
