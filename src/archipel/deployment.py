"""How a federation is deployed: the `[deploy]` table of a description. A simulation does not look at it."""

from dataclasses import dataclass

from archipel.describe import Checked, key
from archipel.errors import BadInput

PACES = {
    "quorum": "a round ends when enough have answered, or at the deadline",
    "clock": "a round lasts `period` seconds, whoever is there",
    "replay": "everyone waits for everyone, plays the conditions of the simulation, and ends with its model",
}


@dataclass(frozen=True)
class Deployment(Checked):
    """Who listens where (the others connect to them), how rounds go by, and where a node keeps its things."""

    section = "deploy"

    pace: str = key("quorum", "when a round ends: enough answers, a clock, or as simulated", choices=tuple(PACES))
    quorum: float = key(
        1.0, "how many neighbours must have answered", above=0, at_most=1, noun="a share of the neighbours"
    )
    deadline: float = key(10.0, "how long a round waits for a quorum", above=0, unit="seconds")
    period: float = key(1.0, "how long a round of the clock lasts", above=0, unit="seconds")
    start: float = key(
        0.0, "when the first round of a common clock begins; 0: when it is started", at_least=0,
        noun="seconds since 1970",
    )  # fmt: skip
    patience: float = key(60.0, "how long a node waits for neighbours that it has never heard", above=0, unit="seconds")
    forget: float = key(
        86_400.0, "how long letters are kept for a neighbour that does not answer", above=0, unit="seconds"
    )
    addresses: dict = key(dict, 'who listens where: the server of a star, servers, peers, each "host:port"')
    keys: str = key("keys", "the folder of a node's certificate and secret key")
    state: str = key("state", "the folder of a node's checkpoints and ledger")
    data: str = key(
        "", "what a device learns from: a CSV that grows, file.py:function, mqtt://host/topic; none: the problem"
    )
    status: float = key(0.0, "how often a node tells its servers how it is doing; 0: never", at_least=0, unit="seconds")
    durable: bool = key(True, "whether a checkpoint waits until the disk has it")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, address in self.addresses.items():
            host, colon, port = str(address).rpartition(":")
            if not (isinstance(address, str) and colon and host and port.isdigit() and 0 < int(port) < 65536):
                right = 'a text "host:port", with a port from 1 to 65535'
                raise BadInput(f"deploy.addresses.{name}", address, right)
