"""NFL, NPFL and NPFL-RL: peers that learn for their cluster, and how much to borrow from others.

Gauthier, thesis, chapter 6. `npfl_nodes` has what a peer does. Training and validation data are kept apart, and no
peer sees test data: tau is learned on the last part of each peer's samples, which its model never learns from.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from archipel.algorithms import npfl_nodes as nodes
from archipel.algorithms.local import factorised
from archipel.algorithms.npfl_discovery import discovering
from archipel.algorithms.zcdp_nfl import priced
from archipel.errors import BadInput, did_you_mean
from archipel.privacy.policy import Guard
from archipel.problems.clustered import segments
from archipel.problems.losses.supervised import SQUARED
from archipel.problems.scoring.deviation import deviations
from archipel.problems.splits.shards import Shards
from archipel.turns import Plan, Setup, Turn

DEFAULT_RIDGE = 0.01  # lambda, which the thesis does not give
POLICIES = {"fixed": nodes.FIXED, "dpg": nodes.GRADIENT, "sac": nodes.ACTOR}
RATES = {"fixed": 0.0, "dpg": 0.001, "sac": 0.1}  # of section 6.3
BATCH_RATES = {"fixed": 0.0, "dpg": 0.003, "sac": 0.04}  # the same with 3 epochs


@dataclass(frozen=True)
class Npfl:
    """Peers agree with the neighbours of their cluster and borrow `tau` from those of other clusters.

    The last share `validation` of each peer's samples is not learned from. `regularisation` is lambda: a peer carries
    lambda / |C_(q)| of it; where it is not given it is the problem's, or 0.01.

    With clusters = "discover" in the topology peers look every `look` rounds who belongs together, for at most
    `most` clusters; `curvature` is how much a peer's loss bends (0: as it does on inputs of variance one).
    """

    topologies: ClassVar = ("peers",)
    precision: ClassVar = "float64"
    data_kind: ClassVar = "stored"
    no_delays: ClassVar = True

    penalty: float = 3.0
    tau: float = 0.05
    regularisation: float | None = None
    validation: float = 0.0
    look: int = 20
    most: int = 6
    curvature: float = 0.0

    def clusters(self, setup: Setup) -> tuple[Any, int]:
        """The cluster of each peer, and how many there are."""
        return setup.graph.cluster, setup.graph.clusters or self.most

    def discovers(self, setup: Setup) -> bool:
        """Whether clusters are to be found."""
        return bool(setup.graph.clusters == 0)

    def learning(self) -> tuple[int, float, float, int]:
        """What learns tau, its rate, its range and its epochs: nothing does."""
        return nodes.FIXED, 0.0, 0.0, 0

    def check_fields(self, setup: Setup) -> None:
        """Refuse numbers that make no sense."""
        if not 0 < self.penalty < np.inf:
            raise BadInput("algorithm.penalty", self.penalty, "a positive number")
        if not 0 <= self.tau <= 1:
            raise BadInput("algorithm.tau", self.tau, "a share from 0 to 1")
        if self.regularisation is not None and not 0 < self.regularisation < np.inf:
            raise BadInput("algorithm.regularisation", self.regularisation, "a positive number")
        if not 0 <= self.curvature < np.inf:
            raise BadInput("algorithm.curvature", self.curvature, "a number of 0 or more")
        if not 0 <= self.validation < 1:
            raise BadInput("algorithm.validation", self.validation, "a share of each peer's samples, below 1")
        if setup.task.loss != SQUARED:
            raise BadInput("problem.loss", setup.task.loss, '"squared": the thesis derives these steps for ridge only')

    def plan(self, setup: Setup) -> Plan:
        """Peers at zero, and their one turn."""
        self.check_fields(setup)
        task = setup.task
        cluster, count = self.clusters(setup)
        train, cut, change = held_back(setup, self.validation)
        degree = alike(setup.graph, cluster)
        lenders = around(setup.graph, cluster, count)
        weight = self.weights(setup, cluster)
        noise, reach, accountant = self.priced(setup, train, degree, weight)
        guard = guard_of(setup)
        data = factorised(train, task, guard.features, guard.target)
        settings = nodes.Settings(
            self.penalty, *self.learning(), change, int(setup.privacy is not None), noise.law, noise.shape
        )
        column, whole = np.ones((task.clients, 1)), np.zeros((task.clients, 1), np.int64)
        fields = [np.zeros((task.clients, task.size)) for _ in range(5)]
        fields += [self.tau * column, lenders[:, None], degree[:, None], cluster[:, None].copy(), weight[:, None], cut]
        fields += [reach, noise.first, 0 * column, 0 * column, np.minimum(noise.limit, np.finfo(float).max), whole]
        peers = nodes.Peer(*(fields + list(data)))
        cube = np.zeros((count, task.size))
        word = nodes.Word(np.zeros(task.size), np.zeros(1, np.uint8))
        inbox = nodes.Around(cube, np.zeros(count, np.int64))
        turn = Turn("peer", "peer", nodes.act, nodes.hear, nodes.merge, word, inbox)
        measure = self.measuring(setup, train, cluster, count, weight, change)
        plan = Plan({"peer": peers}, (turn,), settings, {0: task.size}, measure=measure, accountant=accountant)
        return discovering(plan, setup, self, self.strength(setup)) if self.discovers(setup) else plan

    def strength(self, setup: Setup) -> float:
        """lambda."""
        l1, l2 = setup.task.regulariser
        if l1 > 0:
            raise BadInput("problem.l1", l1, "0: the steps of NPFL are those of ridge regression")
        return self.regularisation if self.regularisation is not None else (l2 or DEFAULT_RIDGE)

    def weights(self, setup: Setup, cluster: Any) -> Any:
        """lambda / |C_(q)| of each peer."""
        return self.strength(setup) / np.bincount(cluster)[cluster]

    def priced(self, setup: Setup, train: list[Shards], degree: Any, weight: Any) -> tuple[Any, Any, Any]:
        """The noise, each peer's sensitivity (2 C / (D_k weight): (6.5) is strongly convex), and the accountant."""
        convexity = 2 * (weight + self.penalty * degree)
        if setup.privacy is not None and (len(train) > 1 or self.validation > 0):
            right = "0: validation data, and data that change, are not counted in privacy here"
            raise BadInput("algorithm.validation", self.validation, right)
        noise, change, accountant = priced(setup.privacy, setup, convexity[:, None])
        return noise, (change / convexity)[:, None], accountant

    def measuring(self, setup: Setup, train: list[Shards], cluster: Any, count: int, weight: Any, change: int) -> Any:
        """How far peers are from their cluster's centralised solution; and every peer's tau."""
        from archipel.theory.pgfl import centralised

        optima: list[Any] = []

        def measure(tables: dict[str, Any], round: int) -> dict[str, Any]:
            if not optima:
                optima.extend(centralised(part, SQUARED, weight, cluster, count) for part in train)
            best = optima[-1 if round > change else 0]
            each = deviations(tables["peer"].model, best[cluster])
            tau = tables["peer"].tau[:, 0]
            return {"deviation": float(each.mean()), "tau": float(tau.mean()), "tau.node": tau.copy()}

        return measure

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned."""
        return {"clients": tables["peer"].model, "clusters": tables["peer"].cluster[:, 0]}

    def check(self, setup: Setup) -> dict[str, float]:
        """Refuse what would go wrong before anything runs."""
        self.check_fields(setup)
        return {}


@dataclass(frozen=True)
class Nfl(Npfl):
    """One model for the whole network, whatever the clusters."""

    tau: float = 0.0

    def clusters(self, setup: Setup) -> tuple[Any, int]:
        """Everyone is in one."""
        return np.zeros(setup.task.clients, np.int64), 1

    def discovers(self, setup: Setup) -> bool:
        """There is nothing to find."""
        return False


@dataclass(frozen=True)
class NpflRl(Npfl):
    """Every peer learns its own tau while it trains, on validation data: by `policy` "dpg" (6.13) or "sac" (6.14).

    `epochs` = 3 is the batch form. Where `rate` is not given it is the thesis'. Under privacy this is refused: tau
    depends on validation data, so that everything a peer says afterwards would be a release of them as well.
    """

    policy: str = "sac"
    rate: float | None = None
    range: float = 0.05
    epochs: int = 1
    validation: float = 0.5

    def learning(self) -> tuple[int, float, float, int]:
        """The policy, its rate, its range and its epochs."""
        rates = RATES if self.epochs == 1 else BATCH_RATES
        rate = self.rate if self.rate is not None else rates[self.policy]
        return POLICIES[self.policy], rate, self.range, self.epochs

    def check_fields(self, setup: Setup) -> None:
        """As for NPFL, and what learns tau."""
        if self.policy not in POLICIES:
            raise BadInput("algorithm.policy", self.policy, did_you_mean(self.policy, POLICIES))
        if self.rate is not None and not 0 <= self.rate < np.inf:
            raise BadInput("algorithm.rate", self.rate, "a learning rate of 0 or more")
        if not 0 < self.range <= 1:
            raise BadInput("algorithm.range", self.range, "the width of an actor's actions, above 0, at most 1")
        if self.epochs < 1:
            raise BadInput("algorithm.epochs", self.epochs, "at least one action a round")
        super().check_fields(setup)
        if setup.privacy is not None:
            right = "no privacy table: tau looks at validation data, which would have to be paid for in every release"
            raise BadInput("privacy", "(a table)", right)
        _, cut, _ = held_back(setup, self.validation)
        sizes = np.stack([part.sizes for part in segments(setup.task)[0]], 1)
        if np.any(cut >= sizes):
            who = int(np.argmax(np.any(cut >= sizes, 1)))
            right = f"a share that leaves every peer validation data (peer {who} has {sizes[who].min()} samples)"
            raise BadInput("algorithm.validation", self.validation, right)


# --- parts --------------------------------------------------------------------------------------------------


def held_back(setup: Setup, share: float) -> tuple[list[Shards], Any, int]:
    """What peers learn from in each segment, its sizes (peers, segments), and when the second segment begins."""
    parts, change = segments(setup.task)
    cuts = [np.maximum(part.sizes - np.floor(share * part.sizes).astype(np.int64), 1) for part in parts]
    train = []
    for part, cut in zip(parts, cuts):
        place = np.arange(len(part.y)) - part.starts[part.owner]
        train.append(part.keep(place < cut[part.owner]))
    return train, np.stack(cuts, 1), change


def alike(graph: Any, cluster: Any) -> Any:
    """How many neighbours of its own cluster each peer has."""
    links = graph.links()
    same = cluster[links.receivers] == cluster[links.senders]
    return np.bincount(links.receivers[same], minlength=len(cluster))


def around(graph: Any, cluster: Any, count: int) -> Any:
    """How many other clusters are around each peer."""
    links = graph.links()
    near = np.zeros((len(cluster), count), bool)
    near[links.receivers, cluster[links.senders]] = True
    near[np.arange(len(cluster)), cluster] = False
    return near.sum(1)


def guard_of(setup: Setup) -> Guard:
    """What is enforced on the data. A minimiser's gradients cannot be clipped, and its model is not kept in a ball."""
    if setup.privacy is None:
        return Guard()
    guard = setup.privacy.guard()
    if guard.clip < np.inf or guard.radius < np.inf:
        right = "enforce = false: the steps of NPFL are minimisers, whose gradients cannot be clipped"
        raise BadInput("privacy.enforce", True, right)
    return guard
