"""An audit of the federation itself, in one run: canaries among its data, each in or out by the toss of a coin.

The auditor sees what the protocol shows an adversary, every word of every round, knows all data but the tosses, and
guesses them (`privacy.one_run`). Next to `twins`, which runs a small twin many times, it plays the real thing once:
its data, its model, all its rounds. For the kinds that train by batches, deep or linear:

| kind | a canary is | and is looked for in |
|---|---|---|
| `pldp-fl`, `mirror-deep` | a record of noise with a label at random, in a client's data | the client's noised steps |
| `dp-fedavg-deep` | a client whose update is a direction of its own, as long as the clip | every round's noised sum |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from archipel.algorithms.deep import DpFedAvgDeep, MirrorDeep
from archipel.algorithms.pldp_fl import PldpFl
from archipel.auditing.twins import Verdict
from archipel.draws import key_of, uniform
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.parts.mix.push_whole import Mass
from archipel.privacy.one_run import best_count, gaussian_epsilon, guessed
from archipel.problems.models.learners import Batch, Linear
from archipel.problems.task import Problem, Task
from archipel.registry import kind_of
from archipel.simulate.plain import PlainEngine

CONFIDENCE = 0.999  # of a bound: at 95 % one honest audit of twenty would accuse
PURPOSE = 33  # of the draws that ask a canary client

Note = Callable[[int], None] | None


class Step(NamedTuple):
    """A noised step that an adversary sees: the sum over a batch is `scale` times what the model changed by."""

    scale: float
    rate: float  # the chance of a record to be in a batch
    deviation: float  # of the noise on a sum
    steps: int  # such sums that are in the step


def examine_once(
    federation: Federation, canaries: int = 1000, confidence: float = CONFIDENCE, note: Note = None
) -> Verdict:
    """Audit a federation in one run of it."""
    ways: dict[type, Any] = {PldpFl: records, MirrorDeep: records, DpFedAvgDeep: clients}
    way = ways.get(type(federation.algorithm))
    if way is None:
        kinds = ", ".join(kind_of(kind()) for kind in ways)
        right = f"one of {kinds} for an audit in one run; the others are audited by their twin, without --one-run"
        raise BadInput("algorithm.kind", kind_of(federation.algorithm), right)
    if not 50 <= canaries <= 100_000:
        raise BadInput("audit.canaries", canaries, "50 to 100,000")
    scores, included, plan = way(federation, canaries, note)
    accountant, risk = plan.accountant, 1 - confidence
    claimed, delta = float(accountant.paid(plan.tables).epsilon.max()), accountant.delta
    count = best_count(canaries, claimed, delta, risk)
    found = guessed(scores, included, count)
    test = f"one run, {found.right} of {found.made} guesses right, as of Gaussian noise"
    epsilon = gaussian_epsilon(found, delta, risk)
    return Verdict("canaries", claimed, epsilon, delta, confidence, accountant.terms.how, test, canaries)


# --- records ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted(Problem):
    """A problem with canaries after each client's own records: those that are in, or where replaced, one of two."""

    problem: Any
    canaries: int
    replaced: bool
    included: tuple[bool, ...]

    def __getattr__(self, name: str) -> Any:  # everything else is the problem's
        return getattr(object.__getattribute__(self, "problem"), name)

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """The problem's task, its data with canaries among them."""
        task = self.problem.task(seed, rounds, dtype, data_kind)
        rows, (x, y) = self.dealt(task), both(task.source, self.canaries, seed)
        source, parts, starts = task.source, [], [0]
        for k in range(task.clients):
            own = slice(int(source.starts[k]), int(source.starts[k + 1]))
            chosen = [i for i in rows[k] if self.included[i]]
            chosen += [self.canaries + i for i in rows[k] if self.replaced and not self.included[i]]
            parts.append((source.x[own], source.y[own], x[chosen], y[chosen]))
            starts.append(starts[-1] + own.stop - own.start + len(chosen))
        joined = [joined_rows([part for p in parts for part in p[at::2]]) for at in (0, 1)]
        return task._replace(source=source._replace(x=joined[0], y=joined[1], starts=np.array(starts)))

    def dealt(self, task: Task) -> list[Any]:
        """Whose canaries are whose."""
        return [np.arange(k, self.canaries, task.clients) for k in range(task.clients)]


def joined_rows(parts: list[Any]) -> Any:
    """Rows one after the other, of tensors as of arrays."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(parts)


def both(source: Any, canaries: int, seed: int) -> tuple[Any, Any]:
    """Two records per canary that no data has: inputs drawn anew value by value, targets of others at random."""
    draw, count = np.random.default_rng([seed, 77]), 2 * canaries
    shape, low, high = (count, *source.x.shape[1:]), float(source.x.min()), float(source.x.max())
    x = np.where(draw.random(shape) < 0.5, low, high)
    y = source.y[draw.integers(0, len(source.y), count)]
    if isinstance(source.x, np.ndarray):
        return x.astype(source.x.dtype), y
    import torch

    return torch.from_numpy(x).to(source.x.dtype), y


def records(federation: Federation, canaries: int, note: Note) -> tuple[Any, Any, Any]:
    """Scores of canary records, which are in, and the plan after the run."""
    algorithm, seed = federation.algorithm, federation.seed
    included = np.random.default_rng([seed, 78]).random(canaries) < 0.5
    replaced = isinstance(algorithm, PldpFl) and algorithm.relation == "replace-one"
    planted = Planted(federation.problem, canaries, replaced, tuple(included.tolist()))
    bare = federation.setup().task
    instance = replace(federation, problem=planted).instance()
    seen: list[tuple[int, int, Any, Any]] = []  # round, client, its model before and after a step that was shown
    (at, turn), settings = spoken_turn(instance), instance.plan.settings

    def watched(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> bool:
        before, weight = me.model.copy(), float(me.mix.mass[0]) if isinstance(me.mix, Mass) else 1.0
        told = turn.act(me, data, said, settings, moment)
        if told:
            seen.append((moment.round, moment.node, before, (me.model.astype(float) - before) * weight))
        return told

    # one client after the other, so that each is seen
    played(instance, at, turn._replace(act=watched, side_by_side=None), federation.rounds, note)
    x, y = both(bare.source, canaries, seed)
    scores, owned = np.zeros(canaries), planted.dealt(bare)
    look = Look(settings.learn.learner, settings.protect.clip, norm_of(algorithm), replaced, canaries, x, y)
    for n, k, before, change in seen:
        step = step_of(algorithm, settings, n, k, instance)
        own = slice(int(bare.source.starts[k]), int(bare.source.starts[k + 1]))
        scores[owned[k]] += scored(look, owned[k], before, change, step, bare.source.x[own], bare.source.y[own])
    return scores, included, instance.plan


def spoken_turn(instance: Any) -> tuple[int, Any]:
    """The turn in which those with data speak."""
    return next((i, t) for i, t in enumerate(instance.plan.turns) if t.sender == instance.data_role)


def played(instance: Any, at: int, turn: Any, rounds: int, note: Note) -> None:
    """All rounds, with another turn in the place of one."""
    turns = [*instance.plan.turns[:at], turn, *instance.plan.turns[at + 1 :]]
    engine = PlainEngine(instance._replace(plan=instance.plan._replace(turns=tuple(turns))))
    for n in range(rounds):
        engine.advance(n, n + 1)
        if note:
            note(n + 1)


def norm_of(algorithm: Any) -> int:
    return 1 if isinstance(algorithm, MirrorDeep) and algorithm.noise == "laplace" else 2


def step_of(algorithm: Any, settings: Any, n: int, k: int, instance: Any) -> Step:
    """How a step was made, which is public."""
    learn, mine = settings.learn, instance.plan.tables[instance.data_role].protect
    if isinstance(algorithm, PldpFl):
        rate, mu = float(settings.protect.rates[k]), float(mine.mu[k, 0])
        scale = -float(learn.samples[k]) * rate / learn.step
        return Step(scale, rate, settings.protect.change / mu, learn.local_steps)
    rate = learn.batch / float(learn.samples[k])
    noise = max(float(mine.noise[k, 0]), 1e-9) * (2**0.5 if norm_of(algorithm) == 1 else 1.0)
    return Step(-learn.batch * (n + 1) ** learn.fall / learn.step, rate, noise, 1)


class Look(NamedTuple):
    """What an auditor knows of the canaries."""

    learner: Any
    clip: float
    norm: int
    replaced: bool
    canaries: int
    x: Any
    y: Any


def scored(look: Look, owned: Any, model: Any, change: Any, step: Step, x: Any, y: Any) -> Any:
    """How much each canary of a client shows in its step: the best linear guess of the tosses.

    The sum over batches is that of b_i g_i, and what the client's own records add, and noise. With gradients g as rows
    and tosses of variance 1/4: (r^2 K / 4 + sigma^2 I)^-1 g (sum - its mean), K = g g^T.
    """
    own, way = np.zeros_like(model), clipped_gradients(look, model, owned)
    look.learner.clipped_sum(own, model, Batch(x, y), np.arange(len(y)), look.clip, look.norm)
    if look.replaced:
        other = clipped_gradients(look, model, owned + look.canaries)
        own, way = own + other.sum(0), way - other
    often = step.steps * step.rate
    residual = step.scale * change - often * (own + 0.5 * way.sum(0))
    known = np.linalg.qr(np.stack([own, way.sum(0)], 1).astype(float))[0]  # how much of these is there says nothing
    residual, way = residual - known @ (known.T @ residual), way - (way @ known) @ known.T
    inner = often**2 / 4 * (way @ way.T) + step.steps * step.deviation**2 * np.eye(len(way))
    return often * np.linalg.solve(inner, way @ residual)


def clipped_gradients(look: Look, model: Any, rows: Any) -> Any:
    """(rows, size): each canary's own gradient, clipped."""
    if isinstance(look.learner, Linear):
        found = np.zeros((len(rows), len(model)), model.dtype)
        for out, i in zip(found, rows):
            look.learner.clipped_sum(out, model, Batch(look.x, look.y), np.array([i]), look.clip, look.norm)
        return found.astype(float)
    import torch

    from archipel.problems.models.per_example import NORMS, written_down

    look.learner.bind(model)
    x, y = look.learner.batch(Batch(look.x, look.y), rows)
    gradients, scale = written_down(look.learner, x, y, look.clip, NORMS[look.norm])
    return (torch.cat(gradients, 1) * scale[:, None]).detach().numpy().astype(float)


# --- clients ----------------------------------------------------------------------------------------------------------


def clients(federation: Federation, canaries: int, note: Note) -> tuple[Any, Any, Any]:
    """Scores of canary clients of the first server, which are in, and the plan after the run."""
    instance, seed = federation.instance(), federation.seed
    draw, size = np.random.default_rng([seed, 79]), instance.task.size
    included = draw.random(canaries) < 0.5
    ways = draw.standard_normal((canaries, size))
    ways *= instance.plan.settings.protect.clip / np.linalg.norm(ways, axis=1, keepdims=True)
    scores, (at, turn), made = np.zeros(canaries), spoken_turn(instance), instance.plan.settings
    sigma = float(instance.plan.tables["server"].protect.noise[0, 0])
    inner = made.asked**2 / 4 * (ways @ ways.T) + sigma**2 * np.eye(canaries)
    best = np.linalg.solve(inner, ways)  # the best linear guess of who is in, as in `scored`

    def joined(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """What canary clients say that are in and asked, in secret, is in the sum with all the others."""
        if moment.node > 0:
            turn.merge(me, inbox, settings, moment)
            return
        asked = np.array([uniform(key_of(seed, k, moment.round), PURPOSE) < settings.asked for k in range(canaries)])
        plain, before = inbox.total.astype(float), me.model.astype(float)
        np.add(inbox.total, (included & asked).astype(float) @ ways, out=inbox.total, casting="same_kind")
        turn.merge(me, inbox, settings, moment)
        # the others' updates are known to who knows their data
        seen = (me.model - before) * settings.protect.expected[0] - plain
        np.add(scores, best @ (seen - settings.asked / 2 * ways.sum(0)), out=scores)

    played(instance, at, turn._replace(merge=joined), federation.rounds, note)
    return scores, included, instance.plan
