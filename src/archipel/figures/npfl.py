"""The figures of the thesis' chapter 6: thirty peers that learn for their cluster, and how much to borrow from others.

Thirty peers with six neighbours on average, three clusters, 60 parameters, rho = 3, five to 35 samples to learn from
and as many to validate tau on. The thesis gives neither lambda, the clients' noise nor tau at the start: the notes
print ours. Errors are (6.15) with both norms squared; a mean squared test error is in `numbers`. (6.6) is put right.
"""

from typing import Any

import numpy as np

from archipel.algorithms.npfl import Nfl, Npfl, NpflRl
from archipel.federation import Federation
from archipel.figures import Claim, Figure, Progress, Series
from archipel.figures.learning import SAME, Runs, all_of, better, end, level
from archipel.figures.personal import OURS, ClusterExperiment, curves, start, worse
from archipel.problems.clustered import Related, segments
from archipel.topology import Peers

GRAPH = Peers(mean_degree=6.0, clusters=3)
PROBLEM = Related(clients=30, spread=0.5, samples=(10, 70), noise=(0.1, 1.0))
RIDGE, PENALTY, FIRST = 0.01, 3.0, 0.05  # lambda is ours, as is tau at the start
ROUNDS, START, EVERY = 300, 50, 2
TAUS = (0.0, 0.05, 0.1, 0.2, 0.4)
BASE: dict[str, Any] = {"penalty": PENALTY, "regularisation": RIDGE, "validation": 0.5}
POLICIES = {
    "NPFL-RL (DPG)": NpflRl(policy="dpg", tau=FIRST, **BASE),
    "NPFL-BRL (DPG)": NpflRl(policy="dpg", tau=FIRST, epochs=3, **BASE),
    "NPFL-RL (SAC)": NpflRl(policy="sac", tau=FIRST, **BASE),
    "NPFL-BRL (SAC)": NpflRl(policy="sac", tau=FIRST, epochs=3, **BASE),
}


def experiment_of(quick: bool, progress: Progress | None) -> ClusterExperiment:
    """How much is simulated: the thesis averages ten experiments."""
    return ClusterExperiment(3 if quick else 10, progress)


def federation(algorithm: Any) -> Federation:
    """An algorithm in the thesis' setting."""
    return Federation(PROBLEM, algorithm, GRAPH, rounds=ROUNDS, every=EVERY)


def play(experiment: ClusterExperiment, algorithms: dict[str, Any]) -> dict[str, Runs]:
    return {label: experiment.play(label, federation(one)) for label, one in algorithms.items()}


def note(experiment: ClusterExperiment) -> str:
    """What the thesis does not say, and we chose."""
    low, high = PROBLEM.variances
    return (
        f"Ours, as the thesis does not say: λ = {RIDGE:g}, the clients' noise of variance {low:g} to {high:g}, τ = "
        f"{FIRST:g} at the start; {experiment.seeds} seeds. Errors are (6.15) with both norms squared."
    )


def drawn(
    name: str, title: str, runs: dict[str, Runs], claims: list[Claim], experiment: ClusterExperiment, algorithms: Any
) -> Figure:
    """Learning curves, with real test errors in the numbers."""
    figure = curves(f"npfl/{name}", title, list(runs.values()), [], claims, note(experiment))
    for label, algorithm in algorithms.items():
        test = experiment.play(label, federation(algorithm), "mse")
        figure.numbers[label]["test_mse_db"] = level(test, end)
    return figure


def figure_61(quick: bool, progress: Progress | None) -> Figure:
    """Thesis 6.1: learning curves of NFL and of NPFL for several fixed values of tau."""
    experiment = experiment_of(quick, progress)
    algorithms: dict[str, Any] = {"NFL": Nfl(**BASE)}
    algorithms |= {f"NPFL, τ = {tau:g}": Npfl(tau=tau, **BASE) for tau in TAUS}
    runs = play(experiment, algorithms)
    nfl, none, little, *more = runs.values()
    claims = [
        worse("NFL, one model for all, does not achieve satisfactory accuracy.", nfl, little, SAME),
        better("τ = 0.05 improves on τ = 0.", little, none, part=end),
        all_of(
            "As τ grows further, to 0.1, 0.2 and 0.4, the steady state becomes worse.",
            [worse("", second, first) for first, second in zip((little, *more), more)],
        ),
    ]
    return drawn("6.1", "peers, fixed inter-cluster learning", runs, claims, experiment, algorithms)


def figure_62(quick: bool, progress: Progress | None) -> Figure:
    """Thesis 6.2: learning curves of NPFL-RL and its batch form, with both policies."""
    experiment = experiment_of(quick, progress)
    algorithms: dict[str, Any] = {"NPFL, τ = 0.05": Npfl(tau=FIRST, **BASE), **POLICIES}
    runs = play(experiment, algorithms)
    fixed, dpg, batch_dpg, sac, batch_sac = runs.values()
    learned = (dpg, batch_dpg, sac, batch_sac)
    claims = [
        all_of(
            "All versions of NPFL-RL learn faster at first than NPFL with a fixed τ.",
            [better("", one, fixed, part=start(START)) for one in learned],
        ),
        all_of(
            "All versions of NPFL-RL have a better steady state than NPFL with a fixed τ.",
            [better("", one, fixed, part=end) for one in learned],
        ),
        better("SAC is more accurate than DPG.", sac, dpg, part=end),
        better("Batch reinforcement learning increases the accuracy of DPG.", batch_dpg, dpg, part=end),
        smoother("Batch reinforcement learning attenuates the randomness of SAC.", experiment),
    ]
    return drawn("6.2", "peers that learn how much to borrow", runs, claims, experiment, algorithms)


def smoother(claim: str, experiment: ClusterExperiment) -> Claim:
    """tau moves less from measurement to measurement, relative to how far it goes."""
    one, batch = (wander(experiment, POLICIES[name]) for name in ("NPFL-RL (SAC)", "NPFL-BRL (SAC)"))
    words = f"the path of a peer's τ is {one:.2f} times the way it goes, and {batch:.2f} times in batches"
    return Claim(claim, batch < one, words)


# --- tau itself -------------------------------------------------------------------------------------------------


def taus_of(experiment: ClusterExperiment, algorithm: Any) -> Any:
    """(seeds, peers, measurements): everyone's tau."""
    measured = experiment.measured("τ", federation(algorithm))
    return np.stack([measured[f"tau.node@{k}"].errors for k in range(PROBLEM.clients)], 1)


def wander(experiment: ClusterExperiment, algorithm: Any) -> float:
    """How long the path of tau is in how far it gets from where it began, a mean over peers and seeds."""
    taus = taus_of(experiment, algorithm)
    path, reach = np.abs(np.diff(taus)).sum(-1), np.ptp(taus, -1)
    return float(path.sum() / np.maximum(reach.sum(), 1e-12))


def data_of(experiment: ClusterExperiment) -> Any:
    """(seeds, peers): how many samples each peer learns from."""
    setups = [federation(POLICIES["NPFL-RL (SAC)"]).setup(1 + i) for i in range(experiment.seeds)]
    return np.stack([segments(setup.task)[0][0].sizes // 2 for setup in setups])


def figure_63(quick: bool, progress: Progress | None) -> Figure:
    """Thesis 6.3: tau of three peers, with much, some and little data, over time."""
    experiment = experiment_of(quick, progress)
    sizes, third = data_of(experiment), PROBLEM.clients // 3
    series: dict[str, Series] = {}
    rounds = np.arange(0.0, ROUNDS + 1, EVERY)
    order = np.argsort(sizes[0], kind="stable")
    chosen = {"much": order[-1], "some": order[PROBLEM.clients // 2], "little": order[0]}
    taus = {name: taus_of(experiment, POLICIES[f"NPFL-RL ({name})"]) for name in ("SAC", "DPG")}
    for name, every in taus.items():
        for amount, k in chosen.items():
            series[f"{name}, {amount} data ({sizes[0, k]} samples)"] = (
                rounds.tolist(),
                [float(tau) for tau in every[0, k]],
            )
    ranks = np.argsort(np.argsort(sizes, 1, kind="stable"), 1)
    groups = {"little": ranks < third, "some": (ranks >= third) & (ranks < 2 * third), "much": ranks >= 2 * third}
    means = {amount: taus["SAC"][who].mean(0) for amount, who in groups.items()}
    claims = [
        Claim(
            "DPG is smooth, SAC moves at random.",
            wander(experiment, POLICIES["NPFL-RL (DPG)"]) < wander(experiment, POLICIES["NPFL-RL (SAC)"]),
            f"the path of τ is {wander(experiment, POLICIES['NPFL-RL (DPG)']):.2f} (DPG) and "
            f"{wander(experiment, POLICIES['NPFL-RL (SAC)']):.2f} times (SAC) the way it goes",
        ),
        Claim(
            "DPG fails to adapt quickly.",
            bool(np.ptp(taus["DPG"], -1).mean() < np.ptp(taus["SAC"], -1).mean()),
            f"τ moves by {np.ptp(taus['DPG'], -1).mean():.3f} (DPG) and {np.ptp(taus['SAC'], -1).mean():.3f} (SAC)",
        ),
        up_then_down("With little data τ increases at first and decreases later.", means["little"]),
        up_then_down("With some data τ increases at first and decreases later.", means["some"]),
        down("With much data τ decreases almost immediately and stays around 0.", means["much"]),
        Claim(
            OURS + "at the end, who has little data borrows more than who has much.",
            bool(means["little"][-1] > means["much"][-1]),
            f"mean τ {means['little'][-1]:.3f} with little, {means['some'][-1]:.3f} with some, "
            f"{means['much'][-1]:.3f} with much data",
        ),
    ]
    title = "what three peers borrow (the claims: thirds of all peers, SAC)"
    return Figure("npfl/6.3", title, series, claims, "iteration", "τ", note(experiment))


def up_then_down(claim: str, tau: Any) -> Claim:
    """It rises above where it began, and ends below its highest point."""
    top = int(np.argmax(tau))
    holds = 0 < top < len(tau) - 1 and tau[top] > tau[0] + 1e-3 and tau[-1] < tau[top] - 1e-3
    return Claim(claim, bool(holds), told(tau, top))


def down(claim: str, tau: Any) -> Claim:
    """It is lower after a tenth of the rounds, and ends near zero."""
    early, top = tau[len(tau) // 10], int(np.argmax(tau))
    return Claim(claim, bool(early < tau[0] and tau[-1] < 0.25 * tau[0]), told(tau, top))


def told(tau: Any, top: int) -> str:
    return (
        f"mean τ {tau[0]:.3f} at the start, at most {tau[top]:.3f} (iteration {EVERY * top}), {tau[-1]:.3f} at the end"
    )


FIGURES = {"6.1": figure_61, "6.2": figure_62, "6.3": figure_63}
ALIASES = {f"thesis/{name}": name for name in FIGURES}
