"""A server that samples whom to ask: algorithm 1 of the PLDP paper without its clients, for any algorithm.

Chen et al., ICASSP, algorithm 1; lines are named below. In the first `pretrain` rounds everyone is asked, and
clients may answer with a gradient norm (G_i, line 3); after them the server settles the chances q once, by any
of `sampling.SAMPLINGS`, and draws K times a round. A client that is drawn twice answers once and counts twice;
merged with p_i / (K q_i) the answers have no bias.

An algorithm takes `tell`, `hear` and `merge` as they are, with settings that have the fields of `Asks`, and has
its own client: `take` a `Question`, say an `Answer`. `pldp_fl` does, and `fedavg_deep`.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from archipel.algorithms.sampling import SAMPLINGS, Optimal, choose, ladder_of, merging_weights, p2_value
from archipel.draws import key_of
from archipel.errors import BadInput, did_you_mean
from archipel.node import add_scaled


class Asks(Protocol):
    """What the server reads of an algorithm's settings."""

    @property
    def sampling(self) -> Any: ...  # Uniform, ByWeight or Optimal
    @property
    def weights(self) -> Any: ...  # p_i
    @property
    def noise(self) -> Any: ...  # B_i
    @property
    def clip(self) -> float: ...  # C: what a norm that nobody knows is at most
    @property
    def pretrain(self) -> int: ...
    @property
    def seed(self) -> int: ...


class Server(NamedTuple):
    model: Any
    chance: Any  # q, zeros before it is known
    norms: Any  # sum of the squared norms it heard of, per client
    heard: Any  # how many


class Question(NamedTuple):
    model: Any
    share: Any  # what the answer will count; goes back with it
    chance: Any


class Answer(NamedTuple):
    change: Any
    share: Any
    norm: Any


class Inbox(NamedTuple):
    total: Any
    norms: Any
    heard: Any


def tell(me: Any, said: Any, settings: Asks, moment: Any) -> bool:
    """Line 7: w^r to a client of S_r, with what its update will count; to everyone while pre-training."""
    k = moment.peer
    said.chance[0] = 0.0
    if moment.round < settings.pretrain:
        said.share[0] = settings.weights[k]
    else:
        counts = drawn(me.chance, settings, moment)
        if counts[k] == 0:
            return False
        said.share[0] = merging_weights(settings.weights, me.chance, counts, settings.sampling.draws)[k]
        said.chance[0] = me.chance[k]
    said.model[:] = me.model
    return True


def drawn(chance: Any, settings: Asks, moment: Any) -> Any:
    """Line 5: how often each client is drawn this round."""
    counts = np.zeros(len(chance), np.int64)
    choose(counts, ladder_of(chance), settings.sampling.draws, key_of(settings.seed, 0, moment.round))
    return counts


def hear(inbox: Any, said: Any, settings: Asks, edge: Any) -> None:
    """Line 15, one client's part: p_i / (K q_i) of its change, as often as it was drawn."""
    add_scaled(inbox.total, inbox.total.dtype.type(said.share[0]), said.change)
    if said.norm[0] > 0:
        inbox.norms[edge.sender] += said.norm[0] ** 2
        inbox.heard[edge.sender] += 1


def merge(me: Any, inbox: Any, settings: Asks, moment: Any) -> None:
    """Line 15; and line 2, when pre-training is over."""
    me.model[:] += inbox.total
    me.norms[:] += inbox.norms
    me.heard[:] += inbox.heard
    if moment.round == settings.pretrain - 1:
        me.chance[:] = settings.sampling.chances(settings.weights, norms_of(me, settings), settings.noise)


def norms_of(me: Any, settings: Asks) -> Any:
    """G_i: the root mean square of the norms; who was away counts as the mean of the others."""
    known = me.heard > 0
    squares = np.where(known, me.norms / np.maximum(me.heard, 1), 0.0)
    squares[~known] = squares[known].mean() if known.any() else settings.clip**2
    return np.sqrt(squares)


# --- for a description --------------------------------------------------------------------------------------


def chosen_sampling(sampling: str, draws: int, tradeoff: float) -> Any:
    """The sampling of this name."""
    if sampling not in SAMPLINGS:
        raise BadInput("algorithm.sampling", sampling, did_you_mean(sampling, SAMPLINGS))
    return Optimal(draws, tradeoff) if sampling == "optimal" else SAMPLINGS[sampling](draws)


def check_pretrain(sampling: str, pretrain: int, rounds: int) -> None:
    """P2 needs gradient norms, so at least one round with everyone."""
    least = 1 if sampling == "optimal" else 0
    if not least <= pretrain <= rounds:
        right = f"from {least} to {rounds} rounds" + (", as P2 needs gradient norms" if least else "")
        raise BadInput("algorithm.pretrain", pretrain, right)


def server_of(start: Any, settings: Asks) -> Server:
    """The one server, with the initial model; without pre-training its chances are settled already."""
    each, chance = np.zeros(len(settings.weights)), np.zeros((1, len(settings.weights)))
    if not settings.pretrain:
        chance[0] = settings.sampling.chances(settings.weights)
    return Server(start[None].copy(), chance, each[None].copy(), each[None].copy())


def words_of(size: int, clients: int, dtype: Any) -> tuple[Question, Answer, Inbox]:
    """An empty question, answer and inbox."""
    empty, number, each = np.zeros(size, dtype), np.zeros(1), np.zeros(clients)
    return Question(empty, number, number), Answer(empty, number, number), Inbox(empty, each, each)


def measured(tables: dict[str, Any], settings: Asks) -> dict[str, Any]:
    """Everyone's weight, gradient norm and chance, and what the choice is worth once it is settled.

    `worth.uniform` is what (6) minimises, the part of bound (5) that depends on the choice, under uniform
    sampling over that under ours: above 1, ours is better.
    """
    server, weights = tables["server"], settings.weights
    chance, norms = server.chance[0], np.sqrt(server.norms[0] / np.maximum(server.heard[0], 1))
    found = {"share.node": weights.copy(), "chance.node": chance.copy(), "norm.node": norms}
    if (server.heard[0] == 0).any() or not chance.any():
        return found
    tradeoff = getattr(settings.sampling, "tradeoff", 1.0)

    def value(q: Any) -> float:
        return p2_value(q, weights, norms, settings.noise, tradeoff)

    mine = value(chance)
    return found | {
        "worth.uniform": value(np.full(len(chance), 1 / len(chance))) / mine,
        "worth.weight": value(weights) / mine,
    }
