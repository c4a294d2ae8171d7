"""What push-sum does on a graph: how light clients become, and how far apart their means stay.

Client u's mean of what all have pushed is sum over ages k and clients v of P_k[u, v] / w_u times what v pushed k rounds
ago, where P_k is the product of the last rounds' weights and w_u its push-sum weight; with enough mixing every factor
is 1 / n.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from archipel.topology.links import Links, matrix

LONG = 1000  # rounds that are looked at; later ones repeat the last phases
SMALL = 1e-9  # of a factor's distance from 1 / n


def push(links: Links, values: Any) -> Any:
    """One round: what each client has after giving out and taking in."""
    taken = np.bincount(links.receivers, links.weights * values[links.senders], minlength=len(links.own))
    return taken + links.own * values


def rarity(phases: Sequence[Links], rounds: int) -> Any:
    """The mean over clients of 1 / weight at the start of each round: 1 on a balanced graph.

    >>> from archipel.topology import Digraph
    >>> rarity(Digraph(shape="ring").build(5, 0).across, 3).tolist()
    [1.0, 1.0, 1.0]
    """
    weights = [np.ones(len(phases[0].own))]

    def after(links: Links) -> float:
        weights[0] = push(links, weights[0])
        return float(np.mean(1 / weights[0]))

    return np.concatenate([[1.0], in_turn(after, phases, rounds - 1)])


def disagreement(phases: Sequence[Links], rounds: int) -> Any:
    """(rounds, 2): how far clients' means are from the common one after each round, a mean over clients.

    First for what is drawn anew by every client in every round, in units of its deviation: the root of the summed
    squares of P_k[u, v] / w_u - 1 / n. Then for anything of length one: the sum of their absolute values.
    """
    nodes = len(phases[0].own)
    weights, ages = [np.ones(nodes)], [np.empty((0, nodes, nodes))]

    def after(links: Links) -> tuple[float, float]:
        mix = matrix(links)
        products = mix @ np.concatenate([np.eye(nodes)[None], ages[0]])
        weights[0] = mix @ weights[0]
        off = products / weights[0][:, None] - 1 / nodes
        ages[0] = products[np.abs(off).max((1, 2)) > SMALL]
        return np.sqrt((off**2).sum((0, 2))).mean(), np.abs(off).sum((0, 2)).mean()

    return in_turn(after, phases, rounds)


def in_turn(after: Callable[[Links], Any], phases: Sequence[Links], rounds: int) -> Any:
    """What `after` finds in each round, the graphs coming in turn; once it is settled the last phases repeat."""
    period, found = len(phases), []  # type: int, list[Any]
    for n in range(min(rounds, max(LONG, 2 * period))):
        found.append(after(phases[n % period]))
        if n >= 2 * period and np.allclose(found[-period:], found[-2 * period : -period], rtol=SMALL, atol=0):
            break
    last = np.array(found[-period:])
    more = rounds - len(found)
    return np.concatenate([np.array(found), last[np.arange(max(more, 0)) % max(len(last), 1)]])
