"""PLDP-FL: each client brings its own privacy budget, and the server chooses whom to ask.

Chen et al., ICASSP: personalised local differential privacy with adaptive client sampling; algorithm 1,
whose lines are named below. Record level: each example's gradient is clipped (the paper clips a batch's,
which bounds no record). The noise is that of a numerical accountant for the times a client is likely to be
asked, and a client whose budget is spent falls silent: no ledger ever exceeds its budget.

In the first `pretrain` rounds everyone is asked. Each client then also says the noised norm of its mean
clipped gradient (G_i, line 3), which is charged; after them the server solves problem P2 once and samples by
it.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.algorithms import asking
from archipel.algorithms.sampling import Optimal
from archipel.errors import BadInput, did_you_mean
from archipel.generators import add_gaussian, poisson_batch
from archipel.privacy.accounting import check_delta
from archipel.privacy.ledger import Ledger
from archipel.privacy.personal import (
    COUNTS,
    PersonalLedgers,
    affordable_mu,
    check_reach,
    counting,
    drawn_budgets,
    personal_ledger,
    promised,
    release_of,
    roughly_affordable_mu,
)
from archipel.privacy.releases import RELATIONS, Gaussian
from archipel.problems.models.learners import check_finite, learner_of, names_of, sizes_of
from archipel.theory.pldp import noise_scale
from archipel.turns import Plan, Setup, Tell, Turn

NORM_NOISE = 1 << 20  # the index of the noise on a gradient norm: never that of a local step
CAREFUL = 0.9  # of a rough estimate
LEAST_NORM = 1e-3  # of the clipping bound: noise may leave a norm at or below zero


class Settings(NamedTuple):
    learner: Any
    step: float  # eta
    clip: float  # C
    local_steps: int  # E
    rates: Any  # s_i: the chance of a record to be in a batch
    samples: Any  # n_i
    weights: Any  # p_i
    sampling: Any  # Uniform, ByWeight or Optimal
    noise: Any  # B_i
    rounds: int  # R
    pretrain: int
    seed: int
    count: Any  # how often a client takes part: exact, by lemma 1, or K R
    excess: float  # delta'''
    relation: str
    norm_share: float  # of a budget's zCDP that one gradient norm costs
    ledgers: list[Ledger]


class Client(NamedTuple):
    model: Any
    share: Any  # what its update will count: comes with the question and goes back with the answer
    chance: Any  # q_i, as the server said; 0 before it is known
    planned: Any  # the q_i that its noise was calibrated for; -1 before
    mu: Any  # sensitivity / sigma of its releases
    asked: Any  # in how many rounds
    stopped: Any  # how often it kept silent, its budget spent


# --- a client -----------------------------------------------------------------------------------------------


def take(me: Any, said: Any, settings: Settings, moment: Any) -> None:
    """Line 7: the local model starts from the server's."""
    me.model[:] = said.model
    me.share[0], me.chance[0] = said.share[0], said.chance[0]
    me.asked[0] += 1


def act(me: Any, data: Any, said: Any, settings: Settings, moment: Any) -> bool:
    """Lines 8 to 14, charged before anything is computed; silence where the budget does not cover them."""
    if not moment.present:
        return False
    ledger = settings.ledgers[moment.node]
    said.norm[0] = 0.0
    if moment.round < settings.pretrain and isinstance(settings.sampling, Optimal):
        said.norm[0] = noised_norm(me.model, data, settings, moment)
    if me.planned[0] != me.chance[0]:
        calibrate(me, settings, moment)
        silent = me.mu[0] == 0
    else:
        silent = me.stopped[0] > 0  # spent is spent
    if silent:
        me.stopped[0] += 1
        return False
    release = release_of(float(me.mu[0]), float(settings.rates[moment.node]), ledger.terms.relation)
    if not ledger.affords(release, settings.local_steps):
        me.stopped[0] += 1
        return False
    ledger.charge(moment.round, release, settings.local_steps)
    said.change[:] = me.model
    for j in range(settings.local_steps):
        noisy_step(me.model, data, settings, float(me.mu[0]), moment, j)
    np.subtract(me.model, said.change, out=said.change)
    check_finite(said.change, settings.step)
    said.share[0] = me.share[0]
    return True


def sensitivity(settings: Settings) -> float:
    """How far one record moves a sum of clipped gradients: C if added or removed, 2 C if replaced."""
    return settings.clip * (2.0 if settings.relation == "replace-one" else 1.0)


def noisy_step(model: Any, data: Any, settings: Settings, mu: float, moment: Any, j: int) -> None:
    """Lines 9 to 14: a batch in secret, each example's gradient clipped, noise on their sum, a step.

    The sum is divided by the expected size of the batch: its true size would tell who is in it.
    """
    samples, rate = int(settings.samples[moment.node]), float(settings.rates[moment.node])
    rows = poisson_batch(samples, rate, moment.key, j)
    total = np.zeros_like(model)
    if len(rows):
        settings.learner.clipped_sum(total, model, data, rows, settings.clip)
    add_gaussian(total, sensitivity(settings) / mu, moment.key, j)
    total *= model.dtype.type(-settings.step / (samples * rate))
    model += total


def noised_norm(model: Any, data: Any, settings: Settings, moment: Any) -> float:
    """Line 3: the norm of the mean clipped gradient: cheap, as one record moves it by sensitivity / n_i.

    0 where the budget does not cover it.
    """
    ledger, samples = settings.ledgers[moment.node], int(settings.samples[moment.node])
    release = norm_release(ledger, settings)
    if not ledger.affords(release):
        return 0.0
    ledger.charge(moment.round, release)
    total = np.zeros_like(model)
    settings.learner.clipped_sum(total, model, data, np.arange(samples), settings.clip)
    norm = np.array([np.linalg.norm(total.astype(float))])
    add_gaussian(norm, sensitivity(settings) / release.mu, moment.key, NORM_NOISE)
    return max(float(norm[0]) / samples, LEAST_NORM * settings.clip)


def norm_release(ledger: Ledger, settings: Settings) -> Gaussian:
    """A gradient norm costs the same share of everyone's budget."""
    assert ledger.budget is not None
    return Gaussian(np.sqrt(2 * settings.norm_share * ledger.budget.gaussian_rho()))


def calibrate(me: Any, settings: Settings, moment: Any) -> None:
    """Line 1: the noise with which the likely number of participations just fits into the budget.

    While pre-training q is not known yet: then as if all chances were equal, roughly. What that costs is
    charged as it is, and what comes later fits around it.
    """
    k, ledger, draws = moment.node, settings.ledgers[moment.node], settings.sampling.draws
    budget: Any = ledger.budget
    rate, relation = float(settings.rates[k]), ledger.terms.relation
    later = settings.rounds - settings.pretrain
    me.planned[0] = me.chance[0]
    if moment.round < settings.pretrain:
        expected = settings.pretrain + settings.count(later, draws, 1 / len(settings.weights), settings.excess)
        releases = int(expected) * settings.local_steps
        me.mu[0] = CAREFUL * roughly_affordable_mu(budget.epsilon, budget.delta, releases, rate)
    else:
        expected = settings.count(later, draws, float(me.chance[0]), settings.excess)
        releases = int(expected) * settings.local_steps
        history = ledger.history()
        me.mu[0] = affordable_mu(budget.epsilon, budget.delta, releases, rate, relation, history)
    if me.mu[0] > 0:  # the ledger looks this far ahead at once, not step by step
        ledger.affords(release_of(float(me.mu[0]), rate, relation), max(releases, settings.local_steps))


# --- the description ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PldpFl:
    """Private steps on the clients, sampling by the server.

    `sampling` is uniform, weight or optimal (problem P2, with `tradeoff` for lambda). `budgets` are two
    numbers, between which every client's epsilon is drawn, or one for each client. `step` 0 is the paper's
    16 (K R)^(-3/4). `participations` is binomial (exact), lemma-1, or all (K R), to compare.
    """

    topologies: ClassVar = ("star",)
    precision: ClassVar = "float32"
    data_kind: ClassVar = "deep"

    sampling: str = "optimal"
    draws: int = 3
    tradeoff: float = 1.0
    budgets: tuple[float, ...] = (16.0, 32.0)
    delta: float = 1e-5
    relation: str = "add-remove"
    participations: str = "binomial"
    clip: float = 1.0
    step: float = 0.0
    local_steps: int = 5
    batch: int = 512
    pretrain: int = 1
    norm_share: float = 0.01

    def settings(self, setup: Setup) -> Settings:
        """The numbers of a run, checked."""
        self.check_numbers(setup.rounds)
        learner = learner_of(setup.task, setup.dtype)
        sizes = sizes_of(setup.task)
        small = int(np.argmin(sizes))
        if not 1 <= self.batch <= sizes[small]:
            right = f"1 to {sizes[small]}, the samples of {names_of(setup.task)[small]}, who has fewest"
            raise BadInput("algorithm.batch", self.batch, right)
        sampling = asking.chosen_sampling(self.sampling, self.draws, self.tradeoff)
        weights = sizes / sizes.sum()
        sampling.chances(weights, np.ones(len(sizes)), np.ones(len(sizes)))  # refuses N <= K
        rates, budgets = self.batch / sizes, drawn_budgets(self.budgets, len(sizes), setup.seed)
        for budget, rate in zip(budgets.tolist(), rates.tolist()):
            check_reach(budget, self.delta, rate, ("algorithm.budgets", "algorithm.delta"))
        step = self.step or 16.0 * (self.draws * setup.rounds) ** -0.75
        return Settings(
            learner,
            step,
            self.clip,
            self.local_steps,
            rates,
            sizes,
            weights,
            sampling,
            noise_scale(budgets, rates, self.delta, self.draws * setup.rounds),
            setup.rounds,
            self.pretrain,
            setup.seed,
            counting(self.participations),
            self.delta / 4,
            self.relation,
            self.norm_share,
            [personal_ledger(*of, self.delta, self.relation, self.clip) for of in zip(names_of(setup.task), budgets)],
        )

    def check_numbers(self, rounds: int) -> None:
        """Refuse what makes no sense, before anything runs."""
        for name in ("clip", "local_steps"):
            if not 0 < getattr(self, name) < np.inf:
                raise BadInput(f"algorithm.{name}", getattr(self, name), "a positive number")
        if not 0 <= self.step < np.inf:
            raise BadInput("algorithm.step", self.step, "a positive number, or 0 for the paper's rule")
        check_delta(self.delta, "algorithm.delta")
        if self.relation not in RELATIONS:
            raise BadInput("algorithm.relation", self.relation, did_you_mean(self.relation, RELATIONS))
        asking.check_pretrain(self.sampling, self.pretrain, rounds)
        if not 0 < self.norm_share * max(self.pretrain, 1) < 1:
            raise BadInput("algorithm.norm_share", self.norm_share, "a small share of a budget, above 0")

    def plan(self, setup: Setup) -> Plan:
        """Clients that keep what they were told, a server, and their two turns."""
        if setup.privacy is not None:
            own = promised(setup.privacy, setup.task.clients, setup.seed)
            return replace(self, **own).plan(setup._replace(privacy=None))
        settings, dtype = self.settings(setup), setup.dtype
        clients, size = setup.task.clients, setup.task.size
        one = np.zeros((clients, 1))
        model = np.zeros((clients, size), dtype)
        tables = {
            "client": Client(model, one, one.copy(), one - 1, *(one.copy() for _ in range(3))),
            "server": asking.server_of(settings.learner.start().astype(dtype), settings),
        }
        question, answer, inbox = asking.words_of(size, clients, dtype)
        turns = (
            Tell("server", "client", asking.tell, take, question),
            Turn("client", "server", act, asking.hear, asking.merge, answer, inbox),
        )
        return Plan(
            tables,
            turns,
            settings,
            {0: size, 1: size},
            plain_only=True,
            measure=partial(measured, settings),
            accountant=PersonalLedgers(settings.ledgers, self.delta),
        )

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned: the server's model; a client keeps none of its own."""
        return {"server": tables["server"].model[0]}

    def check(self, setup: Setup) -> dict[str, float]:
        """How often a client is planned to take part, at equal chances: exactly, by lemma 1, by K R."""
        each, excess = 1 / setup.task.clients, self.delta / 4
        found = {name: count(setup.rounds, self.draws, each, excess) for name, count in COUNTS.items()}
        return {f"participations, {name}": float(number) for name, number in found.items()}


def measured(settings: Settings, tables: dict[str, Any], round: int) -> dict[str, Any]:
    """Who is asked with which chance, who was asked how often, who kept silent, and everyone's noise."""
    clients = tables["client"]
    with np.errstate(divide="ignore"):
        noise = np.where(clients.mu[:, 0] > 0, sensitivity(settings) / clients.mu[:, 0], np.nan)
    return asking.measured(tables, settings) | {
        "asked.node": clients.asked[:, 0].copy(),
        "stopped.node": clients.stopped[:, 0].copy(),
        "noise.node": noise,
    }
