"""What the PGFL article proves, computable: the optimum, (28), and what it leaves out.

Gauthier et al., IEEE TSIPN 2023. Equation numbers are the article's.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.problems.losses.supervised import LOGISTIC
from archipel.problems.splits.shards import Shards

NEWTON = 100
DIVERGES = 1 + 1e-6  # growth of errors a round


# --- the problem that is solved -----------------------------------------------------------------------------


def centralised(data: Shards, loss: int, weight: Any, cluster: Any, clusters: int) -> Any:
    """For each cluster the minimiser of sum over its clients of f_k, (16): the solution of theorem 1.

    Without a regulariser a squared loss has its solution of least norm, a logistic one may have none.
    """
    members = [np.flatnonzero(cluster == q) for q in range(clusters)]
    return np.stack([minimise(data, loss, weight, who) for who in members])


def minimise(data: Shards, loss: int, weight: Any, who: Any) -> Any:
    """argmin of sum over clients `who` of loss_k / D_k + weight_k ||w||^2."""
    rows = np.concatenate([np.arange(data.starts[k], data.starts[k + 1]) for k in who])
    x, y = np.asarray(data.x[rows], float), np.asarray(data.y[rows], float)
    share = np.repeat(1.0 / np.maximum(data.sizes[who], 1), data.sizes[who])
    ridge = 2 * float(np.sum(weight[who]))
    if loss == LOGISTIC:
        return newton(x, y, share, ridge)
    scaled = np.sqrt(2 * share)[:, None] * x
    u, lengths, basis = np.linalg.svd(scaled, full_matrices=False)
    kept = lengths > 1e-12 * lengths.max(initial=1.0)
    gain = np.where(kept, lengths / np.maximum(lengths**2 + ridge, 1e-300), 0.0)
    return basis.T @ (gain * (u.T @ (np.sqrt(2 * share) * y)))


def newton(x: Any, y: Any, share: Any, ridge: float) -> Any:
    """Logistic regression, sum of share log(1 + exp(-y x^T w)) + ridge/2 ||w||^2, in the space of the samples."""
    if not ridge > 0:
        raise BadInput("algorithm.regularisation", ridge, "a positive number: classes may be separable")
    _, _, basis = np.linalg.svd(x, full_matrices=False)
    rows, at = x @ basis.T, np.zeros(len(basis))

    def gradient(at: Any) -> Any:
        wrong = 1 / (1 + np.exp(y * (rows @ at)))
        return ridge * at - rows.T @ (share * y * wrong), wrong

    slope, wrong = gradient(at)
    for _ in range(NEWTON):
        hessian = (rows.T * (share * wrong * (1 - wrong))) @ rows + ridge * np.eye(len(at))
        step, size, norm = np.linalg.solve(hessian, slope), 1.0, np.linalg.norm(slope)
        while np.linalg.norm(gradient(at - size * step)[0]) > (1 - size / 4) * norm and size > 1e-9:
            size /= 2
        if size <= 1e-9:
            break
        at = at - size * step
        slope, wrong = gradient(at)
    return basis.T @ at


# --- theorem 2 ----------------------------------------------------------------------------------------------


def largest_distance(optima: Any) -> float:
    """eta, (29): the largest squared distance between two clusters' solutions."""
    return float(np.max(np.sum((optima[:, None] - optima[None]) ** 2, -1)))


def borrowing_bound(taus: Any, eta: float) -> Any:
    """(28) after n = 1, 2, ... rounds: sum_i tau_i eta prod_{j > i} (1 - tau_j).

    By recursion, b_n = (1 - tau_n) b_{n-1} + tau_n eta.

    >>> borrowing_bound(np.array([0.5, 0.5]), 2.0)
    array([1. , 1.5])
    """
    bound, bounds = 0.0, []
    for tau in taus:
        bound = (1 - tau) * bound + tau * eta
        bounds.append(bound)
    return np.array(bounds)


# --- when (8) to (10) diverge -------------------------------------------------------------------------------


class Seen(NamedTuple):
    """A federation as PGFL sees it: who is where, its links, its data."""

    view: Any  # algorithms.pgfl.View
    links: Any  # among servers
    data: Any  # parts.learn.solve.Factors
    shrinkage: Any  # (clients,): 2 lambda / |C_s|
    loss: int


def averaging_of(seen: Seen, present: Any) -> Any:
    """(9) as a matrix for each cluster: a server averages what its neighbourhood knows of the cluster."""
    reach = np.eye(seen.view.servers)
    reach[seen.links.receivers, seen.links.senders] = 1.0
    known = reach[None] * present.T[:, None, :]
    return known / np.maximum(known.sum(-1, keepdims=True), 1.0)


def gathering(view: Any, present: Any) -> Any:
    """(8) as a matrix: the means of a server's clients of a cluster, cluster by cluster."""
    from scipy.sparse import csr_matrix

    rows = view.cluster * view.servers + view.server
    weights = 1.0 / present[view.server, view.cluster]
    shape = (view.clusters * view.servers, len(rows))
    return csr_matrix((weights, (rows, np.arange(len(rows)))), shape)


def growth(seen: Seen, penalty: float, tau: float, rounds: int = 400) -> float:
    """The factor by which errors grow each round under (4) to (10), everyone taking part: above 1 it diverges.

    The iteration is linear for a squared loss, so its homogeneous part is played from a random start and its growth
    measured: a power method. A logistic loss is taken at its largest curvature, an eighth of the squared one's.
    """
    where, count = (seen.view.server, seen.view.cluster), seen.view.clusters
    basis, weight = seen.data.basis[:, 0], seen.shrinkage + penalty
    curve = seen.data.curve[:, 0] / (8 if seen.loss == LOGISTIC else 1)
    damp = curve / (curve + weight[:, None])
    present = np.zeros((seen.view.servers, count))
    np.add.at(present, where, 1)
    mean = averaging_of(seen, (present > 0).astype(float))
    used = (mean.sum(-1) > 0).T.astype(float)[:, :, None]
    others = used.sum(1, keepdims=True) - used
    share = np.where(others > 0, tau, 0.0)
    gathered = gathering(seen.view, present)
    dual = np.random.default_rng(7).standard_normal((len(weight), basis.shape[-1]))
    base, lengths = np.zeros_like(dual), []
    for _ in range(rounds):
        pull = dual + penalty * base
        along = damp * (basis @ pull[:, :, None])[:, :, 0]
        model = (pull - (along[:, None] @ basis)[:, 0]) / weight[:, None]
        means = gathered @ (model - dual / penalty)
        hat = (mean @ means.reshape(count, seen.view.servers, -1)).swapaxes(0, 1)
        lent = (hat.sum(1, keepdims=True) - hat) / np.maximum(others, 1)
        base = ((1 - share) * hat + share * lent)[where]
        dual = dual + penalty * (base - model)
        length = float(np.sqrt(np.sum(dual**2) + penalty**2 * np.sum(base**2)))
        if length == 0:
            return 0.0
        lengths.append(length)
        dual, base = dual / length, base / length
    return float(np.exp(np.mean(np.log(lengths[-rounds // 4 :]))))


def least_penalty(seen: Seen, tau: float) -> float:
    """The penalty below which (8) to (10) diverge, to a hundredth of it; 0 where none does down to 1e-3."""
    low, high = 1e-3, 1e3
    if growth(seen, low, tau) <= DIVERGES:
        return 0.0
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if growth(seen, middle, tau) > DIVERGES else (low, middle)
    return high


# --- theorem 2 beside a run ---------------------------------------------------------------------------------


class Impact(NamedTuple):
    """How far inter-cluster learning moves a run from its twin without, round by round, and what (28) allows."""

    distance: Any  # the largest over servers and clusters of the squared distance
    bound: Any
    exceeded: int  # in how many rounds the distance is larger


def impact(federation: Any, start: str) -> Impact:
    """Play a federation and its twin with tau = 0 on the same draws, from zero or from the optimum."""
    algorithm = replace(federation.algorithm, start=start)
    lending = federation.with_(algorithm=algorithm)
    twin = federation.with_(algorithm=replace(algorithm, tau=0.0, decay=1.0))
    instances = [each.instance() for each in (lending, twin)]
    engines = [federation.engine_of(instance, True) for instance in instances]
    distance = []
    for n in range(federation.rounds):
        for engine in engines:
            engine.advance(n, n + 1)
        models, others = (instance.plan.tables["server"].model for instance in instances)
        distance.append(float(np.max(np.sum((models - others) ** 2, -1))))
    setup = lending.setup()
    eta = largest_distance(algorithm.optima(setup, algorithm.view(setup))[0])
    bound = borrowing_bound(instances[0].plan.settings.mix.taus, eta)
    return Impact(np.array(distance), bound, int(np.sum(np.array(distance) > bound * (1 + 1e-9))))
