"""Noise enters with the gradient of a sample: clipped as a whole, paid for and noised before a step is taken with it.

A sample is used in one round and noised before anything else happens to it, so it pays once, however long the stream. A
client that hides all its samples pays for all its rounds. The ledger states both; the budget is for the policy's unit.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from archipel.describe import Checked
from archipel.errors import BadInput
from archipel.node import exact
from archipel.parts import Protect, ProtectPiece
from archipel.parts.protect.openly import always, any_sum, check_clip, check_relation, table_of
from archipel.parts.protect.sample import Private, accountant_of, bound, noise, pay
from archipel.privacy.account import accounts
from archipel.privacy.accountant import Accountant, Paid, account_of, finite, written
from archipel.privacy.bounding import clip_l1, clip_l2
from archipel.privacy.ledger import ENFORCED, Assumption
from archipel.privacy.noise import NONE, disturb
from archipel.privacy.policy import Noise
from archipel.turns import Setup

LEVELS = {"event": "one sample of the stream", "client": "all samples of a client"}


@cache
def guarding(order: int, law: int) -> Any:
    @exact
    def guard(values: Any, limit: Any, scale: Any, me: Any, settings: Any, key: Any) -> None:
        """Clip in the norm of the noise, then noise: here a sample enters the state."""
        if order == 2:
            clip_l2(values, limit)
        else:
            clip_l1(values, limit)
        disturb(values, law, scale, key)

    return guard


class TwoLevels(Accountant):
    """An accountant that says what one sample has paid, and what a client has."""

    __slots__ = ()

    def levels(self, tables: dict[str, Any]) -> dict[str, Paid]:
        """What was paid so far, at both levels."""
        table = account_of(tables[self.role])
        releases = table.releases[:, 0]
        return {
            "event": self._replace(per_sample=True).priced(table.dearest[:, 0].astype(float), releases),
            "client": self._replace(per_sample=False).priced(table.summed[:, 0].astype(float), releases),
        }

    def planned_levels(self) -> dict[str, Paid]:
        """What will have been paid at most, at both levels: a client's samples are all alike, or it is a bound."""
        count = np.asarray(self.planned_releases)
        planned = np.asarray(self.planned, float)
        event = planned if self.per_sample else np.full(planned.shape, np.nan)
        if self.alike:
            each = planned if self.per_sample else np.divide(planned, count, np.zeros_like(planned), where=count > 0)
            event, planned = each, each * count
        return {
            "event": self._replace(per_sample=True).priced(event, count),
            "client": self._replace(per_sample=False).priced(planned, count),
        }

    def ledger(self, tables: dict[str, Any], over_time: list[tuple[int, Paid]]) -> dict[str, Any]:
        return written(self, self.paid(tables), over_time) | {"levels": self.stated(self.levels(tables))}

    def outlook(self) -> dict[str, Any]:
        """What ledger.json will say at most."""
        said = written(self, self.forecast(), [])
        return said | {"levels": self.stated(self.planned_levels())} if self.alike else said

    def stated(self, levels: dict[str, Paid]) -> dict[str, Any]:
        """Both levels as they are written down: the dearest client's."""
        return {
            name: {
                "unit": LEVELS[name],
                "relation": self.policy.relation,
                "rho": finite(paid.rho.max(initial=0.0)),
                "epsilon": finite(paid.epsilon.max(initial=0.0)),
                "delta": self.delta,
            }
            for name, paid in levels.items()
        }


class ClipsGradients:
    """A learn part whose samples enter by gradients that are clipped and noised as a whole: `ProtectPiece.guard`."""

    def sensitivity(self, setup: Setup) -> float:
        """Two clipped gradients differ by at most this."""
        return sensitivity(setup)

    def supposed(self) -> tuple[Assumption, ...]:
        """What the ledger supposes beside."""
        return ()


@dataclass(frozen=True)
class AtGradient(Protect, Checked):
    """A sample's gradient is clipped to `privacy.clip`, paid for and noised before it enters the model."""

    where: ClassVar[str] = "sample"
    alike: ClassVar[bool] = True  # all releases cost a client the same

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        if not isinstance(learn, ClipsGradients):
            right = "another place: this learn part does not take gradients that are clipped as a whole"
            raise BadInput("algorithm.protect.kind", "at-gradient", right)
        policy, change = table_of(setup), learn.sensitivity(setup) * self.strain(setup)
        drawn = noise_of(setup, self.strain(setup))
        per_sample, guard = policy.unit == "sample", policy.guard()
        norm = (
            f"two gradients that are clipped to C = {policy.clip:g} differ by at most 2 C in the L{policy.order} norm"
        )
        held = (
            Assumption(f"{norm}, which the noise is calibrated to", policy.how),
            Assumption("noise is added to every gradient before it enters the model", ENFORCED),
            Assumption("every sample is used in one round", ENFORCED),
            *learn.supposed(),
        )
        accountant = TwoLevels(*accountant_of(setup, drawn, change, policy.terms(*held), per_sample))
        accountant = accountant._replace(alike=self.alike and drawn.alike)
        settings = Private(drawn.law, drawn.shape, int(per_sample), float(change), float(guard.clip), policy.order)
        return ProtectPiece(
            pay, bound, noise, always, any_sum, accounts(drawn.first, drawn.limit), settings, accountant,
            guard=guarding(policy.order, drawn.law), drawn=drawn,
        )  # fmt: skip

    def strain(self, setup: Setup) -> float:
        """How many times more noise a release has than hides one gradient."""
        return 1.0


def sensitivity(setup: Setup) -> float:
    """Two clipped gradients differ by at most this."""
    return 2 * float(setup.privacy.clip) if setup.privacy is not None else 0.0


def noise_of(setup: Setup, strain: float = 1.0) -> Noise:
    """The noise that a [privacy] table asks for, `strain` times as much; none without one."""
    policy, clients = setup.privacy, setup.task.clients
    if policy is None:
        return Noise(NONE, np.zeros((clients, 1)), np.ones(1), np.full((clients, 1), np.inf), True)
    check_relation(policy, "that a client has news in a round is not hidden")
    check_clip(policy, "each sample's gradient")
    return policy.noise_of([[strain * sensitivity(setup)]], clients, setup.rounds, setup.seed, policy.unit == "sample")


def typical_scale(noise: Noise) -> float:
    """The root of the mean square of the noise over clients and rounds: what one step for all has to fit."""
    heard = noise.shape[noise.shape >= 0]
    if noise.law == NONE or not len(heard):
        return 0.0
    return float(np.sqrt(np.mean(noise.first**2) * np.mean(heard**2)))
