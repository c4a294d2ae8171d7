"""A site's own rules: `policy.toml`, which lies with the site and which nobody else can change.

It names the descriptions that the site takes part in, what may leave, to whom and when, and the most that its data will
ever pay in privacy, in all federations together. `deploy.permit` holds a description to it before anything is opened,
`deploy.gate` every frame that leaves, `deploy.site` the budget. Without a policy a site has no rules.
"""

import os
import re
import tomllib
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from archipel.describe import PATHS, Checked, as_table, fill, key, read_toml, toml, write_toml
from archipel.errors import BadInput

NAME = "policy.toml"
CONTENTS = {
    "models": "models and changes of models, whole or in part, and what they weigh",
    "clusters": "which cluster a node finds itself in",
    "samples": "how many samples it has, or its share of all",
    "losses": "losses, or norms of what it learned in a round",
    "statistics": "sums of its columns, with noise, of which units are found",
    "status": "how it is doing: rounds, rows that arrived and could not be read, what was paid",
    "other": "anything else that a part of one's own says",
}
FIELDS = {  # of words -> what they are
    **dict.fromkeys(("values", "start", "places", "bits", "packed", "largest", "models", "known", "common"), "models"),
    **dict.fromkeys(("control", "weight", "mass", "asked", "chance", "stamp"), "models"),
    **dict.fromkeys(("masked", "pads", "listed", "keys"), "models"),
    **dict.fromkeys(("sums", "units"), "statistics"),
    "cluster": "clusters",
    "samples": "samples",
    "share": "samples",
    "norm": "losses",
    "loss": "losses",
}
HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
DAY = 86_400


@dataclass(frozen=True)
class Limits(Checked):
    """The most that a site's data will ever pay, in all federations together."""

    section = "policy.privacy"

    epsilon: float | None = key(None, "the most epsilon, in all federations together; none: no limit", above=0)
    delta: float = key(1e-6, "at this delta", above=0, below=1)
    rho: float | None = key(None, "the most zCDP, in place of epsilon", above=0)
    assumed: bool = key(False, "whether a price may rest on what is only assumed")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon is not None and self.rho is not None:
            raise BadInput("policy.privacy.rho", self.rho, "either epsilon (with delta) or rho, not both")

    @property
    def key(self) -> str:
        """The key that limits; none where there is no limit."""
        named = "epsilon" if self.epsilon is not None else "rho" if self.rho is not None else ""
        return f"policy.privacy.{named}" if named else ""

    @property
    def value(self) -> float | None:
        return self.epsilon if self.epsilon is not None else self.rho


@dataclass(frozen=True)
class Policy(Checked):
    """What a site lets leave, of which descriptions, to whom, when, and at what price at most."""

    section = "policy"

    approved: tuple[str, ...] = key((), "the descriptions that it takes part in, as `archipel approve` writes them")
    leaves: tuple[str, ...] = key(("models",), "what may leave at all", choices=tuple(CONTENTS))
    to: tuple[str, ...] = key((), "who may hear it; none named: all whom an approved description names")
    rounds: int = key(0, "the most rounds of a federation; 0: as many as it has", at_least=0)
    hours: str = key("", 'when anything may leave, in UTC, such as "22:00-06:00"; none: at all times')
    bytes_a_day: int = key(0, "the most bytes that a node sends in a day of UTC; 0: no limit", at_least=0)
    bytes_a_second: int = key(0, "the most bytes that a node sends in a second, on average; 0: no limit", at_least=0)
    privacy: Limits = key(Limits, "the most that its data will ever pay")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hours and not HOURS.fullmatch(self.hours):
            raise BadInput("policy.hours", self.hours, 'two times of the day in UTC, such as "22:00-06:00"')

    def wait(self, clock: float) -> float:
        """Seconds from a moment until its hours begin; 0 within them. An end that is the beginning is a whole day.

        >>> Policy(hours="22:00-06:00").wait(0.0), Policy(hours="22:00-06:00").wait(6 * 3600.0)
        (0.0, 57600.0)
        """
        if not self.hours:
            return 0.0
        first, second, third, fourth = map(int, self.hours.replace("-", ":").split(":"))
        begin, end = 60 * (60 * first + second), 60 * (60 * third + fourth)
        since = (clock - begin) % DAY
        return 0.0 if since < ((end - begin) % DAY or DAY) else DAY - since


def contents_of(fields: Any) -> set[str]:
    """What a word with these fields says.

    >>> sorted(contents_of(["word.values", "share", "norm"]))
    ['losses', 'models', 'samples']
    """
    return {FIELDS.get(path.rpartition(".")[2], "other") for path in fields}


def approval_of(federation: Any, digest: bytes) -> str:
    """The hash under which a description is approved: of what all nodes must agree on, and of what this one would do.

    `digest` has the former. Noise and budget are a node's own affair, but another noise is another price; so are files
    that a description names, such as a user's own algorithm, where the others only know the name, and a broker to call.
    """
    private = "" if federation.privacy is None else write_toml(as_table(federation.privacy))
    said = repr((digest, private, federation.rounds, files_of(federation), broker_of(federation)))
    return blake2b(said.encode(), digest_size=12).hexdigest()


def broker_of(federation: Any) -> str:
    """Whom a node would call for its samples; "" where they are its own."""
    return federation.deploy.data if "://" in federation.deploy.data else ""


def files_of(federation: Any) -> list[tuple[str, str]]:
    """The files that a description names, its data and its roster aside, and a hash of what is in each."""
    table, found = federation.table(), []
    for *above, name in PATHS:
        here: Any = table
        for section in above:
            here = here.get(section, {}) if isinstance(here, dict) else {}
        given = here.get(name) if isinstance(here, dict) else None
        if isinstance(given, str) and name not in ("data", "test", "roster"):
            path = Path(given.rpartition(":")[0] if ".py:" in given else given)
            if path.is_file():
                found.append((".".join([*above, name]), blake2b(path.read_bytes(), digest_size=16).hexdigest()))
    return found


# --- the file ---------------------------------------------------------------------------------------------------------


def read_policy(path: Path) -> Policy:
    """The policy of a file."""
    return fill(Policy, read_toml(path), "policy")


def policy_path(given: str | Path | None, description: Path) -> Path | None:
    """Where a node's policy is: as given, which must be there; else beside the description, if there is one.

    A description cannot say where, or that there is none: it comes from others.
    """
    path = Path(given) if given else description.parent / NAME
    if given and not path.is_file():
        raise BadInput("--policy", str(path), "a file with the site's rules; `archipel approve` writes one")
    return path if path.is_file() else None


def approve(path: Path, approval: str) -> None:
    """Write a hash into the policy, and leave the rest of the file as it is."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    policy = fill(Policy, tomllib.loads(text), "policy")
    if approval in policy.approved:
        return
    line = f"approved = {toml([*policy.approved, approval])}"
    changed, count = re.subn(r"(?m)^approved\s*=\s*\[[^\]]*\]", line, text, count=1)
    changed = changed if count else f"{line}\n{text}"
    if fill(Policy, tomllib.loads(changed), "policy") != Policy(
        **{**vars(policy), "approved": (*policy.approved, approval)}
    ):
        raise BadInput(
            "policy.approved", str(path), f"a list to which {approval} can be added; write it there yourself"
        )
    part = path.with_name(f"{path.name}.part")
    part.write_text(changed, encoding="utf-8")
    os.replace(part, path)
