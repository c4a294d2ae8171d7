"""Noise at the mix that cancels in the sum of rounds: clients are asked in turn, and the server's noise is correlated.

A server's model is the sum of its rounds' noised changes, so noise may be correlated from round to round
(`privacy.correlated`) if it is known how often a client is in them. Here client k is asked in the rounds n with n = k
modulo `every`, and the noise of a round is taken off in the `every` - 1 that follow: C has `every` bands. Then the
columns of a client's rounds do not overlap, whatever it says there, and its rounds cost what as many rounds of
independent noise would, with the norm of one column for sensitivity. If within its turn a client is asked in secret
(`asked`), each of them is cheaper as at the mix: Choquette-Choo et al., NeurIPS 2023 (banded matrix factorisation).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.describe import key
from archipel.errors import BadInput
from archipel.generators import add_gaussian
from archipel.node import exact, extended, fill
from archipel.parts import ProtectPiece
from archipel.parts.protect.correlated import ALIKE, CORRELATED
from archipel.parts.protect.mix import AtMix, Summed
from archipel.parts.protect.openly import check_needed, table_of
from archipel.privacy.account import Account, scale_of
from archipel.privacy.correlated import Strategy, disturb_correlated, strategy
from archipel.privacy.ledger import ENFORCED, Assumption, Terms
from archipel.privacy.noise import GAUSSIAN
from archipel.turns import Setup

# `change` is how far one client moves C x in one of its rounds; `expected`, (servers, every): of a turn
Turning = extended(Summed, "Turning", "every", "way")
# the noise of earlier rounds, and the last cycle of turns that was paid for
Remembering = extended(Account, "Remembering", "past", "cycle")


@exact
def may_noise(me: Any, settings: Any, moment: Any) -> Any:
    """A cycle is paid for as it begins: everyone is asked once in it. Rounds that were left out had no noise."""
    terms, account = settings.protect, me.protect
    cycle, rows = moment.round // terms.every, account.past.noise.shape[0]
    if cycle >= account.cycle[0]:
        if scale_of(account, terms, terms.change, moment) < 0.0:
            return False
        account.cycle[0] = cycle + 1
    while account.past.step[0] < moment.round:
        for j in range(account.past.noise.shape[1]):
            account.past.noise[int(account.past.step[0]) % rows, j] = 0.0
        account.past.step[0] += 1
    return True


@exact
def noise_sum(inbox: Any, me: Any, settings: Any, moment: Any) -> Any:
    if not may_noise(me, settings, moment):
        return False
    terms, account = settings.protect, me.protect
    disturb_correlated(inbox.total, account.past, terms.way, GAUSSIAN, account.noise[0], moment.key)
    fill(inbox.count, terms.expected[moment.node, moment.round % terms.every])
    return True


def noise_long_sum(inbox: Any, me: Any, settings: Any, moment: Any) -> bool:
    """The same for the many parameters of a network: `disturb_correlated` of a band, by the thousand."""
    if not may_noise(me, settings, moment):
        return False
    terms, past, before = settings.protect, me.protect.past, inbox.total.copy()
    rows, step = len(past.noise), int(past.step[0])
    inbox.total[:] -= (terms.way.weight[(step - 1 - np.arange(rows)) % rows] @ past.noise).astype(before.dtype)
    add_gaussian(inbox.total, float(me.protect.noise[0]), moment.key, 0)
    past.noise[step % rows] = inbox.total - before
    past.step[0] += 1
    fill(inbox.count, terms.expected[moment.node, moment.round % terms.every])
    return True


@dataclass(frozen=True)
class InTurn(AtMix):
    """As `at-mix`, but clients are asked in turn, and the server's noise cancels in the sum of rounds.

    It is for many rounds and large budgets; with small ones asking everyone in secret hides more: docs/privacy.md.
    """

    every: int = key(8, "rounds from one in which a client may be asked to the next", at_least=1)
    bands: int = key(0, "rounds over which noise cancels, at most `every`; 0: as many; 1: none", at_least=0)

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        policy, graph = table_of(setup), setup.graph
        needed = ALIKE | {"noise": (None, "none, but an epsilon: a client pays for its turns, not for every round")}
        check_needed(policy, needed, CORRELATED)
        if not isinstance(policy.epsilon, int | float):
            raise BadInput("privacy.epsilon", policy.epsilon, "one number for all, where noise is correlated")
        if self.bands > self.every:
            right = f"at most every = {self.every}: else a client would pay for how its rounds stand together"
            raise BadInput("algorithm.protect.bands", self.bands, right)
        if graph.servers and self.every > int(np.bincount(graph.server).min()):
            raise BadInput("algorithm.protect.every", self.every, "at most as many as a server has clients")
        made, way = super().make(setup, learn), self.strategy(setup)
        groups = np.zeros((graph.servers, self.every))
        np.add.at(groups, (graph.server, np.arange(graph.clients) % self.every), self.asked)
        if not groups.all():
            right = "fewer: in some rounds a server would have nobody to ask"
            raise BadInput("algorithm.protect.every", self.every, right)
        settings = Turning(**made.settings._replace(expected=groups)._asdict(), every=self.every, way=way.settings)
        past = way.past(graph.servers, setup.task.size, setup.dtype)
        state = Remembering(**made.server_state._asdict(), past=past, cycle=np.zeros((graph.servers, 1)))
        at_mix = noise_long_sum if learn.data_kind == "deep" else noise_sum
        turns = Assumption(f"a client is asked in one of {self.every} rounds at most, in turn", ENFORCED)
        terms = made.accountant.terms
        terms = Terms(terms.unit, terms.relation, (*terms.assumptions, turns))
        return made._replace(
            at_mix=at_mix, settings=settings, server_state=state, every=self.every,
            accountant=made.accountant._replace(terms=terms),
        )  # fmt: skip

    def spacing(self) -> int:
        return self.every

    def strategy(self, setup: Setup) -> Strategy:
        return strategy(setup.rounds, "banded", self.bands or self.every)

    def strain(self, setup: Setup) -> float:
        """The norm of a column of C: a client's rounds are `every` apart, and their columns do not overlap."""
        return self.strategy(setup).sensitivity
