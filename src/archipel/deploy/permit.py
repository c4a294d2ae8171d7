"""Whether a site's policy lets a node take part, found before anything is opened; and what it then may say.

Each refusal is a sentence that names the rule's key, its value and what would be right; all of them at once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from archipel.deploy.accounts import stated
from archipel.deploy.view import View
from archipel.errors import BadInput, Findings
from archipel.node import named_leaves
from archipel.policy import Policy, approval_of, contents_of
from archipel.privacy.accounting import EXACT, zcdp_epsilon
from archipel.privacy.gaussian import epsilon_of
from archipel.privacy.ledger import ASSUMED, Budget, EpsilonBudget, ZcdpBudget

ROUNDING = 1e-9  # of a price that is computed


@dataclass(frozen=True)
class Permit:
    """A policy that lets a node take part. Only `permit` makes one."""

    policy: Policy
    approval: str  # the description's hash
    name: str  # of the node
    to: frozenset[str]
    contents: tuple[frozenset[str], ...]  # of each turn's word
    rounds: int
    again: Callable[[Policy], "Permit"] | None = None  # of a policy that changed


def permit(policy: Policy, federation: Any, view: View) -> Permit:
    """Refuse what the policy does not let this node do."""
    found, approval = Findings(), approval_of(federation, view.digest)
    neighbours = view.roster.neighbours(view.member.name)
    contents = tuple(frozenset(contents_of(name for name, _ in named_leaves(t.word))) for t in view.plan.turns)
    with found:
        if approval not in policy.approved:
            right = f"{approval} among them, as `archipel approve` writes it when you agree"
            raise BadInput("policy.approved", list(policy.approved), right)
    with found:
        if policy.rounds and federation.rounds > policy.rounds:
            raise BadInput("policy.rounds", policy.rounds, f"{federation.rounds}, which this description plays")
    for other in neighbours if policy.to else ():
        with found:
            if other not in policy.to:
                raise BadInput(
                    "policy.to", list(policy.to), f'"{other}" among them: {view.member.name} would talk to it'
                )
    for what in sorted({what for i in said(view) for what in contents[i]}):
        with found:
            if what not in policy.leaves:
                right = f'"{what}" among them, which {view.member.name} would say'
                raise BadInput("policy.leaves", list(policy.leaves), right)
    with found:
        largest = max((view.vocabulary.frame(i) for i in said(view)), default=0)
        if 0 < policy.bytes_a_day < largest:
            right = f"at least {largest}, the bytes of a message of this description"
            raise BadInput("policy.bytes_a_day", policy.bytes_a_day, right)
    with found:
        check_price(policy, view, federation.deploy.pace != "replay")
    found.refuse()
    to, again = frozenset(policy.to or neighbours), partial(permit, federation=federation, view=view)
    return Permit(policy, approval, view.member.name, to, contents, federation.rounds, again)


def said(view: View) -> list[int]:
    """The turns in which a node says something."""
    return [i for i, turn in enumerate(view.plan.turns) if turn.sender == view.member.role]


def check_price(policy: Policy, view: View, secret: bool) -> None:
    """With a limit on privacy, everything that has to do with a node's data must be paid for, by the node itself."""
    limits, accountant, member = policy.privacy, view.plan.accountant, view.member
    pays = accountant is not None and accountant.role == member.role
    if not limits.key or not (view.has_data or pays):
        return
    if not pays:
        why = "no noise is added" if accountant is None else f"only the {accountant.role} adds noise"
        raise BadInput(limits.key, limits.value, f"no limit: {why} before anything leaves, which no budget covers")
    if not accountant.forecast().rho[member.number] < float("inf"):
        raise BadInput(limits.key, limits.value, "no limit: without noise nothing is protected, whatever the budget")
    terms = stated(accountant.terms, secret)
    if terms.how == ASSUMED and not limits.assumed:
        what = next(held.what for held in terms.assumptions if held.how == ASSUMED)
        raise BadInput("policy.privacy.assumed", False, f"true, since the price rests on what nobody enforces: {what}")


def check_budget(policy: Policy, view: View) -> None:
    """Refuse what costs more than the limit, at most: its node would halt on the way. Who paid before has less left."""
    limits, accountant, number = policy.privacy, view.plan.accountant, view.member.number
    if limits.value is None or accountant is None or accountant.role != view.member.role:
        return
    paid, at = accountant.forecast(), ""
    price = float(paid.rho[number])
    if limits.epsilon is not None:
        at = f" at delta = {limits.delta:g}"
        if accountant.delta <= limits.delta:
            price = float(paid.epsilon[number])
        elif paid.methods[number] == EXACT:
            price = float(epsilon_of(math.sqrt(2 * price), limits.delta))
        else:
            price = zcdp_epsilon(price, limits.delta)
    if price > limits.value * (1 + ROUNDING):
        right = f"at least {price:.6g}{at}, which this description costs at most: with less its node halts on the way"
        raise BadInput(limits.key, limits.value, f"{right}. A node's own copy of it may have a smaller budget, too")


def budget_of(policy: Policy) -> Budget | None:
    """The site's limit, as ledgers know it."""
    limits = policy.privacy
    if limits.epsilon is not None:
        return EpsilonBudget(limits.epsilon, limits.delta)
    return None if limits.rho is None else ZcdpBudget(limits.rho)
