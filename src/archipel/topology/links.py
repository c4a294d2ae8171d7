"""Links: who hears whom, and with what weight, in the compact form that engines walk along."""

from typing import Any, NamedTuple

import numpy as np


class Links(NamedTuple):
    """For each receiver its senders, one after another (compressed rows), and the weight of each link.

    Receiver k hears senders[starts[k]:starts[k + 1]], in rising order. A node's own share is no link: it is
    own[k].

    >>> links = from_pairs(3, receivers=[1, 2, 2], senders=[0, 0, 1])
    >>> links.degree.tolist(), links.senders.tolist()
    ([0, 1, 2], [0, 0, 1])
    """

    starts: Any  # (receivers + 1,) int64
    senders: Any  # (links,) int64
    weights: Any  # (links,) float64: what the sender gives this receiver
    own: Any  # (receivers,) float64: what a node gives itself; 0 where nobody mixes

    @property
    def degree(self) -> Any:
        """How many senders each receiver hears."""
        return np.diff(self.starts)

    @property
    def receivers(self) -> Any:
        """The receiving end of each link, beside `senders`."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


def from_pairs(nodes: int, receivers: Any, senders: Any, weights: Any = 1.0, own: Any = 0.0) -> Links:
    """Links from a list of (receiver, sender) pairs in any order."""
    receivers, senders = np.asarray(receivers, np.int64), np.asarray(senders, np.int64)
    order = np.argsort(receivers * (senders.max(initial=0) + 1) + senders)
    starts = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(receivers, minlength=nodes), out=starts[1:])
    weights = np.broadcast_to(np.asarray(weights, float), senders.shape)
    return Links(starts, senders[order], weights[order], np.array(np.broadcast_to(own, nodes), float))


def both_ways(nodes: int, pairs: Any) -> Links:
    """Links of an undirected graph, each pair (an edge) given once; every weight is 1."""
    return from_pairs(nodes, np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]]))


def matrix(links: Links) -> Any:
    """The weights as a dense matrix: entry (receiver, sender), own shares on the diagonal."""
    dense = np.diag(links.own)
    dense[links.receivers, links.senders] = links.weights
    return dense


def given(links: Links) -> Any:
    """What each sender gives to others; with its own share one where a sender's weights sum to one."""
    return np.bincount(links.senders, links.weights, minlength=len(links.own))


def heard(links: Links) -> Any:
    """What each receiver takes from others."""
    return np.bincount(links.receivers, links.weights, minlength=len(links.own))


def places_of(phases: Any) -> list[Any]:
    """For links that change with time, (starts, senders) each: the place of each link's sender among all senders that
    its receiver ever hears, in rising order.

    >>> [place.tolist() for place in places_of([([0, 1, 1], [4]), ([0, 2, 3], [2, 4, 0])])]
    [[1], [0, 1, 0]]
    """
    pairs = []
    for starts, senders in phases:
        receivers = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        pairs.append(receivers * (1 << 40) + np.asarray(senders, np.int64))
    known, index = np.unique(np.concatenate(pairs), return_inverse=True)
    first = np.searchsorted(known, known >> 40 << 40)
    places = np.arange(len(known)) - first
    return [part.astype(np.int64) for part in np.split(places[index], np.cumsum([len(p) for p in pairs])[:-1])]


# --- weights for mixing -------------------------------------------------------------------------------------


def metropolis(links: Links) -> Links:
    """Metropolis weights 1 / (1 + max(d_k, d_l)) of an undirected graph: rows and columns sum to one.

    Xiao, Boyd, Kim, Journal of Parallel and Distributed Computing 67, 2007.
    """
    degree = links.degree
    mixed = links._replace(weights=1.0 / (1 + np.maximum(degree[links.receivers], degree[links.senders])))
    return mixed._replace(own=1.0 - heard(mixed))


def even_shares(links: Links) -> Links:
    """Every sender gives the same to each of its receivers and to itself; columns sum to one."""
    size = 1.0 + np.bincount(links.senders, minlength=len(links.own))
    return links._replace(weights=1.0 / size[links.senders], own=1.0 / size)


def uneven_shares(links: Links, chances: Any) -> Links:
    """Every sender splits one in random proportions, each between 1 and 10 before scaling; columns sum to
    one.

    `chances` holds numbers in (0, 1), one a link and then one a node.
    """
    raw = 1.0 + 9.0 * np.asarray(chances)
    mixed = links._replace(weights=raw[: len(links.senders)], own=raw[len(links.senders) :])
    size = given(mixed) + mixed.own
    return mixed._replace(weights=mixed.weights / size[links.senders], own=mixed.own / size)


# --- links that are away for a round ------------------------------------------------------------------------


def present_only(links: Links, present: Any) -> Any:
    """Which links have both ends in this round: nothing comes from, or goes to, a node that opts out."""
    return present[links.receivers] & present[links.senders]


def sender_keeps(links: Links, there: Any) -> Links:
    """Only the links that are there; what would have gone along the others its sender keeps.

    A sender's weights sum to what they did before: who opts out of a round keeps its weight.
    """
    return _thinned(links, there, links.senders)


def receiver_keeps(links: Links, there: Any) -> Links:
    """Only the links that are there; a receiver trusts itself in place of whom it does not hear."""
    return _thinned(links, there, links.receivers)


def _thinned(links: Links, there: Any, keeper: Any) -> Links:
    kept = np.bincount(keeper[~there], links.weights[~there], minlength=len(links.own))
    starts = np.zeros_like(links.starts)
    np.cumsum(np.bincount(links.receivers[there], minlength=len(links.own)), out=starts[1:])
    return Links(starts, links.senders[there], links.weights[there], links.own + kept)
