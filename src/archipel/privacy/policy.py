"""The `[privacy]` table of a federation: how much a client may pay, for what, and what is enforced.

A target (`epsilon` with `delta`, or `rho` in zCDP) is turned back into the noise that spends it over the planned
releases; noise that is given directly is used as it is, and a target beside it is the limit at which a client
falls silent. Targets and noise are one number for all clients, a list with one for each, a table by their names, or a
range `{ low, high }` from which every client's own is drawn.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from archipel.by_name import in_order
from archipel.describe import REQUIRED, Checked, convert, key
from archipel.draws import BUDGET, key_of, uniform
from archipel.errors import BadInput
from archipel.privacy.accounting import zcdp_epsilon
from archipel.privacy.bounding import Bounds, gradient_bound
from archipel.privacy.calibration import SPARE, first_sigma, gaussian_budget, laplace_per_release, zcdp_budget
from archipel.privacy.gaussian import mu_of
from archipel.privacy.ledger import ASSUMED, ENFORCED, ROUNDING, UNITS, Assumption, Terms
from archipel.privacy.noise import GAUSSIAN, LAPLACE, NONE
from archipel.privacy.pieces import pieces, rows_of
from archipel.privacy.releases import LARGEST, RELATIONS

MECHANISMS = {"gaussian": GAUSSIAN, "laplace": LAPLACE}
CALIBRATIONS = ("exact", "corollary", "per-round")
SILENT = -1.0  # in a schedule: nothing may be said this round
SMALLEST = 1e-6  # of an epsilon: a million times as much noise as hides a unit at 1


@dataclass(frozen=True)
class Range:
    """A range, from which every client's own number is drawn, once per seed."""

    low: float = key(REQUIRED, "the least of the clients' numbers")
    high: float = key(REQUIRED, "the largest of the clients' numbers")


Amount = Range | dict | tuple[float, ...] | float | None


class Guard(NamedTuple):
    """What a node enforces on every example; infinite where it enforces nothing."""

    clip: float = math.inf  # of an example's gradient
    order: int = 2  # in the L2 norm for Gaussian noise, in the L1 norm for Laplace noise
    features: float = math.inf
    target: float = math.inf
    radius: float = math.inf


class Noise(NamedTuple):
    """The noise of a run: its law, every client's scale at first, and how it changes with the rounds."""

    law: int
    first: Any  # (clients, 1)
    shape: Any  # (rounds,): the scale in round n is first * shape[n]; SILENT where nothing may be said
    limit: Any  # (clients, 1): zCDP that a client may pay
    alike: bool  # whether all releases of a client cost the same


@dataclass(frozen=True)
class Privacy(Checked):
    """What is promised to whom.

    A `schedule` that is a list is the noise itself if neither a target nor `noise` is given. `calibration` is "exact"
    (the ledger's own arithmetic) or, to compare, as published: "corollary" (of the thesis) and "per-round" ((epsilon,
    delta) in each round, summed up). `clip`, or `bounds`, bound an example's gradient; with `enforce` = false they are
    only declared, and every guarantee says `assumed`.
    """

    section = "privacy"

    mechanism: str = key("gaussian", "the law of the noise", choices=tuple(MECHANISMS))
    epsilon: Amount = key(
        None, "what a client may pay in all: (epsilon, delta) differential privacy; also a list, or by name",
        symbol="epsilon",
    )  # fmt: skip
    delta: float = key(1e-5, "the chance with which epsilon may not hold", above=0, below=1, symbol="delta")
    rho: Amount = key(
        None, "what a client may pay in all: zero-concentrated differential privacy; also a list, or by name",
        symbol="rho",
    )  # fmt: skip
    noise: Amount = key(None, "the scale of the noise, in place of a target or beside it", symbol="sigma")
    schedule: str | tuple[float, ...] = key(
        "constant", "how the noise changes with the rounds, or a factor for each", at_least=0,
        choices=("constant", "geometric"),
    )  # fmt: skip
    zeta: float = key(
        1.0, "by what the variance is multiplied after each round of a geometric schedule", above=0, at_most=1,
        symbol="zeta",
    )  # fmt: skip
    releases: int = key(0, "for how many releases the noise is planned; 0: one a round", at_least=0, unit="releases")
    calibration: str = key("exact", "how a target becomes noise: exactly, or as published", choices=CALIBRATIONS)
    unit: str = key("sample", "what is protected: a sample, or all of a client's", choices=tuple(UNITS))
    relation: str = key("replace-one", "what neighbouring data sets are", choices=tuple(RELATIONS))
    clip: float = key(math.inf, "the largest norm of an example's gradient", above=0, at_most=LARGEST, noun="a bound")
    bounds: Bounds = key(Bounds, "what features, targets and models are clipped to")
    enforce: bool = key(True, "whether nodes clip to these bounds; false: they are only assumed")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_amount("privacy.epsilon", self.epsilon, SMALLEST)
        check_amount("privacy.rho", self.rho, SMALLEST**2)
        check_amount("privacy.noise", self.noise, 0.0)
        self.check_schedule()
        if self.epsilon is not None and self.rho is not None:
            raise BadInput("privacy.rho", self.rho, "either epsilon (with delta) or rho, not both")
        if self.epsilon is None and self.rho is None and self.noise is None and isinstance(self.schedule, str):
            raise BadInput("privacy.epsilon", "(missing)", "a target, epsilon or rho, or the noise itself")
        if self.calibration != "exact" and (self.epsilon is None or self.mechanism != "gaussian"):
            right = '"exact", or a Gaussian mechanism with an epsilon for its target'
            raise BadInput("privacy.calibration", self.calibration, right)

    def ordered(self, names: Callable[[], Sequence[str]]) -> "Privacy":
        """The same with lists in place of tables by clients' names."""
        given = {name: vars(self)[name] for name in ("epsilon", "rho", "noise")}
        tables = {name: amount for name, amount in given.items() if isinstance(amount, dict)}
        return replace(self, **{name: in_order(one, names(), f"privacy.{name}") for name, one in tables.items()})

    def check_schedule(self) -> None:
        """A schedule that can be followed."""
        if not len(self.schedule):
            raise BadInput("privacy.schedule", self.schedule, "finite factors, at least 0, one a round")
        if self.schedule == "geometric" and self.zeta == 1:
            raise BadInput("privacy.zeta", self.zeta, "a factor strictly between 0 and 1")
        if self.schedule != "geometric" and self.zeta != 1:
            raise BadInput("privacy.zeta", self.zeta, '1, or schedule = "geometric"')

    # --- what is protected ------------------------------------------------------------------------------------------

    @property
    def protects(self) -> bool:
        """Whether there is any noise at all."""
        return self.has_target or not self.given_noise_is_zero

    @property
    def has_target(self) -> bool:
        return self.epsilon is not None or self.rho is not None

    @property
    def given_noise_is_zero(self) -> bool:
        scales = self.noise if self.noise is not None else (self.schedule if not self.has_target else 1.0)
        scales = scales.high if isinstance(scales, Range) else scales
        return bool(np.all(np.asarray(scales) == 0))

    @property
    def law(self) -> int:
        """The law of the noise, as node functions know it."""
        return MECHANISMS[self.mechanism] if self.protects else NONE

    @property
    def order(self) -> int:
        """The norm in which a change is measured."""
        return 1 if self.mechanism == "laplace" else 2

    def guard(self) -> Guard:
        """What node functions enforce."""
        if not self.enforce:
            return Guard(order=self.order)
        return Guard(self.clip, self.order, self.bounds.features, self.bounds.target, self.bounds.radius)

    def gradient_bound(self, loss: str, size: int) -> float:
        """c1 of assumption 1 in the norm of the mechanism: by clipping, or by what the bounds imply for a loss."""
        implied = gradient_bound(loss, self.bounds) * (math.sqrt(size) if self.order == 1 else 1.0)
        bound = min(self.clip, implied)
        if not bound < math.inf and self.protects:
            right = (
                f"a finite bound on each example's gradient, or privacy.bounds that imply one for the {loss} loss: "
                "no noise covers an infinite sensitivity"
            )
            raise BadInput("privacy.clip", self.clip, right)
        return bound

    @property
    def how(self) -> str:
        """Whether bounds are enforced or only assumed."""
        return ENFORCED if self.enforce else ASSUMED

    def terms(self, *further: Assumption, clipped: str = "each example's gradient") -> Terms:
        """Unit, relation and what the guarantee rests on."""
        how, held = self.how, []
        if self.clip < math.inf:
            held.append(Assumption(f"{clipped} has L{self.order} norm at most {self.clip:g}", how))
        for name, what in (
            ("features", "each example's features have L2 norm at most"),
            ("target", "each target is in size at most"),
            ("radius", "each model that is differentiated has L2 norm at most"),
        ):
            if getattr(self.bounds, name) < math.inf:
                held.append(Assumption(f"{what} {getattr(self.bounds, name):g}", how))
        return Terms(self.unit, self.relation, (*held, *further))  # type: ignore[arg-type]

    # --- how much noise ---------------------------------------------------------------------------------------------

    def shape(self, rounds: int) -> Any:
        """The factor of the noise in every round; SILENT beyond the user's own list."""
        if self.schedule == "constant":
            return np.ones(rounds)
        if self.schedule == "geometric":
            return self.zeta ** (np.arange(rounds) / 2)
        own = np.full(rounds, SILENT)
        own[: len(self.schedule)] = self.schedule[:rounds]
        return own

    def noise_of(self, sensitivities: Any, clients: int, rounds: int, seed: int, per_sample: bool = False) -> Noise:
        """The noise of every client, where its release of round n moves by sensitivities[k, n] at most.

        `sensitivities` has a row for each client, or one for all, or is a function of a slice of them; a column for
        each round, or one. Where every sample is released once (`per_sample`), it has the whole budget to itself.
        """
        shape, parts = self.shape(rounds), pieces(clients, rounds)

        def table(part: slice) -> tuple[Any, Any]:
            sizes = np.broadcast_to(rows := rows_of(sensitivities, part), (len(rows), rounds))
            return sizes, self.planned(sizes, shape, per_sample)

        varied, changes = False, bool(np.ptp(shape) > 0)
        for sizes, relative in map(table, parts if self.protects else ()):
            if not np.isfinite(sizes).all():
                raise BadInput("privacy.sensitivity", math.inf, "a finite one: no noise covers an infinite sensitivity")
            varied |= bool(np.ptp(relative, 1).max() > 0)
            changes |= bool(np.ptp(sizes, 1).max() > 0)
        first, each, costs = np.zeros(clients), np.zeros(clients), np.zeros(clients)
        calibrates = self.noise is None and self.has_target
        if calibrates:
            budget = self.rhos(clients, seed) if self.epsilon is None else self.epsilons(clients, seed)
        else:
            first = amounts(1.0 if self.noise is None else self.noise, "privacy.noise", clients, seed)
        for part in parts:
            sizes, relative = table(part)
            if calibrates:
                first[part] = self.calibrated(relative, budget[part], varied)
                costs[part] = release_costs(self.law, relative, first[part, None]).sum(1)
            each[part] = release_costs(self.law, sizes[:, 0], first[part] * shape[0])
        alike = not (changes and self.protects)
        limits = self.limits(clients, seed, costs if calibrates else None, each if alike else None)
        return Noise(self.law, first[:, None].copy(), shape, limits[:, None].copy(), alike)

    def rhos(self, clients: int, seed: int) -> Any:
        return amounts(self.rho, "privacy.rho", clients, seed)

    def epsilons(self, clients: int, seed: int) -> Any:
        return amounts(self.epsilon, "privacy.epsilon", clients, seed)

    def planned(self, sizes: Any, shape: Any, per_sample: bool) -> Any:
        """The sensitivities of the releases that are planned, over their factors."""
        heard = shape > 0
        count = min(self.releases or len(shape), int(heard.sum()))
        if count == 0 and self.protects:
            raise BadInput("privacy.schedule", self.schedule, "noise in at least one round")
        relative = sizes[:, heard][:, :count] / shape[heard][:count]
        return relative.max(1, keepdims=True) if per_sample and count else relative

    def calibrated(self, relative: Any, budget: Any, varied: bool) -> Any:
        """The first scales with which releases of these sensitivities, over the schedule's factors, spend a budget."""
        if self.mechanism == "laplace":
            return self.calibrated_laplace(relative, budget, varied)
        if self.epsilon is None:
            return first_sigma(zcdp_budget(budget), relative, 1.0)
        if self.calibration == "per-round":
            factor = math.sqrt(2 * math.log(1.25 * relative.shape[1] / self.delta))
            return factor * relative.sum(1) / budget * (1 + SPARE)
        if self.calibration == "corollary":
            total = np.sqrt(math.log(1 / self.delta) + budget) - math.sqrt(math.log(1 / self.delta))
            return first_sigma(math.sqrt(2) * total, relative, 1.0)
        return first_sigma(gaussian_budget(budget, self.delta), relative, 1.0)

    def calibrated_laplace(self, relative: Any, budget: Any, varied: bool) -> Any:
        """As `calibrated`, for Laplace noise: the exact accountant where all releases are alike, else sums."""
        count = relative.shape[1]
        if self.epsilon is None:
            return laplace_scale(relative, budget)
        if count == 1:  # pure: `accountant.laplace_epsilon` needs no delta for one release
            return relative[:, 0] / budget * (1 + SPARE)
        if varied:  # by `accountant.laplace_epsilon`: the sum of epsilons, or the zCDP total
            bare = np.array([bare_limit(epsilon, self.delta) for epsilon in budget.tolist()])
            summed = np.sqrt(count * (relative**2).sum(1)) / budget * (1 + SPARE)
            summed[budget > 2 * math.sqrt(count)] = np.inf
            return np.minimum(summed, laplace_scale(relative, bare))
        each = {epsilon: laplace_per_release(epsilon, self.delta, count) for epsilon in set(budget.tolist())}
        return relative[:, 0] / np.array([each[epsilon] for epsilon in budget.tolist()])

    def limits(self, clients: int, seed: int, planned: Any, each: Any) -> Any:
        """How much zCDP every client may pay: what its target allows, infinite without one.

        For Laplace noise and (epsilon, delta) that is what was planned, where the noise was calibrated for it; else as
        many releases as the exact accountant allows, where they cost the same `each`; or what any bare zCDP total may.
        """
        if self.rho is not None:
            return self.rhos(clients, seed) * (1 + ROUNDING)
        if self.epsilon is None:
            return np.full(clients, np.inf)
        epsilon = self.epsilons(clients, seed)
        if self.mechanism == "gaussian":
            return np.asarray(mu_of(epsilon, self.delta)) ** 2 / 2
        if planned is not None:
            return np.broadcast_to(planned, clients) * (1 + ROUNDING)
        bare = {budget: bare_limit(budget, self.delta) for budget in set(epsilon.tolist())}
        limits = np.array([bare[budget] for budget in epsilon.tolist()])
        if each is None:
            return limits
        pairs = list(zip(epsilon.tolist(), np.broadcast_to(each, clients).tolist()))
        counts = {pair: laplace_releases(*pair, self.delta) for pair in set(pairs)}
        return np.maximum(limits, [counts[pair] * pair[1] * (1 + ROUNDING) for pair in pairs])


# --- parts ----------------------------------------------------------------------------------------------------------


def check_amount(key: str, amount: Amount, least: float) -> None:
    """Numbers that are finite and not below the least, and a range that is one."""
    if amount is None:
        return
    if isinstance(amount, dict):
        for name, value in amount.items():
            check_amount(f"{key}.{name}", convert(float, value, f"{key}.{name}"), least)
        if not amount:
            raise BadInput(key, "(empty)", "a number for each client by name, or for others")
        return
    ends = (amount.low, amount.high) if isinstance(amount, Range) else amount
    values = np.atleast_1d(np.asarray(ends, float))
    good = (values <= LARGEST) & (values >= least)
    if not values.size or not good.all():
        shown = float(values[~good][0]) if values.size else "(empty)"
        raise BadInput(key, shown, f"a {'positive, ' if least else ''}finite number, at least {least:g}")
    if isinstance(amount, Range) and amount.low > amount.high:
        raise BadInput(key, f"{amount.low:g} to {amount.high:g}", "a range whose low end is not above its high end")


def amounts(amount: Any, key: str, clients: int, seed: int) -> Any:
    """Every client's own number."""
    if isinstance(amount, Range):
        draws = np.array([uniform(key_of(seed, k, 0), BUDGET) for k in range(clients)])
        return amount.low + (amount.high - amount.low) * draws
    if np.ndim(amount) and len(amount) != clients:
        raise BadInput(key, f"{len(amount)} numbers", f"one for each of the {clients} clients")
    return np.broadcast_to(np.asarray(amount, float), clients).copy()


def release_costs(law: int, sensitivities: Any, scales: Any) -> Any:
    """The zCDP of releases: `account.release_cost` on arrays."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(np.asarray(sensitivities) == 0, 0.0, np.asarray(sensitivities) / np.asarray(scales))
    if law == NONE:
        return np.full(ratio.shape, np.inf)
    return np.minimum(ratio**2 / 2, ratio) if law == LAPLACE else ratio**2 / 2


def laplace_scale(relative: Any, rho: Any) -> Any:
    """The scale at which Laplace releases cost rho in all; more noise costs less, so it is found by halving."""
    low, high = np.full(len(rho), 1e-12), (relative.sum(1) + 1) / np.minimum(rho, 1.0) * 4
    for _ in range(200):
        middle = np.sqrt(low * high)
        dear = release_costs(LAPLACE, relative, middle[:, None]).sum(1) > rho
        low, high = np.where(dear, middle, low), np.where(dear, high, middle)
    return high * (1 + SPARE)


def bare_limit(epsilon: float, delta: float) -> float:
    """The largest zCDP total that converts to at most (epsilon, delta), whatever it is made of."""
    low, high = 0.0, epsilon + 1.0
    while zcdp_epsilon(high, delta) <= epsilon:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if zcdp_epsilon(middle, delta) <= epsilon else (low, middle)
    return low


def laplace_releases(epsilon: float, cost: float, delta: float) -> int:
    """How many Laplace releases of this zCDP cost stay within (epsilon, delta)."""
    from archipel.privacy.accounting import record
    from archipel.privacy.releases import Laplace

    if not 0 < cost < math.inf:
        return 0
    one = record(Laplace(laplace_epsilon(cost)))

    def fits(count: int) -> bool:
        return (one * count).epsilon(delta).epsilon <= epsilon

    low, high = 0, 1
    while fits(high) and high < 1 << 20:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def laplace_epsilon(cost: float) -> float:
    """The pure epsilon of a Laplace release of this zCDP cost: min(e^2 / 2, e) the other way round."""
    return math.sqrt(2 * cost) if cost <= 2 else cost
