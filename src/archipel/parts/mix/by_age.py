"""By age: late messages weigh less, and of several that say the same parameter the most recent counts.

Gauthier et al., IEEE Internet of Things Journal, 2023: (14) and (15).
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.environment import LATEST
from archipel.node import kernel
from archipel.parts import BOUNDED, Mix, MixPiece, Place, SharePiece, empty
from archipel.parts.mix.push_sum import PushSum
from archipel.turns import Setup


class Ages(NamedTuple):
    weights: Any  # iota_l for l = 0 .. l_max, (15)
    recent: Any  # 1: of several updates of a parameter only the most recent count


class Inbox(NamedTuple):
    """What arrives in a round, per age."""

    total: Any  # (ages, size): sum of what was heard of a parameter
    heard: Any  # (ages, size): the weights of those who said it
    senders: Any  # (ages,): |K_{n,l}|


@cache
def hearing(fold: Any) -> Any:
    @kernel
    def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
        """The sums of (14), one message at a time."""
        inbox.senders[edge.age] += 1
        weight = inbox.total.dtype.type(edge.weight)
        fold(inbox.total[edge.age], inbox.heard[edge.age], said, weight, settings)

    return hear


@cache
def merging(of_change: bool, own: bool) -> Any:
    @kernel
    def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """(14) and (15): each age moves the model by its weighted mean deviation from it, or by its mean change.

        Among peers, and of clients that a server draws, weights take the place of a mean.
        """
        for j in range(me.model.shape[0]):
            model = me.model[j]
            for age in range(settings.mix.weights.shape[0]):
                if inbox.heard[age, j] > 0:
                    change = inbox.total[age, j] if of_change else inbox.total[age, j] - inbox.heard[age, j] * model
                    weighted = settings.mix.weights[age] * change
                    me.model[j] += weighted if own else weighted / inbox.senders[age]
                    if settings.mix.recent == 1:
                        break

    return merge


@dataclass(frozen=True)
class ByAge(Mix, Checked):
    """An update that is l rounds late weighs `decay`^l."""

    decay: float = key(0.2, "the weight of a round of delay", at_least=0, at_most=1, symbol="iota")
    most_recent: bool = key(True, "of several updates of a parameter only the most recent count")
    limit: int = key(10, "how many rounds late an update still counts", at_least=0, at_most=LATEST, symbol="l_max")

    def make(self, setup: Setup, share: SharePiece, place: Place) -> MixPiece:
        ages = self.limit + 1
        weights = (self.decay ** np.arange(ages, dtype=float)).astype(place.dtype)
        table = np.zeros((ages, place.size), place.dtype)
        inbox = Inbox(table, table.copy(), np.zeros(ages, place.dtype))
        settings = Ages(weights, int(self.most_recent))
        finish = merging(place.of_change, place.own)
        leaves = BOUNDED if not self.most_recent and weights.sum() > 1 else ()
        state = empty(place.receivers)
        return MixPiece(hearing(share.fold), finish, inbox, state, settings, self.limit, adds=True, leaves=leaves)

    def one_way(self) -> PushSum:
        return PushSum(self.limit)
