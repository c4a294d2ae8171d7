"""Error against traffic: what docs/traffic.md says, and its picture.

    python benchmarks/traffic.py docs/traffic.svg

Each composition at the best of its steps on one seed, then played with others. Ten minutes or more.
"""

import sys

import numpy as np

from archipel import Calcofi, Federation, OnlineFed, OnlineFedSgd, PaoFed, Synthetic
from archipel.algorithms.online import PaoFedReplay
from archipel.figures.harness import ARTICLE
from archipel.parts.learn.replay import Replay

ROUNDS, CHOSEN_ON, PLAYED_WITH, SEEDS = 2000, 1, 11, 3
PORTIONS, SHARES = (4, 8, 50), (0.01, 0.035, 0.1)
PROBLEMS = {"the article's setting": Synthetic(), "CalCOFI": Calcofi()}


def rarely(step, asked, memory=512):
    """Few are asked, for the whole model; everyone learns meanwhile, from its last samples again and again."""
    return OnlineFed(step, asked, learn=Replay(step, memory), force=True)


COMPOSITIONS = {  # how it is made from a step and a size, steps that are tried, sizes
    "Online-FedSGD": (lambda step, _: OnlineFedSgd(step, force=True), (0.9, 1.3, 1.6, 2.0), (1,)),
    "PAO-Fed C2": (lambda step, m: PaoFed(step, portion=m, force=True), (0.4, 0.9), PORTIONS),
    "PAO-Fed C2, replay of 64": (
        lambda step, m: PaoFedReplay(step, portion=m, memory=64, force=True),
        (0.4, 0.9),
        PORTIONS[:2],
    ),
    "Online-Fed, replay of 512": (rarely, (0.1, 0.35), SHARES),
}


def played(problem, algorithm, seed, seeds=1):
    """The mean error of the last tenth in dB, and the parameters sent."""
    result = Federation(problem, algorithm, environment=ARTICLE, rounds=ROUNDS, every=20, seed=seed).run(
        seeds, theory={}
    )
    late = [row[3] for row in result.rows if row[2] == "mse" and row[1] > 0.9 * ROUNDS]
    return 10 * np.log10(np.mean(late)), result.total("parameters") / seeds


def at_its_best(problem, make, size, steps):
    """The step that is best on one seed, on others; if it is none that diverges."""
    errors = {step: played(problem, make(step, size), CHOSEN_ON)[0] for step in steps}
    best = min((step for step in steps if np.isfinite(errors[step])), key=errors.__getitem__)
    return best, *played(problem, make(best, size), PLAYED_WITH, SEEDS)


def curves(problem):
    """For each composition: step, error in dB, share of Online-FedSGD's parameters."""
    whole, found = 0.0, {}
    for name, (make, steps, sizes) in COMPOSITIONS.items():
        for size in sizes:
            step, error, sent = at_its_best(problem, make, size, steps)
            whole = whole or sent
            found.setdefault(name, []).append((step, error, 100 * sent / whole))
            print(f"| {name} | {size} | {step} | {error:.2f} dB | {100 * sent / whole:.2f} % |", flush=True)
    return found


def draw(all_found, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(all_found), figsize=(9, 3.6), sharex=True)
    for axis, (title, found) in zip(axes, all_found.items()):
        for (name, points), mark in zip(found.items(), "sov^"):
            axis.semilogx([p[2] for p in points], [p[1] for p in points], marker=mark, label=name)
        axis.axhline(found["Online-FedSGD"][0][1], color="0.7", linewidth=1)
        axis.axvline(4, color="0.7", linewidth=1, linestyle=":")
        axis.set(title=title, xlabel="% of Online-FedSGD's parameters", ylabel="mean squared test error (dB)")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    found = {}
    for title, problem in PROBLEMS.items():
        print(f"\n{title}")
        found[title] = curves(problem)
        assert len(found[title]) == len(COMPOSITIONS)
    draw(found, sys.argv[1] if len(sys.argv) > 1 else "traffic.svg")
