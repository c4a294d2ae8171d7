"""Kernels that are no engine: the bare arithmetic, for the benchmark."""

from typing import Any

from archipel.node import add_matvec_transposed, add_scaled, assign, cosines, dot, fetch, matvec


def features(rounds: Any, models: Any, x: Any, y: Any, z: Any, source: Any, step: Any) -> None:
    """Star: features, dot and update."""
    for _ in range(rounds):
        for k in range(models.shape[0]):
            cosines(z, source.phases, source.directions, x[k], source.scale[0])
            error = y[k] - dot(models[k], z)
            add_scaled(models[k], step * error, z)


def mean(rounds: Any, models: Any, words: Any, x: Any, y: Any, server: Any, step: Any) -> None:
    """W1: take, dot and update, say, add up."""
    count = models.shape[0]
    for n in range(rounds):
        for k in range(count):
            i = (n * count + k) % x.shape[0]
            fetch(x, i + 4)
            assign(models[k], server)
            add_scaled(models[k], step * (y[i] - dot(models[k], x[i])), x[i])
            assign(words[k], models[k])
        for j in range(server.shape[0]):
            server[j] = 0
        for k in range(count):
            add_scaled(server, step / count, words[k])


def graph(
    rounds: Any, models: Any, words: Any, x: Any, y: Any, starts: Any, senders: Any, weights: Any, step: Any
) -> None:
    """Peers: the gradient over one's samples, a step, what is said; then everyone's neighbours, added up."""
    count, each = models.shape[0], x.shape[0] // models.shape[0]
    for _ in range(rounds):
        for k in range(count):
            assign(words[k], models[k])
            for i in range(k * each, (k + 1) * each):
                error = dot(x[i], models[k]) - y[i]
                add_scaled(words[k], -step * error, x[i])
        for k in range(count):
            for j in range(models.shape[1]):
                models[k, j] = 0
            for e in range(starts[k], starts[k + 1]):
                fetch(words, senders[min(e + 8, senders.shape[0] - 1)])
                add_scaled(models[k], weights[e], words[senders[e]])


def servers(rounds: Any, models: Any, basis: Any, curve: Any, along: Any, place: Any, sums: Any, step: Any) -> None:
    """Servers: a client's exact solution, added to what its server has of its cluster."""
    for _ in range(rounds):
        for k in range(models.shape[0]):
            matvec(along, basis[k], models[k])
            for i in range(along.shape[0]):
                along[i] *= -step * curve[k, i]
            add_matvec_transposed(models[k], step, basis[k], along)
            add_scaled(sums[place[k]], step, models[k])
