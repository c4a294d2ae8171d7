"""No protection: whatever a node says leaves as it is."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from archipel.describe import Checked
from archipel.errors import BadInput
from archipel.node import kernel
from archipel.parts import NONE, Protect, ProtectPiece, empty
from archipel.turns import Setup


@kernel
def free(me: Any, settings: Any, moment: Any) -> Any:
    return 0.0


@kernel
def as_it_is(slope: Any, x: Any, settings: Any) -> Any:
    return slope


@kernel
def no_noise(values: Any, scale: Any, me: Any, settings: Any, moment: Any) -> None:
    pass


@kernel
def unguarded(values: Any, limit: Any, scale: Any, me: Any, settings: Any, key: Any) -> None:
    pass


@kernel
def always(me: Any, settings: Any, moment: Any) -> Any:
    return True


@kernel
def any_sum(values: Any, me: Any, settings: Any, moment: Any) -> Any:
    return True


def table_of(setup: Setup) -> Any:
    """The [privacy] table, which a part that protects by it needs."""
    if setup.privacy is None:
        raise BadInput("privacy", "(missing)", "a table [privacy]: a part protects, and does not know how much")
    return setup.privacy


def refuse_table(setup: Setup, kind: str) -> None:
    """Refuse a [privacy] table beside a part that has a budget of its own: one of the two would not be kept."""
    if setup.privacy is not None:
        right = f"none: the protect part {kind} has budgets of its own in [algorithm.protect], and would not look at it"
        raise BadInput("privacy", "(a table)", right)


def check_relation(policy: Any, seen: str) -> None:
    """Refuse to hide that there is something to protect, as it is seen."""
    if policy.relation != "replace-one":
        raise BadInput("privacy.relation", policy.relation, f'"replace-one": {seen}')


def check_needed(policy: Any, needed: dict[str, tuple[Any, str]], where: str) -> None:
    """Refuse keys of a table that are not what a part needs, each with the reason."""
    for name, (right, why) in needed.items():
        if vars(policy)[name] != right:
            raise BadInput(f"privacy.{name}", vars(policy)[name], f"{why}, {where}")


def check_bounds(policy: Any, what: str) -> None:
    """Refuse bounds that nobody would hold to: a ledger would call them enforced."""
    for name, limit in vars(policy.bounds).items():
        if limit < math.inf:
            raise BadInput(f"privacy.bounds.{name}", limit, f"none: {what} is clipped, by privacy.clip")


def check_clip(policy: Any, what: str) -> None:
    """Refuse noise on what has no bound, and bounds on anything else."""
    check_bounds(policy, what)
    if policy.protects and not policy.clip < math.inf:
        right = f"a finite bound on {what}: no noise covers an infinite sensitivity"
        raise BadInput("privacy.clip", policy.clip, right)


@dataclass(frozen=True)
class Openly(Protect, Checked):
    """Nothing is protected."""

    where: ClassVar[str] = "nowhere"

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        return ProtectPiece(free, as_it_is, no_noise, always, any_sum, empty(setup.task.clients), NONE, guard=unguarded)
