"""The exact second moments of PAO-Fed against a sum over every history of a tiny network."""

from itertools import product

import numpy as np
import pytest

from reference.pao_fed import SmallNetwork, transient


def deviation_over_all_histories(net, start, rounds):
    """The sum over who has data, who is available, and when each message arrives; z is Gaussian."""
    size, clients, portion = net.size, net.clients, net.portion
    width = size * (1 + clients) + portion * clients * rounds  # server, clients, every message ever sent
    mail = size * (1 + clients)

    def learn(moments, k):
        me, matrix = slice(size * (1 + k), size * (2 + k)), net.correlations[k]
        change = np.eye(width)
        change[me, me] -= net.step * matrix
        inner = moments[me, me]
        after = change @ moments @ change.T
        after[me, me] += net.step**2 * (
            matrix @ inner @ matrix + matrix * np.trace(matrix @ inner) + net.noise_variances[k] * matrix
        )
        return after

    def turn(moments, k, n, outcome):
        if outcome == "idle":
            return moments
        if outcome == "alone":
            return learn(moments, k)
        change = np.eye(width)
        for j in net.parameters(k, n):
            change[size * (1 + k) + j] = np.eye(width)[j]
        moments = learn(change @ moments @ change.T, k)
        change = np.eye(width)
        for i, j in enumerate(net.parameters(k, n + net.ahead)):
            change[mail + portion * (n * clients + k) + i] = np.eye(width)[size * (1 + k) + j]
        return change @ moments @ change.T

    def merge(moments, n, arrivals):
        change = np.eye(width)
        for j in range(size):
            for age in range(net.limit + 1):
                senders = [k for k in range(clients) if (n - age, k) in arrivals]
                updates = [
                    mail + portion * ((n - age) * clients + k) + i
                    for k in senders
                    for i, place in enumerate(net.parameters(k, n - age + net.ahead))
                    if place == j
                ]
                if updates:
                    change[j, j] -= net.weights[age] * len(updates) / len(senders)
                    change[j, updates] += net.weights[age] / len(senders)
                    break
        return change @ moments @ change.T

    def outcomes(k, n):
        data, available = net.arrival[k], net.availability[k]
        in_time = range(min(net.limit, rounds - 1 - n) + 1)  # later is as good as lost
        late = {delay: net.delta**delay * (1 - net.delta) for delay in in_time}
        late["lost"] = net.delta ** len(in_time)
        chances = {
            "idle": 1 - data,
            "alone": data * (1 - available),
            **{delay: data * available * chance for delay, chance in late.items()},
        }
        return [(outcome, chance) for outcome, chance in chances.items() if chance > 0]

    total = np.zeros(rounds + 1)

    def follow(moments, n, chance, flying):
        total[n] += chance * np.trace(moments[:size, :size])
        if n == rounds:
            return
        for case in product(*(outcomes(k, n) for k in range(clients))):
            after, still = moments, dict(flying)
            for k, (outcome, _) in enumerate(case):
                after = turn(after, k, n, outcome)
                if outcome not in ("idle", "alone", "lost"):
                    still[n, k] = n + outcome
            after = merge(after, n, {message for message, arrival in still.items() if arrival == n})
            follow(after, n + 1, chance * np.prod([p for _, p in case]), still)

    vector = np.zeros(width)
    vector[:mail] = np.tile(start, 1 + clients)
    follow(np.outer(vector, vector), 0, 1.0, {})
    return total


HISTORIES = {
    "uncoordinated, age up to 2": {"coordinated": False, "limit": 2},
    "coordinated, what was received": {"coordinated": True, "limit": 2, "ahead": 0},
    "uncoordinated, not always data": {"coordinated": False, "limit": 1, "arrival": [0.7, 1]},
}


@pytest.mark.parametrize("name", HISTORIES)
def test_sum_over_all_histories(name):
    # three parameters, two at a time: portions wrap around, and those of neighbouring rounds overlap
    roots = np.random.default_rng(5).normal(size=(2, 3, 3)) / 3
    weights = [0.9, 0.5, 0.3][: HISTORIES[name]["limit"] + 1]
    net = SmallNetwork(
        roots @ roots.transpose(0, 2, 1),
        [0.5, 0.1],
        step=0.4,
        portion=2,
        delta=0.4,
        availability=[0.6, 0.8],
        weights=weights,
        **HISTORIES[name],
    )
    start = [1.0, -0.5, 2.0]
    assert transient(net, start, 3) == pytest.approx(deviation_over_all_histories(net, start, 3), rel=1e-12)
