"""SignSGD: clients say one bit a parameter.

Bernstein et al., ICML 2018, and its stochastic form, Jin et al., arXiv:2002.10940, which the PAO-Fed article cites.
With several servers each counts its own clients' votes, and servers mix their models.
"""

from dataclasses import dataclass
from typing import ClassVar

from archipel.describe import key
from archipel.environment import LATEST
from archipel.parts.compose import Parts
from archipel.parts.kind import Composition, at_sample
from archipel.parts.learn.gradient import Gradient
from archipel.parts.mix.vote import Vote
from archipel.parts.share.signs import Signs
from archipel.turns import Setup

ONE_MODEL = "a vote needs one model that all who vote look at"


@dataclass(frozen=True)
class SignSgd(Composition):
    """Clients send the signs of their gradients. With a `bound` the signs are stochastic."""

    refuses: ClassVar[dict[str, str]] = {"peers": ONE_MODEL, "digraph": ONE_MODEL}

    step: float = key(0.005, "how far a vote moves a parameter", above=0)
    bound: float = key(0.0, "the largest size of a gradient's component; 0: plain signs", at_least=0, symbol="b")
    vote: str = key("majority", "how the server counts", choices=("majority", "mean"))
    limit: int = key(10, "how many rounds late a vote may be and still count", at_least=0, at_most=LATEST)

    def own_parts(self, setup: Setup) -> Parts:
        signs = Signs(bound=self.bound, of="gradient")
        return Parts(Gradient(), at_sample(setup), signs, Vote(self.step, self.vote, self.limit))
