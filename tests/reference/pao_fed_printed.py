"""PAO-Fed: the mean-square deviation as the article prints it, (37) and (38).

Gauthier et al., IEEE Internet of Things Journal, 2023. Terms in mu^2 are dropped (Assumption 5), and every
selection matrix is a portion placed at random, independent of all others and of who takes part (Assumption 4
and appendix A): the cycle of the portions, whether they are coordinated, S_n = M_{n+1}, and "only the most
recent updates count" do not enter. `pao_fed.steady_state` keeps them. An update of age l is
w_{k,n+1-l}, as in (14).

The matrices Q_A and Q_B of (29) are not formed. Each is the mean map applied on both sides, plus a term for
what fluctuates: E[A C A^T] = E[A] C E[A]^T + Cov. Of a client that does not always have new data, R_k counts
by the probability that it has.
"""

from itertools import product
from typing import Any

import numpy as np

from archipel.errors import BadInput
from archipel.theory.steps import largest_eigenvalue, mean_square_step_bound
from reference.pao_fed import SmallNetwork, fixed_point

Array = Any


def blocks(net: SmallNetwork) -> int:
    """Models in the extended vector (16): the server's, the clients', and the clients' earlier ones."""
    return 1 + net.clients * (1 + net.limit)


def block(moments: Array, net: SmallNetwork, row: int, column: int) -> Array:
    size = net.size
    return moments[row * size : (row + 1) * size, column * size : (column + 1) * size]


def together(net: SmallNetwork) -> Array:
    """The probability that a portion placed at random holds both of two parameters; the diagonal is p_m."""
    held = np.zeros((net.period, net.size))
    for moment in range(net.period):
        held[moment, net.parameters(0, moment)] = 1
    return held.T @ held / net.period


def received(moments: Array, net: SmallNetwork) -> Array:
    """Q_A of (29): w_k <- a M w + (I - a M) w_k, with E[a M] = p_k p_m I (appendix A)."""
    density = net.portion / net.size
    mean: Array = np.eye(blocks(net))
    taking_part = net.arrival * net.availability
    for client, chance in enumerate(taking_part):
        mean[1 + client, [0, 1 + client]] = chance * density, 1 - chance * density
    mean = np.kron(mean, np.eye(net.size))
    after = mean @ moments @ mean.T
    for client, chance in enumerate(taking_part):
        k = 1 + client
        apart = (
            block(moments, net, 0, 0)
            + block(moments, net, k, k)
            - block(moments, net, 0, k)
            - block(moments, net, k, 0)
        )
        block(after, net, k, k)[...] += (chance * together(net) - (chance * density) ** 2) * apart
    return after


def learned(moments: Array, net: SmallNetwork) -> Array:
    """I - mu (I (x) R_e) - mu (R_e (x) I) of T below (28), and the noise mu^2 Phi of (30) to (32)."""
    correlation = np.zeros_like(moments)
    noise = np.zeros_like(moments)
    for client in range(net.clients):
        k = 1 + client
        matrix = net.arrival[client] * net.correlations[client]
        block(correlation, net, k, k)[...] = matrix
        block(noise, net, k, k)[...] = net.noise_variances[client] * matrix
    return moments - net.step * (correlation @ moments + moments @ correlation) + net.step**2 * noise


def shares(net: SmallNetwork, age: int) -> tuple[Array, Array]:
    """Mean and second moments of iota_l b_{k,n,l} / |K_{n,l}|, (21): the sum over who may arrive."""
    chances = net.arrival * net.availability * net.delta**age * (1 - net.delta)
    mean, square = np.zeros(net.clients), np.zeros((net.clients, net.clients))
    for arrived in product((0, 1), repeat=net.clients):
        if any(arrived):
            there = np.array(arrived)
            share = net.weights[age] * there / there.sum()
            chance = np.where(there, chances, 1 - chances).prod()
            mean += chance * share
            square += chance * np.outer(share, share)
    return mean, square


def merged(moments: Array, net: SmallNetwork) -> Array:
    """Q_B of (29): the server's mean of all that arrives, (21), and everyone's model one round older."""
    density, size = net.portion / net.size, net.size
    mean: Array = np.zeros((blocks(net), blocks(net)))
    mean[0, 0] = 1
    later = np.arange(1, blocks(net))
    mean[later, np.where(later <= net.clients, later, later - net.clients)] = 1  # B_{i,j,n} of appendix A
    both, fluctuation = together(net), np.zeros((size, size))
    for age in range(net.limit + 1):
        first = 1 + age * net.clients
        share, square = shares(net, age)
        mean[0, first : first + net.clients] += density * share
        mean[0, 0] -= density * share.sum()
        for i, j in product(range(net.clients), repeat=2):
            a, b = first + i, first + j
            apart = (
                block(moments, net, a, b)
                - block(moments, net, a, 0)
                - block(moments, net, 0, b)
                + block(moments, net, 0, 0)
            )
            selected = both if i == j else density**2
            fluctuation += (square[i, j] * selected - share[i] * share[j] * density**2) * apart
    mean = np.kron(mean, np.eye(size))
    after = mean @ moments @ mean.T
    block(after, net, 0, 0)[...] += fluctuation
    return after


def advance(moments: Array, net: SmallNetwork) -> Array:
    """(33): T = Q_B (I - mu (I (x) R_e) - mu (R_e (x) I)) Q_A, and mu^2 h."""
    return merged(learned(received(moments, net), net), net)


def deviation(moments: Array, net: SmallNetwork) -> float:
    return float(np.trace(block(moments, net, 0, 0)))


def printed_steady_state(net: SmallNetwork) -> float:
    """(38) with sigma = (I - T)^-1 bvec{blockdiag{I, 0, ..., 0}}: the server's steady deviation."""
    bound = mean_square_step_bound(largest_eigenvalue(net.correlations))
    if net.step >= bound:
        raise BadInput("step", net.step, f"less than {bound:.4g}, the article's bound (34)")
    start = np.zeros((blocks(net) * net.size,) * 2)
    moments = fixed_point(lambda moments: advance(moments, net), start, net.step)
    return deviation(moments, net)


def printed_transient(net: SmallNetwork, start: Array, rounds: int) -> Array:
    """(37): the server's mean-square deviation before round 0, 1, ..., rounds; `start` is w* - w_0."""
    vector = np.tile(np.asarray(start, float), blocks(net))
    moments = np.outer(vector, vector)
    deviations = [deviation(moments, net)]
    for _ in range(rounds):
        moments = advance(moments, net)
        deviations.append(deviation(moments, net))
    return np.array(deviations)
