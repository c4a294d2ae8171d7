"""Digits under attack: a fifth of the clients lie, FedAvg falls by more than 20 points, a robust mix by less than 3.

Of ten rounds, with half of the pictures dealt digit by digit. Two attacks have to be stronger than usual to break the
mean in ten rounds: a-little-is-enough at 1.5 and labels that are not shouted take 1 to 3 points from FedAvg. Scaled
lies break it for a while only: a linear model's honest clients repair in 25 rounds what is not a lie in its direction.
"""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from archipel import Algorithm, Environment, Federation
from archipel.environment import ATTACKS, Attack
from archipel.parts.mix.mean import Mean
from archipel.parts.mix.robust import GeometricMedian, Median, MultiKrum, TrimmedMean
from archipel.topology import Peers, Star

sys.path.insert(0, str(Path(__file__).parent))
from digits import Digits, LocalSteps

STRENGTH = {"a-little-is-enough": 40.0, "labels": 20.0}
GRAPHS = {"star": Star(), "peers": Peers(mean_degree=14.0)}
MIXES = {
    "mean": Mean(0),
    "multi-krum": MultiKrum(share=0.3, limit=0),
    "trimmed-mean": TrimmedMean(share=0.3, limit=0),
    "median": Median(limit=0),
    "geometric-median": GeometricMedian(limit=0),
}


@cache
def accuracy(graph, mix, kind="", seeds=1):
    """Of the server's model, or the mean of the peers'."""
    pytest.importorskip("sklearn")
    attack = Attack(0.2, kind, STRENGTH.get(kind, 0.0)) if kind else Attack()
    federation = Federation(
        Digits(skew=0.5), Algorithm(learn=LocalSteps(), mix=MIXES[mix]), GRAPHS[graph], Environment(attack=attack),
        rounds=10, every=10, engine="plain", precision="float64",
    )  # fmt: skip
    with np.errstate(all="ignore"):
        return federation.run(seeds).final("accuracy")


@pytest.mark.parametrize("kind", ATTACKS)
def test_the_mean_falls_and_multi_krum_stands(kind):
    honest = accuracy("star", "mean")
    assert honest > 0.88
    assert accuracy("star", "mean", kind) < honest - 0.2
    assert accuracy("star", "multi-krum", kind) > honest - 0.03


def test_among_peers_too():
    honest = accuracy("peers", "mean")
    assert accuracy("peers", "mean", "sign-flip") < honest - 0.2
    assert accuracy("peers", "multi-krum", "sign-flip") > honest - 0.03


@pytest.mark.long
@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_every_attack_on_every_mix(graph, kind):
    honest = accuracy(graph, "mean", seeds=3)
    found = {mix: accuracy(graph, mix, kind, seeds=3) for mix in MIXES}
    print(graph, kind, f"honest {honest:.3f}", {mix: f"{value:.3f}" for mix, value in found.items()})
    assert found["mean"] < honest - 0.2
    assert max(value for mix, value in found.items() if mix != "mean") > honest - 0.03
    assert min(value for mix, value in found.items() if mix != "mean") > honest - 0.1  # none of them breaks
