"""Figures 4 to 6 of the PAO-Fed article, and one that it argues about but does not show: a change in mid-run.

Real data (V-D), other ways to save communication (V-E), other environments (V-F), a changing function (III-D).
"""

from dataclasses import replace
from typing import Any

import numpy as np

from archipel.environment import Delay, Environment
from archipel.federation import Federation
from archipel.figures import Claim, Figure, Progress
from archipel.figures.harness import AVAILABILITY, PaoFedExperiment, scale_of
from archipel.figures.learning import (
    HALF,
    SAME,
    Runs,
    alike,
    all_better,
    all_seeds,
    better,
    gap,
    reaches,
    saving,
    settled,
)
from archipel.figures.pao_fed_methods import (
    BEST,
    C1,
    C2,
    FED,
    FEDSGD,
    PSO,
    SIGN,
    STOCHASTIC_SIGN,
    U1,
    U2,
    at_best,
    curves,
    matched,
)
from archipel.problems.measured import Calcofi
from archipel.problems.synthetic import Synthetic

COMMON_DELAYS = Environment(AVAILABILITY, 4, delay=Delay("geometric", delta=0.8, limit=5))
MORE_STRAGGLERS = Environment((0.025, 0.01, 0.0025, 0.0005), 4, delay=Delay("stepped", delta=0.4, step=10, limit=60))
ROWS_A_ROUND = 40  # 80,000 samples over 2,000 rounds


def figure_4(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 4: salinity of sea water, CalCOFI, from all columns and from those that are not computed from it."""
    figures = [salinity(columns, quick, progress) for columns in ("all", "measured")]
    whole, apart = figures
    series = {**whole.series, **{f"{name} [measured]": line for name, line in apart.series.items()}}
    return replace(
        whole,
        series=series,
        claims=whole.claims + [replace(c, claim=f"[measured columns only] {c.claim}") for c in apart.claims],
        note=f"All columns, as the article: two of them are computed from the salinity. {whole.note} "
        f"[measured]: without those two. {apart.note}",
        dashed=tuple(name for name in series if "own best" in name or name.endswith("[measured]")),
        numbers={**whole.numbers, **{f"{name} [measured]": row for name, row in apart.numbers.items()}},
    )


def salinity(columns: str, quick: bool, progress: Progress | None) -> Figure:
    """Figure 4 with some columns of the data."""
    rows = ROWS_A_ROUND * scale_of(quick).rounds
    experiment = PaoFedExperiment(quick, progress, problem=Calcofi(columns=columns, rows=rows))
    u1, c2 = experiment.play("PAO-Fed-U1", U1), experiment.play("PAO-Fed-C2", C2)
    others = {"Online-FedSGD": FEDSGD, "Online-Fed": FED}
    sgd, fed = matched(experiment, others, like=U1)
    b1, b2, bsgd, bfed = best = at_best(experiment, {"PAO-Fed-U1": U1, "PAO-Fed-C2": C2, **others})
    claims = [
        all_better(
            "V-D: similar performance to the synthetic data: Online-Fed is the worst.",
            [(u1, fed), (c2, fed), (sgd, fed)],
        ),
        reaches("V-D: PAO-Fed-U1 is able to achieve the same accuracy as Online-FedSGD.", u1, sgd),
        saving("V-D: ... while using 98 % less communication.", u1, sgd, 0.98),
        all_better("V-D: PAO-Fed-C2 outperforms all other methods.", [(c2, u1), (c2, sgd), (c2, fed)]),
        reaches(BEST + "PAO-Fed-U1 achieves the same accuracy as Online-FedSGD.", b1, bsgd),
        all_better(BEST + "PAO-Fed-C2 outperforms all other methods.", [(b2, b1), (b2, bsgd), (b2, bfed)]),
    ]
    return curves("4", "CalCOFI", experiment, [u1, c2, sgd, fed], best, claims)


def figure_5(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 5: ways to save communication: PAO-Fed-C2, PSO-Fed, Online-Fed, SignSGD and its stochastic form."""
    experiment = PaoFedExperiment(quick, progress)
    c2 = experiment.play("PAO-Fed-C2", C2)
    others = {
        "PSO-Fed": PSO,
        "Online-Fed": replace(FED, asked=0.5),
        "SignSGD": SIGN,
        "stochastic SignSGD": STOCHASTIC_SIGN,
    }
    pso, fed, sign, drawn_sign = matched(experiment, others, like=C2)
    b2, bpso, bfed, bsign, bdrawn = best = at_best(experiment, {"PAO-Fed-C2": C2, **others})
    whole = replace(experiment.play("Online-FedSGD", experiment.matched(FEDSGD, C2)), label="the whole model both ways")
    claims = [
        saving("V-E: PSO-Fed reduces the overall communication load by 98 %.", pso, whole, 0.98),
        saving("V-E: PAO-Fed-C2 reduces it by 98 %.", c2, whole, 0.98),
        Claim(
            "V-E: SignSGD's load reduction is less than 50 %.",
            sign.parameters > 0.5 * whole.parameters and sign.bytes > 0.5 * whole.bytes,
            saving("", sign, whole, 0.0).measured,
        ),
        better("V-E: client scheduling and partial sharing combined, as in PSO-Fed, is not desirable.", c2, pso),
        better("V-E: SignSGD achieves significantly better performance than Online-Fed.", sign, fed, SAME),
        better("V-E: ... and so does its stochastic form, which the article cites.", drawn_sign, fed, SAME),
        better("V-E: SignSGD does not achieve the same accuracy as PAO-Fed-C2.", c2, sign),
        better("V-E: ... nor does its stochastic form.", c2, drawn_sign),
        better(BEST + "PAO-Fed-C2 outperforms PSO-Fed.", b2, bpso),
        better(BEST + "SignSGD achieves significantly better performance than Online-Fed.", bsign, bfed, SAME),
        better(BEST + "SignSGD does not achieve the same accuracy as PAO-Fed-C2.", b2, bsign),
        better(BEST + "stochastic SignSGD does not achieve the same accuracy as PAO-Fed-C2.", b2, bdrawn),
    ]
    shown = [c2, pso, fed, sign, drawn_sign]
    return curves("5", "ways to save communication", experiment, shown, best, claims)


def figure_6a(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 6(a): the server sends its whole model; clients take all of it, half, or their portion only."""
    experiment = PaoFedExperiment(quick, progress)
    usual_u, usual_c = experiment.play("PAO-Fed-U1, usual", U1), experiment.play("PAO-Fed-C2, usual", C2)
    full = {"PAO-Fed-U1": replace(U1, download="full"), "PAO-Fed-C2": replace(C2, download="full")}
    u, c = (experiment.play(name, method) for name, method in full.items())
    sgd, fed = matched(experiment, {"Online-FedSGD": FEDSGD, "Online-Fed": FED}, like=U1)
    size, portion = experiment.problem.features, C2.portion
    half = experiment.play("PAO-Fed-C2, half ignored", replace(full["PAO-Fed-C2"], ignore=size // 2))
    own = experiment.play("PAO-Fed-C2, all but its portion ignored", replace(full["PAO-Fed-C2"], ignore=size - portion))
    bu, bc, bsgd = best = at_best(experiment, {**full, "Online-FedSGD": FEDSGD})
    claims = [
        all_better(
            "V-F: the performance of the partial-sharing-based methods is drastically reduced.",
            [(usual_u, u), (usual_c, c)],
            HALF,
        ),
        all_better(
            "V-F: it is the information kept by the clients that allows to outperform Online-FedSGD.",
            [(usual_c, sgd), (sgd, c), (usual_u, sgd), (sgd, u)],
        ),
        alike("V-F: clients may ignore part of the received model to avoid this downfall (all but 4).", own, usual_c),
        alike("The same when they ignore half of it (ours).", half, usual_c),
        all_better(
            BEST + "Online-FedSGD outperforms the methods that are sent the whole model.", [(bsgd, bu), (bsgd, bc)]
        ),
    ]
    shown, beside = [u, c, sgd, fed], [usual_u, usual_c, half, own, *best]
    return curves("6a", "the server sends its whole model", experiment, shown, beside, claims)


def figure_6b(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 6(b): most updates are late, none by more than five rounds; C2's step near theorem 2's maximum."""
    experiment = PaoFedExperiment(quick, progress, COMMON_DELAYS)
    u1 = experiment.play("PAO-Fed-U1", U1)
    c2 = experiment.play("PAO-Fed-C2", replace(C2, step=experiment.largest))
    sgd, fed = matched(experiment, {"Online-FedSGD": FEDSGD, "Online-Fed": FED}, like=U1)
    plain = experiment.play("PAO-Fed-C2, step 0.4", C2)
    b1, b2, bsgd = best = at_best(experiment, {"PAO-Fed-U1": U1, "PAO-Fed-C2": C2, "Online-FedSGD": FEDSGD})
    claims = [
        better("V-F: the limited maximum delay allows Online-FedSGD to outperform PAO-Fed-U1.", sgd, u1),
        all_better(
            "V-F: PAO-Fed-C2 reaches very low steady-state error (the least of all).", [(c2, u1), (c2, sgd), (c2, fed)]
        ),
        better("V-F: PAO-Fed-C2 significantly outperforms Online-FedSGD.", c2, sgd, SAME),
        better("The same with C2 at step 0.4, as all others (ours).", plain, sgd, SAME),
        better(BEST + "Online-FedSGD outperforms PAO-Fed-U1.", bsgd, b1),
        better(BEST + "PAO-Fed-C2 significantly outperforms Online-FedSGD.", b2, bsgd, SAME),
    ]
    return curves("6b", "common delays", experiment, [u1, c2, sgd, fed], [plain, *best], claims)


def figure_6c(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 6(c): clients are there ten times less often, and updates late by up to sixty rounds."""
    experiment, usual = PaoFedExperiment(quick, progress, MORE_STRAGGLERS), PaoFedExperiment(quick, progress)
    u1, c2 = experiment.play("PAO-Fed-U1", U1), experiment.play("PAO-Fed-C2", C2)
    others = {"Online-FedSGD": FEDSGD, "Online-Fed": FED}
    sgd, fed = matched(experiment, others, like=U1)
    b1, b2, bsgd = best = at_best(experiment, {"PAO-Fed-U1": U1, "PAO-Fed-C2": C2, "Online-FedSGD": FEDSGD})
    claims = [
        wider(
            "V-F: the accuracy difference between PAO-Fed-C2 and PAO-Fed-U1 increases.",
            (c2, u1),
            (usual.play("PAO-Fed-C2", C2), usual.play("PAO-Fed-U1", U1)),
        ),
        better("V-F: delayed updates keep methods without decreasing weights (U1) from a satisfactory error.", c2, u1),
        better("V-F: PAO-Fed-C2 achieves significantly better accuracy than Online-FedSGD.", c2, sgd, SAME),
        better(BEST + "PAO-Fed-C2 outperforms PAO-Fed-U1.", b2, b1),
        better(BEST + "PAO-Fed-C2 achieves significantly better accuracy than Online-FedSGD.", b2, bsgd, SAME),
    ]
    return curves("6c", "increased straggler behaviour", experiment, [u1, c2, sgd, fed], best, claims)


def wider(claim: str, here: tuple[Runs, Runs], usual: tuple[Runs, Runs]) -> Claim:
    """The first of a pair is ahead of the second by more than it is in the usual setting."""
    (now, error), (before, other) = (gap(settled(first), settled(second)) for first, second in (here, usual))
    names = f"{here[0].label} minus {here[1].label}"
    measured = f"{names}: {now:+.2f} dB +- {error:.2f} here, {before:+.2f} dB +- {other:.2f} in the usual setting"
    return Claim(claim, now < before - 2 * float(np.hypot(error, other)), measured)


# --- a change of the function in mid-run ----------------------------------------------------------------------------


def figure_change(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed III-D, not drawn there: the function changes in mid-run, for coordinated and uncoordinated sharing."""
    moment = scale_of(quick).rounds // 2
    experiment = PaoFedExperiment(quick, progress, problem=Synthetic(change=moment), every=10)
    methods = {"PAO-Fed-C1": C1, "PAO-Fed-U1": U1, "PAO-Fed-C2": C2, "PAO-Fed-U2": U2}
    c1, u1, c2, u2 = (experiment.play(name, method) for name, method in methods.items())
    (sgd,) = matched(experiment, {"Online-FedSGD": FEDSGD}, like=U1)
    cycle = experiment.problem.features // C2.portion

    def after(rounds: int) -> Any:
        return lambda runs: runs.errors[:, (runs.rounds > moment) & (runs.rounds <= moment + rounds)].mean(1)

    claims = [
        uniform(
            "III-D: with uncoordinated sharing the server's model steers uniformly (1).", experiment, (U1, C1), moment
        ),
        uniform(
            "III-D: with uncoordinated sharing the server's model steers uniformly (2).", experiment, (U2, C2), moment
        ),
    ]
    for rounds, words in ((cycle, "the first cycle of portions"), (4 * cycle, "the first four cycles")):
        text = f"III-D: uncoordinated sharing is ideal when the model changes: less error in {words} after it"
        claims.append(better(f"{text} (U1, C1).", u1, c1, part=after(rounds)))
        claims.append(better(f"{text} (U2, C2).", u2, c2, part=after(rounds)))
    claims.append(better("The same at the end of the run (U1, C1).", u1, c1))
    claims.append(better("The same at the end of the run (U2, C2).", u2, c2))
    return curves("change", "the function changes in mid-run", experiment, [c1, u1, c2, u2], [sgd], claims)


def uniform(claim: str, experiment: PaoFedExperiment, pair: tuple[Any, Any], moment: int) -> Claim:
    """Half a cycle after the change, the uncoordinated model has moved in all portions, the coordinated in half."""
    spread, together = (portions_moved(experiment, method, moment) for method in pair)
    measured = (
        f"half a cycle after the change, {spread:.0%} of the portions have moved by half of the mean move or more; "
        f"coordinated: {together:.0%}"
    )
    return Claim(claim, spread > together, measured)


def portions_moved(experiment: PaoFedExperiment, method: Any, moment: int) -> float:
    """The share of a model's portions that move, in half a cycle after the change, by at least half the mean move."""
    half = experiment.problem.features // method.portion // 2
    plays = [
        Federation(experiment.problem, method, environment=experiment.environment, rounds=n)
        for n in (moment, moment + half)
    ]
    before, later = (
        all_seeds(play, experiment.scale.tries, "steering", experiment.progress, experiment.bounds).models
        for play in plays
    )
    moves = np.array([end["server"] - start["server"] for start, end in zip(before, later)])
    sizes = np.sqrt((moves.reshape(len(moves), -1, method.portion) ** 2).sum(2))
    return float((sizes >= 0.5 * sizes.mean(1, keepdims=True)).mean())


FIGURES = {"4": figure_4, "5": figure_5, "6a": figure_6a, "6b": figure_6b, "6c": figure_6c, "change": figure_change}
