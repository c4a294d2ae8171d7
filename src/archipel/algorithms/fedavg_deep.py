"""FedAvg and DP-FedAvg, for anything that a learner trains: deep models, or linear ones on stored data.

FedAvg: McMahan et al., AISTATS 2017, algorithm 1. DP-FedAvg: McMahan, Ramage, Talwar, Zhang, ICLR 2018,
algorithm 1: whole clients are protected, by a server that is trusted. It asks each with a secret chance, clips
its update, and adds noise to their sum.

FedAvg's server may also sample whom it asks, in any of the ways of `sampling`, and merge without bias: `asking`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.algorithms import asking
from archipel.draws import SELECTED
from archipel.errors import BadInput
from archipel.generators import add_gaussian, secret_coin, shuffled_batches
from archipel.node import add_scaled
from archipel.privacy.accounting import check_delta
from archipel.privacy.bounding import clip_l2
from archipel.privacy.ledger import ENFORCED, Assumption, Ledger, Terms
from archipel.privacy.personal import PersonalBudget, PersonalLedgers, affordable_mu, check_reach, release_of
from archipel.privacy.releases import Release
from archipel.problems.models.learners import check_finite, learner_of, sizes_of
from archipel.turns import Plan, Setup, Tell, Turn


class Settings(NamedTuple):
    learner: Any
    step: float
    batch: int
    epochs: int
    local_steps: int  # at most so many; 0: whole epochs
    asked: float
    weights: Any  # what a client's update counts: its samples, or one for DP-FedAvg
    clip: float  # of a whole update; infinite for FedAvg
    total: float  # what the sum is divided by; 0: by the weights that were heard
    sigma: float  # of the noise on the sum
    ledgers: list[Ledger]  # of DP-FedAvg
    release: Release | None


class Client(NamedTuple):
    model: Any


class Server(NamedTuple):
    model: Any


class Model(NamedTuple):
    """A whole model, or a change of it, on its way."""

    values: Any


class Inbox(NamedTuple):
    total: Any
    weight: Any


def tell(me: Any, said: Any, settings: Settings, moment: Any) -> bool:
    """The server's model to a client that it asks, in secret: that is what amplifies."""
    if not secret_coin(settings.asked, moment.key, SELECTED):
        return False
    said.values[:] = me.model
    return True


def take(me: Any, said: Any, settings: Settings, moment: Any) -> None:
    me.model[:] = said.values


def act(me: Any, data: Any, said: Any, settings: Settings, moment: Any) -> bool:
    """ClientUpdate: epochs of steps over shuffled batches; what is said is the change."""
    if not moment.present:
        return False
    said.values[:] = me.model
    train(me.model, data, settings, moment)
    np.subtract(me.model, said.values, out=said.values)
    check_finite(said.values, settings.step)
    if settings.clip < np.inf:
        clip_l2(said.values, settings.clip)
    return True


def train(model: Any, data: Any, settings: Any, moment: Any) -> None:
    """Local steps, in place."""
    left = settings.local_steps or -1
    for epoch in range(settings.epochs):
        for rows in shuffled_batches(len(data.y), settings.batch, moment.key, epoch):
            if left == 0:
                return
            settings.learner.descend(model, data, rows, settings.step)
            left -= 1


# --- a server that samples --------------------------------------------------------------------------------


class SampledSettings(NamedTuple):
    learner: Any
    step: float
    batch: int
    epochs: int
    local_steps: int
    sampling: Any  # Uniform, ByWeight or Optimal
    weights: Any  # p_i
    noise: Any  # B_i: there is none
    clip: float  # what a norm counts that nobody knows
    pretrain: int
    seed: int


class SampledClient(NamedTuple):
    model: Any
    share: Any  # what its update will count: comes with the question and goes back with the answer
    asked: Any  # in how many rounds


def take_question(me: Any, said: Any, settings: SampledSettings, moment: Any) -> None:
    me.model[:] = said.model
    me.share[0] = said.share[0]
    me.asked[0] += 1


def answer(me: Any, data: Any, said: Any, settings: SampledSettings, moment: Any) -> bool:
    """As `act`, and the norm of the gradient over all samples while pre-training: nobody is protected here."""
    if not moment.present:
        return False
    said.norm[0] = 0.0
    if moment.round < settings.pretrain:
        settings.learner.gradient(said.change, me.model, data, np.arange(len(data.y)))
        said.norm[0] = np.linalg.norm(said.change.astype(float))
    said.change[:] = me.model
    train(me.model, data, settings, moment)
    np.subtract(me.model, said.change, out=said.change)
    check_finite(said.change, settings.step)
    said.share[0] = me.share[0]
    return True


def sampled_measures(settings: SampledSettings, tables: dict[str, Any], round: int) -> dict[str, Any]:
    return asking.measured(tables, settings) | {"asked.node": tables["client"].asked[:, 0].copy()}


# --- a server that asks each by a coin ----------------------------------------------------------------------


def hear(inbox: Any, said: Any, settings: Settings, edge: Any) -> None:
    weight = settings.weights[edge.sender]
    add_scaled(inbox.total, inbox.total.dtype.type(weight), said.values)
    inbox.weight[0] += weight


def merge(me: Any, inbox: Any, settings: Settings, moment: Any) -> None:
    """The weighted mean of the changes; with noise, and divided by what was expected, in DP-FedAvg."""
    if settings.release is not None:
        if not all(ledger.affords(settings.release) for ledger in settings.ledgers):
            return
        for ledger in settings.ledgers:  # asked or not: the choice is secret, so everyone pays the same
            ledger.charge(moment.round, settings.release)
        add_gaussian(inbox.total, settings.sigma, moment.key, 0)
    share = settings.total or float(inbox.weight[0])
    if share > 0:
        add_scaled(me.model, me.model.dtype.type(1.0 / share), inbox.total)


@dataclass(frozen=True)
class FedAvgDeep:
    """The server averages what the clients that it asks make of its model, each weighed by its samples.

    A client takes `epochs` passes over its samples in batches, or at most `local_steps` steps where that is not 0.
    Each is asked with the chance `asked`; or the server draws `draws` clients a round by a `sampling`: uniform,
    weight or optimal, whose gradient norms come from `pretrain` rounds with everyone.
    """

    topologies: ClassVar = ("star",)
    precision: ClassVar = "float32"
    data_kind: ClassVar = "deep"

    step: float = 0.1
    batch: int = 32
    epochs: int = 1
    local_steps: int = 0
    asked: float = 1.0
    sampling: str = ""
    draws: int = 3
    pretrain: int = 1

    def settings(self, setup: Setup) -> Settings:
        """The numbers of a run, checked."""
        sizes = sizes_of(setup.task)
        check_training(self, sizes)
        learner = learner_of(setup.task, setup.dtype)
        return Settings(
            learner,
            self.step,
            self.batch,
            self.epochs,
            self.local_steps,
            self.asked,
            sizes.astype(float),
            np.inf,
            0.0,
            0.0,
            [],
            None,
        )

    def plan(self, setup: Setup) -> Plan:
        """Clients, a server with the initial model, and their two turns."""
        return self.sampled_plan(setup) if self.sampling else averaging_plan(self.settings(setup), setup)

    def sampled_plan(self, setup: Setup) -> Plan:
        """The same with a server that samples."""
        sizes, dtype, size = sizes_of(setup.task), setup.dtype, setup.task.size
        check_training(self, sizes)
        if self.asked != 1:
            raise BadInput("algorithm.asked", self.asked, f"1, as sampling is {self.sampling}: it says who is asked")
        asking.check_pretrain(self.sampling, self.pretrain, setup.rounds)
        sampling = asking.chosen_sampling(self.sampling, self.draws, 0.0)
        nobody, clients = np.zeros(len(sizes)), len(sizes)
        sampling.chances(sizes, nobody + 1, nobody)  # refuses N <= K
        settings = SampledSettings(
            learner_of(setup.task, dtype),
            self.step,
            self.batch,
            self.epochs,
            self.local_steps,
            sampling,
            sizes / sizes.sum(),
            nobody,
            1.0,
            self.pretrain,
            setup.seed,
        )
        model, one = np.zeros((clients, size), dtype), np.zeros((clients, 1))
        server = asking.server_of(settings.learner.start().astype(dtype), settings)
        question, word, inbox = asking.words_of(size, clients, dtype)
        return Plan(
            {"client": SampledClient(model, one, one.copy()), "server": server},
            (
                Tell("server", "client", asking.tell, take_question, question),
                Turn("client", "server", answer, asking.hear, asking.merge, word, inbox),
            ),
            settings,
            {0: size, 1: size},
            plain_only=True,
            measure=partial(sampled_measures, settings),
        )

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned."""
        return {"server": tables["server"].model[0]}


@dataclass(frozen=True)
class DpFedAvgDeep:
    """FedAvg that protects whole clients: updates clipped to `clip`, noise for (epsilon, delta) over the run."""

    topologies: ClassVar = ("star",)
    precision: ClassVar = "float32"
    data_kind: ClassVar = "deep"

    step: float = 0.1
    batch: int = 32
    epochs: int = 1
    local_steps: int = 0
    asked: float = 0.5
    clip: float = 1.0
    epsilon: float = 8.0
    delta: float = 1e-5

    def settings(self, setup: Setup) -> Settings:
        """The numbers of a run: everyone counts the same, so that one client moves the sum by `clip` at most."""
        check_training(self, sizes_of(setup.task))
        if not 0 < self.clip < np.inf:
            raise BadInput("algorithm.clip", self.clip, "a positive number")
        check_delta(self.delta, "algorithm.delta")
        check_reach(self.epsilon, self.delta, self.asked, ("algorithm.epsilon", "algorithm.delta"))
        clients = setup.task.clients
        mu = affordable_mu(self.epsilon, self.delta, setup.rounds, self.asked, "add-remove")
        terms = Terms("client", "add-remove", (Assumption(f"updates have norm at most {self.clip:g}", ENFORCED),))
        budget = PersonalBudget(self.epsilon, self.delta)
        return Settings(
            learner_of(setup.task, setup.dtype),
            self.step,
            self.batch,
            self.epochs,
            self.local_steps,
            self.asked,
            np.ones(clients),
            self.clip,
            self.asked * clients,
            self.clip / mu,
            [Ledger("every client", terms, budget)],
            release_of(mu, self.asked, "add-remove"),
        )

    def plan(self, setup: Setup) -> Plan:
        """Clients, a server with the initial model, and their two turns."""
        if setup.privacy is not None:
            right = "none: dp-fedavg-deep has epsilon, delta and clip of its own in [algorithm]"
            raise BadInput("privacy", "(a table)", right)
        settings = self.settings(setup)
        return averaging_plan(settings, setup)._replace(accountant=PersonalLedgers(settings.ledgers, self.delta))

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned."""
        return {"server": tables["server"].model[0]}


def check_training(algorithm: Any, sizes: Any) -> None:
    """Refuse numbers that no training can have, and batches that a client cannot fill."""
    for name in ("step", "epochs"):
        if not 0 < getattr(algorithm, name) < np.inf:
            raise BadInput(f"algorithm.{name}", getattr(algorithm, name), "a positive number")
    if algorithm.local_steps < 0:
        raise BadInput("algorithm.local_steps", algorithm.local_steps, "a number of steps, or 0 for epochs")
    if not 0 < algorithm.asked <= 1:
        raise BadInput("algorithm.asked", algorithm.asked, "a probability above 0, at most 1")
    if not 1 <= algorithm.batch <= sizes.min():
        right = f"1 to {sizes.min()}, the samples of client {int(np.argmin(sizes))}, who has fewest"
        raise BadInput("algorithm.batch", algorithm.batch, right)


def averaging_plan(settings: Settings, setup: Setup) -> Plan:
    """What both have in common: a question with the model, an answer with its change."""
    size, dtype = setup.task.size, setup.dtype
    model = Model(np.zeros(size, dtype))
    return Plan(
        {
            "client": Client(np.zeros((setup.task.clients, size), dtype)),
            "server": Server(settings.learner.start().astype(dtype)[None].copy()),
        },
        (
            Tell("server", "client", tell, take, model),
            Turn("client", "server", act, hear, merge, model, Inbox(np.zeros(size, dtype), np.zeros(1))),
        ),
        settings,
        {0: size, 1: size},
        plain_only=True,
    )
