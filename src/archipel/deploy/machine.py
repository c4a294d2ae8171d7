"""The page of a node while it runs: how far it is, what it sent and paid, who it hears; at a server, all machines."""

from typing import Any

from archipel.report import cards_of, moment, size, status_page

COLUMNS = ("node", "is", "last heard", "round", "bytes from it", "letters waiting", "bytes waiting")
TOLD = ("updates", "rows skipped", "paid (rho)")  # where the description asks for it and its policy lets it leave


class Machine:
    """A node, as `live.Live` shows it: from the last status that it made."""

    def __init__(self, node: Any):
        self.node = node

    def stamp(self) -> Any:
        status = self.node.latest
        return (status["round"], status["heard"], status["bytes"]) if status else None

    def page(self) -> str:
        return status_page(self.node.latest["name"], self.news(""))

    def news(self, since: str) -> dict[str, Any]:
        status = self.node.latest
        found = [
            ("Round", f"{status['round']:,}", f"of {status['rounds']:,}"),
            ("Heard", f"{status['heard']:,}", f"of {len(status['neighbours']):,} that it talks to"),
            ("Sent", size(status["traffic"].get("bytes out", 0)), ""),
            ("Received", size(status["traffic"].get("bytes in", 0)), ""),
            ("Refused", f"{sum(status['faults'].values()):,}", "messages that do not fit, repeat or come too late"),
        ]
        if status["paid"] is not None:
            found.append(("Privacy paid", f"{status['paid']:.4g}", "in zCDP (rho)"))
        if status["held back"]:
            found.append(("Held back", f"{status['held back']:,}", "messages, by the policy of this site"))
        rows = [row_of(name, near) for name, near in status["neighbours"].items()]
        done = status["round"] >= status["rounds"]
        lead = f"Round {status['round']:,} of {status['rounds']:,}" + (": done." if done else ".")
        return {
            "charts": [],
            "lead": lead,
            "cards": cards_of(found),
            "clients": {"columns": (*COLUMNS, *TOLD), "rows": rows},
        }


def row_of(name: str, near: dict[str, Any]) -> list[Any]:
    """A neighbour in the table: what this node knows of it, and what it told."""
    state = "gone for good" if near["left"] else "heard" if near["heard"] else "not heard"
    known = [name, state, moment(near["seen"]), near["round"], near["bytes"], near["waiting"], near["outbox"]]
    return [*known, near.get("updates"), near.get("skipped"), near.get("paid")]
