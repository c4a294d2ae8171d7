"""DP-FedAvg on streams: a server averages clipped, noised steps. What peers without a server are compared with.

McMahan, Ramage, Talwar, Zhang, ICLR 2018, with one step a round on the newest sample, and noise at the clients, whom
no one has to trust: the same mechanism, payment and meters as mirror descent's. Each of several servers does the same
with its clients, and then averages its model with its neighbours', which stays in the region.
"""

from dataclasses import dataclass
from typing import ClassVar

from archipel.describe import key
from archipel.parts.compose import Parts
from archipel.parts.kind import Composition
from archipel.parts.learn.offered import Offered, OfferedSteps
from archipel.parts.learn.regret import Meter, metered
from archipel.parts.mix.mean import Mean
from archipel.parts.protect.gradient import AtGradient
from archipel.parts.protect.openly import Openly
from archipel.turns import Plan, Setup

NO_SERVER = "a server keeps the model and takes the steps; without one, mirror-descent does the same"


@dataclass(frozen=True)
class DpFedAvg(Composition):
    """A server asks each client with chance `asked`, and steps along the mean of their clipped, noised gradients.

    The step fits the ball of this `radius`, the gradients and the noise of their mean, and falls as 1 / sqrt(t).
    """

    precision: ClassVar[str] = "float64"
    refuses: ClassVar[dict[str, str]] = {"peers": NO_SERVER, "digraph": NO_SERVER}

    asked: float = key(1.0, "chance that a server asks a client that is there", above=0, at_most=1)
    radius: float = key(1.0, "of the ball that models live in", above=0)
    step: float | None = key(None, "a step of your own, step / t^decay; none: the one that fits", above=0)
    decay: float = key(0.5, "how fast a step of your own falls", at_least=0, at_most=1)
    gradient: float = key(1.0, "how long gradients are where no [privacy] table clips them", above=0)

    def own_parts(self, setup: Setup) -> Parts:
        learn = Offered(radius=self.radius, step=self.step, decay=self.decay, gradient=self.gradient, asked=self.asked)
        return Parts(learn, Openly() if setup.privacy is None else AtGradient(), OfferedSteps(), Mean(0), self.asked)

    def plan(self, setup: Setup) -> Plan:
        """Their turns, and meters of regret."""
        plan = super().plan(setup)
        learn = metered(plan)
        return plan._replace(measure=Meter(setup, learn.map, learn.known, accountant=plan.accountant))
