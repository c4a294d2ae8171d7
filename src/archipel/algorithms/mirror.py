"""Private online mirror descent among those who trust each other one way, both ways, or a server: chapters 2 to 5.

`parts.learn.mirror` says what a node does and what it becomes with a server, `parts.learn.dual_averaging` the same for
sums of gradients, `parts.mix.pushed` how they mix. Beside them the two methods they are compared with, online gradient
descent with plain mixing (Yan et al., IEEE TKDE 2013; the dissertation's [94]) and online push-sum ([31]; Nedic,
Olshevsky, IEEE TAC 2015), and chapter 2 as it is printed.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from archipel.describe import key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.parts.compose import Parts
from archipel.parts.kind import Composition
from archipel.parts.learn import maps
from archipel.parts.learn.constraints import SECRET, Budget, window_budget
from archipel.parts.learn.dual_averaging import DualAverage
from archipel.parts.learn.mirror import Geometry, MirrorSettings, MirrorStep, QueueStep, SaddleStep
from archipel.parts.learn.printed import PRINTED, PrintedStep
from archipel.parts.learn.regret import Meter, metered
from archipel.parts.mix.pushed import PushedModels
from archipel.parts.protect.correlated import Correlated
from archipel.parts.protect.gradient import AtGradient, noise_of, typical_scale
from archipel.parts.protect.openly import Openly
from archipel.parts.share.whole import Whole
from archipel.privacy.correlated import FORMS
from archipel.privacy.noise import GAUSSIAN
from archipel.theory.mirror import sound_averaged, sound_static
from archipel.topology.links import metropolis
from archipel.topology.push_sum import disagreement, rarity
from archipel.turns import Plan, Setup

ANYWHERE_LINKED = ("digraph", "peers", "star", "servers")  # the first is the default
FEW = 50  # clients for whom a bound of dual averaging is computed


@dataclass(frozen=True)
class MirrorDescent(Composition, Geometry):
    """Nodes step in a geometry on clipped, noised gradients and mix by push-sum: exact on any directed graph.

    The step fits region, gradient and noise, and falls as 1 / sqrt(t). `mixing` = "plain" mixes as printed, (5.13) or
    chapter 2's step 11. Who has spent its budget stops learning, and passes on what it hears, which costs nothing. Of a
    `constraint` this algorithm only measures the violation.
    """

    topologies: ClassVar[tuple[str, ...]] = ANYWHERE_LINKED
    precision: ClassVar[str] = "float64"
    learns: ClassVar[type[MirrorStep]] = MirrorStep

    mixing: str = key("push-sum", "how nodes mix among themselves", choices=("push-sum", "plain"))
    limit: int = key(0, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def own_parts(self, setup: Setup) -> Parts:
        protect = Openly() if setup.privacy is None else AtGradient()
        mix = PushedModels(self.mixing == "push-sum", self.limit)
        return Parts(self.as_part(self.learns), protect, Whole(), mix)

    def plan(self, setup: Setup) -> Plan:
        """Everyone in the middle of the region; their turns, and meters of regret."""
        plan, size = super().plan(setup), setup.task.size
        learn, budget = metered(plan), self.parts(setup).learn.constraint
        public = budget if budget and budget.form != SECRET else None
        limited = public.constraint(size, window_budget(public.budgets, public.window)) if public else None
        meter = Meter(setup, learn.map, learn.known, limited, budget is not None, plan.accountant)
        return plan._replace(measure=meter)

    def check(self, setup: Setup) -> dict[str, float]:
        """Refuse what would go wrong; the noise, the first step, and the bound of the static regret (2.6)."""
        settings = self.plan(setup).settings.learn
        protect = self.parts(setup).protect
        strain = protect.strain(setup) if isinstance(protect, AtGradient) else 1.0
        found = {"noise": typical_scale(noise_of(setup, strain)) * settings.spread}
        if settings.steps.step == 0:
            width, length, pace, drift, *_ = settings.steps
            times = np.arange(1.0, setup.rounds + 1)
            steps = width * np.sqrt((1 + pace * times**drift) / times) / length
            found["first_step"] = float(steps[0])
            found |= self.bound(setup, settings, steps)
        return found

    def bound(self, setup: Setup, settings: MirrorSettings, steps: Any) -> dict[str, float]:
        """The bound of the static regret (2.6), where there is one: of clipped losses, and where nobody is away."""
        unbounded = settings.map.geometry == maps.ENTROPY and settings.map.floor == 0  # B, from where all may have come
        if type(self.parts(setup).learn) is not MirrorStep or unbounded:
            return {}
        if self.mixing != "push-sum" and not setup.graph.servers:
            return {}
        rare = rarity(setup.graph.across, len(steps)) if setup.graph.one_way else 1.0
        return {"regret_bound": float(sound_static(steps, settings.steps.width**2, settings.steps.length, rare)[-1])}


@dataclass(frozen=True)
class SaddleMirrorDescent(MirrorDescent):
    """Mirror descent within a long-term budget, by a multiplier: chapter 3, the saddle point of (3.2)."""

    learns: ClassVar[type[MirrorStep]] = SaddleStep

    constraint: Budget | None = key(Budget, "a long-term budget")


@dataclass(frozen=True)
class LagrangianDescent(MirrorDescent):
    """Mirror descent within a long-term budget, by a virtual queue: chapter 4, with V = `caution` sqrt(t)."""

    learns: ClassVar[type[MirrorStep]] = QueueStep

    constraint: Budget | None = key(Budget, "a long-term budget")


@dataclass(frozen=True)
class OnlineGradientDescent(MirrorDescent):
    """Decentralised online gradient descent: Euclidean steps, and plain mixing whatever the graph. To compare."""

    mixing: str = key("plain", "how nodes mix among themselves", choices=("push-sum", "plain"))


@dataclass(frozen=True)
class OnlinePushSum(MirrorDescent):
    """Online push-sum: gradient steps of 1 / sqrt(t) on the weighted sums, no region. To compare."""

    region: str = key("anywhere", "where models live", choices=("ball", "box", "simplex", "anywhere"))
    step: float | None = key(0.5, "a step of your own, step / t^decay; none: the one that fits", above=0)


@dataclass(frozen=True)
class DualAveraging(MirrorDescent):
    """Nodes push sums of clipped, noised gradients: the network averages the noise before anything is projected.

    For streams whose best model stays where it is; regions, maps and steps are those of mirror descent. `gradient` is,
    for the entropy map, half the range of a gradient's components. `correlation` makes a node's noise cancel in the sum
    of its gradients: for many rounds the less noise.
    """

    learns: ClassVar[type[MirrorStep]] = DualAverage

    correlation: str = key("", "how the noise of rounds belongs together; none: not at all", choices=("", *FORMS))

    def own_parts(self, setup: Setup) -> Parts:
        if self.mixing != "push-sum":
            raise BadInput("algorithm.mixing", self.mixing, '"push-sum": sums of gradients are pushed')
        own = super().own_parts(setup)
        return own._replace(protect=Correlated(self.correlation)) if self.correlation and setup.privacy else own

    def bound(self, setup: Setup, settings: MirrorSettings, steps: Any) -> dict[str, float]:
        """The bound of the static regret (2.6); of few clients, since the graph's disagreement has to be found."""
        graph, entropic = setup.graph, settings.map.geometry == maps.ENTROPY
        parts = self.parts(setup)
        if setup.task.clients > FEW or graph.servers > 1 or isinstance(parts.protect, Correlated):
            return {}  # it is for noise that is drawn anew in every round
        if not isinstance(parts.learn, DualAverage):
            return {}
        noise, longest = noise_of(setup), parts.learn.longest(setup, settings.map)
        drawn = typical_scale(noise) * math.sqrt((1 if noise.law == GAUSSIAN else 2) * setup.task.size)  # its L2 norm
        apart: Any = np.zeros(len(steps))  # at one server nobody disagrees
        if not graph.servers:
            phases = graph.across if graph.one_way else tuple(map(metropolis, graph.across))
            apart = disagreement(phases, len(steps)) @ [drawn, longest]
        apart = np.concatenate([[0.0], apart[:-1]]) * float(settings.map.radius if entropic else 1.0)
        width, length = settings.steps.width, settings.steps.length
        return {"regret_bound": float(sound_averaged(steps, width**2, length, longest, apart)[-1])}


@dataclass(frozen=True)
class PublishedMirrorDescent(Composition):
    """Chapter 2 as printed, to be shown, not to be used: `algorithm` 1 (Euclidean), 2 (entropy) or 3 (truncated noise).

    What is wrong with it: docs/errata.md. `check` says the true epsilon. There is no accountant: a [privacy] table is
    refused. Mixed as the graph's weights say: (5.13), or chapter 2's step 14; by a server, the mean.
    """

    topologies: ClassVar[tuple[str, ...]] = ANYWHERE_LINKED
    precision: ClassVar[str] = "float64"

    algorithm: int = key(
        3, f"which one: {', '.join(f'{n} {what}' for n, what in PRINTED.items())}", at_least=1, at_most=3
    )
    epsilon: float = key(0.1, "the printed one: noise is Laplace(1 / epsilon)", above=0)
    step: float = key(1.0, "the first step; then step / t^decay", above=0)
    decay: float = key(1.0, "how fast steps fall", at_least=0, at_most=1)
    radius: float = key(1.0, "of the ball, or what the components add up to", above=0)
    bound: float | None = key(None, "b of algorithm 3; none: log(T)^2 / epsilon", above=0, symbol="b")
    gradient: str = key("kept", "zero: replaced, to show that algorithm 3 does not need it", choices=("kept", "zero"))
    start: str = key("uniform", "where clients begin; printed: figure 2.2's three", choices=("uniform", "printed"))

    def own_parts(self, setup: Setup) -> Parts:
        learn = PrintedStep(self.algorithm, self.epsilon, self.step, self.decay, self.radius, self.bound, self.gradient)
        return Parts(learn, Openly(), Whole(), PushedModels(False))

    def plan(self, setup: Setup) -> Plan:
        """Their turns, and meters of regret."""
        plan = super().plan(setup)
        if self.start == "printed":
            self.begin_apart(plan.tables)
        learn = metered(plan)
        return plan._replace(measure=Meter(setup, learn.map, learn.known))

    def begin_apart(self, tables: dict[str, Any]) -> None:
        """Where the three clients of figure 2.2 begin."""
        rows = np.array(
            [[1 / 2, 0, 0, 1 / 4, 1 / 4], [1 / 4, 1 / 8, 1 / 8, 1 / 4, 1 / 4], [1 / 5, 1 / 10, 2 / 5, 1 / 5, 1 / 10]]
        )
        if "peer" not in tables or tables["peer"].model.shape != rows.shape or self.algorithm == 1:
            right = '"uniform", or three peers with five parameters on the simplex'
            raise BadInput("algorithm.start", self.start, right)
        tables["peer"].model[:] = rows

    def check(self, setup: Setup) -> dict[str, float]:
        """The printed epsilon, and the true one for gradients of L2 norm one."""
        true = math.inf if self.algorithm == 3 else 2 * math.sqrt(setup.task.size) * self.epsilon
        return {"printed_epsilon": self.epsilon, "true_epsilon": true}
