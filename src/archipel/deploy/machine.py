"""The page of a node while it runs: how far it is, what it sent and paid, who it hears; at a server, all machines."""

from typing import Any

from archipel.report import cards_of, moment, size, status_page

COLUMNS = ("node", "heard", "last heard", "round", "paid (rho)")


class Machine:
    """A node, as `live.Live` shows it: from the last status that it made."""

    def __init__(self, node: Any):
        self.node = node

    def stamp(self) -> Any:
        status = self.node.latest
        return (status["round"], status["heard"], status["bytes"]) if status else None

    def page(self) -> str:
        return status_page(self.node.latest["name"], self.news())

    def news(self) -> dict[str, Any]:
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
        rows = [
            [name, "yes" if near["heard"] else "no", moment(near["seen"]), near["round"], near.get("paid")]
            for name, near in status["neighbours"].items()
        ]
        done = status["round"] >= status["rounds"]
        lead = f"Round {status['round']:,} of {status['rounds']:,}" + (": done." if done else ".")
        return {"charts": [], "lead": lead, "cards": cards_of(found), "clients": {"columns": COLUMNS, "rows": rows}}
