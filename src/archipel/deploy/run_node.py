"""The life of one node as a process: its order, its errors as one sentence, its end.

`archipel-node federation.toml --name sensor-17` (or `python -m archipel.deploy.run_node ...`) is `archipel node` for a
device: it needs NumPy, Zenoh and cryptography, and nothing else.
"""

import argparse
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from archipel.deploy.store import Halted
from archipel.errors import BadInput, Diverged, Missing
from archipel.policy import policy_path
from archipel.privacy.journal import Damaged
from archipel.privacy.ledger import Overspent

UNANSWERED = "The goodbye was not answered for {:g} seconds. It is kept: run this again when the others can be reached."
NOTHING_LEARNED = "It took part in none of them: it has learned nothing."
EXPECTED = (BadInput, Missing, Halted, Diverged, Damaged, Overspent, OSError)


def live(order: dict[str, Any]) -> int:
    """Run the node that an order describes; returns the status of the process."""
    from archipel.deploy.node import open_node
    from archipel.federation import Federation

    lines_of(order)
    stopped: list[int] = []
    parent = os.getppid() if order.get("orphans") == "end" else None
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    signal.signal(signal.SIGINT, lambda number, frame: stopped.append(number))
    try:
        federation = Federation.load(order["description"], **order.get("changes", {}))
        deploy = type(federation.deploy)(**{**vars(federation.deploy), **order.get("deploy", {})})
        federation = federation.with_(deploy=deploy)
        folder = Path(order["folder"]) if order.get("folder") else None
        addresses = {**deploy.addresses, **order.get("addresses", {})}
        described = Path(order["description"])
        policy = policy_path(order.get("policy"), described) if order.get("rules", True) else None
        linger = order.get("linger", 1.0)
        node = open_node(
            federation, order["name"], described.parent, folder, addresses, linger, policy, order.get("leaves", False)
        )
    except EXPECTED as problem:
        return last_words(order["name"], problem, 2)
    shown: list[Any] = []
    try:
        if order.get("metrics"):
            from archipel.deploy.metrics import Metrics

            shown.append(Metrics(order["metrics"], node))
        if order.get("page"):
            from archipel.deploy.machine import Machine
            from archipel.report.live import Live

            shown.append(Live(Machine(node), order["page"]))
            print(f"Live: {shown[-1].address}", file=sys.stderr)
        node.run(lambda: bool(stopped) or (parent is not None and os.getppid() != parent))
    except EXPECTED as problem:
        return last_words(order["name"], problem, 1)
    finally:
        node.close()
        for server in shown:
            server.close()
    if node.player.gone:
        if any(other.letters for other in node.office.neighbours.values()):
            return last_words(order["name"], Halted(UNANSWERED.format(deploy.patience)), 1)
        print(f"{order['name']} has left.")
        return 0
    if not node.player.finished:
        return 130
    print(ending(node))
    return 0


def ending(node: Any) -> str:
    """That all rounds are over, and where what was learned is: nothing, where it came too late for all of them."""
    from archipel.deploy.learned import MODEL

    disk = node.world.disk
    model = f"Its model: {Path(disk.path) / MODEL if disk else ''}" if node.player.learned else NOTHING_LEARNED
    return f"{node.view.member.name}: all {node.view.rounds:,} rounds are over. {model}"


class Lines(logging.Formatter):
    """A JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        said = {"time": record.created, "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(said)


def lines_of(order: dict[str, Any]) -> None:
    """Where what happens is said, a line each: on standard error. In a fleet only what went wrong is."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines() if order.get("log") == "json" else logging.Formatter("%(asctime)s %(message)s"))
    logging.root.handlers[:] = [handler]
    logging.root.setLevel({None: logging.WARNING, 0: logging.INFO}.get(order.get("verbose"), logging.DEBUG))


def last_words(name: str, problem: Exception, status: int) -> int:
    """What went wrong, as one sentence; returns the status of the process: 2 if starting it again does not help."""
    if isinstance(problem, OSError):  # a checkpoint that fails says so itself; this is the ledger, a report, the data
        where = f" ({problem.filename})" if problem.filename else ""
        sentence = f"{name}: {problem.strerror or problem}{where}. Its last checkpoint is whole; start it again."
    else:
        sentence = str(problem)
    if isinstance(logging.root.handlers[0].formatter, Lines):
        logging.critical(" ".join(sentence.split()))
    else:
        print(" ".join(sentence.split()), file=sys.stderr)
    if isinstance(problem, BadInput | Missing | Overspent):
        return 2
    disk_failed = isinstance(problem, OSError) or isinstance(problem.__cause__, OSError)
    return 1 if disk_failed else status


def order_of(arguments: list[str] | None = None) -> dict[str, Any]:
    """The order that a command line gives."""
    options = argparse.ArgumentParser("archipel-node", description="Run one node of a federation, on a device.")
    options.add_argument("federation", help="a federation, described in TOML")
    options.add_argument("--name", required=True, help="which node to run, such as sensor-17")
    options.add_argument("--state", help="folder for what the node must remember")
    options.add_argument("--keys", help="folder with its key and certificate")
    options.add_argument("--data", help="folder of its own data, or what its samples come from")
    options.add_argument("--policy", help="the site's rules; else policy.toml beside the description, if there is one")
    options.add_argument("--log", choices=("text", "json"), default="text", help="how lines are written")
    options.add_argument("--metrics", help="serve /metrics and /health at this host:port")
    options.add_argument(
        "--page", help="serve a live page at this port of loopback (0: any), or at host:port by a token"
    )
    options.add_argument("-v", "--verbose", action="count", default=0, help="more lines")
    given = options.parse_args(arguments)
    order: dict[str, Any] = {"name": given.name, "description": given.federation, "linger": 5.0, "deploy": {}}
    order |= {"policy": given.policy, "log": given.log, "metrics": given.metrics, "page": given.page}
    order |= {"verbose": given.verbose}
    if given.keys:
        order["deploy"]["keys"] = str(Path(given.keys).resolve())
    if given.data:
        order["deploy"]["data"] = resolved(given.data)
    if given.state:
        order["folder"] = given.state
    return order


def resolved(data: str) -> str:
    """A path as it is meant from here; what is none, a topic for instance, as it is."""
    return str(Path(data).resolve()) if Path(data).exists() else data


def main() -> None:
    """The command `archipel-node`."""
    sys.exit(live(order_of()))


if __name__ == "__main__":
    main()
