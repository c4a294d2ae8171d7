"""What is heard is added up with the weights of its links, and with what a node keeps of its own."""

from dataclasses import dataclass
from typing import Any

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.node import add_scaled, kernel
from archipel.parts import NONE, Mix, MixPiece, Place, SharePiece, empty
from archipel.parts.mix.mean import hearing, sums
from archipel.privacy.bounding import shrink
from archipel.turns import Setup


@kernel
def finish(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """(5.13) of the dissertation: y_u = W_uu x_u + sum_v W_uv x_v."""
    shrink(me.model, moment.kept)
    add_scaled(me.model, me.model.dtype.type(1), inbox.total)


@dataclass(frozen=True)
class Plain(Mix, Checked):
    """(5.13): no division by a mass, so rows do not sum to one where senders' weights do. For peers, to compare."""

    limit: int = key(10, "how many rounds late a message may be and still count", at_least=0, at_most=LATEST)

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        if setup.graph.servers:
            right = "another mix: a server's clients have no weights that sum to one, their models would be added up"
            raise BadInput("algorithm.mix.kind", "plain", right)
        if not share.whole:
            right = "one that says all parameters: plain mixing would count what is not said as zero"
            raise BadInput("algorithm.share.kind", "a part of them", right)
        return MixPiece(
            hearing(share.fold), finish, sums(place, share.uniform), empty(place.receivers), NONE, self.limit
        )
