"""The life of one node as a process: its order, its errors as one sentence, its end."""

import logging
import signal
import sys
from pathlib import Path
from typing import Any

from archipel.deploy.store import Halted
from archipel.errors import BadInput, Diverged, Missing

FOREVER = float("inf")


def live(order: dict[str, Any]) -> int:
    """Run the node that an order describes; returns the status of the process."""
    from archipel.deploy.node import open_node
    from archipel.federation import Federation

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING, stream=sys.stderr)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    signal.signal(signal.SIGINT, lambda number, frame: stopped.append(number))
    try:
        federation = Federation.load(order["description"], **order.get("changes", {}))
        deploy = type(federation.deploy)(**{**vars(federation.deploy), **order.get("deploy", {})})
        federation = federation.with_(deploy=deploy)
        folder = Path(order["folder"]) if order.get("folder") else None
        addresses = {**deploy.addresses, **order.get("addresses", {})}
        node = open_node(federation, order["name"], Path(order["description"]).parent, folder, addresses)
    except (BadInput, Missing, Halted) as problem:
        print(problem, file=sys.stderr)
        return 2
    try:
        node.run(lambda: bool(stopped), order.get("linger", 1.0))
    except (Halted, Diverged) as problem:
        print(problem, file=sys.stderr)
        return 1
    except (BadInput, Missing) as problem:
        print(problem, file=sys.stderr)
        return 2
    finally:
        node.close()
    return 0 if node.player.finished or not stopped else 130
