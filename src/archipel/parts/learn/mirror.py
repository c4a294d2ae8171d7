"""A mirror step on each new sample, in a region, within a budget: the dissertation, in the sound form.

A round: play the model; clip and noise the gradient of this round's sample, paid before; a mirror step, (5.12), of the
step over the node's push-sum weight; say it, mix. `maps` has the maps and why this form is sound, `constraints` the
budgets. Everything that is kept or said is computed from noised gradients, so a sample pays once, in the round in which
it is used. Who has spent its budget stops learning, and passes on what it hears, which costs nothing.

With a server in place of peers, clients step from the model that they are told, and the server averages what they say.
B is convex in its second argument, so the mean is no farther from a comparator than its parts: the bounds of `maps`
hold with weights of one, and with everyone there and one server it is mirror descent on a complete graph with equal
shares. Servers average their clients' and then their neighbours' models. Who is away steps alone.
"""

import math
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.node import add_exactly, exact, kernel, table_of
from archipel.parts import NONE, Learn, LearnPiece, ProtectPiece
from archipel.parts.learn import constraints, maps
from archipel.parts.learn.constraints import FREE, PLAIN, QUEUE, SADDLE, SECRET, USES, Budget
from archipel.parts.learn.regret import OVERDRAWN, Known, known_of, played_rows, player_of
from archipel.parts.protect.gradient import ClipsGradients, noise_of, sensitivity, typical_scale
from archipel.privacy.ledger import ENFORCED, Assumption
from archipel.privacy.noise import GAUSSIAN
from archipel.problems.losses.online import loss_gradient
from archipel.problems.regions import ANYWHERE, Region, anywhere, ball, box, simplex
from archipel.turns import Setup

LIGHT = 1e-3  # the least weight that a step is divided by
T = TypeVar("T")


class MirrorSettings(NamedTuple):
    map: Any
    steps: Any
    known: Any
    clip: Any  # of a gradient
    spread: Any  # how much more noise each of the three parts of a release has, if a cost is in the sample
    budget: Any


class MirrorState(NamedTuple):
    gradient: Any
    played: Any
    pressed: Any


@kernel
def alike(me: Any) -> Any:
    """All nodes weigh the same."""
    return 1.0


@cache
def looking(loss: int, ridged: bool, pay: Any, guard: Any) -> Any:
    @exact
    def look(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        """me.learn.gradient: the sample's, clipped, noised, paid for. Its noise's scale; below 0: it cannot be paid."""
        scale = pay(me, settings, moment)
        if scale < 0.0:
            return scale
        loss_gradient(me.learn.gradient, loss, me.model, data)
        guard(me.learn.gradient, settings.learn.clip, settings.learn.spread * scale, me, settings, moment.key)
        if ridged:
            add_exactly(me.learn.gradient, settings.learn.known.ridge, me.model)  # known to all who know the model
        return scale

    return look


@cache
def stepping(weight: Any, play: Any, use: Any, look: Any, push: Any, press: Any, move: Any, step_of: Any) -> Any:
    @exact
    def learn(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        """Play; a mirror step from the model, (5.12). Who cannot pay stays where it is, and passes on what it heard."""
        s = settings.learn
        play(me.learn.played, me.model, data, s.known, moment.round)
        value = use(me.model, data, s.budget, moment.round)
        me.learn.played[OVERDRAWN] += value
        scale = look(me, data, settings, moment)
        if scale < 0.0:
            return True
        value = push(me, value, data, scale, settings, moment)
        step = step_of(s.steps, moment.round) / max(weight(me), LIGHT)
        move(me.model, me.model, me.learn.gradient, step, s.map)
        press(me, value, settings, moment)
        return True

    return learn


@dataclass(frozen=True)
class Geometry(Checked):
    """Where a model lives, how it steps, and what it may use: the keys that all of these kinds share."""

    region: str = key("ball", "where models live", choices=("ball", "box", "simplex", "anywhere"))
    map: str = key("euclidean", "the geometry of steps", choices=("euclidean", "entropy"))
    radius: float = key(1.0, "of the ball; of the simplex, what the components add up to", above=0)
    low: float | tuple[float, ...] = key(-1.0, "of the box: one number, or one for each parameter")
    high: float | tuple[float, ...] = key(1.0, "of the box: one number, or one for each parameter")
    floor: float = key(0.0, "components of the simplex stay above floor / size of the whole", at_least=0, below=1)
    step: float | None = key(None, "a step of your own, step / t^decay; none: the one that fits", above=0)
    decay: float = key(0.5, "how fast a step of your own falls", at_least=0, at_most=1)
    gradient: float = key(1.0, "how long gradients are where no [privacy] table clips them", above=0)
    path: float = key(0.0, "how far what is best moves: path t^drift after t rounds", at_least=0)
    drift: float = key(0.0, "the exponent of that path", at_least=0, at_most=1)
    constraint: Budget | None = key(None, "a long-term budget")
    caution: float = key(1.0, "V = caution sqrt(t) of chapter 4", above=0, symbol="V")

    def mapped(self, size: int) -> maps.MapSettings:
        """The mirror map."""
        region = self.place(size)
        return maps.entropy(region) if self.map == "entropy" else maps.euclidean(region)

    def place(self, size: int) -> Region:
        """The region."""
        if self.region == "ball":
            return ball(size, self.radius)
        if self.region == "simplex":
            return simplex(size, self.radius, self.floor)
        if self.region == "anywhere":
            return anywhere(size)
        for name, side in (("low", self.low), ("high", self.high)):
            if np.ndim(side) and np.size(side) != size:
                raise BadInput(f"algorithm.{name}", side, f"one number, or {size}, one per parameter")
        return box(np.broadcast_to(self.low, size), np.broadcast_to(self.high, size))

    def as_part(self, part: type[T]) -> T:
        """A learn part with the same keys."""
        return part(**{name: vars(self)[name] for name in Geometry.__dataclass_fields__})

    def for_size(self: T, size: int) -> T:
        """The same for a model of another size: what is given per component becomes its mean."""
        mine: Any = self
        changes: dict[str, Any] = {"low": float(np.mean(mine.low)), "high": float(np.mean(mine.high))}
        if mine.constraint is not None:  # the cheapest and the dearest component stay
            costs = np.quantile(np.atleast_1d(mine.constraint.cost), np.linspace(0, 1, size))
            changes["constraint"] = replace(mine.constraint, cost=tuple(costs.tolist()))
        return replace(mine, **changes)


@dataclass(frozen=True)
class MirrorStep(ClipsGradients, Learn, Geometry):
    """A mirror step on each new sample. A `constraint` is only measured."""

    pressing: ClassVar[int] = PLAIN

    def supposed(self) -> tuple[Assumption, ...]:
        """What the ledger supposes of a constraint whose cost is in the sample."""
        if self.pressing == PLAIN or self.constraint is None or self.constraint.form != SECRET:
            return ()
        clip, reach = self.constraint.clip, self.constraint.reach
        text = f"a sample's cost is clipped to {clip:g} and its value to {reach:g}; both are noised with the gradient"
        return (Assumption(text, ENFORCED),)

    def start(self, setup: Setup) -> Any:
        return maps.start(self.mapped(setup.task.size)).astype(setup.dtype)

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        self.check(setup)
        settings = self.settings(setup, protect)
        step_of, form = self.step_of(), self.constraint.form if self.constraint else FREE
        look = self.looks(setup, protect, settings.known)
        push, press, private = constraints.no_push, constraints.no_press, setup.privacy is not None
        if self.pressing != PLAIN:
            push = constraints.pushing(form, self.pressing, protect.guard if private else None)
            saddle = constraints.saddle_press(settings.map.geometry, step_of)
            press = saddle if self.pressing == SADDLE else constraints.queue_press
        parts = {"play": player_of(setup, settings.known), "use": USES[form], "look": look, "push": push}
        parts |= {"press": press, "move": maps.map_of(settings.map).step, "step_of": step_of}
        rows, size = setup.task.clients, setup.task.size
        reach = settings.budget.reach if self.constraint else 1.0
        pressed = constraints.pressed_rows(self.pressing, rows, size, reach, setup.dtype)
        state = MirrorState(table_of((rows, size), setup.dtype), played_rows(rows), pressed)
        weighted = partial(stepping, **parts)
        return LearnPiece(
            weighted(alike), state, settings, True, self.pressing == QUEUE, weighted=weighted, **maps.kept(settings.map)
        )

    def step_of(self) -> Any:
        return maps.own_step if self.step else maps.fitted_step

    def looks(self, setup: Setup, protect: ProtectPiece, known: Known) -> Any:
        """How a node looks at its sample."""
        if protect.guard is None:
            right = "noise at the gradient: what is noised after a step would leave the region"
            raise BadInput("algorithm.protect", "(replaced)", right)
        if protect.cancels and self.pressing != PLAIN:
            right = "noise that is drawn anew: a multiplier follows every round's constraint, not their sum"
            raise BadInput("algorithm.protect.kind", "correlated", right)
        return looking(int(setup.task.loss), known.ridge > 0, protect.pay, protect.guard)

    def settings(self, setup: Setup, protect: ProtectPiece) -> MirrorSettings:
        """All numbers that steer it."""
        size, policy, mapped = setup.task.size, setup.privacy, self.mapped(setup.task.size)
        reach, slope = self.bounds(mapped)
        secret = self.pressing != PLAIN and self.constraint is not None and self.constraint.form == SECRET
        spread = (3.0 if policy and policy.order == 1 else math.sqrt(3.0)) if secret else 1.0
        own = float(self.step or 0.0)
        if own == 0 and mapped.region == ANYWHERE:
            raise BadInput("algorithm.step", "(missing)", "a step of your own, where the region is unbounded")
        width = self.width(mapped) if own == 0 else 1.0
        length = self.length(setup, protect, mapped, slope, spread) if own == 0 else 1.0
        pace = maps.pace_of(self.path, mapped) if self.path else 0.0
        steps = maps.Pace(width, length, pace, float(self.drift), own, float(self.decay))
        clip = float(policy.guard().clip) if policy else math.inf
        budget: Any = NONE
        if self.constraint is not None:
            budget = self.constraint.measured(size, reach, float(self.caution), sensitivity(setup), setup.dtype)
        return MirrorSettings(mapped, steps, known_of(setup, mapped), clip, spread, budget)

    def bounds(self, mapped: maps.MapSettings) -> tuple[float, float]:
        """F, which bounds the constraint, and the length of its gradient."""
        if self.constraint is None:
            return 1.0, 0.0
        if self.constraint.form == SECRET:
            return float(self.constraint.reach), float(self.constraint.clip)
        made = self.constraint.constraint(len(mapped.low), float(self.constraint.budgets.mean()))
        bounds = constraints.bounds(made, mapped)
        if self.pressing != PLAIN and not bounds.size < math.inf:
            raise BadInput("algorithm.region", self.region, "a bounded one: a constraint needs a bound")
        return max(bounds.size, 1e-12), bounds.gradient_max if mapped.geometry == maps.ENTROPY else bounds.gradient_l2

    def width(self, mapped: maps.MapSettings) -> float:
        """The root of how far apart models can be."""
        return maps.width(mapped)

    def length(self, setup: Setup, protect: ProtectPiece, mapped: Any, slope: float, spread: float) -> float:
        """How long noised gradients are: the bound of the gradient and of the constraint's, and the noise."""
        clip = setup.privacy.clip if setup.privacy is not None else math.inf
        drawn = protect.drawn or noise_of(setup)
        bound = clip if clip < math.inf else self.gradient
        kind = "gaussian" if drawn.law == GAUSSIAN else "laplace"
        return maps.noisy_length(bound + slope, spread * typical_scale(drawn), setup.task.size, kind, mapped)

    def check(self, setup: Setup) -> None:
        """Refuse what does not go together."""
        if setup.task.regulariser[0] > 0:
            raise BadInput("problem.l1", setup.task.regulariser[0], "0: these steps need a smooth regulariser")
        if self.pressing != PLAIN and self.constraint is None:
            right = "a table [algorithm.constraint] with kind, cost, budget"
            raise BadInput("algorithm.constraint", "(missing)", right)
        if self.constraint is not None:
            self.constraint.check(self.mapped(setup.task.size))


@dataclass(frozen=True)
class SaddleStep(MirrorStep):
    """A mirror step within a long-term budget, by a multiplier: chapter 3, the saddle point of (3.2)."""

    pressing: ClassVar[int] = SADDLE


@dataclass(frozen=True)
class QueueStep(MirrorStep):
    """A mirror step within a long-term budget, by a virtual queue: chapter 4, with V = `caution` sqrt(t)."""

    pressing: ClassVar[int] = QUEUE
