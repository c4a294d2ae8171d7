"""Noise enters with the sample: every local step is bounded, paid for and noised before it touches the model.

A model that is shared portion by portion keeps a sample for many rounds, so noise on what is said would have to be
paid for in every round that a sample still shows. Here everything that is ever said, late, in part or by the server, is
computed from noised steps, and costs nothing more:

- one sample is in one step: it pays once, however long the stream (`unit` = "sample");
- a client pays for all its steps (`unit` = "client").

What is protected is what a sample says, not that there was one: others see in which rounds a client has news. A raw
measurement that is in several samples, such as a value in overlapping windows, pays for each of them.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import Checked
from archipel.node import kernel
from archipel.parts import Protect, ProtectPiece
from archipel.parts.protect.openly import always, any_sum, check_clip, check_relation, table_of
from archipel.privacy.account import accounts, scale_of
from archipel.privacy.accountant import Accountant, planned_of
from archipel.privacy.bounding import norm_l1, norm_l2
from archipel.privacy.ledger import ENFORCED, Assumption
from archipel.privacy.noise import disturb
from archipel.turns import Setup

ROOM = 1.0 - 1e-6  # float32 may round a clipped step up by this much
LONGEST = 1e20  # of features that count: beyond it a clipped slope would be too small for float32


class Private(NamedTuple):
    """Settings of an account, as in `account.Spending`, and the bound."""

    law: Any
    shape: Any
    per_sample: Any
    change: Any  # how far another sample moves what is noised
    clip: Any  # of slope * x
    order: Any  # in the L2 norm for Gaussian noise, in the L1 norm for Laplace noise


@kernel
def pay(me: Any, settings: Any, moment: Any) -> Any:
    return scale_of(me.protect, settings.protect, settings.protect.change, moment)


@kernel
def bound(slope: Any, x: Any, settings: Any) -> Any:
    """The slope, made smaller where slope * x is longer than the clip."""
    clip = settings.protect.clip
    if clip == np.inf:
        return slope
    length = norm_l2(x) if settings.protect.order == 2 else norm_l1(x)
    size = abs(slope) * length
    if size <= clip * ROOM:
        return slope
    real = x.dtype.type
    if not (size < np.inf and length < LONGEST):
        return real(0)
    return real(math.copysign(clip * ROOM / length, slope))


@kernel
def noise(values: Any, scale: Any, me: Any, settings: Any, moment: Any) -> None:
    disturb(values, settings.protect.law, scale, moment.key)


@dataclass(frozen=True)
class AtSample(Protect, Checked):
    """Every sample's step is clipped to `privacy.clip`, paid for and noised before it enters the model."""

    where: ClassVar[str] = "sample"

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        policy, count = table_of(setup), setup.task.clients
        check_relation(policy, "that a client has news in a round is not hidden")
        check_clip(policy, "each update")
        change, per_sample = learn.sensitivity(setup), policy.unit == "sample"
        drawn = policy.noise_of([[change]], count, setup.rounds, setup.seed, per_sample)
        once = Assumption("noise is added to every update before it enters the local model", ENFORCED)
        alone = Assumption("every sample is used in one update, and pays for itself", ENFORCED)
        terms = policy.terms(once, alone) if per_sample else policy.terms(once)
        guard = policy.guard()
        settings = Private(drawn.law, drawn.shape, int(per_sample), float(change), float(guard.clip), guard.order)
        accountant = accountant_of(setup, drawn, change, terms, per_sample)
        rows = accounts(drawn.first, drawn.limit)
        return ProtectPiece(pay, bound, noise, always, any_sum, rows, settings, accountant)


def accountant_of(setup: Setup, drawn: Any, change: Any, terms: Any, per_sample: bool, role: str = "") -> Accountant:
    """Who reads the accounts, with what they will hold at most."""
    planned, releases = planned_of(drawn, [[change]], per_sample)
    role = role or ("client" if setup.graph.servers else "peer")
    return Accountant(
        setup.privacy, terms, setup.seed, setup.task.names, planned, releases, drawn.alike, role, per_sample
    )
