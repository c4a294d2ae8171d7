"""Long-term constraints as small objects: a budget that may be overdrawn in a round but not in the long run.

A constraint is c(x) <= 0 with its gradient, (3.1) and (4.6):

- `linear`: weights @ x <= budget; `packets` is one whose weights count what a component costs to send;
- `energy`: weights @ x^2 <= budget, as power grows with the square of an amplitude;
- `own`: a function of yours, with its gradient, its bounds and a point that satisfies it.

**What a constraint costs in privacy.** The multiplier of chapter 3 and the queue of chapter 4 add up c(x)
of all rounds and are in every later release. Where c is public (the weights are no secret), c(x) is computed
from x, which has been released already: nothing to charge. Where it depends on a sample, value and gradient
must be clipped and noised before they enter the state: value + Laplace(2 F / eps_1), |value| <= F, and
gradient + Laplace(2 C / eps_2), ||gradient||_1 <= C, each charged beside the loss gradient. Multiplier, queue
and V then only multiply what has been released. (The dissertation noises the loss gradient only, in chapter
3, and calibrates the noise without V and Q, in chapter 4.)

**The steps that go with it.** The model steps as in `algorithms.mirror`, on ghat + pressure * grad c(y). Then

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

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from archipel.algorithms.mirror import normalise
from archipel.errors import BadInput
from archipel.node import dot, fast, kernel
from archipel.regions import ANYWHERE, BALL, BOX, lowest

NONE, LINEAR, SQUARE = 0, 1, 2


class Limits(NamedTuple):
    """A constraint as data. Settings, or a row of a table, with fields of these names serve as well."""

    limit: Any  # NONE, LINEAR or SQUARE
    weights: Any
    budget: Any


class Bounds(NamedTuple):
    """How large a constraint and its gradient get in the region."""

    low: float  # of c: above zero, no point satisfies it
    high: float
    gradient_l1: float
    gradient_l2: float
    gradient_max: float

    @property
    def size(self) -> float:
        """|c| <= size: (4.2)'s F, chapter 3's D."""
        return max(abs(self.low), abs(self.high))


class Constraint(NamedTuple):
    """c(x) <= 0 with its gradient, as node functions; `bounds` is given for one of your own."""

    value: Callable[..., Any]  # (x, limits) -> c(x)
    gradient: Callable[..., None]  # (out, x, limits)
    limits: Any
    bounds: Bounds | None = None

    def expression(self, x: Any) -> Any:
        """c(x) of a variable of CVXPY."""
        import cvxpy

        if not isinstance(self.limits, Limits):
            raise BadInput("constraint", "your own", "linear or energy where it has to be solved exactly")
        powers = cvxpy.square(x) if self.limits.limit == SQUARE else x
        return self.limits.weights @ powers - self.limits.budget


# --- node functions ---------------------------------------------------------------------------------------


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
def constraint_value(x: Any, limits: Any) -> Any:
    """c(x): above zero, the budget is overdrawn this round."""
    if limits.limit == LINEAR:
        return dot(limits.weights, x) - limits.budget
    if limits.limit == SQUARE:
        return dot_squares(limits.weights, x) - limits.budget
    return 0.0 * limits.budget


@kernel
def constraint_gradient(out: Any, x: Any, limits: Any) -> None:
    """The gradient of c at x."""
    if limits.limit == LINEAR:
        out[:] = limits.weights
    elif limits.limit == SQUARE:
        out[:] = 2 * limits.weights * x
    else:
        out[:] = 0


# --- makers -----------------------------------------------------------------------------------------------


def none(size: int) -> Constraint:
    """No constraint: c(x) = 0."""
    return Constraint(constraint_value, constraint_gradient, Limits(NONE, np.zeros(size), 0.0))


def linear(weights: Any, budget: float) -> Constraint:
    """weights @ x <= budget."""
    weights = np.ascontiguousarray(weights, dtype=float)
    if weights.ndim != 1 or not np.isfinite(weights).all():
        raise BadInput("constraint.weights", weights, "one finite number a parameter")
    if not np.isfinite(budget):
        raise BadInput("constraint.budget", budget, "a finite number")
    return Constraint(constraint_value, constraint_gradient, Limits(LINEAR, weights, float(budget)))


def packets(cost: Any, budget: float) -> Constraint:
    """At most `budget` packets a round in the long run, where a component of rate one costs `cost`."""
    return linear(not_negative(cost), budget)


def energy(cost: Any, budget: float) -> Constraint:
    """At most `budget` joules a round in the long run, where a component of amplitude one costs `cost`."""
    made = linear(not_negative(cost), budget)
    return made._replace(limits=made.limits._replace(limit=SQUARE))


def not_negative(cost: Any) -> Any:
    """Costs, checked: a negative one would earn what it should cost, and make an energy concave."""
    cost = np.asarray(cost, dtype=float)
    if not (cost >= 0).all():
        raise BadInput("constraint.cost", cost, "no negative number")
    return cost


def own(
    value: Callable[..., Any], gradient: Callable[..., None], limits: Any, bounds: Bounds, witness: Any
) -> Constraint:
    """A convex constraint of your own; `witness` is a point that satisfies it, for no one else can know."""
    found = float(value(np.asarray(witness, dtype=float), limits))
    if not found <= 0:
        raise BadInput("constraint.witness", found, "a point where the constraint is at most 0")
    return Constraint(value, gradient, limits, bounds)


# --- what a constraint is on a region ---------------------------------------------------------------------


def bounds(constraint: Constraint, region: Any) -> Bounds:
    """The exact range of c over the region, and of its gradient's norms."""
    if constraint.bounds is not None:
        return constraint.bounds
    limits = constraint.limits
    if limits.limit == NONE:
        return Bounds(0.0, 0.0, 0.0, 0.0, 0.0)
    if len(limits.weights) != len(region.low):
        raise BadInput("constraint.weights", limits.weights, f"{len(region.low)} numbers, one a parameter")
    return (linear_bounds if limits.limit == LINEAR else square_bounds)(limits, region)


def linear_bounds(limits: Any, region: Any) -> Bounds:
    """Of weights @ x - budget."""
    weights = limits.weights
    norms = (np.abs(weights).sum(), np.linalg.norm(weights), np.abs(weights).max())
    if region.region == ANYWHERE:
        reach = np.inf if weights.any() else 0.0
        return Bounds(-reach - limits.budget, reach - limits.budget, *map(float, norms))
    low, high = weights @ lowest(region, weights), weights @ lowest(region, -weights)
    return Bounds(float(low - limits.budget), float(high - limits.budget), *map(float, norms))


def square_bounds(limits: Any, region: Any) -> Bounds:
    """Of weights @ x^2 - budget, weights >= 0; a convex function is largest at a corner."""
    weights, budget = limits.weights, limits.budget
    if region.region == ANYWHERE:
        reach = np.inf if weights.any() else 0.0
        return Bounds(-budget, reach - budget, reach, reach, reach)
    if region.region == BALL:
        low, high = 0.0, weights.max() * region.radius**2
        slopes = (2 * region.radius * np.linalg.norm(weights),) + (2 * region.radius * weights.max(),) * 2
        return Bounds(float(low - budget), float(high - budget), *map(float, slopes))
    if region.region == BOX:
        least = np.clip(0.0, region.low, region.high)
        corners = np.maximum(np.abs(region.low), np.abs(region.high))[None]
    else:
        least = cheapest_share(weights, region)
        corners = np.array([lowest(region, -unit) for unit in np.eye(len(weights))])
    high = (corners**2 @ weights).max()
    slope = 2 * corners * weights
    norms = (slope.sum(1).max(), np.linalg.norm(slope, axis=1).max(), slope.max())
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
        budget = float(constraint.limits.budget)
        raise BadInput("constraint.budget", budget, f"at least {budget + least:.6g}: no point of the region needs less")
