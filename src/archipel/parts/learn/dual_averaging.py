"""Private dual averaging: mirror descent that mixes gradients, not models.

The sound form of `maps` projects every node's noisy step before it is mixed. At the edge of a region, where what is
best often lies, that turns noise into a bias inwards which no mixing takes away again. Here the noised gradients
themselves are summed and pushed, and only what is played is projected: follow the regularised leader, which is also
what the dissertation's appendix A proves its bound for (Nesterov, Math. Programming 2009; Duchi, Agarwal, Wainwright,
IEEE TAC 2012; pushed on directed graphs by Tsianos, Lawlor, Rabbat, CDC 2012). In round t, with m_u = s_u / w_u the
mean over clients, as u knows it, of the sum of all gradients,

    ghat_u = clip(gradient at y_u) + noise                                  as in `mirror`, paid for in the same way
    m_u'   = sum_v W_uv w_v (m_v + ghat_v / w_v) / w_u',    w_u' = sum_v W_uv w_v          push-sum
    y_u'   = argmin over X of <m_u', x> + R(x) / step_{t+1}

- In m_u the noise of n clients has a variance n times smaller: so does the step that fits, step_t = width / (sqrt(G^2 +
  E||noise||_*^2 / n) sqrt(t)), where width^2 is the most that B(x || start) can be.
- For entropy G is half the range of a gradient's components (what they have in common moves nothing), and of the noise
  only the variance of one component counts: averaged over it, sum_j x_j exp(-step ghat_j) gains a factor that is the
  same for all j.
- A client's share of the regret (2.6) is at most `theory.mirror.sound_averaged`.

With a server, it keeps m, tells it, and averages what clients made of it, m + ghat_u; servers average theirs with their
neighbours'. With everyone there and one server that is what a complete graph with equal shares gives. Sums do not
forget: where what is best moves, mirror descent follows it, and this does not.
"""

import math
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import add_exactly, exact, kernel
from archipel.parts import LearnPiece, Node, ProtectPiece
from archipel.parts.learn import maps
from archipel.parts.learn.constraints import FREE, USES
from archipel.parts.learn.maps import ENTROPY
from archipel.parts.learn.mirror import MirrorStep, alike
from archipel.parts.learn.regret import OVERDRAWN, played_rows, player_of
from archipel.parts.protect.gradient import noise_of, typical_scale
from archipel.privacy.noise import GAUSSIAN
from archipel.problems.regions import BALL, SIMPLEX
from archipel.turns import Setup


class DualState(NamedTuple):
    gradient: Any
    mean: Any  # m_u
    played: Any


class DualServer(NamedTuple):
    gradient: Any
    mean: Any


@kernel
def mean_of(me: Any) -> Any:
    """What is shared in place of the model."""
    return Node(me.learn.mean, me.before, me.learn, me.protect, me.share, me.mix, me.across)


@cache
def leading(from_dual: Any, step_of: Any) -> Any:
    @exact
    def lead(me: Any, settings: Any, round: Any) -> None:
        """The model of a round, from the mean of the gradients. R is least at the start, the point nearest to zero."""
        s = settings.learn
        step = step_of(s.steps, round)
        for j in range(me.model.shape[0]):
            me.learn.gradient[j] = min(max(0.0, s.map.low[j]), s.map.high[j]) - step * me.learn.mean[j]
        from_dual(me.model, me.learn.gradient, s.map)

    return lead


@cache
def averaging(weight: Any, play: Any, use: Any, look: Any, lead: Any, told: bool) -> Any:
    @exact
    def learn(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        """Play, add the noised gradient. Who cannot pay passes on what it heard; who is away learns alone.

        Who is `told` the mean by a server may be away when it would be told again: it has its next model now.
        """
        s = settings.learn
        play(me.learn.played, me.model, data, s.known, moment.round)
        me.learn.played[OVERDRAWN] += use(me.model, data, s.budget, moment.round)
        if look(me, data, settings, moment) >= 0.0:
            add_exactly(me.learn.mean, 1.0 / weight(me), me.learn.gradient)
        if told or not moment.present:
            lead(me, settings, moment.round + 1)
        return True

    return learn


@dataclass(frozen=True)
class DualAverage(MirrorStep):
    """Gradients are summed, and what is played is the leader of their mean."""

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        self.check(setup)
        settings, rows, size = self.settings(setup, protect), setup.task.clients, setup.task.size
        lead = leading(maps.map_of(settings.map).from_dual, self.step_of())
        use = USES[self.constraint.form if self.constraint else FREE]
        look = self.looks(setup, protect, settings.known)
        play, told = player_of(setup, settings.known), setup.graph.servers > 0
        weighted = partial(averaging, play=play, use=use, look=look, lead=lead, told=told)
        zeros = np.zeros((rows, size), setup.dtype)
        state = DualState(zeros, zeros.copy(), played_rows(rows))
        row = np.zeros((setup.graph.servers, size), setup.dtype)
        return LearnPiece(
            weighted(alike), state, settings, True, weighted=weighted, shared=mean_of, settle=lead,
            server_state=DualServer(row, row.copy()),
        )  # fmt: skip

    def width(self, mapped: maps.MapSettings) -> float:
        """The root of the most that B(x || start) can be."""
        if mapped.geometry == ENTROPY:
            return math.sqrt(float(mapped.radius) * math.log(max(len(mapped.low), 2)))
        return farthest(mapped) / math.sqrt(2)

    def length(self, setup: Setup, protect: ProtectPiece, mapped: Any, slope: float, spread: float) -> float:
        """sqrt(G^2 + E||noise||^2 / n): how long the mean of all clients' noised gradients is.

        Correlated noise is not drawn anew: sqrt(G^2 + G E||noise in a sum|| / sqrt n), as in Kairouz, McMahan, Song,
        Thakkar, Thakurta, Xu, ICML 2021, Theorem 5.1.
        """
        drawn = protect.drawn or noise_of(setup)
        square = typical_scale(drawn) ** 2 * (1 if drawn.law == GAUSSIAN else 2) / setup.task.clients
        longest = self.longest(setup, mapped)
        if protect.cancels:
            components = 1 if mapped.geometry == ENTROPY else setup.task.size
            square = longest * math.sqrt(square / components) * protect.cancels
        if mapped.geometry == ENTROPY:
            return math.sqrt((longest**2 + square) * float(mapped.radius))
        return math.sqrt(longest**2 + setup.task.size * square)

    def longest(self, setup: Setup, mapped: Any) -> float:
        """G: the bound of a gradient without its noise; for entropy, half of how far apart its components can be."""
        policy = setup.privacy
        if policy is None or policy.clip == math.inf:
            return self.gradient
        if mapped.geometry == ENTROPY:
            return float(policy.clip / (2 if policy.order == 1 else math.sqrt(2)))
        return float(policy.clip)

    def check(self, setup: Setup) -> None:
        super().check(setup)
        if self.path > 0:
            right = "0: sums do not forget; where what is best moves, use mirror-descent"
            raise BadInput("algorithm.path", self.path, right)


def farthest(mapped: maps.MapSettings) -> float:
    """How far the region reaches from the start, Euclidean."""
    size = len(mapped.low)
    if mapped.region == BALL:
        return float(mapped.radius)
    if mapped.region == SIMPLEX:
        return float(mapped.radius * (1 - mapped.floor) * math.sqrt(1 - 1 / size))
    first = maps.start(mapped)
    return float(np.linalg.norm(np.maximum(mapped.high - first, first - mapped.low)))
