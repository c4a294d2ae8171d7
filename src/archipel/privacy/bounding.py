"""Bounds that hold by construction: what the papers' "bounded gradient" takes.

Every privacy theorem of the papers assumes ||gradient|| <= c1. Two ways make it true: clip each example's
gradient (`clip_l2`, `clip_l1`), or bound features, target and model (`clip_l2`, `clip_target`,
`project_ball`) and take the loss's bound under these (`gradient_bound`). Where the user turns both off, the
guarantee is `assumed`.

An infinite bound is no bound and changes nothing. After a finite one the norm is at most the bound, also in
floating point (the factor leaves room for rounding), and a vector with NaN or infinity in it becomes zero: it
has no norm.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput, did_you_mean
from archipel.node import fast, kernel

# --- verbs --------------------------------------------------------------------------------------------------


def norm_l2(vector: Any) -> Any:
    """The Euclidean norm, summed in double precision."""
    wide = vector.astype(np.float64)
    return math.sqrt(wide @ wide)


@fast(norm_l2)
def norm_l2_loop(vector: Any) -> Any:
    total = 0.0
    for j in range(vector.shape[0]):
        value = np.float64(vector[j])
        total += value * value
    return math.sqrt(total)


def norm_l1(vector: Any) -> Any:
    """The sum of absolute values, in double precision."""
    return float(np.abs(vector).sum(dtype=np.float64))


@fast(norm_l1)
def norm_l1_loop(vector: Any) -> Any:
    total = 0.0
    for j in range(vector.shape[0]):
        total += abs(np.float64(vector[j]))
    return total


def shrink(vector: Any, factor: Any) -> None:
    """vector *= factor, in place."""
    vector *= vector.dtype.type(factor)


@fast(shrink)
def shrink_loop(vector: Any, factor: Any) -> None:
    for j in range(vector.shape[0]):
        vector[j] *= factor


# --- clipping -----------------------------------------------------------------------------------------------


@kernel
def rounding(vector: Any) -> Any:
    """What rounding can add to a norm, relative to it, and more."""
    single = 2.4e-7 if vector.itemsize == 4 else 0.0
    return single + 2.3e-16 * (8 + vector.shape[0])


@kernel
def shrink_to(vector: Any, norm: Any, bound: Any) -> Any:
    """Scale a vector of this norm to at most the bound; returns the factor."""
    if bound == np.inf or norm <= bound:
        return 1.0
    if not norm < np.inf:
        for j in range(vector.shape[0]):
            vector[j] = 0
        return 0.0
    factor = bound / norm * (1.0 - rounding(vector))
    shrink(vector, factor)
    return factor


@kernel
def clip_l2(vector: Any, bound: Any) -> Any:
    """Scale to L2 norm at most `bound`, in place: clipping of an example for Gaussian noise; the factor."""
    return shrink_to(vector, norm_l2(vector), bound)


@kernel
def clip_l1(vector: Any, bound: Any) -> Any:
    """Scale to L1 norm at most `bound`, in place: clipping of an example for Laplace noise; the factor.

    Gradients are scaled, not projected: scaling keeps the direction, and a projection would set small
    components to zero.
    """
    return shrink_to(vector, norm_l1(vector), bound)


@kernel
def project_ball(model: Any, radius: Any) -> Any:
    """The nearest model within the L2 ball: for the ball, scaling is the projection. Returns the factor."""
    return shrink_to(model, norm_l2(model), radius)


@kernel
def clip_target(target: Any, bound: Any) -> Any:
    """The target within [-bound, bound]; 0 where it is NaN."""
    if bound == np.inf:
        return target
    if not abs(target) >= 0:
        return 0.0 * bound
    return min(max(target, -bound), bound)


# --- what a loss's gradient is bounded by -------------------------------------------------------------------


@dataclass(frozen=True)
class Bounds(Checked):
    """||x||_2 <= features, |y| <= target, ||w||_2 <= radius; infinite where nothing is enforced.

    The radius must hold for the model *at which the gradient is taken*. In zCDP-NFL that is the noised w~, so
    it is projected after the noise (which costs no privacy), not only before it.
    """

    section = "privacy.bounds"

    features: float = key(math.inf, "the largest L2 norm of an example's features", above=0, noun="a bound")
    target: float = key(math.inf, "the largest size of an example's target", above=0, noun="a bound")
    radius: float = key(math.inf, "the largest L2 norm of a model", above=0, noun="a bound")

    @property
    def residual(self) -> float:
        """|x w - y| <= features * radius + target."""
        return self.features * self.radius + self.target


def slope_squared(bounds: Bounds) -> float:
    """(x w - y)^2: |slope| = 2 |x w - y|. Infinite unless features, target and model are all bounded."""
    return 2 * bounds.residual


def slope_absolute(bounds: Bounds) -> float:
    """|x w - y|: any subgradient's slope is in [-1, 1]."""
    return 1.0


def slope_logistic(bounds: Bounds) -> float:
    """log(1 + exp(-y x w)), y in {-1, 1}: 1 / (1 + exp(y x w)), below 1; less where the model is bounded."""
    margin = bounds.features * bounds.radius
    return 1 / (1 + math.exp(-margin)) if margin < math.inf else 1.0


def slope_huber(bounds: Bounds, threshold: float = 1.0) -> float:
    """r^2 / 2 for |r| <= threshold, linear beyond, r = x w - y: the slope is r, clipped."""
    return min(threshold, bounds.residual)


def slope_cross_entropy(bounds: Bounds) -> float:
    """Softmax over classes: the gradient is (p - e_y) x^T, and ||p - e_y||_2 < sqrt(2)."""
    return math.sqrt(2)


SLOPES = {
    "squared": slope_squared,
    "absolute": slope_absolute,
    "logistic": slope_logistic,
    "huber": slope_huber,
    "cross-entropy": slope_cross_entropy,
}


def gradient_bound(loss: str, bounds: Bounds) -> float:
    """c1 of assumption 1: the largest L2 norm of one example's gradient, slope times ||x||, or infinity.

    >>> gradient_bound("squared", Bounds(features=1, target=1, radius=2))
    6.0
    >>> gradient_bound("squared", Bounds(features=1))
    inf
    """
    if loss not in SLOPES:
        raise BadInput("problem.loss", loss, did_you_mean(loss, SLOPES))
    return float(SLOPES[loss](bounds) * bounds.features)
