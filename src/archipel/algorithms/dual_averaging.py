"""Private dual averaging among peers with one-way trust: mirror descent that mixes gradients, not models.

The sound form of `mirror` projects every peer's noisy step before it is mixed. At the edge of a region, where what is
best often lies, that turns noise into a bias inwards which no mixing takes away again. Here the noised gradients
themselves are summed and pushed, and only what is played is projected: follow the regularised leader, which is also
what the dissertation's appendix A proves its bound for (Nesterov, Math. Programming 2009; Duchi, Agarwal, Wainwright,
IEEE TAC 2012; pushed on directed graphs by Tsianos, Lawlor, Rabbat, CDC 2012). In round t

    ghat_u = clip(gradient at y_u) + noise                                  as in `mirror`, paid for in the same way
    s_u'   = sum_v W_uv (s_v + ghat_v),    w_u' = sum_v W_uv w_v            push-sum
    y_u'   = argmin over X of <s_u' / w_u', x> + R(x) / step_{t+1}

- s_u / w_u tends to the mean over clients of the sum of all gradients, in which the noise of n clients has a variance
  n times smaller: so does the step that fits, step_t = width / (sqrt(G^2 + E||noise||_*^2 / n) sqrt(t)), where width^2
  is the most that B(x || start) can be.
- For entropy G is half the range of a gradient's components (what they have in common moves nothing), and of the noise
  only the variance of one component counts: averaged over it, sum_j x_j exp(-step ghat_j) gains a factor that is the
  same for all j.
- A client's share of the regret (2.6) is at most `theory.mirror.sound_averaged`.

Sums do not forget: where what is best moves, mirror descent follows it, and this does not.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from archipel.algorithms import mirror
from archipel.algorithms.mirror import ENTROPY, from_dual
from archipel.algorithms.mirror_descent import MirrorDescent
from archipel.algorithms.mirror_nodes import LOST, Settings, hear, look, play, step_of, used
from archipel.algorithms.mirror_privacy import Price, priced, typical_scale
from archipel.errors import BadInput
from archipel.node import add_exactly, assign, exact
from archipel.privacy.noise import GAUSSIAN
from archipel.regions import BALL, SIMPLEX
from archipel.theory.mirror import sound_averaged
from archipel.topology.push_sum import disagreement
from archipel.turns import Setup

FEW = 50  # clients for whom a bound is computed


@exact
def point(me: Any, settings: Any, moment: Any) -> None:
    """The model of the next round, from the sum of gradients. R is least at the start, the point nearest to zero."""
    step = step_of(settings, moment.round + 1) / me.weight[0]
    for j in range(me.model.shape[0]):
        me.gradient[j] = min(max(0.0, settings.low[j]), settings.high[j]) - step * me.moved[j]
    from_dual(me.model, me.gradient, settings)


@exact
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """Play, add the noised gradient, say the sum. Who cannot pay passes on what it heard; who is away learns alone."""
    play(me, data, settings, moment)
    me.overdrawn[0] += used(me, data, settings, moment)
    if look(me, data, settings, moment) >= 0.0:
        add_exactly(me.moved, 1.0, me.gradient)
    if not moment.present:
        point(me, settings, moment)
        return False
    assign(said.total, me.moved)
    said.weight[0] = me.weight[0]
    return True


@exact
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """Push-sum of sums and weights. Where all weight was lost on the way, it begins anew with the mean it had."""
    weight = inbox.weight[0] + moment.kept * me.weight[0]
    if weight < LOST:
        for j in range(me.moved.shape[0]):
            me.moved[j] /= me.weight[0]
        me.weight[0] = 1.0
    else:
        for j in range(me.moved.shape[0]):
            me.moved[j] = inbox.total[j] + moment.kept * me.moved[j]
        me.weight[0] = weight
    point(me, settings, moment)


@dataclass(frozen=True)
class DualAveraging(MirrorDescent):
    """Peers push sums of clipped, noised gradients: the network averages the noise before anything is projected.

    For streams whose best model stays where it is; regions, maps and steps are those of mirror descent. `gradient` is,
    for the entropy map, half the range of a gradient's components.
    """

    nodes: ClassVar = (act, hear, merge)

    def width(self, mapped: mirror.MapSettings) -> float:
        """The root of the most that B(x || start) can be."""
        if mapped.geometry == ENTROPY:
            return math.sqrt(float(mapped.radius) * math.log(max(len(mapped.low), 2)))
        return farthest(mapped) / math.sqrt(2)

    def length(self, setup: Setup, price: Price, mapped: Any, slope: float, spread: float) -> float:
        """sqrt(G^2 + E||noise||^2 / n): how long the mean of all clients' noised gradients is."""
        self.check_bounded(mapped)
        square = typical_scale(price.noise) ** 2 * (1 if price.noise.law == GAUSSIAN else 2) / setup.task.clients
        longest = self.longest(setup, mapped)
        if mapped.geometry == ENTROPY:
            return math.sqrt((longest**2 + square) * float(mapped.radius))
        return math.sqrt(longest**2 + setup.task.size * square)

    def longest(self, setup: Setup, mapped: Any) -> float:
        """G: the bound of a gradient without its noise; for entropy, half of how far apart its components can be."""
        policy = setup.privacy
        if policy is None or policy.clip == math.inf:
            return self.gradient
        if mapped.geometry == ENTROPY:
            return policy.clip / (2 if policy.order == 1 else math.sqrt(2))
        return policy.clip

    def bound(self, setup: Setup, settings: Settings, steps: Any) -> dict[str, float]:
        """The bound of the static regret (2.6); of few clients, since the graph's disagreement has to be found."""
        if setup.task.clients > FEW:
            return {}
        drawn, longest = typical_scale(priced(setup).noise), self.longest(setup, settings)
        drawn *= math.sqrt((1 if settings.law == GAUSSIAN else 2) * setup.task.size)  # its L2 norm, above all others
        apart = disagreement(setup.graph.across, len(steps)) @ [drawn, longest]
        apart = np.concatenate([[0.0], apart[:-1]]) * float(settings.radius if settings.geometry == ENTROPY else 1.0)
        return {"regret_bound": float(sound_averaged(steps, settings.width**2, settings.length, longest, apart)[-1])}

    def check_numbers(self, setup: Setup) -> None:
        """Refuse what makes no sense, and what belongs to mirror descent alone."""
        super().check_numbers(setup)
        if self.mixing != "push-sum":
            raise BadInput("algorithm.mixing", self.mixing, '"push-sum": sums of gradients are pushed')
        if self.path > 0:
            right = "0: sums do not forget; where what is best moves, use mirror-descent"
            raise BadInput("algorithm.path", self.path, right)


def farthest(mapped: mirror.MapSettings) -> float:
    """How far the region reaches from the start, Euclidean."""
    size = len(mapped.low)
    if mapped.region == BALL:
        return float(mapped.radius)
    if mapped.region == SIMPLEX:
        return float(mapped.radius * (1 - mapped.floor) * math.sqrt(1 - 1 / size))
    first = mirror.start(mapped)
    return float(np.linalg.norm(np.maximum(mapped.high - first, first - mapped.low)))
