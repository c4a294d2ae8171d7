"""A server's optimiser over any other mix: what that mix would change is taken for a gradient.

Momentum: Hsu, Qi, Brown, arXiv:1909.06335 (FedAvgM); among peers, of what a whole round changed, Wang et al., ICLR 2020
(SlowMo). Adam: Reddi et al., ICLR 2021, algorithm 2 (FedAdam), without bias correction and v_0 = tau^2, as it is there.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, Key, key
from archipel.errors import BadInput
from archipel.node import assign, kernel
from archipel.parts import BOUNDED, Mix, MixPiece, Node, Place, Settings, SharePiece
from archipel.parts.fits import check_part
from archipel.parts.mix.by_samples import BySamples
from archipel.turns import Setup


class Moments(NamedTuple):
    first: Any
    second: Any  # empty without one
    was: Any  # the model before
    over: Any  # the state of the mix below


class Heard(NamedTuple):
    """What the mix below makes of words, and how many there were."""

    over: Any
    words: Any


class Rates(NamedTuple):
    step: Any  # eta
    first: Any  # beta_1
    second: Any  # beta_2
    floor: Any  # tau
    over: Any  # the settings of the mix below


@kernel
def below(s: Any) -> Any:
    """The settings that the mix below sees."""
    return Settings(s.learn, s.protect, s.share, s.mix.over, s.across, s.asked, s.alone)


@cache
def hearing(hear: Any) -> Any:
    @kernel
    def heard(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        hear(inbox.over, said, below(settings), edge)
        inbox.words[0] += 1

    return heard


@kernel
def by_momentum(me: Any, j: Any, change: Any, rates: Any) -> Any:
    """v = beta v + Delta; w += eta v."""
    me.mix.first[j] = rates.first * me.mix.first[j] + change
    return rates.step * me.mix.first[j]


@kernel
def by_adam(me: Any, j: Any, change: Any, rates: Any) -> Any:
    """m = beta_1 m + (1 - beta_1) Delta; v = beta_2 v + (1 - beta_2) Delta^2; w += eta m / (sqrt(v) + tau)."""
    one = me.model.dtype.type(1)
    first = rates.first * me.mix.first[j] + (one - rates.first) * change
    me.mix.first[j] = first
    me.mix.second[j] = rates.second * me.mix.second[j] + (one - rates.second) * change * change
    return rates.step * first / (np.sqrt(me.mix.second[j]) + rates.floor)


@kernel
def never(me: Any, inbox: Any, settings: Any) -> Any:
    """Most mixes make something of every word."""
    return False


@cache
def finishing(finish: Any, rule: Any, among: bool, idle: Any) -> Any:
    @kernel
    def optimised(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """What the mix below would change, from where the server was, or a peer when its round began.

        A round in which a server heard nothing, or waits for more, is none of the optimiser's. One in which the mean
        change is zero is.
        """
        assign(me.mix.was, me.before if among else me.model)
        node = Node(me.model, me.before, me.learn, me.protect, me.share, me.mix.over, me.across)
        waits = not among and (inbox.words[0] == 0 or idle(node, inbox.over, below(settings)))
        finish(node, inbox.over, below(settings), moment)
        if waits:
            return
        for j in range(me.model.shape[0]):
            change = me.model[j] - me.mix.was[j]
            me.model[j] = me.mix.was[j] + rule(me, j, change, settings.mix)

    return optimised


UNDER = Key("a table of its own: the mix whose change is taken for a gradient; (none): by samples")


@dataclass(frozen=True)
class Momentum(Mix, Checked):
    """The change of a mix, by samples if no other is given, with what remains of those before."""

    step: float = key(1.0, "how far to go", above=0, symbol="eta")
    momentum: float = key(0.9, "what remains of the last change", at_least=0, below=1, symbol="beta")
    over: Any = field(default=None, kw_only=True, metadata={"family": "mix", "key": UNDER})

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        return optimised(self.over, by_momentum, (self.step, self.momentum, 0.0, 0.0), setup, share, place)

    def across(self) -> Mix:
        """What the mix below does: the step is taken once, where clients are heard."""
        return under(self.over).across()

    def one_way(self) -> "Momentum":
        raise BadInput("topology.kind", "digraph", "another: an optimiser would undo the mass that push-sum carries")


@dataclass(frozen=True)
class Adam(Mix, Checked):
    """The change of a mix, by samples if no other is given, taken for a gradient by Adam."""

    step: float = key(0.1, "how far to go", above=0, symbol="eta")
    first: float = key(0.9, "what remains of the mean change", at_least=0, below=1, symbol="beta_1")
    second: float = key(0.99, "what remains of its square", at_least=0, below=1, symbol="beta_2")
    floor: float = key(1e-3, "how adaptive: the least that a step is divided by", above=0, symbol="tau")
    over: Any = field(default=None, kw_only=True, metadata={"family": "mix", "key": UNDER})

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        if place.own:
            right = "one with a server: peers that scale each parameter by what they saw do not agree"
            raise BadInput("topology.kind", "peers", right)
        rates = (self.step, self.first, self.second, self.floor)
        return optimised(self.over, by_adam, rates, setup, share, place)

    def across(self) -> Mix:
        """What the mix below does: the step is taken once, where clients are heard."""
        return under(self.over).across()


def under(over: Mix | None) -> Mix:
    """The mix below."""
    return BySamples(0) if over is None else over


def optimised(over: Any, rule: Any, rates: Any, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
    """A mix piece with an optimiser upon it."""
    check_part("mix", under(over), "mix.over")
    inner = under(over).make(setup, share, place)
    if inner.weight is not None or inner.settle is not None:
        right = "another: an optimiser would undo the mass that it carries"
        raise BadInput("algorithm.mix.over", type(over).__name__, right)
    if inner.tell is not None:
        raise BadInput("algorithm.mix.over", type(over).__name__, "a mix of one model")
    among = not setup.graph.servers
    real, rows = np.dtype(place.dtype).type, (place.receivers, place.size)
    zeros, tau = np.zeros(rows, place.dtype), real(rates[3])
    second = np.full(rows if rule is by_adam else (rows[0], 0), tau * tau, place.dtype)
    return inner._replace(
        hear=hearing(inner.hear),
        finish=finishing(inner.finish, rule, among, inner.idle or never),
        inbox=Heard(inner.inbox, np.zeros(1, place.dtype)),
        state=Moments(zeros, second, zeros.copy(), inner.state),
        settings=Rates(real(rates[0]), real(rates[1]), real(rates[2]), tau, inner.settings),
        before=inner.before or among,
        leaves=BOUNDED,
    )
