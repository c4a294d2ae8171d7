"""The sets that a model may be confined to: a ball, a box, the simplex, or none; exact projections.

A `Region` is data; `PROJECTIONS` has the code of each, so that a federation compiles only its own. The functions only
read the fields that they need: settings of an algorithm with fields of these names serve as well.
"""

from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import assign, exact, fast

ANYWHERE, BALL, BOX, SIMPLEX = 0, 1, 2, 3


class Region(NamedTuple):
    """A closed convex set of models."""

    region: Any  # ANYWHERE, BALL, BOX or SIMPLEX
    radius: Any  # of the ball around zero; of the simplex, what the components add up to
    low: Any  # the box, component by component
    high: Any
    floor: Any  # of the simplex: no component below floor * radius / size; 0 is the whole simplex


def anywhere(size: int) -> Region:
    """All of R^size."""
    return Region(ANYWHERE, np.inf, np.full(size, -np.inf), np.full(size, np.inf), 0.0)


def ball(size: int, radius: float = 1.0) -> Region:
    """||x||_2 <= radius."""
    if not (radius > 0 and np.isfinite(radius)):
        raise BadInput("region.radius", radius, "a positive number")
    return Region(BALL, float(radius), np.full(size, -float(radius)), np.full(size, float(radius)), 0.0)


def box(low: Any, high: Any) -> Region:
    """low <= x <= high, component by component."""
    low, high = (np.ascontiguousarray(side, dtype=float) for side in np.broadcast_arrays(low, high))
    if low.ndim != 1 or not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise BadInput("region.low", low, "one finite number a component")
    if (low > high).any():
        raise BadInput("region.high", high, "no component below region.low")
    return Region(BOX, float(np.maximum(abs(low), abs(high)).max()), low, high, 0.0)


def simplex(size: int, total: float = 1.0, floor: float = 0.0) -> Region:
    """x >= floor * total / size, and the components add up to total."""
    if not (total > 0 and np.isfinite(total)):
        raise BadInput("region.total", total, "a positive number")
    if not 0 <= floor < 1:
        raise BadInput("region.floor", floor, "a share from 0 to below 1")
    least = np.full(size, floor * total / size)
    return Region(SIMPLEX, float(total), least, np.full(size, float(total)), float(floor))


# --- Euclidean projections --------------------------------------------------------------------------------


def into_ball(out: Any, x: Any, radius: Any) -> None:
    """The nearest point with ||out||_2 <= radius. `out` may be `x`, here and below."""
    length = np.sqrt(x @ x)
    out[:] = x * (radius / length) if length > radius else x


@fast(into_ball)
@exact
def into_ball_loop(out: Any, x: Any, radius: Any) -> None:
    real = out.dtype.type
    square = real(0)
    for j in range(x.shape[0]):
        square += x[j] * x[j]
    length = np.sqrt(square)
    shrink = real(radius / length) if length > radius else real(1)
    for j in range(x.shape[0]):
        out[j] = x[j] * shrink


def into_box(out: Any, x: Any, low: Any, high: Any) -> None:
    """The nearest point with low <= out <= high."""
    out[:] = np.minimum(np.maximum(x, low), high)


@fast(into_box)
def into_box_loop(out: Any, x: Any, low: Any, high: Any) -> None:
    for j in range(x.shape[0]):
        out[j] = min(max(x[j], low[j]), high[j])


def onto_simplex(out: Any, x: Any, total: Any, floor: Any) -> None:
    """The nearest point of the simplex: max(x - shift, 0) above the floor, with the right total.

    Sorted, those that stay positive come first (Held, Wolfe, Crowder, Mathematical Programming 6, 1974).
    """
    least = floor * total / x.shape[0]
    rest = total - least * x.shape[0]
    falling = np.sort(x)[::-1]
    shifts = (np.cumsum(falling) - rest) / np.arange(1, x.shape[0] + 1)
    kept = np.count_nonzero(falling > shifts)
    out[:] = np.maximum(x - shifts[kept - 1], 0) + least


@fast(onto_simplex)
@exact
def onto_simplex_loop(out: Any, x: Any, total: Any, floor: Any) -> None:
    """Without sorting: drop what is below the shift until nothing drops (Michelot, JOTA 50, 1986); exact."""
    size = x.shape[0]
    least = floor * total / size
    rest = total - least * size
    mean = 0.0
    for j in range(size):
        mean += x[j]
    shift, kept = (mean - rest) / size, size
    while True:
        above, count = 0.0, 0
        for j in range(size):
            if x[j] > shift:
                above += x[j]
                count += 1
        if count == kept or count == 0:
            break
        shift, kept = (above - rest) / count, count
    for j in range(size):
        out[j] = max(x[j] - shift, 0.0) + least


@exact
def project_anywhere(out: Any, x: Any, region: Any) -> None:
    assign(out, x)


@exact
def project_ball(out: Any, x: Any, region: Any) -> None:
    into_ball(out, x, region.radius)


@exact
def project_box(out: Any, x: Any, region: Any) -> None:
    into_box(out, x, region.low, region.high)


@exact
def project_simplex(out: Any, x: Any, region: Any) -> None:
    onto_simplex(out, x, region.radius, region.floor)


PROJECTIONS = {ANYWHERE: project_anywhere, BALL: project_ball, BOX: project_box, SIMPLEX: project_simplex}


def project(out: Any, x: Any, region: Any) -> None:
    """The nearest point of the region, in the Euclidean norm. Kernels take theirs from `PROJECTIONS`."""
    PROJECTIONS[int(region.region)](out, x, region)


def projected(points: Any, region: Any) -> Any:
    """`project` of many points at once."""
    if region.region == BALL:
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        return points * np.minimum(1.0, region.radius / np.maximum(lengths, 1e-300))
    if region.region == BOX:
        return np.clip(points, region.low, region.high)
    if region.region == SIMPLEX:
        size = points.shape[1]
        least = region.floor * region.radius / size
        rest = region.radius * (1 - region.floor)
        falling = -np.sort(-points, axis=1)
        shifts = (np.cumsum(falling, 1) - rest) / np.arange(1, size + 1)
        kept = np.count_nonzero(falling > shifts, axis=1) - 1
        return np.maximum(points - np.take_along_axis(shifts, kept[:, None], 1), 0) + least
    return points


# --- what a region's shape says ---------------------------------------------------------------------------


def lowest(region: Any, slope: Any) -> Any:
    """The point of the region where slope @ x is smallest."""
    slope = np.asarray(slope, dtype=float)
    if region.region == BALL:
        length = np.linalg.norm(slope)
        return -slope * (region.radius / length) if length > 0 else np.zeros_like(slope)
    if region.region == BOX:
        return np.where(slope > 0, region.low, region.high)
    if region.region == SIMPLEX:
        point = np.array(region.low, dtype=float)
        point[np.argmin(slope)] += region.radius * (1 - region.floor)
        return point
    raise BadInput("region", "anywhere", "a bounded region: a ball, a box or the simplex")


def diameter(region: Any) -> float:
    """The largest Euclidean distance between two points of the region."""
    if region.region == BALL:
        return 2 * float(region.radius)
    if region.region == BOX:
        return float(np.linalg.norm(region.high - region.low))
    if region.region == SIMPLEX:
        return float(np.sqrt(2) * region.radius * (1 - region.floor)) if len(region.low) > 1 else 0.0
    return float("inf")


def in_cvxpy(x: Any, region: Any) -> list[Any]:
    """The region as constraints on a variable of CVXPY."""
    import cvxpy

    if region.region == BALL:
        return [cvxpy.norm(x) <= region.radius]
    if region.region == BOX:
        return [x >= region.low, x <= region.high]
    if region.region == SIMPLEX:
        return [x >= region.low, cvxpy.sum(x) == region.radius]
    return []
