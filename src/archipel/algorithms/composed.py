"""An algorithm without a name of its own: whichever four parts are given."""

from dataclasses import dataclass

from archipel.describe import key
from archipel.parts.compose import Parts
from archipel.parts.kind import Composition, at_sample
from archipel.parts.learn.online import OnlineStep
from archipel.parts.mix.mean import Mean
from archipel.parts.share.whole import Whole
from archipel.turns import Setup


@dataclass(frozen=True)
class Algorithm(Composition):
    """Four parts: an online step, whole models and their mean, if nothing else is said."""

    asked: float = key(1.0, "chance that a server asks a client that is there", above=0, at_most=1)

    def own_parts(self, setup: Setup) -> Parts:
        return Parts(OnlineStep(), at_sample(setup), Whole(), Mean(), self.asked)

    def check(self, setup: Setup) -> dict[str, float]:
        self.plan(setup)
        return {}
