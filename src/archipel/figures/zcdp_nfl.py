"""The figures of the thesis' chapter 3: private learning among 50 peers without a server.

50 peers with 3 neighbours on average, 50 samples each of 8 features. The thesis gives neither the total budget, delta,
zeta, rho, eta nor the bound c1: the notes print ours. Errors are the thesis', the sum over peers of
||w_k - w_c||^2 / ||w_c||^2; every gradient is clipped to c1, where the thesis assumes the bound.

Budgets are accounted as in the thesis: zCDP by the corollary of theorem I, (epsilon, delta) by the rule for one round,
summed up. Both add Gaussian noise to the same step, so the comparison of the two compares accounting: dashed is what
either does when the ledger's exact arithmetic finds its noise.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from archipel.algorithms.zcdp_nfl import DpNfl, PAdmm, ZcdpGradNfl, ZcdpNfl
from archipel.federation import Federation
from archipel.figures import Claim, Figure, Progress
from archipel.figures.learning import (
    SAME,
    Runs,
    alike,
    all_of,
    all_seeds,
    better,
    decibels,
    end,
    gap,
    level,
    reaches,
    runs_of,
    step_between,
)
from archipel.figures.personal import OURS, curves, points
from archipel.privacy.policy import Privacy
from archipel.problems.networked import Regression
from archipel.topology import Peers

DELTA, ZETA, CLIP, ROUNDS = 1e-5, 0.96, 4.0, 200
TOTAL = 32.0  # epsilon of the learning curves
TOTALS, FEW_TOTALS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0), (4.0, 32.0, 256.0)
START = 50  # rounds that "initial convergence speed" is about
PENALTIES, STEPS = (2.0, 4.0, 8.0, 16.0), (0.03, 0.06, 0.12, 0.25, 0.5)
ADMM = ZcdpNfl(penalty=4.0, step=0.4, decay=0.25, proximal=False)
LEAST_ABSOLUTE = ZcdpNfl(penalty=4.0, step=1.0, decay=0.5)
GRADIENT = ZcdpGradNfl(step=0.2, decay=0.0)  # the conventional method has a constant step
KEPT: dict[tuple[Any, ...], Runs] = {}  # what was measured in this process
PAID: dict[tuple[Any, ...], float] = {}  # and what its ledger says, at most
ERRORS = "normalised error (dB)"


@dataclass(frozen=True)
class ZcdpNflExperiment:
    """Plays methods on one problem, each setting once."""

    problem: Regression
    seeds: int
    tries: int  # seeds of a search
    progress: Progress | None

    def federation(self, algorithm: Any, total: float = TOTAL, calibration: str = "corollary") -> Federation:
        """A method with a total budget; clipped but without noise where the total is infinite."""
        noise: dict[str, Any] = {"epsilon": total, "calibration": calibration} if total < math.inf else {"noise": 0.0}
        shaped: dict[str, Any] = {"schedule": "geometric", "zeta": ZETA} if total < math.inf else {}
        privacy = Privacy(**noise, **shaped, clip=CLIP, delta=DELTA, enforce=not isinstance(algorithm, PAdmm))
        return Federation(self.problem, algorithm, Peers(), privacy=privacy, rounds=ROUNDS, every=4)

    def play(self, label: str, algorithm: Any, seeds: int = 0, **budget: Any) -> Runs:
        """A method's runs."""
        federation, seeds = self.federation(algorithm, **budget), seeds or self.seeds
        key = (self.problem, algorithm, federation.privacy)
        if (*key, seeds) not in KEPT:
            result = all_seeds(federation, seeds, label, self.progress, theory={})
            KEPT[*key, seeds] = runs_of(result, label, algorithm.step or 0.0)["deviation"]
            PAID[key] = max(ledger["worst"]["epsilon"] or math.inf for ledger in result.ledgers)
        return replace(KEPT[*key, seeds], label=label)

    def paid(self, algorithm: Any, **budget: Any) -> float:
        """The epsilon that the ledger finds for a run that was played."""
        return PAID[self.problem, algorithm, self.federation(algorithm, **budget).privacy]

    def best(self, algorithm: Any, **budget: Any) -> Any:
        """The method with the penalty (of ADMM) or the step (of the subgradient method) that leaves least error."""
        if isinstance(algorithm, ZcdpGradNfl):
            tried = [replace(algorithm, step=step, decay=decay) for step in STEPS for decay in (0.0, 0.5)]
        else:
            tried = [replace(algorithm, penalty=penalty) for penalty in PENALTIES]
        found = [level(self.play("best of each", method, self.tries, **budget), end) for method in tried]
        return tried[found.index(min(found))]

    def matched(self, algorithm: Any, like: Any) -> Any:
        """The subgradient method with the step at which it starts as another, without noise, as the thesis tunes it."""
        wanted = self.start(like)
        step = step_between(0.01, 1.0, 7, lambda s: self.start(replace(algorithm, step=s)) <= wanted)
        return replace(algorithm, step=step)

    def start(self, algorithm: Any) -> float:
        """The mean of a noiseless learning curve in dB over the first rounds."""
        runs = self.play("equal start", algorithm, 1, total=math.inf)
        return float(decibels(runs.errors[:, runs.rounds <= START]).mean())


def experiment_of(problem: Regression, quick: bool, progress: Progress | None) -> ZcdpNflExperiment:
    return ZcdpNflExperiment(problem, 3 if quick else 20, 1 if quick else 4, progress)


# --- learning curves ------------------------------------------------------------------------------------------------


def figure_31a(quick: bool, progress: Progress | None) -> Figure:
    """Thesis 3.1(a): learning curves of private methods on the elastic net, without a server."""
    return nonsmooth("3.1a", "elastic net", experiment_of(Regression("elastic-net"), quick, progress), ADMM, "3.4.1: ")


def figure_32(quick: bool, progress: Progress | None) -> Figure:
    """Thesis 3.2: learning curves of private methods on least absolute deviation, without a server."""
    problem = experiment_of(Regression("least-absolute"), quick, progress)
    return nonsmooth("3.2", "least absolute deviation", problem, LEAST_ABSOLUTE, "3.4.2: ")


def nonsmooth(name: str, title: str, experiment: ZcdpNflExperiment, admm: ZcdpNfl, where: str) -> Figure:
    """zCDP-NFL, (epsilon, delta)-DP-NFL and the subgradient method at one total budget."""
    rule = DpNfl(**vars(admm))
    zcdp, dp = experiment.play("zCDP-NFL", admm), experiment.play("(ε, δ)-DP-NFL", rule, calibration="exact")
    alike_start = experiment.matched(GRADIENT, admm)
    gradient = experiment.play("zCDP-grad-NFL", alike_start)
    exact = experiment.play("zCDP-NFL, exact accountant", admm, calibration="exact")
    best, best_gradient = (experiment.best(method, calibration="exact") for method in (admm, GRADIENT))
    own = experiment.play(f"zCDP-NFL, exact, best ρ = {best.penalty:g}", best, calibration="exact")
    label = f"zCDP-grad-NFL, exact, best step {best_gradient.step:g} / n^{best_gradient.decay:g}"
    own_gradient = experiment.play(label, best_gradient, calibration="exact")
    free = experiment.play("zCDP-NFL, without noise", admm, total=math.inf)
    free_gradient = experiment.play("zCDP-grad-NFL, without noise", alike_start, total=math.inf)
    claims = [
        better(where + "ADMM significantly outperforms the subgradient-based algorithm.", zcdp, gradient, SAME, end),
        better(where + "zCDP allows for better accuracy than (ε, δ)-DP given the same budget.", zcdp, dp, part=end),
        same_mechanism(experiment, admm, rule, exact, dp),
        better(OURS + "without noise ADMM outperforms the subgradient method.", free, free_gradient, SAME, end),
        better(OURS + "at each method's own best, ADMM outperforms the subgradient method.", own, own_gradient, 0, end),
    ]
    added = [exact, own, own_gradient, free, free_gradient]
    told = note(experiment, admm, alike_start)
    return curves(f"zcdp-nfl/{name}", title, [zcdp, dp, gradient], added, claims, told, ERRORS)


def figure_33a(quick: bool, progress: Progress | None) -> Figure:
    """Thesis 3.3(a): learning curves of zCDP-NFL and P-ADMM on ridge regression, without a server."""
    experiment, where = experiment_of(Regression("ridge"), quick, progress), "3.4.3: "
    rule, exactly = DpNfl(**vars(ADMM)), PAdmm(penalty=ADMM.penalty)
    zcdp, admm = experiment.play("zCDP-NFL", ADMM), experiment.play("P-ADMM", exactly)
    dp = experiment.play("(ε, δ)-DP-NFL", rule, calibration="exact")
    steady = experiment.play("zCDP-NFL, constant step", replace(ADMM, decay=0.0))
    exact = experiment.play("zCDP-NFL, exact accountant", ADMM, calibration="exact")
    best, best_admm = (experiment.best(method, calibration="exact") for method in (ADMM, exactly))
    own = experiment.play(f"zCDP-NFL, exact, best ρ = {best.penalty:g}", best, calibration="exact")
    own_admm = experiment.play(f"P-ADMM, exact, best ρ = {best_admm.penalty:g}", best_admm, calibration="exact")
    claims = [
        better(where + "zCDP-NFL slightly outperforms P-ADMM on smooth objectives.", zcdp, admm, part=end),
        all_of(
            where + "this better performance is due to the time-varying step size.",
            [better("", zcdp, steady, part=end), reaches("", admm, steady, part=end)],  # without it nothing is left
        ),
        same_mechanism(experiment, ADMM, rule, exact, dp),
        better(OURS + "at each method's own best penalty zCDP-NFL outperforms P-ADMM.", own, own_admm, part=end),
    ]
    text = note(experiment, ADMM) + " P-ADMM's bound c1 cannot be enforced: its guarantee is assumed."
    added = [dp, steady, exact, own, own_admm]
    return curves("zcdp-nfl/3.3a", "ridge regression", [zcdp, admm], added, claims, text, ERRORS)


def same_mechanism(experiment: ZcdpNflExperiment, admm: Any, rule: Any, exact: Runs, dp: Runs) -> Claim:
    """What remains of the comparison of zCDP with (epsilon, delta) when one accountant finds the noise of both."""
    # Given the noise that spends the whole budget, the (epsilon, delta) method is this run, draw by draw.
    again = experiment.play("(ε, δ)-DP-NFL, exact accountant", ZcdpNfl(**vars(rule)), calibration="exact")
    found = alike(OURS + "re-run under one accountant, zCDP and (ε, δ)-DP do not differ.", exact, again, part=end)
    published, wasteful = experiment.paid(admm), experiment.paid(rule, calibration="exact")
    words = f"; as published they state ε = {TOTAL:g} but really pay {published:.3g} and {wasteful:.3g}"
    difference = gap(end(dp), end(exact))[0]
    return replace(found, measured=found.measured + words + f", and accounting alone is worth {difference:.1f} dB")


# --- trade-offs -----------------------------------------------------------------------------------------------------


def figure_31b(quick: bool, progress: Progress | None) -> Figure:
    """Thesis 3.1(b): error after 200 rounds against the total privacy loss, elastic net."""
    experiment = experiment_of(Regression("elastic-net"), quick, progress)
    rule, gradient = DpNfl(**vars(ADMM)), experiment.matched(GRADIENT, ADMM)
    totals = FEW_TOTALS if quick else TOTALS
    exactly: dict[str, Any] = {"calibration": "exact"}
    best_steps = {t: experiment.best(GRADIENT, total=t, **exactly) for t in totals}
    series = {
        "zCDP-NFL": [experiment.play("zCDP-NFL", ADMM, total=t) for t in totals],
        "(ε, δ)-DP-NFL": [experiment.play("(ε, δ)-DP-NFL", rule, total=t, **exactly) for t in totals],
        "zCDP-grad-NFL": [experiment.play("zCDP-grad-NFL", gradient, total=t) for t in totals],
        "zCDP-NFL, exact accountant": [experiment.play("exact", ADMM, total=t, **exactly) for t in totals],
        "zCDP-grad-NFL, exact, best step": [experiment.play("best", best_steps[t], total=t, **exactly) for t in totals],
    }
    zcdp, dp, grad, exact, best = series.values()
    claims = [
        for_all("3.4.1: for various total privacy losses zCDP is more accurate than (ε, δ)-DP.", totals, zcdp, dp),
        for_all(OURS + "zCDP-NFL is more accurate than the subgradient method, for all totals.", totals, zcdp, grad),
        for_all(
            OURS + "and than the subgradient method at its best step, both accounted exactly.", totals, exact, best
        ),
    ]
    return trade_off("3.1b", "elastic net", totals, series, 3, claims, note(experiment, ADMM, gradient))


def figure_33b(quick: bool, progress: Progress | None) -> Figure:
    """Thesis 3.3(b): error after 200 rounds against the total privacy loss, ridge regression."""
    experiment = experiment_of(Regression("ridge"), quick, progress)
    totals, exactly = FEW_TOTALS if quick else TOTALS, PAdmm(penalty=ADMM.penalty)
    series = {
        "zCDP-NFL": [experiment.play("zCDP-NFL", ADMM, total=t) for t in totals],
        "P-ADMM": [experiment.play("P-ADMM", exactly, total=t) for t in totals],
        "zCDP-NFL, best ρ": [experiment.play("best", experiment.best(ADMM, total=t), total=t) for t in totals],
        "P-ADMM, best ρ": [experiment.play("best", experiment.best(exactly, total=t), total=t) for t in totals],
    }
    zcdp, admm, best, best_admm = series.values()
    claims = [
        for_all("3.4.3: zCDP-NFL outperforms P-ADMM for all total privacy losses.", totals, zcdp, admm),
        for_all(OURS + "also where each has its own best penalty.", totals, best, best_admm),
    ]
    text = note(experiment, ADMM) + " P-ADMM's bound c1 cannot be enforced: its guarantee is assumed."
    return trade_off("3.3b", "ridge regression", totals, series, 2, claims, text)


def for_all(claim: str, totals: tuple[float, ...], first: list[Runs], second: list[Runs]) -> Claim:
    """The first is better at every total budget."""
    parts = [better("", a, b, part=end) for a, b in zip(first, second)]
    measured = [f"ε = {total:g}: {gap(end(a), end(b))[0]:+.1f} dB" for total, a, b in zip(totals, first, second)]
    return Claim(claim, all_of("", parts).holds, "; ".join(measured))


# --- how they are shown ---------------------------------------------------------------------------------------------


def trade_off(
    name: str, title: str, totals: Any, series: dict[str, list[Runs]], shown: int, claims: list[Claim], text: str
) -> Figure:
    """Final errors over total budgets."""
    found = {label: points(totals, row) for label, row in series.items()}
    dashed, x = tuple(found)[shown:], "total privacy loss ε"
    y = f"normalised error after {ROUNDS} iterations (dB)"
    return Figure(f"zcdp-nfl/{name}", title, found, claims, x, y, text, logx=True, dashed=dashed)


def note(experiment: ZcdpNflExperiment, admm: ZcdpNfl, gradient: ZcdpGradNfl | None = None) -> str:
    """What the thesis does not say, and we chose."""
    noise, seeds = experiment.problem.noise, experiment.seeds
    chosen = f"δ = {DELTA:g}, ζ = {ZETA:g}, gradients clipped to {CLIP:g}, T = {ROUNDS}, noise on y {noise:g}"
    methods = f"ADMM with ρ = {admm.penalty:g} and η = {admm.step:g} / n^{admm.decay:g}"
    if gradient is not None:
        methods += f", the subgradient method with step {gradient.step:.2g} / n^{gradient.decay:g} (the same start)"
    return f"Ours, as the thesis does not say: ε = {TOTAL:g} for learning curves, {chosen}; {methods}; {seeds} seeds."


FIGURES = {"3.1a": figure_31a, "3.1b": figure_31b, "3.2": figure_32, "3.3a": figure_33a, "3.3b": figure_33b}
ALIASES = {f"thesis/{name}": name for name in FIGURES}
