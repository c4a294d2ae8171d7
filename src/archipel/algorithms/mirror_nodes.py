"""What a peer does in private online mirror descent: the sound form of `mirror`, with or without a budget.

A round: play the model; clip and noise the gradient of this round's sample, paid before; a mirror step, (5.12); say it,
hear the others, mix. Everything that is kept or said is computed from noised gradients, so a sample pays once, in the
round in which it is used.
"""

import math
from typing import Any, NamedTuple

from archipel.algorithms.constraints import Limits, constraint_gradient, constraint_value
from archipel.algorithms.mirror import ENTROPY, fitting_step, mirror_step
from archipel.node import add_exactly, assign, dot_exactly, exact
from archipel.privacy.accountant import release_cost
from archipel.privacy.bounding import clip_l1, clip_l2, clip_target
from archipel.privacy.noise import LAPLACE, disturb, release_key
from archipel.problems.losses.online import DISTANCE, LINEAR, loss_gradient, loss_value, square_distance

PLAIN, SADDLE, QUEUE = 0, 1, 2  # no budget; chapter 3; chapter 4
PUSH_SUM, AS_SENT, AS_HEARD = 0, 1, 2  # push-sum; (5.13), a sender's weights sum to one; chapter 2, a receiver's do

# Where a part of a graph hears nothing back, because others broke down, its weight drains: what is left stays a number.
LIGHT, LOST = 1e-3, 1e-100  # the least that a step is divided by; less than this begins anew


class Settings(NamedTuple):
    geometry: Any  # the mirror map, as in mirror.MapSettings
    region: Any
    radius: Any
    low: Any
    high: Any
    floor: Any
    width: Any  # the step that fits, see mirror.fitting_step
    length: Any
    pace: Any
    drift: Any
    step: Any  # above 0: step / t^decay in its place
    decay: Any
    loss: Any
    ridge: Any
    mixing: Any
    private: Any  # 1: pay before anything is learned
    clip: Any
    order: Any  # of the norm that is clipped
    change: Any  # how far another sample moves a clipped gradient
    law: Any
    shape: Any  # of the noise over the rounds
    per_sample: Any  # 1: every sample pays for itself; 0: a client pays for all
    form: Any  # PLAIN, SADDLE or QUEUE
    limit: Any  # the budget: kind, weights, and what may be used in a round, in turn
    weights: Any
    budgets: Any
    reach: Any  # F: bounds |c|
    caution: Any  # V = caution sqrt(t)
    secret: Any  # 1: what a component costs is in the sample: clipped, noised and paid with the gradient
    cost: Any  # clip of such a cost
    spread: Any  # how much more noise each of the three parts of such a release has
    centres: Any  # for the meter: what everyone's expected loss is around, no rows where unknown
    minima: Any  # and where it is least


class Peer(NamedTuple):
    model: Any  # y_u
    moved: Any  # z_u; in dual averaging the pushed sum of gradients
    gradient: Any
    slope: Any  # of the constraint
    weight: Any  # of push-sum
    multiplier: Any  # lambda of chapter 3, Q of chapter 4
    swings: Any  # F^2, and the squares of the constraint so far
    noise: Any  # its scale at first
    spent: Any  # zCDP, for the unit of the policy
    limit: Any
    releases: Any
    dearest: Any  # zCDP of one sample
    summed: Any  # zCDP of all of a client's samples
    lost: Any  # meters: own losses so far
    behind: Any  # everyone's expected loss, less that of the best model of the round
    overdrawn: Any  # the constraint, added up
    rounds: Any


class Word(NamedTuple):
    total: Any  # w_u z_u
    weight: Any


class Inbox(NamedTuple):
    total: Any
    weight: Any


# --- meters ---------------------------------------------------------------------------------------------------------


@exact
def excess(model: Any, best: Any, centre: Any, settings: Any) -> Any:
    """F_t(model) - F_t(best), where F_t is the mean over clients of their expected losses; problems.drifting's."""
    more = 0.0
    if settings.ridge > 0.0:
        more = 0.5 * settings.ridge * (dot_exactly(model, model) - dot_exactly(best, best))
    if settings.loss == LINEAR:
        return more + dot_exactly(centre, model) - dot_exactly(centre, best)
    apart = square_distance(model, centre) - square_distance(best, centre)
    return more + apart * (0.5 if settings.loss == DISTANCE else 1.0 / centre.shape[0])


@exact
def play(me: Any, data: Any, settings: Any, moment: Any) -> None:
    """Count what playing the model costs. No one is told."""
    me.rounds[0] += 1.0
    me.lost[0] += loss_value(settings.loss, me.model, data)
    if settings.ridge > 0.0:
        me.lost[0] += 0.5 * settings.ridge * dot_exactly(me.model, me.model)
    if settings.centres.shape[0] > 0:
        now = min(moment.round, settings.centres.shape[0] - 1)
        me.behind[0] += excess(me.model, settings.minima[now], settings.centres[now], settings)


# --- learning -------------------------------------------------------------------------------------------------------


@exact
def step_of(settings: Any, round: Any) -> Any:
    """The step of a round, counted from 0: one for all, so that no one's loss counts more."""
    if settings.step > 0.0:
        return settings.step / (round + 1.0) ** settings.decay
    return fitting_step(round, settings.width, settings.length, settings.pace, settings.drift)


@exact
def pay(me: Any, cost: Any, per_sample: Any) -> Any:
    """Pay for a sample, or take nothing and say False. Both levels are counted: one sample's cost, and a client's."""
    total = max(me.spent[0], cost) if per_sample == 1 else me.spent[0] + cost
    if total > me.limit[0]:
        return False
    me.spent[0] = total
    me.dearest[0] = max(me.dearest[0], cost)
    me.summed[0] += cost
    me.releases[0] += 1.0
    return True


@exact
def scale_of(me: Any, settings: Any, moment: Any) -> Any:
    """The noise of a round, paid for; below 0 where it cannot be."""
    if settings.private == 0:
        return 0.0
    if moment.round >= settings.shape.shape[0] or settings.shape[moment.round] < 0.0:
        return -1.0
    scale = me.noise[0] * settings.shape[moment.round]
    return scale if pay(me, release_cost(settings.law, settings.change, scale), settings.per_sample) else -1.0


@exact
def protect(values: Any, bound: Any, scale: Any, settings: Any, key: Any) -> None:
    """Clip in the norm of the noise, then noise: where a sample enters the state."""
    if settings.order == 2:
        clip_l2(values, bound)
    else:
        clip_l1(values, bound)
    disturb(values, settings.law, scale, key)


@exact
def used(me: Any, data: Any, settings: Any, moment: Any) -> Any:
    """c(model) of this round: above zero, more is used than the budget has."""
    budget = settings.budgets[moment.round % settings.budgets.shape[0]]
    if settings.secret == 1:
        return dot_exactly(data.features, me.model) - budget
    return constraint_value(me.model, Limits(settings.limit, settings.weights, budget))


@exact
def constrain(me: Any, value: Any, data: Any, scale: Any, settings: Any, moment: Any) -> Any:
    """The constraint's gradient, in me.slope, and its value; both clipped and noised where the sample is in them."""
    if settings.secret == 0:
        constraint_gradient(me.slope, me.model, Limits(settings.limit, settings.weights, 0.0))
        return value
    assign(me.slope, data.features)
    if settings.private == 1:
        more = settings.spread * scale / (0.5 * settings.change)  # for a bound of one
        protect(me.slope, settings.cost, more * settings.cost, settings, release_key(moment.key, 1))
        me.moved[0] = clip_target(value, settings.reach)  # scratch, before the step fills it
        disturb(me.moved[:1], settings.law, more * settings.reach, release_key(moment.key, 2))
        return me.moved[0]
    return value


@exact
def pressure(me: Any, settings: Any, moment: Any) -> Any:
    """How strongly the constraint pushes: lambda of chapter 3, Q / V of chapter 4."""
    if settings.form == QUEUE:
        return me.multiplier[0] / (settings.caution * math.sqrt(moment.round + 1.0))
    return me.multiplier[0]


@exact
def steepness(slope: Any, settings: Any) -> Any:
    """||slope||^2 in the dual norm of the map: gamma of (3.2), at the model instead of at its worst."""
    if settings.geometry == ENTROPY:
        most = 0.0
        for j in range(slope.shape[0]):
            most = max(most, abs(slope[j]))
        return most * most
    return dot_exactly(slope, slope)


@exact
def press(me: Any, before: Any, settings: Any, moment: Any) -> None:
    """The dual step: chapter 3's step 14, or chapter 4's step 11 with (4.9); `before` is c(model).

    Chapter 3's steps are 1 / (F sqrt(t)), with F the most that |c| can be; here F^2 t is F^2 and the squares so far.
    """
    if settings.form == SADDLE:
        me.swings[0] += before * before
        rise = before - step_of(settings, moment.round) * steepness(me.slope, settings) * me.multiplier[0]
        me.multiplier[0] = max(0.0, me.multiplier[0] + rise / math.sqrt(me.swings[0]))
    else:
        ahead = before + dot_exactly(me.slope, me.moved) - dot_exactly(me.slope, me.model)
        me.multiplier[0] = max(0.0, me.multiplier[0] + ahead)


@exact
def look(me: Any, data: Any, settings: Any, moment: Any) -> Any:
    """me.gradient: the sample's, clipped, noised, paid for. The scale of its noise; below 0 where it cannot be paid."""
    scale = scale_of(me, settings, moment)
    if scale < 0.0:
        return scale
    loss_gradient(me.gradient, settings.loss, me.model, data)
    if settings.private == 1:
        protect(me.gradient, settings.clip, settings.spread * scale, settings, moment.key)
    if settings.ridge > 0.0:
        add_exactly(me.gradient, settings.ridge, me.model)  # known to all who know the model
    return scale


@exact
def learn(me: Any, data: Any, settings: Any, moment: Any) -> None:
    """moved = a mirror step from the model, (5.12). Who cannot pay stays where it is, and passes on what it heard."""
    value = used(me, data, settings, moment)
    me.overdrawn[0] += value
    scale = look(me, data, settings, moment)
    if scale < 0.0:
        assign(me.moved, me.model)
        return
    before = 0.0
    if settings.form != PLAIN:
        before = constrain(me, value, data, scale, settings, moment)
        add_exactly(me.gradient, pressure(me, settings, moment), me.slope)
    step = step_of(settings, moment.round)
    mirror_step(me.moved, me.model, me.gradient, step / max(me.weight[0], LIGHT), settings)
    if settings.form != PLAIN:
        press(me, before, settings, moment)


@exact
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """Play, learn, and say what was learned. Who is away learns alone and keeps its weight."""
    play(me, data, settings, moment)
    learn(me, data, settings, moment)
    return say(me, said, moment)


@exact
def say(me: Any, said: Any, moment: Any) -> Any:
    """The weight, and the weighted model; the weight stays one where nobody pushes sums."""
    if not moment.present:
        assign(me.model, me.moved)
        return False
    said.weight[0] = me.weight[0]
    for j in range(me.moved.shape[0]):
        said.total[j] = me.weight[0] * me.moved[j]
    return True


# --- mixing ---------------------------------------------------------------------------------------------------------


@exact
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    add_exactly(inbox.total, edge.weight, said.total)
    inbox.weight[0] += edge.weight * said.weight[0]


@exact
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """Push-sum: what was kept and heard, over the weight of both. Plain mixing: chapter 2's step 14, or (5.13)."""
    own = moment.kept if settings.mixing != AS_HEARD else 1.0 - inbox.weight[0]
    if settings.mixing == PUSH_SUM:
        own *= me.weight[0]
        me.weight[0] = inbox.weight[0] + own
        if me.weight[0] < LOST:
            own, me.weight[0] = 1.0, 1.0
    for j in range(me.model.shape[0]):
        me.model[j] = (inbox.total[j] + own * me.moved[j]) / me.weight[0]


# --- as published ---------------------------------------------------------------------------------------------------


class PrintedSettings(NamedTuple):
    """Algorithms 1 to 3 of chapter 2, and chapter 5, whose noise and steps are as printed."""

    geometry: Any
    region: Any
    radius: Any
    low: Any
    high: Any
    floor: Any
    step: Any
    decay: Any
    loss: Any
    ridge: Any
    mixing: Any
    noise: Any  # 1 / epsilon
    bound: Any  # b of algorithm 3: above 0, its steps 9 to 12
    kept: Any  # 0: the gradient is replaced by zero, to show what it does
    centres: Any
    minima: Any


@exact
def rescale(gradient: Any, noise: Any, bound: Any) -> None:
    """Algorithm 3, steps 9 to 12: noise beyond +-bound becomes bound / 2; rescale to [0, 1]; normalise.

    They all but remove the gradient, and a bounded noise is no pure differential privacy.
    """
    square = 0.0
    for j in range(gradient.shape[0]):
        drawn = noise[j]
        if abs(drawn) > bound:
            drawn = 0.5 * bound
        gradient[j] = (gradient[j] + drawn + bound) / (2.0 * bound + 1.0)
        square += gradient[j] * gradient[j]
    length = math.sqrt(square)
    for j in range(gradient.shape[0]):
        gradient[j] /= length


@exact
def act_as_printed(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """Steps 5 to 13 of algorithms 1 to 3: Laplace(1 / epsilon) noise, step 1 / t."""
    play(me, data, settings, moment)
    loss_gradient(me.gradient, settings.loss, me.model, data)
    for j in range(me.model.shape[0]):
        me.gradient[j] = settings.kept * (me.gradient[j] + settings.ridge * me.model[j])
        me.slope[j] = 0.0
    disturb(me.slope, LAPLACE, settings.noise, moment.key)
    if settings.bound > 0.0:
        rescale(me.gradient, me.slope, settings.bound)
    else:
        add_exactly(me.gradient, 1.0, me.slope)
    step = settings.step / (moment.round + 1.0) ** settings.decay
    mirror_step(me.moved, me.model, me.gradient, step, settings)
    return say(me, said, moment)
