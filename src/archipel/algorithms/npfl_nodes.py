"""What a peer of NPFL and NPFL-RL does: thesis, chapter 6, for ridge regression. Equation numbers are the thesis'.

A peer keeps its own model near those of its neighbours in the same cluster, by ADMM, and borrows tau_k from those
of other clusters. Three corrections, see docs/errata.md: (6.6) has the opposite sign; (6.11) has a plus before tau,
and counts the neighbours of the same cluster; the mean over clusters is over those that a neighbour belongs to.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.algorithms.local import ridge
from archipel.draws import ACTION, uniform
from archipel.node import add_scaled, assign, dot, kernel
from archipel.privacy.accountant import pay, release_cost
from archipel.privacy.noise import disturb

FIXED, GRADIENT, ACTOR = 0, 1, 2  # what learns tau: nothing, (6.13), (6.14)


class Settings(NamedTuple):
    penalty: Any  # rho
    policy: Any  # FIXED, GRADIENT or ACTOR
    rate: Any  # delta of (6.13) or (6.14)
    range: Any  # nu of the actor: its actions are tau + U(-nu/2, nu/2)
    epochs: Any  # actions a round; more than one is batch reinforcement learning
    change: Any  # the round from which peers have the data of their second segment
    private: Any  # 1: a peer pays before it speaks
    law: Any  # of the privacy noise
    shape: Any  # (rounds,): its scale, in that of the first round; negative where nothing may be said


class Peer(NamedTuple):
    model: Any  # w_k
    told: Any  # the same, noised: what is released
    dual: Any  # gamma_k
    near: Any  # sum of the models of neighbours of its cluster; one that was not heard counts as agreeing
    lent: Any  # mean of what other clusters around it have, (6.3)
    tau: Any  # (1,)
    lenders: Any  # (1,): how many other clusters are around it
    degree: Any  # (1,): |N_k|, the neighbours of its cluster
    cluster: Any  # (1,)
    shrinkage: Any  # (1,): lambda / |C_(q)|
    cut: Any  # (1,): samples to learn from; the others are for validation
    reach: Any  # (1,): how far one sample can move the model
    first: Any  # (1,): the scale of the noise in the first round
    silent: Any  # (1,): 1 where it said nothing this round
    spent: Any  # (1,): its account
    limit: Any  # (1,)
    releases: Any  # (1,)
    basis: Any  # its data, see local.Factors
    curve: Any
    moment: Any
    rows: Any


class Word(NamedTuple):
    """What a peer says to its neighbours."""

    values: Any
    cluster: Any


class Around(NamedTuple):
    """What a peer hears, by cluster."""

    total: Any  # (clusters, size)
    count: Any  # (clusters,)


# --- the primal step ----------------------------------------------------------------------------------------


@kernel
def pulled(pull: Any, me: Any, settings: Any, segment: Any) -> None:
    """Twice the right side of (6.11) but for tau's part: 2 X^T y / D + rho sum_l (w_k + w_l) - gamma_k."""
    assign(pull, me.moment[segment])
    add_scaled(pull, settings.penalty * me.degree[0], me.told)
    add_scaled(pull, settings.penalty, me.near)
    add_scaled(pull, -1.0, me.dual)


@kernel
def weight_of(me: Any, settings: Any, tau: Any) -> Any:
    """Twice what (6.11) adds to the diagonal: lambda / |C_(q)| + tau + rho |N_k|."""
    borrowed = tau if me.lenders[0] > 0 else 0.0
    return 2.0 * (me.shrinkage[0] + borrowed + settings.penalty * me.degree[0])


@kernel
def primal(out: Any, me: Any, pull: Any, settings: Any, segment: Any, tau: Any) -> None:
    """w_k(tau), (6.11)."""
    whole = pull.copy()
    if me.lenders[0] > 0:
        add_scaled(whole, 2.0 * tau, me.lent)
    ridge(out, me.basis[segment], me.curve[segment], whole, weight_of(me, settings, tau))


# --- how much to borrow -------------------------------------------------------------------------------------


@kernel
def value(model: Any, me: Any, data: Any, segment: Any) -> Any:
    """(6.12) on the peer's validation data: lower is better."""
    first = me.cut[segment]
    count = data.y.shape[0] - first
    total = 0.0
    for i in range(first, data.y.shape[0]):
        error = data.y[i] - dot(data.x[i], model)
        total += error * error
    return total / max(count, 1) + me.shrinkage[0] * dot(model, model)


@kernel
def slope_of_value(me: Any, data: Any, pull: Any, settings: Any, segment: Any) -> Any:
    """The derivative of (6.12) with respect to tau: of w_k(tau) it is A^-1 (lent - w_k), with A as in (6.11)."""
    size = me.model.shape[0]
    model, way, turn = np.zeros(size), np.zeros(size), np.zeros(size)
    primal(model, me, pull, settings, segment, me.tau[0])
    for j in range(size):
        way[j] = 2.0 * (me.lent[j] - model[j])
    ridge(turn, me.basis[segment], me.curve[segment], way, weight_of(me, settings, me.tau[0]))
    first = me.cut[segment]
    total = 0.0
    for i in range(first, data.y.shape[0]):
        total -= 2.0 * (data.y[i] - dot(data.x[i], model)) * dot(data.x[i], turn)
    return total / max(data.y.shape[0] - first, 1) + 2.0 * me.shrinkage[0] * dot(model, turn)


@kernel
def action(me: Any, data: Any, pull: Any, settings: Any, moment: Any, segment: Any, epoch: Any) -> Any:
    """The change of tau by the stochastic actor-critic, (6.14): towards a random action, or away from it."""
    size = me.model.shape[0]
    model, other = np.zeros(size), np.zeros(size)
    way = settings.range * (uniform(moment.key, ACTION, epoch) - 0.5)
    primal(model, me, pull, settings, segment, me.tau[0])
    primal(other, me, pull, settings, segment, within(me.tau[0] + way))
    better = value(other, me, data, segment) - value(model, me, data, segment)
    if better == 0.0:
        return 0.0
    return -settings.rate * way if better > 0.0 else settings.rate * way


@kernel
def within(tau: Any) -> Any:
    """tau stays a share."""
    return min(max(tau, 0.0), 1.0)


@kernel
def learn_tau(me: Any, data: Any, pull: Any, settings: Any, moment: Any, segment: Any) -> None:
    """(6.13) or (6.14), once or several times, on what is known of the neighbours now."""
    if settings.policy == FIXED or moment.round == 0 or me.lenders[0] == 0:
        return
    for epoch in range(settings.epochs):
        if settings.policy == GRADIENT:
            step = -settings.rate * slope_of_value(me, data, pull, settings, segment)
        else:
            step = action(me, data, pull, settings, moment, segment, epoch)
        me.tau[0] = within(me.tau[0] + step)


# --- a round ------------------------------------------------------------------------------------------------


@kernel
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """Algorithm 6: tau, the primal step, and what the neighbours hear of it."""
    segment = 1 if moment.round >= settings.change else 0
    pull = np.zeros(me.model.shape[0])
    pulled(pull, me, settings, segment)
    learn_tau(me, data, pull, settings, moment, segment)
    primal(me.model, me, pull, settings, segment, me.tau[0])
    me.silent[0] = 1.0
    if not moment.present:
        return False
    shape = settings.shape[min(moment.round, settings.shape.shape[0] - 1)]
    scale = me.first[0] * shape
    if settings.private == 1 and (shape < 0 or not pay(me, release_cost(settings.law, me.reach[0], scale))):
        return False
    me.silent[0] = 0.0
    assign(me.told, me.model)
    disturb(me.told, settings.law, scale, moment.key)
    assign(said.values, me.told)
    said.cluster[0] = me.cluster[0]
    return True


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """Sums by cluster."""
    inbox.count[said.cluster[0]] += 1
    add_scaled(inbox.total[said.cluster[0]], 1.0, said.values)


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The dual step, (6.6) with its sign put right: gamma_k += rho sum_l (w_k - w_l); and (6.3).

    The dual moves over links that spoke both ways only: so the sum of all duals stays zero.
    """
    mine = me.cluster[0]
    heard = inbox.count[mine]
    if me.silent[0] == 0.0:
        add_scaled(me.dual, settings.penalty * heard, me.told)
        add_scaled(me.dual, -settings.penalty, inbox.total[mine])
    assign(me.near, inbox.total[mine])
    add_scaled(me.near, float(me.degree[0] - heard), me.told)
    lenders = 0
    for q in range(inbox.count.shape[0]):
        lenders += 1 if q != mine and inbox.count[q] > 0 else 0
    if lenders > 0:
        me.lenders[0] = lenders
        for j in range(me.lent.shape[0]):
            me.lent[j] = 0.0
        for q in range(inbox.count.shape[0]):
            if q != mine and inbox.count[q] > 0:
                add_scaled(me.lent, 1.0 / (lenders * inbox.count[q]), inbox.total[q])
