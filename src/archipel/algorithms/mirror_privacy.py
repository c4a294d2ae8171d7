"""What private online mirror descent pays: at event level, one sample of a stream, and at client level, all of one's.

A sample is used in one round and noised before anything else happens to it, so it pays once, however long the stream. A
client that hides all its samples pays for all its rounds. The ledger states both; the budget is for the policy's unit.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.privacy.accountant import Accountant, Paid, finite, spend_all
from archipel.privacy.ledger import ENFORCED, Assumption
from archipel.privacy.noise import NONE
from archipel.privacy.policy import Noise, release_costs
from archipel.turns import Setup

LEVELS = {"event": "one sample of the stream", "client": "all samples of a client"}


class Price(NamedTuple):
    """The noise of a run, how far another sample moves a clipped gradient, and the accountant."""

    noise: Noise
    change: float
    accountant: Any


class TwoLevels(Accountant):
    """An accountant that says what one sample has paid, and what a client has."""

    __slots__ = ()

    def levels(self, tables: dict[str, Any]) -> dict[str, Paid]:
        """What was paid so far, at both levels."""
        table = tables[self.role]
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
        return self.written(self.paid(tables), over_time) | {"levels": self.stated(self.levels(tables))}

    def outlook(self) -> dict[str, Any]:
        """What ledger.json will say at most."""
        said = self.written(self.forecast(), [])
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


def priced(setup: Setup, role: str = "peer", further: tuple[Assumption, ...] = ()) -> Price:
    """What a [privacy] table asks for; without one, no noise, no accountant. `further`: what else a ledger supposes."""
    policy, clients, rounds = setup.privacy, setup.task.clients, setup.rounds
    if policy is None:
        free = np.full((clients, 1), np.inf)
        return Price(Noise(NONE, np.zeros((clients, 1)), np.ones(1), free, True), 0.0, None)
    if policy.relation != "replace-one":
        right = '"replace-one": that a client has news in a round is not hidden'
        raise BadInput("privacy.relation", policy.relation, right)
    if policy.protects and not policy.clip < math.inf:
        right = "a finite bound on each sample's gradient: no noise covers an infinite sensitivity"
        raise BadInput("privacy.clip", policy.clip, right)
    for name, bound in vars(policy.bounds).items():
        if bound < math.inf:
            raise BadInput(
                f"privacy.bounds.{name}", bound, "none: here a sample's gradient is clipped, by privacy.clip"
            )
    change, per_sample = 2 * policy.clip, policy.unit == "sample"
    noise = policy.noise_of([[change]], clients, rounds, setup.seed, per_sample)
    costs = release_costs(noise.law, change, noise.first * noise.shape[noise.shape >= 0])
    planned, releases = spend_all(costs, noise.limit, per_sample)
    norm = f"two gradients that are clipped to C = {policy.clip:g} differ by at most 2 C in the L{policy.order} norm"
    held = (
        Assumption(f"{norm}, which the noise is calibrated to", ENFORCED if policy.enforce else "assumed"),
        Assumption("noise is added to every gradient before it enters the model", ENFORCED),
        Assumption("every sample is used in one round", ENFORCED),
        *further,
    )
    accountant = TwoLevels(
        policy, policy.terms(*held), setup.seed, setup.task.names, planned, releases, noise.alike, role, per_sample
    )
    return Price(noise, change, accountant)


def typical_scale(noise: Noise) -> float:
    """The root of the mean square of the noise over clients and rounds: what one step for all has to fit."""
    heard = noise.shape[noise.shape >= 0]
    if noise.law == NONE or not len(heard):
        return 0.0
    return float(np.sqrt(np.mean(noise.first**2) * np.mean(heard**2)))
