"""How a federation is deployed: the `[deploy]` table of a description. A simulation does not look at it."""

from dataclasses import dataclass, field

from archipel.errors import BadInput

PACES = {
    "quorum": "a round ends when enough have answered, or at the deadline",
    "clock": "a round lasts `period` seconds, whoever is there",
    "replay": "everyone waits for everyone, plays the conditions of the simulation, and ends with its model",
}


@dataclass(frozen=True)
class Deployment:
    """Who listens where, how rounds go by, and where a node keeps its things.

    `addresses` names who listens: the server of a star, servers, peers ("host:port"); the others connect to them.
    `data` is what a device learns from: a CSV file that grows, `file.py:function` (a generator of samples), or
    `mqtt://host/topic`; empty, it is the description's own problem.
    """

    pace: str = "quorum"
    quorum: float = 1.0
    deadline: float = 10.0
    period: float = 1.0
    start: float = 0.0  # of the first round, in seconds since 1970, for a clock that all share; 0: when it is started
    patience: float = 60.0
    addresses: dict = field(default_factory=dict)
    keys: str = "keys"
    state: str = "state"
    data: str = ""
    durable: bool = True

    def __post_init__(self) -> None:
        if self.pace not in PACES:
            raise BadInput("deploy.pace", self.pace, "one of " + ", ".join(PACES))
        if not 0 < self.quorum <= 1:
            raise BadInput("deploy.quorum", self.quorum, "a share of the neighbours, above 0, at most 1")
        for name in ("deadline", "period", "patience"):
            if not 0 < getattr(self, name) < float("inf"):
                raise BadInput(f"deploy.{name}", getattr(self, name), "a positive number of seconds")
        if not 0 <= self.start < float("inf"):
            raise BadInput("deploy.start", self.start, "seconds since 1970, or 0")
        for name, address in self.addresses.items():
            host, colon, port = str(address).rpartition(":")
            if not (isinstance(address, str) and colon and host and port.isdigit() and 0 < int(port) < 65536):
                raise BadInput(f"deploy.addresses.{name}", address, 'a text "host:port"')
