"""What a user gets without choosing penalty and step: zCDP-NFL that fits the graph, the data and their units."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.federation import Federation
from archipel.privacy.policy import Privacy
from archipel.problems.networked import Regression, centralised
from archipel.problems.own import Files
from archipel.topology import Peers


def federation(problem, rounds=400, topology=None, **parts):
    return Federation(problem, ZcdpNfl(), topology or Peers(), rounds=rounds, every=rounds, **parts)


def level(result):
    """The final normalised error, in dB."""
    return 10 * math.log10(result.final("deviation"))


GRAPHS = {
    "random": Peers(mean_degree=4.0),
    "ring": Peers(shape="ring"),
    "grid": Peers(shape="grid"),
    "complete": Peers(shape="complete"),
}


MUST = {
    "ridge": (Regression("ridge"), -100),
    "elastic net": (Regression("elastic-net", zeros=4), -100),
    "least absolute": (Regression("least-absolute"), -35),
}
FURTHER = MUST | {
    "few": (Regression("ridge", clients=9, samples=20, size=3, noise=1.0), -100),
    "wide": (Regression("elastic-net", clients=20, samples=100, size=20, zeros=15), -100),
    "noisy": (Regression("least-absolute", clients=20, size=3, noise=1.0), -35),
}


def worst_level(problem, graph, seed, seeds):
    """The largest final error of several seeds, in dB, with penalty and step that were not given."""
    result = federation(problem, topology=GRAPHS[graph], seed=seed).run(seeds, theory={})
    return 10 * math.log10(max(value for _, n, name, value, _ in result.rows if (n, name) == (400, "deviation")))


@pytest.mark.parametrize("graph", ["ring", "complete"])
@pytest.mark.parametrize("name", MUST)
def test_what_a_user_gets_fits_the_best_and_the_worst_of_graphs(name, graph):
    """The conditions of the two graphs differ by a factor of 250."""
    problem, bound = MUST[name]
    assert worst_level(problem, graph, 5, 1) < bound


@pytest.mark.long
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", FURTHER)
def test_what_a_user_gets_fits_any_connected_graph(name, graph):
    problem, bound = FURTHER[name]
    assert worst_level(problem, graph, 100, 6) < bound


@dataclass(frozen=True)
class Scaled(Regression):
    """Regression in other units."""

    times: float = 1.0

    def drawn(self, seed):
        x, y = super().drawn(seed)
        return x * self.times, y


@pytest.mark.parametrize("times", [1e-2, 30.0])
@pytest.mark.parametrize("objective", ["ridge", "least-absolute"])
def test_what_a_user_gets_fits_data_in_any_unit(objective, times):
    result = federation(Scaled(objective, l2=0.0, times=times), topology=GRAPHS["random"]).run(theory={})
    assert level(result) < (-100 if objective == "ridge" else -35)


@pytest.mark.parametrize("shape", ["ring", "random"])
def test_files_of_ones_own_in_other_units_are_learned_too(tmp_path, shape):
    """Five sensors with different units and numbers of samples; the elastic net of them all, against CVXPY."""
    rng, everyone = np.random.default_rng(8), []
    for k in range(5):
        x = rng.standard_normal((12 + 7 * k, 4)) * [1.0, 20.0, 0.3, 5.0] + 0.5
        y = x @ [3.0, 0.0, -40.0, 0.2] + rng.standard_normal(len(x))
        np.savez(tmp_path / f"sensor-{k}.npz", x=x, y=y)
        everyone.append((x, y))
    np.savez(tmp_path / "apart.npz", x=x, y=y)
    problem = Files(str(tmp_path / "sensor-*.npz"), test=str(tmp_path / "apart.npz"), l1=0.5, l2=0.1)
    described = federation(problem, topology=Peers(shape=shape))
    instance = described.instance()
    described.engine_of(instance).advance(0, 400)
    x, y = (np.concatenate(parts) for parts in zip(*everyone))
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    weight = np.concatenate([np.full(len(own), 1 / len(own)) for _, own in everyone])
    exact = centralised(x, y, weight, "squared", 0.5, 0.1)
    found = instance.plan.tables["peer"].model
    assert ((found - exact) ** 2).sum() / (exact**2).sum() < 1e-10


def test_with_noise_the_settings_never_look_at_the_data():
    private = Privacy(epsilon=1.0, clip=1.0)
    for objective in ("ridge", "least-absolute"):
        one, other = (
            federation(Scaled(objective, clients=6, samples=5, times=times), privacy=private).instance().plan
            for times in (1.0, 30.0)
        )
        assert one.settings.mix.penalty == other.settings.mix.penalty and one.settings.learn == other.settings.learn
        assert (one.tables["peer"].protect.noise == other.tables["peer"].protect.noise).all()
