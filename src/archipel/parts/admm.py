"""Networked ADMM as a plan: learn and mix share a dual, so they come as a pair, on peers, a star or servers."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.node import table_of
from archipel.parts import NONE, Node, Settings, empty
from archipel.parts.kind import Composition
from archipel.parts.learn.primal import acting
from archipel.parts.mix import dual
from archipel.parts.protect.told import Known, Priced, pay_for
from archipel.parts.share.whole import Model
from archipel.turns import Plan, Setup, Tell, Turn

PAIRED = "none: the learn and mix parts of ADMM share a dual, and what it protects is what moves it; take another kind"


class Stepping(NamedTuple):
    """An ADMM learn part, made."""

    step: Any  # (me, data, settings, moment, scale)
    reach: Any  # (me, settings, moment) -> how far one unit of the data moves what is told
    tell: Any  # (me, scale, settings, moment)
    state: Any
    settings: Any
    alone: bool = False  # whether nodes that are away learn
    at_servers: Any = dual.agree


@dataclass(frozen=True)
class Admm(Composition):
    """What the kinds have in common that ADMM makes agree."""

    precision: ClassVar[str] = "float64"
    own_data_kind: ClassVar[str] = "stored"
    topologies: ClassVar[tuple[str, ...]] = ("peers", "star", "servers")
    refuses: ClassVar[dict[str, str]] = {"digraph": "ADMM needs links that go both ways and are never late"}
    no_delays: ClassVar[bool] = True
    fixed_clients: ClassVar[str] = "ADMM's penalties depend on how many there are"

    @property
    def data_kind(self) -> str:
        """Stored, whatever learn part is given: that is refused, with what a plan knows."""
        return self.own_data_kind

    def plan(self, setup: Setup) -> Plan:
        """Everyone at the start, and their turns; unless a part of a pair was replaced."""
        for name in ("learn", "protect", "share", "mix", "ask"):
            given = getattr(self, name)
            if given is not None:
                raise BadInput(f"algorithm.{name}", type(given).__name__, PAIRED)
        return self.laid(setup)

    def laid(self, setup: Setup) -> Plan:
        """The plan of the pair."""
        raise NotImplementedError


def node(model: Any, learn: Any, protect: Any, mix: Any, across: Any = None) -> Node:
    """A table of nodes that keep nothing of before, and share what they were told."""
    nothing = empty(len(model))
    return Node(model, np.zeros((len(model), 0)), learn, protect, nothing, mix, nothing if across is None else across)


def settings_of(learn: Any, protect: Any, mix: Any, across: Any = NONE) -> Settings:
    return Settings(learn, protect, NONE, mix, across, 1.0, 0)


def consensus_plan(setup: Setup, own: Stepping, priced: Priced, penalty: float) -> Plan:
    """Everyone at zero, and the turns of the topology."""
    graph, size, real = setup.graph, setup.task.size, setup.dtype
    degrees = np.diff(dual.whole_graph(graph).starts)
    mixing = 1.0 / (1.0 + float(degrees.max(initial=0)))
    settings = settings_of(own.settings, priced.settings, dual.Consensus(penalty, mixing, np.ones(1)))
    pay = pay_for(setup.privacy, own.reach)
    act = acting(pay, own.step, own.tell, dual.say, own.alone)
    model = table_of((graph.clients, size), real)
    table = node(model, own.state, priced.state, dual.duals(degrees[: graph.clients], size, real))
    word, inbox = Model(np.zeros(size, real)), dual.Inbox(np.zeros(size, real), np.zeros(1))
    if not graph.servers:
        turn = Turn("peer", "peer", act, dual.hear, dual.merge, word, inbox)
        return Plan({"peer": table}, (turn,), settings, {0: size}, accountant=priced.accountant)
    zeros = [table_of((graph.servers, size), real) for _ in range(3)]
    across = dual.Across(zeros[0], np.zeros((graph.servers, 1)))
    mine = dual.duals(degrees[graph.clients :], size, real)
    servers = node(zeros[1], empty(graph.servers), Known(zeros[2]), mine, across)
    turns: list[Any] = [Turn("client", "server", act, dual.hear, dual.serving(own.at_servers), word, inbox)]
    if graph.servers > 1:
        turns.append(Turn("server", "server", dual.speak, dual.hear, dual.merge_across, word, inbox))
    turns.append(Tell("server", "client", dual.tell, dual.take, word))
    tables, said = {"client": table, "server": servers}, {i: float(size) for i in range(len(turns))}
    return Plan(tables, tuple(turns), settings, said, accountant=priced.accountant)
