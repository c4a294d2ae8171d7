"""How much noise a client adds whose budget is its own, where batches of records are drawn in secret.

Chen et al., ICASSP: personalised local differential privacy. Where the paper has theorem 1, an order of
growth without a constant, here is a numerical accountant, for the number of times that a client is likely to
take part; and where it allows the budget to be exceeded with probability delta''', here the ledger refuses:
the guarantee is hard.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from archipel.errors import BadInput
from archipel.privacy.accountant import Paid, written
from archipel.privacy.accounting import EXACT, History, record
from archipel.privacy.bounding import Bounds
from archipel.privacy.calibration import SPARE, gaussian_budget, participations, participations_by_lemma_1
from archipel.privacy.ledger import ASSUMED, ENFORCED, Assumption, Charge, EpsilonBudget, Ledger, Terms
from archipel.privacy.policy import Privacy, Range, amounts
from archipel.privacy.releases import LARGEST, Gaussian, Laplace, Relation, Release, Sampled, as_json, from_json

CLOSE = 0.001  # how far below epsilon, relatively, the noise may leave us
NOTHING_YET = History()
EPSILONS, DELTAS = (1e-3, 1e4), (1e-14, 0.1)  # beyond which a loss distribution is too fine, too wide, or rounding
LOWEST = 7.0  # of log mu below a first guess: a thousand times the noise, and nothing said but noise
MOST_EACH = 500.0  # epsilon of a Laplace release: e^710 is too large for a double


# --- how often a client takes part --------------------------------------------------------------------------


def takes_part(chance: Any, draws: int) -> Any:
    """The probability to be drawn at least once in a round of K draws: 1 - (1 - q_i)^K."""
    return -np.expm1(draws * np.log1p(-np.asarray(chance, float)))


def by_binomial(rounds: int, draws: int, chance: Any, excess: float) -> Any:
    """The exact quantile of Binomial(R, 1 - (1 - q_i)^K): a client that is drawn twice answers once."""
    return np.maximum(participations(rounds, takes_part(chance, draws), excess), 1)


def by_lemma_1(rounds: int, draws: int, chance: Any, excess: float) -> Any:
    """Lemma 1, (4): a bound for the number of draws, not of rounds; k is not given, see `calibration`."""
    printed = participations_by_lemma_1(rounds * draws, chance, excess)
    return np.maximum(np.ceil(printed), 1).astype(int)


def by_all(rounds: int, draws: int, chance: Any, excess: float) -> Any:
    """K R times: as if every draw fell on the client."""
    return np.full(np.shape(chance), rounds * draws)


COUNTS: dict[str, Callable[..., Any]] = {"binomial": by_binomial, "lemma-1": by_lemma_1, "all": by_all}


# --- budgets that are quick to check ------------------------------------------------------------------------

UPPER = "privacy loss distributions, rounded up: an upper bound within 0.1 %"
COARSE = 1000  # grid points for an epsilon: an upper bound of it, up to 0.1 % above the finest


@lru_cache(maxsize=16384)
def quick_epsilon(history: History, budget: float, delta: float) -> float:
    """An upper bound of a history's epsilon, close where it is near the budget."""
    if history.all_gaussian:
        return history.epsilon(delta).epsilon
    from archipel.privacy.loss_distribution import composed

    return float(composed(history, budget / COARSE).get_epsilon_for_delta(delta))


@dataclass(frozen=True)
class PersonalBudget(EpsilonBudget):
    """A budget that errs by a hair on the safe side and answers in a tenth of a second, for sampled releases."""

    def allows(self, history: History) -> bool:
        return quick_epsilon(history, self.epsilon, self.delta) <= self.epsilon


# --- how much noise that takes ------------------------------------------------------------------------------


def release_of(mu: float, rate: float, relation: Relation) -> Release:
    """One noised sum over records, each taken with probability `rate`; over all of them at rate 1."""
    return Sampled(rate, Gaussian(mu), relation) if rate < 1 else Gaussian(mu)


def roughly_affordable_mu(epsilon: float, delta: float, releases: int, rate: float) -> float:
    """mu by the central limit theorem, mu_total = rate sqrt(releases (exp(mu^2) - 1)): near, but no promise.

    Bu, Dong, Long, Su: Deep learning with Gaussian differential privacy, 2020.
    """
    total = float(gaussian_budget(epsilon, delta))
    return min(math.sqrt(math.log1p((total / rate) ** 2 / releases)), 1e3)


@lru_cache(maxsize=4096)
def affordable_mu(
    epsilon: float, delta: float, releases: int, rate: float, relation: Relation, before: History = NOTHING_YET
) -> float:
    """The largest mu = sensitivity / sigma at which `releases` more stay within (epsilon, delta); 0 if none does.

    `before` is what was paid already. Regula falsi on log epsilon as a function of log mu.
    """
    check_promise(epsilon, delta, releases, rate)
    if not PersonalBudget(epsilon, delta).allows(before):
        return 0.0
    if rate == 1 and before.all_gaussian:
        total = float(gaussian_budget(epsilon, delta))
        return math.sqrt(max(total**2 - before.mu() ** 2, 0.0) / releases) * (1 - SPARE)

    def excess(log_mu: float) -> float:
        history = before + record(release_of(math.exp(log_mu), rate, relation)) * releases
        return math.log(max(quick_epsilon(history, epsilon, delta) / epsilon, 1e-6))

    return math.exp(zero_of(excess, math.log(roughly_affordable_mu(epsilon, delta, releases, rate))))


def sampled_laplace(epsilon: float, rate: float) -> Release:
    """As `release_of`, with Laplace noise; a record that is added or removed."""
    return Sampled(rate, Laplace(epsilon), "add-remove") if rate < 1 else Laplace(epsilon)


@lru_cache(maxsize=4096)
def affordable_epsilon(epsilon: float, delta: float, releases: int, rate: float) -> float:
    """The largest epsilon of each of `releases` Laplace releases that together stay within (epsilon, delta).

    It starts where the epsilons of sampled releases, log(1 + rate (e^each - 1)), add up.
    """
    check_promise(epsilon, delta, releases, rate)
    if epsilon > MOST_EACH * releases:
        raise BadInput("epsilon", epsilon, f"at most {MOST_EACH * releases:g}, for {releases} Laplace releases")

    def excess(log_each: float) -> float:
        history = record(sampled_laplace(math.exp(log_each), rate)) * releases
        return math.log(max(quick_epsilon(history, epsilon, delta) / epsilon, 1e-6))

    return math.exp(zero_of(excess, math.log(math.log1p(math.expm1(epsilon / releases) / rate))))


def check_promise(epsilon: float, delta: float, releases: int, rate: float) -> None:
    """Refuse a budget that is none, or none that can be computed, and a plan without releases."""
    EpsilonBudget(epsilon, delta)
    check_reach(epsilon, delta, rate)
    if releases < 1:
        raise BadInput("releases", releases, "at least one release to plan for")


def check_reach(epsilon: float, delta: float, rate: float, keys: tuple[str, str] = ("epsilon", "delta")) -> None:
    """Refuse a budget out of the accountant's reach: where batches are sampled, its numbers are a grid's."""
    if not 0 < epsilon <= LARGEST:
        raise BadInput(keys[0], epsilon, f"a positive number, at most {LARGEST:g}")
    for key, value, (least, most) in zip(keys, (epsilon, delta), (EPSILONS, DELTAS)):
        if rate < 1 and not least <= value <= most:
            raise BadInput(key, value, f"a number from {least:g} to {most:g}, where batches are sampled")


def zero_of(function: Callable[[float], float], start: float) -> float:
    """A point at which an increasing function is at most 0, and above -CLOSE; -inf where that is too low."""
    low, high = (-math.inf, math.nan), (math.inf, math.nan)
    at, stride = start, 0.01
    for _ in range(60):
        value = function(at)
        if -CLOSE <= value <= 0:
            return at
        low, high = ((at, value), high) if value < 0 else (low, (at, value))
        if math.isinf(low[0]) or math.isinf(high[0]):
            stride = max(2 * stride, min(0.5, abs(value)))
            at += math.copysign(stride, -value)
            if at < start - LOWEST:
                return -math.inf
        else:
            share = min(max((-0.4 * CLOSE - low[1]) / (high[1] - low[1]), 0.05), 0.95)
            at = low[0] + share * (high[0] - low[0])
            if high[0] - low[0] < 1e-4:
                return low[0]
    return low[0]


def saved_noise(epsilon: float, delta: float, rate: float, counts: tuple[int, int], steps: int) -> float:
    """By how much sigma is smaller for counts[0] participations of `steps` releases than for counts[1]."""
    few, many = (affordable_mu(epsilon, delta, count * steps, rate, "add-remove") for count in counts)
    return 1 - many / few


# --- what everyone has paid ---------------------------------------------------------------------------------


def personal_ledger(name: str, budget: float, delta: float, relation: str, clip: float) -> Ledger:
    """An empty ledger: one record of a client, added or removed, or replaced."""
    held: tuple[Assumption, ...] = (
        Assumption(f"each example's gradient has norm at most {clip:g}", ENFORCED),
        Assumption("the records of a batch are drawn in secret, each by itself", ENFORCED),
    )
    if relation == "add-remove":  # the server weighs by these numbers; replacing a record leaves them as they are
        held += (Assumption("everyone's number of samples is public", ASSUMED),)
    terms = Terms("sample", relation, held)  # type: ignore[arg-type]
    return Ledger(name, terms, PersonalBudget(float(budget), delta))


class PersonalLedgers(NamedTuple):
    """The clients' own ledgers, as a run reads them: see `accountant.Accountant`."""

    ledgers: list[Ledger]
    delta: float
    role: str = "client"

    @property
    def terms(self) -> Terms:
        return self.ledgers[0].terms

    def assuming(self, further: tuple[str, ...]) -> "PersonalLedgers":
        """The same ledgers, resting on more that nobody enforces."""
        for ledger in self.ledgers:
            ledger.terms = ledger.terms.assuming(further)
        return self

    def state(self) -> list[Any]:
        """Everyone's charges, for a checkpoint."""
        return [[(c.round, as_json(c.release), c.times) for c in ledger.charges] for ledger in self.ledgers]

    def restore(self, state: list[Any]) -> None:
        """Ledgers with these charges."""
        for k, (old, entries) in enumerate(zip(self.ledgers, state)):
            charges = [Charge(n, from_json(release), times) for n, release, times in entries]
            self.ledgers[k] = Ledger(old.node, old.terms, old.budget, charges)

    def budgets(self) -> list[float]:
        return [ledger.budget.epsilon for ledger in self.ledgers]  # type: ignore[union-attr]

    def paid(self, tables: Any = None) -> Paid:
        """What was paid so far; the zCDP total is without the amplification by sampling."""
        histories = [ledger.history() for ledger in self.ledgers]
        epsilon = [quick_epsilon(h, budget, self.delta) for h, budget in zip(histories, self.budgets())]
        rho, releases = np.array([h.rho() for h in histories]), np.array([h.releases for h in histories])
        how = [EXACT if h.all_gaussian else UPPER for h in histories]
        return Paid(rho, releases, np.array(epsilon), np.array(how, object))

    def forecast(self) -> Paid:
        """What will have been paid at most: nobody pays more than its budget."""
        count = len(self.ledgers)
        rho = np.array([ledger.budget.gaussian_rho() for ledger in self.ledgers])  # type: ignore[union-attr]
        how = np.full(count, "the budget, at which the ledger refuses", object)
        return Paid(rho, np.zeros(count, int), np.array(self.budgets()), how)

    def limit(self, value: float) -> EpsilonBudget:
        """What a number is a budget of."""
        return EpsilonBudget(value, self.delta)

    def name(self, k: int) -> str:
        return self.ledgers[k].node

    def ledger(self, tables: Any, over_time: list[tuple[int, Paid]]) -> dict[str, Any]:
        """The whole of ledger.json."""
        return written(self, self.paid(), over_time)

    def outlook(self) -> dict[str, Any]:
        """What ledger.json will say at most."""
        return written(self, self.forecast(), [])


def drawn_budgets(budgets: tuple[float, ...], clients: int, seed: int) -> Any:
    """Every client's epsilon: its own, or drawn between two."""
    given = np.asarray(budgets, float)
    if not (np.isfinite(given) & (given > 0)).all():
        raise BadInput("algorithm.budgets", budgets, "positive, finite budgets")
    if len(given) == clients:
        return given
    if len(given) != 2 or given[0] > given[1]:
        right = f"a range (least, most), or {clients} numbers, one for each client"
        raise BadInput("algorithm.budgets", budgets, right)
    return amounts(Range(*given), "algorithm.budgets", clients, seed)


def promised(privacy: Privacy, clients: int, seed: int) -> dict[str, Any]:
    """What a `[privacy]` table says in place of an algorithm's own keys: budgets, delta, relation and clip."""
    refused = (
        ("epsilon", privacy.epsilon is not None, "a number, a list, or a range { low, high }"),
        ("mechanism", privacy.mechanism == "gaussian", '"gaussian"'),
        ("noise", privacy.noise is None, "nothing: it follows from everyone's epsilon"),
        ("schedule", privacy.schedule == "constant", '"constant"'),
        ("unit", privacy.unit == "sample", '"sample"'),
        ("bounds", privacy.bounds == Bounds(), "nothing: each example's gradient is clipped"),
        ("enforce", privacy.enforce, "true"),
        ("calibration", privacy.calibration == "exact", '"exact"'),
    )
    for key, fits, right in refused:
        if not fits:
            raise BadInput(f"privacy.{key}", getattr(privacy, key), right)
    budgets = amounts(privacy.epsilon, "privacy.epsilon", clients, seed)
    clip = {"clip": privacy.clip} if math.isfinite(privacy.clip) else {}
    return {"budgets": tuple(budgets), "delta": privacy.delta, "relation": privacy.relation, **clip}
