"""What servers of PGFL do with one model a cluster, (6) to (10), as published and in an exact form.

A round is three turns: clients that were asked say what they learned; servers aggregate it and talk to their
neighbours; servers tell their clients the model of their cluster, and whom they ask next.

**As published**: a server averages its clients' words, (8), then its neighbourhood's averages, (9), whoever stands
behind them; then inter-cluster learning, (10). Client duals follow, (5).

**Exact**: alternating directions on two blocks, {w_k and the edges' models} and {w_s}. With z = (w_s + w_p) / 2 on
every edge of the server graph and penalty r there, (3) gives

    (rho m + r d) w_s  =  sum_k (rho w_k - phi_k)  -  psi_s  +  r/2 sum_p (w_s + w_p of the round before)
    psi_s  +=  r/2 sum_p (w_s - w_p)

for a server with m clients of a cluster and d neighbours: clients weigh by their number, and the servers have duals
of their own. This is Douglas-Rachford's iteration; a client that is not asked keeps its part of the state, and the
server its last word, so it converges for any schedule that asks everyone again and again.
"""

from functools import cache
from typing import Any, NamedTuple

from archipel.draws import CHOICE, uniform
from archipel.node import NOTHING, SAID, add_scaled, assign, fill, kernel
from archipel.parts.mix.borrow import borrow


class Clusters(NamedTuple):
    penalty: Any  # rho
    edge: Any  # the penalty on the servers' edges, exact form
    taus: Any  # (rounds,): tau of each round
    some: Any  # how many clients a server asks each round; 0: all
    places: Any  # (clients,): a client's place among those of its server


class Server(NamedTuple):
    """What a server keeps of its clients and clusters."""

    words: Any  # (members, size): what each client said last
    label: Any  # (members,): its cluster
    heard: Any  # (members,): whether it ever said something
    asked: Any  # (members,): whom it asks next
    members: Any  # (1,): how many clients it has
    own: Any  # (clusters, size): what it says to other servers
    known: Any  # (clusters,): whether there is anything to say
    used: Any  # (clusters,): whether it has a model to lend, its own or its neighbours'
    degree: Any  # (1,): how many neighbours it has
    psi: Any  # (clusters, size): the duals of its edges, exact form
    anchor: Any  # (clusters, size): sum over neighbours of (w_s + w_p) / 2, exact form
    hat: Any  # (clusters, size): after (9)


class Heard(NamedTuple):
    """What a server hears from its clients, each in its place."""

    values: Any  # (members, size)
    spoke: Any  # (members,)


class Aggregates(NamedTuple):
    """What a server says to its neighbours."""

    models: Any  # (clusters, size)
    known: Any  # (clusters,)


class Answer(NamedTuple):
    """What a server tells a client: its cluster's model, and whether it is asked next."""

    values: Any
    asked: Any
    cluster: Any


# --- servers and their clients --------------------------------------------------------------------------------------


@kernel
def hear_client(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """Each client's word in its place."""
    assign(inbox.values[edge.place], said.values)
    inbox.spoke[edge.place] = 1


@kernel
def aggregate(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """(8): the mean of the clients of a cluster that took part; without any, the last mean stays."""
    mine = me.mix
    for q in range(mine.own.shape[0]):
        count = 0
        for i in range(mine.members[0]):
            if inbox.spoke[i] == 1 and mine.label[i] == q:
                count += 1
        if count > 0:
            mine.known[q] = 1
            fill(mine.own[q], 0.0)
            for i in range(mine.members[0]):
                if inbox.spoke[i] == 1 and mine.label[i] == q:
                    add_scaled(mine.own[q], 1.0 / count, inbox.values[i])


@kernel
def solve(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The servers' block of the exact form, with everyone's last word; who never spoke does not count yet:

    w_s = (rho sum of words - psi + r anchor) / (rho m + r d).
    """
    mine = me.mix
    for i in range(mine.members[0]):
        if inbox.spoke[i] == 1:
            assign(mine.words[i], inbox.values[i])
            mine.heard[i] = 1
    for q in range(mine.own.shape[0]):
        count = 0
        for i in range(mine.members[0]):
            if mine.heard[i] == 1 and mine.label[i] == q:
                count += 1
        total = settings.mix.penalty * count + settings.mix.edge * mine.degree[0]
        if total > 0 and mine.known[q] == 1:
            for j in range(mine.own.shape[1]):
                mine.own[q, j] = (settings.mix.edge * mine.anchor[q, j] - mine.psi[q, j]) / total
            for i in range(mine.members[0]):
                if mine.heard[i] == 1 and mine.label[i] == q:
                    add_scaled(mine.own[q], settings.mix.penalty / total, mine.words[i])


# --- servers and servers --------------------------------------------------------------------------------------------


@kernel
def say_aggregates(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """What a server knows of each cluster, to all its neighbours."""
    for q in range(me.mix.own.shape[0]):
        said.known[q] = me.mix.known[q]
        assign(said.models[q], me.mix.own[q])
    return SAID


@kernel
def say_nothing(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """ClusterFL: servers do not talk."""
    return NOTHING


@kernel
def hear_server(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """Sums over those neighbours that know something of a cluster."""
    for q in range(inbox.count.shape[0]):
        if said.known[q] > 0:
            inbox.count[q] += 1
            add_scaled(inbox.total[q], 1.0, said.models[q])


@kernel
def average(me: Any, inbox: Any, settings: Any) -> None:
    """(9), the mean of the neighbourhood."""
    mine = me.mix
    for q in range(mine.own.shape[0]):
        count = inbox.count[q] + mine.known[q]
        if count > 0:
            mine.used[q] = 1
            for j in range(mine.own.shape[1]):
                mine.hat[q, j] = (inbox.total[q, j] + mine.known[q] * mine.own[q, j]) / count


@kernel
def agree(me: Any, inbox: Any, settings: Any) -> None:
    """The edges' models and duals of the exact form: psi grows with w_s - w_p."""
    mine = me.mix
    for q in range(mine.own.shape[0]):
        for j in range(mine.own.shape[1]):
            here, theirs = inbox.count[q] * mine.own[q, j], inbox.total[q, j]
            mine.psi[q, j] += 0.5 * settings.mix.edge * (here - theirs)
            mine.anchor[q, j] = 0.5 * (here + theirs)
        assign(mine.hat[q], mine.own[q])


@kernel
def ask_all(asked: Any, members: Any, some: Any, key: Any) -> None:
    """Everyone is asked, all the time."""


@kernel
def choose(asked: Any, members: Any, some: Any, key: Any) -> None:
    """`some` of the clients, each set as likely as any other (Knuth's algorithm S)."""
    left = some
    for i in range(members):
        asked[i] = 1 if uniform(key, CHOICE, i) * (members - i) < left else 0
        left -= asked[i]


@cache
def merging(mix: Any, asking: Any) -> Any:
    @kernel
    def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """(9) or its exact form, (10), and whom to ask next."""
        mix(me, inbox, settings)
        tau = settings.mix.taus[min(moment.round, settings.mix.taus.shape[0] - 1)]
        borrow(me.model, me.mix.hat, tau, me.mix.used)
        asking(me.mix.asked, me.mix.members[0], settings.mix.some, moment.key)

    return merge


@kernel
def tell(me: Any, said: Any, settings: Any, moment: Any) -> Any:
    """To a client: the model of its cluster, and whether it is asked next.

    An audit plays many copies of a federation side by side, whose clients have the same places.
    """
    place = settings.mix.places[moment.peer % settings.mix.places.shape[0]]
    assign(said.values, me.model[me.mix.label[place]])
    said.asked[0] = me.mix.asked[place]
    said.cluster[0] = me.mix.label[place]
    return True
