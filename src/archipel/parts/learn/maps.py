"""Mirror maps: how a model takes a step in a geometry and stays in its region.

The dissertation's chapters 2 to 5 step by (5.12): x' = argmin over X of <g, x> + B(x || y) / step, where
B(x || y) = R(x) - R(y) - <grad R(y), x - y> is the Bregman divergence of a map R, (5.1). Here R is

- Euclidean, ||x||^2 / 2 on everything, a ball, a box or the simplex: a gradient step, a projection, (3.3);
- entropy, sum x log x on the simplex: exponentiated gradient, (3.4).

(The dissertation gives ||x - y||^2 for the first divergence; by its (5.1) it is half of that, as here.)

**The sound private form.** Client u holds y_u and a weight w_u, at first 1. In round t, from 1,

    g     = clip(gradient at y_u of the loss on this round's sample)     ||g||_1 <= C, or ||g||_2 <= C
    ghat  = g + noise                                       Laplace(2 C / eps), or N(0, (2 C s)^2)
    z_u   = argmin over X of <ghat, x> + (w_u / step_t) B(x || y_u)      a mirror step of step_t / w_u
    say   (w_u z_u, w_u), times the sender's weights W_vu, which with its own share sum to one
    w_u'  = sum_v W_uv w_v,    y_u' = sum_v W_uv w_v z_v / w_u'          push-sum

- Private: replacing the one sample moves g by at most 2 C in that norm, so each release is eps-private (or
  Gaussian with multiplier s), and all that follows is computed from releases. A sample is used in one
  round only: eps holds for one sample and the whole run (event level); for a client, T rounds compose.
- Unbiased: E ghat = g. Nothing is truncated or rescaled after the noise. (Clipping may bias g.)
- Exact on unbalanced graphs: B is convex in its second argument, so that sum_u w_u B(x || y_u) does not grow
  by mixing, whatever the graph of the round; with sum_u w_u = V the steps telescope to

      sum_t sum_u <g_u, y_u - x>  <=  V max B / step_T  +  sum_t step_t sum_u E||ghat_u||_*^2 / (2 w_u).

  Without the division by w_u the losses of well-heard clients would count more: another fixed point.
- The step that fits: step_t = width / (sqrt(G^2 + E||noise||_*^2) sqrt(t)), width^2 = max B, has regret
  O(width sqrt((G^2 + noise^2) T)) a client; times sqrt(1 + path length) where the comparator moves.

`theory.mirror.sound_static` and `sound_dynamic` compute these bounds. Entropy needs a floor under the
components where the comparator moves: max B is infinite without it, log(size / floor) with it.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import add_exactly, assign, exact, fast
from archipel.problems.regions import ANYWHERE, BALL, BOX, PROJECTIONS, SIMPLEX, Region, diameter

EUCLIDEAN, ENTROPY = 0, 1


class MapSettings(NamedTuple):
    """A mirror map as data: a geometry and a `Region`. Settings with fields of these names serve as well."""

    geometry: Any  # EUCLIDEAN or ENTROPY
    region: Any
    radius: Any
    low: Any
    high: Any
    floor: Any


class MirrorMap(NamedTuple):
    """A mirror map as code: node functions, see `map_of`."""

    step: Callable[..., None]  # (out, x, gradient, step, settings)
    from_dual: Callable[..., None]  # (out, theta, settings): argmin over X of R(x) - <theta, x>


def euclidean(region: Region) -> MapSettings:
    """R = ||x||^2 / 2 on a region."""
    return MapSettings(EUCLIDEAN, *region)


def entropy(region: Region) -> MapSettings:
    """R = sum x log x, on the simplex."""
    if region.region != SIMPLEX:
        raise BadInput("algorithm.map", "entropy", '"euclidean" on this region; entropy needs the simplex')
    return MapSettings(ENTROPY, *region)


# --- the arithmetic of entropy ----------------------------------------------------------------------------


def exponentiated(out: Any, x: Any, gradient: Any, step: Any) -> None:
    """x exp(-step gradient), but for a common factor: the largest is one. What is zero stays zero."""
    least = gradient[x > 0].min()
    out[:] = x * np.exp(-step * np.maximum(gradient - least, 0.0))
    out /= out.max()


@fast(exponentiated)
@exact
def exponentiated_loop(out: Any, x: Any, gradient: Any, step: Any) -> None:
    least, most = math.inf, 0.0
    for j in range(gradient.shape[0]):
        if x[j] > 0.0:
            least = min(least, gradient[j])
    for j in range(x.shape[0]):
        out[j] = x[j] * math.exp(-step * max(gradient[j] - least, 0.0))
        most = max(most, out[j])
    for j in range(x.shape[0]):
        out[j] /= most


def normalise(out: Any, x: Any, total: Any, floor: Any) -> None:
    """The point of the simplex nearest to x >= 0 in relative entropy: max(scale x, least)."""
    least = floor * total / x.shape[0]
    scale = total / x.sum()
    low = x * scale < least
    while low.any():
        scale = (total - np.count_nonzero(low) * least) / x[~low].sum()
        lower = x * scale < least
        if (lower == low).all():
            break
        low = lower
    out[:] = np.maximum(x * scale, least)


@fast(normalise)
@exact
def normalise_loop(out: Any, x: Any, total: Any, floor: Any) -> None:
    size = x.shape[0]
    least = floor * total / size
    mass = 0.0
    for j in range(size):
        mass += x[j]
    scale, raised = total / mass, 0
    while least > 0.0:
        mass, count = 0.0, 0
        for j in range(size):
            if x[j] * scale < least:
                count += 1
            else:
                mass += x[j]
        if count == raised:
            break
        scale, raised = (total - count * least) / mass, count
    for j in range(size):
        out[j] = max(x[j] * scale, least)


def softmax(out: Any, theta: Any) -> None:
    """exp(theta), but for a common factor that keeps it from overflowing."""
    out[:] = np.exp(theta - theta.max())


@fast(softmax)
def softmax_loop(out: Any, theta: Any) -> None:
    most = theta[0]
    for j in range(theta.shape[0]):
        most = max(most, theta[j])
    for j in range(theta.shape[0]):
        out[j] = math.exp(theta[j] - most)


# --- the standard maps ------------------------------------------------------------------------------------


@exact
def entropy_step(out: Any, x: Any, gradient: Any, step: Any, settings: Any) -> None:
    """(3.4). `out` may be `x`."""
    exponentiated(out, x, gradient, step)
    normalise(out, out, settings.radius, settings.floor)


@exact
def entropy_from_dual(out: Any, theta: Any, settings: Any) -> None:
    softmax(out, theta)
    normalise(out, out, settings.radius, settings.floor)


@cache
def map_code(geometry: int, region: int) -> MirrorMap:
    """The node functions of a geometry on a region: a federation compiles only its own."""
    if geometry == ENTROPY:
        return MirrorMap(entropy_step, entropy_from_dual)
    project = PROJECTIONS[region]

    @exact
    def euclidean_step(out: Any, x: Any, gradient: Any, step: Any, settings: Any) -> None:
        """(3.3). `out` may be `x`."""
        assign(out, x)
        add_exactly(out, -step, gradient)
        project(out, out, settings)

    return MirrorMap(euclidean_step, project)


@cache
def returning(region: int) -> Any:
    project = PROJECTIONS[region]

    @exact
    def back(me: Any, settings: Any) -> None:
        """The model, projected into the region of the map."""
        project(me.model, me.model, settings.learn.map)

    return back


NAMES = {BALL: "ball", BOX: "box", SIMPLEX: "simplex"}


def kept(settings: Any) -> dict[str, Any]:
    """What a learn part says of the region that its models stay in: its name, and the way back into it.

    Entropy has none: what is zero stays zero, and where a component is below it there is no step at all.
    """
    if settings.region == ANYWHERE:
        return {}
    way = returning(int(settings.region)) if settings.geometry == EUCLIDEAN else None
    return {"region": NAMES[int(settings.region)], "project": way}


def map_of(settings: Any) -> MirrorMap:
    """The code of a map that is given as data."""
    return map_code(int(settings.geometry), int(settings.region))


def from_dual(out: Any, theta: Any, settings: Any) -> None:
    """argmin over X of B(x || y) where grad R(y) = theta: step 13 of chapter 3. `out` may be `theta`."""
    map_of(settings).from_dual(out, theta, settings)


def start(settings: Any) -> Any:
    """Where all begin, argmin over X of R: zero or the point nearest to it; on the simplex, the middle."""
    origin = np.zeros(len(settings.low))
    from_dual(origin, np.zeros_like(origin), settings)
    return origin


# --- the step that fits -----------------------------------------------------------------------------------


class Pace(NamedTuple):
    """How long steps are: the one that fits, or one's own."""

    width: Any
    length: Any
    pace: Any
    drift: Any
    step: Any
    decay: Any


@exact
def own_step(pace: Any, round: Any) -> Any:
    """step / t^decay; `round` counts from 0."""
    return pace.step / (round + 1.0) ** pace.decay


@exact
def fitted_step(pace: Any, round: Any) -> Any:
    """width sqrt(1 + pace t^drift) / (length sqrt(t)), with t from 1; `round` counts from 0.

    `length` is `noisy_length`. A comparator that stays has pace 0; one whose path is as long as P t^a after t
    rounds has drift a and pace `pace_of(P)`: the larger it is, the larger the steps have to stay.
    """
    t = round + 1.0
    return pace.width * math.sqrt((1.0 + pace.pace * t**pace.drift) / t) / pace.length


def pace_of(path: float, settings: Any) -> float:
    """How much a path weighs beside max B: its length times the Lipschitz constant of B, over max B.

    The length is in the norm of the map: L2 for Euclidean, L1 for entropy.
    """
    if settings.geometry == ENTROPY:
        return path / float(settings.radius)
    return 2 * path / diameter(settings)


def width(settings: Any) -> float:
    """sqrt(max B(x || y)) over the region; of entropy without a floor, B from the start, log(size)."""
    if settings.geometry == ENTROPY:
        size, total = len(settings.low), float(settings.radius)
        if settings.floor == 0:
            return math.sqrt(total * math.log(max(size, 2)))
        spread = total * (1 - settings.floor)  # B is largest from corner to corner
        return math.sqrt(spread * math.log1p(spread * size / (settings.floor * total)))
    return diameter(settings) / math.sqrt(2)


def noisy_length(gradient: float, noise: float, size: int, kind: str, settings: Any) -> float:
    """sqrt(G^2 + E||noise||_*^2) in the dual norm of the map: Euclidean L2, entropy the largest component.

    `gradient` bounds the gradient in that norm (an L1 or L2 clip does); `noise` is the scale of Laplace noise
    or the deviation of Gaussian noise, per component, 0 for none.
    """
    if kind not in ("laplace", "gaussian"):
        raise BadInput("privacy.noise", kind, '"laplace" or "gaussian"')
    if settings.geometry != ENTROPY:
        square = (2 if kind == "laplace" else 1) * size * noise**2
        return math.sqrt(gradient**2 + square)
    if kind == "laplace":  # |noise| is exponential: the square of the largest of `size` has this mean
        ranks = np.arange(1, size + 1)
        square = noise**2 * (np.sum(1 / ranks) ** 2 + np.sum(1 / ranks**2))
    else:  # the mean of the largest square is the integral of the chance that it exceeds u^2
        grid = np.linspace(0, 12, 2401)
        below = np.array([math.erf(u / math.sqrt(2)) for u in grid]) ** size
        square = noise**2 * np.trapezoid(2 * grid * (1 - below), grid)
    return math.sqrt((gradient**2 + float(square)) * float(settings.radius))
