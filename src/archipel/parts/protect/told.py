"""Noise enters with what is told: a node pays for, and noises, a copy of its model; its own stays as it learned it.

So it is in ADMM, whose duals and next steps are made of what was told. `told` is what others know of the model,
w~ in (3.9) of the thesis. Replacing one unit of the data moves the mean gradient by `change` at most (2 c1 / D_k for a
sample, 2 c1 for a client), and the model by that over the strong convexity of the step, which the learn part knows.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.node import assign, extended, kernel, table_of
from archipel.parts.protect.openly import check_relation, free
from archipel.privacy.account import Account, accounts, scale_of
from archipel.privacy.accountant import Accountant, planned_of
from archipel.privacy.bounding import project_ball
from archipel.privacy.ledger import Assumption
from archipel.privacy.noise import LAPLACE, NONE, disturb
from archipel.privacy.pieces import rows_of
from archipel.privacy.policy import Guard, Noise, Privacy
from archipel.problems.losses.supervised import LOSSES
from archipel.turns import Setup

# an account; how far one unit moves the mean gradient, (1,); what others know, (size,)
Told = extended(Account, "Told", "change", "told")


class Known(NamedTuple):
    """Of a node without data, which has nothing to pay for."""

    told: Any


class Telling(NamedTuple):
    """The settings of an account, and the ball that told models stay in."""

    law: Any
    shape: Any
    per_sample: Any
    radius: Any


class Priced(NamedTuple):
    """What protects the nodes of a setup."""

    state: Any  # Told
    settings: Telling
    accountant: Accountant | None
    noise: Noise
    private: bool


@cache
def paying(reach: Any) -> Any:
    @kernel
    def pay(me: Any, settings: Any, moment: Any) -> Any:
        """The scale of the noise on a release that one unit moves by `reach` at most, paid for; or below 0."""
        return scale_of(me.protect, settings.protect, reach(me, settings, moment), moment)

    return pay


def pay_for(policy: Privacy | None, reach: Any) -> Any:
    """The kernel that pays; without a [privacy] table nothing is paid, and no noise is added."""
    return free if policy is None else paying(reach)


@kernel
def tell(me: Any, scale: Any, settings: Any, moment: Any) -> None:
    """(3.9): the model and its noise."""
    assign(me.protect.told, me.model)
    disturb(me.protect.told, settings.protect.law, scale, moment.key)


@kernel
def tell_in_ball(me: Any, scale: Any, settings: Any, moment: Any) -> None:
    """The same within a ball, where the next gradient is taken there."""
    tell(me, scale, settings, moment)
    project_ball(me.protect.told, settings.protect.radius)


@kernel
def tell_openly(me: Any, scale: Any, settings: Any, moment: Any) -> None:
    assign(me.protect.told, me.model)


def teller(policy: Privacy | None, guard: Guard) -> Any:
    """How a model is told."""
    if policy is None:
        return tell_openly
    return tell_in_ball if guard.radius < math.inf else tell


def together(law: int, reaches: tuple[Any, ...]) -> Any:
    """The sensitivity of several releases with noise of the same scale: of Gaussian noise the root of the sum of
    squares, of Laplace noise, whose norm is the L1 norm, the sum.
    """
    return sum(reaches) if law == LAPLACE else np.sqrt(sum(reach**2 for reach in reaches))


def priced(
    policy: Privacy | None,
    setup: Setup,
    reaches: Any,
    sizes: Any,
    worst: Any = None,
    further: tuple[Assumption, ...] = (),
) -> Priced:
    """Accounts and noise of clients that have `sizes` samples each.

    `reaches` is how far a release moves per unit that the mean gradient moves: (clients, rounds), or what broadcasts to
    it, or a function of a slice of the clients; `worst` the same at most, if it can change while a run goes on.
    """
    clients, size, rounds = setup.task.clients, setup.task.size, setup.rounds
    told = table_of((clients, size), setup.dtype)
    if policy is None:
        free_of = Noise(NONE, np.zeros((clients, 1)), np.ones(1), np.full((clients, 1), np.inf), True)
        state = Told(*accounts(free_of.first, free_of.limit), np.zeros((clients, 1)), told)
        return Priced(state, Telling(NONE, free_of.shape, 0, np.inf), None, free_of, False)
    check_relation(policy, "the mean gradient is over as many samples in both data sets")
    names = {code: name for name, code in LOSSES.items()}
    bound = policy.gradient_bound(names[setup.task.loss], size)
    change = (2 * bound / (sizes if policy.unit == "sample" else np.ones(clients)))[:, None]
    noise = policy.noise_of(lambda part: change[part] * rows_of(reaches, part), clients, rounds, setup.seed)
    most = reaches if worst is None else worst
    planned, count = planned_of(noise, lambda part: change[part] * rows_of(most, part))
    role, alike = "client" if setup.graph.servers else "peer", noise.alike and worst is None
    accountant = Accountant(policy, policy.terms(*further), setup.seed, setup.task.names, planned, count, alike, role)
    state = Told(*accounts(noise.first, noise.limit), change.astype(float), told)
    return Priced(state, Telling(noise.law, noise.shape, 0, policy.guard().radius), accountant, noise, True)
