"""ADMM's primal steps: of first order, (3.8) of the thesis, exactly, and the subgradient method beside them.

    (1/eta + 2 rho |N|) w = w~/eta + rho sum_l (w~ + w~_l) - dual - gradient of loss / D + lambda R / K, at w~

Everything but the data's gradient is known from what was said, so that (3.12) bounds what one sample can change:
2 c1 / D over what it is divided by. An exact step minimises instead, see `solve`. Comes in a pair with `mix.dual`.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.node import LEARNED, NOTHING, SAID, assign, kernel
from archipel.parts.mix.dual import attract


class Gradient(NamedTuple):
    """What a node keeps that takes first-order steps."""

    gradient: Any


class FirstOrder(NamedTuple):
    step: Any  # eta(n) = step / n^decay
    decay: Any
    l1: Any  # lambda_1 / K
    l2: Any  # lambda_2 / K
    guard: Any  # privacy.policy.Guard


class Exact(NamedTuple):
    change: Any  # the round from which nodes have the data of their second segment
    radius: Any  # of the ball that models stay in


# --- of first order -------------------------------------------------------------------------------------------------


@kernel
def inertia_of(settings: Any, moment: Any) -> Any:
    """1 / eta(n)."""
    return float(moment.round + 1) ** settings.learn.decay / settings.learn.step


@kernel
def weight_of_first_order(me: Any, settings: Any, moment: Any) -> Any:
    """1 / eta(n) + 2 rho |N|."""
    return inertia_of(settings, moment) + 2.0 * settings.mix.penalty * me.mix.degree[0]


@kernel
def reach_of_first_order(me: Any, settings: Any, moment: Any) -> Any:
    """(3.12)."""
    return me.protect.change[0] / weight_of_first_order(me, settings, moment)


@kernel
def reach_of_subgradient(me: Any, settings: Any, moment: Any) -> Any:
    return me.protect.change[0] / inertia_of(settings, moment)


@kernel
def soft(value: Any, threshold: Any) -> Any:
    """The proximal step of the l1 norm."""
    return math.copysign(max(abs(value) - threshold, 0.0), value)


@kernel
def slope_of_l1(told: Any, l1: Any) -> Any:
    return math.copysign(l1, told) if told != 0.0 else 0.0


@cache
def first_order(mean_gradient: Any, proximal: bool) -> Any:
    @kernel
    def step(me: Any, data: Any, settings: Any, moment: Any, scale: Any) -> None:
        """(3.8). Of the l1 part a subgradient, as published, or a soft threshold."""
        own, told = settings.learn, me.protect.told
        inertia, weight = inertia_of(settings, moment), weight_of_first_order(me, settings, moment)
        mean_gradient(me.learn.gradient, told, data, own.guard)
        for j in range(me.model.shape[0]):
            slope = me.learn.gradient[j] + 2.0 * own.l2 * told[j] + (0.0 if proximal else slope_of_l1(told[j], own.l1))
            me.model[j] = inertia * told[j] - slope
        attract(me.model, me, settings.mix.penalty)
        for j in range(me.model.shape[0]):
            step = me.model[j] / weight
            me.model[j] = soft(step, own.l1 / weight) if proximal else step

    return step


@cache
def subgradient(mean_gradient: Any, proximal: bool) -> Any:
    @kernel
    def step(me: Any, data: Any, settings: Any, moment: Any, scale: Any) -> None:
        """Mix with the neighbours, then step along a subgradient (Nedic, Ozdaglar, 2009)."""
        own, told, inertia = settings.learn, me.protect.told, inertia_of(settings, moment)
        mean_gradient(me.learn.gradient, told, data, own.guard)
        for j in range(me.model.shape[0]):
            mixed = told[j] + settings.mix.mixing * (me.mix.around[j] - me.mix.heard[0] * told[j])
            slope = me.learn.gradient[j] + 2.0 * own.l2 * told[j] + (0.0 if proximal else slope_of_l1(told[j], own.l1))
            step = mixed - slope / inertia
            me.model[j] = soft(step, own.l1 / inertia) if proximal else step

    return step


# --- exactly --------------------------------------------------------------------------------------------------------


@kernel
def weight_of_exact(me: Any, settings: Any, moment: Any) -> Any:
    """The strong convexity of the local problem: 2 rho |N| and the regulariser's."""
    return me.learn.shrinkage[0] + 2.0 * settings.mix.penalty * me.mix.degree[0]


@kernel
def reach_of_exact(me: Any, settings: Any, moment: Any) -> Any:
    return me.protect.change[0] / weight_of_exact(me, settings, moment)


@kernel
def segment_at(settings: Any, moment: Any) -> Any:
    return 1 if moment.round >= settings.learn.change else 0


@kernel
def pulled(me: Any, settings: Any, segment: Any) -> None:
    """What draws an exact step: 2 X^T y / D + rho sum_l (w~_k + w~_l) - dual."""
    assign(me.learn.pull, me.learn.data.moment[segment])
    attract(me.learn.pull, me, settings.mix.penalty)


@cache
def exactly(solve: Any) -> Any:
    @kernel
    def step(me: Any, data: Any, settings: Any, moment: Any, scale: Any) -> None:
        """The primal step of (3.4), of ridge regression."""
        segment = segment_at(settings, moment)
        pulled(me, settings, segment)
        weight = weight_of_exact(me, settings, moment)
        solve(me.model, me.learn, data, me.learn.pull, weight, segment, settings.learn.radius)

    return step


# --- a node's turn --------------------------------------------------------------------------------------------------


@cache
def acting(pay: Any, step: Any, tell: Any, write: Any, alone: bool) -> Any:
    @kernel
    def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
        """Pay, learn, say. Who cannot pay falls silent; its own model goes on learning, as it does while away."""
        if not moment.present and not alone:
            return NOTHING
        scale = pay(me, settings, moment) if moment.present else -1.0
        step(me, data, settings, moment, scale)
        me.mix.silent[0] = 1.0
        if scale < 0.0:
            return LEARNED
        me.mix.silent[0] = 0.0
        tell(me, scale, settings, moment)
        write(said, me, settings, moment)
        return SAID

    return act


def inertias(fit: Any, rounds: int) -> Any:
    """1 / eta(n) in every round."""
    return np.arange(1, rounds + 1) ** fit.decay / fit.step
