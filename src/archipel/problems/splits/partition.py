"""How pooled data is dealt to clients: evenly or not, alike or not.

A split is a list with the sample numbers of each client, in the order of the data. Every sample goes to
exactly one client and nobody is left with none; where that cannot be, the split is refused. A seed settles
it.
"""

import heapq
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from archipel.errors import BadInput, did_you_mean

Members = list[Any]  # the sample numbers of each client

# The tags of the draws: a split never depends on what another one drew.
IID, UNEVEN, SHARDS, LABEL_SHARDS, DIRICHLET, UNBALANCED, GROUPS, WEIGHTS = range(201, 209)


def iid(samples: int, clients: int, seed: int) -> Members:
    """Everyone gets a random sample of the whole, all of the same size (to one)."""
    return uneven_by(samples, np.ones(_enough(samples, clients)), seed, IID)


def uneven(samples: int, clients: int, seed: int, power: float = 1.0) -> Members:
    """Everyone gets a random sample of the whole, with sizes that fall as rank^-power."""
    return uneven_by(samples, power_weights(_enough(samples, clients), power, seed), seed, UNEVEN)


def uneven_by(samples: int, weights: Any, seed: int, tag: int = UNEVEN) -> Members:
    """Everyone gets a random sample of the whole, with sizes in proportion to the weights."""
    sizes = apportion(samples, weights, least=1)
    order = np.random.default_rng([seed, tag]).permutation(samples)
    return _cut(order, sizes)


def shards(labels: Any, clients: int, seed: int, each: int = 2) -> Members:
    """The samples, sorted by label, are cut into equal shards, of which everyone gets `each` (McMahan, 2017).

    A shard may lie across the border of two labels: a client has at most 2 * each of them.
    """
    labels = _labels(labels, clients)
    if not 1 <= each <= len(labels) // clients:
        right = f"at least 1 and at most {len(labels) // clients} shards each for {clients} clients"
        raise BadInput("problem.each", each, right)
    pieces = np.array_split(np.argsort(labels, kind="stable"), clients * each)
    return _deal(pieces, clients, np.random.default_rng([seed, SHARDS]))


def label_shards(labels: Any, clients: int, seed: int, pieces: int = 3) -> Members:
    """Each label is cut into as many equal pieces, and the pieces are dealt (dissertation, section 5.5).

    A client has at most as many labels as it has pieces. MNIST's labels are not of one size, whatever the
    dissertation says (5,421 to 6,742 images), so neither are the clients.
    """
    labels = _labels(labels, clients)
    if pieces < 1:
        raise BadInput("problem.pieces", pieces, "at least one piece of each label")
    cut = [p for mine in _by_label(labels) for p in np.array_split(mine, pieces) if len(p)]
    if len(cut) < clients:
        raise BadInput("problem.pieces", pieces, f"enough pieces of each label for {clients} clients")
    return _deal(cut, clients, np.random.default_rng([seed, LABEL_SHARDS]))


def dirichlet(labels: Any, clients: int, seed: int, alpha: float = 0.5) -> Members:
    """Each label is shared out in Dirichlet(alpha) proportions (Hsu, Qi and Brown, 2019).

    The smaller alpha, the fewer labels has a client. One that would be left empty gets a sample of the
    largest.
    """
    labels = _labels(labels, clients)
    if not (alpha > 0 and np.isfinite(alpha)):
        raise BadInput("problem.alpha", alpha, "a positive number")
    draw = np.random.default_rng([seed, DIRICHLET])
    members: list[list[Any]] = [[] for _ in range(clients)]
    for mine in _by_label(labels):
        sizes = apportion(len(mine), draw.dirichlet(np.full(clients, float(alpha))))
        for client, part in zip(members, _cut(draw.permutation(mine), sizes)):
            client.append(part)
    return _nobody_empty([np.sort(np.concatenate(parts)) for parts in members])


def unbalanced(labels: Any, clients: int, seed: int, fewest: int = 1, most: int = 6, power: float = 1.0) -> Members:
    """Power-law sizes and a few labels each, as in "[10]" of the PLDP-FL paper (Luo et al., INFOCOM 2022).

    A client has from `fewest` to `most` labels. Each label is shared out among those who have it, in
    proportion to rank^-power of the client over its number of labels. Every sample is used, so that sizes
    follow the law only as closely as the labels' own sizes let them. The paper gives neither the power nor
    the range.
    """
    labels = _labels(labels, clients)
    groups = _by_label(labels)
    if not 1 <= fewest <= most:
        raise BadInput("problem.fewest", fewest, f"from 1 to most ({most})")
    if clients * most < len(groups):
        raise BadInput("problem.most", most, f"enough for {clients} clients to have all {len(groups)} labels")
    draw = np.random.default_rng([seed, UNBALANCED])
    has = _holdings(clients, len(groups), min(fewest, len(groups)), min(most, len(groups)), draw)
    weights = power_weights(clients, power, seed) / has.sum(1)
    members: list[list[Any]] = [[np.zeros(0, np.int64)] for _ in range(clients)]
    for mine, holders in zip(groups, has.T):
        who = np.flatnonzero(holders)
        sizes = apportion(len(mine), weights[who], least=int(len(mine) >= len(who)))
        for k, part in zip(who, _cut(draw.permutation(mine), sizes)):
            members[k].append(part)
    return _nobody_empty([np.sort(np.concatenate(parts)) for parts in members])


def in_order(samples: int, clients: int, seed: int) -> Members:
    """Everyone gets a stretch of the whole, in its order: the first client the oldest. Nothing is drawn."""
    return np.array_split(np.arange(samples), _enough(samples, clients))


def by_column(values: Any) -> tuple[Members, tuple[str, ...]]:
    """A client for each value of a column (a station, a person), and the clients' names, sorted."""
    names, which = np.unique(np.asarray(values), return_inverse=True)
    return _by_label(which), tuple(str(name) for name in names)


def whole_groups(groups: Any, clients: int, seed: int, weights: Sequence[float] = (1.0,), near: Any = None) -> Members:
    """Groups of samples (a cast, a day, a person) are dealt whole, in numbers in proportion to the weights.

    Client k has weight weights[k mod their number]. With `near`, one value for each sample, groups are dealt
    in the order of their value, neighbours to one client (a station, a region); without, in a random order.
    """
    kinds, first, which = np.unique(np.asarray(groups), return_index=True, return_inverse=True)
    if not 1 <= clients <= len(kinds):
        raise BadInput("problem.clients", clients, f"from 1 to {len(kinds)} clients, one group each at least")
    order = np.random.default_rng([seed, GROUPS]).permutation(len(kinds))
    if near is not None:
        order = np.argsort(np.asarray(near)[first], kind="stable")
    numbers = apportion(len(kinds), np.resize(np.asarray(weights, float), clients), least=1)
    members = _by_label(which)
    return [np.sort(np.concatenate([members[g] for g in mine])) for mine in _split_at(order, numbers)]


# --- by name, for a description ---------------------------------------------------------------------------

SPLITS: dict[str, Callable[..., Members]] = {
    "iid": iid,
    "uneven": uneven,
    "shards": shards,
    "label-shards": label_shards,
    "dirichlet": dirichlet,
    "unbalanced": unbalanced,
    "groups": whole_groups,
    "time": in_order,
}


def settings_of(kind: str) -> list[str]:
    """The settings that a split takes, after what is split, for how many, and the seed."""
    return list(inspect.signature(SPLITS[kind]).parameters)[3:]


def settings_in(part: Any, kind: str) -> dict[str, Any]:
    """Those that a part of a description has as keys."""
    return {name: getattr(part, name) for name in settings_of(kind) if hasattr(part, name)}


def split(kind: str, labels: Any, clients: int, seed: int, groups: Any = None, **settings: Any) -> Members:
    """The split of this name, with the settings that it takes."""
    if kind not in SPLITS:
        raise BadInput("problem.split", kind, did_you_mean(kind, SPLITS))
    if kind == "groups" and groups is None:
        raise BadInput("problem.split", kind, "a data set whose samples come in groups")
    known = settings_of(kind)
    for key in settings:
        if key not in known:
            right = did_you_mean(key, known) if known else f"no settings for a split that is {kind}"
            raise BadInput(f"problem.{key}", settings[key], right)
    about = {"iid": len(labels), "uneven": len(labels), "time": len(labels), "groups": groups}.get(kind, labels)
    return SPLITS[kind](about, clients, seed, **settings)


# --- sizes ------------------------------------------------------------------------------------------------


def apportion(total: int, weights: Any, least: int = 0) -> Any:
    """Whole numbers that sum to the total, each at least `least`, else in proportion (largest remainders).

    >>> apportion(10, [1, 1, 2]), apportion(10, [0, 0, 1], least=2)
    (array([3, 2, 5]), array([2, 2, 6]))
    """
    weights = np.asarray(weights, float)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise BadInput("problem.weights", weights, "weights that are not negative, and not all zero")
    if total < least * len(weights):
        raise BadInput("problem.clients", len(weights), f"at most {total // max(least, 1)}: there is no more data")
    free = np.ones(len(weights), bool)
    while True:  # those whose share is too small get the least, the others share the rest
        rest = total - least * int(np.sum(~free))
        mass = weights[free].sum()
        share = rest * weights[free] / mass if mass > 0 else np.full(free.sum(), rest / free.sum())
        low = share < least - 1e-9
        if not low.any():
            break
        free[np.flatnonzero(free)[low]] = False
    whole = np.floor(share + 1e-9).astype(np.int64)
    most_left_over = np.argsort(whole - share, kind="stable")
    whole[most_left_over[: rest - whole.sum()]] += 1
    sizes = np.full(len(weights), least, np.int64)
    sizes[free] = whole
    return sizes


def power_weights(clients: int, power: float, seed: int) -> Any:
    """rank^-power, with the ranks dealt at random."""
    if not (power >= 0 and np.isfinite(power)):
        raise BadInput("problem.power", power, "a number that is not negative")
    ranks = np.random.default_rng([seed, WEIGHTS]).permutation(clients) + 1.0
    return ranks**-power


# --- the common steps -------------------------------------------------------------------------------------


def _enough(samples: int, clients: int) -> int:
    if not 1 <= clients <= samples:
        raise BadInput("problem.clients", clients, f"from 1 to {samples} clients, one sample each at least")
    return clients


def _labels(labels: Any, clients: int) -> Any:
    """Labels are a few whole numbers; a real target has none."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or (labels.dtype.kind == "f" and np.any(labels != np.round(labels))):
        raise BadInput("problem.split", "by label", "a target of whole numbers; others split by iid, uneven, groups")
    _enough(len(labels), clients)
    return labels


def _by_label(labels: Any) -> Members:
    """The samples of each label, in order."""
    order = np.argsort(labels, kind="stable")
    borders = np.flatnonzero(np.diff(labels[order])) + 1
    return np.split(order, borders)


def _split_at(order: Any, sizes: Any) -> Members:
    return np.split(order, np.cumsum(sizes)[:-1])


def _cut(order: Any, sizes: Any) -> Members:
    return [np.sort(part) for part in _split_at(order, sizes)]


def _deal(pieces: Members, clients: int, draw: np.random.Generator) -> Members:
    """Pieces, shuffled and dealt in turn."""
    order = draw.permutation(len(pieces))
    return [np.sort(np.concatenate([pieces[p] for p in order[k::clients]])) for k in range(clients)]


def _nobody_empty(members: Members) -> Members:
    """Who has nothing gets the last sample of whoever has most."""
    crowd = [(-len(mine), k) for k, mine in enumerate(members)]
    heapq.heapify(crowd)
    for k, mine in enumerate(members):
        if len(mine) == 0:
            size, giver = heapq.heappop(crowd)
            members[k], members[giver] = members[giver][-1:], members[giver][:-1]
            heapq.heappush(crowd, (size + 1, giver))
    return members


def _holdings(clients: int, labels: int, fewest: int, most: int, draw: np.random.Generator) -> Any:
    """Who has which labels: from fewest to most each, and every label has someone."""
    numbers = draw.integers(fewest, most + 1, clients)
    while numbers.sum() < labels:
        numbers[draw.choice(np.flatnonzero(numbers < most))] += 1
    has = np.zeros((clients, labels), bool)
    nobodys = list(draw.permutation(labels))
    for k in draw.permutation(clients):
        first = [nobodys.pop() for _ in range(min(int(numbers[k]), len(nobodys)))]
        others = np.setdiff1d(np.arange(labels), first)
        has[k, first] = True
        has[k, draw.choice(others, int(numbers[k]) - len(first), replace=False)] = True
    return has
