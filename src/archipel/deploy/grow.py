"""A description may grow while it runs: clients at the end of the roster, and rounds. Nothing else may change.

Two nodes then agree on all else, and on each other's names and numbers: one may have the longer description. Where the
number of clients enters the mathematics (the penalties of ADMM), or that of rounds (noise planned for so many), they
must agree on it as well, and a state of fewer is refused.
"""

from collections import deque
from hashlib import blake2b
from typing import Any

import numpy as np

from archipel.deploy import wire
from archipel.errors import BadInput
from archipel.node import named_leaves
from archipel.parts.kind import Composition
from archipel.parts.mix.controls import Controls
from archipel.topology import Star

SOME = 1000  # numbers of an array that are looked at
ANY_ROUND = (1 << 32) - 1  # a frame's last


def why_fixed(federation: Any) -> str:
    """Why there can be no further clients; nothing where there can."""
    algorithm, topology = federation.algorithm, federation.topology
    if federation.deploy.pace == "replay":
        return "a replay follows a simulation of as many"
    if not isinstance(topology, Star) or topology.clusters != 1:
        return "who talks to whom, and how links are weighed, depends on all of them"
    if not isinstance(algorithm, Composition):
        return "an algorithm of your own may depend on their number"
    if algorithm.protect is not None and algorithm.protect.where == "sum":
        return "masks, and shares of the noise, are made for as many"
    return Controls.fixed_clients if isinstance(algorithm.mix, Controls) else algorithm.fixed_clients


def sum_of(view: Any) -> str:
    """What of the number of clients and rounds has entered a node's mathematics, as a checksum."""
    leaves = list(named_leaves(view.plan.settings))
    if not view.has_data:
        leaves += named_leaves(view.me)
    said = [(name, array.shape, array.dtype.str) for name, array in named_leaves(view.me)]
    for name, value in leaves:
        array = np.asarray(value)
        if array.dtype.kind in "fiub":
            said.append((name, array.shape, [f"{number:.6g}" for number in array.ravel()[:SOME].tolist()]))
    return blake2b(repr(said).encode(), digest_size=8).hexdigest()


def names_sum(names: list[str]) -> str:
    return blake2b("\n".join(names).encode(), digest_size=8).hexdigest()


def extent(view: Any) -> dict[str, Any]:
    """How far a description reaches, for a checkpoint."""
    names = view.roster.names.get("client", [])
    return {"clients": len(names), "names": names_sum(names), "rounds": view.rounds, "settings": sum_of(view)}


def check(before: dict[str, Any], now: dict[str, Any], view: Any) -> None:
    """Refuse a description that has not grown from the one of a checkpoint, but changed."""
    names = view.roster.names.get("client", [])
    if names_sum(names[: before["clients"]]) != before["names"]:
        right = f"the {before['clients']} clients that there were, in their order; further ones after them"
        raise BadInput("clients.names", f"{len(names)} names", right)
    if now["rounds"] < before["rounds"]:
        raise BadInput("rounds", now["rounds"], f"{before['rounds']} or more: rounds can be added, not taken away")
    if now["settings"] != before["settings"]:
        what = "clients" if now["clients"] > before["clients"] else "rounds"
        right = f"{before[what]}, as it began: how many there are enters this algorithm's numbers"
        raise BadInput("clients.names" if what == "clients" else "rounds", now[what], right)


def reopen(player: Any, before: dict[str, Any]) -> None:
    """Where rounds were added since a checkpoint: it goes on from there, although goodbye may have been said.

    A server's goodbye that was not answered is taken back: in its place stands that there is nothing to say in the
    round that comes next. Who has got it will see a repeat.
    """
    if player.view.rounds <= before["rounds"] or player.gone:
        return
    player.mailbox.over = False
    player.pace.reopen(player.round, player.round >= before["rounds"])
    for other in player.office.neighbours.values():
        other.letters = deque(taken_back(letter, player.round) for letter in other.letters)


def taken_back(letter: Any, n: int) -> Any:
    return letter._replace(kind=wire.NOTHING, round=n) if letter.kind == wire.OVER else letter
