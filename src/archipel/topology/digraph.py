"""Clients with one-way trust: a directed, weighted graph that may change every round."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from archipel.describe import Checked, key
from archipel.draws import FADE
from archipel.errors import BadInput
from archipel.topology import connectivity, files, shapes
from archipel.topology import links as weights
from archipel.topology.kinds import Graph, Names, check_clients, name_of, names_of
from archipel.topology.links import Links
from archipel.topology.shapes import USUAL, usual


@dataclass(frozen=True)
class Digraph(Checked):
    """Clients with one-way links that may change every round: round n uses phase n mod `phases`.

    A sender's weights, its own share included, sum to one: that is `sums_to_one = "sender"`, what push-sum
    needs. With "receiver" what a receiver takes in does, as in the dissertation's chapter 2.

    `random`: strongly connected, with round(clients * mean_degree) links, drawn anew for each phase; `ring`;
    `complete`; their `shares` are "even" or "random". Or a CSV `edges` with source, target, and weight and
    phase where wanted: an own share is a row from a client to itself; without a weight all shares of a client
    are equal; a client without rows in a phase keeps everything.

    `fade` is the chance of each link, and `opt_out` that of each client, to be away in a phase: its weight is
    kept, and a random graph is one for all phases then. The links of `window` rounds (B of assumption 5) together
    must let everyone reach everyone.
    """

    section = "topology"

    shape: str = key("random", "the shape of the graph", choices=("random", "ring", "complete"))
    mean_degree: float = key(USUAL, "how many clients one of a random graph sends to, on average", at_least=1)
    edges: str = key("", "a CSV with columns source, target, and weight and phase where wanted, in place of a shape")
    shares: str = key("even", "how a client splits its weight", choices=("even", "random"))
    sums_to_one: str = key("sender", "at which end of the links weights sum to one", choices=("sender", "receiver"))
    phases: int = key(1, "how many graphs take turns", at_least=1, at_most=10_000, unit="rounds")
    fade: float = key(0.0, "how likely a link is away in a phase", at_least=0, below=1, noun="a probability")
    opt_out: float = key(0.0, "how likely a client is away in a phase", at_least=0, below=1, noun="a probability")
    window: int = key(1, "within how many rounds everyone must reach everyone", at_least=1, unit="rounds", symbol="B")
    force: bool = key(False, "whether a sequence that is not connected within its window is accepted")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._thins() and self.phases == 1:
            raise BadInput("topology.phases", self.phases, "at least 2, the rounds after which fading repeats itself")
        if self.phases > 1 and not (self._thins() or self.edges or self.shape == "random"):
            raise BadInput("topology.phases", self.phases, f'1: a "{self.shape}" changes only with fade or opt_out')

    def build(self, clients: int, seed: int, names: Names = None) -> Graph:
        """The graph of a run."""
        check_clients(clients, names)
        if self.edges:
            base, names = self._from_file(clients, names)
        else:
            base = [self._drawn(clients, seed, phase) for phase in range(1 if self._thins() else self.phases)]
        sequence = tuple(self._thinned(base, seed) if self._thins() else base)
        self._refuse_unconnected(sequence, names)
        return Graph(clients, sequence, cluster=np.zeros(clients, np.int64), names=tuple(names or ()), one_way=True)

    def _thins(self) -> bool:
        return self.fade > 0 or self.opt_out > 0

    def _drawn(self, clients: int, seed: int, phase: int) -> Links:
        makers: dict[str, Callable[[], Any]] = {
            "random": lambda: shapes.random_strong(clients, self._count(clients), seed, phase),
            "ring": lambda: shapes.one_way_ring(clients),
            "complete": lambda: shapes.both_directions(shapes.complete(clients)),
        }
        pairs = makers[self.shape]() if clients > 1 else np.empty((0, 2), np.int64)
        links = weights.from_pairs(clients, pairs[:, 1], pairs[:, 0])
        return self._shared(links, shapes.chances(seed, shapes.SHARES, phase, len(links.senders) + clients))

    def _count(self, clients: int) -> int:
        degree = usual(self.mean_degree, clients)
        if degree > clients - 1:
            raise BadInput("topology.mean_degree", self.mean_degree, f"a number from 1 to {clients - 1}")
        return round(clients * degree)

    def _shared(self, links: Links, chances: Any) -> Links:
        """Weights that sum to one, at the end that the user wants."""
        turned = links if self.sums_to_one == "sender" else connectivity.reverse(links)
        turned = weights.even_shares(turned) if self.shares == "even" else weights.uneven_shares(turned, chances)
        return turned if self.sums_to_one == "sender" else connectivity.reverse(turned)

    def _thinned(self, base: list[Links], seed: int) -> list[Links]:
        if self.phases % len(base):
            raise BadInput("topology.phases", self.phases, f"a multiple of {len(base)}, the phases in {self.edges}")
        keeps = weights.sender_keeps if self.sums_to_one == "sender" else weights.receiver_keeps
        thin = []
        for phase in range(self.phases):
            links = base[phase % len(base)]
            stays = shapes.chances(seed, shapes.OPTS_OUT, phase, len(links.own), FADE) >= self.opt_out
            holds = shapes.chances(seed, shapes.LINK_FADES, phase, len(links.senders), FADE) >= self.fade
            thin.append(keeps(links, holds & weights.present_only(links, stays)))
        return thin

    def _from_file(self, clients: int, names: Names) -> tuple[list[Links], Names]:
        table = files.read("topology.edges", self.edges, ("source", "target"), ("weight", "phase"))
        known = files.known_names([(table, "source"), (table, "target")], clients, names, "client")
        source, target = (files.numbers(table, end, known, "client") for end in ("source", "target"))
        phase = files.phase_numbers(table)
        count = int(phase.max(initial=0)) + 1
        if self.phases not in (1, count) and not self._thins():
            raise BadInput("topology.phases", self.phases, f"{count}, as in {self.edges}, or 1")
        files.refuse_repeats(table, (phase * clients + source) * clients + target, "each link once in a phase")
        named = names or names_of(known)
        if "weight" not in table.columns:
            own_rows = np.flatnonzero(source == target)
            if len(own_rows):
                raise table.bad("a column weight, or no link from a client to itself", int(own_rows[0]))
            even = [weights.from_pairs(clients, target[phase == p], source[phase == p]) for p in range(count)]
            return [self._shared(links, np.ones(len(links.senders) + clients)) for links in even], named
        weight = files.reals(table, "weight")
        rows = [phase == p for p in range(count)]
        return [self._weighted(clients, source[r], target[r], weight[r], p, named) for p, r in enumerate(rows)], named

    def _weighted(self, clients: int, source: Any, target: Any, weight: Any, phase: int, names: Names) -> Links:
        """The user's own weights: refuse a sum that is not one, so that nothing is lost and nothing made."""
        end = source if self.sums_to_one == "sender" else target
        total = np.bincount(end, weight, minlength=clients)
        silent = np.bincount(end, minlength=clients) == 0
        wrong = np.flatnonzero(~silent & (np.abs(total - 1) > 1e-9))
        if len(wrong):
            who = name_of(int(wrong[0]), names)
            right = f"weights that sum to one for each {self.sums_to_one}, own share (a row {who},{who}) included"
            found = f"client {who} has {total[wrong[0]]:.10g} in phase {phase}"
            raise BadInput("topology.edges", self.edges, f"{right}; {found}")
        to_self, real = source == target, (source != target) & (weight > 0)
        own = np.where(silent, 1.0, 0.0)
        own[source[to_self]] = weight[to_self]
        return weights.from_pairs(clients, target[real], source[real], weight[real], own)

    def _refuse_unconnected(self, sequence: tuple[Links, ...], names: Names) -> None:
        if self.force:
            return
        failed = connectivity.window_that_fails(sequence, self.window)
        if failed:
            first, here, there = failed[0], name_of(failed[1], names), name_of(failed[2], names)
            last = first + self.window - 1
            right = f"rounds within which everyone reaches everyone; in rounds {first} to {last} "
            raise BadInput("topology.window", self.window, right + f"nothing gets from client {here} to client {there}")
        changes = len(sequence) > 1 and any((links.own == 0).any() for links in sequence)
        if len(sequence[0].own) > 1 and (changes or connectivity.period(sequence[0]) > 1):
            right = "an own share above zero for every client, else weights go round for ever and nothing settles"
            raise BadInput("topology.edges", self.edges, right)
