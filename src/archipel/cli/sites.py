"""The commands of a site: approve, log and status."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from archipel.cli.screen import Description, Json, say, screen, show_wide
from archipel.errors import BadInput, spoken

WIDE = 120  # columns of what left


def approve(
    federation: Description,
    name: Annotated[str, typer.Option("--name", help="Which node this site would run; else the first with data.")] = "",
    policy: Annotated[
        Path | None, typer.Option("--policy", help="The site's rules; else policy.toml beside the description.")
    ] = None,
    data: Annotated[str, typer.Option("--data", help="As `archipel node` would be given it.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Show what would leave this site, to whom, how often and at what price; if you agree, write it into the policy.

    A description that is changed afterwards is another one: a node halts before anything leaves.

    Example: archipel approve federation.toml --name buoy-2
    """
    from archipel import policy as rules
    from archipel.deploy.approval import terms
    from archipel.deploy.permit import check_budget, permit
    from archipel.deploy.roster import roster_of
    from archipel.deploy.run_node import resolved
    from archipel.deploy.view import instance_at, view_of
    from archipel.federation import Federation

    described = Federation.load(federation)
    if data:
        described = described.with_(deploy=replace(described.deploy, data=resolved(data)))
    instance = instance_at(described, name, federation.parent)
    view = view_of(described, name or roster_of(instance).names[instance.data_role][0], instance)
    path = policy or federation.parent / rules.NAME
    known = rules.read_policy(path) if path.is_file() else rules.Policy()
    approval = rules.approval_of(described, view.digest)
    say(*terms(described, view), *paid_so_far(path, known), f"This description: {approval}")
    if not path.is_file():
        say(f"There are no rules yet ({path}): of what is named above, only models may leave.")
    permit(rules.Policy(**{**vars(known), "approved": (approval,)}), described, view)  # refuses what the rules forbid
    check_budget(known, view)
    if approval in known.approved:
        say(f"Approved already: {path}")
        return
    if not yes:
        typer.confirm("Let it leave?", abort=True)
    rules.approve(path, approval)
    say(f"Approved: {path}")


def log(
    folder: Annotated[Path, typer.Argument(help="The folder of the site's policy.")] = Path("."), as_json: Json = False
) -> None:
    """Show what left this site: when, to whom, what, of which rounds, how many bytes, and what was paid for it.

    Example: archipel log .
    """
    from archipel.deploy.left import read
    from archipel.policy import NAME, Policy, read_policy

    rows = []
    for path in sorted(site_of(folder).glob("*.left")):
        node, _, approval = path.stem.rpartition("-")
        entries = [entry for entry in read(path.read_bytes()) if "to" in entry]
        rows += [{"node": node, "federation": approval} | entry for entry in entries]
    rows.sort(key=lambda row: row["first"])
    paid = charges_of(site_of(folder))
    if as_json:
        print(json.dumps({"left": rows, "paid": paid}, indent=1))
        return
    grid = Table("from", "until (UTC)", "node", "description", "to", "what", "rounds", "messages", "bytes")
    for row in rows:
        low, high = row["rounds"]
        cells = [moment(row["first"]), moment(row["last"]), row["node"], row["federation"][:8], row["to"], row["what"]]
        grid.add_row(*cells, f"{low}-{high}", f"{row['frames']:,}", f"{row['bytes']:,}")
    show_wide(grid if rows else "Nothing has left under a policy of this folder.", WIDE)
    known = read_policy(folder / NAME) if (folder / NAME).is_file() else Policy()
    say(*paid_so_far(folder / NAME, known))


def site_of(folder: Path) -> Path:
    """Where a site keeps its ledger and its logs."""
    if not folder.is_dir():
        raise BadInput("folder", str(folder), "the folder of a site's policy.toml")
    return folder / "site" if (folder / "site").is_dir() else folder


def entries_of(site: Path) -> list[dict[str, Any]]:
    """All charges of a site's ledger."""
    from archipel.privacy.journal import parse

    path = site / "ledger.journal"
    entries = parse(path.read_bytes(), path)[0] if path.is_file() else []
    return [entry for entry in entries if "release" in entry]


def charges_of(site: Path) -> list[dict[str, Any]]:
    """What each node of each federation has paid at a site."""
    from archipel.privacy.releases import from_json, rho_of

    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for entry in entries_of(site):
        about = {key: entry[key] for key in ("node", "federation", "unit", "relation")}
        fresh = about | {"rounds": [entry["round"]] * 2, "releases": 0, "rho": 0.0}
        row = found.setdefault(tuple(about.values()), fresh)
        low, high = row["rounds"]
        row["rounds"] = [min(low, entry.get("from", entry["round"])), max(high, entry["round"])]
        row["releases"] += entry["times"]
        row["rho"] += rho_of(from_json(entry["release"])) * entry["times"]
    return list(found.values())


def paid_so_far(path: Path, policy: Any) -> list[str]:
    """What was paid at a site, by whom and together, and what its policy lets it pay."""
    from archipel.privacy.accounting import merged
    from archipel.privacy.releases import from_json

    lines, limits, site = [], policy.privacy, site_of(path.parent)
    for row in charges_of(site):
        low, high = row["rounds"]
        lines.append(
            f"Paid by {row['node']} in {row['federation'][:8]}, for a {row['unit']} ({row['relation']}), rounds "
            f"{low} to {high}: {row['releases']:,} releases, zCDP {spoken(row['rho'])}."
        )
    together: dict[tuple[str, str], list[tuple[Any, int]]] = {}
    for entry in entries_of(site):
        kind = entry["unit"], entry["relation"]
        together.setdefault(kind, []).append((from_json(entry["release"]), entry["times"]))
    for (unit, relation), releases in together.items():
        paid = merged(releases)
        epsilon = paid.epsilon(limits.delta).epsilon
        lines.append(
            f"Together, for a {unit} ({relation}): epsilon {spoken(epsilon)} at delta = {limits.delta:g}, "
            f"zCDP {spoken(paid.rho())}."
        )
    if limits.key:
        at = f" at delta = {limits.delta:g}" if limits.epsilon is not None else ""
        lines.append(f"The most that this site will ever pay: {limits.key} = {limits.value:g}{at}.")
    return lines


def status(
    folder: Annotated[Path, typer.Argument(help="A node's state, or the folder of several.")] = Path("state"),
    as_json: Json = False,
) -> None:
    """Show how a node and its neighbours are doing: the round each has reached, when it was last heard, what it paid.

    At the server that is every machine. What a neighbour paid and skipped is known where the description asks for it
    (`deploy.status`) and the neighbour's policy lets it leave.

    Example: archipel status state/server
    """
    from archipel.deploy.real import read_status

    places = [folder] if (folder / "status.json").is_file() else sorted(p for p in folder.glob("*") if p.is_dir())
    found = [status for status in map(read_status, places) if status]
    if not found:
        raise BadInput("folder", str(folder), "the state of a node that runs or ran, such as state/server")
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for one in found:
        title = f"{one['name']}: round {one['round']} of {one['rounds']}, {moment(one['time'])} UTC"
        grid = Table(
            "node", "round", "last heard (UTC)", "bytes", "paid (zCDP)", "rows skipped", "letters waiting", title=title
        )
        grid.add_row(one["name"], *cells(one, "", one["bytes"]))
        for name, other in one["neighbours"].items():
            heard = "has left" if other["left"] else moment(other["seen"]) if other["seen"] else "never"
            grid.add_row(name, *cells(other, heard, other["bytes"]))
        screen.print(grid)


def cells(known: dict[str, Any], heard: str, size: int) -> list[str]:
    paid, skipped = known.get("paid"), known.get("skipped")
    shown = "" if paid is None else spoken(paid)
    waiting = str(known.get("waiting", ""))
    return [str(known["round"]), heard, f"{size:,}", shown, "" if skipped is None else str(skipped), waiting]


def moment(seconds: float) -> str:
    """A moment, for a person.

    >>> moment(0)
    '1970-01-01 00:00:00'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


COMMANDS: dict[str, Any] = {"approve": approve, "log": log, "status": status}
