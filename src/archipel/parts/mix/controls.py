"""SCAFFOLD's server, and its form among peers; a pair with the learn part `scaffold`.

At a server, Karimireddy et al., ICML 2020, algorithm 1 with option II: a client says how its control moved,
c_k+ - c_k = (x - y) / (K eta) - c, and the server adds the sum of these over all its N clients to c. So c is the
mean of all c_k as long as every such word counts in the end; one that is lost would move the fixed point for good.

Among peers, Liu et al., 2024 (K-GT): with z_i = (x_i - y_i) / (K eta), c_i += sum_j W_ij z_j - z_i. What is not heard
stays with its sender, so the sum of all c_i remains zero whoever is away, and whatever is late.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.node import add_scaled, assign, extended, kernel
from archipel.parts import Mix, MixPiece, Place, SharePiece, empty
from archipel.parts.mix.mean import Sums, blend, sums
from archipel.turns import Setup


class Pace(NamedTuple):
    step: Any  # eta_g


class Control(NamedTuple):
    control: Any  # c


class WithControl(NamedTuple):
    """A word, and what it says of controls."""

    said: Any
    control: Any


Heard = extended(Sums, "Heard", "control")


@cache
def telling(tell: Any) -> Any:
    @kernel
    def told(said: Any, me: Any, settings: Any, moment: Any) -> None:
        """(x, c)."""
        tell(said.said, me, settings, moment)
        assign(said.control, me.mix.control)

    return told


@cache
def taking(take: Any) -> Any:
    @kernel
    def taken(me: Any, said: Any, settings: Any) -> None:
        take(me, said.said, settings)
        assign(me.learn.common, said.control)

    return taken


@cache
def writing(write: Any, among: bool) -> Any:
    @kernel
    def written(said: Any, me: Any, settings: Any, moment: Any) -> None:
        """(y, c_k+ - c_k), or among peers (y, z): after what is said of y was protected, nothing more shows."""
        write(said.said, me, settings, moment)
        span = settings.learn.step * me.learn.steps[0]
        for j in range(me.model.shape[0]):
            me.learn.moved[j] = (me.before[j] - me.model[j]) / span - me.learn.common[j]
            if not among:
                me.learn.control[j] += me.learn.moved[j]
        assign(said.control, me.learn.moved)

    return written


@cache
def hearing(fold: Any, among: bool) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        weight = inbox.total.dtype.type(edge.weight if among else 1.0)
        fold(inbox.total, inbox.count, said.said, weight, settings)
        add_scaled(inbox.control, weight, said.control)

    return hear


@kernel
def serve(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """x += eta_g mean(y - x), c += sum / N."""
    for j in range(me.model.shape[0]):
        if inbox.count[j] > 0:
            me.model[j] += settings.mix.step * (inbox.total[j] / inbox.count[j] - me.model[j])
        me.mix.control[j] += inbox.control[j] / moment.degree


@kernel
def track(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """x = sum_j W_ij y_j, and -c_i (what is subtracted from a gradient) += z_i - sum_j W_ij z_j."""
    blend(me, inbox, settings, moment)
    given = me.model.dtype.type(1.0 - moment.kept)
    for j in range(me.model.shape[0]):
        me.learn.control[j] += given * me.learn.moved[j] - inbox.control[j]


@dataclass(frozen=True)
class Controls(Mix, Checked):
    """The mean of models, and controls that say how gradients differ; only with epochs that are corrected by them."""

    fixed_clients: ClassVar[str] = "a server divides what controls say by the number of its clients"

    step: float = key(1.0, "how far a server goes towards the mean", above=0, symbol="eta_g")
    limit: int = key(0, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        if place.of_change or not share.whole:
            raise BadInput("algorithm.share.kind", "changes or portions", "whole models, with SCAFFOLD's controls")
        among, zeros = place.own, np.zeros(place.size, place.dtype)
        state: Any = Control(np.zeros((place.receivers, place.size), place.dtype))
        piece = MixPiece(
            hearing(share.fold, among), track if among else serve, Heard(*sums(place), zeros),
            empty(place.receivers) if among else state, Pace(np.dtype(place.dtype).type(self.step)), self.limit,
            write=writing(share.write, among), word=WithControl(share.word, zeros), more=place.size,
            needs=("control",),
        )  # fmt: skip
        told = WithControl(share.told, zeros)
        if among:
            return piece
        return piece._replace(tell=telling(share.tell), take=taking(share.take), told=told, both_ends=True)

    def one_way(self) -> "Controls":
        raise BadInput("topology.kind", "digraph", "links that go both ways: else controls do not cancel")

    def across(self) -> "Controls":
        raise BadInput("topology.kind", "servers", "a star, or peers: servers would have to agree on a control as well")
