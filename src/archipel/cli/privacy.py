"""The commands about privacy: what a federation will have cost, and whether it keeps what it promises."""

import json
import re
from typing import Annotated, Any

import typer
from rich.table import Table

from archipel.cli.screen import Description, Json, Name, loaded, say, screen, show_wide, site_named

LISTED = 100  # clients that get a row each; more are put together where their numbers are the same
WIDE = 110  # columns that the tables need
ASSUMED = r" (is|are) known to all, not taken from these data"  # what a guarantee assumes of what was taken from them


def privacy(federation: Description, as_json: Json = False, name: Name = "") -> None:
    """Say what each client will have paid at most when all rounds are over, before anything runs.

    In zCDP and in (epsilon, delta), for which unit and neighbouring relation, and whether it is enforced or assumed;
    and what of the data is known without noise.

    Example: archipel privacy examples/zcdp-nfl.toml
    """
    described = loaded(federation)
    site = site_named(described, name, federation.parent) if name else None
    instance = described.instance(setup=described.setup(site=site))
    public = known(instance, described.problem.takes_clients and not described.named)
    if instance.plan.accountant is None and not as_json:
        screen.print("No [privacy] table: nothing is protected, nothing is counted.")
        say(*public_lines(public))
        return
    counted = instance.plan.accountant is not None
    outlook = instance.plan.accountant.outlook() if counted else {}
    outlook |= {"protected": protected(instance, described.rounds)} if counted else {}
    outlook |= {"public": public}
    if name:
        outlook["nodes"] = [node for node in outlook.get("nodes", ()) if node["node"] == name]
    if as_json:
        print(json.dumps(outlook, indent=1))
        return
    say(*public_lines(public), *preamble(outlook, described.rounds))
    show_wide(table_of(outlook), WIDE)


def audit(
    federation: Description,
    releases: Annotated[int, typer.Option(min=1000, help="Runs on each of two neighbouring data sets.")] = 200_000,
    rounds: Annotated[int, typer.Option(min=0, help="Rounds of the twin; 0: as many as it has, at most 12.")] = 0,
    one_run: Annotated[bool, typer.Option("--one-run", help="Run the federation itself, once, with canaries.")] = False,
    canaries: Annotated[int, typer.Option(min=50, help="Canaries of an audit in one run.")] = 1000,
    as_json: Json = False,
) -> None:
    """Try to catch a federation breaking its promise: run a small twin of it many times on neighbouring data sets.

    Prints lower bounds on epsilon that hold with 99.9 % confidence (at 95 %, one audit of twenty would accuse an honest
    federation), for the worst case, for a typical pair and, where clients may be away or late, for the worst case in
    that environment. Ends with status 1 where an enforced guarantee is exceeded.

    With --one-run no twin is run but the federation itself, once, all its rounds: canaries are put among its data, each
    by the toss of a coin, and the tosses are guessed from what is released.

    Example: archipel audit examples/zcdp-nfl.toml
    """
    from archipel.auditing.canaries import examine_once
    from archipel.auditing.twins import ROUNDS, examine
    from archipel.progress import progress_bar

    described = loaded(federation)
    with progress_bar("audit") as update:
        if one_run:
            verdicts = [examine_once(described, canaries, note=lambda n: update(n, described.rounds, ""))]
        else:
            verdicts = examine(described, releases, rounds, progress=update)
    if as_json:
        print(json.dumps([verdict._asdict() | {"refuted": verdict.refuted} for verdict in verdicts], indent=1))
    else:
        played = rounds or min(described.rounds, ROUNDS)
        twin = f"{verdicts[0].releases:,} runs of {played} rounds on each of two neighbouring data sets"
        show(verdicts, f"One run of {described.rounds} rounds, {canaries:,} canaries" if one_run else twin)
    if any(verdict.refuted and verdict.guarantee == "enforced" for verdict in verdicts):
        raise typer.Exit(1)


def show(verdicts: list[Any], about: str) -> None:
    """What was claimed and what was found."""
    first = verdicts[0]
    screen.print(f"{about}; bounds hold with {first.confidence:.1%} confidence.", highlight=False)
    grid = Table("data sets", f"ledger: epsilon at {first.delta:g}", "found: at least", "guarantee", "verdict", "test")
    for v in verdicts:
        said = {(True, "enforced"): "BROKEN", (True, "assumed"): "not kept: the assumption is false"}
        grid.add_row(
            v.pair,
            f"{v.claimed:.4g}",
            f"{v.found:.4g}",
            v.guarantee,
            said.get((v.refuted, v.guarantee), "nothing found against it"),
            v.test,
        )
    show_wide(grid, WIDE)


def known(instance: Any, readable: bool) -> dict[str, list[str]]:
    """What is known of clients' data without noise: what the description declares, what is taken from everyone's data
    to set things up, and what messages say beside the model.
    """
    from archipel.node import named_leaves

    task = instance.task
    taken = [re.sub(ASSUMED, "", what) for what in task.assumed_public]
    if readable:
        taken.append("all of it is read on every machine that runs a node; a table [clients] keeps data apart")
    words = [name for turn in instance.plan.turns for name, _ in named_leaves(turn.word)]
    said = ["how many samples stand behind it"] if any(name.endswith("samples") for name in words) else []
    return {"declared": list(task.declared), "taken from everyone's data": taken, "said in every message": said}


def public_lines(public: dict[str, list[str]]) -> list[str]:
    """The same in sentences."""
    return [f"Without noise, {how}: {'; '.join(what)}." for how, what in public.items() if what]


def preamble(outlook: dict[str, Any], rounds: int) -> list[str]:
    """What the numbers of the table are about."""
    terms = outlook if "unit" in outlook else outlook["nodes"][0]
    change = "replaced by another" if terms["relation"] == "replace-one" else "added or removed"
    lines = [
        f"After {rounds} rounds at most, if a client takes part in all of them.",
        f"Protected: one {terms['unit']}, {change} ({terms['relation']}). Guarantee: {terms['guarantee']}.",
    ]
    lines += [f"  {held['how']}: {held['what']}" for held in terms["assumptions"]]
    for name, level in outlook.get("levels", {}).items():
        shown = "infinite" if level["epsilon"] is None else f"{level['epsilon']:.4g} at delta = {level['delta']:g}"
        lines.append(f"At {name} level ({level['unit']}): epsilon at most {shown}.")
    if terms["guarantee"] == "assumed":
        lines.append("What is assumed is no guarantee: where it is false, the numbers below promise nothing.")
    return lines + about_delta(outlook["delta"], outlook["protected"], terms["unit"])


def protected(instance: Any, rounds: int) -> dict[str, int]:
    """How many of each unit there are: clients, and their samples, of streams one per round at most."""
    starts = getattr(instance.task.source, "starts", None)
    samples = instance.task.clients * rounds if starts is None else int(starts[-1])
    return {"client": instance.task.clients, "sample": samples}


def about_delta(delta: float, count: dict[str, int], unit: str) -> list[str]:
    """delta against the number of those who are protected: whoever publishes one of n at random has delta = 1 / n."""
    many = f"{count[unit]:,} {unit}s"
    if delta * count[unit] < 1:
        return [f"delta = {delta:g} is below one in {many}."]
    return [
        f"delta = {delta:g} is too large for {many}: publishing one of them whole would keep to it. "
        f"Choose one well below {1 / count[unit]:.1g}."
    ]


def table_of(outlook: dict[str, Any]) -> Table:
    """A row a client, or a row for all whose numbers are the same."""
    rows: dict[tuple[str, ...], list[str]] = {}
    together = len(outlook["nodes"]) > LISTED
    for node in outlook["nodes"]:
        cells = (*numbers_of(node), node.get("guarantee", outlook.get("guarantee", "")))
        names = rows.setdefault(cells if together else (*cells, node["node"]), [])
        names += [node["node"]] * node.get("clients", 1)
    grid = Table("client", "budget", "releases", "zCDP", f"epsilon at {outlook['delta']:g}", "how", "guarantee")
    for column in grid.columns:  # no number is cut off: names and sentences take further lines instead
        column.no_wrap = column.header not in ("client", "how")
        column.overflow = "fold"
    for cells, names in list(rows.items())[:LISTED]:
        who = names[0] if len(names) == 1 else f"{len(names):,} clients such as {names[0]}"
        grid.add_row(who, *cells[:6])
    if len(rows) > LISTED:
        grid.add_row(f"... and {len(rows) - LISTED} rows more: --json has all", *[""] * 6)
    return grid


def numbers_of(node: dict[str, Any]) -> tuple[str, ...]:
    """A client's numbers, as they are printed."""
    from archipel.report.page import shown_number

    spent, limit = node["spent"], {key: value for key, value in (node["budget"] or {}).items() if key != "delta"}
    how, releases = spent["method"].split(":")[0], str(node["releases"])
    budget = " ".join(f"{key} {value:.4g}" for key, value in limit.items()) or "none"
    return budget, releases, shown_number(spent["rho"]), shown_number(spent["epsilon"]), how


COMMANDS: dict[str, Any] = {"privacy": privacy, "audit": audit}
