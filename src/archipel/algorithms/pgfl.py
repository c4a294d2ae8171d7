"""PGFL: personalised learning on a graph of servers, with clusters of clients across them.

Gauthier et al., IEEE Transactions on Signal and Information Processing over Networks, 2023. Equation numbers are
the article's. `parts.learn.clustered` has what clients do, `parts.mix.cluster_admm` what servers do; GFL (one model for
everyone) and ClusterFL (every server on its own) are two settings of it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import key
from archipel.draws import key_of
from archipel.errors import BadInput
from archipel.node import table_of
from archipel.parts import Node, empty
from archipel.parts.admm import Admm, node, settings_of
from archipel.parts.learn import clustered as clients
from archipel.parts.learn.solve import factors, guard_of, solver_of, solving_state
from archipel.parts.mix import cluster_admm as servers
from archipel.parts.mix import seeking_servers as seeking
from archipel.parts.mix.borrow import taus_of
from archipel.parts.mix.looking import curvature_of, hops_of, turn_of
from archipel.parts.mix.mean import Sums
from archipel.parts.protect.told import pay_for, priced, tell
from archipel.parts.share.whole import Model
from archipel.problems.clustered import segments
from archipel.problems.losses.supervised import LOGISTIC, SQUARED
from archipel.problems.models.learners import sizes_of
from archipel.turns import Plan, Setup, Tell, Turn

DEFAULT_RIDGE = 0.01  # lambda, which the article does not give
MUCH = 50_000_000  # parameter updates of a run, beyond which its twin is not played beside it
BEFORE = 1 << 40  # the "round" whose draws choose whom a server asks first
AMONG_PEERS = "npfl is that: peers agree within their cluster, and borrow"


class View(NamedTuple):
    """A federation as the algorithm sees it: GFL knows one cluster, ClusterFL no neighbours."""

    server: Any  # of each client
    place: Any  # its place there
    cluster: Any
    clusters: int
    servers: int
    members: int  # of the largest server
    degree: Any  # of each server


@dataclass(frozen=True)
class Pgfl(Admm):
    """Clients learn the model of their cluster, servers agree on it, and clusters borrow from each other.

    `form` = "published" is (8) to (10), which stops short of the optimum and diverges where the penalty is small;
    "exact" reaches it. `regularisation` is lambda in f_k, (16): lambda ||w||^2 / |C_s|.
    """

    topologies: ClassVar[tuple[str, ...]] = ("servers", "star")
    refuses: ClassVar[dict[str, str]] = {"peers": AMONG_PEERS, "digraph": Admm.refuses["digraph"]}
    no_delays: ClassVar[bool] = False  # the server keeps everyone's last word

    form: str = key("exact", "as published, or so that it reaches the optimum", choices=("exact", "published"))
    penalty: float = key(4.0, "how hard a server pulls its clients", above=0, symbol="rho")
    edge_penalty: float = key(0.0, "the same between servers, exact form; 0: one that suits the graph", at_least=0)
    regularisation: float | None = key(None, "none given: the problem's, or 0.01", at_least=0, symbol="lambda")
    tau: float | tuple[float, ...] = key(
        0.0, "what a cluster borrows from the others, or one number a round", at_least=0, at_most=1, noun="a share"
    )
    decay: float = key(1.0, "tau is multiplied by this in each round", above=0, at_most=1, noun="a factor")
    some: int = key(0, "how many clients a server asks each round; 0: all", at_least=0)
    start: str = key("zero", "where everyone starts", choices=("zero", "optimum"))
    force: bool = key(False, "run the published form where it diverges")
    look: int = key(20, "rounds between two looks who belongs together, if clusters are to be discovered", at_least=1)
    most: int = key(6, "clusters at most that are discovered", at_least=2, at_most=200)
    curvature: float = key(0.0, "how much a loss bends; 0: as on inputs of variance one", at_least=0)

    def view(self, setup: Setup) -> View:
        """Servers and clusters as the graph has them."""
        graph = setup.graph
        place, members = places(graph)
        clusters = graph.clusters or self.most
        return View(graph.server, place, graph.cluster, clusters, graph.servers, members, graph.links().degree)

    def laid(self, setup: Setup) -> Plan:
        """Clients and servers, and their turns."""
        view, task, policy, guard = self.view(setup), setup.task, setup.privacy, guard_of(setup)
        if policy is not None and len(segments(task)[0]) > 1:
            raise BadInput("problem.change", segments(task)[1], "0: changing data is not counted in privacy")
        data, change = factors(task, guard.features, guard.target)
        made = priced(policy, setup, np.full((1, 1), 1 / self.penalty), sizes_of(task))
        some, discovers = self.some if self.some < view.members else 0, self.discovers(setup)
        edge = self.edge_penalty or self.penalty * stiffness(view)
        mixed = servers.Clusters(self.penalty, edge, taus_of(self.tau, self.decay, setup.rounds), some, view.place)
        learned = clients.Primal(self.penalty, change, guard.radius)
        client = self.clients(view, solving_state(data, 2 * self.weights(setup, view)), made.state)
        server = self.servers(setup, view)
        if self.start == "optimum" and task.local_only:
            raise BadInput("algorithm.start", self.start, '"zero": nobody sees everyone\'s data')
        if self.start == "optimum":
            self.start_at(setup, view, client, server)
        if policy is None:  # what is told is the model
            client = client._replace(protect=client.protect._replace(told=client.model[:, :0].copy()))
        for s in range(view.servers if some else 0):
            servers.choose(server.mix.asked[s], server.mix.members[s, 0], some, key_of(setup.seed, s, BEFORE))
        client.mix.asked[:, 0] = server.mix.asked[view.server, view.place]
        act, take = self.acts(task.loss, policy, guard.radius)
        turns, sizes = self.turns(view, task.size, act, take, some), [task.size, view.clusters * task.size, task.size]
        settings, measure = settings_of(learned, made.settings, mixed), self.measuring(setup, view)
        if discovers:
            hops = hops_of(self.look, setup.graph.links(), view.servers)
            gain = self.penalty / curvature_of(self.curvature, task.loss)
            settings = settings._replace(across=seeking.Seeking(self.look, hops, gain, self.most))
            server.mix.known[:, 1:], server.mix.used[:, 1:] = 0, 0
            server = server._replace(across=seeking.seekers(setup, view.place, view.members, self.most))
            turns, measure = (turns[0], turn_of("server", seeking.sign, seeking.relabel, setup), *turns[1:]), None
            sizes.insert(1, task.clients * task.size)
        tables = {"client": client, "server": server}
        return Plan(tables, turns, settings, dict(enumerate(sizes)), measure=measure, accountant=made.accountant)

    def discovers(self, setup: Setup) -> bool:
        """Whether clusters are to be found."""
        if setup.graph.clusters == 0 and (self.form != "exact" or self.start != "zero"):
            raise BadInput("algorithm.form", self.form, '"exact", from zero, where clusters are to be discovered')
        return bool(setup.graph.clusters == 0)

    def acts(self, loss: int, policy: Any, radius: float) -> tuple[Any, Any]:
        """What a client does, and how it takes its server's answer."""
        solve, write = solver_of(loss, radius), clients.follow_and_say if self.form == "exact" else clients.say_after
        minimise = clients.minimising(solve, loss == SQUARED, radius < np.inf)
        say = clients.openly(write) if policy is None else clients.noised(tell, write)
        published = clients.take_published_openly if policy is None else clients.take_published
        take = clients.take_exact if self.form == "exact" else published
        return clients.acting(pay_for(policy, clients.reach), minimise, say), take

    def turns(self, view: View, size: int, act: Any, take: Any, some: int) -> tuple[Any, ...]:
        """Up, across, down."""
        exact, asking = self.form == "exact", servers.choose if some else servers.ask_all
        cube, count = np.zeros((view.clusters, size)), np.zeros(view.clusters, np.int64)
        heard = servers.Heard(np.zeros((view.members, size)), np.zeros(view.members, np.int64))
        gather, mix = (servers.solve, servers.agree) if exact else (servers.aggregate, servers.average)
        around, said = Sums(cube, count), servers.Aggregates(cube, np.zeros(view.clusters, np.uint8))
        answer = servers.Answer(np.zeros(size), np.zeros(1, np.uint8), np.zeros(1, np.uint8))
        merge = servers.merging(mix, asking)
        return (
            Turn("client", "server", act, servers.hear_client, gather, Model(np.zeros(size)), heard),
            Turn("server", "server", servers.say_aggregates, servers.hear_server, merge, said, around),
            Tell("server", "client", servers.tell, take, answer),
        )

    def clients(self, view: View, learn: Any, protect: Any) -> Node:
        """All clients at zero."""
        zeros = [table_of(protect.told.shape, protect.told.dtype) for _ in range(3)]
        asked = np.zeros((len(view.cluster), 1), np.int64)
        mix = clients.Personal(zeros[0], zeros[1], asked, asked.copy(), view.cluster.reshape(-1, 1).copy())
        return node(zeros[2], learn, protect, mix)

    def servers(self, setup: Setup, view: View) -> Node:
        """All servers, who know who is in which cluster."""
        count, size = view.servers, setup.task.size
        label = np.zeros((count, view.members), np.int64)
        label[view.server, view.place] = view.cluster
        known = np.full((count, view.clusters), int(self.form == "exact"), np.int64)
        cubes = [table_of((count, view.clusters, size)) for _ in range(5)]
        mix = servers.Server(
            table_of((count, view.members, size)), label, np.zeros_like(label), np.ones_like(label),
            np.bincount(view.server, minlength=count).reshape(-1, 1), cubes[0], known, known.copy(),
            view.degree.reshape(-1, 1).astype(np.int64), *cubes[1:4],
        )  # fmt: skip
        return node(cubes[4], empty(count), empty(count), mix)

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

    def start_at(self, setup: Setup, view: View, client: Node, server: Node) -> None:
        """Everyone at the optimum, with the duals that keep it there in the exact form."""
        best = self.optima(setup, view)[0]
        mine = best[view.cluster]
        for table in (client.model, client.protect.told, client.mix.base):
            table[:] = mine
        client.mix.dual[:] = slopes(setup, mine) + 2 * self.weights(setup, view)[:, None] * mine
        words = mine - client.mix.dual / self.penalty
        server.mix.words[view.server, view.place], server.mix.heard[view.server, view.place] = words, 1
        for table in (server.mix.own, server.mix.hat, server.model):
            table[:] = best
        server.mix.known[:], server.mix.used[:] = 1, 1
        np.subtract.at(server.mix.psi, (view.server, view.cluster), client.mix.dual)
        server.mix.anchor[:] = view.degree[:, None, None] * best

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
        found = {"servers": tables["server"].model, "clients": client.model}
        return found | {"told": client.mix.base, "clusters": client.mix.cluster[:, 0]}

    def check(self, setup: Setup) -> dict[str, float]:
        """The published form may diverge: measured, and refused unless forced."""
        taus = taus_of(self.tau, self.decay, setup.rounds)
        if self.start == "optimum" and setup.privacy is not None:
            right = '"zero": at the optimum the duals are the data\'s own gradients'
            raise BadInput("algorithm.start", self.start, right)
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

    refuses: ClassVar[dict[str, str]] = Pgfl.refuses | {"peers": "nfl is that: one model, and no server"}

    def view(self, setup: Setup) -> View:
        """One cluster, whatever the graph says."""
        everyone = np.zeros(setup.graph.clients, np.int64)
        return super().view(setup)._replace(cluster=everyone, clusters=1)

    def discovers(self, setup: Setup) -> bool:
        """There is nothing to find."""
        return False


@dataclass(frozen=True)
class ClusterFl(Pgfl):
    """Every server on its own, with the clusters of its clients (Ouyang et al., MobiSys 2021, with PGFL's steps)."""

    allow_disconnected: ClassVar = True  # takes a graph of servers in pieces
    refuses: ClassVar[dict[str, str]] = Pgfl.refuses | {"peers": "without servers everyone would be on its own"}

    def discovers(self, setup: Setup) -> bool:
        """Servers that do not talk cannot find clusters together."""
        if setup.graph.clusters == 0:
            raise BadInput("topology.clusters", "discover", "a number of clusters, for servers that do not talk")
        return False

    def view(self, setup: Setup) -> View:
        """No neighbours, whatever the graph says."""
        return super().view(setup)._replace(degree=np.zeros(setup.graph.servers, np.int64))

    def turns(self, view: View, size: int, act: Any, take: Any, some: int) -> tuple[Any, ...]:
        """The turn across takes place, but nobody says anything."""
        up, across, down = super().turns(view, size, act, take, some)
        return up, across._replace(act=servers.say_nothing), down

    def neighbours(self, setup: Setup) -> Any:
        """None."""
        from archipel.topology import from_pairs

        return from_pairs(setup.graph.servers, [], [])


def stiffness(view: View) -> float:
    """An edge's penalty in those of clients, so that a server's edges together weigh twice its clients of a cluster."""
    clients_each = len(view.cluster) / (view.servers * view.clusters)
    return 2 * clients_each / max(float(view.degree.mean()), 1.0)


def places(graph: Any) -> tuple[Any, int]:
    """The place of each client among those of its server, and the largest number of clients of a server."""
    place, count = np.zeros(graph.clients, np.int64), np.zeros(graph.servers, np.int64)
    for k, s in enumerate(graph.server):
        place[k] = count[s]
        count[s] += 1
    return place, int(count.max())


def slopes(setup: Setup, models: Any) -> Any:
    """The gradient of each client's loss at its own model."""
    from archipel.problems.losses.supervised import gradient
    from archipel.problems.stored import Shard

    out = np.zeros_like(models)
    for k, (x, y) in enumerate(segments(setup.task)[0][0]):
        gradient(out[k], models[k], Shard(x, y), setup.task.loss)
    return out
