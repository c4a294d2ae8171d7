"""A process that starts nodes quickly: it has everything loaded, and forks.

It reads commands, one JSON object a line: a node to start. It writes events: started (with the process's id), ended
(with its status). When its input ends, whoever started it is gone: it ends all nodes and itself.
"""

import json
import os
import select
import signal
import sys
import traceback
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve until the input ends."""
    import archipel.deploy.node
    import archipel.federation  # noqa: F401
    from archipel.deploy.zenoh_link import zenoh

    zenoh()
    names: dict[int, str] = {}
    wake, signalled = os.pipe()
    os.set_blocking(signalled, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    waiting, commands = b"", sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([commands, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            reap(names)
        if commands in ready:
            read = os.read(commands, 1 << 16)
            if not read:
                break
            *lines, waiting = (waiting + read).split(b"\n")
            for order in map(json.loads, lines):
                load(order)
                start(order, names, (wake, signalled))
    for pid in names:
        os.kill(pid, signal.SIGKILL)
    with suppress(OSError):  # nobody may be there to hear of it
        reap(names, 0)


@lru_cache(maxsize=1)
def loaded(description: str) -> Any:
    """The description, read once, for what that loads; a node reads it itself, and says what is wrong with it."""
    from archipel.federation import Federation

    with suppress(Exception):
        return Federation.load(description)


def load(order: dict[str, Any]) -> None:
    """Load what the node will need: once here, rather than in each of many nodes."""
    federation = loaded(order["description"])
    if federation is None:
        return
    pace = order["deploy"].get("pace", federation.deploy.pace)
    if federation.privacy is not None and pace != "replay":
        with suppress(ImportError):
            import opendp.prelude  # noqa: F401
    with suppress(ImportError):
        from cryptography import x509  # noqa: F401


def start(order: dict[str, Any], names: dict[int, str], pipes: tuple[int, int]) -> None:
    """Fork a node."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status = 1
        try:
            for pipe in pipes:
                os.close(pipe)
            status = run_forked(order)
        except BaseException:
            traceback.print_exc()  # into the node's log: nobody else will
        finally:
            os._exit(status)
    names[pid] = order["name"]
    tell({"event": "started", "name": order["name"], "pid": pid})


def run_forked(order: dict[str, Any]) -> int:
    """The life of a forked node. What it prints goes into its own file."""
    folder = Path(order["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.nice(order.get("nice", 0))
    from archipel.deploy.run_node import live

    return live(order)


def reap(names: dict[int, str], options: int = os.WNOHANG) -> None:
    """Say which nodes have ended."""
    while names:
        pid, status = os.waitpid(-1, options)
        if pid == 0:
            return
        tell({"event": "ended", "name": names.pop(pid), "pid": pid, "status": os.waitstatus_to_exitcode(status)})


def tell(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
