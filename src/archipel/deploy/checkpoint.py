"""All that a playing node is, as a record for a checkpoint, and back."""

from typing import Any

from archipel.deploy.player import Delayed, Player
from archipel.node import named_leaves

PLAIN = (
    "round",
    "at",
    "present",
    "asked_ahead",
    "kept",
    "was_there",
    "messages",
    "updates",
    "too_late",
    "gone",
    "changes",
)


def state_of(player: Player) -> dict[str, Any]:
    """The record of a player."""
    record: dict[str, Any] = {name: getattr(player, name) for name in PLAIN}
    record |= {
        "fresh": player.data is not None,
        "offered": list(player.offered),
        "delayed": [[d.due, d.turn, d.said, d.to] for d in player.delayed],
        "delayed words": [d.body for d in player.delayed],
        "charges": player.account.count(),
        "pace": player.pace.state(),
    }
    if player.named[0] is not player.me:
        player.named = player.me, {f"me.{name}": array for name, array in named_leaves(player.me) if array.size}
    record |= player.named[1]
    parts = {"post": player.office.state(), "mailbox": player.mailbox.state()}
    if player.prelude is not None:
        parts["prelude"] = player.prelude.state()
    if player.source is not None:
        parts |= {"source": player.source.state(), "data": player.source.keep(player.data)}
    for prefix, part in parts.items():
        record |= {f"{prefix}.{name}": value for name, value in part.items()}
    return record


def restore(player: Player, record: dict[str, Any]) -> None:
    """Be what a record says."""
    parts: dict[str, dict[str, Any]] = {"me": {}, "post": {}, "mailbox": {}, "source": {}, "data": {}, "prelude": {}}
    for name, value in record.items():
        prefix, dot, rest = name.partition(".")
        if dot:
            parts[prefix][rest] = value
    if player.prelude is not None:
        player.prelude.restore(parts["prelude"])  # first: with units that are known the rest is made anew
    for name, array in named_leaves(player.me):
        if array.size:  # what has no place for anything is not kept
            array[...] = parts["me"][name]
    player.office.restore(parts["post"])
    player.mailbox.restore(parts["mailbox"])
    player.pace.restore(record["pace"])
    for name in PLAIN:
        setattr(player, name, record[name])
    player.offered = tuple(record["offered"])
    delayed = zip(record["delayed"], record["delayed words"])
    player.delayed = [Delayed(due, i, said, body, to) for (due, i, said, to), body in delayed]
    player.account.resume(record["charges"], player.me)
    if player.source is not None:
        player.source.restore(parts["source"])
        moment = player.view.moment(player.round, False)
        player.data = player.source.recall(parts["data"], moment) if record["fresh"] else None
