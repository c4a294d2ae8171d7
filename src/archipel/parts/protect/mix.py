"""Noise enters at the mix: whole clients are protected by a server that is trusted.

McMahan, Ramage, Talwar, Zhang, ICLR 2018, algorithm 1: the server asks each client with a secret chance, clips what
each one changed, adds noise to the sum, and divides by how many it expected: the true number would tell who was asked.
A client that is not asked is not in the sum, so an `asked` below 1 makes each release cheaper; all clients pay, asked
or not. Among several servers each noises the sum of its own clients, who pay for that alone.

A client is in a sum once: what comes late is lost, and a mix that waits for it is refused.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.generators import add_gaussian, add_laplace
from archipel.node import extended, fill, kernel
from archipel.parts import Protect, ProtectPiece, empty
from archipel.parts.protect.openly import always, as_it_is, check_clip, free, no_noise, table_of
from archipel.parts.protect.sample import Private, accountant_of
from archipel.privacy.account import accounts, scale_of
from archipel.privacy.alike import AlikeAccountant, counted
from archipel.privacy.bounding import norm_l1, norm_l2, rounding
from archipel.privacy.ledger import ASSUMED, ENFORCED, Assumption, Terms
from archipel.privacy.noise import GAUSSIAN, disturb
from archipel.privacy.personal import affordable_mu, check_reach, release_of
from archipel.turns import Setup

UNSEEN = Assumption("nobody watches the network for whom a server asks, which makes each of its sums cheaper", ASSUMED)

# `change` is how far one client moves the sum; `expected`, (servers,): how many clients a server expects to hear
Summed = extended(Private, "Summed", "expected")


@cache
def bounded(fold: Any) -> Any:
    @kernel
    def folded(total: Any, count: Any, said: Any, factor: Any, settings: Any) -> None:
        """A word counts as if it were clipped; one that has no norm counts nothing."""
        clip, values = settings.protect.clip, said.values
        norm = norm_l2(values) if settings.protect.order == 2 else norm_l1(values)
        if norm <= clip:
            fold(total, count, said, factor, settings)
        elif norm < np.inf:
            fold(total, count, said, factor * total.dtype.type(clip / norm * (1.0 - rounding(values))), settings)

    return folded


@kernel
def noise_sum(inbox: Any, me: Any, settings: Any, moment: Any) -> Any:
    scale = scale_of(me.protect, settings.protect, settings.protect.change, moment)
    if scale < 0.0:
        return False
    disturb(inbox.total, settings.protect.law, scale, moment.key)
    fill(inbox.count, settings.protect.expected[moment.node])
    return True


def noise_long_sum(inbox: Any, me: Any, settings: Any, moment: Any) -> bool:
    """The same for the many parameters of a network: draws by the thousand."""
    scale = scale_of(me.protect, settings.protect, settings.protect.change, moment)
    if scale < 0.0:
        return False
    add = add_gaussian if settings.protect.law == GAUSSIAN else add_laplace
    add(inbox.total, float(scale), moment.key, 0)
    fill(inbox.count, settings.protect.expected[moment.node])
    return True


@dataclass(frozen=True)
class AtMix(Protect, Checked):
    """A client's change is clipped to `privacy.clip`, and the server noises their sum: for `unit` = "client".

    With a Gaussian mechanism and a target epsilon, secret asking is counted by loss distributions; else in zCDP, which
    it does not make cheaper.
    """

    where: ClassVar[str] = "mix"
    asked: float = key(1.0, "chance that the server asks a client, in secret", above=0, at_most=1)

    def strain(self, setup: Setup) -> float:
        """How many times more noise a sum has than hides one change."""
        return 1.0

    def spacing(self) -> int:
        """Rounds from one in which a client may be asked to the next."""
        return 1

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        policy, graph = table_of(setup), setup.graph
        if not graph.servers:
            raise BadInput("algorithm.protect.kind", "at-mix", "another: among peers nobody is trusted with a sum")
        if policy.unit != "client":
            raise BadInput("privacy.unit", policy.unit, '"client": whoever is asked is clipped as a whole')
        check_clip(policy, "what a client changes")
        guard, replaced = policy.guard(), policy.relation == "replace-one"
        change = (2.0 if replaced else 1.0) * float(policy.clip) * self.strain(setup)
        members = np.bincount(graph.server, minlength=graph.servers)
        held = (
            Assumption(f"what a client changes has L{policy.order} norm at most {policy.clip:g}", policy.how),
            Assumption("whom a server asks is drawn in secret, and who is asked is in a sum once", ENFORCED),
        )
        names = tuple(f"every client of {name}" for name in graph.server_names) or tuple(
            f"every client of server {s}" if graph.servers > 1 else "every client" for s in range(graph.servers)
        )
        sampled = policy.epsilon is not None and policy.mechanism == "gaussian" and policy.schedule == "constant"
        sampled = sampled and policy.noise is None and isinstance(policy.epsilon, int | float)
        terms = Terms("client", policy.relation, (*held, UNSEEN) if sampled and self.asked < 1 else held)
        if sampled:
            planned = policy.releases or -(-setup.rounds // self.spacing())
            check_reach(policy.epsilon, policy.delta, self.asked, ("privacy.epsilon", "privacy.delta"))
            mu = affordable_mu(policy.epsilon, policy.delta, planned, self.asked, policy.relation)
            releases = (release_of(mu, self.asked, policy.relation),) * graph.servers
            state = counted(np.full(graph.servers, change / mu), releases, planned)
            accountant: Any = AlikeAccountant(
                releases, terms, policy.delta, names, planned, "server", float(policy.epsilon)
            )
            law, shape = GAUSSIAN, np.ones(setup.rounds)
        else:
            drawn = policy.noise_of([[change]], graph.servers, setup.rounds, setup.seed, False)
            accountant = accountant_of(setup, drawn, change, terms, False, "server")._replace(names=names)
            state, law, shape = accounts(drawn.first, drawn.limit), drawn.law, drawn.shape
        settings = Summed(law, shape, 0, change, float(guard.clip), guard.order, self.asked * members)
        at_mix = noise_long_sum if learn.data_kind == "deep" else noise_sum
        return ProtectPiece(
            free, as_it_is, no_noise, always, at_mix, empty(setup.task.clients), settings, accountant,
            server_state=state, bounded=bounded,
        )  # fmt: skip
