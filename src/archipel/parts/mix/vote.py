"""A step along the votes of all who are heard: by majority, or by their mean. Bernstein et al., ICML 2018."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.errors import BadInput
from archipel.node import kernel
from archipel.parts import BOUNDED, Mix, MixPiece, Place, SharePiece, empty
from archipel.parts.mix.mean import hearing, sums
from archipel.turns import Setup


class Length(NamedTuple):
    step: Any


@kernel
def majority(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    for j in range(me.model.shape[0]):
        if inbox.count[j] > 0:
            me.model[j] += settings.mix.step * np.sign(inbox.total[j])


@kernel
def mean(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    for j in range(me.model.shape[0]):
        if inbox.count[j] > 0:
            me.model[j] += settings.mix.step * (inbox.total[j] / inbox.count[j])


@dataclass(frozen=True)
class Vote(Mix, Checked):
    """A server moves each parameter by `step`, where most clients want it to go, or by their mean."""

    step: float = key(0.005, "how far a vote moves a parameter", above=0)
    by: str = key("majority", "how votes are counted", choices=("majority", "mean"))
    limit: int = key(10, "how many rounds late a vote may be and still count", at_least=0, at_most=LATEST)

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        if not place.of_change:
            raise BadInput("algorithm.share.kind", "models", "one that says changes: votes are on where to go")
        if place.own:
            right = "one with a server: who votes looks at the same model as all others"
            raise BadInput("topology.kind", "peers", right)
        settings = Length(np.dtype(place.dtype).type(self.step))
        finish = majority if self.by == "majority" else mean
        nothing = empty(place.receivers)
        return MixPiece(hearing(share.fold), finish, sums(place), nothing, settings, self.limit, leaves=BOUNDED)
