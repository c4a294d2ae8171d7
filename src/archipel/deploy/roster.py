"""Who takes part: every node's name, role and number, whom it talks to and who connects to whom."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from archipel.clients import as_nodes
from archipel.deploy import wire
from archipel.deploy.grow import why_fixed
from archipel.describe import PATHS, as_table, write_toml
from archipel.errors import BadInput, did_you_mean
from archipel.registry import described

OWN = ("data", "test")  # paths of a problem's data
BUDGET = ("epsilon", "delta", "rho", "noise")  # keys of [privacy]: how much a node may pay is its own affair


class Member(NamedTuple):
    """A node of the federation."""

    name: str
    role: str
    number: int  # within its role


@dataclass(frozen=True)
class Roster:
    """All members, and the edges between them."""

    members: tuple[Member, ...]
    edges: frozenset[tuple[str, str]]  # (sender, receiver), by name

    def member(self, name: str) -> Member:
        """The member of a name."""
        for member in self.members:
            if member.name == name:
                return member
        raise BadInput("name", name, did_you_mean(name, [member.name for member in self.members]))

    @property
    def names(self) -> dict[str, list[str]]:
        """The names of each role, by number."""
        found: dict[str, list[str]] = {}
        for member in self.members:
            found.setdefault(member.role, []).append(member.name)
        return found

    def neighbours(self, name: str) -> list[str]:
        """Whom a node talks to, either way, in the order of the members."""
        joined = {b for a, b in self.edges if a == name} | {a for a, b in self.edges if b == name}
        return [member.name for member in self.members if member.name in joined]

    def calls(self, name: str, addresses: dict[str, str]) -> list[str]:
        """Whom a node connects to: of two that talk, the one without an address calls; else the later one."""
        order = {member.name: i for i, member in enumerate(self.members)}
        called = []
        for other in self.neighbours(name):
            if name not in addresses and other not in addresses:
                right = f'an address ("host:port") for {other} or {name}, who talk to each other'
                raise BadInput("deploy.addresses", ", ".join(addresses) or "(none)", right)
            if other in addresses and (name not in addresses or order[name] > order[other]):
                called.append(other)
        return called

    def leaders(self) -> list[str]:
        """The servers, or all peers: who listens, so that every edge has an end that does, and who sets the pace."""
        servers = [member.name for member in self.members if member.role == "server"]
        return servers or [member.name for member in self.members]


def roster_of(instance: Any) -> Roster:
    """The members of an instance."""
    members, graph = [], instance.graph
    for role, table in sorted(instance.plan.tables.items(), reverse=True):  # servers before clients
        given = graph.server_names if role == "server" else (graph.names or instance.task.names)
        members += [Member(name, role, k) for k, name in enumerate(labels(role, len(table[0]), given))]
    names = {(member.role, member.number): member.name for member in members}
    edges = set()
    for turn in instance.plan.turns:
        for links in instance.links[turn.sender, turn.receiver]:
            for k in range(len(links.starts) - 1):
                for sender in links.senders[links.starts[k] : links.starts[k + 1]]:
                    edges.add((names[turn.sender, int(sender)], names[turn.receiver, k]))
    return Roster(tuple(members), frozenset(edges))


def labels(role: str, count: int, given: Iterable[str]) -> list[str]:
    """Names that serve as file names, in keys and in certificates: the user's, where they do; else role and number.

    >>> labels("server", 1, ()), labels("client", 2, ("sensor-17", "the roof"))
    (['server'], ['sensor-17', 'the-roof'])
    """
    own = as_nodes(given)
    if len(own) == count and all(own):
        return own
    return [role] if role == "server" and count == 1 else [f"{role}-{k}" for k in range(count)]


def refuse_attack(federation: Any) -> None:
    """Nobody lies on purpose in a deployment of ours."""
    attack = federation.environment.attack
    if attack.share > 0:
        raise BadInput("environment.attack.share", attack.share, "0: only the simulator plays clients that lie")


def digest_of(federation: Any, roster: Roster, vocabulary: wire.Vocabulary, private: bool) -> bytes:
    """Eight bytes that two nodes share if they run the same federation, however far it has grown."""
    table, rounds, who = shared(federation), federation.rounds, repr((roster.members, sorted(roster.edges)))
    if not why_fixed(federation):
        table["problem"].pop("clients", None)
        table.pop("clients", None)
        rounds, who = rounds if private else 0, ""
    plain = write_toml(table)
    form = [(word.kind, [(str(f.dtype), f.shape) for f in word.fields]) for word in vocabulary.words]
    said = repr((wire.VERSION, plain, rounds, federation.seed, form, who))
    return blake2b(said.encode(), digest_size=8).digest()


def shared(federation: Any) -> dict[str, Any]:
    """What of a description all nodes must agree on.

    Each may have its own data and folders, its own budget, and its own patience. Where data lie is left out; of other
    files the name counts. The environment is only played in a replay.
    """
    deploy = federation.deploy
    table: dict[str, Any] = {"pace": {"pace": deploy.pace, "period": deploy.period if deploy.pace == "clock" else 0.0}}
    sections = ("problem", "topology", "algorithm", *(["environment"] if deploy.pace == "replay" else []))
    for section in sections:
        part = getattr(federation, section)
        table[section] = described(part)
    for *above, key in PATHS:
        found = table
        for section in above:
            found = found.get(section, {})
        if isinstance(found.get(key), str):
            found[key] = "" if key in OWN else Path(found[key]).name
    people = federation.clients.people()
    if people is not None:
        table["clients"] = {"names": people.names, "samples": people.samples}
    if federation.privacy is not None:
        private = as_table(federation.privacy)
        table["privacy"] = {key: value for key, value in private.items() if key not in BUDGET}
    return table
