"""Figures 5.1 and 5.2 of the dissertation: a CNN on MNIST, ten clients of three shards each, without a server.

Section 5.5 adds Laplace noise to a batch's gradient "with epsilon = 0.1", gives neither the sensitivity nor a
bound on gradients, and uses a fixed data set for 150 rounds: its epsilon is not that of the run. So beside it:
sound noise, for one record and the whole run at the same epsilon, on a directed graph that changes, with
push-sum; FedAvg with the same noise, which is an average of everyone; DP-FedAvg, which protects whole clients
and trusts its server; and no noise.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from archipel.algorithms.deep import DpFedAvgDeep, MirrorDeep, true_cost
from archipel.federation import Federation
from archipel.figures import Claim, Figure, Progress
from archipel.figures.learning import all_seeds, interval, runs_of
from archipel.figures.pldp import at_hand, percent
from archipel.problems.deep import Deep
from archipel.topology import Digraph, Star

PUBLISHED = "as published"
LAPLACE, GAUSSIAN = "sound, Laplace", "sound, Gaussian"
AVERAGE, CLIENTS = "FedAvg with the same Gaussian noise", "DP-FedAvg, whole clients"
EXACT, FREE = "as published, without noise", "without noise"
FIXED = Digraph(mean_degree=4.0)  # "a fixed graph network ... with an edge weight of 0.2": four others and itself
CHANGING = Digraph(mean_degree=4.0, phases=10, opt_out=0.1, window=4)
EVERYONE = Digraph("complete")
# bounded answers suit clipped gradients; the mean and deviation of MNIST's pixels are everybody's knowledge
NETWORK: dict[str, Any] = {"activation": "tanh", "center": 0.13, "spread": 0.31}
RATE = 0.01  # "the learning rate is 0.01"
STEPS = {0.1: (0.05, 0.2), 0.5: (0.1, 0.5)}  # of the sound forms, Laplace and Gaussian, by epsilon
CHANCE = 0.1  # ten digits
NEAR = 0.01  # a point below what was reported still counts


@dataclass(frozen=True)
class Trial:
    """What is learned, for how long, how often."""

    problem: Deep
    batch: int
    rounds: int
    seeds: int
    every: int
    note: str


@dataclass(frozen=True, eq=False)
class Course:
    """One method's runs: accuracy by (seed, measurement), and the largest epsilon of any ledger."""

    rounds: list[float]
    accuracy: Any
    paid: float

    def final(self) -> Any:
        return self.accuracy[:, -1]


def trial_of(quick: bool) -> Trial:
    """MNIST with pixels in fours and a smaller network, so that it takes minutes; digits where MNIST is not at hand.

    30 shards of equal size, three a client; a tenth is left out, as for the dissertation's validation.
    """
    name, note = at_hand(("mnist", "digits"), download=not quick)
    if name == "digits":
        problem = Deep("digits", split="shards", each=3, samples=1_200, **NETWORK)
        return Trial(problem, 32, 100 if quick else 150, 2 if quick else 5, 25, note)
    problem = Deep("mnist", split="shards", each=3, samples=54_000, shrink=2, test=2_000, **NETWORK)
    if quick:
        return Trial(replace(problem, test=1_000), 128, 100, 2, 25, note)
    return Trial(problem, 128, 150, 5, 25, note)


def methods(epsilon: float, batch: int) -> dict[str, tuple[Any, Any]]:
    """Algorithm and graph by name, in the order of the legend."""
    laplace, gaussian = STEPS[epsilon]
    published = MirrorDeep("published", "plain", epsilon, step=RATE, batch=batch)
    sound = MirrorDeep("gaussian", epsilon=epsilon, step=gaussian, batch=batch)
    return {
        PUBLISHED: (published, FIXED),
        LAPLACE: (replace(sound, noise="laplace", step=laplace), CHANGING),
        GAUSSIAN: (sound, CHANGING),
        AVERAGE: (sound, EVERYONE),
        CLIENTS: (DpFedAvgDeep(gaussian, batch, local_steps=1, epsilon=epsilon), Star()),
        EXACT: (replace(published, noise="none"), FIXED),
        FREE: (replace(sound, noise="none"), CHANGING),
    }


def played(trial: Trial, method: str, algorithm: Any, topology: Any, progress: Progress | None) -> Course:
    """All seeds of one method."""
    federation = Federation(trial.problem, algorithm, topology, rounds=trial.rounds, every=trial.every)
    result = all_seeds(federation, trial.seeds, method, progress)
    runs = runs_of(result, method)["accuracy"]
    paid = max((ledger["worst"]["epsilon"] for ledger in result.ledgers if ledger), default=np.inf)
    return Course(runs.rounds.astype(float).tolist(), runs.errors, paid)


# --- what is said of them -----------------------------------------------------------------------------------


def accuracy_claim(courses: dict[str, Course], reported: float) -> Claim:
    mean, _ = interval(courses[PUBLISHED].final())
    text = f'"the accuracy for the proposed online mirror descent algorithm is {100 * reported:.2f}%"'
    rest = (
        f"{percent(courses[PUBLISHED].final())}; without any noise {percent(courses[EXACT].final())} at the same rate"
    )
    return Claim(text, mean >= reported - NEAR, rest)


def better_claim(courses: dict[str, Course], first: str, others: tuple[str, ...], text: str) -> Claim:
    """Better than the others, beyond what the seeds leave open."""
    gains = {other: courses[first].final() - courses[other].final() for other in others}
    holds = all(interval(gain)[0] > interval(gain)[1] for gain in gains.values())
    said = "; ".join(f"{percent(gain)} over {other}" for other, gain in gains.items())
    return Claim(text, holds, said)


def cost_claim(cost: dict[str, float], epsilon: float, delta: float) -> Claim:
    """What the printed epsilon is worth."""
    least, most = (cost[f"epsilon of the run, truly, at {end}"] for end in ("least", "most"))
    known = cost["epsilon of the run, batches known, at least"]
    measured = (
        f"a record is used again and moves a gradient by 2, not 1: over the run it costs at least {least:.3g} where "
        f"batches are drawn in secret, {known:.3g} where they are known, and at most {most:.3g}, at delta = {delta:g}; "
        f"by L1 sensitivity a single round is only {cost['epsilon of a round, truly, at most']:.3g}-private"
    )
    return Claim(f'as published it "preserves {epsilon:g}-local differential privacy"', least <= epsilon, measured)


def ledger_claim(courses: dict[str, Course], epsilon: float) -> Claim:
    paid = {name: courses[name].paid for name in (LAPLACE, GAUSSIAN, AVERAGE)}
    said = ", ".join(f"{name} {value:.4g}" for name, value in paid.items())
    text = f"ours: with sound noise one record costs at most {epsilon:g} over the whole run"
    return Claim(text, max(paid.values()) <= epsilon, said)


def learns_claim(courses: dict[str, Course]) -> Claim:
    """More than guessing, beyond what the seeds leave open."""
    mean, half = interval(courses[GAUSSIAN].final())
    others = ", ".join(f"{name} {percent(courses[name].final())}" for name in (LAPLACE, AVERAGE, CLIENTS))
    return Claim(
        "ours: with sound Gaussian noise there is something learned",
        mean - half > CHANCE,
        f"{percent(courses[GAUSSIAN].final())}; {others}",
    )


def drawn(name: str, epsilon: float, reported: tuple[float, float], quick: bool, progress: Progress | None) -> Figure:
    """All methods at one epsilon; `reported` are the dissertation's accuracies of FedAvg and of its own."""
    trial, courses = trial_of(quick), {}
    ways = methods(epsilon, trial.batch)
    for method, (algorithm, topology) in ways.items():
        courses[method] = played(trial, method, algorithm, topology, progress)
    task = trial.problem.task(1, trial.rounds, np.float32, "deep")
    samples = int(np.diff(task.source.starts).min())
    cost = true_cost(ways[PUBLISHED][0], task.size, samples, trial.rounds)
    text = f'"the proposed algorithm is better than the benchmark" ({100 * reported[0]:.2f}% for FedAvg with privacy)'
    claims = [
        accuracy_claim(courses, reported[1]),
        better_claim(courses, PUBLISHED, (CLIENTS, AVERAGE), text),
        cost_claim(cost, epsilon, ways[PUBLISHED][0].delta),
        ledger_claim(courses, epsilon),
        learns_claim(courses),
    ]
    numbers = {}
    for method, course in courses.items():
        mean, half = interval(course.final())
        numbers[method] = {"final": mean, "confidence_95": half, "epsilon": course.paid, "step": ways[method][0].step}
    return Figure(
        name,
        f"CNN on MNIST among ten peers, epsilon {epsilon:g}",
        {method: (course.rounds, course.accuracy.mean(0).tolist()) for method, course in courses.items()},
        claims,
        "round",
        "test accuracy, mean over peers",
        trial.note + printed(trial, task.size, epsilon),
        dashed=(EXACT, FREE),
        numbers=numbers | {"true cost": cost},
    )


def printed(trial: Trial, size: int, epsilon: float) -> str:
    """What is smaller than in section 5.5, and what that does not give."""
    p, (laplace, gaussian) = trial.problem, STEPS[epsilon]
    return (
        f"{p.dataset}, shrunk {p.shrink} times, CNN of 5.5's shape with widths (8, 16, 32) and tanh, {size:,} "
        f"parameters, where 5.5 has (32, 64, 512) and ReLU; 10 clients of 3 shards, one batch of {trial.batch} a "
        f"round, {trial.rounds} rounds, {trial.seeds} seeds. As published: rate {RATE:g}, gradients of norm 1 at "
        f"most, Laplace(1 / epsilon), "
        f"mixing by (5.13) on a fixed directed graph of degree 4. Sound: batches drawn in secret, each example "
        f"clipped to 1, epsilon = {epsilon:g} and delta = 1e-5 for a record over all rounds, step {laplace:g} "
        f"(Laplace) and {gaussian:g} (Gaussian), push-sum on {CHANGING.phases} directed graphs in turn, a tenth of "
        f"the clients away."
    )


def figure_5_1(quick: bool, progress: Progress | None) -> Figure:
    """Test accuracy of private mirror descent among peers and of DP-FedAvg, epsilon 0.1: published and sound noise."""
    return drawn("dissertation/5.1", 0.1, (0.9147, 0.9328), quick, progress)


def figure_5_2(quick: bool, progress: Progress | None) -> Figure:
    """Test accuracy of private mirror descent among peers and of DP-FedAvg, epsilon 0.5: published and sound noise."""
    return drawn("dissertation/5.2", 0.5, (0.9259, 0.9401), quick, progress)


FIGURES = {"5.1": figure_5_1, "5.2": figure_5_2}
