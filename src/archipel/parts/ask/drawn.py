"""A server that draws whom to ask, and merges what they answer without bias; for any composition with a server.

Chen et al., ICASSP, algorithm 1; lines are named below. In the first `pretrain` rounds everyone is asked, and where
the chances are to be optimal clients say a gradient norm with their words (G_i, line 3); after them the server settles
the chances q once, by any of `sampling.SAMPLINGS`, and draws K times a round. A client that is drawn twice answers
once and counts twice; merged with p_i / (K q_i) the answers have no bias.

Among several servers each draws K of its own clients, whose p_i sum to one there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.draws import CHOICE, key_of, uniform
from archipel.errors import BadInput
from archipel.node import add_scaled, kernel
from archipel.parts import LearnPiece, MixPiece, Node, SharePiece
from archipel.parts.ask.sampling import SAMPLINGS, known_chances, ladder_of, p2_value, solve_p2
from archipel.problems.models.learners import public_sizes
from archipel.turns import Setup


class Draws(NamedTuple):
    """The settings of a server that draws."""

    draws: Any  # K
    pretrain: Any
    seed: Any
    weights: Any  # p_i
    server: Any  # of each client
    noise: Any  # B_i
    unknown: Any  # what a norm counts that nobody knows
    solve: Any  # (weight, gradient, noise) -> q; 0 where it is known from the start


class Asks(NamedTuple):
    """What a server keeps of its clients."""

    chance: Any  # q, zeros before it is known
    ladder: Any  # q, added up
    norms: Any  # sum of the squared norms it heard of
    heard: Any  # how many


class Asked(NamedTuple):
    """What a client keeps of being asked, and the share part's own state."""

    own: Any
    share: Any  # what its answer will count: comes with the question and goes back with the answer
    chance: Any  # q_i, as the server said; 0 before it is known
    norm: Any  # G_i, to be said
    asked: Any  # in how many rounds


class Question(NamedTuple):
    word: Any
    share: Any
    chance: Any


class Answer(NamedTuple):
    word: Any
    share: Any
    norm: Any


class Answers(NamedTuple):
    inbox: Any
    norms: Any
    heard: Any


class AskPiece(NamedTuple):
    """How a server asks: the parts, changed where answers have shares."""

    tell: Callable[..., Any]  # (me, said, settings, moment) -> whether it asks client moment.peer
    share: SharePiece
    learn: LearnPiece
    mixed: Callable[[MixPiece], MixPiece]
    settings: Draws


# --- node functions -------------------------------------------------------------------------------------------------


@kernel
def without(me: Any) -> Any:
    """A client as the share part knows it."""
    return Node(me.model, me.before, me.learn, me.protect, me.share.own, me.mix, me.across)


@kernel
def times_drawn(ladder: Any, k: Any, draws: Any, key: Any) -> Any:
    """Line 5: how often client k is among the K draws of a round, S_r ~ W(N, K, q)."""
    low = ladder[k - 1] if k > 0 else 0.0
    count = 0
    for draw in range(draws):
        number = uniform(key, CHOICE, draw)
        if low <= number < ladder[k]:
            count += 1
    return count


@cache
def asking(tell: Any) -> Any:
    @kernel
    def ask(me: Any, said: Any, settings: Any, moment: Any) -> Any:
        """Line 7: w^r to a client of S_r, with what its update will count; to everyone while pre-training."""
        s, k = settings.asked, moment.peer
        if moment.round < s.pretrain:
            said.share[0], said.chance[0] = s.weights[k], 0.0
        else:
            count = times_drawn(me.share.ladder, k, s.draws, key_of(s.seed, moment.node, moment.round))
            if count == 0:
                return False
            said.share[0] = count * s.weights[k] / (s.draws * me.share.chance[k])
            said.chance[0] = me.share.chance[k]
        tell(said.word, me, settings, moment)
        return True

    return ask


@cache
def taking(take: Any) -> Any:
    @kernel
    def taken(me: Any, said: Any, settings: Any) -> None:
        take(without(me), said.word, settings)
        me.share.share[0], me.share.chance[0] = said.share[0], said.chance[0]
        me.share.asked[0] += 1

    return taken


@cache
def answering(write: Any) -> Any:
    @kernel
    def answer(said: Any, me: Any, settings: Any, moment: Any) -> None:
        write(said.word, without(me), settings, moment)
        said.share[0], said.norm[0] = me.share.share[0], me.share.norm[0]

    return answer


@cache
def folding(fold: Any) -> Any:
    @kernel
    def folded(total: Any, count: Any, said: Any, factor: Any, settings: Any) -> None:
        """Line 15, one client's part: p_i / (K q_i) of its word, as often as it was drawn."""
        fold(total, count, said.word, factor * total.dtype.type(said.share[0]), settings)

    return folded


@cache
def saying_norms(learn: Any, norm: Any) -> Any:
    def learned(me: Any, data: Any, settings: Any, moment: Any) -> Any:
        """Line 3, while pre-training."""
        me.share.norm[0] = norm(me, data, settings, moment) if moment.round < settings.asked.pretrain else 0.0
        return learn(me, data, settings, moment)

    return learned


@cache
def hearing_norms(hear: Any) -> Any:
    def heard(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        hear(inbox.inbox, said, settings, edge)
        if said.norm[0] > 0:
            inbox.norms[edge.sender] += said.norm[0] ** 2
            inbox.heard[edge.sender] += 1

    return heard


@cache
def choosing(finish: Any) -> Any:
    def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """Line 15; and line 2, when pre-training is over."""
        finish(me, inbox.inbox, settings, moment)
        one = me.share.norms.dtype.type(1)
        add_scaled(me.share.norms, one, inbox.norms)
        add_scaled(me.share.heard, one, inbox.heard)
        s = settings.asked
        if moment.round == s.pretrain - 1:
            mine = s.server == moment.node
            norms = norms_of(me.share.norms[mine], me.share.heard[mine], s.unknown)
            me.share.chance[mine] = s.solve(s.weights[mine], norms, s.noise[mine])
            me.share.ladder[:] = ladder_of(me.share.chance)

    return merge


def norms_of(squares: Any, heard: Any, unknown: float) -> Any:
    """G_i: the root mean square of the norms; who was away counts as the mean of the others."""
    known = heard > 0
    squares = np.where(known, squares / np.maximum(heard, 1), 0.0)
    squares[~known] = squares[known].mean() if known.any() else unknown**2
    return np.sqrt(squares)


# --- the description ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn(Checked):
    """The server draws `draws` times a round, with replacement: uniform, by weight, or optimal (problem P2)."""

    section: ClassVar[str] = "algorithm.ask"
    sampling: str = key("uniform", "the chances of clients", choices=SAMPLINGS)
    draws: int = key(3, "how often the server draws in a round", at_least=1, symbol="K")
    pretrain: int = key(1, "rounds at first in which everyone is asked", at_least=0)
    tradeoff: float = key(0.0, "what noise counts beside the spread of the data", at_least=0, symbol="lambda")
    noise: tuple[float, ...] = key((), "everyone's noise; none where there is nothing", at_least=0, symbol="B")
    unknown: float = key(1.0, "the gradient norm of clients that nobody has heard of", above=0)

    def make(self, setup: Setup, share: SharePiece, learn: LearnPiece) -> AskPiece:
        graph, optimal = setup.graph, self.sampling == "optimal"
        # streams have no size: there all clients weigh the same
        sizes = np.ones(graph.clients) if setup.task.streams else public_sizes(setup.task).astype(float)
        if not graph.servers:
            raise BadInput("algorithm.ask.kind", "drawn", "none: there is no server that asks")
        least = 1 if optimal else 0
        if not least <= self.pretrain <= setup.rounds:
            right = f"from {least} to {setup.rounds} rounds" + (", as P2 needs gradient norms" if least else "")
            raise BadInput("algorithm.pretrain", self.pretrain, right)
        noise = np.asarray(self.noise or np.zeros(len(sizes)), float)
        weights, chance = np.zeros(len(sizes)), np.zeros((graph.servers, len(sizes)))
        for s in range(graph.servers):
            mine = graph.server == s
            weights[mine] = sizes[mine] / sizes[mine].sum()
            found = known_chances(self.sampling, weights[mine], self.draws)  # refuses N <= K
            chance[s, mine] = 0.0 if optimal else found
        ladder = chance.copy() if optimal else np.stack([ladder_of(row) for row in chance])
        solve: Any = partial(solve_p2, tradeoff=self.tradeoff, draws=self.draws) if optimal else 0
        settings = Draws(self.draws, self.pretrain, setup.seed, weights, graph.server, noise, self.unknown, solve)
        counts, one = np.zeros((graph.servers, len(sizes))), np.zeros((len(sizes), 1))
        asks = Asks(chance, ladder, counts, counts.copy())
        state = Asked(share.state, *(one.copy() for _ in range(4)))
        number = np.zeros(1)
        asked = share._replace(
            write=answering(share.write), take=taking(share.take), fold=folding(share.fold), state=state,
            word=Answer(share.word, number, number), told=Question(share.told, number, number), server_state=asks,
        )  # fmt: skip
        if not optimal:
            return AskPiece(asking(share.tell), asked, learn, unchanged, settings)
        if learn.norm is None:
            right = '"uniform" or "weight": this way to learn has no gradient norm that it may say'
            raise BadInput("algorithm.sampling", self.sampling, right)
        asking_too = learn.asking and saying_norms(learn.asking, learn.norm)
        told = learn._replace(learn=saying_norms(learn.learn, learn.norm), plain_only=True, asking=asking_too)
        return AskPiece(asking(share.tell), asked, told, with_norms(len(sizes)), settings)


def unchanged(mix: MixPiece) -> MixPiece:
    return mix


def with_norms(clients: int) -> Callable[[MixPiece], MixPiece]:
    """A mix part whose inbox also has the clients' gradient norms."""
    each = np.zeros(clients)

    def mixed(mix: MixPiece) -> MixPiece:
        inbox = Answers(mix.inbox, each, each)
        return mix._replace(hear=hearing_norms(mix.hear), finish=choosing(mix.finish), inbox=inbox)

    return mixed


def measured(settings: Draws, tradeoff: float, tables: dict[str, Any], round: int) -> dict[str, Any]:
    """Everyone's weight, gradient norm and chance, who was asked how often, and what the choice is worth.

    `worth.uniform` is what (6) minimises, the part of bound (5) that depends on the choice, under uniform sampling over
    that under ours: above 1, ours is better. It is said where there is one server.
    """
    asks, weights = tables["server"].share, settings.weights
    chance, heard = asks.chance.sum(0), asks.heard.sum(0)
    norms = np.sqrt(asks.norms.sum(0) / np.maximum(heard, 1))
    found = {"share.node": weights.copy(), "chance.node": chance, "norm.node": norms}
    found["asked.node"] = tables["client"].share.asked[:, 0].copy()
    if (heard == 0).any() or not chance.any() or len(asks.chance) > 1:
        return found

    def value(q: Any) -> float:
        return p2_value(q, weights, norms, settings.noise, tradeoff)

    mine = value(chance)
    uniformly = value(np.full(len(chance), 1 / len(chance)))
    return found | {"worth.uniform": uniformly / mine, "worth.weight": value(weights) / mine}
