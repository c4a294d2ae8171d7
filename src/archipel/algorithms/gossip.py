"""Gossip: peers step downhill and mix with their neighbours, without a server.

Lian et al., NeurIPS 2017 (D-PSGD): x_i = sum_j W_ij (x_j - gamma g_j(x_j)), with Metropolis weights. Over links that go
one way the mean is pushed: Assran et al., ICML 2019 (stochastic gradient push). With a server the same parts are
FedSGD, which is what gossip is compared with.
"""

from dataclasses import dataclass
from typing import ClassVar

from archipel.describe import key
from archipel.environment import LATEST
from archipel.parts.compose import Parts
from archipel.parts.kind import Composition, at_sample, at_word
from archipel.parts.learn.epochs import Epochs
from archipel.parts.learn.online import OnlineStep
from archipel.parts.mix.mean import Mean
from archipel.parts.share.whole import Whole
from archipel.turns import Setup


@dataclass(frozen=True)
class Gossip(Composition):
    """One step, or `epochs` over stored data, and a mean with the neighbours, round after round."""

    topologies: ClassVar = ("peers", "digraph", "star", "servers")

    step: float = key(0.05, "how far a sample, or a batch, moves the model", above=0, symbol="gamma")
    data: str = key("stream", "how samples come", choices=("stream", "stored"))
    batch: int = key(0, "of stored data, samples a step; 0: all", at_least=0)
    epochs: int = key(1, "of stored data, passes a round", at_least=1, at_most=1_000_000)
    limit: int = key(10, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    @property
    def data_kind(self) -> str:
        return str(self.learn.data_kind) if self.learn is not None else self.data

    def own_parts(self, setup: Setup) -> Parts:
        if self.data == "stream":
            return Parts(OnlineStep(self.step, False), at_sample(setup), Whole(), Mean(self.limit))
        return Parts(Epochs(self.step, self.batch, self.epochs), at_word(setup), Whole(), Mean(self.limit))
