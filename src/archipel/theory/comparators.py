"""The best that one fixed model could have done: sums of losses, and their exact minimisers.

The losses of some rounds and clients, added up, are a `Quadratic` or a `Logistic`, which `best` minimises over a
region: in closed form where there is one, by descent until a certificate says that nothing is left to gain, or, with
most constraints, by CVXPY.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from archipel.errors import BadInput, Missing
from archipel.problems.regions import ANYWHERE, BALL, in_cvxpy, lowest, project


class Total(Protocol):
    """A convex function of one model: the losses of some rounds, added up."""

    def value(self, x: Any) -> float: ...
    def gradient(self, x: Any) -> Any: ...
    def smoothness(self) -> float: ...
    def expression(self, x: Any) -> Any: ...


# --- sums of losses ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quadratic:
    """x @ curvature @ x / 2 + slope @ x + constant."""

    curvature: Any
    slope: Any
    constant: float

    def value(self, x: Any) -> float:
        return float(x @ self.curvature @ x / 2 + self.slope @ x + self.constant)

    def gradient(self, x: Any) -> Any:
        return self.curvature @ x + self.slope

    def smoothness(self) -> float:
        return float(np.linalg.eigvalsh(self.curvature)[-1])

    def expression(self, x: Any) -> Any:
        import cvxpy

        sizes, axes = np.linalg.eigh(self.curvature)
        root = np.sqrt(np.maximum(sizes, 0))[:, None] * axes.T
        return cvxpy.sum_squares(root @ x) / 2 + self.slope @ x + self.constant


@dataclass(frozen=True)
class Logistic:
    """sum log(1 + exp(-label features @ x)) + ridge / 2 ||x||^2."""

    features: Any
    labels: Any
    ridge: float

    def value(self, x: Any) -> float:
        return float(np.logaddexp(0, -self.labels * (self.features @ x)).sum() + self.ridge / 2 * x @ x)

    def gradient(self, x: Any) -> Any:
        margin = self.labels * (self.features @ x)
        return -(self.labels * np.exp(-np.logaddexp(0, margin))) @ self.features + self.ridge * x

    def smoothness(self) -> float:
        return float(np.linalg.eigvalsh(self.features.T @ self.features)[-1] / 4 + self.ridge)

    def expression(self, x: Any) -> Any:
        import cvxpy

        margins = cvxpy.multiply(self.labels, self.features @ x)
        return cvxpy.sum(cvxpy.logistic(-margins)) + self.ridge / 2 * cvxpy.sum_squares(x)


# --- minimisers -------------------------------------------------------------------------------------------


def best(total: Total, region: Any, constraints: Sequence[Any] = ()) -> Any:
    """argmin over the region, and over what the constraints leave of it. Each has an `expression` for CVXPY."""
    if constraints:
        found = best_at_a_price(total, region, *constraints) if len(constraints) == 1 else None
        return best_by_cvxpy(total, region, constraints) if found is None else found
    if isinstance(total, Quadratic):
        scale = total.curvature[0, 0]
        if not total.curvature.any():
            return lowest(region, total.slope)
        if np.array_equal(total.curvature, scale * np.eye(len(total.slope))):
            nearest = np.empty(len(total.slope))
            project(nearest, -total.slope / scale, region)
            return nearest
        if region.region == ANYWHERE:
            return -np.linalg.lstsq(total.curvature, total.slope, rcond=None)[0]
        if region.region == BALL:
            return best_in_ball(total, region.radius)
    if region.region == ANYWHERE:
        return best_by_cvxpy(total, region, ())
    return best_by_descent(total, region)


def best_at_a_price(total: Total, region: Any, constraint: Any) -> Any:
    """A constraint that binds has a price, at which argmin of losses + price * constraint just meets it.

    None if that has no closed form, is not continuous in the price, or no price is high enough.
    """
    if not isinstance(total, Quadratic) or region.region not in (ANYWHERE, BALL):
        return None
    sizes = np.linalg.eigvalsh(total.curvature)
    if sizes[0] <= 1e-9 * sizes[-1]:
        return None

    def at(price: float) -> Any:
        return best(constraint.priced(total, price), region)

    if constraint.value(at(0.0)) <= 0:
        return at(0.0)
    low, high = 0.0, float(sizes[-1])
    while constraint.value(at(high)) > 0:
        low, high = high, 2 * high
        if high > 1e12 * sizes[-1]:
            return None
    for _ in range(100):  # halved until nothing is between them
        middle = (low + high) / 2
        low, high = (middle, high) if constraint.value(at(middle)) > 0 else (low, middle)
    return at(high)


def best_in_ball(total: Quadratic, radius: float) -> Any:
    """A convex quadratic on a ball: (curvature + pull) x = -slope, with the pull that keeps x on the sphere."""
    from scipy.optimize import brentq

    sizes, axes = np.linalg.eigh(total.curvature)
    along = axes.T @ total.slope
    flat = sizes <= 1e-14 * sizes[-1]
    if np.abs(along[flat]).sum() <= 1e-14 * np.linalg.norm(along):
        inner = np.where(flat, 0.0, along / np.where(flat, 1.0, sizes))
        if np.linalg.norm(inner) <= radius:
            return -axes @ inner
    sizes = np.maximum(sizes, 0.0)

    def outside(pull: float) -> float:
        return float(np.linalg.norm(along / (sizes + pull)) - radius)

    most = float(np.linalg.norm(along) / radius)
    pull = brentq(outside, most * 1e-16, most * (1 + 1e-12), xtol=most * 1e-16, rtol=1e-15)
    return -axes @ (along / (sizes + pull))


def best_by_descent(total: Total, region: Any, precision: float = 1e-9, limit: int = 20_000) -> Any:
    """Accelerated projected gradient (Beck, Teboulle, SIAM J. Imaging Sciences 2, 2009), until certified.

    No point of the region is better than x by more than <gradient, x - lowest(gradient)>, by convexity. It stops
    where that is below `precision` of the value; CVXPY takes over where it does not get there.
    """
    step = 1 / max(total.smoothness(), np.finfo(float).tiny)
    x = np.empty(len(region.low))
    project(x, np.zeros(x.size), region)
    ahead, pace = x.copy(), 1.0
    for turn in range(limit):
        new = np.empty(x.size)
        project(new, ahead - step * total.gradient(ahead), region)
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        if (ahead - new) @ (new - x) > 0:  # it overshot: start the acceleration again
            faster, pace = 1.0, 1.0
        ahead, x, pace = new + (pace - 1) / faster * (new - x), new, faster
        if turn % 10 == 9:
            slope = total.gradient(x)
            if slope @ (x - lowest(region, slope)) <= precision * max(1.0, abs(total.value(x))):
                return x
    return best_by_cvxpy(total, region, ())


def best_by_cvxpy(total: Total, region: Any, constraints: Sequence[Any]) -> Any:
    """argmin by a solver; refuses constraints that leave nothing."""
    try:
        import cvxpy
    except ImportError as reason:
        raise Missing("This comparator needs CVXPY: pip install archipel[exact].") from reason
    x = cvxpy.Variable(len(region.low))
    scale = 1 / max(1.0, total.smoothness(), float(np.linalg.norm(total.gradient(np.zeros(x.size)))))
    limits = [constraint.expression(x) <= 0 for constraint in constraints]
    problem = cvxpy.Problem(cvxpy.Minimize(scale * total.expression(x)), limits + in_cvxpy(x, region))
    problem.solve(solver="CLARABEL")
    if x.value is None:
        raise BadInput("constraints", problem.status, "constraints that some point of the region satisfies")
    return np.asarray(x.value)
