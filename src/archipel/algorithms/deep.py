"""FedAvg, DP-FedAvg and private mirror descent for anything that a learner trains: networks, or linear models.

FedAvg: McMahan et al., AISTATS 2017, algorithm 1; among peers it is gossip of what local training made of the models
(D-PSGD, Lian et al., NeurIPS 2017, with local steps), over one-way links push-sum of the same (Assran et al., ICML
2019). DP-FedAvg: McMahan, Ramage, Talwar, Zhang, ICLR 2018. Mirror descent: the dissertation's chapter 5.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from archipel.describe import key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.parts.ask.drawn import Drawn, measured
from archipel.parts.ask.sampling import SAMPLINGS
from archipel.parts.compose import Parts, composed, is_mutual
from archipel.parts.kind import Composition
from archipel.parts.learn.deep import Epochs, GradientStep
from archipel.parts.mix.by_samples import BySamples
from archipel.parts.mix.mean import Mean
from archipel.parts.mix.plain import Plain
from archipel.parts.mix.push_sum import PushSum
from archipel.parts.mix.push_whole import Mass
from archipel.parts.protect.batch import GRADIENTS, SENSITIVITY, AtBatch
from archipel.parts.protect.mix import AtMix
from archipel.parts.protect.openly import Openly
from archipel.parts.share.whole import Whole
from archipel.privacy.accounting import check_delta, record, zcdp_epsilon
from archipel.privacy.personal import check_reach, sampled_laplace
from archipel.privacy.policy import Privacy
from archipel.problems.models.learners import sizes_of
from archipel.turns import Plan, Setup


@dataclass(frozen=True)
class Deep(Composition):
    """What kinds that train by a learner have in common: the server's model is the result, or everyone's."""

    own_data_kind: ClassVar[str] = "deep"

    def refuse_table(self, setup: Setup, own: str) -> None:
        if setup.privacy is not None:
            raise BadInput("privacy", "(a table)", f"none: this algorithm has {own} of its own in [algorithm]")

    def planned(self, setup: Setup) -> Plan:
        """The plan of parts that know themselves how much they protect."""
        return composed(setup, self.parts(setup))

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned; where there is a server clients keep nothing of their own."""
        found = super().models(tables)
        return {name: model for name, model in found.items() if name != "clients" or "peer" in tables}


@dataclass(frozen=True)
class LocalTraining(Deep):
    """What kinds have in common whose clients train for some epochs."""

    step: float = key(0.1, "the learning rate", above=0, symbol="eta")
    batch: int = key(32, "samples in a step", at_least=1, symbol="B")
    epochs: int = key(1, "passes over a client's samples in a round", at_least=1, at_most=1_000_000, symbol="E")
    local_steps: int = key(0, "steps in a round, at most; 0: whole epochs", at_least=0)

    def epochs_of(self) -> Epochs:
        return Epochs(self.step, self.batch, self.epochs, self.local_steps)


@dataclass(frozen=True)
class FedAvgDeep(LocalTraining):
    """The server averages what the clients that it asks make of its model, each weighed by its samples.

    A client takes `epochs` passes over its samples in batches, or at most `local_steps` steps where that is not 0.
    Each is asked with the chance `asked`; or the server draws `draws` clients a round by a `sampling`: uniform,
    weight or optimal, whose gradient norms come from `pretrain` rounds with everyone.

    Where a sum is noised (`summed`, `at-mix`) clients count alike, and what is late is lost.

    Among peers everyone trains its own model and then mixes it with its neighbours', who all count as their links say.
    """

    asked: float = key(1.0, "chance that a server asks a client that is there", above=0, at_most=1)
    sampling: str = key("", "how a server draws whom it asks", choices=("", *SAMPLINGS))
    draws: int = key(3, "how often it draws in a round", at_least=1, symbol="K")
    pretrain: int = key(1, "rounds at first in which everyone is asked", at_least=0)
    limit: int = key(10, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def own_parts(self, setup: Setup) -> Parts:
        asks = Drawn(self.sampling, self.draws, self.pretrain) if self.sampling else None
        if asks is not None and self.asked != 1:
            raise BadInput("algorithm.asked", self.asked, f"1, as sampling is {self.sampling}: it says who is asked")
        share = Whole(change=bool(setup.graph.servers))
        told = setup.task.hides_sizes and asks is None  # who alone knows how many samples it has says so in its words
        mix: Any = BySamples(self.limit) if told else Mean(self.limit, by_samples=True)
        return Parts(self.epochs_of(), Openly(), share, Mean(0) if self.noises_sums else mix, self.asked, asks)

    def plan(self, setup: Setup) -> Plan:
        """Everyone at the start, and their turns."""
        if self.protect is None:
            self.refuse_table(setup, "no protection")
        plan = super().plan(setup)
        if self.sampling:
            plan = plan._replace(measure=partial(measured, plan.settings.asked, 0.0))
        return plan


@dataclass(frozen=True)
class DpFedAvgDeep(LocalTraining):
    """FedAvg that protects whole clients: changes clipped to `clip`, noise for (epsilon, delta) over the run.

    A client is in a sum once, so a message that is late is lost. Among several servers each protects its own clients.
    """

    refuses: ClassVar[dict[str, str]] = {
        "peers": "the noise is added by a server that is trusted",
        "digraph": "the noise is added by a server that is trusted",
    }

    asked: float = key(0.5, "chance that a server asks a client, in secret", above=0, at_most=1)
    clip: float = key(1.0, "of what a client changes in a round", above=0)
    epsilon: float = key(8.0, "what a client may pay over the run", above=0)
    delta: float = key(1e-5, "the chance that it pays more", above=0, below=1)

    def own_parts(self, setup: Setup) -> Parts:
        return Parts(self.epochs_of(), AtMix(), Whole(change=True), Mean(0), self.asked)

    def plan(self, setup: Setup) -> Plan:
        """Everyone at the start, and their turns."""
        self.refuse_table(setup, "epsilon, delta and clip")
        check_delta(self.delta, "algorithm.delta")
        check_reach(self.epsilon, self.delta, self.asked, ("algorithm.epsilon", "algorithm.delta"))
        policy = Privacy(epsilon=self.epsilon, delta=self.delta, clip=self.clip, unit="client", relation="add-remove")
        return super().plan(setup._replace(privacy=policy))


# --- mirror descent -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MirrorDeep(Deep):
    """Peers train a network by private mirror descent and push-sum, one batch a round: (5.12) and its mixing.

    `noise` is gaussian, laplace, published (section 5.5) or none. `epsilon` and `delta` are for one record and
    the whole run; published noise takes epsilon as the dissertation does, and its ledger counts what that really
    costs. The step of round t is `step` / t^`fall`; `radius` confines models to a ball, 0 does not.

    `mixing` is for one-way links: push-sum, which reaches the right point on any sequence of directed graphs, or plain,
    (5.13). Links that go both ways have weights whose rows and columns sum to one, where both are the same; with a
    server it is FedAvg with one local step.
    """

    topologies: ClassVar = ("digraph", "peers", "star", "servers")

    noise: str = key("gaussian", "its law, or as published", choices=(*GRADIENTS, "none"))
    mixing: str = key("push-sum", "over one-way links", choices=("push-sum", "plain"))
    epsilon: float = key(1.0, "what a record may pay over the run", above=0)
    delta: float = key(1e-5, "the chance that it pays more", above=0, below=1)
    clip: float = key(1.0, "of an example's gradient", above=0, symbol="C")
    step: float = key(0.1, "the step of the first round", above=0, symbol="eta")
    fall: float = key(0.0, "the step of round t is step / t^fall", at_least=0)
    batch: int = key(128, "samples in a step", at_least=1)
    radius: float = key(0.0, "of the ball that models stay in; 0: everywhere", at_least=0)
    limit: int = key(10, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def own_parts(self, setup: Setup) -> Parts:
        one_way = not setup.graph.servers and not is_mutual(setup.graph)
        pushed = one_way and self.mixing == "push-sum"
        mix: Any = PushSum(self.limit) if pushed else Plain(self.limit) if one_way else Mean(self.limit)
        learn = GradientStep(self.step, self.batch, self.fall, self.radius, over_mass=pushed)
        return Parts(learn, self.noised() or Openly(), Whole(), mix)

    def noised(self) -> AtBatch | None:
        return None if self.noise == "none" else AtBatch(self.noise, self.epsilon, self.delta, self.clip)

    def plan(self, setup: Setup) -> Plan:
        """Everyone at the start, and their turns."""
        self.refuse_table(setup, "noise, epsilon, delta and clip")
        plan = self.planned(setup)
        return plan._replace(measure=measured_peers) if "peer" in plan.tables else plan

    def check(self, setup: Setup) -> dict[str, float]:
        """What the noise of a run is, and what it truly costs beside the dissertation's epsilon."""
        self.plan(setup)
        noised = self.noised()
        if noised is None or self.protect is not None or self.learn is not None:  # these have numbers of their own
            return {}
        told = {"noise a component": float(noised.scales(setup, self.batch)[0].max())}
        if self.noise == "published":
            return told | true_cost(self, setup.task.size, int(sizes_of(setup.task).min()), setup.rounds)
        told["noise a component"] /= self.batch
        return told | {"epsilon of the run": self.epsilon}


def true_cost(algorithm: MirrorDeep, size: int, samples: int, rounds: int) -> dict[str, float]:
    """What noise as published costs one record: a round by itself, and a run on a data set that is used again.

    A record moves the gradient by 2 L in L2, so by 2 L sqrt(size) in L1 at most. Over the run the least is the cost of
    a record which moves one component by 2 L whenever it is used: batches drawn in secret, or known. The most is a
    zCDP total over all rounds, which holds whatever the batches.
    """
    moved, rate = 2 * algorithm.clip * algorithm.epsilon / SENSITIVITY, algorithm.batch / samples
    pure = moved * float(np.sqrt(size))
    secret = record(sampled_laplace(moved, rate)) * rounds
    return {
        "epsilon as printed": algorithm.epsilon,
        "epsilon of a round, truly, at most": pure,
        "epsilon of the run, truly, at least": secret.epsilon(algorithm.delta).epsilon,
        "epsilon of the run, batches known, at least": moved * rounds * rate,
        "epsilon of the run, truly, at most": min(zcdp_epsilon(rounds * moved**2 / 2, algorithm.delta), rounds * pure),
    }


def measured_peers(tables: dict[str, Any], round: int) -> dict[str, Any]:
    """How far apart the peers are, relative to their mean; everyone's push-sum weight; who kept silent."""
    peers = tables["peer"]
    middle = peers.model.mean(0, dtype=float)
    apart = np.linalg.norm(peers.model - middle, axis=1) / max(float(np.linalg.norm(middle)), 1e-300)
    found = {"apart.node": apart, "stopped.node": peers.learn.stopped[:, 0].copy()}
    return found | ({"weight.node": peers.mix.mass[:, 0].copy()} if isinstance(peers.mix, Mass) else {})
