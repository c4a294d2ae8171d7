"""Online-Fed, and Online-FedSGD, which asks every client: the whole model goes both ways.

McMahan et al., AISTATS 2017, on streams, as (4) to (6) of the PAO-Fed article.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.algorithms.noised import privately, refine_privately, with_private
from archipel.algorithms.pao_fed import check_step, refine
from archipel.draws import SELECTED, uniform
from archipel.errors import BadInput
from archipel.node import add_scaled, assign, kernel
from archipel.turns import Plan, Setup, Tell, Turn


class Settings(NamedTuple):
    step: Any  # mu
    asked: Any  # chance that the server asks an available client


PrivateSettings = with_private(Settings)


class Client(NamedTuple):
    model: Any


class Server(NamedTuple):
    model: Any


class Model(NamedTuple):
    """A whole model on its way."""

    values: Any


class Inbox(NamedTuple):
    total: Any
    senders: Any


@kernel
def tell(me: Any, said: Any, settings: Any, moment: Any) -> Any:
    """w_n to every client of K_n."""
    if uniform(moment.key, SELECTED) >= settings.asked:
        return False
    assign(said.values, me.model)
    return True


@kernel
def take(me: Any, said: Any, settings: Any, moment: Any) -> None:
    assign(me.model, said.values)


@kernel
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """(4) and (5)."""
    if moment.present:
        refine(me.model, data.features, data.target[0], settings.step)
        assign(said.values, me.model)
    return moment.present


@kernel
def act_privately(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """As `act`, the update paid for, clipped and noised."""
    if not moment.present or not refine_privately(me, data, settings, moment):
        return False
    assign(said.values, me.model)
    return True


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    add_scaled(inbox.total, inbox.total.dtype.type(1), said.values)
    inbox.senders[0] += 1


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """(6): the mean of all that arrive, whatever their age."""
    if inbox.senders[0] > 0:
        for j in range(me.model.shape[0]):
            me.model[j] = inbox.total[j] / inbox.senders[0]


@dataclass(frozen=True)
class OnlineFed:
    """The server averages the models of the clients it asked. With `asked` = 1 this is Online-FedSGD."""

    topologies: ClassVar = ("star",)
    precision: ClassVar = "float32"

    step: float = 0.4
    asked: float = 1.0
    limit: int = 10
    force: bool = False

    def plan(self, setup: Setup) -> Plan:
        """Clients and a server, all at zero, and their two turns."""
        if not self.step > 0:
            raise BadInput("algorithm.step", self.step, "a positive number")
        if not 0 < self.asked <= 1:
            raise BadInput("algorithm.asked", self.asked, "a probability above 0, at most 1")
        if self.limit < 0:
            raise BadInput("algorithm.limit", self.limit, "a number of rounds, 0 or more")
        size, dtype = setup.task.size, setup.dtype
        model = Model(np.zeros(size, dtype))
        settings: Any = Settings(np.dtype(dtype).type(self.step), self.asked)
        clients: Any = Client(np.zeros((setup.task.clients, size), dtype))
        learn, accountant = act, None
        if setup.privacy is not None:
            private, clients, accountant = privately(setup, self.step, clients.model)
            settings, learn = PrivateSettings(*settings, *private), act_privately
        return Plan(
            {"client": clients, "server": Server(np.zeros((1, size), dtype))},
            (
                Tell("server", "client", tell, take, model),
                Turn("client", "server", learn, hear, merge, model, Inbox(np.zeros(size, dtype), np.zeros(1, dtype))),
            ),
            settings,
            {0: size, 1: size},
            self.limit,
            accountant=accountant,
        )

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned."""
        return {"server": tables["server"].model[0], "clients": tables["client"].model}

    def check(self, setup: Setup) -> dict[str, float]:
        """The step bounds, as for PAO-Fed."""
        return check_step(self.step, self.force, setup)


@dataclass(frozen=True)
class OnlineFedSgd(OnlineFed):
    """Online-FedSGD: Online-Fed that asks every client, every round."""

    def plan(self, setup: Setup) -> Plan:
        """As Online-Fed's."""
        if self.asked != 1:
            raise BadInput("algorithm.asked", self.asked, '1 for online-fedsgd, or kind = "online-fed"')
        return super().plan(setup)
