"""The figures of the PLDP-FL paper (Chen et al., ICASSP): three ways to sample clients with personal budgets.

The paper gives neither delta, lambda, C, the widths of its CNN nor the power law of its clients' sizes: the
figure's note prints ours. Every sampling has the same pre-training, the same data and the same budgets in a
seed, so differences are taken seed by seed.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from archipel.algorithms.pldp_fl import PldpFl
from archipel.errors import Missing
from archipel.federation import Federation
from archipel.figures import Claim, Figure, Progress
from archipel.figures.learning import all_seeds, interval
from archipel.privacy.personal import by_all, saved_noise
from archipel.problems.datasets.catalogue import known
from archipel.problems.datasets.images import load
from archipel.problems.deep import Deep
from archipel.theory.pldp import Course, convergence_bound, noise_scale, out_of_order

SAMPLINGS = ("optimal", "uniform", "weight")
# small, with what suits clipped gradients; the mean and deviation of MNIST's pixels are everybody's knowledge
NETWORK: dict[str, Any] = {"model": "cnn", "activation": "tanh", "shrink": 2, "center": 0.13, "spread": 0.31}
GAIN = 0.05  # "a 5 percent increase in test accuracy"
SMOOTHNESS = 1.0  # L of (5): it scales both terms that depend on q, so that the order is the same for any


@dataclass(frozen=True)
class Trial:
    """An experiment: what is learned, by whom, how often it is repeated."""

    problem: Deep
    algorithm: PldpFl
    rounds: int
    seeds: int
    every: int
    note: str = ""


@dataclass(frozen=True, eq=False)
class Runs:
    """One sampling's runs."""

    rounds: list[float]
    accuracy: Any  # (seeds, measurements)
    loss: Any
    node: dict[str, Any]  # metric -> (seeds, clients), at the end
    ledgers: list[Any]

    def final(self) -> Any:
        """Every seed's accuracy at the end."""
        return self.accuracy[:, -1]


# --- the experiments ----------------------------------------------------------------------------------------


def mnist_trial(quick: bool) -> Trial:
    """10 clients, K = 3, R = 70, E = 5, batches of 512, budgets from 16 to 32; 5 seeds where the paper has 20."""
    name, note = at_hand(("mnist", "digits"), download=not quick)
    if name == "digits":
        problem = Deep("digits", model="cnn", activation="tanh", split="unbalanced", clients=6, power=0.5)
        return Trial(problem, PldpFl(batch=32), 30 if quick else 70, 3 if quick else 5, 10, note)
    problem = Deep("mnist", split="unbalanced", **NETWORK)
    if quick:
        problem = replace(problem, samples=30_000, test=2_000)
        algorithm = PldpFl(batch=256, step=0.3)
        return Trial(problem, algorithm, 30, 2, 5, note + "Quick: 30,000 pictures, batches of 256. ")
    return Trial(problem, PldpFl(), 70, 5, 5, note)


def emnist_trial(quick: bool) -> Trial:
    """100 clients, K = 10, R = 70 on EMNIST by class; on MNIST where that is not at hand."""
    name, note = at_hand(("emnist-byclass", "mnist", "digits"), download=not quick)
    if name == "digits":
        problem = Deep("digits", model="cnn", activation="tanh", split="unbalanced", clients=20, power=0.5)
        return Trial(problem, PldpFl(batch=8, draws=4), 30 if quick else 70, 2 if quick else 5, 10, note)
    clients, draws = (20, 4) if quick else (100, 10)
    batch, seeds = 128 if name == "emnist-byclass" else 64, 2 if quick else 5
    problem = Deep(name, split="unbalanced", clients=clients, power=0.5, **NETWORK)
    if quick:
        problem = replace(problem, samples=30_000, test=2_000)
        note += "Quick: 20 clients, K = 4, 30,000 pictures. "
    return Trial(problem, PldpFl(batch=batch, draws=draws), 20 if quick else 70, seeds, 10 if not quick else 5, note)


def at_hand(names: tuple[str, ...], download: bool) -> tuple[str, str]:
    """The first of these sets that can be had, and a sentence about those that cannot."""
    missing = ""
    for name in names:
        if known(name).available():
            return name, missing
        try:
            if download:
                load(name)
                return name, missing
            missing += f"The data set {name} is not on this machine: get it from {known(name).page}. "
        except Missing as reason:
            missing += f"{reason} "
    raise Missing(missing)


def played(trial: Trial, sampling: str, progress: Progress | None) -> Runs:
    """All seeds of one sampling."""
    algorithm = replace(trial.algorithm, sampling=sampling)
    federation = Federation(trial.problem, algorithm, rounds=trial.rounds, every=trial.every)
    result = all_seeds(federation, trial.seeds, f"{sampling} sampling", progress)
    table: dict[str, dict[int, dict[int, list[float]]]] = {}
    for seed, n, metric, value, _ in result.rows:
        table.setdefault(metric, {}).setdefault(seed, {}).setdefault(n, []).append(value)
    rounds = sorted(table["accuracy"][federation.seed])
    curves = {m: np.array([[by[n][0] for n in rounds] for by in table[m].values()]) for m in ("accuracy", "loss")}
    last = {m: np.array([by[rounds[-1]] for by in table[m].values()]) for m in table if m.endswith(".node")}
    return Runs(list(map(float, rounds)), curves["accuracy"], curves["loss"], last, result.ledgers)


# --- what is said of them -----------------------------------------------------------------------------------


def percent(values: Any) -> str:
    mean, half = interval(values)
    return f"{100 * mean:.1f} ± {100 * half:.1f} %"


def gain_claim(runs: dict[str, Runs]) -> Claim:
    """Five points over both baselines, beyond what the seeds leave open."""
    gains = {other: runs["optimal"].final() - runs[other].final() for other in ("uniform", "weight")}
    means = {other: interval(gain) for other, gain in gains.items()}
    holds = all(mean >= GAIN and mean > half for mean, half in means.values())
    levels = ", ".join(f"{name} {percent(runs[name].final())}" for name in SAMPLINGS)
    said = "; ".join(f"over {other} {percent(gain)}" for other, gain in gains.items())
    text = '"Our proposed sampling consistently achieved a 5 percent increase in test accuracy"'
    return Claim(text, holds, f"at the end: {levels} (95 % intervals); gain {said}")


def speed_claim(runs: dict[str, Runs]) -> Claim:
    """Higher accuracy in the same time: over the whole course."""
    means = {name: run.accuracy[:, 1:].mean(1) for name, run in runs.items()}
    gains = {other: means["optimal"] - means[other] for other in ("uniform", "weight")}
    holds = all(interval(gain)[0] - interval(gain)[1] > 0 for gain in gains.values())
    said = "; ".join(f"over {other} {percent(gain)}" for other, gain in gains.items())
    text = '"enhances convergence speed, reaching higher accuracy in the same limited time"'
    return Claim(text, holds, f"mean accuracy of all measurements, gain {said}")


def privacy_claim(runs: dict[str, Runs]) -> Claim:
    """Nobody pays more than its budget, and nobody is stopped early."""
    nodes = [node for run in runs.values() for ledger in run.ledgers for node in ledger["nodes"]]
    worst = max(node["spent"]["epsilon"] / node["budget"]["epsilon"] for node in nodes)
    stopped = sum(bool(run.node["stopped.node"][i].any()) for run in runs.values() for i in range(len(run.ledgers)))
    total = sum(len(run.ledgers) for run in runs.values())
    text = "privacy guarantees: no client's ledger exceeds its personal budget"
    return Claim(
        text, worst <= 1, f"at most {100 * worst:.1f} % of it; a client was stopped in {stopped} of {total} runs"
    )


def noise_claim(trial: Trial, runs: dict[str, Runs]) -> Claim:
    """The remark after theorem 1: less noise than for K R participations."""
    saved = []
    algorithm = trial.algorithm
    for sampling, run in runs.items():
        counts = Federation(trial.problem, replace(algorithm, sampling=sampling), rounds=trial.rounds)
        settings = counts.instance().plan.settings.protect
        chance = run.node["chance.node"][0]
        later = trial.rounds - algorithm.pretrain
        likely = settings.count(later, algorithm.draws, chance, settings.excess)
        everyone = int(by_all(later, algorithm.draws, 0.5, settings.excess))
        for k, ledger in enumerate(settings.ledgers[:10]):
            budget, rate = ledger.budget.epsilon, float(settings.rates[k])
            pair = (int(likely[k]), everyone)
            saved.append(saved_noise(budget, algorithm.delta, rate, pair, algorithm.local_steps))
    measured = f"{100 * np.mean(saved):.0f} % less on average, from {100 * min(saved):.0f} to {100 * max(saved):.0f} %"
    text = '"maintaining the same level of privacy guarantee with a smaller noise scale" than for K R participations'
    return Claim(text, min(saved) > 0, measured + " (exact binomial counts, delta''' = delta / 4; first seed)")


def theory_claims(trial: Trial, runs: dict[str, Runs]) -> list[Claim]:
    """Theorem 3's order, and that P2 minimises what of (5) depends on q, with the gradient norms of the runs."""
    disordered, best = 0, 0
    algorithm, draws = trial.algorithm, trial.algorithm.draws
    for i in range(trial.seeds):
        train = trial.problem.dealt(1 + i)[0]
        weight, rates = train.sizes / train.sizes.sum(), algorithm.batch / train.sizes
        budgets = [node["budget"]["epsilon"] for node in runs["optimal"].ledgers[i]["nodes"]]
        noise = noise_scale(budgets, rates, algorithm.delta, draws * trial.rounds)
        norms = runs["optimal"].node["norm.node"][i]
        chance = {name: runs[name].node["chance.node"][i] for name in SAMPLINGS}
        disordered += len(out_of_order(chance["optimal"], weight, norms, noise))
        # with this sensitivity (6) with our lambda is the part of (5) that depends on q
        scale = math.sqrt(algorithm.tradeoff / (algorithm.local_steps * math.sqrt(draws * trial.rounds)))
        course = Course(0.1, SMOOTHNESS, algorithm.local_steps, trial.rounds, draws, scale)
        bound = {n: convergence_bound(q, weight, norms, noise, course) for n, q in chance.items()}
        best += min(bound, key=bound.__getitem__) == "optimal"
    return [
        Claim("theorem 3: larger p G and p B, larger q", disordered == 0, f"{disordered} pairs out of order"),
        Claim("P2 gives the smallest bound (5) of the three", best == trial.seeds, f"{best} of {trial.seeds} seeds"),
    ]


def drawn(name: str, title: str, trial: Trial, progress: Progress | None) -> Figure:
    """Three samplings, side by side."""
    runs = {sampling: played(trial, sampling, progress) for sampling in SAMPLINGS}
    series = {f"{s}: accuracy": (run.rounds, run.accuracy.mean(0).tolist()) for s, run in runs.items()}
    series |= {f"{s}: loss": (run.rounds, run.loss.mean(0).tolist()) for s, run in runs.items()}
    numbers = {}
    for sampling, run in runs.items():
        mean, half = interval(run.final())
        numbers[f"{sampling}: accuracy"] = {
            "final": mean,
            "confidence_95": half,
            "seeds": float(trial.seeds),
            "least_asked": float(run.node["asked.node"].min()),
            "most_asked": float(run.node["asked.node"].max()),
        }
    claims = [gain_claim(runs), speed_claim(runs), privacy_claim(runs), noise_claim(trial, runs)]
    return Figure(
        name,
        title,
        series,
        claims + theory_claims(trial, runs),
        "round",
        "test accuracy, test loss",
        trial.note + printed(trial),
        dashed=tuple(label for label in series if label.endswith("loss")),
        numbers=numbers,
    )


def printed(trial: Trial) -> str:
    """What the paper does not give."""
    a, p = trial.algorithm, trial.problem
    step = a.step or 16 * (a.draws * trial.rounds) ** -0.75
    return (
        f"{p.dataset}, shrunk {p.shrink} times, CNN of widths {p.widths or (8, 16, 32)} with {p.activation}, "
        f"{p.clients} clients of "
        f"{p.fewest} to {p.most} labels, sizes by rank^-{p.power:g}; K = {a.draws}, R = {trial.rounds} of which "
        f"{a.pretrain} pre-training with everyone, E = {a.local_steps}, batch {a.batch} drawn in secret, step "
        f"{step:.3g}, C = {a.clip:g} per example, lambda = {a.tradeoff:g}, epsilon {a.budgets[0]:g} to "
        f"{a.budgets[1]:g}, delta = {a.delta:g}; {trial.seeds} seeds. Loss in dashes."
    )


def figure_3(quick: bool, progress: Progress | None) -> Figure:
    """Test accuracy and loss of three samplings, non-iid MNIST, 10 clients with budgets from 16 to 32."""
    return drawn("pldp/3", "personal budgets on MNIST", mnist_trial(quick), progress)


def figure_4(quick: bool, progress: Progress | None) -> Figure:
    """The same with 100 clients on EMNIST, or on MNIST where EMNIST is not at hand."""
    return drawn("pldp/4", "personal budgets, many clients", emnist_trial(quick), progress)


FIGURES = {"3": figure_3, "4": figure_4}
