"""Online learning with a server: Online-Fed, Online-FedSGD, PAO-Fed, PSO-Fed. On any topology.

PAO-Fed: Gauthier et al., IEEE Internet of Things Journal, 2023; equation numbers are the article's. C0 to U2 are six
settings of it. PSO-Fed: Gogineni et al., ICASSP 2022. Online-Fed: McMahan et al., AISTATS 2017, on streams, (4) to (6).
"""

from dataclasses import dataclass
from typing import ClassVar

from archipel.describe import key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.parts.compose import Parts
from archipel.parts.kind import Composition, at_sample
from archipel.parts.learn.online import OnlineStep
from archipel.parts.learn.replay import Replay
from archipel.parts.mix.by_age import ByAge
from archipel.parts.mix.mean import Mean
from archipel.parts.protect.word import AtWord
from archipel.parts.share.portions import Portions
from archipel.parts.share.whole import Whole
from archipel.turns import Setup

REHEARSAL = 500  # samples a client, from which the correlation matrices are estimated
VARIANTS = {  # coordinated, shares the next portion, weighs by age
    "C0": (True, False, False),
    "C1": (True, True, False),
    "C2": (True, True, True),
    "U0": (False, False, False),
    "U1": (False, True, False),
    "U2": (False, True, True),
}


@dataclass(frozen=True)
class Online(Composition):
    """What online kinds have in common."""

    precision: ClassVar[str] = "float32"

    step: float = key(0.4, "how far one sample moves the model", above=0, symbol="mu")
    asked: float = key(1.0, "chance that a server asks a client that is there", above=0, at_most=1)
    limit: int = key(10, "how many rounds late an update still counts", at_least=0, at_most=LATEST, symbol="l_max")
    force: bool = key(False, "take a step beyond the bound that protects from divergence")

    def check(self, setup: Setup) -> dict[str, float]:
        """The theorems' step bounds for this data; a step beyond the one that protects is refused unless forced.

        That is min((34), 2 / max ||z||^2): (34) alone allows steps at which the recursion diverges.
        """
        from archipel.theory.steps import step_bounds

        bounds = step_bounds(setup.task.inputs(REHEARSAL))
        if self.step > bounds["protective"] and not self.force:
            right = f"at most {bounds['protective']:.4g}, beyond which it may diverge (or force = true)"
            raise BadInput("algorithm.step", self.step, right)
        return bounds


@dataclass(frozen=True)
class OnlineFed(Online):
    """The server averages the models of the clients it asked. With `asked` = 1 this is Online-FedSGD."""

    def own_parts(self, setup: Setup) -> Parts:
        return Parts(OnlineStep(self.step, False), at_sample(setup), Whole(), Mean(self.limit), self.asked)


@dataclass(frozen=True)
class OnlineFedSgd(OnlineFed):
    """Online-Fed that asks every client."""

    def own_parts(self, setup: Setup) -> Parts:
        if self.asked != 1:
            raise BadInput("algorithm.asked", self.asked, '1 for online-fedsgd, or kind = "online-fed"')
        return super().own_parts(setup)


@dataclass(frozen=True)
class OwnPortions(Portions):
    """Portions by the keys of the kind."""

    keys: ClassVar[tuple[str, str]] = ("algorithm.portion", "algorithm.ignore")


@dataclass(frozen=True)
class PaoFed(Online):
    """Clients share `portion` parameters a round, learn alone when they are away, and late updates weigh less.

    `variant` names the article's six: C coordinated or U not; 0 shares what was just received, 1 the next portion,
    2 also weighs an update that is l rounds late by `decay`^l.
    """

    variant: str = key("C2", "which of the article's six", choices=tuple(VARIANTS))
    portion: int = key(4, "parameters in a message", at_least=1, symbol="m")
    decay: float = key(0.2, "the weight of a round of delay", at_least=0, at_most=1, symbol="iota")
    order: str = key("cycle", "how portions follow each other", choices=("cycle", "random"))
    download: str = key("portion", "what the server sends", choices=("portion", "full"))
    ignore: int = key(0, "parameters of a full download that a client leaves", at_least=0)
    autonomous: bool = key(True, "clients that are away learn alone, (12)")
    most_recent: bool = key(True, "of several updates of a parameter only the most recent count")

    def own_parts(self, setup: Setup) -> Parts:
        coordinated, ahead, decayed = VARIANTS[self.variant]
        share = OwnPortions(self.portion, coordinated, ahead, self.order, self.download, self.ignore)
        mix = ByAge(self.decay if decayed else 1.0, self.most_recent, self.limit)
        return Parts(OnlineStep(self.step, self.autonomous), at_sample(setup), share, mix, self.asked)


@dataclass(frozen=True)
class PaoFedReplay(PaoFed):
    """PAO-Fed whose clients step on their last `memory` samples: as good as sharing everything, see docs/traffic.md."""

    portion: int = key(8, "parameters in a message", at_least=1, symbol="m")
    memory: int = key(16, "how many of the last samples are stepped on", at_least=1)

    def own_parts(self, setup: Setup) -> Parts:
        parts = super().own_parts(setup)._replace(learn=Replay(self.step, self.memory, self.autonomous))
        return parts if setup.privacy is None else parts._replace(protect=AtWord())


@dataclass(frozen=True)
class PsoFed(PaoFed):
    """PSO-Fed: PAO-Fed's partial sharing as it was before, for ideal networks: the server asks only some clients."""

    variant: str = key("C1", "which of the article's six", choices=tuple(VARIANTS))
    asked: float = key(0.25, "chance that the server asks a client that is there", above=0, at_most=1)
