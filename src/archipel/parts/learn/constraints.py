"""Long-term constraints as small objects: a budget that may be overdrawn in a round but not in the long run.

A constraint is c(x) <= 0 with its gradient, (3.1) and (4.6):

- `linear`: weights @ x <= budget; `packets` is one whose weights count what a component costs to send;
- `energy`: weights @ x^2 <= budget, as power grows with the square of an amplitude.

**What a constraint costs in privacy.** The multiplier of chapter 3 and the queue of chapter 4 add up c(x)
of all rounds and are in every later release. Where c is public (the weights are no secret), c(x) is computed
from x, which has been released already: nothing to charge. Where it depends on a sample, value and gradient
must be clipped and noised before they enter the state: value + Laplace(2 F / eps_1), |value| <= F, and
gradient + Laplace(2 C / eps_2), ||gradient||_1 <= C, each charged beside the loss gradient. Multiplier, queue
and V then only multiply what has been released. (The dissertation noises the loss gradient only, in chapter
3, and calibrates the noise without V and Q, in chapter 4.)

**The steps that go with it.** The model steps as in `learn.mirror`, on ghat + pressure * grad c(y). Then

    saddle point, ch. 3    pressure = lambda
                           lambda' = max(0, lambda + (c(y) - step_t ||grad c(y)||_*^2 lambda) / sqrt(F^2 + sum c^2))
    virtual queue, ch. 4   pressure = Q / (caution sqrt(t))
                           Q' = max(0, Q + c(y) + <grad c(y), z - y>)

with |c| <= F, and V = caution sqrt(t), so that no horizon is needed. Chapter 3 has 1 / (F sqrt(t)) for the dual step
and gamma, the largest ||grad c||^2, in its leak: in a region that is large beside what is used, both wait for what
never comes. The leak has to undo step_t lambda^2 ||grad c(y)||^2 of the model's step, at y and not at the worst point;
the dual step is that of AdaGrad (Duchi, Hazan, Singer, JMLR 2011). Measured on stationary losses, the average violation
falls faster than T^(-1/2); the literature's worst case is T^(-1/4).
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.node import add_exactly, assign, dot, dot_exactly, exact, fast, kernel
from archipel.parts import empty
from archipel.parts.learn.maps import ENTROPY, normalise
from archipel.privacy.bounding import clip_target
from archipel.privacy.noise import release_key
from archipel.problems.regions import ANYWHERE, BALL, BOX, lowest
from archipel.theory.comparators import Quadratic

FREE, LINEAR, SQUARE, SECRET = 0, 1, 2, 3  # no constraint; weights @ x; weights @ x^2; features @ x, which is private
PLAIN, SADDLE, QUEUE = 0, 1, 2  # a constraint is only measured; chapter 3; chapter 4


class Constraint(NamedTuple):
    """c(x) <= 0 as data."""

    form: int
    weights: Any
    budget: float

    def value(self, x: Any) -> float:
        """c(x)."""
        return float(self.weights @ (x * x if self.form == SQUARE else x) - self.budget)

    def expression(self, x: Any) -> Any:
        """c(x) of a variable of CVXPY."""
        import cvxpy

        return self.weights @ (cvxpy.square(x) if self.form == SQUARE else x) - self.budget

    def priced(self, total: Quadratic, price: float) -> Quadratic:
        """total + price c(x)."""
        slope, constant = total.slope, total.constant - price * self.budget
        if self.form == SQUARE:
            return Quadratic(total.curvature + 2 * price * np.diag(self.weights), slope, constant)
        return Quadratic(total.curvature, slope + price * self.weights, constant)


class Bounds(NamedTuple):
    """How large a constraint and its gradient get in the region."""

    low: float  # of c: above zero, no point satisfies it
    high: float
    gradient_l2: float
    gradient_max: float

    @property
    def size(self) -> float:
        """|c| <= size: (4.2)'s F, chapter 3's D."""
        return max(abs(self.low), abs(self.high))


# --- node functions -------------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """The settings of a constraint."""

    weights: Any
    budgets: Any  # what may be used in a round, in turn
    reach: Any  # F: bounds |c|
    caution: Any  # V = caution sqrt(t)
    clip: Any  # of a private cost
    half: Any  # of how far another sample moves a clipped gradient


class Pressed(NamedTuple):
    """What a node keeps of a constraint that it steers by."""

    slope: Any  # of the constraint
    multiplier: Any  # lambda of chapter 3, Q of chapter 4
    swings: Any  # F^2, and the squares of the constraint so far
    noised: Any  # (1,): the value of a private one


def dot_squares(weights: Any, x: Any) -> Any:
    """weights @ x^2."""
    return weights @ (x * x)


@fast(dot_squares)
def dot_squares_loop(weights: Any, x: Any) -> Any:
    total = x.dtype.type(0)
    for j in range(x.shape[0]):
        total += weights[j] * x[j] * x[j]
    return total


@kernel
def linear_value(model: Any, data: Any, budget: Any, round: Any) -> Any:
    return dot(budget.weights, model) - budget.budgets[round % budget.budgets.shape[0]]


@kernel
def square_value(model: Any, data: Any, budget: Any, round: Any) -> Any:
    return dot_squares(budget.weights, model) - budget.budgets[round % budget.budgets.shape[0]]


@exact
def secret_value(model: Any, data: Any, budget: Any, round: Any) -> Any:
    return dot_exactly(data.features, model) - budget.budgets[round % budget.budgets.shape[0]]


@kernel
def free_value(model: Any, data: Any, budget: Any, round: Any) -> Any:
    return 0.0


@kernel
def linear_slope(out: Any, model: Any, data: Any, budget: Any) -> None:
    assign(out, budget.weights)


@kernel
def square_slope(out: Any, model: Any, data: Any, budget: Any) -> None:
    for j in range(out.shape[0]):
        out[j] = 2 * budget.weights[j] * model[j]


@kernel
def secret_slope(out: Any, model: Any, data: Any, budget: Any) -> None:
    assign(out, data.features)


USES = {FREE: free_value, LINEAR: linear_value, SQUARE: square_value, SECRET: secret_value}  # c(x) of a round
SLOPES = {LINEAR: linear_slope, SQUARE: square_slope, SECRET: secret_slope}


@kernel
def no_push(me: Any, value: Any, data: Any, scale: Any, settings: Any, moment: Any) -> Any:
    return value


@kernel
def no_press(me: Any, value: Any, settings: Any, moment: Any) -> None:
    pass


@exact
def multiplier(me: Any, settings: Any, moment: Any) -> Any:
    """lambda of chapter 3."""
    return me.learn.pressed.multiplier[0]


@exact
def over_caution(me: Any, settings: Any, moment: Any) -> Any:
    """Q / V of chapter 4."""
    return me.learn.pressed.multiplier[0] / (settings.learn.budget.caution * math.sqrt(moment.round + 1.0))


@cache
def pushing(form: int, pressing: int, guard: Any) -> Any:
    """How a constraint pushes; `guard` where the sample is in it, and private."""
    slope_of, pressure = SLOPES[form], over_caution if pressing == QUEUE else multiplier
    private = form == SECRET and guard is not None

    @exact
    def push(me: Any, value: Any, data: Any, scale: Any, settings: Any, moment: Any) -> Any:
        """Add pressure times slope to the gradient; slope and value clipped and noised where the sample is in them."""
        pressed, budget = me.learn.pressed, settings.learn.budget
        slope_of(pressed.slope, me.model, data, budget)
        pressed.noised[0] = value
        if private:
            more = settings.learn.spread * scale / budget.half  # for a bound of one
            guard(pressed.slope, budget.clip, more * budget.clip, me, settings, release_key(moment.key, 1))
            pressed.noised[0] = clip_target(value, budget.reach)
            guard(pressed.noised, np.inf, more * budget.reach, me, settings, release_key(moment.key, 2))
        add_exactly(me.learn.gradient, pressure(me, settings, moment), pressed.slope)
        return pressed.noised[0]

    return push


@exact
def steepness(slope: Any, entropic: Any) -> Any:
    """||slope||^2 in the dual norm of the map: gamma of (3.2), at the model instead of at its worst."""
    if not entropic:
        return dot_exactly(slope, slope)
    most = 0.0
    for j in range(slope.shape[0]):
        most = max(most, abs(slope[j]))
    return most * most


@cache
def saddle_press(geometry: int, step_of: Any) -> Any:
    entropic = geometry == ENTROPY

    @exact
    def press(me: Any, value: Any, settings: Any, moment: Any) -> None:
        """The dual step of chapter 3, its step 14. Its steps are 1 / (F sqrt(t)), with F the most that |c| can be; here
        F^2 t is F^2 and the squares so far.
        """
        pressed = me.learn.pressed
        pressed.swings[0] += value * value
        leak = step_of(settings.learn.steps, moment.round) * steepness(pressed.slope, entropic) * pressed.multiplier[0]
        pressed.multiplier[0] = max(0.0, pressed.multiplier[0] + (value - leak) / math.sqrt(pressed.swings[0]))

    return press


@exact
def queue_press(me: Any, value: Any, settings: Any, moment: Any) -> None:
    """The dual step of chapter 4: its step 11 with (4.9)."""
    pressed = me.learn.pressed
    ahead = value + dot_exactly(pressed.slope, me.model) - dot_exactly(pressed.slope, me.before)
    pressed.multiplier[0] = max(0.0, pressed.multiplier[0] + ahead)


def pressed_rows(pressing: int, rows: int, size: int, reach: float, dtype: Any) -> Any:
    """What nodes keep of a constraint."""
    if pressing == PLAIN:
        return empty(rows)
    ones = np.zeros((rows, 1))
    return Pressed(np.zeros((rows, size), dtype), ones, np.full((rows, 1), reach**2), ones.copy())


# --- the table [algorithm.constraint] -------------------------------------------------------------------------------

FORMS = {"linear": LINEAR, "packets": LINEAR, "energy": SQUARE, "sample": SECRET}


@dataclass(frozen=True)
class Budget(Checked):
    """A long-term budget: what a round's model uses may exceed it, but not in the long run.

    `kind`: "linear" (cost @ x), "packets" (the same, no negative cost), "energy" (cost @ x^2), or "sample", where the
    cost of each component is in the round's sample (features @ x) and so is private.
    """

    section = "algorithm.constraint"

    kind: str = key("linear", "what is used", choices=tuple(FORMS))
    cost: float | tuple[float, ...] = key(1.0, "what a component costs: one number for all, or one for each")
    budget: float | tuple[float, ...] = key(0.0, "what may be used in a round; several numbers come in turn")
    window: int = key(
        1, "rounds in a row in which the comparator stays within the budget, (4.6)", at_least=1, symbol="K"
    )
    clip: float = key(1.0, "of a private cost, the bound of its L1 or L2 norm", above=0)
    reach: float = key(1.0, "of a private cost, the bound of its value", above=0)

    @property
    def form(self) -> int:
        return FORMS[self.kind]

    @property
    def budgets(self) -> Any:
        """What may be used, in turn."""
        return np.atleast_1d(np.asarray(self.budget, float))

    def constraint(self, size: int, budget: float) -> Constraint:
        """c(x) <= 0 with one budget."""
        cost = np.asarray(self.cost, float)
        if cost.ndim and len(cost) != size:
            raise BadInput("algorithm.constraint.cost", self.cost, f"one number, or {size}, one per parameter")
        return constrained(self.kind, np.broadcast_to(cost, size), budget)

    def check(self, region: Any) -> None:
        """Refuse a budget that no point of the region keeps to, on average."""
        if not self.budgets.size:
            raise BadInput("algorithm.constraint.budget", self.budget, "at least one number")
        if self.form != SECRET:
            check_satisfiable(self.constraint(len(region.low), window_budget(self.budgets, self.window)), region)

    def measured(self, size: int, reach: float, caution: float, change: float, dtype: Any) -> Measured:
        """The settings that nodes steer by."""
        weights = np.zeros(size) if self.form == SECRET else self.constraint(size, 0.0).weights
        return Measured(weights.astype(dtype), self.budgets, reach, caution, float(self.clip), 0.5 * change)


def constrained(kind: str, cost: Any, budget: float) -> Constraint:
    """A constraint of one kind, checked."""
    cost = np.ascontiguousarray(cost, dtype=float)
    if cost.ndim != 1 or not np.isfinite(cost).all():
        raise BadInput("algorithm.constraint.cost", cost, "one finite number per parameter")
    if not np.isfinite(budget):
        raise BadInput("algorithm.constraint.budget", budget, "a finite number")
    if kind != "linear" and not (cost >= 0).all():  # it would earn what it should cost, and make an energy concave
        raise BadInput("algorithm.constraint.cost", cost, "no negative number")
    return Constraint(FORMS[kind], cost, float(budget))


def window_budget(budgets: Any, window: int) -> float:
    """What a fixed model may use in a round so that no `window` rounds in a row use more than they have, (4.6).

    Budgets come in turn for ever, weights stay: only the poorest window matters.
    """
    trips, rest = divmod(window, len(budgets))
    sums = np.cumsum(np.concatenate([[0.0], budgets, budgets]))
    poorest = np.min(sums[rest : rest + len(budgets)] - sums[: len(budgets)])
    return float((trips * budgets.sum() + poorest) / window)


# --- what a constraint is on a region -------------------------------------------------------------------------------


def bounds(constraint: Constraint, region: Any) -> Bounds:
    """The exact range of c over the region, and of its gradient's norms."""
    if len(constraint.weights) != len(region.low):
        raise BadInput("algorithm.constraint.cost", constraint.weights, f"{len(region.low)} numbers, one per parameter")
    return (linear_bounds if constraint.form == LINEAR else square_bounds)(constraint, region)


def linear_bounds(limits: Constraint, region: Any) -> Bounds:
    """Of weights @ x - budget."""
    weights = limits.weights
    norms = (np.linalg.norm(weights), np.abs(weights).max())
    if region.region == ANYWHERE:
        reach = np.inf if weights.any() else 0.0
        return Bounds(-reach - limits.budget, reach - limits.budget, *map(float, norms))
    low, high = weights @ lowest(region, weights), weights @ lowest(region, -weights)
    return Bounds(float(low - limits.budget), float(high - limits.budget), *map(float, norms))


def square_bounds(limits: Constraint, region: Any) -> Bounds:
    """Of weights @ x^2 - budget, weights >= 0; a convex function is largest at a corner."""
    weights, budget = limits.weights, limits.budget
    if region.region == ANYWHERE:
        reach = np.inf if weights.any() else 0.0
        return Bounds(-budget, reach - budget, reach, reach)
    if region.region == BALL:
        low, high = 0.0, weights.max() * region.radius**2
        slope = float(2 * region.radius * weights.max())
        return Bounds(float(low - budget), float(high - budget), slope, slope)
    if region.region == BOX:
        least = np.clip(0.0, region.low, region.high)
        corners = np.maximum(np.abs(region.low), np.abs(region.high))[None]
    else:
        least = cheapest_share(weights, region)
        corners = np.array([lowest(region, -unit) for unit in np.eye(len(weights))])
    high = (corners**2 @ weights).max()
    slope = 2 * corners * weights
    norms = (np.linalg.norm(slope, axis=1).max(), slope.max())
    return Bounds(float(weights @ least**2 - budget), float(high - budget), *map(float, norms))


def cheapest_share(weights: Any, region: Any) -> Any:
    """Where weights @ x^2 is smallest on the simplex: shares as 1 / weights, none below the floor."""
    free = weights <= 0
    shares = np.where(free, 1.0, 0.0) if free.any() else 1 / weights
    out = np.empty_like(weights)
    normalise(out, shares, region.radius, region.floor)
    return out


def check_satisfiable(constraint: Constraint, region: Any) -> None:
    """Refuse a constraint that no point of the region satisfies. Exact for those of this file."""
    least = bounds(constraint, region).low
    if least > 1e-12:
        right = f"at least {constraint.budget + least:.6g}: no point of the region needs less"
        raise BadInput("algorithm.constraint.budget", constraint.budget, right)
