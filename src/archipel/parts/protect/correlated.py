"""Noise at the gradient, or at a sample's step, that cancels in the sum of a node's: `privacy.correlated`, as a part.

For what sums gradients up (dual averaging; mirror steps before they leave their region; LMS, whose model is the sum of
its steps and forgets slowly) a draw of every round less a part of the earlier ones: in the sum of T of them a deviation
of about log T in place of sqrt T. A sample is used once and pays once, for its own round and for what of it stands in
the noise of all later ones; a client that would hide all its samples pays for how they stand together there, which is
more than the sum.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

from archipel.describe import key
from archipel.node import exact, extended, kernel
from archipel.parts import ProtectPiece
from archipel.parts.protect.gradient import AtGradient, ClipsGradients
from archipel.parts.protect.openly import check_needed, table_of
from archipel.parts.protect.sample import AtSample, Private
from archipel.privacy.account import Account, release_cost, scale_of
from archipel.privacy.bounding import clip_l2
from archipel.privacy.correlated import FORMS, Strategy, disturb_correlated, strategy
from archipel.turns import Setup

ALIKE: dict[str, tuple[Any, str]] = {
    "mechanism": ("gaussian", '"gaussian": of other noise it is not known what a sum costs'),
    "schedule": ("constant", '"constant": the noise of all rounds belongs together'),
}
CORRELATED = "where noise is correlated"

Remembering = extended(Account, "Remembering", "past")  # the noise of earlier rounds, which nobody else may know
# how noise is correlated, see `Strategy`; `change`: how far another sample moves what is noised, in all rounds together
Terms = extended(Private, "Terms", "way", "together")


@kernel
def pay(me: Any, settings: Any, moment: Any) -> Any:
    """A sample pays once; what a client has paid grows with how its samples stand together."""
    terms, account = settings.protect, me.protect
    scale = scale_of(account, terms, terms.change, moment)
    if scale >= 0.0:
        place = min(int(account.past.step[0]), terms.together.shape[0] - 1)
        account.summed[0] += release_cost(terms.law, terms.change, scale) * (terms.together[place] - 1.0)
    return scale


@exact
def noise(values: Any, scale: Any, me: Any, settings: Any, moment: Any) -> None:
    """On a model that has taken a sample's step."""
    disturb_correlated(values, me.protect.past, settings.protect.way, settings.protect.law, scale, moment.key)


@cache
def guarding(law: int) -> Any:
    @exact
    def guard(values: Any, limit: Any, scale: Any, me: Any, settings: Any, key: Any) -> None:
        """Clip, then noise: here a sample enters the state."""
        clip_l2(values, limit)
        disturb_correlated(values, me.protect.past, settings.protect.way, law, scale, key)

    return guard


class Strained(NamedTuple):
    """A learn part whose samples move so many times more: all rounds together."""

    learn: Any
    strain: float

    def sensitivity(self, setup: Setup) -> float:
        return float(self.strain * self.learn.sensitivity(setup))


@dataclass(frozen=True)
class Correlated(AtGradient):
    """A sample's gradient or step is clipped, paid for, noised; the noise of a node's rounds cancels in their sum."""

    alike: ClassVar[bool] = False

    form: str = key("buffers", "how the noise of rounds belongs together", choices=tuple(FORMS))

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        way, whole = self.strategy(setup), isinstance(learn, ClipsGradients)
        made = super().make(setup, learn) if whole else AtSample().make(setup, Strained(learn, way.sensitivity))
        past = way.past(setup.task.clients, setup.task.size, setup.dtype)
        state = Remembering(**made.state._asdict(), past=past)
        settings = Terms(**made.settings._asdict(), way=way.settings, together=way.together)
        buys = float(way.deviations.mean()) / way.sensitivity
        made = made._replace(pay=pay, state=state, settings=settings, cancels=buys)
        return made._replace(guard=guarding(made.settings.law)) if whole else made._replace(noise=noise)

    def strategy(self, setup: Setup) -> Strategy:
        """How the noise of different rounds belongs together."""
        needed = ALIKE | {"unit": ("sample", '"sample": for all samples of a client independent noise is better')}
        check_needed(table_of(setup), needed, CORRELATED)
        return strategy(setup.rounds, self.form)

    def strain(self, setup: Setup) -> float:
        """The sensitivity of C: a sample is in all later rounds' noise too."""
        return self.strategy(setup).sensitivity
