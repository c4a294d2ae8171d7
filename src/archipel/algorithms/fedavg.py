"""FedAvg and its kin on stored data: linear models with any loss; `fedavg_deep` is for the others.

FedAvg: McMahan et al., AISTATS 2017; thesis, algorithm 1; with clusters that borrow, (10) of PGFL. FedProx: Li et al.,
MLSys 2020. SCAFFOLD: Karimireddy et al., ICML 2020. FedAvgM: Hsu, Qi, Brown, 2019. FedAdam: Reddi et al., ICLR 2021.
FedBuff: Nguyen et al., AISTATS 2022.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from archipel.describe import key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.parts.compose import Parts
from archipel.parts.kind import Composition, at_word
from archipel.parts.learn.epochs import Epochs
from archipel.parts.learn.scaffold import ControlledEpochs
from archipel.parts.mix.buffered import Buffered
from archipel.parts.mix.by_samples import BySamples
from archipel.parts.mix.clusters import Clusters
from archipel.parts.mix.controls import Controls
from archipel.parts.mix.mean import Mean
from archipel.parts.mix.optimiser import Adam, Momentum
from archipel.parts.share.whole import Whole
from archipel.turns import Setup

ONE_WAY = "a server's optimiser would undo the mass that push-sum carries"
ADAM_APART = "peers that scale each parameter by what they saw do not agree"
BUFFERS = "a buffer of changes needs a server whose model they change"


@dataclass(frozen=True)
class LocalEpochs(Composition):
    """What learning in local epochs has in common."""

    precision: ClassVar[str] = "float64"
    own_data_kind: ClassVar[str] = "stored"

    step: float = key(0.05, "how far a batch moves the model", above=0)
    batch: int = key(0, "samples a step, 0 for all of a client's", at_least=0)
    epochs: int = key(1, "passes over the data a round", at_least=1, at_most=1_000_000)
    asked: float = key(1.0, "chance that a server asks a client that is there", above=0, at_most=1)
    limit: int = key(0, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def epochs_of(self, setup: Setup, proximal: float = 0.0) -> Epochs:
        if setup.graph.clusters == 0:
            raise BadInput("topology.clusters", "discover", "a number of clusters, for this algorithm")
        return Epochs(self.step, self.batch, self.epochs, proximal)

    def check(self, setup: Setup) -> dict[str, float]:
        """Refuse what makes no sense before anything runs."""
        self.plan(setup)
        return {}

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """As of any composition; and what every client was told last, where that is kept: epochs do."""
        before = tables["client"].before if "client" in tables else None
        return super().models(tables) | ({"told": before} if before is not None and before.shape[1] else {})


@dataclass(frozen=True)
class FedAvg(LocalEpochs):
    """Clients train for `epochs` on batches of `batch` samples, and the server averages what they say by samples.

    Where a sum is noised (`summed`, `at-mix`, `individual`) it is of changes, and clients count alike.
    On a star with clusters every cluster has its own model, and borrows `tau` (times `decay`^n) from the others.
    """

    tau: float | tuple[float, ...] = key(0.0, "the share that a cluster borrows", at_least=0, at_most=1)
    decay: float = key(1.0, "tau's factor from round to round", above=0, at_most=1)

    def own_parts(self, setup: Setup) -> Parts:
        several = setup.graph.clusters > 1
        if self.noises_sums and not several:
            return Parts(self.epochs_of(setup), at_word(setup), Whole(change=True), Mean(self.limit), self.asked)
        mix = Clusters(self.tau, self.decay, self.limit) if several else BySamples(self.limit)
        return Parts(self.epochs_of(setup), at_word(setup), Whole(), mix, self.asked)

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """One model, or one for each cluster; and what every client has of it."""
        found = super().models(tables)
        if "server" in tables and "model" in tables["server"].mix._fields:
            del found["server"]
            found["servers"] = tables["server"].mix.model
        return found


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients are pulled back, by `proximal`, to the model that they were told."""

    proximal: float = key(0.1, "the pull towards the model that was told", at_least=0, symbol="mu")

    def own_parts(self, setup: Setup) -> Parts:
        return super().own_parts(setup)._replace(learn=self.epochs_of(setup, self.proximal))


@dataclass(frozen=True)
class Scaffold(LocalEpochs):
    """Every local step is corrected by what the others' gradients are, as controls say: c - c_k. Option II.

    Among peers this is gradient tracking with local steps: Liu et al., 2024 (K-GT).
    """

    refuses: ClassVar[dict[str, str]] = {
        "servers": "several servers would have to agree on a control as well",
        "digraph": "controls cancel only over links that go both ways",
    }
    fixed_clients: ClassVar[str] = Controls.fixed_clients

    server_step: float = key(1.0, "how far a server goes towards the mean", above=0, symbol="eta_g")

    def own_parts(self, setup: Setup) -> Parts:
        learn = ControlledEpochs(self.step, self.batch, self.epochs)
        return Parts(learn, at_word(setup), Whole(), Controls(self.server_step, self.limit), self.asked)


@dataclass(frozen=True)
class FedAvgM(LocalEpochs):
    """FedAvg whose server keeps momentum. Among peers everyone keeps its own: Wang et al., ICLR 2020 (SlowMo)."""

    refuses: ClassVar[dict[str, str]] = {"digraph": ONE_WAY}

    server_step: float = key(1.0, "how far the server goes", above=0, symbol="eta")
    momentum: float = key(0.9, "what remains of the last change", at_least=0, below=1, symbol="beta")

    def own_parts(self, setup: Setup) -> Parts:
        mix = Momentum(self.server_step, self.momentum, over=BySamples(self.limit))
        return Parts(self.epochs_of(setup), at_word(setup), Whole(), mix, self.asked)


@dataclass(frozen=True)
class FedAdam(LocalEpochs):
    """FedAvg whose server takes the mean change for a gradient, and Adam's step along it."""

    refuses: ClassVar[dict[str, str]] = {"peers": ADAM_APART, "digraph": ONE_WAY}

    server_step: float = key(0.1, "how far the server goes", above=0, symbol="eta")
    first: float = key(0.9, "what remains of the mean change", at_least=0, below=1, symbol="beta_1")
    second: float = key(0.99, "what remains of its square", at_least=0, below=1, symbol="beta_2")
    floor: float = key(1e-3, "how adaptive: the least that a step is divided by", above=0, symbol="tau")

    def own_parts(self, setup: Setup) -> Parts:
        mix = Adam(self.server_step, self.first, self.second, self.floor, over=BySamples(self.limit))
        return Parts(self.epochs_of(setup), at_word(setup), Whole(), mix, self.asked)


@dataclass(frozen=True)
class FedBuff(LocalEpochs):
    """The server waits for nobody: it keeps changes, late ones too, and moves once it has `buffer` of them."""

    refuses: ClassVar[dict[str, str]] = {"peers": BUFFERS, "digraph": BUFFERS}

    limit: int = key(10, "how many rounds late a change may be and still count", at_least=0, at_most=LATEST)
    buffer: int = key(10, "changes that the server waits for", at_least=1, symbol="K")
    server_step: float = key(1.0, "how far the server goes", above=0, symbol="eta_g")

    def own_parts(self, setup: Setup) -> Parts:
        mix = Buffered(self.buffer, self.server_step, self.limit)
        return Parts(self.epochs_of(setup), at_word(setup), Whole(change=True), mix, self.asked)
