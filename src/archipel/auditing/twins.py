"""Does a federation keep what its ledger says? A small twin of it is run many times on two neighbouring data sets.

The twin has the federation's algorithm and privacy table, two clients and a small model. What the clients say over all
rounds is what an adversary sees; how well two data sets of the first client can be told apart by it gives a lower bound
on its epsilon (see `privacy.audit`). For a guarantee that is enforced it must not exceed the ledger's.

Three pairs are tried: the worst case, a typical one, and where clients may be away or late the worst case in that
environment, in which a client may learn long before it is heard. In none of them does anybody lie.

Many runs are played at once: copies of the twin side by side in one instance, each with its own draws.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from archipel.algorithms.online import PaoFed
from archipel.environment import Attack, Conditions, Environment
from archipel.errors import BadInput
from archipel.federation import Federation
from archipel.node import mapped, named_leaves
from archipel.parts.learn.mirror import Geometry
from archipel.parts.protect.in_turn import InTurn
from archipel.privacy.accountant import account_of
from archipel.privacy.audit import CONFIDENCE, audit, gaussian_audit
from archipel.privacy.coding import centred
from archipel.privacy.policy import Privacy, Range
from archipel.problems.losses.online import ONLINE_LOSSES
from archipel.problems.losses.supervised import LOGISTIC, LOSSES
from archipel.problems.measured import UNCHANGED, measured_task
from archipel.problems.splits.shards import Shards, TrainTest, numbered, one
from archipel.problems.stored import by_client
from archipel.problems.task import Problem, Task
from archipel.simulate.engine import compiled
from archipel.simulate.instance import Edges, Instance
from archipel.simulate.plain import PlainEngine
from archipel.simulate.rounds import SILENT, Mail
from archipel.topology import Digraph, Peers, Star

CLIENTS, SIZE, SAMPLES = 2, 4, (2, 6)  # who is looked at has few samples: each of them moves it most
ROUNDS = 12  # of a twin, at most
TWINS = {Star: Star(), Peers: Peers(shape="complete"), Digraph: Digraph(shape="complete")}
FAR = 1e6  # a target so far off that no noise on the model turns the pull around
CHUNK = 100_000  # copies that are played at once
KEPT = ("learn.pressed.multiplier",)  # of mirror descent: a budget's
PER_CLIENT = ("slot", "cluster", "expected")  # settings with a number per client, or per server
ALIKE = 1e-9  # relative: what the ledger rounds

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Neighbours(Problem):
    """Two data sets that differ in one unit of the first client's data: `which` is 0 or 1.

    `worst`: the unit pulls as hard as it can in opposite directions, and nothing else moves: who attacks may know, and
    subtract, what all others do. Otherwise it is replaced by another like it.
    """

    worst: bool
    which: int
    unit: str
    loss: str
    reach: float  # how far beyond all bounds the worst unit lies
    pull: tuple[float, ...]  # and in which direction
    regulariser: tuple[float, ...] = (0.0, 0.0)
    absent: bool = False  # of two neighbours the first has nothing in the place of the unit, not another one

    def task(self, seed: int, rounds: int, dtype: Any, data_kind: str) -> Task:
        """The twin's data: the same for every seed."""
        draw = np.random.default_rng(7)
        sizes = SAMPLES if data_kind != "stream" else (rounds,) * CLIENTS
        each, total = sizes[0], sum(sizes)
        x, y = draw.standard_normal((total, SIZE)) / 2, draw.standard_normal(total) / 2
        other_x, other_y = draw.standard_normal((each, SIZE)) / 2, draw.standard_normal(each) / 2
        changed = slice(0, 1 if self.unit == "sample" else each)
        if self.worst:
            x[:], y[:] = 0.0, 0.0
            way = 1 if self.which else -1
            x[changed], y[changed] = self.reach * np.array(self.pull), FAR * way
            if self.loss not in LOSSES:  # the sample itself is a slope or a point
                x[changed] *= FAR * way
        elif self.which:
            x[changed], y[changed] = other_x[changed], other_y[changed]
        if self.absent and not self.which:
            x[changed], y[changed] = 0.0, 0.0
        code = ONLINE_LOSSES[self.loss]
        if code == LOGISTIC:
            y = np.where(y > 0, 1.0, -1.0)
        data = Shards(x, y, np.cumsum((0, *sizes)), numbered(CLIENTS))
        split = TrainTest(data, one(x[:1], y[:1]), UNCHANGED, UNCHANGED)
        task = measured_task(
            split, 0, 1.0, self.loss if self.loss in LOSSES else "squared", seed, rounds, dtype, data_kind
        )
        return task._replace(loss=code, regulariser=(self.regulariser[0], self.regulariser[1]))


class Verdict(NamedTuple):
    """What an audit of one pair of neighbours found."""

    pair: str
    claimed: float  # epsilon by the ledger
    found: float  # epsilon is at least this
    delta: float
    confidence: float
    guarantee: str  # enforced or assumed
    test: str
    releases: int  # runs on each data set

    @property
    def refuted(self) -> bool:
        """Whether the ledger's claim is false."""
        return self.found > self.claimed * (1 + ALIKE)


def examine(
    federation: Federation,
    releases: int = 200_000,
    rounds: int = 0,
    engine: str = "compiled",
    progress: Progress | None = None,
) -> list[Verdict]:
    """Audit a federation with several pairs of neighbours, `releases` runs on each data set.

    A run has as many rounds as the federation, 12 at most, or `rounds`.
    """
    return list(examined(federation, releases, rounds, engine, progress))


def examined(
    federation: Federation,
    releases: int = 200_000,
    rounds: int = 0,
    engine: str = "compiled",
    progress: Progress | None = None,
) -> Iterator[Verdict]:
    """The same, pair by pair: who has seen one refuted need not wait for the others."""
    rounds = rounds or min(federation.rounds, ROUNDS)
    if federation.privacy is None:
        raise BadInput("privacy", "(missing)", "a [privacy] table: without one there is no claim to audit")
    rough = replace(federation.environment, groups=(), replay="", attack=Attack())  # lies are made of what was said
    pairs = {"worst case": (True, Environment()), "typical": (False, Environment())}
    if rough != Environment():
        pairs["worst case, in its environment"] = (True, rough)
    done = 0
    for i, (pair, (worst, environment)) in enumerate(pairs.items()):
        twins = [twin_of(federation, worst, which, rounds, environment) for which in (0, 1)]
        seen, claims = [], []
        for which, twin in enumerate(twins):
            noted = (lambda n, at=done: progress(at + n, 2 * len(pairs) * releases, "")) if progress else None
            own = 1_000_003 * (6 * federation.seed + 2 * i + which)  # draws of its own
            transcripts, claimed = watched(twin, releases, own, engine, noted)
            seen.append(transcripts)
            claims.append(claimed)
            done += releases
        yield judged(pair, federation, seen, max(claims))


def judged(pair: str, federation: Federation, seen: list[Any], claimed: float) -> Verdict:
    """The lower bound that two sets of transcripts give; the guarantee is the federation's, not its twin's."""
    policy = federation.privacy
    test = gaussian_audit if policy.mechanism == "gaussian" else audit
    finding = test(seen[0], seen[1], policy.delta, CONFIDENCE)
    how = federation.instance().plan.accountant.terms.how
    return Verdict(pair, claimed, finding.epsilon, policy.delta, CONFIDENCE, how, finding.test, len(seen[0]))


def twin_of(
    federation: Federation, worst: bool, which: int, rounds: int, environment: Environment | None = None
) -> Federation:
    """A small federation with the same algorithm and privacy table, on one of two neighbouring data sets."""
    policy, algorithm = federation.privacy, federation.algorithm
    if federation.topology.__class__ not in TWINS:
        right = "star or peers, or a digraph, for an audit"
        raise BadInput("topology.kind", type(federation.topology).__name__.lower(), right)
    if algorithm.data_kind == "deep":
        raise BadInput("audit", "of a twin", "--one-run: a twin is a linear model, and this learns a network")
    task = federation.setup().task
    loss = next(name for name, code in ONLINE_LOSSES.items() if code == task.loss)
    finite = policy.clip if np.isfinite(policy.clip) else policy.bounds.features
    reach = 10 * max(finite if np.isfinite(finite) else 1.0, 1.0)
    # Laplace noise hides a change of one value worst; with Gaussian noise any direction will do, so one in all portions
    pull = tuple(np.eye(SIZE)[0] if policy.order == 1 else np.full(SIZE, SIZE**-0.5))
    shared = tuple(CLIENTS / task.clients * part for part in task.regulariser)  # a client's share is the same
    absent = federation.instance().plan.trusted and policy.relation == "add-remove"  # who changes nothing is not there
    if isinstance(algorithm.protect, InTurn):
        own = algorithm.protect
        two = replace(own, every=min(own.every, CLIENTS), bands=min(own.bands, CLIENTS))
        algorithm = replace(algorithm, protect=two)
    if isinstance(algorithm, PaoFed):
        algorithm = replace(algorithm, portion=min(algorithm.portion, SIZE), ignore=min(algorithm.ignore, SIZE - 1))
    if isinstance(algorithm, Geometry):
        algorithm = algorithm.for_size(SIZE)
    return Federation(
        Neighbours(worst, which, policy.unit, loss, reach, pull, shared, absent),
        algorithm,
        TWINS[federation.topology.__class__],
        environment or Environment(),
        one_policy(policy),
        rounds=rounds,
        precision=federation.precision,
    )


def one_policy(policy: Privacy) -> Privacy:
    """The same table for two clients: of different budgets the largest, of different noises the least."""
    epsilon, rho = one_of(max, policy.epsilon), one_of(max, policy.rho)
    return replace(policy, epsilon=epsilon, rho=rho, noise=one_of(min, policy.noise))


def one_of(choose: Callable[..., float], amount: Any) -> float | None:
    """The largest or the least number of an amount, or of the ends of its range."""
    if amount is None:
        return None
    if isinstance(amount, Range):
        return float(choose(amount.low, amount.high))
    return float(choose(amount.values() if isinstance(amount, dict) else np.atleast_1d(amount).tolist()))


# --- many runs at once ----------------------------------------------------------------------------------------------


def watched(
    twin: Federation, runs: int, seed: int, engine: str, note: Callable[[int], None] | None
) -> tuple[Any, float]:
    """(runs, what was said in all rounds), and the epsilon that the first client's ledger claims."""
    instance, parts, claimed = twin.instance(), [], 0.0
    if instance.plan.plain_only:
        raise BadInput("algorithm.kind", type(twin.algorithm).__name__, "one whose node functions can be compiled")
    turn = next(i for i, t in enumerate(instance.plan.turns) if t.sender == instance.data_role)
    for begun in range(0, runs, CHUNK):
        copies = min(CHUNK, runs - begun)
        many = tiled(instance, copies)._replace(seed=seed + begun // CHUNK)
        player: Any = PlainEngine(many) if engine == "plain" else compiled(many, step_by_step=True)
        said = []
        for n in range(twin.rounds):
            player.advance(n, n + 1)
            if instance.plan.trusted:  # nobody sees a word but who noises their sum
                said.append(many.plan.tables["server"].model.reshape(copies, -1).copy())
                continue
            said.append(spoken(player.rounds.mails[turn], copies, instance.task.size, instance.plan.masks))
            said += kept(many.plan.tables[instance.data_role], copies)
        parts.append(np.concatenate(said, 1))
        claimed = max(claimed, claim(instance, many.plan.tables))
        if note:
            note(begun + copies)
    return np.concatenate(parts), claimed


def claim(instance: Instance, tables: dict[str, Any]) -> float:
    """The epsilon of the first clients' ledgers, or of their server's, at most."""
    role = instance.plan.accountant.role
    table, apart = tables[role], 1 if role == "server" else CLIENTS
    dearest = apart * int(np.argmax(account_of(table).spent[::apart, 0]))
    mine = mapped(lambda column: column[dearest : dearest + 1], table)
    return float(instance.plan.accountant.paid({role: mine}).epsilon[0])


def kept(table: Any, copies: int) -> list[Any]:
    """What nodes keep that is promised to be computed from noised values: it decides what they say for ever after."""
    return [column.reshape(copies, -1).copy() for name, column in named_leaves(table) if name in KEPT]


def spoken(mail: Mail, copies: int, size: int, masks: Any = None) -> Any:
    """What the clients of every copy said: whole models, portions at their place, zeros where one was silent.

    Where words are masked, their sum, which is all that anyone sees; zeros where they are too few for one.
    """
    nodes, words = copies * CLIENTS, dict(named_leaves(mail.words))
    if masks is not None:
        words = {"values": words["values"]}  # further noise is in no sum of all
    if "start" in words:
        places = (words["start"] + np.arange(words["values"].shape[1])) % size
        out = np.zeros((nodes, size))
        np.put_along_axis(out, places.astype(np.int64), words["values"].astype(float), 1)
    else:
        out = np.concatenate([part.reshape(nodes, -1) for part in words.values()], 1).astype(float)
    out = np.where((mail.lates != SILENT)[:, None], out, 0.0).reshape(copies, -1)
    if masks is None:
        return out
    enough = (mail.lates != SILENT).reshape(copies, CLIENTS).sum(1) >= masks.needed
    total = out.reshape(copies, CLIENTS, -1).sum(1) % masks.prime
    return np.where(enough[:, None], centred(total, masks.prime), 0.0)


def tiled(instance: Instance, copies: int) -> Instance:
    """Many copies of an instance side by side, as one: nodes r K to r K + K - 1 are those of copy r."""
    plan, task = instance.plan, instance.task
    tables = {role: mapped(partial(repeated, copies=copies), t) for role, t in plan.tables.items()}
    source = by_client(task.source)._asdict()
    for name, array in source.items():
        if name in ("x", "y") or (name not in ("starts", "horizon", "layout") and len(array) == task.clients):
            source[name] = repeated(array, copies)
    source["starts"] = chained(source["starts"], copies)
    links = {
        way: tuple(copied(edges, copies, instance.count(way[0])) for edges in phases)
        for way, phases in instance.links.items()
        if way[0] in tables and way[1] in tables
    }
    return instance._replace(
        plan=plan._replace(tables=tables, settings=for_all(plan.settings, copies)),
        task=task._replace(source=type(task.source)(**source), clients=task.clients * copies),
        links=links,
        conditions=spread_out(instance.conditions, copies),
    )


def for_all(settings: Any, copies: int) -> Any:
    """Settings that have a number per client, for every copy's clients: an index must not leave its array."""
    parts = settings._asdict()
    for name, part in parts.items():
        if isinstance(part, tuple):
            parts[name] = for_all(part, copies)
        elif name in PER_CLIENT:
            parts[name] = repeated(part, copies)
    return type(settings)(**parts)


def spread_out(conditions: Conditions, copies: int) -> Conditions:
    """The same conditions for every copy."""
    return conditions._replace(
        chance=np.tile(conditions.chance, (1, copies)),
        law=np.tile(conditions.law, copies),
        broken=np.tile(conditions.broken, (copies, 1)),
        recorded=np.tile(conditions.recorded, (1, copies)),
    )


def repeated(array: Any, copies: int) -> Any:
    """The rows, again and again."""
    return np.tile(array, (copies,) + (1,) * (array.ndim - 1))


def chained(starts: Any, copies: int) -> Any:
    """Where rows begin, in as many copies one after the other."""
    total = starts[-1]
    return np.append((starts[:-1] + total * np.arange(copies)[:, None]).ravel(), total * copies).astype(starts.dtype)


def copied(edges: Edges, copies: int, senders: int) -> Edges:
    """The same links among every copy's nodes."""
    shifted = (edges.senders + senders * np.arange(copies)[:, None]).ravel()
    return Edges(
        chained(edges.starts, copies),
        shifted.astype(edges.senders.dtype),
        np.tile(edges.weights, copies),
        np.tile(edges.fan_out, copies),
    )
