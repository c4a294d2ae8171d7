"""Federated learning where the data lives: asynchronous, private, personal, with one server, many, or none."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from archipel.algorithms.composed import Algorithm
    from archipel.algorithms.online import OnlineFed, PaoFed
    from archipel.algorithms.sign_sgd import SignSgd
    from archipel.environment import Delay, Environment
    from archipel.federation import Federation
    from archipel.problems.linear import Linear
    from archipel.problems.synthetic import Synthetic

# Names are loaded when they are used: a device that runs one node must not load what only a simulation needs.
HOMES = {
    "Algorithm": "archipel.algorithms.composed",
    "Delay": "archipel.environment",
    "Environment": "archipel.environment",
    "Federation": "archipel.federation",
    "Linear": "archipel.problems.linear",
    "OnlineFed": "archipel.algorithms.online",
    "PaoFed": "archipel.algorithms.online",
    "SignSgd": "archipel.algorithms.sign_sgd",
    "Synthetic": "archipel.problems.synthetic",
}
__all__ = ["Algorithm", "Delay", "Environment", "Federation", "Linear", "OnlineFed", "PaoFed", "SignSgd", "Synthetic"]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'archipel' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(HOMES[name]), name)
