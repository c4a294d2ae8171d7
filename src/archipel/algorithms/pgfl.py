"""PGFL: personalised learning on a graph of servers, with clusters of clients across them.

Gauthier et al., IEEE Transactions on Signal and Information Processing over Networks, 2023. Equation numbers are
the article's. `pgfl_nodes` has what clients and servers do; GFL (one model for everyone) and ClusterFL (every
server on its own) are two settings of it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.algorithms import pgfl_nodes as nodes
from archipel.algorithms.local import Factors, factors
from archipel.algorithms.pgfl_discovery import discovering
from archipel.algorithms.zcdp_nfl import priced
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.parts.mix.borrow import taus_of
from archipel.privacy.policy import Guard
from archipel.problems.clustered import segments
from archipel.problems.losses.supervised import LOGISTIC
from archipel.turns import Plan, Setup, Tell, Turn

DEFAULT_RIDGE = 0.01  # lambda, which the article does not give
FORMS = ("exact", "published")
MUCH = 50_000_000  # parameter updates of a run, beyond which its twin is not played beside it
BEFORE = 1 << 40  # the "round" whose draws choose whom a server asks first


class View(NamedTuple):
    """A federation as the algorithm sees it: GFL knows one cluster, ClusterFL no neighbours."""

    server: Any  # of each client
    slot: Any  # its place there
    cluster: Any
    clusters: int
    servers: int
    members: int  # of the largest server
    degree: Any  # of each server


@dataclass(frozen=True)
class Pgfl:
    """Clients learn the model of their cluster, servers agree on it, and clusters borrow from each other.

    `form` = "published" is (8) to (10), which stops short of the optimum and diverges where the penalty is small;
    "exact" reaches it. `tau` is what a cluster borrows from the others in each round (a number, times `decay`^n, or
    one number a round), `some` how many clients a server asks each round (0: all). `regularisation` is lambda in
    f_k, (16): lambda ||w||^2 / |C_s|; where it is not given it is the problem's, or 0.01.
    """

    topologies: ClassVar = ("servers", "star")
    precision: ClassVar = "float64"
    data_kind: ClassVar = "stored"

    form: str = "exact"
    penalty: float = 4.0
    edge_penalty: float = 0.0  # on the servers' edges, exact form; 0: one that suits the graph
    regularisation: float | None = None
    tau: float | tuple[float, ...] = 0.0
    decay: float = 1.0
    some: int = 0
    start: str = "zero"
    force: bool = False
    look: int = 20
    most: int = 6
    curvature: float = 0.0

    def view(self, setup: Setup) -> View:
        """Servers and clusters as the graph has them."""
        graph = setup.graph
        slot, members = slots(graph)
        clusters = graph.clusters or self.most
        return View(graph.server, slot, graph.cluster, clusters, graph.servers, members, graph.links().degree)

    def check_fields(self, rounds: int) -> Any:
        """Refuse numbers that make no sense; the taus of all rounds."""
        if self.form not in FORMS:
            raise BadInput("algorithm.form", self.form, "one of " + ", ".join(FORMS))
        if not 0 < self.penalty < np.inf:
            raise BadInput("algorithm.penalty", self.penalty, "a positive number")
        for name in ("edge_penalty", "regularisation", "curvature"):
            if not 0 <= (getattr(self, name) or 0.0) < np.inf:
                raise BadInput(f"algorithm.{name}", getattr(self, name), "a number of 0 or more")
        if self.some < 0:
            raise BadInput("algorithm.some", self.some, "how many clients a server asks each round, 0 for all")
        if self.start not in ("zero", "optimum"):
            raise BadInput("algorithm.start", self.start, '"zero" or "optimum"')
        return taus_of(self.tau, self.decay, rounds)

    def plan(self, setup: Setup) -> Plan:
        """Clients and servers, and their three turns."""
        taus = self.check_fields(setup.rounds)
        view, task = self.view(setup), setup.task
        guard = guard_of(setup)
        data, change = factors(task, guard.features, guard.target)
        noise, reach, accountant = self.priced(setup)
        settings = nodes.Settings(
            task.loss,
            self.penalty,
            self.edge_penalty or self.penalty * stiffness(view),
            taus,
            self.some if self.some < view.members else 0,
            view.slot,
            change,
            guard.radius,
            int(setup.privacy is not None),
            noise.law,
            noise.shape,
        )
        clients = self.clients(setup, view, data, reach, noise)
        servers = self.servers(setup, view)
        if self.start == "optimum":
            self.start_at(setup, view, clients, servers)
        for s in range(view.servers):
            nodes.choose(servers.asked[s], servers.members[s, 0], settings.some, key_of(setup.seed, s, BEFORE))
        clients.asked[:, 0] = servers.asked[view.server, view.slot]
        plan = Plan(
            {"client": clients, "server": servers},
            self.turns(view, task.size),
            settings,
            {0: task.size, 1: view.clusters * task.size, 2: task.size},
            measure=self.measuring(setup, view),
            accountant=accountant,
        )
        return discovering(plan, setup, view.slot, self) if self.discovers(setup) else plan

    def discovers(self, setup: Setup) -> bool:
        """Whether clusters are to be found."""
        if setup.graph.clusters == 0 and (self.form != "exact" or self.start != "zero"):
            raise BadInput("algorithm.form", self.form, '"exact", from zero, where clusters are to be discovered')
        return setup.graph.clusters == 0

    def priced(self, setup: Setup) -> tuple[Any, Any, Any]:
        """The noise, each client's sensitivity (43), and the accountant."""
        if setup.privacy is not None and len(segments(setup.task)[0]) > 1:
            raise BadInput("problem.change", segments(setup.task)[1], "0: changing data is not counted in privacy")
        noise, change, accountant = priced(setup.privacy, setup, np.full((1, 1), self.penalty))
        return noise, (change / self.penalty)[:, None], accountant and accountant._replace(role="client")

    def turns(self, view: View, size: int) -> tuple[Any, ...]:
        """Up, across, down."""
        exact = self.form == "exact"
        cube = np.zeros((view.clusters, size))
        flags = np.zeros(view.clusters, np.uint8)
        heard = nodes.Heard(np.zeros((view.members, size)), np.zeros(view.members, np.int64))
        around = nodes.Neighbours(cube, np.zeros(view.clusters, np.int64))
        answer = nodes.Answer(np.zeros(size), np.zeros(1, np.uint8), np.zeros(1, np.uint8))
        return (
            Turn(
                "client",
                "server",
                nodes.act_exact if exact else nodes.act_published,
                nodes.hear_client,
                nodes.solve if exact else nodes.aggregate,
                nodes.Word(np.zeros(size)),
                heard,
            ),
            Turn(
                "server",
                "server",
                nodes.say_aggregates,
                nodes.hear_server,
                nodes.agree if exact else nodes.average,
                nodes.Aggregates(cube, flags),
                around,
            ),
            Tell("server", "client", nodes.tell, nodes.take_exact if exact else nodes.take_published, answer),
        )

    def clients(self, setup: Setup, view: View, data: Factors, reach: Any, noise: Any) -> nodes.Client:
        """All clients at zero, with their data factorised and their noise set."""
        count, size = setup.task.clients, setup.task.size
        vectors = [np.zeros((count, size)) for _ in range(4)]
        flags = [np.zeros((count, 1), np.int64) for _ in range(2)]
        numbers = [
            view.cluster.reshape(-1, 1).copy(),
            2 * self.weights(setup, view)[:, None],
            reach,
            noise.first,
            np.zeros((count, 1)),
            np.minimum(noise.limit, np.finfo(float).max),
            np.zeros((count, 1), np.int64),
        ]
        return nodes.Client(*(vectors + flags + numbers + list(data)))

    def servers(self, setup: Setup, view: View) -> nodes.Server:
        """All servers, who know who is in which cluster."""
        count, size = view.servers, setup.task.size
        label = np.zeros((count, view.members), np.int64)
        label[view.server, view.slot] = view.cluster
        known = np.full((count, view.clusters), int(self.form == "exact"), np.int64)
        cubes = [np.zeros((count, view.clusters, size)) for _ in range(5)]
        return nodes.Server(
            np.zeros((count, view.members, size)),
            label,
            np.zeros((count, view.members), np.int64),
            np.ones((count, view.members), np.int64),
            np.bincount(view.server, minlength=count).reshape(-1, 1),
            cubes[0],
            known,
            known.copy(),
            view.degree.reshape(-1, 1).astype(np.int64),
            *cubes[1:],
        )

    def weights(self, setup: Setup, view: View) -> Any:
        """lambda / |C_s| of each client, (16)."""
        l1, l2 = setup.task.regulariser
        if l1 > 0:
            raise BadInput("problem.l1", l1, "0: the local steps of PGFL are those of a smooth regulariser")
        given = self.regularisation if self.regularisation is not None else (l2 or DEFAULT_RIDGE)
        return given / np.bincount(view.server)[view.server]

    def optima(self, setup: Setup, view: View) -> list[Any]:
        """Each cluster's centralised solution, (clusters, size), in each segment of the data."""
        from archipel.theory.pgfl import centralised

        parts, _ = segments(setup.task)
        return [centralised(p, setup.task.loss, self.weights(setup, view), view.cluster, view.clusters) for p in parts]

    def start_at(self, setup: Setup, view: View, clients: nodes.Client, servers: nodes.Server) -> None:
        """Everyone at the optimum, with the duals that keep it there in the exact form."""
        best = self.optima(setup, view)[0]
        mine = best[view.cluster]
        for table in (clients.model, clients.told, clients.base):
            table[:] = mine
        clients.dual[:] = slopes(setup, mine) + 2 * self.weights(setup, view)[:, None] * mine
        words = mine - clients.dual / self.penalty
        servers.words[view.server, view.slot], servers.heard[view.server, view.slot] = words, 1
        for table in (servers.own, servers.hat, servers.model):
            table[:] = best
        servers.known[:], servers.used[:] = 1, 1
        np.subtract.at(servers.psi, (view.server, view.cluster), clients.dual)
        servers.anchor[:] = view.degree[:, None, None] * best

    def measuring(self, setup: Setup, view: View) -> Any:
        """How far everyone is from its cluster's centralised solution, squared and relative; and tau."""
        from archipel.problems.scoring.deviation import deviations

        if setup.task.loss == LOGISTIC and not self.weights(setup, view).all():
            return None  # separable classes have no solution
        optima: list[Any] = []
        change = segments(setup.task)[1]

        def measure(tables: dict[str, Any], round: int) -> dict[str, Any]:
            if not optima:
                optima.extend(self.optima(setup, view))
            best = optima[-1 if round > change else 0]
            each = deviations(tables["client"].model, best[view.cluster])
            total = np.bincount(view.cluster, each, minlength=view.clusters)
            by_cluster = total / np.bincount(view.cluster, minlength=view.clusters)
            return {"deviation": float(each.mean()), "deviation.cluster": by_cluster}

        return measure

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned: every server's model of every cluster, everyone's own, and what everyone was told."""
        client = tables["client"]
        return {
            "servers": tables["server"].model,
            "clients": client.model,
            "told": client.base,
            "clusters": client.cluster[:, 0],
        }

    def check(self, setup: Setup) -> dict[str, float]:
        """The published form may diverge: measured, and refused unless forced."""
        taus = self.check_fields(setup.rounds)
        if self.start == "optimum" and setup.privacy is not None:
            raise BadInput(
                "algorithm.start", self.start, '"zero": at the optimum the duals are the data\'s own gradients'
            )
        if self.form == "exact":
            return {}
        from archipel.theory import pgfl as theory

        view, (data, _) = self.view(setup), factors(setup.task)
        seen = theory.Seen(view, self.neighbours(setup), data, 2 * self.weights(setup, view), setup.task.loss)
        factor = theory.growth(seen, self.penalty, float(taus[-1]))
        if factor > theory.DIVERGES and not self.force:
            least = theory.least_penalty(seen, float(taus[-1]))
            right = f"at least {least:.3g}, below which (8) to (10) diverge (or the exact form, or force = true)"
            raise BadInput("algorithm.penalty", self.penalty, right)
        return {"growth_of_errors": factor}

    def neighbours(self, setup: Setup) -> Any:
        """The links among servers, as the algorithm uses them."""
        return setup.graph.links()

    def extra_theory(self, federation: Any) -> dict[str, float]:
        """Theorem 2 beside a run that is not too large: in how many rounds (28) is exceeded, from both starts."""
        setup = federation.setup()
        work = setup.task.clients * setup.task.size * federation.rounds
        borrows = taus_of(self.tau, self.decay, federation.rounds).any()
        if not borrows or work > MUCH or setup.task.loss == LOGISTIC or setup.graph.clusters == 0:
            return {}
        from archipel.theory.pgfl import impact

        zero, optimum = (impact(federation, start) for start in ("zero", "optimum"))
        return {
            "bound_(28)_at_the_end": float(zero.bound[-1]),
            "rounds_beyond_(28)_from_zero": zero.exceeded,
            "rounds_beyond_(28)_from_the_optimum": optimum.exceeded,
        }


@dataclass(frozen=True)
class Gfl(Pgfl):
    """One model for everyone, on the same graph of servers (Rizk and Sayed, SPAWC 2021, with PGFL's local steps)."""

    def view(self, setup: Setup) -> View:
        """One cluster, whatever the graph says."""
        graph = setup.graph
        slot, members = slots(graph)
        everyone = np.zeros(graph.clients, np.int64)
        return View(graph.server, slot, everyone, 1, graph.servers, members, graph.links().degree)

    def discovers(self, setup: Setup) -> bool:
        """There is nothing to find."""
        return False


@dataclass(frozen=True)
class ClusterFl(Pgfl):
    """Every server on its own, with the clusters of its clients (Ouyang et al., MobiSys 2021, with PGFL's steps)."""

    allow_disconnected: ClassVar = True  # takes a graph of servers in pieces

    def discovers(self, setup: Setup) -> bool:
        """Servers that do not talk cannot find clusters together."""
        if setup.graph.clusters == 0:
            raise BadInput("topology.clusters", "discover", "a number of clusters, for servers that do not talk")
        return False

    def view(self, setup: Setup) -> View:
        """No neighbours, whatever the graph says."""
        return super().view(setup)._replace(degree=np.zeros(setup.graph.servers, np.int64))

    def turns(self, view: View, size: int) -> tuple[Any, ...]:
        """The turn across takes place, but nobody says anything."""
        up, across, down = super().turns(view, size)
        return up, across._replace(act=nodes.say_nothing), down

    def neighbours(self, setup: Setup) -> Any:
        """None."""
        from archipel.topology import from_pairs

        return from_pairs(setup.graph.servers, [], [])


def stiffness(view: View) -> float:
    """An edge's penalty in those of clients, so that a server's edges together weigh twice its clients of a cluster."""
    clients = len(view.cluster) / (view.servers * view.clusters)
    return 2 * clients / max(float(view.degree.mean()), 1.0)


def slots(graph: Any) -> tuple[Any, int]:
    """The place of each client among those of its server, and the largest number of clients of a server."""
    slot, count = np.zeros(graph.clients, np.int64), np.zeros(graph.servers, np.int64)
    for k, s in enumerate(graph.server):
        slot[k] = count[s]
        count[s] += 1
    return slot, int(count.max())


def guard_of(setup: Setup) -> Guard:
    """What is enforced on data and models. A minimiser's gradients cannot be clipped: bounds must imply their size."""
    if setup.privacy is None:
        return Guard()
    guard = setup.privacy.guard()
    if guard.clip < np.inf:
        right = (
            "none, but privacy.bounds on features, target and model (or enforce = false): PGFL's steps are minimisers"
        )
        raise BadInput("privacy.clip", guard.clip, right)
    return guard


def slopes(setup: Setup, models: Any) -> Any:
    """The gradient of each client's loss at its own model."""
    from archipel.problems.losses.supervised import gradient
    from archipel.problems.stored import Shard

    out = np.zeros_like(models)
    for k, (x, y) in enumerate(segments(setup.task)[0][0]):
        gradient(out[k], models[k], Shard(x, y), setup.task.loss)
    return out
