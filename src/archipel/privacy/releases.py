"""What a node released about its data, as frozen values that a ledger adds up.

Each kind says how much noise stood against how large a change: which change, one sample or one client,
replaced or added, is the ledger's to name. Everything here is data; `archipel.privacy.accounting` does the
arithmetic.
"""

from dataclasses import dataclass
from typing import Any, Literal

from archipel.errors import BadInput, did_you_mean

Relation = Literal["replace-one", "add-remove"]
RELATIONS: tuple[Relation, ...] = ("replace-one", "add-remove")


LARGEST = 1e100  # of any mu, epsilon or rho: squares and sums of it stay finite


def _finite(key: str, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= LARGEST:
        raise BadInput(key, value, "a finite number, at least 0; without noise or a bound there is nothing to count")
    return number


@dataclass(frozen=True, order=True)
class Gaussian:
    """One release with Gaussian noise: mu = (L2 sensitivity) / sigma. mu^2 / 2 is its zCDP (3.13)."""

    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", _finite("privacy.mu", self.mu))


@dataclass(frozen=True, order=True)
class Laplace:
    """One release with independent Laplace noise of scale (L1 sensitivity) / epsilon on every component."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _finite("privacy.epsilon", self.epsilon))


@dataclass(frozen=True, order=True)
class Zcdp:
    """One release of which nothing is known but that it is rho-zCDP."""

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", _finite("privacy.rho", self.rho))


@dataclass(frozen=True, order=True)
class Sampled:
    """A release of a sum over records that were each taken with probability `rate`, independently and in
    secret.

    Only a secret choice amplifies. A choice that the adversary sees (which clients a server asks, which round
    a device was online in) does not: record the bare release for every time the choice fell on the client,
    and nothing else.

    The release must be the sum of the sampled records' contributions, divided by nothing that depends on the
    sample, plus noise. `release` is what the unsampled release would be under the same `relation`: with
    contributions clipped to C, mu = C / sigma under "add-remove" and 2 C / sigma under "replace-one".
    """

    rate: float
    release: "Gaussian | Laplace"
    relation: Relation = "add-remove"

    def __post_init__(self) -> None:
        if not 0 < _finite("privacy.rate", self.rate) <= 1:
            raise BadInput("privacy.rate", self.rate, "a probability in (0, 1]")
        object.__setattr__(self, "rate", float(self.rate))
        if self.relation not in RELATIONS:
            raise BadInput("privacy.relation", self.relation, did_you_mean(str(self.relation), RELATIONS))
        if not isinstance(self.release, (Gaussian, Laplace)):
            raise BadInput(
                "privacy.release", self.release, "a Gaussian or Laplace release: nothing else is known to amplify"
            )
        if isinstance(self.release, Laplace) and self.relation == "replace-one" and self.rate < 1:
            raise BadInput(
                "privacy.relation",
                self.relation,
                '"add-remove": how sampled Laplace noise amplifies is known for that only',
            )


Release = Gaussian | Laplace | Zcdp | Sampled
_KINDS: dict[str, Any] = {"gaussian": Gaussian, "laplace": Laplace, "zcdp": Zcdp, "sampled": Sampled}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def rho_of(release: Release) -> float:
    """The zCDP of one release.

    Gaussian: mu^2 / 2 (Bun, Steinke, TCC 2016, Proposition 1.6). Laplace: an epsilon-DP release is epsilon^2
    / 2-zCDP (Proposition 1.4), and epsilon-zCDP as its Rényi divergences are at most epsilon. Sampled: zCDP
    does not amplify; that of the unsampled release holds by quasi-convexity.
    """
    if isinstance(release, Gaussian):
        return release.mu * release.mu / 2
    if isinstance(release, Laplace):
        return min(release.epsilon * release.epsilon / 2, release.epsilon)
    if isinstance(release, Zcdp):
        return release.rho
    return rho_of(release.release)


def order_of(release: Release) -> tuple[Any, ...]:
    """A key that sorts releases of all kinds."""
    if isinstance(release, Sampled):
        return ("sampled", release.relation, release.rate, *order_of(release.release))
    return (_NAMES[type(release)], *vars(release).values())


def as_json(release: Release) -> dict[str, Any]:
    """A release as plain data. Numbers survive the way there and back bit by bit.

    >>> as_json(Sampled(0.5, Gaussian(1.0)))
    {'law': 'sampled', 'rate': 0.5, 'release': {'law': 'gaussian', 'mu': 1.0}, 'relation': 'add-remove'}
    """
    plain = {"law": _NAMES[type(release)], **vars(release)}
    if isinstance(release, Sampled):
        plain["release"] = as_json(release.release)
    return plain


def from_json(plain: Any) -> Release:
    """The release that `as_json` wrote."""
    fields = dict(plain)
    law = fields.pop("law", None)
    if law not in _KINDS:
        raise BadInput("release.law", law, did_you_mean(str(law), _KINDS))
    if "release" in fields:
        fields["release"] = from_json(fields["release"])
    try:
        return _KINDS[law](**fields)
    except TypeError as wrong:
        raise BadInput("release", plain, f"the fields of {law}") from wrong
