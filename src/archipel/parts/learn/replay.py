"""Steps on the newest sample and on the last few before it: computation on the node in place of traffic.

On a stream LMS is slow along the directions that a sample seldom has. A node that keeps its last samples and steps on
them again learns faster from the same data, and says no more than before (Lin, Machine Learning 8, 1992, for agents;
Apolinario et al., "data-reusing LMS"). A sample is in as many steps as the memory holds: what enters with a sample
would have to be paid for as often, so protect the word instead.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.node import add_scaled, assign, kernel
from archipel.parts import Learn, LearnPiece, ProtectPiece
from archipel.parts.learn.online import Steps, descent
from archipel.parts.protect.openly import free
from archipel.problems.stored import Seen
from archipel.turns import Setup


class Memory(NamedTuple):
    """The last samples, each in the place of the oldest."""

    features: Any  # (memory, size)
    target: Any  # (memory, 1)
    seen: Any  # (1,): how many samples so far


@kernel
def recall(me: Any, data: Any, settings: Any, moment: Any) -> Any:
    """A step on every sample in memory, the newest first."""
    places = me.learn.target.shape[0]
    newest = me.learn.seen[0] % places
    assign(me.learn.features[newest], data.features)
    me.learn.target[newest, 0] = data.target[0]
    me.learn.seen[0] += 1
    for i in range(min(places, me.learn.seen[0])):
        place = (newest + places - i) % places
        sample = Seen(me.learn.features[place], me.learn.target[place])
        add_scaled(me.model, settings.learn.step * descent(me.model, sample, settings.learn), sample.features)
    return True


@dataclass(frozen=True)
class Replay(Learn, Checked):
    """A step of this length on each of the last `memory` samples, whenever a new one comes."""

    step: float = key(0.4, "how far one sample moves the model", above=0, symbol="mu")
    memory: int = key(4, "how many of the last samples are stepped on", at_least=1)
    autonomous: bool = key(True, "learn also while away")

    def make(self, setup: Setup, protect: ProtectPiece) -> LearnPiece:
        if protect.pay is not free:
            right = '"at-word": a sample is in several steps, and would have to pay for each'
            raise BadInput("algorithm.protect.kind", "at-sample", right)
        real, count = np.dtype(setup.dtype).type, setup.task.clients
        state = Memory(
            np.zeros((count, self.memory, setup.task.size), real),
            np.zeros((count, self.memory, 1), real),
            np.zeros((count, 1), np.int64),
        )
        settings = Steps(real(self.step), int(setup.task.loss))
        return LearnPiece(recall, state, settings, self.autonomous)

    def sensitivity(self, setup: Setup) -> float:
        """How far one sample moves all steps that it is in."""
        return 2 * self.step * float(setup.privacy.clip) * self.memory
