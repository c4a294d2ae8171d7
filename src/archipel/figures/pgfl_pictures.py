"""Figures 8 to 12 of the PGFL article: clusters of clients that tell pictures apart, with logistic regression.

Figures 11 and 12 are about OrganAMNIST. Where that file is not at hand they say so and show the same experiment on
MNIST: three clients a server, two pictures each; digits that are alike stand for organs that are alike.
"""

from dataclasses import replace
from typing import Any

from archipel.algorithms.pgfl import Pgfl
from archipel.errors import Missing
from archipel.federation import Federation
from archipel.figures import Claim, Figure, Progress
from archipel.figures.learning import Runs, end
from archipel.figures.personal import ClusterExperiment, accuracies, dynamic, lead, more_accurate, start
from archipel.problems.clustered import Pictures
from archipel.problems.datasets.catalogue import find
from archipel.topology import Servers

GRAPH = Servers(servers=10, mean_degree=3.0, clusters=3)
PENALTY, RIDGE, BOUND = 0.5, 0.01, 0.1  # rho, lambda and C_k: ours
TAU, SOME, ROUNDS, START = 0.4, 3, 100, 20
PHI, ZETA = 0.001, 0.99
TAUS, FEW_TAUS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SIGNIFICANT = 0.01  # a share of right answers

PUBLISHED = Pgfl(form="published", penalty=PENALTY, regularisation=RIDGE, some=SOME, force=True)

# stand-ins for pairs of organs, where those are not at hand: one digit in all pairs, or none
ALIKE = (((4,), (9,)), ((7,), (9,)), ((8,), (9,)))
DIFFERENT = (((3,), (8,)), ((4,), (6,)), ((7,), (9,)))


def experiment_of(quick: bool, progress: Progress | None) -> ClusterExperiment:
    """How much is simulated."""
    return ClusterExperiment(3 if quick else 10, progress)


def federation(problem: Pictures, algorithm: Any, phi: float = PHI) -> Federation:
    """An algorithm in the article's setting, private."""
    privacy = dynamic(phi, ZETA, ROUNDS, BOUND)
    return Federation(problem, algorithm, GRAPH, privacy=privacy, rounds=ROUNDS, every=5)


def played(experiment: ClusterExperiment, problem: Pictures, taus: dict[str, Pgfl]) -> list[Runs]:
    """The test accuracy of what clients are told, for each setting."""
    return [experiment.play(label, federation(problem, one), "accuracy.server") for label, one in taus.items()]


def two(base: Pgfl = PUBLISHED) -> dict[str, Pgfl]:
    """With and without inter-cluster learning."""
    return {"PGFL, τ = 0.4": replace(base, tau=TAU), "PGFL, τ = 0": base}


def both_forms() -> dict[str, Pgfl]:
    """The same in the exact form."""
    return {f"{label}, exact form": one for label, one in two(replace(PUBLISHED, form="exact")).items()}


def note(experiment: ClusterExperiment, problem: Pictures) -> str:
    """What the article does not say, and we chose."""
    return (
        f"Ours, as the article does not say: ρ = {PENALTY:g}, λ = {RIDGE:g}, φ_0 = {PHI:g}, ζ = {ZETA:g}, gradients "
        f"assumed no longer than {BOUND:g}, pictures of {28 // problem.shrink} x {28 // problem.shrink} points; "
        f"{experiment.seeds} seeds. Accuracy is that of the models that clients are told. Dashed: not in the article."
    )


def digits(tasks: Any, quick: bool) -> Pictures:
    """MNIST; at half its resolution where it must be quick."""
    return Pictures(tasks=tasks, shrink=2 if quick else 1)


def figure_8(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 8: test accuracy on pairs of MNIST digits, clusters little alike."""
    text = "Inter-cluster learning improves the accuracy, though similarity is low."
    return of_digits("8", "pairs", text, 0.0, quick, progress)


def figure_9(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 9: test accuracy on triplets of MNIST digits, clusters much alike."""
    text = "Inter-cluster learning significantly improves the accuracy."
    return of_digits("9", "triplets", text, SIGNIFICANT, quick, progress)


def of_digits(name: str, groups: str, claim: str, by: float, quick: bool, progress: Progress | None) -> Figure:
    """With and without inter-cluster learning, on groups of digits."""
    experiment, problem = experiment_of(quick, progress), digits(f"digit-{groups}", quick)
    shown, added = played(experiment, problem, two()), played(experiment, problem, {} if quick else both_forms())
    claims = [more_accurate(claim, shown[0], shown[1], by)]
    return accuracies(f"pgfl/{name}", f"MNIST, {groups} of digits", shown, added, claims, note(experiment, problem))


def figure_10(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 10: test accuracy on triplets of digits after 100 iterations against a fixed tau."""
    experiment, problem = experiment_of(quick, progress), digits("digit-triplets", quick)
    taus = FEW_TAUS if quick else TAUS
    runs = played(experiment, problem, {f"τ = {tau:g}": replace(PUBLISHED, tau=tau) for tau in taus})
    inside = [r for tau, r in zip(taus, runs) if 0.4 <= tau <= 0.8]
    gains = [lead(end(r), end(runs[0])) for r in inside]
    words = ", ".join(f"{r.label}: {gain:+.1%} +- {error:.1%}" for r, (gain, error) in zip(inside, gains))
    best = max(runs, key=lambda r: float(end(r).mean()))
    claims = [
        Claim(
            "Medium and large values of τ improve the accuracy significantly.",
            all(gain > max(SIGNIFICANT, 2 * error) for gain, error in gains),
            words,
        ),
        more_accurate("Very large values degrade it.", best, runs[-1]),
    ]
    series = {"PGFL": (list(taus), [float(end(r).mean()) for r in runs])}
    y = f"test accuracy after {ROUNDS} iterations"
    return Figure("pgfl/10", "MNIST, triplets of digits", series, claims, "τ", y, note(experiment, problem))


# --- organs -----------------------------------------------------------------------------------------------------


def organs(tasks: str, standing_in: Any) -> tuple[Pictures, str]:
    """Three clients a server with two pictures each; of organs, or of digits where those are not at hand."""
    try:
        find("organamnist")
    except Missing:
        text = " OrganAMNIST is not on this machine (archipel list datasets says where to get it): this is the same "
        return Pictures(tasks=standing_in, clients=30, samples=(2, 2)), text + "experiment on MNIST digits."
    return Pictures(tasks=tasks, clients=30), ""


def everyone(base: Pgfl) -> Pgfl:
    """With three clients a server nobody is left out."""
    return replace(base, some=0)


def figure_11(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 11: test accuracy on OrganAMNIST, clusters much alike, three clients a server with two pictures each."""
    experiment, (problem, missing) = experiment_of(quick, progress), organs("organs-alike", ALIKE)
    shown = played(experiment, problem, two(everyone(PUBLISHED)))
    added = played(experiment, problem, {"PGFL, τ = 0.8": replace(everyone(PUBLISHED), tau=0.8)})
    gain, error = lead(end(shown[0]), end(shown[1]))
    claims = [
        more_accurate(
            "Much inter-cluster learning improves the accuracy significantly.", shown[0], shown[1], SIGNIFICANT
        ),
        Claim("... by about 5 %.", 0.025 <= gain <= 0.1, f"{gain:+.1%} +- {error:.1%} (about: from 2.5 % to 10 %)"),
    ]
    title = f"{'MNIST' if missing else 'OrganAMNIST'}, one sort in common"
    return accuracies("pgfl/11", title, shown, added, claims, note(experiment, problem) + missing)


def figure_12(quick: bool, progress: Progress | None) -> Figure:
    """PGFL 12: test accuracy on OrganAMNIST, clusters little alike, with a decaying tau."""
    experiment, (problem, missing) = experiment_of(quick, progress), organs("organs-apart", DIFFERENT)
    base = everyone(PUBLISHED)
    fading = {f"PGFL, τ = 0.4 × {decay:g}^n": replace(base, tau=TAU, decay=decay) for decay in (0.9, 0.95, 0.98)}
    shown = played(experiment, problem, fading | {"PGFL, τ = 0": base})
    added = played(experiment, problem, {"PGFL, τ = 0.4": replace(base, tau=TAU)})
    medium, none = shown[1], shown[-1]
    gain, error = lead(start(START)(medium), start(START)(none))
    claims = [
        more_accurate("A medium decay of τ improves the learning speed.", medium, none, part=start(START)),
        Claim(
            "... boosting the accuracy by about 2 %.",
            0.01 <= gain <= 0.04,
            f"in the first {START} rounds {gain:+.1%} +- {error:.1%} (about: from 1 % to 4 %)",
        ),
        more_accurate("The decay preserves the steady state that a fixed τ loses.", medium, added[0]),
    ]
    title = f"{'MNIST' if missing else 'OrganAMNIST'}, no sort in common"
    return accuracies("pgfl/12", title, shown, added, claims, note(experiment, problem) + missing)


FIGURES = {"8": figure_8, "9": figure_9, "10": figure_10, "11": figure_11, "12": figure_12}
