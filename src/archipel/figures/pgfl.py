"""The figures of the PGFL article (section V; thesis, chapter 5): clusters of clients across a graph of servers.

Ten servers with fifteen clients each, a random connected graph of mean degree three, three clusters, 60 parameters, two
to nine samples a client. The article gives neither rho, lambda, the observation noise nor the bound C_k on gradients:
the notes print ours. Solid lines are (8) to (10) as published; dashed ones are what we add, such as the exact form.
A quick figure leaves the exact form out, which would have to be compiled too. Figures 8 to 12 are in `pgfl_pictures`.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from archipel.algorithms.pgfl import ClusterFl, Gfl, Pgfl
from archipel.federation import Federation
from archipel.figures import Claim, Figure, Progress
from archipel.figures import beijing as stations
from archipel.figures import pgfl_pictures as pictures
from archipel.figures.learning import SAME, Runs, alike, all_of, better, end, level
from archipel.figures.personal import OURS, ClusterExperiment, curves, dynamic, points, rises, start, worse
from archipel.problems.clustered import Related, segments
from archipel.topology import Servers

GRAPH = Servers(servers=10, mean_degree=3.0, clusters=3)
CLOSE, APART = Related(spread=0.15, noise=1.0), Related(spread=0.5, noise=1.0)  # figures 1 to 4, 6, 7; figure 5
QUIET = replace(CLOSE, noise=0.1)
PENALTY, RIDGE, BOUND = 8.0, 0.01, 0.1  # rho, lambda and C_k: ours
TAU, SOME, FEW_SEEDS = 0.4, 3, 3
PHI, ZETA = 0.001, 0.99
ROUNDS, SHORT = 300, 200  # of learning curves, and of what is shown over a parameter
START = 30  # rounds that "initial convergence" is about
TAUS = tuple(round(0.1 * i, 1) for i in range(10)) + (0.95,)
FEW_TAUS = (0.0, 0.2, 0.4, 0.6, 0.9)
PHIS, FEW_PHIS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2), (1e-5, 1e-4, 1e-3, 1e-2)
ZETAS, FEW_ZETAS = (0.96, 0.97, 0.975, 0.98, 0.985, 0.99, 0.995), (0.97, 0.98, 0.99, 0.995)

PUBLISHED = Pgfl(form="published", penalty=PENALTY, regularisation=RIDGE, force=True)
EXACT = replace(PUBLISHED, form="exact")


def experiment_of(quick: bool, progress: Progress | None) -> ClusterExperiment:
    """How much is simulated."""
    return ClusterExperiment(FEW_SEEDS if quick else 20, progress)


def forms(experiment: ClusterExperiment) -> dict[str, Pgfl]:
    """What is varied: the published form, and the exact one beside it if there is time."""
    return {"PGFL": PUBLISHED} | ({"PGFL, exact form": EXACT} if experiment.seeds > FEW_SEEDS else {})


def federation(algorithm: Any, problem: Related = CLOSE, privacy: Any = None, rounds: int = ROUNDS) -> Federation:
    """An algorithm in the article's setting."""
    return Federation(problem, algorithm, GRAPH, privacy=privacy, rounds=rounds, every=10)


def private(rounds: int = ROUNDS, phi: float = PHI, zeta: float = ZETA) -> Any:
    """The article's dynamic zCDP."""
    return dynamic(phi, zeta, rounds, BOUND)


def methods(experiment: ClusterExperiment, some: int, privacy: Any) -> dict[str, Runs]:
    """The four curves of figures 1 to 3, and the exact form's."""
    played = {
        "PGFL, τ = 0.4": replace(PUBLISHED, tau=TAU, some=some),
        "PGFL, τ = 0": replace(PUBLISHED, some=some),
        "GFL": Gfl(**vars(replace(PUBLISHED, some=some))),
        "ClusterFL, τ = 0.4": ClusterFl(**vars(replace(PUBLISHED, tau=TAU, some=some))),
    }
    if experiment.seeds > FEW_SEEDS:
        played["PGFL, τ = 0.4, exact form"] = replace(EXACT, tau=TAU, some=some)
        played["PGFL, τ = 0, exact form"] = replace(EXACT, some=some)
    return {label: experiment.play(label, federation(one, privacy=privacy)) for label, one in played.items()}


def drawn(
    name: str, title: str, found: dict[str, Runs], claims: list[Claim], experiment: ClusterExperiment, more: str = ""
) -> Figure:
    """The article's four curves, and ours."""
    runs = list(found.values())
    return curves(f"pgfl/{name}", title, runs[:4], runs[4:], claims, note(experiment) + more)


def note(experiment: ClusterExperiment) -> str:
    """What the article does not say, and we chose."""
    return (
        f"Ours, as the article does not say: ρ = {PENALTY:g}, λ = {RIDGE:g}, observation noise of variance "
        f"{CLOSE.noise:g}; {experiment.seeds} seeds. Dashed: not in the article."
    )


# --- learning curves --------------------------------------------------------------------------------------------


def figure_1(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 1: learning curves of PGFL, GFL and ClusterFL, everyone taking part, no privacy."""
    experiment = experiment_of(quick, progress)
    found = methods(experiment, 0, None)
    borrowing, alone, gfl, cluster_fl, *exact = found.values()
    claims = [
        better("PGFL is superior to GFL.", borrowing, gfl, part=end),
        better("Inter-cluster learning improves convergence speed.", borrowing, alone, part=start(START)),
        better("Inter-cluster learning improves steady-state accuracy.", borrowing, alone, part=end),
        worse("ClusterFL is notably poor in this setting.", cluster_fl, borrowing, SAME),
        less_noise(experiment),
        optimum(experiment),
    ]
    nearer = OURS + "the exact form ends nearer to the truth than the published one."
    claims += [better(nearer, each, borrowing, part=end) for each in exact[:1]]
    return drawn("1", "regression, no scheduling, no privacy", found, claims, experiment)


def less_noise(experiment: ClusterExperiment) -> Claim:
    """Borrowing helps whose data are poor: with less observation noise the same tau may cost."""
    one, other = (replace(PUBLISHED, tau=tau) for tau in (TAU, 0.0))
    borrowing, alone = (experiment.play(f"τ = {each.tau:g}", federation(each, QUIET)) for each in (one, other))
    claim = OURS + f"inter-cluster learning still improves it with observation noise of variance {QUIET.noise:g}."
    return better(claim, borrowing, alone, part=end)


def optimum(experiment: ClusterExperiment) -> Claim:
    """Theorem 1: without inter-cluster learning the algorithm converges to the optimum."""
    far = [experiment.play(one.form, federation(one), "deviation") for one in forms(experiment).values()]
    words = "; ".join(f"{runs.label} form {level(runs, end):.1f} dB" for runs in far)
    text = f"distance to the centralised solution after {ROUNDS} rounds, τ = 0: {words}"
    return Claim("Theorem 1: with τ = 0 the algorithm, as published, converges to the optimum.", reached(far), text)


def reached(far: list[Runs]) -> bool:
    """The published form, which comes first, gets as near as the exact one does, or to -100 dB."""
    published, *exact = (level(runs, end) for runs in far)
    return published <= max([-100.0, *(each + SAME for each in exact)])


def figure_2(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 2: learning curves with three of fifteen clients asked in each round, no privacy."""
    experiment = experiment_of(quick, progress)
    whole, found = methods(experiment, 0, None), methods(experiment, SOME, None)
    names = list(found)
    everyone = {label: replace(runs, label=f"{label}, everyone") for label, runs in whole.items()}
    slower = [worse("", found[n], everyone[n], part=part) for n in names[:2] for part in (start(START), end)]
    claims = [
        all_of("PGFL converges more slowly and ends with a higher NMSD with client scheduling.", slower),
        better("GFL performs better with client scheduling.", found[names[2]], everyone[names[2]], part=end),
        better("PGFL is superior to GFL.", found[names[0]], found[names[2]], part=end),
    ]
    return drawn("2", "regression, 3 of 15 clients a round, no privacy", found, claims, experiment)


def figure_3(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 3: learning curves with client scheduling and dynamic zCDP."""
    experiment = experiment_of(quick, progress)
    open_, found = methods(experiment, SOME, None), methods(experiment, SOME, private())
    first = list(found)[:4]
    plain = {label: replace(runs, label=f"{label}, no noise") for label, runs in open_.items()}
    claims = [
        all_of(
            "Noise significantly reduces the convergence speed of all algorithms.",
            [worse("", found[n], plain[n], SAME, start(START)) for n in first],
        ),
        all_of(
            "The NMSD after 300 iterations is nearly identical to the one without noise.",
            [alike("", found[n], plain[n], part=end) for n in first],
        ),
        total_paid(experiment),
        gradients(),
    ]
    text = f" φ_0 = {PHI:g}, ζ = {ZETA:g}, gradients assumed no longer than {BOUND:g} (ours)."
    return drawn("3", "regression, 3 of 15 clients a round, dynamic zCDP", found, claims, experiment, text)


def total_paid(experiment: ClusterExperiment) -> Claim:
    """phi_final as printed, and as the ledger has it."""
    algorithm = replace(PUBLISHED, tau=TAU, some=SOME)
    spent = experiment.paid(federation(algorithm, privacy=private()))
    whole = PHI * sum(ZETA**-n for n in range(ROUNDS))
    printed = PHI * sum(ZETA**n for n in range(ROUNDS))
    words = (
        f"the sum of φ_0 / ζ^n over {ROUNDS} rounds is {whole:.2f}; the client that was asked most has paid "
        f"{spent:.2f}; {printed:.3f} is the sum of φ_0 ζ^n, multiplied where (47) divides"
    )
    return Claim("All algorithms satisfy φ_final-zCDP with φ_final = 0.095.", spent <= 0.095, words)


def gradients() -> Claim:
    """Assumption 3, at the truth and at zero, where a run starts."""
    setup = federation(PUBLISHED).setup()
    (shards,), _ = segments(setup.task)
    lengths = [2 * float(np.max(np.abs(y) * np.linalg.norm(x, axis=1))) for x, y in shards]
    words = f"at the start of a run the longest gradient of a sample is {max(lengths):.0f}, of the median client's "
    words += f"samples {np.median(lengths):.0f}; the ledger says `assumed`"
    return Claim(
        OURS + f"gradients are no longer than C = {BOUND:g}, which the noise rests on.", max(lengths) <= BOUND, words
    )


def figure_5(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 5: fixed and decaying tau where clusters are less alike, with scheduling and privacy."""
    experiment = experiment_of(quick, progress)
    base = replace(PUBLISHED, some=SOME)
    played = {
        "PGFL, τ = 0": base,
        "PGFL, τ = 0.4": replace(base, tau=TAU),
        "PGFL, τ = 0.4 × 0.98^n": replace(base, tau=TAU, decay=0.98),
    }
    if experiment.seeds > FEW_SEEDS:
        played["PGFL, τ = 0.4 × 0.98^n, exact form"] = replace(EXACT, some=SOME, tau=TAU, decay=0.98)
    found = {label: experiment.play(label, federation(one, APART, private())) for label, one in played.items()}
    none, fixed, fading, *exact = found.values()
    claims = [
        worse("With clusters less alike, τ = 0.4 degrades the steady state.", fixed, none),
        better("τ = 0.4 improves the initial convergence rate.", fixed, none, part=start(START)),
        alike("τ = 0.4 × 0.98^n starts as τ = 0.4 does.", fading, fixed, part=start(START)),
        alike("τ = 0.4 × 0.98^n ends nearly as τ = 0 does.", fading, none, part=end),
    ]
    title = "clusters less alike, γ ~ U(-0.5, 0.5), 3 of 15 clients a round, dynamic zCDP"
    return curves("pgfl/5", title, [none, fixed, fading], exact, claims, note(experiment))


# --- over a parameter -------------------------------------------------------------------------------------------


def figure_4(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 4: NMSD after 200 iterations against a fixed tau, with scheduling and privacy."""
    experiment, taus = experiment_of(quick, progress), FEW_TAUS if quick else TAUS

    def at(tau: float, base: Pgfl) -> Runs:
        one = federation(replace(base, some=SOME, tau=tau), privacy=private(SHORT), rounds=SHORT)
        return experiment.play(f"τ = {tau:g}", one)

    runs = {label: [at(tau, base) for tau in taus] for label, base in forms(experiment).items()}
    published = runs["PGFL"]
    inside = [runs for tau, runs in zip(taus, published) if 0.1 < tau < 0.5]
    best = min(published, key=lambda runs: level(runs, end))
    claims = [
        all_of(
            "The NMSD with τ between 0.1 and 0.5 is lower than with τ = 0.",
            [better("", runs, published[0], part=end) for runs in inside],
        ),
        worse("Too large a τ degrades performance.", published[-1], best),
    ]
    series = {label: points(taus, row) for label, row in runs.items()}
    return over("4", "inter-cluster learning parameter", series, claims, "τ", experiment)


def figure_6(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 6: NMSD after 200 iterations against the initial privacy parameter phi_0."""
    experiment, phis = experiment_of(quick, progress), FEW_PHIS if quick else PHIS
    runs = trade_off(experiment, [private(SHORT, phi=phi) for phi in phis])
    claims = [rises("The smaller φ_0, the higher the NMSD.", phis, runs["PGFL"], -1)]
    series = {label: points(phis, row) for label, row in runs.items()}
    return replace(over("6", "privacy and accuracy", series, claims, "φ_0", experiment), logx=True)


def figure_7(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 7: NMSD after 200 iterations against the decay zeta of the noise."""
    experiment, zetas = experiment_of(quick, progress), FEW_ZETAS if quick else ZETAS
    runs = trade_off(experiment, [private(SHORT, zeta=zeta) for zeta in zetas])
    claims = [rises("The lower ζ, the lower the NMSD.", zetas, runs["PGFL"], 1)]
    series = {label: points(zetas, row) for label, row in runs.items()}
    return over("7", "privacy and accuracy", series, claims, "ζ", experiment)


def trade_off(experiment: ClusterExperiment, policies: list[Any]) -> dict[str, list[Runs]]:
    """Both forms under several privacy tables."""
    played: dict[str, list[Runs]] = {}
    for label, base in forms(experiment).items():
        one = replace(base, some=SOME, tau=TAU)
        played[label] = [experiment.play(label, federation(one, privacy=p, rounds=SHORT)) for p in policies]
    return played


def over(name: str, title: str, series: Any, claims: list[Claim], xlabel: str, experiment: ClusterExperiment) -> Figure:
    """Errors at the end over what was varied; the article shows the first series."""
    y = f"NMSD after {SHORT} iterations (dB)"
    return Figure(f"pgfl/{name}", title, series, claims, xlabel, y, note(experiment), dashed=tuple(series)[1:])


FIGURES = {
    "1": figure_1,
    "2": figure_2,
    "3": figure_3,
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
    **pictures.FIGURES,
    **stations.FIGURES,
}
ALIASES = {
    "thesis/5.1a": "1",
    "thesis/5.1b": "2",
    "thesis/5.1c": "3",
    "thesis/5.2": "4",
    "thesis/5.3": "5",
    "thesis/5.4a": "6",
    "thesis/5.4b": "7",
    "thesis/5.5a": "8",
    "thesis/5.5b": "9",
    "thesis/5.5c": "10",
    "thesis/5.6a": "11",
    "thesis/5.6b": "12",
}
