"""NFL, NPFL and NPFL-RL: peers that learn for their cluster, and how much to borrow from others.

Gauthier, thesis, chapter 6: `parts.learn.tau` and `parts.mix.lent` have what a peer does. Training and validation
data are kept apart, and no peer sees test data: tau is learned on the last part of each peer's samples, which its model
never learns from. Private with `bounds`: a step is the minimiser in a ball, see `parts.learn.solve`; what tau learns
from, and the common model of discovery, are releases that are noised and paid for with it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from archipel.algorithms.zcdp_nfl import exact_stepping
from archipel.describe import key
from archipel.errors import BadInput
from archipel.parts.admm import Admm, consensus_plan, node, settings_of
from archipel.parts.learn import tau as borrowing
from archipel.parts.learn.primal import acting
from archipel.parts.learn.solve import guard_of, solver_of
from archipel.parts.mix import lent, seeking
from archipel.parts.mix.dual import Consensus, degrees_of
from archipel.parts.mix.looking import curvature_of, hops_of
from archipel.parts.mix.mean import Sums
from archipel.parts.protect.told import Priced, pay_for, priced, together
from archipel.privacy.ledger import ENFORCED, Assumption
from archipel.problems.clustered import segments
from archipel.problems.losses.supervised import SQUARED
from archipel.problems.scoring.deviation import deviations
from archipel.problems.splits.shards import Shards
from archipel.turns import Plan, Setup, Turn

DEFAULT_RIDGE = 0.01  # lambda, which the thesis does not give
RATES = {"fixed": 0.0, "dpg": 0.001, "sac": 0.1}  # of section 6.3
BATCH_RATES = {"fixed": 0.0, "dpg": 0.003, "sac": 0.04}  # the same with 3 epochs
BOTH_WAYS = Admm.refuses["digraph"]
AT_SERVERS = "pgfl is that: servers hold the models of clusters, and borrow"


@dataclass(frozen=True)
class Npfl(Admm):
    """Peers agree with the neighbours of their cluster and borrow `tau` from those of other clusters.

    With clusters = "discover" in the topology peers look every `look` rounds who belongs together, for at most `most`
    clusters. A peer carries lambda / |C_(q)| of the regulariser.
    """

    topologies: ClassVar[tuple[str, ...]] = ("peers",)
    refuses: ClassVar[dict[str, str]] = {"star": AT_SERVERS, "servers": AT_SERVERS, "digraph": BOTH_WAYS}

    penalty: float = key(3.0, "how hard neighbours of a cluster pull", above=0, symbol="rho")
    tau: float = key(0.05, "how much is borrowed from other clusters", at_least=0, at_most=1, noun="a share")
    regularisation: float | None = key(None, "lambda; none given: the problem's, or 0.01", above=0, symbol="lambda")
    validation: float = key(0.0, "the last share of each peer's samples, not learned from", at_least=0, below=1)
    look: int = key(20, "rounds between two looks who belongs together, if clusters are to be discovered", at_least=1)
    most: int = key(6, "clusters at most that are discovered", at_least=2, at_most=200)
    curvature: float = key(0.0, "how much a peer's loss bends; 0: as on inputs of variance one", at_least=0)

    def learning(self) -> tuple[str, float, float, int]:
        """What learns tau, its rate, its range and its epochs: nothing does."""
        return "fixed", 0.0, 0.0, 0

    def laid(self, setup: Setup) -> Plan:
        """Peers at zero, and their turns."""
        self.check_problem(setup)
        discovers, task, policy = setup.graph.clusters == 0, setup.task, setup.privacy
        cluster, count = setup.graph.cluster, setup.graph.clusters or self.most
        (kind, rate, reach, epochs), guard = self.learning(), guard_of(setup)
        weight = self.weights(setup, cluster)
        train, cut, change = held_back(setup, self.validation)
        exact = exact_stepping(setup, 2 * weight, train, True)
        solve = solver_of(SQUARED, guard.radius)
        step = borrowing.stepping(
            borrowing.borrowing(solve), borrowing.tau_learner(kind, solve, guard, policy is not None)
        )
        bounds = policy.bounds if policy is not None else guard
        learn = borrowing.Learning(
            change, guard.radius, bounds.features, bounds.target, rate, reach, epochs,
            int(policy is not None and policy.unit == "client"),
        )  # fmt: skip
        mixed, state = Consensus(self.penalty, 0.0, np.ones(1)), lent.lent_state(setup, cluster, count, self.tau)
        learners = borrowing.learner_state(exact.state, cut)
        said = borrowing.reach_of_round if kind != "fixed" else exact.reach
        made = self.priced(setup, cut, state.degree, weight, discovers, epochs)
        table = np.zeros((task.clients, task.size))
        measure = self.measuring(setup, train, cluster, count, weight, change)
        if not discovers:
            act = acting(pay_for(policy, said), step, exact.tell, lent.say, True)
            word = lent.Word(np.zeros(task.size), np.zeros(1, np.uint8))
            inbox = Sums(np.zeros((count, task.size)), np.zeros(count, np.int64))  # by cluster
            turn = Turn("peer", "peer", act, lent.hear, lent.merge, word, inbox)
            tables = {"peer": node(table, learners, made.state, state)}
            settings = settings_of(learn, made.settings, mixed)
            return Plan(tables, (turn,), settings, {0: task.size}, measure=measure, accountant=made.accountant)
        hops = hops_of(self.look, setup.graph.links(), task.clients)
        pay = pay_for(policy, seeking.reach_of_both(said))
        act = acting(pay, seeking.stepping(step, solve), seeking.telling(exact.tell), seeking.say, True)
        sought = seeking.Seeking(
            self.look, hops, curvature_of(self.curvature, task.loss), self.most, self.strength(setup)
        )
        tables = {"peer": node(table, learners, made.state, state, seeking.seekers(setup, self.most))}
        settings = settings_of(learn, made.settings, mixed, sought)
        sizes = {0: 2.0 * task.size, 1: float(task.clients * task.size)}
        turns = seeking.turns(act, setup, self.most)
        return Plan(tables, turns, settings, sizes, measure=taus_only, accountant=made.accountant)

    def check_problem(self, setup: Setup) -> None:
        """Refuse data that the steps are not for."""
        if setup.task.loss != SQUARED:
            raise BadInput("problem.loss", setup.task.loss, '"squared": the thesis derives these steps for ridge only')
        if setup.privacy is not None and len(segments(setup.task)[0]) > 1:
            raise BadInput("problem.change", segments(setup.task)[1], "0: changing data is not counted in privacy")

    def strength(self, setup: Setup) -> float:
        """lambda."""
        l1, l2 = setup.task.regulariser
        if l1 > 0:
            raise BadInput("problem.l1", l1, "0: the steps of NPFL are those of ridge regression")
        return self.regularisation if self.regularisation is not None else (l2 or DEFAULT_RIDGE)

    def weights(self, setup: Setup, cluster: Any) -> Any:
        """lambda / |C_(q)| of each peer."""
        return self.strength(setup) / np.bincount(cluster)[cluster]

    def priced(self, setup: Setup, cut: Any, degree: Any, weight: Any, discovers: bool, epochs: int) -> Priced:
        """Noise and accounts: (6.5) is strongly convex. Of discovery the worst is a peer alone in its cluster."""
        law = setup.privacy.law if setup.privacy is not None else 0
        own = 1 / (2 * (weight + self.penalty * degree[:, 0]))
        common: tuple[Any, ...] = ()
        worst, further = None, []
        if discovers:
            ridge = self.strength(setup)
            shared = ridge / setup.task.clients + seeking.COMMON_PENALTY * degrees_of(setup.graph)
            common = (1 / (2 * shared),)
            alone = np.full(len(own), setup.task.clients / (2 * ridge))
            worst = together(law, (*[alone] * (1 + epochs), *common))[:, None]
            further.append(Assumption("the common model is a release too, noised and paid for", ENFORCED))
        if epochs:
            further.append(Assumption("what tau learns from is noised and paid for", ENFORCED))
        reaches = together(law, (*[own] * (1 + epochs), *common))[:, None]
        return priced(setup.privacy, setup, reaches, cut.min(1), worst, tuple(further))

    def measuring(self, setup: Setup, train: list[Shards], cluster: Any, count: int, weight: Any, change: int) -> Any:
        """How far peers are from their cluster's centralised solution; and every peer's tau."""
        from archipel.theory.pgfl import centralised

        optima: list[Any] = []

        def measure(tables: dict[str, Any], round: int) -> dict[str, Any]:
            if not optima:
                optima.extend(centralised(part, SQUARED, weight, cluster, count) for part in train)
            best = optima[-1 if round > change else 0]
            each = deviations(next(iter(tables.values())).model, best[cluster])
            return {"deviation": float(each.mean()), **taus_only(tables, round)}

        return measure

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned."""
        return {"clients": tables["peer"].model, "clusters": tables["peer"].mix.cluster[:, 0]}

    def check(self, setup: Setup) -> dict[str, float]:
        """Refuse what would go wrong before anything runs."""
        self.check_problem(setup)
        return {}


@dataclass(frozen=True)
class Nfl(Npfl):
    """One model for the whole network, whatever the clusters: P-ADMM, with the regulariser of NPFL."""

    topologies: ClassVar[tuple[str, ...]] = Admm.topologies
    refuses: ClassVar[dict[str, str]] = Admm.refuses

    tau: float = key(0.0, "not used: there is no other cluster", at_least=0, at_most=1)

    def laid(self, setup: Setup) -> Plan:
        """Everyone at zero, and the turns of the topology."""
        self.check_problem(setup)
        everyone = np.zeros(setup.task.clients, np.int64)
        weight, (train, cut, change) = self.weights(setup, everyone), held_back(setup, self.validation)
        made = self.priced(setup, cut, degrees_of(setup.graph)[:, None], weight, False, 0)
        plan = consensus_plan(setup, exact_stepping(setup, 2 * weight, train, True), made, self.penalty)
        return plan._replace(measure=self.measuring(setup, train, everyone, 1, weight, change))

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned: everyone's, of one cluster."""
        found = Admm.models(self, tables)
        return found | {"clusters": np.zeros(len(found["clients"]), np.int64)}


@dataclass(frozen=True)
class NpflRl(Npfl):
    """Every peer learns its own tau while it trains, on validation data: by `policy` "dpg" (6.13) or "sac" (6.14).

    `epochs` = 3 is the batch form. Under privacy what tau learns from is noised, and a round costs `epochs` releases
    more; the gradient of "dpg" is then taken by differences over `range`.
    """

    policy: str = key("sac", "what learns tau", choices=tuple(RATES))
    rate: float | None = key(None, "how fast tau learns; none given: the thesis'", at_least=0, symbol="delta")
    range: float = key(0.05, "the width of an actor's actions", above=0, at_most=1, symbol="nu")
    epochs: int = key(1, "actions a round", at_least=1, at_most=1_000_000)
    validation: float = key(0.5, "the last share of each peer's samples, not learned from", at_least=0, below=1)

    def learning(self) -> tuple[str, float, float, int]:
        """The policy, its rate, its range and its epochs."""
        rates = RATES if self.epochs == 1 else BATCH_RATES
        rate = self.rate if self.rate is not None else rates[self.policy]
        return self.policy, rate, self.range, self.epochs

    def check_problem(self, setup: Setup) -> None:
        """As for NPFL, and what learns tau."""
        super().check_problem(setup)
        if setup.privacy is not None and setup.privacy.protects and not setup.privacy.bounds.residual < np.inf:
            right = "bounds on features, target and model: how far a sample moves what tau learns from rests on them"
            raise BadInput("privacy.bounds", "(missing)", right)
        _, cut, _ = held_back(setup, self.validation)
        sizes = np.stack([part.sizes for part in segments(setup.task)[0]], 1)
        short = (cut >= sizes) & ((sizes > 0) | (not setup.task.local_only))  # of others a node knows nothing
        if np.any(short):
            who = int(np.argmax(np.any(short, 1)))
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


def taus_only(tables: dict[str, Any], round: int) -> dict[str, Any]:
    """Every peer's tau."""
    mix = next(iter(tables.values())).mix
    tau = mix.tau[:, 0] if isinstance(mix, lent.Lent) else np.zeros(len(mix.degree))
    return {"tau": float(tau.mean()), "tau.node": tau.copy()}
