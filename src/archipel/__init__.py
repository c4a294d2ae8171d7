"""Federated learning where the data lives: asynchronous, private, personal, with one server, many, or none."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from archipel.algorithms.composed import Algorithm
    from archipel.algorithms.online import OnlineFed, PaoFed
    from archipel.algorithms.sign_sgd import SignSgd
    from archipel.bundle import load
    from archipel.environment import Delay, Environment
    from archipel.federation import Federation
    from archipel.problems.linear import Linear
    from archipel.problems.synthetic import Synthetic

# Names are loaded when they are used: a device that runs one node must not load what only a simulation needs. Parts,
# algorithms, problems and topologies are in the registry (`classes`).
HOMES = {
    "Attack": "archipel.environment",
    "Bounds": "archipel.privacy.bounding",
    "Clients": "archipel.clients",
    "Deployment": "archipel.deployment",
    "Failure": "archipel.environment",
    "Privacy": "archipel.privacy.policy",
    "Range": "archipel.privacy.policy",
    "Delay": "archipel.environment",
    "Environment": "archipel.environment",
    "Federation": "archipel.federation",
    "load": "archipel.bundle",
    "split": "archipel.problems.splits.partition",
}
__all__ = [
    "Algorithm",
    "Delay",
    "Environment",
    "Federation",
    "Linear",
    "OnlineFed",
    "PaoFed",
    "SignSgd",
    "Synthetic",
    "load",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    # a module's name is asked for here before it is imported, and must not load all classes
    home = HOMES.get(name) or (classes().get(name) if name[0].isupper() else None)
    if not home:
        raise AttributeError(f"module 'archipel' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES, *classes()})


def classes() -> dict[str, str]:
    """Every part, algorithm, problem and topology by the name of its class."""
    from archipel.registry import ALGORITHMS, FAMILIES, PROBLEMS
    from archipel.topology import TOPOLOGIES

    registers = (*FAMILIES.values(), ALGORITHMS, PROBLEMS)
    homes = [place.partition(":") for names in registers for place in names.homes.values()]
    found = {name: module for module, _, name in reversed(homes)}
    return found | {cls.__name__: cls.__module__ for cls in TOPOLOGIES.values()}
