"""What a site agrees to when it takes part, in words: what leaves, to whom, how often, at what price."""

from collections.abc import Iterator
from typing import Any

from archipel.deploy.accounts import stated
from archipel.deploy.permit import said
from archipel.deploy.view import View
from archipel.deploy.wire import HEADER, STATE
from archipel.node import named_leaves
from archipel.policy import broker_of, contents_of
from archipel.privacy.ledger import ASSUMED
from archipel.registry import kind_of

NAMED = 3  # receivers by their names


def terms(federation: Any, view: View) -> Iterator[str]:
    """Lines for the person who decides."""
    member, rounds = view.member, federation.rounds
    kinds = f"{kind_of(federation.algorithm)} on {kind_of(federation.topology)}"
    yield f"{member.name} would take part in {rounds} rounds of {kinds}, seed {federation.seed}."
    yield "What leaves:"
    yield from leaving(view, rounds)
    notes = f"notes without data (greetings, answers, who is there): {HEADER.size} to 40 bytes each"
    yield f"  to {listed(view.roster.neighbours(member.name))}, {notes}"
    if federation.deploy.status and view.has_data:
        size = HEADER.size + STATE.size
        yield f"  to its servers, every {federation.deploy.status:g} s, if the policy lets it: status, {size} bytes"
    if broker_of(federation):
        yield f"  to {broker_of(federation)}, from where its samples come: a subscription, under its name"
    yield "At what price:"
    yield from price(view, federation.deploy.pace != "replay")


def leaving(view: View, rounds: int) -> Iterator[str]:
    """The words of each turn that a node says, with their true sizes."""
    for i in said(view):
        receivers = [other.name for other in view.ever_says(i)]
        turn, size = view.plan.turns[i], HEADER.size + view.vocabulary.words[i].size
        fields = [(path, array.size) for path, array in named_leaves(turn.word)]
        what = ", ".join(sorted(contents_of(path for path, _ in fields)))
        parts = ", ".join(f"{count} x {path.rpartition('.')[2]}" for path, count in fields)
        most = rounds * size * max(len(view.says(i, n)) for n in range(len(view.outgoing[i])))
        often, most = ("once", size) if view.prelude and i == view.prelude.show else ("at most once a round", most)
        yield f"  to {listed(receivers)}, {often}: {what} ({parts}), {size} bytes; {most:,} bytes in all"
    if not said(view):
        yield "  no words: it only hears"


def price(view: View, secret: bool) -> Iterator[str]:
    """What the node's data will have paid at most, and what that rests on."""
    accountant, member = view.plan.accountant, view.member
    if accountant is not None and accountant.role == member.role:
        paid, held = accountant.forecast(), stated(accountant.terms, secret)
        change = "replaced by another" if held.relation == "replace-one" else "added or removed"
        epsilon, rho = float(paid.epsilon[member.number]), float(paid.rho[member.number])
        yield (
            f"  one {held.unit} {change}: epsilon at most {epsilon:.4g} at delta = {accountant.delta:g} "
            f"(zCDP {rho:.4g}), {held.how}"
        )
        yield from (f"  assumed, enforced by nobody: {one.what}" for one in held.assumptions if one.how == ASSUMED)
    elif not view.has_data:
        yield "  none: it has no data of its own"
    elif accountant is not None:
        yield f"  not bounded here: only the {accountant.role} adds noise, and sees what leaves as it is"
    else:
        yield "  not bounded: no noise is added, what leaves says of the data whatever it says"


def listed(names: list[str]) -> str:
    """Names, or how many.

    >>> listed(["server"]), listed(["a", "b", "c", "d"])
    ('server', 'a, b, c and 1 more')
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more or "nobody"
