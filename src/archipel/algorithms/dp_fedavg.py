"""DP-FedAvg on streams: a server averages clipped, noised steps. What peers without a server are compared with.

McMahan, Ramage, Talwar, Zhang, ICLR 2018, with one step a round on the newest sample, and noise at the clients, whom
no one has to trust: the same mechanism, payment and meters as `mirror_descent`'s.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.algorithms import mirror
from archipel.algorithms.mirror_descent import ridge_of
from archipel.algorithms.mirror_meters import Meter, minima_of, record_of
from archipel.algorithms.mirror_nodes import play, protect, scale_of, step_of
from archipel.algorithms.mirror_privacy import priced, typical_scale
from archipel.draws import SELECTED, uniform
from archipel.errors import BadInput
from archipel.node import add_scaled, assign, kernel
from archipel.parts.share.whole import Model
from archipel.privacy.noise import GAUSSIAN
from archipel.problems.losses.online import loss_gradient
from archipel.regions import ball, project
from archipel.turns import Plan, Setup, Tell, Turn


class Settings(NamedTuple):
    region: Any
    radius: Any
    low: Any
    high: Any
    floor: Any
    width: Any
    length: Any
    pace: Any
    drift: Any
    step: Any
    decay: Any
    loss: Any
    ridge: Any
    asked: Any
    private: Any
    clip: Any
    order: Any
    change: Any
    law: Any
    shape: Any
    per_sample: Any
    centres: Any
    minima: Any


class Client(NamedTuple):
    model: Any  # the server's, as it was told last
    gradient: Any
    noise: Any
    spent: Any
    limit: Any
    releases: Any
    dearest: Any
    summed: Any
    lost: Any
    behind: Any
    rounds: Any


class Server(NamedTuple):
    model: Any


class Inbox(NamedTuple):
    total: Any
    senders: Any


@kernel
def tell(me: Any, said: Any, settings: Any, moment: Any) -> Any:
    if uniform(moment.key, SELECTED) >= settings.asked:
        return False
    assign(said.values, me.model)
    return True


@kernel
def take(me: Any, said: Any, settings: Any, moment: Any) -> None:
    assign(me.model, said.values)


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    add_scaled(inbox.total, inbox.total.dtype.type(1), said.values)
    inbox.senders[0] += 1


@kernel
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """Play the model; say the step on this round's sample, clipped and noised, and paid before."""
    play(me, data, settings, moment)
    if not moment.present:
        return False
    scale = scale_of(me, settings, moment)
    if scale < 0.0:
        return False
    loss_gradient(me.gradient, settings.loss, me.model, data)
    if settings.private == 1:
        protect(me.gradient, settings.clip, scale, settings, moment.key)
    assign(said.values, me.gradient)
    return True


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """A step along the mean of what was heard, back into the region."""
    if inbox.senders[0] > 0.0:
        step = step_of(settings, moment.round)
        for j in range(me.model.shape[0]):
            me.model[j] -= step * (inbox.total[j] / inbox.senders[0] + settings.ridge * me.model[j])
        project(me.model, me.model, settings)


@dataclass(frozen=True)
class DpFedAvg:
    """A server asks each client with chance `asked`, and steps along the mean of their clipped, noised gradients.

    The step fits the ball of this `radius`, the gradients and the noise of their mean, and falls as 1 / sqrt(t);
    `gradient` is how long gradients are where no [privacy] table clips them. A `step` of your own is step / t^decay.
    """

    topologies: ClassVar = ("star",)
    precision: ClassVar = "float64"
    data_kind: ClassVar = "stream"

    asked: float = 1.0
    radius: float = 1.0
    step: float | None = None
    decay: float = 0.5
    gradient: float = 1.0

    def plan(self, setup: Setup) -> Plan:
        """Clients and a server, all at zero, and their two turns."""
        self.check(setup)
        task, size, policy, price = setup.task, setup.task.size, setup.privacy, priced(setup, "client")
        mapped, ridge = mirror.euclidean(ball(size, self.radius)), ridge_of(setup)
        centres = task.oracle.centres if task.oracle else np.zeros((0, size))
        minima = minima_of(task.loss, ridge, centres, mapped) if len(centres) else centres
        clip = float(policy.guard().clip) if policy else math.inf
        heard = max(self.asked * task.clients, 1.0)
        noise = typical_scale(price.noise) / math.sqrt(heard)
        kind = "gaussian" if price.noise.law == GAUSSIAN else "laplace"
        length = mirror.noisy_length(
            min(clip, self.gradient) if policy is None else policy.clip, noise, size, kind, mapped
        )
        settings = Settings(
            *mapped[1:], mirror.width(mapped), length, 0.0, 0.0, float(self.step or 0.0), float(self.decay),
            int(task.loss), ridge, float(self.asked), int(policy is not None), clip, policy.order if policy else 2,
            float(price.change), price.noise.law, price.noise.shape,
            int(policy is not None and policy.unit == "sample"), centres, minima,
        )  # fmt: skip
        zeros, ones = np.zeros((task.clients, size)), [np.zeros((task.clients, 1)) for _ in range(7)]
        clients = Client(
            zeros, zeros.copy(), price.noise.first.copy(), ones[0], price.noise.limit.copy(), *ones[1:],
        )  # fmt: skip
        word = Model(np.zeros(size))
        turns = (
            Tell("server", "client", tell, take, word),
            Turn("client", "server", act, hear, merge, word, Inbox(np.zeros(size), np.zeros(1))),
        )
        meter = Meter(
            setup,
            mapped,
            ridge,
            centres,
            minima,
            role="client",
            accountant=price.accountant,
            record=record_of(setup, ridge),
        )
        tables = {"client": clients, "server": Server(np.zeros((1, size)))}
        return Plan(tables, turns, settings, {0: size, 1: size}, measure=meter, accountant=price.accountant)

    def check(self, setup: Setup) -> dict[str, float]:
        """Refuse what makes no sense."""
        if not 0 < self.asked <= 1:
            raise BadInput("algorithm.asked", self.asked, "a probability above 0, at most 1")
        if self.step is not None and not 0 < self.step < math.inf:
            raise BadInput("algorithm.step", self.step, "a positive number, or none for the step that fits")
        for name in ("radius", "gradient"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadInput(f"algorithm.{name}", getattr(self, name), "a positive number")
        if not 0 <= self.decay <= 1:
            raise BadInput("algorithm.decay", self.decay, "an exponent from 0 to 1")
        if setup.task.regulariser[0] > 0:
            raise BadInput("problem.l1", setup.task.regulariser[0], "0: these steps need a smooth regulariser")
        return {}

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """The server's model, and what every client has of it."""
        return {"server": tables["server"].model[0], "clients": tables["client"].model}
