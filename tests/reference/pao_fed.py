"""PAO-Fed: the exact mean-square deviation of a small network.

Gauthier et al., IEEE Internet of Things Journal, 2023; equation numbers are the article's. What the article
prints as (37) and (38) is in `pao_fed_printed`. Here is the same quantity with nothing left out: the mu^2
terms, the cycle of the portions, the rule that only the most recent updates of a parameter count, and the
joint law of who took part and whose updates are still on their way.

How. The error vector is the article's extended one, (16): server, clients, and what each client last sent.
Given who sends and what arrives, a round maps it linearly, (23); so its second moments obey a linear
recursion. What arrives is not independent of the error, though (a client whose update arrives late is one
that took part then), so the second moments are kept apart for every set of updates that may be in flight:

    moments[A_1, ..., A_limit] = E[x x^T ; the updates of age l in flight are those of the clients in A_l].

A geometric delay has no memory: each update in flight arrives in this round with probability 1 - delta,
whatever its age. So the sum over all cases is exact; it needs 2^(clients * limit) matrices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import Any

import numpy as np

from archipel.errors import BadInput

Array = Any
MOST_NUMBERS = 2**23  # of second moments kept at once; the solver keeps twenty such tables, a gigabyte


# ---- the network ----------------------------------------------------------------------------------


def fourth_moment(features: Array) -> Array:
    """E[z_a z_b z_c z_d] of one client, from its samples of z, one a row."""
    features = np.asarray(features, float)
    pairs = (features[:, :, None] * features[:, None, :]).reshape(len(features), -1)
    return (pairs.T @ pairs / len(features)).reshape((features.shape[1],) * 4)


def gaussian_fourth_moment(correlation: Array) -> Array:
    """E[z_a z_b z_c z_d] when z is Gaussian with mean zero: the sum over the three pairings (Isserlis)."""
    pairings = ("ab,cd->abcd", "ac,bd->abcd", "ad,bc->abcd")
    return sum(np.einsum(pairing, correlation, correlation) for pairing in pairings)


def one_each(name: str, value: Array, clients: int) -> Array:
    numbers = np.asarray(value, float)
    if numbers.shape not in ((), (1,), (clients,)):
        raise BadInput(name, value, f"one number, or one for each of the {clients} clients")
    return np.broadcast_to(numbers, (clients,))


@dataclass(frozen=True, eq=False)
class SmallNetwork:
    """A network small enough to be computed: data y = w*^T z + noise, z independent from round to round.

    correlations     R_k, (clients, size, size)
    noise_variances  of the observations, (clients,)
    step             mu
    portion          m, how many parameters a message carries
    coordinated      all clients share the same portion (C), or each its own (U)
    ahead            0: S_n = M_n, share what was received (C0, U0); 1: S_n = M_{n+1}, (8)
    availability     p_k; one number or (clients,)
    arrival          the probability that a client has new data in a round: without it does nothing
    delta, limit     P(delay >= l) = delta^l; later than `limit` (l_max) is discarded
    weights          iota_l for l = 0..limit; all one unless given, (15)
    fourth           E[z_a z_b z_c z_d], (clients, size, size, size, size); Gaussian z unless given
    """

    correlations: Array
    noise_variances: Array
    step: float
    portion: int
    coordinated: bool = True
    ahead: int = 1
    availability: Array = 1.0
    arrival: Array = 1.0
    delta: float = 0.0
    limit: int = 0
    weights: Array = None
    fourth: Array = None

    def __post_init__(self) -> None:
        matrices = np.asarray(self.correlations, float)
        if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
            raise BadInput("correlations", matrices.shape, "a square matrix for each client")
        clients, size = matrices.shape[:2]
        weights = np.ones(max(self.limit, 0) + 1) if self.weights is None else np.asarray(self.weights, float)
        if self.limit < 0 or len(weights) != self.limit + 1:
            raise BadInput("weights", weights, f"one weight for each age from 0 to limit = {self.limit}")
        limit = self.limit if self.delta > 0 else 0  # nothing is ever late: no need to keep what was sent
        fourth = self.fourth
        if fourth is None:
            fourth = np.array([gaussian_fourth_moment(matrix) for matrix in matrices])
        per_client = {
            name: one_each(name, getattr(self, name), clients)
            for name in ("noise_variances", "availability", "arrival")
        }
        found = {
            "correlations": matrices,
            "limit": limit,
            "weights": weights[: limit + 1],
            "fourth": np.asarray(fourth, float),
            **per_client,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)
        self._check(clients, size)

    def _check(self, clients: int, size: int) -> None:
        for name in ("availability", "arrival", "delta"):
            chances = np.asarray(getattr(self, name))
            if not np.all((chances >= 0) & (chances <= 1)):
                raise BadInput(name, getattr(self, name), "a probability, from 0 to 1")
        if not np.all(self.noise_variances >= 0):
            raise BadInput("noise_variances", self.noise_variances, "numbers that are not negative")
        if not self.step > 0:
            raise BadInput("step", self.step, "a positive number")
        if not 1 <= self.portion <= size:
            raise BadInput("portion", self.portion, f"a whole number from 1 to {size}, the size of the model")
        if self.ahead not in (0, 1):
            raise BadInput("ahead", self.ahead, "0 (share what was received) or 1 (share the next portion)")
        if self.fourth.shape != (clients,) + (size,) * 4:
            raise BadInput("fourth", self.fourth.shape, f"{(clients,) + (size,) * 4}")

    @property
    def clients(self) -> int:
        return len(self.correlations)

    @property
    def size(self) -> int:
        return self.correlations.shape[1]

    @property
    def period(self) -> int:
        """After so many rounds the portions are again where they were."""
        return self.size // gcd(self.portion, self.size)

    def parameters(self, client: int, moment: int) -> Array:
        """The indices that M_{k,n} selects, (7)."""
        start = self.portion * (moment + (0 if self.coordinated else client))
        return (start + np.arange(self.portion)) % self.size


# ---- places in the extended error vector, (16), led by a constant 1 that carries the probabilities


def at_server(net: SmallNetwork) -> Array:
    return 1 + np.arange(net.size)


def at_client(net: SmallNetwork, client: int) -> Array:
    return 1 + (1 + client) * net.size + np.arange(net.size)


def sent(net: SmallNetwork, client: int, age: int, moment: int) -> Array:
    """The values S_{k,n-l} w_{k,n+1-l}: at the client when just sent, in the delay line when older."""
    if age == 0:
        return at_client(net, client)[net.parameters(client, moment + net.ahead)]
    first = 1 + (1 + net.clients) * net.size + ((age - 1) * net.clients + client) * net.portion
    return first + np.arange(net.portion)


def length(net: SmallNetwork) -> int:
    return 1 + (1 + net.clients) * net.size + net.limit * net.clients * net.portion


def at_next_server(net: SmallNetwork) -> Array:
    """Within a round, w_{n+1} grows behind the vector while clients still read w_n."""
    return length(net) + np.arange(net.size)


# ---- one round of second moments ------------------------------------------------------------------


def gather(moments: Array, index: Array) -> Array:
    """The second moments of x[index] from those of x."""
    return moments[..., index[:, None], index]


def learn(moments: Array, net: SmallNetwork, client: int) -> Array:
    """(10)-(13) in errors: x_k <- (I - mu z z^T) x_k - mu z eta, its mean over z and eta, mu^2 terms kept."""
    me, matrix = at_client(net, client), net.correlations[client]
    keep = np.eye(net.size) - net.step * matrix
    before = gather(moments, me)
    after = moments.copy()
    after[..., me, :] = keep @ after[..., me, :]
    after[..., :, me] = after[..., :, me] @ keep
    spread = np.einsum("abcd,...cd->...ab", net.fourth[client], before) - matrix @ before @ matrix
    noise = net.noise_variances[client] * matrix * moments[..., :1, :1]
    after[..., me[:, None], me] += net.step**2 * (spread + noise)
    return after


def act(moments: Array, net: SmallNetwork, client: int, moment: int) -> Array:
    """A client's turn; the new first axis says whether it sent: [no, yes]."""
    index = np.arange(moments.shape[-1])
    portion = net.parameters(client, moment)
    index[at_client(net, client)[portion]] = at_server(net)[portion]  # M_{k,n} w_n, (10)
    data, available = net.arrival[client], net.availability[client]
    alone = (1 - data) * moments + data * (1 - available) * learn(moments, net, client)  # (12)
    return np.stack([alone, data * available * learn(gather(moments, index), net, client)])


@lru_cache(maxsize=2048)  # the solver goes through the same cycle many times
def merge_rows(net: SmallNetwork, arrived: tuple[int, ...], age: int, moment: int) -> Array:
    """(14), (15) as rows: w_{n+1} after these updates, as a mix of the error vector; the rest of it stays.

    The mean is over all senders of that age, |K_{n,l}|, also those that sent other parameters.
    """
    rows = np.zeros((net.size, length(net) + net.size))
    rows[np.arange(net.size), at_next_server(net)] = 1
    covered = [net.parameters(client, moment - age + net.ahead) for client in arrived]
    for parameters in covered:  # from w_n anew: what an older update made of the parameter no longer counts
        rows[parameters] = 0
        rows[parameters, at_server(net)[parameters]] = 1
    for client, parameters in zip(arrived, covered):
        share = net.weights[age] / len(arrived)
        rows[parameters, sent(net, client, age, moment)] += share
        rows[parameters, at_server(net)[parameters]] -= share
    return rows


def thin(moments: Array, net: SmallNetwork) -> Array:
    """Each update in flight, one bit of axis 0, lands with probability 1 - delta: its bit is then zero."""
    after = np.array(moments, order="C")
    for client in range(net.clients):
        flies = after.reshape((-1, 2, 2**client) + after.shape[1:])  # a view: changes go to `after`
        flies[:, 0] += (1 - net.delta) * flies[:, 1]
        flies[:, 1] *= net.delta
    return after


def hear(moments: Array, net: SmallNetwork, age: int, moment: int) -> Array:
    """The updates of one age: each arrives or flies on; axis 0 says whose are in flight, before and after.

    Ages are heard from the oldest to the newest, so that of several updates of one parameter only the most
    recent count.
    """
    sets = np.arange(2**net.clients)  # a set of clients is a number, one bit each
    new = at_next_server(net)
    crossed = np.zeros(moments.shape[:-2] + (net.size, moments.shape[-1]))
    square = np.zeros(moments.shape[:-2] + (net.size, net.size))
    for arrived in sets:
        who = tuple(k for k in range(net.clients) if arrived >> k & 1)
        rows = merge_rows(net, who, age, moment % net.period)
        flew = sets[(sets & arrived) == arrived]
        left = flew ^ arrived
        chance = (1 - net.delta) ** len(who) * net.delta ** np.bitwise_count(left)
        part = rows @ moments[flew] * chance.reshape((-1,) + (1,) * (moments.ndim - 1))
        crossed[left] += part
        square[left] += part @ rows.T
    after = thin(moments, net)
    after[..., new, :] = crossed
    after[..., :, new] = crossed.swapaxes(-1, -2)
    after[..., new[:, None], new] = square
    return after


def advance(moments: Array, net: SmallNetwork, moment: int) -> Array:
    """One round of the recursion of second moments: what (25) to (33) stand for."""
    clients, limit = range(net.clients), net.limit
    moments = gather(moments, np.r_[np.arange(length(net)), at_server(net)])  # w_{n+1} starts from w_n
    for age in range(limit, 0, -1):
        moments = np.moveaxis(hear(np.moveaxis(moments, age - 1, 0), net, age, moment), 0, age - 1)
        if age == limit:
            moments = moments.sum(axis=limit - 1)  # what has not arrived by now is discarded
    for client in clients:
        moments = act(moments, net, client, moment)
    moments = moments.reshape((2**net.clients,) + moments.shape[net.clients :])
    moments = hear(moments, net, 0, moment)
    if limit == 0:
        moments = moments.sum(axis=0)
    kept = [sent(net, k, age, moment) for age in range(limit) for k in clients]
    models = [at_client(net, k) for k in clients]
    return gather(moments, np.concatenate([[0], at_next_server(net), *models, *kept]))


# ---- what one asks --------------------------------------------------------------------------------


def initial(net: SmallNetwork, error: Array) -> Array:
    """Nothing in flight, server and clients all at `error` = w* - w_0."""
    states = (2**net.clients,) * net.limit
    if prod(states) * (length(net) + net.size) ** 2 > MOST_NUMBERS:
        raise BadInput(
            "correlations",
            f"{net.clients} clients, size {net.size}, limit {net.limit}",
            "a smaller network: this one has too many cases to sum",
        )
    vector = np.zeros(length(net))
    vector[0] = 1
    vector[1 : 1 + (1 + net.clients) * net.size] = np.tile(np.asarray(error, float), 1 + net.clients)
    moments = np.zeros(states + (length(net),) * 2)
    moments[(0,) * net.limit] = np.outer(vector, vector)
    return moments


def deviation(moments: Array, net: SmallNetwork) -> float:
    """E ||w* - w_n||^2 of the server's model: (37) with sigma = bvec{blockdiag{I, 0, ..., 0}}."""
    every_case = moments.reshape((-1,) + moments.shape[-2:]).sum(axis=0)
    return float(np.diag(every_case)[at_server(net)].sum())


def fixed_point(advanced: Callable[[Array], Array], start: Array, step: float) -> Array:
    """The x with advanced(x) = x, for an affine map: the linear system that (38) inverts."""
    from scipy.sparse.linalg import LinearOperator, gmres

    first = advanced(start)

    def residual(change: Array) -> Array:
        return change - (advanced(start + change.reshape(start.shape)) - first).ravel()

    system = LinearOperator((start.size, start.size), matvec=residual, dtype=float)
    change, failed = gmres(system, (first - start).ravel(), rtol=1e-9, restart=20, maxiter=20)
    if failed:
        raise BadInput("step", step, "a step at which the mean-square deviation settles")
    return start + change.reshape(start.shape)


def steady_cycle(net: SmallNetwork) -> Array:
    """The steady mean-square deviation of the server's model before each round of a cycle of portions."""

    def cycle(moments: Array) -> Array:
        for moment in range(net.period):
            moments = advance(moments, net, moment)
        return moments

    moments = initial(net, np.zeros(net.size))
    for _ in range(-(-net.limit // net.period)):  # afterwards the law of what is in flight is the steady one
        moments = cycle(moments)
    moments = fixed_point(cycle, moments, net.step)
    scale = np.trace(moments, axis1=-2, axis2=-1).max()
    if np.linalg.eigvalsh(moments).min() < -1e-6 * scale:  # not second moments: the recursion diverges
        raise BadInput("step", net.step, "a step at which the mean-square deviation settles")
    deviations = []
    for moment in range(net.period):
        deviations.append(deviation(moments, net))
        moments = advance(moments, net, moment)
    return np.array(deviations)


def steady_state(net: SmallNetwork) -> float:
    """(38) with nothing left out: the mean over a cycle of portions."""
    return float(steady_cycle(net).mean())


def transient(net: SmallNetwork, start: Array, rounds: int) -> Array:
    """(37) with nothing left out: the deviation before round 0, 1, ..., rounds; `start` is w* - w_0."""
    moments = initial(net, start)
    deviations = [deviation(moments, net)]
    for moment in range(rounds):
        moments = advance(moments, net, moment)
        deviations.append(deviation(moments, net))
    return np.array(deviations)
