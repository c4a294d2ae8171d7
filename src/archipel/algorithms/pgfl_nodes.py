"""What PGFL's clients and servers do, (4) to (13), as published and in an exact form.

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

from typing import Any, NamedTuple

from archipel.algorithms.local import attract, learn_within
from archipel.draws import CHOICE, uniform
from archipel.node import add_scaled, assign, kernel
from archipel.parts.mix.borrow import borrow
from archipel.privacy.accountant import pay, release_cost
from archipel.privacy.noise import disturb


class Settings(NamedTuple):
    loss: Any
    penalty: Any  # rho
    edge: Any  # the penalty on the servers' edges, exact form
    taus: Any  # (rounds,): tau of each round
    some: Any  # how many clients a server asks each round; 0: all
    slot: Any  # (clients,): a client's place among those of its server
    change: Any  # the round from which clients have the data of their second segment
    radius: Any  # of the ball that models stay in; infinite without one
    private: Any  # 1: a client pays before it speaks
    law: Any  # of the privacy noise
    shape: Any  # (rounds,): its scale, in that of the first round; negative where nothing may be said


class Client(NamedTuple):
    model: Any  # w_k
    told: Any  # the same, noised: what is released
    dual: Any  # phi_k
    base: Any  # w_{s,(q)}, as the server told it
    asked: Any  # (1,): whether the server wants to hear from it
    spoke: Any  # (1,): whether it did, this round
    cluster: Any  # (1,): as the server told it
    shrinkage: Any  # (1,): 2 lambda / |C_s|
    reach: Any  # (1,): how far one sample can move the model, (43)
    first: Any  # (1,): the scale of the noise in the first round, (47)
    spent: Any  # (1,): its account, in zCDP
    limit: Any  # (1,)
    releases: Any  # (1,)
    basis: Any  # its data, see local.Factors
    curve: Any
    moment: Any
    rows: Any


class Server(NamedTuple):
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
    model: Any  # (clusters, size): after (10)


class Word(NamedTuple):
    """What a client says: w_k less its share of the dual."""

    values: Any


class Heard(NamedTuple):
    """What a server hears from its clients, each in its place."""

    values: Any  # (members, size)
    spoke: Any  # (members,)


class Aggregates(NamedTuple):
    """What a server says to its neighbours."""

    models: Any  # (clusters, size)
    known: Any  # (clusters,)


class Neighbours(NamedTuple):
    total: Any  # (clusters, size)
    count: Any  # (clusters,)


class Answer(NamedTuple):
    """What a server tells a client: its cluster's model, and whether it is asked next."""

    values: Any
    asked: Any
    cluster: Any


# --- clients ------------------------------------------------------------------------------------------------


@kernel
def primal(me: Any, data: Any, settings: Any, moment: Any) -> None:
    """(4): argmin f_k(w) - <phi_k, w - w_s> + rho/2 ||w - w_s||^2."""
    segment = 1 if moment.round >= settings.change else 0
    pull = me.dual.copy()
    add_scaled(pull, settings.penalty, me.base)
    attract(pull, me, settings.loss, segment)
    weight = me.shrinkage[0] + settings.penalty
    learn_within(me.model, me, data, pull, weight, settings.loss, segment, settings.radius)


@kernel
def release(me: Any, settings: Any, moment: Any) -> Any:
    """(12): what is told is the model plus noise; whoever cannot pay for it says nothing."""
    shape = settings.shape[min(moment.round, settings.shape.shape[0] - 1)]
    scale = me.first[0] * shape
    if settings.private == 1 and (shape < 0 or not pay(me, release_cost(settings.law, me.reach[0], scale))):
        return False
    assign(me.told, me.model)
    disturb(me.told, settings.law, scale, moment.key)
    return True


@kernel
def follow(me: Any, settings: Any) -> None:
    """(5): phi_k += rho (w_s - w_k), with what was told in place of w_k."""
    add_scaled(me.dual, settings.penalty, me.base)
    add_scaled(me.dual, -settings.penalty, me.told)


@kernel
def speak(me: Any, said: Any, settings: Any) -> None:
    """The summand of (8) or (13): w_k - phi_k / rho."""
    assign(said.values, me.told)
    add_scaled(said.values, -1.0 / settings.penalty, me.dual)
    me.spoke[0] = 1


@kernel
def act_published(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """Learn and speak; the dual follows when the server has answered."""
    me.spoke[0] = 0
    if not moment.present or me.asked[0] == 0:
        return False
    primal(me, data, settings, moment)
    if not release(me, settings, moment):
        return False
    speak(me, said, settings)
    return True


@kernel
def act_exact(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """Learn, let the dual follow the model that was learned from, and speak."""
    me.spoke[0] = 0
    if not moment.present or me.asked[0] == 0:
        return False
    primal(me, data, settings, moment)
    if not release(me, settings, moment):
        return False
    follow(me, settings)
    speak(me, said, settings)
    return True


@kernel
def take_exact(me: Any, said: Any, settings: Any, moment: Any) -> None:
    """Keep the server's answer."""
    assign(me.base, said.values)
    me.asked[0] = said.asked[0]
    me.cluster[0] = said.cluster[0]


@kernel
def take_published(me: Any, said: Any, settings: Any, moment: Any) -> None:
    """Keep the server's answer; who took part updates its dual, (5)."""
    take_exact(me, said, settings, moment)
    if me.spoke[0] == 1:
        follow(me, settings)


# --- servers and their clients ------------------------------------------------------------------------------


@kernel
def hear_client(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """Each client's word in its place."""
    slot = settings.slot[edge.sender]
    assign(inbox.values[slot], said.values)
    inbox.spoke[slot] = 1


@kernel
def aggregate(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """(8): the mean of the clients of a cluster that took part; without any, the last mean stays."""
    for q in range(me.own.shape[0]):
        count = 0
        for i in range(me.members[0]):
            if inbox.spoke[i] == 1 and me.label[i] == q:
                count += 1
        if count > 0:
            me.known[q] = 1
            for j in range(me.own.shape[1]):
                me.own[q, j] = 0.0
            for i in range(me.members[0]):
                if inbox.spoke[i] == 1 and me.label[i] == q:
                    add_scaled(me.own[q], 1.0 / count, inbox.values[i])


@kernel
def solve(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The servers' block of the exact form, with everyone's last word."""
    for i in range(me.members[0]):
        if inbox.spoke[i] == 1:
            assign(me.words[i], inbox.values[i])
            me.heard[i] = 1
    balance(me, settings)


@kernel
def balance(me: Any, settings: Any) -> None:
    """w_s = (rho sum of words - psi + r anchor) / (rho m + r d); who never spoke does not count yet."""
    for q in range(me.own.shape[0]):
        count = 0
        for i in range(me.members[0]):
            if me.heard[i] == 1 and me.label[i] == q:
                count += 1
        total = settings.penalty * count + settings.edge * me.degree[0]
        if total > 0 and me.known[q] == 1:
            for j in range(me.own.shape[1]):
                me.own[q, j] = (settings.edge * me.anchor[q, j] - me.psi[q, j]) / total
            for i in range(me.members[0]):
                if me.heard[i] == 1 and me.label[i] == q:
                    add_scaled(me.own[q], settings.penalty / total, me.words[i])


# --- servers and servers ------------------------------------------------------------------------------------


@kernel
def say_aggregates(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """What a server knows of each cluster, to all its neighbours."""
    for q in range(me.own.shape[0]):
        said.known[q] = me.known[q]
        assign(said.models[q], me.own[q])
    return True


@kernel
def say_nothing(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """ClusterFL: servers do not talk."""
    return False


@kernel
def hear_server(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """Sums over those neighbours that know something of a cluster."""
    for q in range(inbox.count.shape[0]):
        if said.known[q] > 0:
            inbox.count[q] += 1
            add_scaled(inbox.total[q], 1.0, said.models[q])


@kernel
def average(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """(9), the mean of the neighbourhood, and (10)."""
    for q in range(me.own.shape[0]):
        count = inbox.count[q] + me.known[q]
        if count > 0:
            me.used[q] = 1
            for j in range(me.own.shape[1]):
                me.hat[q, j] = (inbox.total[q, j] + me.known[q] * me.own[q, j]) / count
    finish(me, settings, moment)


@kernel
def agree(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The edges' models and duals of the exact form: psi grows with w_s - w_p; then (10)."""
    for q in range(me.own.shape[0]):
        for j in range(me.own.shape[1]):
            mine, theirs = inbox.count[q] * me.own[q, j], inbox.total[q, j]
            me.psi[q, j] += 0.5 * settings.edge * (mine - theirs)
            me.anchor[q, j] = 0.5 * (mine + theirs)
        assign(me.hat[q], me.own[q])
    finish(me, settings, moment)


@kernel
def finish(me: Any, settings: Any, moment: Any) -> None:
    """(10), and whom to ask next."""
    tau = settings.taus[min(moment.round, settings.taus.shape[0] - 1)]
    borrow(me.model, me.hat, tau, me.used)
    choose(me.asked, me.members[0], settings.some, moment.key)


@kernel
def choose(asked: Any, members: Any, some: Any, key: Any) -> None:
    """`some` of the clients, each set as likely as any other (Knuth's algorithm S); all, where some is 0."""
    left = some
    for i in range(members):
        if some == 0:
            asked[i] = 1
        elif uniform(key, CHOICE, i) * (members - i) < left:
            asked[i] = 1
            left -= 1
        else:
            asked[i] = 0


@kernel
def tell(me: Any, said: Any, settings: Any, moment: Any) -> Any:
    """To a client: the model of its cluster, and whether it is asked next."""
    slot = settings.slot[moment.peer]
    assign(said.values, me.model[me.label[slot]])
    said.asked[0] = me.asked[slot]
    said.cluster[0] = me.label[slot]
    return True
