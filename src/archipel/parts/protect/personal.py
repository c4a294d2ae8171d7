"""Everyone its own budget: noise on clipped gradients of secret batches, for the times a client is likely to be asked.

Chen et al., ICASSP: personalised local differential privacy; lines are those of algorithm 1. Record level: each
example's gradient is clipped (the paper clips a batch's, which bounds no record). The noise is that of a numerical
accountant for the likely number of participations, and a client whose budget is spent falls silent: no ledger ever
exceeds its budget.

A client's releases are not all alike: gradient norms, rounds before the server settled the chances, rounds after. So
its account is a `Ledger`, which knows them one by one; `accountant.ledgers` has them.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.generators import add_gaussian, poisson_batch
from archipel.parts import Protect, ProtectPiece
from archipel.parts.learn.deep import DpSgd
from archipel.parts.protect.openly import always, any_sum, as_it_is, no_noise, refuse_table
from archipel.privacy.account import UNPAID
from archipel.privacy.accounting import check_delta
from archipel.privacy.ledger import Ledger
from archipel.privacy.personal import (
    COUNTS,
    PersonalLedgers,
    affordable_mu,
    check_reach,
    drawn_budgets,
    personal_ledger,
    release_of,
    roughly_affordable_mu,
)
from archipel.privacy.releases import RELATIONS, Gaussian
from archipel.problems.models.learners import Asking, ClippedSum, names_of, sizes_of
from archipel.turns import Setup

NORM_NOISE = 1 << 20  # the index of the noise on a gradient norm: never that of a local step
CAREFUL = 0.9  # of a rough estimate
LEAST_NORM = 1e-3  # of the clipping bound: noise may leave a norm at or below zero


class Budgeted(NamedTuple):
    """What a client knows of its noise."""

    planned: Any  # the q_i that its noise was calibrated for; -1 before
    mu: Any  # sensitivity / sigma of its releases
    stopped: Any  # how often it kept silent, its budget spent


class Promise(NamedTuple):
    ledgers: list[Ledger]
    clip: Any  # C
    change: Any  # how far one record moves a sum of clipped gradients: C if added or removed, 2 C if replaced
    rates: Any  # s_i: the chance of a record to be in a batch
    crowd: Any  # how many clients a client's server has
    steps: Any  # E
    rounds: Any  # R
    pretrain: Any
    draws: Any  # K
    count: Any  # how often a client takes part: exact, by lemma 1, or K R
    excess: Any  # delta'''
    norm_share: Any  # of a budget's zCDP that one gradient norm costs


def pay(me: Any, settings: Any, moment: Any) -> float:
    """The scale of the noise, with all steps of the round charged; below 0 where the budget does not cover them."""
    p, k = settings.protect, moment.node
    ledger = p.ledgers[k]
    if me.protect.planned[0] != me.share.chance[0]:
        calibrate(me, settings, moment)
        silent = me.protect.mu[0] == 0
    else:
        silent = me.protect.stopped[0] > 0  # spent is spent
    if not silent:
        release = release_of(float(me.protect.mu[0]), float(p.rates[k]), ledger.terms.relation)
        if ledger.affords(release, p.steps):
            ledger.charge(moment.round, release, p.steps)
            return p.change / float(me.protect.mu[0])
    me.protect.stopped[0] += 1
    return UNPAID


def calibrate(me: Any, settings: Any, moment: Any) -> None:
    """Line 1: the noise with which the likely number of participations just fits into the budget.

    While pre-training q is not known yet: then as if all chances were equal, roughly. What that costs is charged as it
    is, and what comes later fits around it.
    """
    p, k, chance = settings.protect, moment.node, float(me.share.chance[0])
    ledger, rate = p.ledgers[k], float(p.rates[k])
    budget, relation, later = ledger.budget, ledger.terms.relation, p.rounds - p.pretrain
    me.protect.planned[0] = chance
    if moment.round < p.pretrain:
        expected = p.pretrain + p.count(later, p.draws, 1 / int(p.crowd[k]), p.excess)
        releases = int(expected) * p.steps
        me.protect.mu[0] = CAREFUL * roughly_affordable_mu(budget.epsilon, budget.delta, releases, rate)
    else:
        releases = int(p.count(later, p.draws, chance, p.excess)) * p.steps
        history = ledger.history()
        me.protect.mu[0] = affordable_mu(budget.epsilon, budget.delta, releases, rate, relation, history)
    if me.protect.mu[0] > 0:  # the ledger looks this far ahead at once, not step by step
        ledger.affords(release_of(float(me.protect.mu[0]), rate, relation), max(releases, p.steps))


def gradient(out: Any, model: Any, data: Any, scale: Any, settings: Any, moment: Any, index: int = 0) -> Asking:
    """Lines 9 to 13: a batch in secret, each example's gradient clipped, noise on their sum.

    It is divided by the expected size of the batch: its true size would tell who is in it.
    """
    s, p = settings.learn, settings.protect
    samples, rate = int(s.samples[moment.node]), float(p.rates[moment.node])
    rows = poisson_batch(samples, rate, moment.key, index)
    if len(rows):
        yield ClippedSum(out, model, data, rows, p.clip)
    add_gaussian(out, scale, moment.key, index)
    return samples * rate


def noised_norm(me: Any, data: Any, settings: Any, moment: Any) -> float:
    """Line 3: the norm of the mean clipped gradient: cheap, as one record moves it by sensitivity / n_i.

    0 where the budget does not cover it.
    """
    s, p = settings.learn, settings.protect
    ledger, samples = p.ledgers[moment.node], int(s.samples[moment.node])
    release = Gaussian(np.sqrt(2 * p.norm_share * ledger.budget.gaussian_rho()))  # the same share of everyone's budget
    if not ledger.affords(release):
        return 0.0
    ledger.charge(moment.round, release)
    total = np.zeros_like(me.model)
    s.learner.clipped_sum(total, me.model, data, np.arange(samples), p.clip)
    norm = np.array([np.linalg.norm(total.astype(float))])
    add_gaussian(norm, p.change / release.mu, moment.key, NORM_NOISE)
    return max(float(norm[0]) / samples, LEAST_NORM * p.clip)


@dataclass(frozen=True)
class Personal(Protect, Checked):
    """Every client's epsilon is its own. It comes with the learn part `dp-sgd` and a server that draws whom it asks."""

    where: ClassVar[str] = "sample"
    budgets: tuple[float, ...] = key((16.0, 32.0), "a range of epsilons, or everyone's", above=0)
    delta: float = key(1e-5, "the chance that a client pays more", above=0, below=1)
    relation: str = key("add-remove", "what happens to one record", choices=RELATIONS)
    participations: str = key("binomial", "how often a client takes part", choices=tuple(COUNTS))
    clip: float = key(1.0, "of an example's gradient", above=0, symbol="C")
    norm_share: float = key(0.01, "of a budget, for one gradient norm", above=0, below=1)
    draws: int = key(3, "how often the server draws in a round", at_least=1, symbol="K")
    pretrain: int = key(1, "rounds at first in which everyone is asked", at_least=0)

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        if not isinstance(learn, DpSgd):
            raise BadInput("algorithm.protect.kind", "personal", "another, or the learn part dp-sgd")
        refuse_table(setup, "personal")
        check_delta(self.delta, "algorithm.delta")
        sizes, graph = sizes_of(setup.task), setup.graph
        rates, budgets = learn.batch / sizes, drawn_budgets(self.budgets, len(sizes), setup.seed)
        for budget, rate in zip(budgets.tolist(), rates.tolist()):
            check_reach(budget, self.delta, min(rate, 1.0), ("algorithm.budgets", "algorithm.delta"))
        if not self.norm_share * max(self.pretrain, 1) < 1:
            raise BadInput("algorithm.norm_share", self.norm_share, "a small share of a budget, above 0")
        names = names_of(setup.task)
        ledgers = [personal_ledger(*of, self.delta, self.relation, self.clip) for of in zip(names, budgets)]
        change = self.clip * (2.0 if self.relation == "replace-one" else 1.0)
        settings = Promise(
            ledgers, self.clip, change, rates, np.bincount(graph.server)[graph.server], learn.local_steps, setup.rounds,
            self.pretrain, self.draws, COUNTS[self.participations], self.delta / 4, self.norm_share,
        )  # fmt: skip
        one = np.zeros((len(sizes), 1))
        return ProtectPiece(
            pay, as_it_is, no_noise, always, any_sum, Budgeted(one - 1, one, one.copy()), settings,
            PersonalLedgers(ledgers, self.delta), gradient=gradient, norm=noised_norm,
        )  # fmt: skip
