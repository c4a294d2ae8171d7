"""Noise enters with the word: what a round's learning changed in a model is clipped, paid for and noised as a whole.

Whatever happened since the node last said something, with however many samples, is one release. The noised model is
what the node goes on with, so that sharing it later, in portions, costs nothing more. `base` is what others may know:
the model as it was released, received or mixed last.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from archipel.describe import Checked
from archipel.node import assign, extended, kernel
from archipel.parts import Protect, ProtectPiece, start_of
from archipel.parts.protect.openly import any_sum, as_it_is, check_clip, check_relation, free, no_noise, table_of
from archipel.parts.protect.sample import Private, accountant_of
from archipel.privacy.account import Account, accounts, scale_of
from archipel.privacy.bounding import clip_l1, clip_l2
from archipel.privacy.noise import disturb
from archipel.turns import Setup

WHOLE = "a round's change of the model, however many samples made it,"
Released = extended(Account, "Released", "base")  # an account, and the model as others may know it


@kernel
def release(me: Any, settings: Any, moment: Any) -> Any:
    """Bound the change, pay, noise; who cannot pay goes back to what it was, and says nothing."""
    if not moment.present:  # nothing leaves: what was learned stays in the change
        return True
    for j in range(me.model.shape[0]):
        me.before[j] = me.protect.base[j]
        me.model[j] -= me.before[j]
    if settings.protect.order == 2:
        clip_l2(me.model, settings.protect.clip)
    else:
        clip_l1(me.model, settings.protect.clip)
    scale = scale_of(me.protect, settings.protect, settings.protect.change, moment)
    if scale < 0.0:
        assign(me.model, me.before)
        return False
    disturb(me.model, settings.protect.law, scale, moment.key)
    for j in range(me.model.shape[0]):
        me.model[j] += me.before[j]
    return True


@kernel
def rebase(me: Any) -> None:
    """The model is known to others as it is."""
    assign(me.protect.base, me.model)


@dataclass(frozen=True)
class AtWord(Protect, Checked):
    """A round's change of the model is clipped to `privacy.clip`, paid for and noised before anything is said of it."""

    where: ClassVar[str] = "word"

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        policy, count = table_of(setup), setup.task.clients
        check_relation(policy, "that a client takes part in a round is not hidden")
        check_clip(policy, "a round's change")
        change = 2 * float(policy.clip)
        drawn = policy.noise_of([[change]], count, setup.rounds, setup.seed, False)
        guard = policy.guard()
        settings = Private(drawn.law, drawn.shape, 0, change, float(guard.clip), guard.order)
        accountant = accountant_of(setup, drawn, change, policy.terms(clipped=WHOLE), False)
        base = start_of(learn, setup)
        rows = Released(*accounts(drawn.first, drawn.limit), base)
        return ProtectPiece(
            free, as_it_is, no_noise, release, any_sum, rows, settings, accountant, before=True, rebase=rebase
        )
