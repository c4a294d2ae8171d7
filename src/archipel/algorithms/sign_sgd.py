"""SignSGD: clients say one bit a parameter.

Bernstein et al., ICML 2018, and its stochastic form, Jin et al., arXiv:2002.10940, which the PAO-Fed article cites: a
sign is flipped with a probability that makes it tell the size of the gradient on average.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.algorithms.online_fed import Client, Model, Server, take
from archipel.draws import SIGN, uniform
from archipel.errors import BadInput
from archipel.node import assign, dot, kernel
from archipel.turns import Plan, Setup, Tell, Turn


class Settings(NamedTuple):
    step: Any
    bound: Any  # b: a gradient component's largest size; 0: plain signs
    majority: Any  # 1: the server moves by the sign of the votes; 0: by their mean


class Signs(NamedTuple):
    """A bit a parameter, packed."""

    bits: Any


class Inbox(NamedTuple):
    votes: Any
    senders: Any


@kernel
def tell(me: Any, said: Any, settings: Any, moment: Any) -> Any:
    """The whole model to everyone: only the way up is compressed."""
    assign(said.values, me.model)
    return True


@kernel
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """The signs of the descent direction e z; stochastic where a bound is set: P(+) = 1/2 + e z / (2 b)."""
    if not moment.present:
        return False
    error = data.target[0] - dot(me.model, data.features)
    for i in range(said.bits.shape[0]):
        said.bits[i] = 0
    for j in range(me.model.shape[0]):
        direction = error * data.features[j]
        if settings.bound > 0.0:
            up = uniform(moment.key, SIGN, j) < 0.5 + 0.5 * direction / settings.bound
        else:
            up = direction > 0.0
        if up:
            said.bits[j // 8] |= np.uint8(1 << (j % 8))
    return True


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """Count the votes."""
    inbox.senders[0] += 1
    for j in range(inbox.votes.shape[0]):
        inbox.votes[j] += 1 if (said.bits[j // 8] >> (j % 8)) & 1 else -1


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """A step along the votes of all who were heard."""
    if inbox.senders[0] == 0:
        return
    for j in range(me.model.shape[0]):
        vote = inbox.votes[j] / inbox.senders[0]
        if settings.majority == 1:
            vote = np.sign(vote)
        me.model[j] += settings.step * vote


@dataclass(frozen=True)
class SignSgd:
    """Clients send the signs of their gradients. With a `bound` the signs are stochastic."""

    topologies: ClassVar = ("star",)
    precision: ClassVar = "float32"

    step: float = 0.005
    bound: float = 0.0
    vote: str = "majority"
    limit: int = 10

    def plan(self, setup: Setup) -> Plan:
        """Clients and a server, all at zero, and their two turns."""
        if not self.step > 0:
            raise BadInput("algorithm.step", self.step, "a positive number")
        if self.bound < 0:
            raise BadInput("algorithm.bound", self.bound, "a positive bound, or 0 for plain signs")
        if self.vote not in ("majority", "mean"):
            raise BadInput("algorithm.vote", self.vote, '"majority" or "mean"')
        size, dtype = setup.task.size, setup.dtype
        signs = Signs(np.zeros((size + 7) // 8, np.uint8))
        inbox = Inbox(np.zeros(size, dtype), np.zeros(1, dtype))
        return Plan(
            {
                "client": Client(np.zeros((setup.task.clients, size), dtype)),
                "server": Server(np.zeros((1, size), dtype)),
            },
            (
                Tell("server", "client", tell, take, Model(np.zeros(size, dtype))),
                Turn("client", "server", act, hear, merge, signs, inbox),
            ),
            Settings(np.dtype(dtype).type(self.step), self.bound, int(self.vote == "majority")),
            {0: size, 1: size / 32},  # a bit is 1/32 of a parameter
            self.limit,
        )

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned."""
        return {"server": tables["server"].model[0], "clients": tables["client"].model}
