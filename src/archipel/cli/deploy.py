"""The commands of a deployment: up, node, keys and torture."""

import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from archipel.cli.screen import Description, Page, Rounds, end, errors, finish, loaded, say, show, warn
from archipel.errors import BadInput, Missing

LONGEST = 36_500  # days that a certificate may be good

Rules = Annotated[
    Path | None,
    typer.Option("--policy", help="The site's rules; else policy.toml beside the description, if there is one."),
]


def up(
    federation: Description,
    out: Annotated[Path, typer.Option("--out", help="Folder for the results and the nodes' states.")] = Path("results"),
    rounds: Rounds = 0,
    replay: Annotated[
        bool, typer.Option("--replay", help="Play the conditions of the simulation, step by step: the same model.")
    ] = False,
    chaos: Annotated[int | None, typer.Option(help="Kill, pause and cut nodes, as this seed chooses.")] = None,
    page: Page = "",
) -> None:
    """Run a federation on this machine for real: a process a node, over mutual TLS on loopback.

    Ends with the files of `archipel run` but checkpoint.npz, and wire.json: what crossed the network. Run it again to
    go on where it was stopped.

    Example: archipel up examples/flagship/pao-fed-c2.toml --replay --out results
    """
    from rich.live import Live

    from archipel.deploy.chaos import Chaos
    from archipel.deploy.fleet import Fleet
    from archipel.deploy.store import Halted
    from archipel.deploy.watch import Fleeting, Watch
    from archipel.report import summary
    from archipel.report.live import Live as Served
    from archipel.results import ready

    posix_only("up")
    described = loaded(federation, rounds)
    ready(out, description=federation)
    pace = {"pace": "replay"} if replay else {}
    fleet = Fleet(federation, described, out, chaos is not None, **pace)
    say_names(fleet.instance)
    harm = None if chaos is None else Chaos(chaos)
    watch = Watch(fleet, harm)
    served = Served(Fleeting(fleet, federation.stem), page) if page else None
    if served:
        warn(f"Live: {served.address}")
    try:
        with Live(console=errors, refresh_per_second=4, transient=True) as live:

            def look(fleet: Any, statuses: dict[str, Any]) -> None:
                live.update(watch.table(statuses))
                if harm:
                    harm.look(fleet, statuses)

            result: Any = fleet.run(look)
    except Halted as problem:
        end(str(problem), problem.status)
    finally:
        if served:
            served.close()
    saving = {"bytes on the wire": f"{result.wire['bytes']:,}", "true saving": f"{100 * result.wire['saving']:.1f} %"}
    show({federation.stem: summary(result) | saving})
    say(f"Model: {out / 'model.npz'}")
    finish(out / "report.html", result.interrupted, "; run it again to go on")


def node(
    federation: Description,
    name: Annotated[str, typer.Option("--name", help="Which node to run, such as sensor-17.")],
    state: Annotated[Path | None, typer.Option(help="Folder for what the node must remember.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder with its key and certificate.")] = None,
    data: Annotated[str, typer.Option(help="Folder of its own data, or what its samples come from.")] = "",
    policy: Rules = None,
    log: Annotated[str, typer.Option(help="How lines are written: text or json.")] = "text",
    metrics: Annotated[
        str, typer.Option(help="Serve /metrics (Prometheus) and /health here, such as 127.0.0.1:9464.")
    ] = "",
    page: Page = "",
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="More lines.")] = 0,
) -> None:
    """Run one node of a federation, on a device.

    It needs authority.pem, NAME.pem and NAME.key in the keys folder. Killed at any point, it goes on where it was.
    `archipel-node` does the same with a smaller install.

    Example: archipel node federation.toml --name sensor-17
    """
    from archipel.deploy.run_node import resolved

    deploy = {"data": resolved(data)} if data else {}
    if log not in ("text", "json"):
        raise BadInput("--log", log, '"text" or "json"')
    further = {"policy": policy and str(policy), "log": log, "metrics": metrics, "page": page, "verbose": verbose}
    run_one(federation, name, state, keys, deploy, **further)


def run_one(
    federation: Path, name: str, state: Path | None, keys: Path | None, deploy: dict[str, Any], **further: Any
) -> None:
    """A node, as this process."""
    posix_only("node")
    from archipel.deploy.run_node import live

    deploy |= {"keys": str(keys.resolve())} if keys else {}
    order = {"name": name, "description": str(federation), "deploy": deploy, "linger": 5.0, **further}
    status = live(order | ({"folder": str(state)} if state else {}))
    if status:
        raise typer.Exit(status)


def leave(
    federation: Description,
    name: Annotated[str, typer.Option("--name", help="Which node leaves, such as sensor-17.")],
    state: Annotated[Path | None, typer.Option(help="Folder of what the node remembers.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder with its key and certificate.")] = None,
    policy: Rules = None,
) -> None:
    """Leave a federation for good. Stop the node first; then this says goodbye to its neighbours and waits for answers.

    Nobody waits for it from then on, and nothing is kept for it. What it said before counts. If a server leaves, the
    run is over for its clients.

    Example: archipel leave federation.toml --name sensor-17
    """
    run_one(federation, name, state, keys, {}, leaves=True, policy=policy and str(policy))


def make_keys(
    federation: Description,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for them, instead of the description's.")] = None,
    days: Annotated[int, typer.Option(min=1, max=LONGEST, help="How long certificates are good.")] = 365,
    sites: Annotated[
        Path | None, typer.Option("--sites", help="Also put what each client needs into a folder of its name here.")
    ] = None,
    revoke: Annotated[str, typer.Option(help="A node that nobody is to listen to any more.")] = "",
    renew: Annotated[str, typer.Option(help="A node that gets a new key and certificate in place of its own.")] = "",
) -> None:
    """Make an authority for a federation and a certificate for each of its nodes; what is there stays.

    Give every device authority.pem and its own NAME.pem and NAME.key, and nobody authority.key. With --sites there is
    a folder for each client, with that and the description, to be handed over.

    Example: archipel keys federation.toml
    """
    from archipel.deploy import keys
    from archipel.deploy.roster import roster_of
    from archipel.deploy.view import instance_at
    from archipel.results import ready

    described = loaded(federation)
    folder = out or federation.parent / described.deploy.keys
    instance = instance_at(described, "", federation.parent)
    roster = roster_of(instance)
    say_names(instance)
    addresses, hosts = described.deploy.addresses, dict[str, list[str]]()
    for member in roster.members:
        roster.calls(member.name, addresses)  # refuses edges without an address
        address = addresses.get(member.name)
        hosts[member.name] = [address.rpartition(":")[0].strip("[]")] if address else []
    ready(folder, "--out" if out else "deploy.keys")
    if revoke:
        roster.member(revoke)
        keys.revoke(folder, revoke)
        where = f"{revoke} is revoked: copy {folder / keys.REVOKED} to those who listen to it"
        say(f"{where}; they need no restart.")
        return
    if renew:
        roster.member(renew)
        keys.renew(folder, renew, hosts[renew], days)
        say(f"{renew} has a new certificate: copy it and restart {renew}.")
        return
    made = keys.make(folder, hosts, days)
    say(f"{len(made)} certificates made, {len(hosts) - len(made)} were there: {folder}")
    for member in roster.members:
        if sites is not None and member.role != "server":
            hand_over(sites / member.name, federation, folder, member.name, described.deploy.keys)


def say_names(instance: Any) -> None:
    """Say which names of clients cannot be those of nodes, before anything bears others."""
    from archipel.clients import renamed

    if said := renamed(instance.graph.names or instance.task.names):
        warn(said)


def hand_over(site: Path, description: Path, keys: Path, name: str, inside: str) -> None:
    """A folder for a client: the description, the files that it names, and the client's own key and certificate."""
    from archipel.describe import PATHS, read_toml, rewrite
    from archipel.federation import OWN

    if Path(inside).is_absolute():
        raise BadInput("deploy.keys", inside, "a path from the folder of the description, as each site has its own")
    copies = {Path(inside) / file: keys / file for file in ("authority.pem", f"{name}.pem", f"{name}.key")}
    copies[Path(description.name)] = description

    def take(given: str) -> str:
        path = Path(given.partition(":")[0]).expanduser()
        if not path.is_absolute() and (description.parent / path).is_file():
            copies[path] = description.parent / path
        return given

    table = read_toml(description)
    for where in PATHS:
        if where not in OWN:
            rewrite(table, where, take)
    for path, source in copies.items():
        there = site / path
        there.parent.mkdir(parents=True, exist_ok=True)
        if there.is_file() and source.parent != keys and there.read_bytes() != source.read_bytes():
            there.replace(there.with_name(f"{there.name}.before"))
            warn(f"{there} was there and was another one: it is {there.name}.before now.")
        shutil.copy(source, there)


def torture(
    federation: Annotated[
        Path | None, typer.Argument(help="A federation; without one, small ones of all kinds.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to play.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Play this one again, by itself.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="With --seed: print all that happens.")] = False,
    rounds: Rounds = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one a processor.")] = 0,
    story: Annotated[str, typer.Option(help="Tell a story instead: hospital, eight sites that train a network.")] = "",
    weights: Annotated[int, typer.Option(min=100, help="With --story: weights of the network.")] = 200_000,
    real: Annotated[
        bool, typer.Option("--real", help="With --story: four sites as real processes, over mutual TLS on loopback.")
    ] = False,
) -> None:
    """Play the deployment of a federation in one process, under a clock of its own, through faults that a seed chooses.

    Crashes, torn writes, full disks, cut links, late and repeated messages, clocks that are set: after everything that
    happens, all that is promised is checked. Prints the figures, or a seed and a short history that breaks something.

    Example: archipel torture examples/zcdp-nfl.toml --seeds 20 --rounds 20
    """
    from rich.progress import Progress

    if trace and seed is None:
        raise BadInput("--trace", True, "--seed beside it: the history of one seed is printed")
    if real and not story:
        raise BadInput("--real", True, '"--story hospital" beside it')
    if story:
        if story != "hospital":
            raise BadInput("--story", story, '"hospital"')
        say(*(f"{what:<42}{value}" for what, value in told(weights, rounds, real)))
        return
    from archipel.deploy.torture.many import torture as play_all
    from archipel.deploy.torture.run import play

    given = None if federation is None else loaded(federation, rounds)
    if seed is not None:
        outcome = play(seed, given, trace=trace)
        say(*outcome.trace, f"{outcome}\nhistory {outcome.hash}")
        if outcome.wrong:
            explain(outcome, given)
        return
    with Progress(console=errors, transient=True) as progress:
        bar = progress.add_task("seeds", total=seeds)
        figures = play_all(
            range(first, first + seeds), given, jobs, lambda found: progress.update(bar, completed=found.seeds)
        )
    say(*(f"{what:<42}{value}" for what, value in figures.rows()))
    if figures.wrong:
        explain(figures.wrong[0], given)
    if figures.interrupted:
        end("Stopped. This is what was played so far.", 130)


def told(weights: int, rounds: int, real: bool) -> list[tuple[str, str]]:
    """The figures of the hospital's story."""
    from tempfile import TemporaryDirectory

    if real:
        from archipel.deploy import hospital

        with TemporaryDirectory() as folder:
            calm, story = (
                hospital.tell(Path(folder) / f"{n}", weights, rounds or hospital.ROUNDS, calm=n == 0) for n in (0, 1)
            )
        return story.rows(calm)
    from archipel.deploy.torture import story as simulated

    begun = time.monotonic()
    rows = simulated.tell(simulated.hospital(weights, rounds or simulated.ROUNDS)).rows()
    return [*rows, ("real time", f"{(time.monotonic() - begun) / 60:.1f} minutes"), *peak_memory()]


def posix_only(command: str) -> None:
    """Processes are forked, and files that two must not write are locked: not so on Windows."""
    if sys.platform == "win32":
        here = "here `archipel run` simulates the same description"
        raise Missing(f"`archipel {command}` needs Linux, macOS or Windows' subsystem for Linux; {here}.")


def peak_memory() -> list[tuple[str, str]]:
    """What this process has needed at most, where the system says so."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:
        return []
    unit = 1 if sys.platform == "darwin" else 1024  # of what the system counts in
    return [("memory at most", f"{getrusage(RUSAGE_SELF).ru_maxrss * unit / 1e9:.1f} GB, for all nodes together")]


def explain(outcome: Any, given: Any) -> NoReturn:
    """The shortest history that breaks the same promise, and how to see it again."""
    from archipel.deploy.torture.shrink import shrunk

    short = shrunk(outcome, given)
    errors.print(f"{short}\n{len(short.faults)} of its {len(outcome.faults)} faults are enough:", highlight=False)
    warn(*(f"    {fault}" for fault in short.faults), *(f"  {line}" for line in short.trace[-12:]))
    end(f"Play it again with --seed {outcome.seed} --trace.")


COMMANDS: dict[str, Any] = {"up": up, "node": node, "leave": leave, "keys": make_keys, "torture": torture}
