"""Private online mirror descent among peers with one-way trust: chapters 2 to 5 of the dissertation, in the sound form.

`mirror` has the maps and why this form is sound, `constraints` the budgets, `mirror_nodes` what a peer does. Beside it
the two methods it is compared with, online gradient descent with plain mixing (Yan et al., IEEE TKDE 2013; the
dissertation's [94]) and online push-sum ([31]; Nedic, Olshevsky, IEEE TAC 2015).
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from archipel.algorithms import constraints, mirror
from archipel.algorithms.mirror_meters import Meter, minima_of, record_of, window_budget
from archipel.algorithms.mirror_nodes import (
    AS_HEARD,
    AS_SENT,
    PLAIN,
    PUSH_SUM,
    QUEUE,
    SADDLE,
    Inbox,
    Peer,
    Settings,
    Word,
    act,
    hear,
    merge,
)  # fmt: skip
from archipel.algorithms.mirror_privacy import Price, priced, typical_scale
from archipel.errors import BadInput, did_you_mean
from archipel.privacy.ledger import ENFORCED, Assumption
from archipel.privacy.noise import GAUSSIAN
from archipel.regions import ANYWHERE, Region, anywhere, ball, box, simplex
from archipel.theory.mirror import sound_static
from archipel.topology.links import given, heard
from archipel.topology.push_sum import rarity
from archipel.turns import Plan, Setup, Turn

REGIONS = ("ball", "box", "simplex", "anywhere")
MAPS = ("euclidean", "entropy")
MIXINGS = ("push-sum", "plain")
BUDGETS = {"linear": constraints.linear, "packets": constraints.packets, "energy": constraints.energy}


@dataclass(frozen=True)
class Budget:
    """A long-term budget: what a round's model uses may exceed it, but not in the long run.

    `kind`: "linear" (cost @ x), "packets" (the same, no negative cost), "energy" (cost @ x^2), or "sample", where the
    cost of each component is in the round's sample (features @ x) and so is private. `cost` is one number for all
    components or one for each; `budget` one number, or several that come in turn. `window` is K of (4.6): how many
    rounds in a row the comparator has to stay within the budget. Of a private cost `clip` bounds the L1 or L2 norm
    and `reach` the value.
    """

    kind: str = "linear"
    cost: float | tuple[float, ...] = 1.0
    budget: float | tuple[float, ...] = 0.0
    window: int = 1
    clip: float = 1.0
    reach: float = 1.0

    @property
    def budgets(self) -> Any:
        """What may be used, in turn."""
        return np.atleast_1d(np.asarray(self.budget, float))

    def constraint(self, size: int, budget: float) -> constraints.Constraint:
        """c(x) <= 0 with one budget."""
        cost = np.asarray(self.cost, float)
        if cost.ndim and len(cost) != size:
            raise BadInput("algorithm.constraint.cost", self.cost, f"one number, or {size}, one a parameter")
        return BUDGETS[self.kind](np.broadcast_to(cost, size), budget)

    def check(self, region: Any) -> None:
        """Refuse what makes no sense, and a budget that no point of the region keeps to, on average."""
        kinds = (*BUDGETS, "sample")
        if self.kind not in kinds:
            raise BadInput("algorithm.constraint.kind", self.kind, did_you_mean(self.kind, kinds))
        if not self.budgets.size or not np.isfinite(self.budgets).all():
            raise BadInput("algorithm.constraint.budget", self.budget, "finite numbers, at least one")
        if self.window < 1:
            raise BadInput("algorithm.constraint.window", self.window, "a number of rounds, at least 1")
        for name in ("clip", "reach"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadInput(f"algorithm.constraint.{name}", getattr(self, name), "a positive number")
        if self.kind != "sample":
            size = len(region.low)
            constraints.check_satisfiable(self.constraint(size, window_budget(self.budgets, self.window)), region)


@dataclass(frozen=True)
class MirrorDescent:
    """Peers step in a geometry on clipped, noised gradients and mix by push-sum: exact on any directed graph.

    `region` is a "ball" or a "simplex" of this `radius` (what a simplex adds up to), a "box" from `low` to `high`, or
    "anywhere"; `map` is "euclidean", or "entropy" on a simplex, whose `floor` keeps components above floor / size of
    the whole. The step fits region, gradient and noise, and falls as 1 / sqrt(t); `gradient` is how long gradients are
    where no [privacy] table clips them. Where what is best moves, `path` and `drift` say how far: path t^drift after t
    rounds. A `step` of your own is step / t^decay. `mixing` = "plain" mixes as printed, (5.13) or chapter 2's step 11.
    Who has spent its budget stops learning, and passes on what it hears, which costs nothing. Of a `constraint` this
    algorithm only measures the violation.
    """

    topologies: ClassVar = ("digraph",)
    precision: ClassVar = "float64"
    data_kind: ClassVar = "stream"
    form: ClassVar = PLAIN
    nodes: ClassVar = (act, hear, merge)

    region: str = "ball"
    map: str = "euclidean"
    radius: float = 1.0
    low: float | tuple[float, ...] = -1.0
    high: float | tuple[float, ...] = 1.0
    floor: float = 0.0
    step: float | None = None
    decay: float = 0.5
    gradient: float = 1.0
    path: float = 0.0
    drift: float = 0.0
    mixing: str = "push-sum"
    limit: int = 0
    constraint: Budget | None = None
    caution: float = 1.0

    def plan(self, setup: Setup) -> Plan:
        """Peers, all in the middle of the region, and their one turn."""
        self.check_numbers(setup)
        settings, price, mapped = self.settings(setup)
        size, clients = setup.task.size, setup.task.clients
        table = peers(clients, mirror.start(mapped), price, settings.reach)
        word = Word(np.zeros(size), np.zeros(1))
        turn = Turn("peer", "peer", *self.nodes, word, Inbox(np.zeros(size), np.zeros(1)))
        meter = self.meter(setup, mapped, settings, price)
        return Plan(
            {"peer": table}, (turn,), settings, {0: size}, self.limit, measure=meter, accountant=price.accountant
        )

    def settings(self, setup: Setup) -> tuple[Settings, Price, mirror.MapSettings]:
        """All numbers that steer it."""
        size, task, policy = setup.task.size, setup.task, setup.privacy
        mapped, price = self.mapped(size), priced(setup, further=self.supposed())
        ridge = ridge_of(setup)
        centres = task.oracle.centres if task.oracle else np.zeros((0, size))
        minima = minima_of(task.loss, ridge, centres, mapped) if len(centres) else centres
        limits, reach, slope = self.limits(mapped)
        secret = self.constraint is not None and self.constraint.kind == "sample"
        order = policy.order if policy else 2
        spread = (3.0 if order == 1 else math.sqrt(3.0)) if secret and self.form != PLAIN else 1.0
        own = float(self.step or 0.0)
        width = self.width(mapped) if own == 0 else 1.0
        length = self.length(setup, price, mapped, slope, spread) if own == 0 else 1.0
        settings = Settings(
            *mapped,
            width,
            length,
            mirror.pace_of(self.path, mapped) if self.path else 0.0,
            float(self.drift),
            own,
            float(self.decay),
            int(task.loss),
            ridge,
            mixing_of(self.mixing, setup.graph),
            int(policy is not None),
            float(policy.guard().clip) if policy else math.inf,
            order,
            float(price.change),
            price.noise.law,
            price.noise.shape,
            int(policy is not None and policy.unit == "sample"),
            self.form,
            limits.limit,
            limits.weights,
            self.constraint.budgets if self.constraint else np.zeros(1),
            reach,
            float(self.caution),
            int(secret),
            float(self.constraint.clip) if self.constraint else 1.0,
            spread,
            centres if len(minima) else centres[:0],
            minima,
        )
        return settings, price, mapped

    def supposed(self) -> tuple[Assumption, ...]:
        """What the ledger supposes of a constraint whose cost is in the sample."""
        if self.form == PLAIN or self.constraint is None or self.constraint.kind != "sample":
            return ()
        clip, reach = self.constraint.clip, self.constraint.reach
        text = f"a sample's cost is clipped to {clip:g} and its value to {reach:g}; both are noised with the gradient"
        return (Assumption(text, ENFORCED),)

    def mapped(self, size: int) -> mirror.MapSettings:
        """The mirror map."""
        region = self.place(size)
        return mirror.entropy(region) if self.map == "entropy" else mirror.euclidean(region)

    def place(self, size: int) -> Region:
        """The region."""
        if self.region == "ball":
            return ball(size, self.radius)
        if self.region == "simplex":
            return simplex(size, self.radius, self.floor)
        if self.region == "anywhere":
            return anywhere(size)
        for key in ("low", "high"):
            side = np.asarray(getattr(self, key))
            if side.ndim and len(side) != size:
                raise BadInput(f"algorithm.{key}", getattr(self, key), f"one number, or {size}, one a parameter")
        return box(np.broadcast_to(self.low, size), np.broadcast_to(self.high, size))

    def limits(self, mapped: mirror.MapSettings) -> tuple[constraints.Limits, float, float]:
        """The constraint as data; F, which bounds it; and the length of its gradient."""
        size = len(mapped.low)
        none = constraints.none(size).limits
        if self.constraint is None:
            return none, 1.0, 0.0
        if self.constraint.kind == "sample":
            return none, float(self.constraint.reach), float(self.constraint.clip)
        made = self.constraint.constraint(size, float(self.constraint.budgets.mean()))
        bounds = constraints.bounds(made, mapped)
        long = bounds.gradient_max if mapped.geometry == mirror.ENTROPY else bounds.gradient_l2
        if self.form != PLAIN and not bounds.size < math.inf:
            raise BadInput("algorithm.region", self.region, "a bounded one: a constraint needs a bound")
        return made.limits, max(bounds.size, 1e-12), float(long)

    def width(self, mapped: mirror.MapSettings) -> float:
        """The root of how far apart models can be."""
        return mirror.width(mapped)

    def length(self, setup: Setup, price: Price, mapped: Any, slope: float, spread: float) -> float:
        """How long noised gradients are: the bound of the gradient and of the constraint's, and the noise."""
        self.check_bounded(mapped)
        clip = setup.privacy.clip if setup.privacy is not None else math.inf
        bound = clip if clip < math.inf else self.gradient
        kind = "gaussian" if price.noise.law == GAUSSIAN else "laplace"
        noise = spread * typical_scale(price.noise)
        return mirror.noisy_length(bound + slope, noise, setup.task.size, kind, mapped)

    def check_bounded(self, mapped: mirror.MapSettings) -> None:
        """No step fits everywhere."""
        if mapped.region == ANYWHERE:
            raise BadInput("algorithm.step", "(missing)", "a step of your own, where the region is unbounded")

    def meter(self, setup: Setup, mapped: Any, settings: Settings, price: Price) -> Meter:
        """Regret while learning."""
        public = self.constraint if self.constraint and self.constraint.kind != "sample" else None
        limited = public.constraint(setup.task.size, window_budget(public.budgets, public.window)) if public else None
        return Meter(
            setup, mapped, settings.ridge, settings.centres, settings.minima, limited, self.constraint is not None,
            accountant=price.accountant, record=record_of(setup, settings.ridge),
        )  # fmt: skip

    def check_numbers(self, setup: Setup) -> None:
        """Refuse what makes no sense."""
        for key, words in (("region", REGIONS), ("map", MAPS), ("mixing", MIXINGS)):
            if getattr(self, key) not in words:
                raise BadInput(f"algorithm.{key}", getattr(self, key), did_you_mean(getattr(self, key), words))
        if self.step is not None and not 0 < self.step < math.inf:
            raise BadInput("algorithm.step", self.step, "a positive number, or none for the step that fits")
        for key in ("gradient", "caution"):
            if not 0 < getattr(self, key) < math.inf:
                raise BadInput(f"algorithm.{key}", getattr(self, key), "a positive number")
        if not 0 <= self.path < math.inf:
            raise BadInput("algorithm.path", self.path, "a length, 0 where what is best stays")
        for key in ("decay", "drift"):
            if not 0 <= getattr(self, key) <= 1:
                raise BadInput(f"algorithm.{key}", getattr(self, key), "an exponent from 0 to 1")
        if self.limit < 0:
            raise BadInput("algorithm.limit", self.limit, "a number of rounds, 0 or more")
        if setup.task.regulariser[0] > 0:
            raise BadInput("problem.l1", setup.task.regulariser[0], "0: these steps need a smooth regulariser")
        if self.form != PLAIN and self.constraint is None:
            raise BadInput(
                "algorithm.constraint", "(missing)", "a table [algorithm.constraint] with kind, cost, budget"
            )
        if self.constraint is not None:
            self.constraint.check(self.mapped(setup.task.size))

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned: every peer's own model."""
        return {"clients": tables["peer"].model}

    def check(self, setup: Setup) -> dict[str, float]:
        """Refuse what would go wrong; the noise, the first step, and the bound of the static regret (2.6)."""
        self.check_numbers(setup)
        settings, price, _ = self.settings(setup)
        found = {"noise": typical_scale(price.noise) * settings.spread}
        if settings.step == 0:
            times = np.arange(setup.rounds, dtype=float)
            steps = settings.width * np.sqrt((1 + settings.pace * (times + 1) ** settings.drift) / (times + 1))
            steps = steps / settings.length
            found["first_step"] = float(steps[0])
            found |= self.bound(setup, settings, steps)
        return found

    def bound(self, setup: Setup, settings: Settings, steps: Any) -> dict[str, float]:
        """The bound of the static regret (2.6), where there is one: of clipped losses, and where nobody is away."""
        unbounded = settings.geometry == mirror.ENTROPY and settings.floor == 0  # B, from where all may have come
        if self.form != PLAIN or settings.mixing != PUSH_SUM or unbounded:
            return {}
        rare = rarity(setup.graph.across, len(steps))
        return {"regret_bound": float(sound_static(steps, settings.width**2, settings.length, rare)[-1])}

    def for_size(self, size: int) -> "MirrorDescent":
        """The same for a model of another size: what is given a component becomes its mean."""
        changes: dict[str, Any] = {key: float(np.mean(getattr(self, key))) for key in ("low", "high")}
        if self.constraint is not None:  # the cheapest and the dearest component stay
            costs = np.quantile(np.atleast_1d(self.constraint.cost), np.linspace(0, 1, size))
            changes["constraint"] = replace(self.constraint, cost=tuple(costs.tolist()))
        return replace(self, **changes)


@dataclass(frozen=True)
class SaddleMirrorDescent(MirrorDescent):
    """Mirror descent within a long-term budget, by a multiplier: chapter 3, the saddle point of (3.2)."""

    form: ClassVar = SADDLE

    constraint: Budget | None = field(default_factory=Budget)


@dataclass(frozen=True)
class LagrangianDescent(MirrorDescent):
    """Mirror descent within a long-term budget, by a virtual queue: chapter 4, with V = `caution` sqrt(t)."""

    form: ClassVar = QUEUE

    constraint: Budget | None = field(default_factory=Budget)


@dataclass(frozen=True)
class OnlineGradientDescent(MirrorDescent):
    """Decentralised online gradient descent: Euclidean steps, and plain mixing whatever the graph. To compare."""

    mixing: str = "plain"


@dataclass(frozen=True)
class OnlinePushSum(MirrorDescent):
    """Online push-sum: gradient steps of 1 / sqrt(t) on the weighted sums, no region. To compare."""

    region: str = "anywhere"
    step: float | None = 0.5


# --- parts ----------------------------------------------------------------------------------------------------------


def ridge_of(setup: Setup) -> float:
    """gamma of 2.4's gamma / 2 ||x||^2, for each client."""
    return 2 * setup.task.regulariser[1] / setup.task.clients


def mixing_of(name: str, graph: Any) -> int:
    """How messages are mixed: by whose weights sum to one. Push-sum needs the sender's."""
    sent = all(np.allclose(given(links) + links.own, 1) for links in graph.across)
    if name == "push-sum":
        if not sent:
            right = '"sender": push-sum needs weights of which a sender gives out one; or mixing = "plain"'
            raise BadInput("topology.sums_to_one", "receiver", right)
        return PUSH_SUM
    taken = all(np.allclose(heard(links) + links.own, 1) for links in graph.across)
    return AS_HEARD if taken and not sent else AS_SENT


def peers(clients: int, first: Any, price: Price, reach: float = 1.0) -> Peer:
    """All peers' rows; `first` is where they begin, `reach` bounds the constraint."""
    model = np.tile(np.asarray(first, float), (clients, 1))
    moved, gradient, slope = (np.zeros_like(model) for _ in range(3))
    multiplier, spent, releases, dearest, summed, lost, behind, overdrawn, rounds = (
        np.zeros((clients, 1)) for _ in range(9)
    )
    weight, swings = np.ones((clients, 1)), np.full((clients, 1), reach**2)
    noise, limit = price.noise.first.copy(), price.noise.limit.copy()
    return Peer(
        model, moved, gradient, slope, weight, multiplier, swings, noise, spent, limit, releases, dearest, summed, lost,
        behind, overdrawn, rounds,
    )  # fmt: skip
