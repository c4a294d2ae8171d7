"""Kernels that are no engine: the bare arithmetic."""

from typing import Any, NamedTuple

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


class Agreeing(NamedTuple):
    """The tables of PGFL's clients, and of what their servers have of each cluster."""

    models: Any
    duals: Any
    basis: Any
    shrunk: Any  # (clients, rank): -curve / (curve + weight)
    moment: Any
    scale: Any  # (clients,): 1 / weight
    place: Any  # (clients,): which of the following is a client's
    bases: Any
    sums: Any
    share: Any  # (places,): one over the number of its clients


def servers(rounds: Any, of: Any, along: Any, penalty: Any) -> None:
    """Servers: everyone's exact solution and dual, added up by server and cluster; then the means.

    That is PGFL where servers do not talk and clusters do not borrow (a hundredth of the work), so it can be compared.
    No client can do without its factors and 2 X^T y / D, read, its dual, read and written, and its model, written. A
    solution without dual and targets would move a sixth less, and be nobody's.
    """
    models, duals, basis, moment = of.models, of.duals, of.basis, of.moment
    place, bases, sums = of.place, of.bases, of.sums
    for _ in range(rounds):
        for k in range(models.shape[0]):
            model, dual, base, total, own = models[k], duals[k], bases[place[k]], sums[place[k]], moment[k]
            for j in range(model.shape[0]):
                model[j] = dual[j] + penalty * base[j] + own[j]
            matvec(along, basis[k], model)
            for i in range(along.shape[0]):
                along[i] *= of.shrunk[k, i]
            add_matvec_transposed(model, 1.0, basis[k], along)
            scale, back = of.scale[k], 1.0 / penalty
            for j in range(model.shape[0]):
                learned = scale * model[j]
                left = dual[j] + penalty * (base[j] - learned)
                model[j], dual[j] = learned, left
                total[j] += learned - back * left
        for s in range(bases.shape[0]):
            for j in range(bases.shape[1]):
                bases[s, j], sums[s, j] = of.share[s] * sums[s, j], 0.0
