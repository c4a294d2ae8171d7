"""The figures of "Asynchronous Online Federated Learning With Reduced Communication Requirements".

Gauthier et al., IEEE Internet of Things Journal, 2023; the thesis, chapter 4, shows the same figures. Here are 2 and 3,
with the claims of V-B and V-C; `pao_fed_settings` has the others. 256 clients, 2,000 rounds, 20 seeds; PAO-Fed at
mu = 0.4, the other methods at steps at which they start as PAO-Fed does, and (dashed) each method at its own best step.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from archipel.figures import Claim, Figure, Progress, pao_fed_settings
from archipel.figures.harness import IDEAL, PaoFedExperiment
from archipel.figures.learning import SAME, Runs, alike, all_better, all_of, beginning, better, level, reaches, saving
from archipel.figures.pao_fed_methods import (
    BEST,
    C0,
    C1,
    C2,
    FED,
    FEDSGD,
    PSO,
    U0,
    U1,
    U2,
    at_best,
    curves,
    matched,
    note,
)

LOADS = (1, 4, 32, 200)  # parameters a client shares in a round, on average
BITS = 32  # of a parameter


def figure_2a(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 2(a): sharing the portion just received (0) or the next one (1), coordinated (C) or not (U)."""
    experiment = PaoFedExperiment(quick, progress)
    methods = {"PAO-Fed-C0": C0, "PAO-Fed-U0": U0, "PAO-Fed-C1": C1, "PAO-Fed-U1": U1}
    c0, u0, c1, u1 = (experiment.play(name, method) for name, method in methods.items())
    b0, v0, b1, v1 = best = at_best(experiment, methods)
    calm = PaoFedExperiment(quick, progress, IDEAL)
    calm_c, calm_u = (calm.play(f"{name}, ideal setting", methods[name]) for name in ("PAO-Fed-C1", "PAO-Fed-U1"))
    claims = [
        all_better("V-B: the versions PAO-Fed-(C/U)1 outperform the versions PAO-Fed-(C/U)0.", [(c1, c0), (u1, u0)]),
        better("V-B: it is best to use uncoordinated partial-sharing in asynchronous settings.", u1, c1),
        better("V-B: in ideal settings coordinated partial-sharing performs slightly better.", calm_c, calm_u),
        all_better(BEST + "the versions PAO-Fed-(C/U)1 outperform the versions PAO-Fed-(C/U)0.", [(b1, b0), (v1, v0)]),
        better(BEST + "uncoordinated partial-sharing is best in asynchronous settings.", v1, b1),
    ]
    shown = [c0, u0, c1, u1]
    return curves("2a", "what is shared", experiment, shown, [*best, calm_c, calm_u], claims)


def figure_2b(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 2(b): PAO-Fed-U1 with 1, 4 and 32 of 200 parameters in a message."""
    experiment = PaoFedExperiment(quick, progress)
    methods = {f"PAO-Fed-U1, m = {m}": replace(U1, portion=m) for m in (1, 4, 32)}
    one, four, many = (experiment.play(name, method) for name, method in methods.items())
    b1, b4, b32 = best = at_best(experiment, methods)
    claims = [
        all_better(
            "V-B: sharing more model parameters increases the initial convergence speed.",
            [(four, one), (many, four)],
            part=beginning,
        ),
        all_better("V-B: sharing more decreases the final accuracy for larger m values.", [(one, four), (four, many)]),
        reaches(
            "V-B: m = 4 is a good compromise: its final accuracy is that of the best of the three.",
            four,
            min(one, four, many, key=level),
        ),
        all_better(BEST + "sharing more decreases the final accuracy for larger m values.", [(b1, b4), (b4, b32)]),
    ]
    return curves("2b", "communication savings", experiment, [one, four, many], best, claims)


def figure_2c(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 2(c): late updates weigh less (2) or as much as the others (1)."""
    experiment = PaoFedExperiment(quick, progress)
    methods = {"PAO-Fed-C1": C1, "PAO-Fed-U1": U1, "PAO-Fed-C2": C2, "PAO-Fed-U2": U2}
    c1, u1, c2, u2 = (experiment.play(name, method) for name, method in methods.items())
    b1, v1, b2, v2 = best = at_best(experiment, methods)
    claims = [
        all_better(
            "V-B: decreasing the weight of the delayed updates significantly improves the performance.",
            [(c2, c1), (u2, u1)],
            SAME,
        ),
        better("V-B, the same without 'significantly', coordinated.", c2, c1),
        better("V-B, the same without 'significantly', uncoordinated.", u2, u1),
        alike("V-B: PAO-Fed-C2 and PAO-Fed-U2 exhibit the same performance.", c2, u2),
        all_better(
            BEST + "decreasing the weight of the delayed updates significantly improves the performance.",
            [(b2, b1), (v2, v1)],
            SAME,
        ),
        alike(BEST + "PAO-Fed-C2 and PAO-Fed-U2 exhibit the same performance.", b2, v2),
    ]
    return curves("2c", "the weight of late updates", experiment, [c1, u1, c2, u2], best, claims)


def figure_3a(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 3(a): PAO-Fed-U1 and U2 against Online-FedSGD, Online-Fed and (thesis) PSO-Fed."""
    experiment = PaoFedExperiment(quick, progress)
    u1, u2 = experiment.play("PAO-Fed-U1", U1), experiment.play("PAO-Fed-U2", U2)
    others = {"Online-FedSGD": FEDSGD, "Online-Fed": FED, "PSO-Fed": PSO}
    sgd, fed, pso = matched(experiment, others, like=U1)
    b1, b2, bsgd, bfed, bpso = best = at_best(experiment, {"PAO-Fed-U1": U1, "PAO-Fed-U2": U2, **others})
    claims = [
        all_better(
            "V-C: Online-Fed performs poorly (worse than PAO-Fed and than Online-FedSGD).",
            [(u1, fed), (u2, fed), (sgd, fed)],
        ),
        all_better(
            "Thesis 4.4.3: PSO-Fed performs poorly (worse than PAO-Fed and than Online-FedSGD).",
            [(u1, pso), (u2, pso), (sgd, pso)],
        ),
        better("V-C: PAO-Fed-U1 outperforms Online-FedSGD.", u1, sgd),
        better("V-C: PAO-Fed-U2 outperforms Online-FedSGD.", u2, sgd),
        saving("V-C: ... while using 98 % less communication.", u1, sgd, 0.98),
        better("V-C: the weight-decreasing mechanism increases the resilience, hence U2 performs better.", u2, u1),
        better(BEST + "PAO-Fed-U1 outperforms Online-FedSGD.", b1, bsgd),
        better(BEST + "PAO-Fed-U2 outperforms Online-FedSGD.", b2, bsgd),
        all_better(BEST + "Online-Fed and PSO-Fed perform poorly (worse than PAO-Fed-U1).", [(b1, bfed), (b1, bpso)]),
    ]
    return curves("3a", "PAO-Fed and existing methods", experiment, [u1, u2, sgd, fed, pso], best, claims)


def figure_3b(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 3(b): error at the end against communication load, PAO-Fed-U1, PAO-Fed-C2 and Online-Fed."""
    experiment = PaoFedExperiment(quick, progress)
    families = {
        "PAO-Fed-U1": [experiment.play(f"PAO-Fed-U1, m = {m}", replace(U1, portion=m)) for m in LOADS],
        "PAO-Fed-C2": [experiment.play(f"PAO-Fed-C2, m = {m}", replace(C2, portion=m)) for m in LOADS],
        "Online-Fed": [experiment.play(f"Online-Fed, {m} of 200", experiment.matched(asking(m), U1)) for m in LOADS],
        "Online-Fed, own best step": [
            experiment.play(f"Online-Fed, {m} of 200, own best step", experiment.best(asking(m))) for m in LOADS
        ],
        "PAO-Fed-C2, own best step": [
            experiment.play(f"PAO-Fed-C2, m = {m}, own best step", experiment.best(replace(C2, portion=m)))
            for m in LOADS
        ],
    }
    whole = families["Online-Fed"][-1].parameters / experiment.problem.features  # messages when everyone is asked
    loads = {name: [BITS * runs.parameters / whole for runs in family] for name, family in families.items()}
    at_128 = [loads[name][LOADS.index(4)] for name in ("PAO-Fed-U1", "PAO-Fed-C2", "Online-Fed")]
    claims = [
        Claim(
            "V-C: the algorithms of the previous figure are found here at a load of 128 bits.",
            all(abs(load - 128) < 6.4 for load in at_128),
            "sent in a round by a client that is available: " + ", ".join(f"{load:.0f} bits" for load in at_128),
        ),
        all_better(
            "V-C: the higher the load, the better the performance of Online-Fed.",
            [(after, before) for before, after in pairwise(families["Online-Fed"])],
        ),
        steady("V-C: PAO-Fed-U1 varies very little with the communication load.", families["PAO-Fed-U1"]),
        steady("V-C: PAO-Fed-C2 varies very little with the communication load.", families["PAO-Fed-C2"]),
        steady(
            "The same up to 32 of 200 parameters (ours: with all 200 nothing is kept back).",
            families["PAO-Fed-C2"][:-1],
        ),
        steady(BEST + "Online-Fed varies very little as well.", families["Online-Fed, own best step"]),
    ]
    return Figure(
        "pao-fed/3b",
        "error against communication load",
        {name: (loads[name], [level(runs) for runs in family]) for name, family in families.items()},
        claims,
        "bits a client sends in a round in which it is available",
        "test error at the end (dB)",
        note=note(experiment),
        logx=True,
        dashed=tuple(name for name in families if "own best" in name),
        numbers={runs.label: runs.numbers() for family in families.values() for runs in family},
    )


def asking(parameters: int) -> Any:
    """Online-Fed that asks so few clients that it sends so many of 200 parameters on average."""
    return replace(FED, asked=parameters / 200)


def steady(claim: str, family: list[Runs]) -> Claim:
    """The best and the worst of a family end alike, within twice what counts as the same."""
    ends = sorted(family, key=level)
    return alike(claim, ends[0], ends[-1], within=2 * SAME)


def figure_3c(quick: bool, progress: Progress | None) -> Figure:
    """PAO-Fed 3(c): everyone always there and never late (0 % stragglers) against the usual setting (100 %)."""
    experiment, calm = PaoFedExperiment(quick, progress), PaoFedExperiment(quick, progress, IDEAL)
    pao = {"PAO-Fed-C2": C2, "PAO-Fed-U2": U2}
    c, u = (experiment.play(f"{name}, 100 %", method) for name, method in pao.items())
    calm_c, calm_u = (calm.play(f"{name}, 0 %", method) for name, method in pao.items())
    (sgd,) = matched(experiment, {"Online-FedSGD, 100 %": FEDSGD}, like=C2)
    (calm_sgd,) = matched(calm, {"Online-FedSGD, 0 %": FEDSGD}, like=C2)
    every = {"PAO-Fed-C2": C2, "Online-FedSGD": FEDSGD}
    best = [replace(runs, label=f"{runs.label}, 100 %") for runs in at_best(experiment, every)]
    calm_best = [replace(runs, label=f"{runs.label}, 0 %") for runs in at_best(calm, every)]
    claims = [
        alike(
            "V-C: without stragglers coordinated partial-sharing is almost identical to no communication reduction.",
            calm_c,
            calm_sgd,
        ),
        better("V-C: without stragglers uncoordinated partial-sharing has slightly worse performance.", calm_c, calm_u),
        all_of(
            "V-C: PAO-Fed-C2 on straggler clients is almost similar to the algorithms in a perfect setting.",
            [reaches("", c, calm_c), reaches("", c, calm_u), reaches("", c, calm_sgd)],
        ),
        alike(BEST + "without stragglers PAO-Fed-C2 is almost identical to Online-FedSGD.", calm_best[0], calm_best[1]),
        reaches(BEST + "PAO-Fed-C2 on stragglers is almost similar to Online-FedSGD without.", best[0], calm_best[1]),
    ]
    shown = [c, u, sgd, calm_c, calm_u, calm_sgd]
    return curves("3c", "the impact of stragglers", experiment, shown, [*best, *calm_best], claims)


FIGURES = {
    "2a": figure_2a,
    "2b": figure_2b,
    "2c": figure_2c,
    "3a": figure_3a,
    "3b": figure_3b,
    "3c": figure_3c,
    **pao_fed_settings.FIGURES,
}
ALIASES = {f"thesis/4.{name}": name for name in FIGURES if name[0].isdigit()}
