"""PLDP-FL: each client brings its own privacy budget, and the server chooses whom to ask.

Chen et al., ICASSP: personalised local differential privacy with adaptive client sampling; algorithm 1. In the first
`pretrain` rounds everyone is asked. Each client then also says the noised norm of its mean clipped gradient (G_i, line
3), which is charged; after them the server solves problem P2 once and samples by it. `parts.protect.personal` has the
clients' side, `parts.ask.drawn` the server's.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from archipel.algorithms.deep import Deep
from archipel.describe import key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.parts.ask import drawn
from archipel.parts.ask.drawn import Drawn
from archipel.parts.ask.sampling import SAMPLINGS
from archipel.parts.compose import Parts
from archipel.parts.learn.deep import DpSgd, check_batch
from archipel.parts.mix.mean import Mean
from archipel.parts.protect.personal import Personal
from archipel.parts.share.whole import Whole
from archipel.privacy.accounting import check_delta
from archipel.privacy.personal import COUNTS, drawn_budgets, promised
from archipel.privacy.releases import RELATIONS
from archipel.theory.pldp import noise_scale
from archipel.turns import Plan, Setup


@dataclass(frozen=True)
class PldpFl(Deep):
    """Private steps on the clients, sampling by the server; among several servers each samples its own clients.

    `sampling` is uniform, weight or optimal (problem P2, with `tradeoff` for lambda). `budgets` are two
    numbers, between which every client's epsilon is drawn, or one for each client. `step` 0 is the paper's
    16 (K R)^(-3/4). `participations` is binomial (exact), lemma-1, or all (K R), to compare.
    """

    refuses: ClassVar[dict[str, str]] = {
        "peers": "a server chooses whom to ask",
        "digraph": "a server chooses whom to ask",
    }

    sampling: str = key("optimal", "the chances of clients", choices=SAMPLINGS)
    draws: int = key(3, "how often a server draws in a round", at_least=1, symbol="K")
    tradeoff: float = key(1.0, "what noise counts beside the spread of the data", at_least=0, symbol="lambda")
    budgets: tuple[float, ...] = key((16.0, 32.0), "a range of epsilons, or everyone's", above=0)
    delta: float = key(1e-5, "the chance that a client pays more", above=0, below=1)
    relation: str = key("add-remove", "what happens to one record", choices=RELATIONS)
    participations: str = key("binomial", "how often a client takes part", choices=tuple(COUNTS))
    clip: float = key(1.0, "of an example's gradient", above=0, symbol="C")
    step: float = key(0.0, "the learning rate; 0: the paper's rule", at_least=0, symbol="eta")
    local_steps: int = key(5, "steps in a round", at_least=1, symbol="E")
    batch: int = key(512, "samples in a step, on average", at_least=1)
    pretrain: int = key(1, "rounds at first in which everyone is asked", at_least=0)
    norm_share: float = key(0.01, "of a budget, for one gradient norm", above=0, below=1)
    limit: int = key(10, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def own_parts(self, setup: Setup) -> Parts:
        check_delta(self.delta, "algorithm.delta")
        rates = self.batch / check_batch(self.batch, setup)
        budgets = drawn_budgets(self.budgets, setup.task.clients, setup.seed)
        noise = noise_scale(budgets, rates, self.delta, self.draws * setup.rounds)
        protect = Personal(
            self.budgets, self.delta, self.relation, self.participations, self.clip, self.norm_share, self.draws,
            self.pretrain,
        )  # fmt: skip
        step = self.step or 16.0 * (self.draws * setup.rounds) ** -0.75
        asks = Drawn(self.sampling, self.draws, self.pretrain, self.tradeoff, tuple(noise.tolist()), self.clip)
        learn = DpSgd(step, self.batch, self.local_steps)
        return Parts(learn, protect, Whole(change=True), Mean(self.limit), ask=asks)

    def plan(self, setup: Setup) -> Plan:
        """Everyone at the start, and their turns; a [privacy] table may say the budgets."""
        if setup.privacy is not None:
            if self.protect is not None:
                right = "none: it says the budgets of pldp-fl's own protection, and [algorithm.protect] is another one"
                raise BadInput("privacy", "(a table)", right)
            own = promised(setup.privacy, setup.task.clients, setup.seed)
            return replace(self, **own).plan(setup._replace(privacy=None))
        plan = self.planned(setup)
        return plan._replace(measure=partial(measured, plan.settings, self.tradeoff))

    def check(self, setup: Setup) -> dict[str, float]:
        """How often a client is planned to take part, at equal chances: exactly, by lemma 1, by K R."""
        each, excess = 1 / setup.task.clients, self.delta / 4
        found = {name: count(setup.rounds, self.draws, each, excess) for name, count in COUNTS.items()}
        return {f"participations, {name}": float(number) for name, number in found.items()}


def measured(settings: Any, tradeoff: float, tables: dict[str, Any], round: int) -> dict[str, Any]:
    """Who is asked with which chance and how often; of the kind's own protection, who kept silent and whose noise."""
    told = drawn.measured(settings.asked, tradeoff if settings.asked.solve else 1.0, tables, round)
    mine = tables["client"].protect
    if "mu" not in mine._fields:
        return told
    with np.errstate(divide="ignore"):
        noise = np.where(mine.mu[:, 0] > 0, settings.protect.change / mine.mu[:, 0], np.nan)
    return told | {"stopped.node": mine.stopped[:, 0].copy(), "noise.node": noise}
