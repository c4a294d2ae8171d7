"""Exact steps that borrow, and how much: the primal step (6.11) of the thesis, and tau learned by (6.13) or (6.14).

See docs/errata.md: (6.11) has a plus before tau, and counts the neighbours of the same cluster.

**Private** tau. A peer that learns tau looks at validation data, and at training data through w(tau). So what it
learns from is a release: the difference V(w(t)) - V(w(s)) of (6.12) at two taus is noised, and tau is made of noised
differences only. With bounds B, T, R on features, targets and models, the strong convexity mu of the step, and
r = 2 C / (mu D) how far a training sample moves a model (`learn.solve`), one sample moves such a difference by at most

    max(4 (B R + T) B d / D_v,  2 L min(r, d)),  with  d = min(2 R, 2 |t - s| (R + ||lent||) / mu),

D_v validation samples, and L = 2 (B R + T) B + (the regulariser's weight) R. Proof: w(t) minimises F + t ||w - lent||^2
in the ball, so by the argument of `learn.solve` ||w(t) - w(s)|| <= |t - s| 2 ||w(s) - lent|| / mu. An error is at most
B R + T, so a square changes by at most 2 (B R + T) B d from w(s) to w(t), and one of D_v samples moves the mean of
these changes by twice that over D_v. V is L-Lipschitz in the ball: replacing a training sample moves each of the two
models by r, and in any case each difference is at most L d. A whole client moves it by 2 L d. The noise is scaled so
that every difference costs as much as the model: a round costs `epochs` + 1 releases of it, paid for at once.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.draws import ACTION, uniform
from archipel.node import add_scaled, assign, dot, extended, kernel
from archipel.parts.learn.bounded import ROOM
from archipel.parts.learn.primal import pulled, reach_of_exact, segment_at, weight_of_exact
from archipel.parts.learn.solve import Solving, ridge
from archipel.privacy.bounding import clip_target, norm_l2
from archipel.privacy.noise import LAPLACE, disturb, release_key

SECOND = 2  # the first of a round's releases that is a difference

# `cut`, (segments,): samples to learn from, the others are for validation; all else, (size,) or (1,), is scratch
Learner = extended(Solving, "Learner", "whole", "cut", "model", "other", "better")


class Learning(NamedTuple):
    change: Any  # the round from which peers have the data of their second segment
    radius: Any
    features: Any
    target: Any
    rate: Any  # delta of (6.13) or (6.14)
    range: Any  # nu of the actor: its actions are tau + U(-nu/2, nu/2)
    epochs: Any  # actions a round; more than one is batch reinforcement learning
    whole: Any  # 1: a unit is a client; 0: a sample


def learner_state(solving: Solving, cut: Any) -> Any:
    """A table of peers that solve, and learn tau."""
    zeros = [np.zeros_like(solving.pull) for _ in range(3)]
    return Learner(*solving, zeros[0], cut, zeros[1], zeros[2], np.zeros((len(cut), 1)))


# --- the primal step ------------------------------------------------------------------------------------------------


@kernel
def weight_at(me: Any, settings: Any, moment: Any, tau: Any) -> Any:
    """Twice what (6.11) adds to the diagonal: lambda / |C_(q)| + tau + rho |N_k|."""
    return weight_of_exact(me, settings, moment) + (2.0 * tau if me.mix.lenders[0] > 0 else 0.0)


@cache
def borrowing(solve: Any) -> Any:
    @kernel
    def primal(out: Any, me: Any, data: Any, settings: Any, moment: Any, segment: Any, tau: Any) -> None:
        """w_k(tau), (6.11), of what pulls."""
        assign(me.learn.whole, me.learn.pull)
        if me.mix.lenders[0] > 0:
            add_scaled(me.learn.whole, 2.0 * tau, me.mix.lent)
        weight = weight_at(me, settings, moment, tau)
        solve(out, me.learn, data, me.learn.whole, weight, segment, settings.learn.radius)

    return primal


@cache
def stepping(primal: Any, learn_tau: Any) -> Any:
    @kernel
    def step(me: Any, data: Any, settings: Any, moment: Any, scale: Any) -> None:
        """Algorithm 6: tau, then the primal step."""
        segment = segment_at(settings, moment)
        pulled(me, settings, segment)
        learn_tau(me, data, settings, moment, segment, scale)
        primal(me.model, me, data, settings, moment, segment, me.mix.tau[0])

    return step


# --- how good a model is --------------------------------------------------------------------------------------------


@kernel
def plain_error(x: Any, y: Any, model: Any, settings: Any) -> Any:
    return y - dot(x, model)


@kernel
def bounded_error(x: Any, y: Any, model: Any, settings: Any) -> Any:
    """The same, of features and a target within their bounds."""
    length = norm_l2(x)
    if not length < np.inf:
        return clip_target(y, settings.learn.target)
    shrunk = 1.0 if length <= settings.learn.features else settings.learn.features / length * ROOM
    return clip_target(y, settings.learn.target) - shrunk * dot(x, model)


@cache
def validating(error_of: Any) -> Any:
    @kernel
    def value(model: Any, me: Any, data: Any, settings: Any, segment: Any) -> Any:
        """(6.12) on the peer's validation data: lower is better."""
        first, total = me.learn.cut[segment], 0.0
        for i in range(first, data.y.shape[0]):
            error = error_of(data.x[i], data.y[i], model, settings)
            total += error * error
        return total / max(data.y.shape[0] - first, 1) + 0.5 * me.learn.shrinkage[0] * dot(model, model)

    return value


# --- how much to borrow ---------------------------------------------------------------------------------------------


@kernel
def within(tau: Any) -> Any:
    """tau stays a share."""
    return min(max(tau, 0.0), 1.0)


@kernel
def learns(me: Any, moment: Any) -> Any:
    """Whether there is anything to learn from."""
    return moment.round > 0 and me.mix.lenders[0] > 0


@kernel
def keep_tau(me: Any, data: Any, settings: Any, moment: Any, segment: Any, scale: Any) -> None:
    """A tau that is given."""


@cache
def comparing(primal: Any, value: Any, noise: Any) -> Any:
    @kernel
    def compare(
        me: Any, data: Any, settings: Any, moment: Any, segment: Any, scale: Any, s: Any, t: Any, epoch: Any
    ) -> Any:
        """V(w(t)) - V(w(s)), noised if it has to be."""
        primal(me.learn.model, me, data, settings, moment, segment, s)
        primal(me.learn.other, me, data, settings, moment, segment, t)
        better = value(me.learn.other, me, data, settings, segment)
        me.learn.better[0] = better - value(me.learn.model, me, data, settings, segment)
        noise(me, data, settings, moment, segment, scale, abs(t - s), epoch)
        return me.learn.better[0]

    return compare


@kernel
def no_noise(me: Any, data: Any, settings: Any, moment: Any, segment: Any, scale: Any, way: Any, epoch: Any) -> None:
    pass


@kernel
def reach_of_difference(me: Any, settings: Any, moment: Any, way: Any, samples: Any) -> Any:
    """How far one unit moves V(w(t)) - V(w(s)), for |t - s| = way and `samples` to validate with."""
    own, mu = settings.learn, weight_of_exact(me, settings, moment)
    steep = 2.0 * (own.features * own.radius + own.target) * own.features
    lipschitz = steep + me.learn.shrinkage[0] * own.radius
    far = min(2.0 * own.radius, 2.0 * way * (own.radius + norm_l2(me.mix.lent)) / mu)
    if own.whole == 1:
        return 2.0 * lipschitz * far
    return max(2.0 * steep * far / max(samples, 1), 2.0 * lipschitz * min(me.protect.change[0] / mu, far))


@kernel
def noise_difference(
    me: Any, data: Any, settings: Any, moment: Any, segment: Any, scale: Any, way: Any, epoch: Any
) -> None:
    """Noise as large, for what a unit can change, as that on the model."""
    samples = data.y.shape[0] - me.learn.cut[segment]
    ratio = reach_of_difference(me, settings, moment, way, samples) / reach_of_exact(me, settings, moment)
    disturb(me.learn.better, settings.protect.law, scale * ratio, release_key(moment.key, SECOND + epoch))


@cache
def acting_critic(compare: Any, private: bool) -> Any:
    @kernel
    def learn_tau(me: Any, data: Any, settings: Any, moment: Any, segment: Any, scale: Any) -> None:
        """The stochastic actor-critic, (6.14): towards a random action, or away from it.

        An action that is cut off where tau ends is no action, and a tie in every arithmetic.
        """
        if not learns(me, moment) or (private and scale < 0.0):
            return
        for epoch in range(settings.learn.epochs):
            way = settings.learn.range * (uniform(moment.key, ACTION, epoch) - 0.5)
            tau, there = me.mix.tau[0], within(me.mix.tau[0] + way)
            if there != tau:
                better = compare(me, data, settings, moment, segment, scale, tau, there, epoch)
                if better != 0.0:
                    me.mix.tau[0] = within(tau - settings.learn.rate * (way if better > 0.0 else -way))

    return learn_tau


@cache
def slope_of_value(primal: Any) -> Any:
    @kernel
    def slope(me: Any, data: Any, settings: Any, moment: Any, segment: Any) -> Any:
        """The derivative of (6.12) with respect to tau: of w_k(tau) it is A^-1 (lent - w_k), with A as in (6.11)."""
        own, tau = me.learn, me.mix.tau[0]
        primal(own.model, me, data, settings, moment, segment, tau)
        for j in range(me.model.shape[0]):
            own.whole[j] = 2.0 * (me.mix.lent[j] - own.model[j])
        basis, curve, weight = own.data.basis[segment], own.data.curve[segment], weight_at(me, settings, moment, tau)
        ridge(own.other, basis, curve, own.along, own.whole, weight)
        first, total = own.cut[segment], 0.0
        for i in range(first, data.y.shape[0]):
            total -= 2.0 * (data.y[i] - dot(data.x[i], own.model)) * dot(data.x[i], own.other)
        return total / max(data.y.shape[0] - first, 1) + own.shrinkage[0] * dot(own.model, own.other)

    return slope


@cache
def following(slope: Any) -> Any:
    @kernel
    def learn_tau(me: Any, data: Any, settings: Any, moment: Any, segment: Any, scale: Any) -> None:
        """The deterministic policy gradient, (6.13)."""
        if learns(me, moment):
            for _ in range(settings.learn.epochs):
                way = settings.learn.rate * slope(me, data, settings, moment, segment)
                me.mix.tau[0] = within(me.mix.tau[0] - way)

    return learn_tau


@cache
def following_privately(compare: Any) -> Any:
    @kernel
    def learn_tau(me: Any, data: Any, settings: Any, moment: Any, segment: Any, scale: Any) -> None:
        """(6.13) by noised differences over the actor's range: a derivative of a minimiser in a ball has no bound."""
        if not learns(me, moment) or scale < 0.0:
            return
        for epoch in range(settings.learn.epochs):
            low = within(me.mix.tau[0] - 0.5 * settings.learn.range)
            high = within(me.mix.tau[0] + 0.5 * settings.learn.range)
            better = compare(me, data, settings, moment, segment, scale, low, high, epoch)
            me.mix.tau[0] = within(me.mix.tau[0] - settings.learn.rate * better / (high - low))

    return learn_tau


@kernel
def reach_of_round(me: Any, settings: Any, moment: Any) -> Any:
    """Of the model, and the differences that tau learns from: each as far in the measure of its noise."""
    releases = 1.0 + (settings.learn.epochs if learns(me, moment) else 0)
    together = releases if settings.protect.law == LAPLACE else math.sqrt(releases)
    return together * reach_of_exact(me, settings, moment)


def tau_learner(policy: str, solve: Any, guard: Any, private: bool) -> Any:
    """The kernel that learns tau: "fixed", "dpg" or "sac"."""
    primal = borrowing(solve)
    if policy == "fixed":
        return keep_tau
    if policy == "dpg" and not private:
        return following(slope_of_value(primal))
    bounded = guard.features < np.inf or guard.target < np.inf
    value = validating(bounded_error if bounded else plain_error)
    compare = comparing(primal, value, noise_difference if private else no_noise)
    return following_privately(compare) if policy == "dpg" else acting_critic(compare, private)
