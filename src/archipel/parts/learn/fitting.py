"""How zCDP-NFL is set where the user says nothing: penalty and step that fit the loss, the data and the graph.

Consider the slowest disagreement in the network, along the Laplacian's smallest eigenvalue lambda > 0. With a loss of
curvature h among peers of degree d its error obeys, by (3.8) and (3.10), with a = 1 / (1/eta + 2 rho d),

    e(n+1) = (2 - a (2 rho lambda + h)) e(n) - (1 - a (rho lambda + h)) e(n-1).

A small rho is slow to agree, like 1 - rho lambda / h, a large one slow to learn, like 1 - h / (4 rho d). The two meet
at rho = h / sqrt(8 d lambda). 1 / eta has to stay above half the largest curvature.

An absolute loss has no curvature, but in the mean over many samples it has: 2 / (sqrt(2 pi) s) x x^T where residuals
spread by s. Its step falls like 1/n, and must carry the model all the way to the solution first: that bounds the
curvature that is taken for it.

With noise nothing of this may look at the data. A small rho learns fast and averages little of the noise away, a large
one hardly learns before the rounds are over: a private run has the one that learns over half of its rounds or so.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from archipel.parts.mix.dual import degrees_of, whole_graph
from archipel.problems.losses.supervised import ABSOLUTE, HUBER, LOGISTIC, SQUARED
from archipel.topology.connectivity import DENSE, algebraic_connectivity

SLOPE = {SQUARED: 2.0, LOGISTIC: 0.25, HUBER: 1.0}  # the largest second derivative of a loss
USUAL = {SQUARED: 2.0, LOGISTIC: 0.13, HUBER: 1.0}  # and what it has where it matters
HEIGHT = {SQUARED: 2.0, ABSOLUTE: 1.0, LOGISTIC: 0.25, HUBER: 1.0}  # with features of unit variance
STEPS = {SQUARED: (0.4, 0.25), ABSOLUTE: (3.0, 0.5), LOGISTIC: (4.0, 0.0), HUBER: (1.0, 0.25)}  # with noise
ROUNDS = 50  # the rounds that a private run takes for learning, per unit of rho d / height
UNDER = 0.9  # rho as a share of where the two meet
ABOVE = 0.55  # 1 / eta as a share of the largest curvature: more than half of it
REACH = 8.0  # bounds the curvature of an absolute loss, in units of ||x||^2 / |y|
PACE = 10.0  # its step at first, in units of one over the curvature
FLAT = 1e-3  # the least curvature, as a share of the largest


class Fit(NamedTuple):
    """rho, and eta(n) = step / n^decay."""

    penalty: float
    step: float
    decay: float


class Curvature(NamedTuple):
    """The second derivative of the clients' objectives."""

    least: float  # in any direction, of their mean
    usual: float  # of their mean
    most: float  # of any client, in any direction


def fitted(setup: Any) -> Fit:
    """The penalty and the step for a run without noise."""
    agreed = 1 / math.sqrt(8 * slowness(setup.graph))
    if setup.task.loss == ABSOLUTE:
        height = height_of_absolute(setup)
        return Fit(height * agreed, PACE / height, 1.0)
    found = curvature(setup, SLOPE[setup.task.loss])
    least = found.least * USUAL[setup.task.loss] / SLOPE[setup.task.loss]
    between = least**0.75 * found.most**0.25  # clients differ: nearer to the least, by trial
    return Fit(UNDER * between * agreed, 1 / (ABOVE * found.most), 0.0)


def fitted_blindly(setup: Any) -> Fit:
    """The penalty and the step for a run with noise, from what is public: the loss, the graph and the rounds."""
    degree = max(float(degrees_of(setup.graph).mean()), 1.0)
    return Fit(HEIGHT[setup.task.loss] * setup.rounds / (ROUNDS * degree), *STEPS[setup.task.loss])


def fitted_subgradient_blindly(setup: Any) -> Fit:
    """The same for the subgradient method."""
    return Fit(1.0, 1.0, 0.75) if setup.task.loss == ABSOLUTE else Fit(1.0, 0.3, 0.5)


def fitted_subgradient(setup: Any) -> Fit:
    """The same for the subgradient method, whose step falls."""
    if setup.task.loss == ABSOLUTE:
        return Fit(1.0, 3 / height_of_absolute(setup), 0.75)
    return Fit(1.0, 1.5 / curvature(setup, SLOPE[setup.task.loss]).most, 0.5)


def slowness(graph: Any) -> float:
    """d lambda: the mean degree times the Laplacian's smallest positive eigenvalue."""
    links = whole_graph(graph)
    degree = max(float(np.diff(links.starts).mean()), 1.0)
    connectivity = algebraic_connectivity(links) if graph.clients <= DENSE else 0.1 * degree  # of most random graphs
    return degree * max(connectivity, 1e-6)


def shards(setup: Any) -> Any:
    """Every client's samples."""
    source = setup.task.source
    for begin, end in zip(source.starts[:-1], source.starts[1:]):
        if end > begin:
            yield source.x[begin:end].astype(float), source.y[begin:end].astype(float)


def curvature(setup: Any, slope: float) -> Curvature:
    """How curved the objective (3.2) is, client by client and in the mean."""
    mean, most, clients = np.zeros((setup.task.size,) * 2), 0.0, 0
    for x, _ in shards(setup):
        gram = slope / len(x) * (x.T @ x)
        mean, most, clients = mean + gram, max(most, float(np.linalg.eigvalsh(gram)[-1])), clients + 1
    mean /= max(clients, 1)
    rest = 2 * setup.task.regulariser[1] / setup.task.clients
    eigenvalues = np.linalg.eigvalsh(mean)
    most = max(most + rest, 1e-12)
    return Curvature(max(float(eigenvalues[0]) + rest, FLAT * most), float(eigenvalues.mean()) + rest, most)


def height_of_absolute(setup: Any) -> float:
    """The curvature of the mean absolute loss near its minimum, as far as a falling step can make use of it."""
    x, y = (np.concatenate(parts) for parts in zip(*shards(setup)))
    squares = curvature(setup._replace(task=setup.task._replace(regulariser=(0.0, 0.0))), 1.0)
    near = 2 / math.sqrt(2 * math.pi) / max(spread(x, y), 1e-12) * squares.least
    far = REACH * squares.usual / max(math.sqrt(float(np.mean(y**2))), 1e-12)
    return max(min(near, far), 1e-12)


def spread(x: Any, y: Any) -> float:
    """The standard deviation of what a rough linear fit leaves over, were it normal: robust against outliers."""
    model = np.linalg.lstsq(x, y, rcond=None)[0]
    for _ in range(5):
        size = np.abs(y - x @ model)
        weight = 1 / np.maximum(size, max(float(np.median(size)), 1e-12))
        model = np.linalg.lstsq(x * np.sqrt(weight)[:, None], y * np.sqrt(weight), rcond=None)[0]
    return float(np.median(np.abs(y - x @ model))) / 0.6745
