"""PAO-Fed: online learning that shares a few parameters at a time.

Gauthier et al., IEEE Internet of Things Journal, 2023. Equation numbers are the article's. C0 to U2 are six settings
of it, PSO-Fed (Gogineni et al., ICASSP 2022) is another: the server asks only some of the clients that are there.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.algorithms.noised import privately, refine_privately, with_private
from archipel.algorithms.portions import CYCLE, RANDOM, Portion, cut, first, first_random
from archipel.draws import SELECTED, uniform
from archipel.errors import BadInput
from archipel.node import add_scaled, dot, kernel
from archipel.turns import Plan, Setup, Tell, Turn

REHEARSAL = 500  # samples a client, from which the correlation matrices are estimated


class Settings(NamedTuple):
    step: Any  # mu
    portion: Any  # m, what a client says
    spread: Any  # 0 coordinated (C), 1 uncoordinated (U)
    ahead: Any  # 0: share what was received (C0, U0); 1: the next portion, (8)
    order: Any  # CYCLE or RANDOM
    alone: Any  # 1: learn also when away, (12)
    asked: Any  # chance that the server asks an available client; 1 in PAO-Fed
    kept: Any  # of a full download, how many parameters a client takes (the rest it ignores)
    recent: Any  # 1: of several updates of a parameter only the most recent count
    weights: Any  # iota_l for l = 0 .. l_max, (15)


PrivateSettings = with_private(Settings)


class Client(NamedTuple):
    model: Any  # w_k


class Server(NamedTuple):
    model: Any  # w


class Inbox(NamedTuple):
    """What arrives at the server in a round, per age."""

    total: Any  # (ages, size): sum of what was heard of a parameter
    heard: Any  # (ages, size): how many said it
    senders: Any  # (ages,): |K_{n,l}|


@kernel
def start_of(settings: Any, size: Any, node: Any, moment: Any, ahead: Any) -> Any:
    """Where the portion starts that client `node` receives (ahead 0) or says (ahead as set) in a round."""
    if settings.order == RANDOM:
        return first_random(size, moment.key, ahead)
    return first(size, settings.portion, settings.spread, node, moment.round + ahead)


@kernel
def tell(me: Any, said: Any, settings: Any, moment: Any) -> Any:
    """M_{k,n} w_n to a client that the server asks this round."""
    if uniform(moment.key, SELECTED) >= settings.asked:
        return False
    start = start_of(settings, me.model.shape[0], moment.peer, moment, 0)
    cut(said, me.model, start)
    return True


@kernel
def take(me: Any, said: Any, settings: Any, moment: Any) -> None:
    """The part of (10) that puts M_{k,n} w_n into the local model; of a full download it may ignore the end."""
    size = me.model.shape[0]
    j = said.start[0]
    for i in range(min(settings.kept, said.values.shape[0])):
        me.model[j] = said.values[i]
        j += 1
        if j == size:
            j = 0


@kernel
def refine(model: Any, features: Any, target: Any, step: Any) -> Any:
    """One step on the newest sample, (10) to (13); returns the error before it."""
    error = target - dot(model, features)
    add_scaled(model, step * error, features)
    return error


@kernel
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """Learn from the newest sample; an available client says S_{k,n} w_{k,n+1}."""
    if not moment.present and settings.alone == 0:
        return False
    refine(me.model, data.features, data.target[0], settings.step)
    if moment.present:
        # With ahead = 1 this is M_{k,n+1}: a portion that local learning refined since it was last received.
        cut(said, me.model, start_of(settings, me.model.shape[0], moment.node, moment, settings.ahead))
    return moment.present


@kernel
def act_privately(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """As `act`, every update noised before it enters the model; a client that cannot pay neither learns nor speaks."""
    if not moment.present and settings.alone == 0:
        return False
    if not refine_privately(me, data, settings, moment):
        return False
    if moment.present:
        cut(said, me.model, start_of(settings, me.model.shape[0], moment.node, moment, settings.ahead))
    return moment.present


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    """The sums of (14), one message at a time."""
    inbox.senders[edge.age] += 1
    total, heard = inbox.total[edge.age], inbox.heard[edge.age]
    j = said.start[0]
    for i in range(said.values.shape[0]):
        total[j] += said.values[i]
        heard[j] += 1
        j += 1
        if j == total.shape[0]:
            j = 0


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """(14) and (15): each age moves the model by its weighted mean deviation from it."""
    for j in range(me.model.shape[0]):
        model = me.model[j]
        for age in range(settings.weights.shape[0]):
            if inbox.heard[age, j] > 0:
                change = inbox.total[age, j] - inbox.heard[age, j] * model
                me.model[j] += settings.weights[age] * change / inbox.senders[age]
                if settings.recent == 1:
                    break


VARIANTS = {
    "C0": (True, False, False),
    "C1": (True, True, False),
    "C2": (True, True, True),
    "U0": (False, False, False),
    "U1": (False, True, False),
    "U2": (False, True, True),
}


@dataclass(frozen=True)
class PaoFed:
    """Clients share `portion` parameters a round, learn alone when they are away, and late updates weigh less.

    `variant` names the article's six: C coordinated or U not; 0 shares what was just received, 1 the next portion,
    2 also weighs an update that is l rounds late by `decay`^l.
    """

    topologies: ClassVar = ("star",)
    precision: ClassVar = "float32"

    variant: str = "C2"
    step: float = 0.4
    portion: int = 4
    decay: float = 0.2
    limit: int = 10
    order: str = "cycle"
    download: str = "portion"
    ignore: int = 0
    autonomous: bool = True
    asked: float = 1.0
    most_recent: bool = True
    force: bool = False

    def settings(self, size: int, dtype: Any) -> Settings:
        """The numbers that make this variant, checked against the model."""
        if self.variant not in VARIANTS:
            raise BadInput("algorithm.variant", self.variant, "one of " + ", ".join(VARIANTS))
        if not 1 <= self.portion <= size:
            raise BadInput("algorithm.portion", self.portion, f"1 to {size}, the parameters of the model")
        if not self.step > 0:
            raise BadInput("algorithm.step", self.step, "a positive number")
        if not 0 <= self.decay <= 1:
            raise BadInput("algorithm.decay", self.decay, "a weight from 0 to 1")
        if not 0 < self.asked <= 1:
            raise BadInput("algorithm.asked", self.asked, "a probability above 0, at most 1")
        if self.order not in ("cycle", "random"):
            raise BadInput("algorithm.order", self.order, '"cycle" or "random"')
        if self.download not in ("portion", "full"):
            raise BadInput("algorithm.download", self.download, '"portion" or "full"')
        if not 0 <= self.ignore < size:
            raise BadInput("algorithm.ignore", self.ignore, f"0 to {size - 1} parameters of a full download")
        if self.limit < 0:
            raise BadInput("algorithm.limit", self.limit, "a number of rounds, 0 or more")
        coordinated, ahead, decayed = VARIANTS[self.variant]
        ages = np.arange(self.limit + 1)
        real = np.dtype(dtype).type
        return Settings(
            real(self.step),
            self.portion,
            int(not coordinated),
            int(ahead),
            RANDOM if self.order == "random" else CYCLE,
            int(self.autonomous),
            self.asked,
            size - self.ignore if self.download == "full" else self.portion,
            int(self.most_recent),
            (self.decay ** ages.astype(float) if decayed else np.ones(ages.size)).astype(dtype),
        )

    def plan(self, setup: Setup) -> Plan:
        """Clients and a server, all at zero, and their two turns."""
        task, dtype = setup.task, setup.dtype
        settings: Any = self.settings(task.size, dtype)
        clients: Any = Client(np.zeros((task.clients, task.size), dtype))
        learn, accountant = act, None
        if setup.privacy is not None:
            private, clients, accountant = privately(setup, self.step, clients.model)
            settings, learn = PrivateSettings(*settings, *private), act_privately
        ages = self.limit + 1
        down = task.size if self.download == "full" else self.portion
        inbox = Inbox(np.zeros((ages, task.size), dtype), np.zeros((ages, task.size), dtype), np.zeros(ages, dtype))
        return Plan(
            {
                "client": clients,
                "server": Server(np.zeros((1, task.size), dtype)),
            },
            (
                Tell("server", "client", tell, take, empty_portion(down, dtype)),
                Turn("client", "server", learn, hear, merge, empty_portion(self.portion, dtype), inbox),
            ),
            settings,
            {0: down, 1: self.portion},
            self.limit,
            accountant=accountant,
        )

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned."""
        return {"server": tables["server"].model[0], "clients": tables["client"].model}

    def check(self, setup: Setup) -> dict[str, float]:
        """The theorems' step bounds for this data; a step beyond the one that protects is refused unless forced."""
        return check_step(self.step, self.force, setup)


@dataclass(frozen=True)
class PsoFed(PaoFed):
    """PSO-Fed: PAO-Fed's partial sharing as it was before, for ideal networks: the server asks only some clients.

    Gogineni et al., ICASSP 2022: coordinated portions, no weights for age.
    """

    variant: str = "C1"
    asked: float = 0.25


def check_step(step: float, force: bool, setup: Setup) -> dict[str, float]:
    """Refuse a step beyond min((34), 2 / max ||z||^2): (34) alone allows steps at which the recursion diverges."""
    from archipel.theory.steps import step_bounds

    bounds = step_bounds(setup.task.inputs(REHEARSAL))
    if step > bounds["protective"] and not force:
        right = f"at most {bounds['protective']:.4g}, beyond which it may diverge (or force = true)"
        raise BadInput("algorithm.step", step, right)
    return bounds


def empty_portion(length: int, dtype: Any) -> Portion:
    """A message for `length` parameters."""
    return Portion(np.zeros(length, dtype), np.zeros(1, np.uint32))
