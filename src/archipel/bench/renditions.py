"""The work of the bench's rows as a person would write it in vectorised NumPy and sparse SciPy: all nodes at once."""

from typing import Any

import numpy as np

FEATURES = 200


class Star:
    """PAO-Fed-C2."""

    def __init__(self, instance: Any):
        clients = instance.task.clients
        self.source, self.settings = instance.task.source, instance.plan.settings
        self.chance = instance.conditions.chance[0].astype(np.float32)
        self.models = np.zeros((clients, FEATURES), np.float32)
        self.server = np.zeros(FEATURES, np.float32)
        self.past = np.zeros((clients, 5), np.float32)
        self.draw = np.random.default_rng(1)
        self.flying: dict[int, list[tuple[Any, int, int]]] = {}
        self.round, self.updates = 0, 0

    def step(self) -> None:
        """One round of all clients, then the server's."""
        clients, law = len(self.models), self.source.law
        fresh = np.flatnonzero(self.draw.random(clients, np.float32) < law[:, 4] / self.source.when[0])
        mine, past = law[fresh], self.past[fresh]
        u = mine[:, 1] + mine[:, 2] * self.draw.standard_normal(len(fresh), np.float32)
        past = np.concatenate([(mine[:, 0] * past[:, 0] + np.sqrt(1 - mine[:, 0] ** 2) * u)[:, None], past[:, :-1]], 1)
        self.past[fresh] = past
        target = np.sqrt(past[:, 0] ** 2 + np.sin(np.pi * past[:, 3]) ** 2)
        target += (0.8 - 0.5 * np.exp(-(past[:, 1] ** 2))) * past[:, 4]
        target += mine[:, 3] * self.draw.standard_normal(len(fresh), np.float32)
        z = self.source.scale[0] * np.cos(past[:, [0, 1, 4, 3]] @ self.source.directions + self.source.phases)
        there = self.draw.random(len(fresh), np.float32) < self.chance[fresh]
        portion = (np.arange(4) + 4 * self.round) % FEATURES
        models = self.models[fresh]
        models[np.ix_(there, portion)] = self.server[portion]
        error = target - np.einsum("kd,kd->k", models, z)
        models += (self.settings.learn.step * error)[:, None] * z
        self.models[fresh] = models
        self.updates += len(fresh)
        self.send(models[there][:, (portion + 4) % FEATURES])
        self.merge()
        self.round += 1

    def send(self, said: Any) -> None:
        """Each message is late by a geometric number of rounds."""
        late = np.floor(np.log(self.draw.random(len(said))) / np.log(0.2)).astype(int)
        start = (4 * (self.round + 1)) % FEATURES
        for age in range(11):
            if (late == age).any():
                self.flying.setdefault(self.round + age, []).append((said[late == age], start, age))

    def merge(self) -> None:
        """(14) and (15), the most recent first."""
        seen = np.zeros(FEATURES, bool)
        for values, start, age in sorted(self.flying.pop(self.round, []), key=lambda message: message[2]):
            portion = (np.arange(4) + start) % FEATURES
            new = portion[~seen[portion]]
            change = values.mean(0)[~seen[portion]] - self.server[new]
            self.server[new] += self.settings.mix.weights[age] * change
            seen[portion] = True


class Mean:
    """W1: one step on one sample each, averaged."""

    def __init__(self, instance: Any):
        source, clients = instance.task.source, instance.task.clients
        self.x = source.x.reshape(-1, clients, source.x.shape[1])  # one round's after the other's
        self.y, self.step_size = source.y.reshape(-1, clients), instance.plan.settings.learn.step
        self.model = np.zeros(source.x.shape[1], source.x.dtype)
        self.round, self.updates = 0, 0

    def step(self) -> None:
        x, y = self.x[self.round % len(self.x)], self.y[self.round % len(self.y)]
        models = self.model + (self.step_size * (y - x @ self.model))[:, None] * x
        self.model = models.mean(0)
        self.round, self.updates = self.round + 1, self.updates + len(x)


def sparse(edges: Any, ones: bool = False) -> Any:
    """Who hears whom, receivers by senders."""
    from scipy.sparse import csr_array

    weights = np.ones_like(edges.weights) if ones else edges.weights
    count = len(edges.fan_out)
    return csr_array((weights, edges.senders, edges.starts), shape=(len(edges.starts) - 1, count))


class Stored:
    """Peers with as many samples each."""

    def __init__(self, instance: Any):
        source, clients = instance.task.source, instance.task.clients
        self.x = source.x.reshape(clients, -1, source.x.shape[1])
        self.y = source.y.reshape(clients, -1)
        self.edges, self.settings = instance.links["peer", "peer"][0], instance.plan.settings
        self.models = np.zeros((clients, source.x.shape[1]), source.x.dtype)
        self.round, self.updates = 0, 0

    def slopes(self, models: Any) -> Any:
        """Everyone's mean gradient of the squared loss."""
        error = np.einsum("knd,kd->kn", self.x, models) - self.y
        return np.einsum("kn,knd->kd", error, self.x) * (2 / self.y.shape[1])

    def counted(self) -> None:
        self.round, self.updates = self.round + 1, self.updates + len(self.x)


class Gossip(Stored):
    """A step, and a mean with the neighbours by Metropolis weights."""

    def __init__(self, instance: Any):
        super().__init__(instance)
        self.mix = sparse(self.edges).astype(self.models.dtype)
        self.kept = 1 - self.mix.sum(1)[:, None]

    def step(self) -> None:
        self.models -= self.settings.learn.step * self.slopes(self.models)
        self.models = self.mix @ self.models + self.kept * self.models
        self.counted()


class Consensus(Stored):
    """zCDP-NFL, (3.8) and (3.10)."""

    def __init__(self, instance: Any):
        super().__init__(instance)
        self.mix, self.degree = sparse(self.edges, ones=True), np.diff(self.edges.starts)[:, None].astype(float)
        self.told, self.dual = np.zeros_like(self.models), np.zeros_like(self.models)
        self.around, self.heard = np.zeros_like(self.models), 0.0 * self.degree
        self.draw, self.private = np.random.default_rng(1), instance.plan.accountant is not None

    def step(self) -> None:
        learn, penalty = self.settings.learn, self.settings.mix.penalty
        inertia = (self.round + 1.0) ** learn.decay / learn.step
        drawn = penalty * ((2 * self.degree - self.heard) * self.told + self.around) - self.dual
        models = inertia * self.told - self.slopes(self.told) + drawn
        self.models = models / (inertia + 2 * penalty * self.degree)
        noise = 0.01 * self.draw.standard_normal(self.models.shape) if self.private else 0.0
        self.told = self.models + noise
        self.around, self.heard = self.mix @ self.told, self.degree
        self.dual += penalty * (self.degree * self.told - self.around)
        self.counted()


class Mirror:
    """Online mirror descent in a ball with linear losses, over one-way links with push-sum."""

    def __init__(self, instance: Any):
        self.source, self.mix = instance.task.source, sparse(instance.links["peer", "peer"][0])
        self.kept = 1 - np.asarray(self.mix.sum(0))[:, None]
        shape = instance.task.clients, instance.task.size
        self.models, self.mass = np.zeros(shape), np.ones((shape[0], 1))
        self.draw, self.private = np.random.default_rng(1), instance.plan.accountant is not None
        self.round, self.updates = 0, 0

    def step(self) -> None:
        spread = 2 * self.draw.random(self.models.shape) - 1
        slopes = self.source.centre[0] + self.source.lean + self.source.law[1] * np.sqrt(3.0) * spread
        if self.private:
            slopes *= np.minimum(1, 2.0 / np.abs(slopes).sum(1))[:, None]
            slopes += self.draw.laplace(0, 4.0, slopes.shape)
        models = self.models - slopes / np.sqrt(self.round + 1) / np.maximum(self.mass, 0.5)
        models /= np.maximum(1, np.linalg.norm(models, axis=1))[:, None]
        total = self.mix @ (self.mass * models) + self.kept * self.mass * models
        self.mass = self.mix @ self.mass + self.kept * self.mass
        self.models = total / self.mass
        self.round, self.updates = self.round + 1, self.updates + len(models)


class Clusters:
    """PGFL in its exact form: clients solve, servers sum by cluster and agree, clusters borrow."""

    def __init__(self, instance: Any):
        from scipy.sparse import csr_array

        plan, graph = instance.plan, instance.graph
        client, self.settings = plan.tables["client"], plan.settings
        data = client.learn.data
        self.basis, self.curve, self.moment = data.basis[:, 0], data.curve[:, 0], data.moment[:, 0]
        self.weight = client.learn.shrinkage + self.settings.learn.penalty
        clients, size = self.moment.shape
        groups, rows = graph.clusters, np.arange(clients)
        self.place = graph.server * groups + graph.cluster
        shape = graph.servers * groups, clients
        self.gather = csr_array((np.ones(clients), (self.place, rows)), shape=shape)
        self.mix, self.groups = sparse(instance.links["server", "server"][0], ones=True), groups
        self.degree = np.diff(instance.links["server", "server"][0].starts)[:, None, None]
        counts = np.bincount(self.place, minlength=shape[0]).reshape(graph.servers, groups, 1)
        self.total = self.settings.mix.penalty * counts + self.settings.mix.edge * self.degree
        self.dual, self.base = np.zeros((clients, size)), np.zeros((clients, size))
        self.psi = np.zeros((graph.servers, groups, size))
        self.anchor = np.zeros_like(self.psi)
        self.round, self.updates = 0, 0

    def step(self) -> None:
        mix, penalty = self.settings.mix, self.settings.learn.penalty
        pull = self.moment + self.dual + penalty * self.base
        along = np.einsum("krd,kd->kr", self.basis, pull) * (self.curve / (self.curve + self.weight))
        told = (pull - np.einsum("krd,kr->kd", self.basis, along)) / self.weight
        self.dual += penalty * (self.base - told)
        summed = (self.gather @ (told - self.dual / penalty)).reshape(self.psi.shape)
        own = (mix.edge * self.anchor - self.psi + mix.penalty * summed) / self.total
        theirs = (self.mix @ own.reshape(len(own), -1)).reshape(own.shape)
        self.psi += 0.5 * mix.edge * (self.degree * own - theirs)
        self.anchor = 0.5 * (self.degree * own + theirs)
        tau = mix.taus[min(self.round, len(mix.taus) - 1)]
        model = (1 - tau) * own + tau / max(self.groups - 1, 1) * (own.sum(1, keepdims=True) - own)
        self.base = model.reshape(-1, model.shape[2])[self.place]
        self.round, self.updates = self.round + 1, self.updates + len(told)
