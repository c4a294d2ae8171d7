"""How large a run will be, said before it begins: what does not fit is refused, what takes long is announced."""

import os
from typing import Any

from archipel.errors import BadInput
from archipel.problems.files import find
from archipel.problems.own import Files

LONG = 60.0  # seconds from which on a run is announced
UPDATES = 2e6  # of a client of 200 parameters in a second, on one core, roughly
ROUND = 2e-5  # seconds that a round takes whatever is in it


def memory() -> float:
    """The machine's memory in bytes; infinite where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def shape_of(federation: Any) -> tuple[float, float, float, float]:
    """Clients, parameters of a model, samples of a client and of the test, as far as the description says."""
    keys = vars(federation.problem)

    def given(*names: str) -> float:
        values = [keys.get(name, 0) for name in names]
        return max((float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)), default=0.0)

    return max(given("clients"), 1.0), max(given("features", "size"), 1.0), given("samples"), given("test")


def clients_of(federation: Any) -> float:
    """How many clients there are: those that have names, files or a number."""
    problem, people = federation.problem, federation.clients.people()
    if people is not None:
        return float(len(people.names))
    if not isinstance(problem, Files) or problem.split.kind == "column":
        return shape_of(federation)[0]
    return float(len(find(problem.data)) if problem.split.kind == "none" else problem.split.clients)


def check_size(federation: Any) -> None:
    """Refuse what this machine cannot hold, before anything is made."""
    (clients, size, samples, tested), keys = shape_of(federation), vars(federation.problem)
    if 8.0 * tested * size > memory() / 4:  # there are copies
        right = f"fewer: {tested:,.0f} samples of {size:,.0f} numbers need about {8 * tested * size / 1e9:,.0f} GB"
        raise BadInput("problem.test", federation.problem.test, f"{right}, {memory() / 1e9:.0f} are here")
    need = 4.0 * clients * size + 8.0 * clients * samples * size * bool(samples)
    measured = 100.0 * federation.rounds / federation.every
    if need > memory():
        right = f"fewer: {clients:,.0f} clients with models of {size:,.0f} need about {need / 1e9:,.0f} GB"
        key = "clients" if clients >= size else "features" if "features" in keys else "size"
        raise BadInput(f"problem.{key}", keys[key], f"{right}, {memory() / 1e9:.0f} are here")
    if measured > memory():
        right = f"a larger number: {federation.rounds / federation.every:,.0f} measurements do not fit into memory"
        raise BadInput("every", federation.every, right)


def announcement(federation: Any, seeds: int = 1) -> str:
    """A sentence about a run that takes more than a minute; "" for others."""
    _, size, *_ = shape_of(federation)
    updates = float(federation.rounds) * clients_of(federation) * seeds
    seconds = updates * max(size / 200, 0.05) / UPDATES + federation.rounds * seeds * ROUND
    if seconds < LONG:
        return ""
    for unit, name in ((86400 * 365.25, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= unit:
            about = f"{seconds / unit:,.0f} {name}"
            break
    return f"{updates:,.0f} client updates: this may take {about}. Ctrl-C keeps what was done."
