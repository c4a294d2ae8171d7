"""Online learning that is private however little of it is shared: noise enters with the sample.

A model that is shared portion by portion keeps a sample for many rounds, so noise on what is said would have to be
paid for in every round that a sample still shows. Here every local update e z is clipped and noised before it touches
the local model, also while a client is away. Everything that is ever said, late, in part or by the server, is then
computed from noised updates, and costs nothing more:

- one sample is in one update: it pays once, however long the stream (`unit` = "sample");
- a client pays for all its updates (`unit` = "client").

What is protected is what a sample says, not that there was one: others see in which rounds a client has news. A raw
measurement that is in several samples, such as a value in overlapping windows, pays for each of them.
"""

import math
from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import add_scaled, dot, kernel
from archipel.privacy.accountant import Accountant, pay, pay_per_sample, release_cost, spend_all
from archipel.privacy.bounding import norm_l1, norm_l2
from archipel.privacy.ledger import ENFORCED, Assumption
from archipel.privacy.noise import disturb
from archipel.privacy.policy import release_costs
from archipel.turns import Setup

ROOM = 1.0 - 1e-6  # float32 may round a clipped update up by this much
LONGEST = 1e20  # of features that count: beyond it a clipped error would be too small for float32


class Private(NamedTuple):
    """What private updates add to an algorithm's settings."""

    clip: Any  # of an update, before the step
    norm: Any  # 2: in the L2 norm, 1: in the L1 norm
    change: Any  # how far another sample moves the model: 2 step clip
    law: Any
    shape: Any  # of the noise over the rounds
    per_sample: Any  # 1: every sample pays for itself; 0: a client pays for all


def with_private(settings: Any) -> Any:
    """An algorithm's settings with those of private updates; give it the name PrivateSettings."""
    make: Any = namedtuple
    return make("PrivateSettings", (*settings._fields, *Private._fields), module=settings.__module__)


class PrivateClient(NamedTuple):
    model: Any
    noise: Any  # its scale at first
    spent: Any
    limit: Any
    releases: Any  # updates that were paid for


@kernel
def clipped(error: Any, features: Any, settings: Any) -> Any:
    """The error, made smaller where error * features is longer than the clip."""
    if settings.clip == np.inf:
        return error
    length = norm_l2(features) if settings.norm == 2 else norm_l1(features)
    size = abs(error) * length
    if size <= settings.clip * ROOM:
        return error
    real = features.dtype.type
    if not (size < np.inf and length < LONGEST):
        return real(0)
    return real(math.copysign(settings.clip * ROOM / length, error))


@kernel
def refine_privately(me: Any, data: Any, settings: Any, moment: Any) -> Any:
    """One step on the newest sample, paid for, clipped and noised; False where it cannot be paid."""
    if moment.round >= settings.shape.shape[0] or settings.shape[moment.round] < 0.0:
        return False
    scale = me.noise[0] * settings.shape[moment.round]
    cost = release_cost(settings.law, settings.change, scale)
    paid = pay_per_sample(me, cost) if settings.per_sample == 1 else pay(me, cost)
    if not paid:
        return False
    error = clipped(data.target[0] - dot(me.model, data.features), data.features, settings)
    if error != 0.0:  # zero times a feature that is no number would be no number, and show
        add_scaled(me.model, settings.step * error, data.features)
    disturb(me.model, settings.law, scale, moment.key)
    return True


def privately(setup: Setup, step: float, clients: Any) -> tuple[Private, PrivateClient, Accountant]:
    """The settings, the clients' rows and the accountant of an online algorithm with a [privacy] table."""
    policy, count, rounds = setup.privacy, setup.task.clients, setup.rounds
    if policy.relation != "replace-one":
        right = '"replace-one": that a client has news in a round is not hidden'
        raise BadInput("privacy.relation", policy.relation, right)
    if policy.protects and not policy.clip < np.inf:
        right = "a finite bound on each update: no noise covers an infinite sensitivity"
        raise BadInput("privacy.clip", policy.clip, right)
    change, per_sample = 2 * step * policy.clip, policy.unit == "sample"
    noise = policy.noise_of([[change]], count, rounds, setup.seed, per_sample)
    costs = release_costs(noise.law, change, noise.first * noise.shape[noise.shape >= 0])
    planned, releases = spend_all(costs, noise.limit, per_sample)
    once = Assumption("noise is added to every update before it enters the local model", ENFORCED)
    alone = Assumption("every sample is used in one update, and pays for itself", ENFORCED)
    terms = policy.terms(once, alone) if per_sample else policy.terms(once)
    accountant = Accountant(
        policy, terms, setup.seed, setup.task.names, planned, releases, noise.alike, per_sample=per_sample
    )
    guard = policy.guard()
    settings = Private(float(guard.clip), guard.order, float(change), noise.law, noise.shape, int(per_sample))
    rows = PrivateClient(clients, noise.first, np.zeros((count, 1)), noise.limit, np.zeros((count, 1)))
    return settings, rows, accountant
