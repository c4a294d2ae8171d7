"""The PLDP paper's figures: their statistics, their claims, and what they do without a data set."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from archipel.errors import Missing
from archipel.figures import pldp


def runs_of(**finals):
    return {
        name: pldp.Runs([0.0, 1.0], np.array([[0.1, v] for v in values]), np.zeros((len(values), 2)), {}, [])
        for name, values in finals.items()
    }


def test_intervals_are_students():
    values = np.array([0.6, 0.7, 0.75, 0.71])
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    mean, half = pldp.interval(values)
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert pldp.interval([0.5]) == (0.5, np.inf)


def test_five_points_must_be_there_and_beyond_chance():
    base = np.array([0.6, 0.62, 0.64])
    clear = runs_of(optimal=base + [0.06, 0.07, 0.08], uniform=base, weight=base - 0.01)
    small = runs_of(optimal=base + [0.03, 0.04, 0.05], uniform=base, weight=base - 0.1)
    chance = runs_of(optimal=base + [0.4, -0.1, -0.1], uniform=base, weight=base)
    assert pldp.gain_claim(clear).holds and pldp.speed_claim(clear).holds
    assert not pldp.gain_claim(small).holds and pldp.speed_claim(small).holds
    assert not pldp.gain_claim(chance).holds and not pldp.speed_claim(chance).holds
    assert "over uniform 7.0 ± 2.5 %" in pldp.gain_claim(clear).measured


def test_a_missing_set_is_named_and_the_next_one_taken(monkeypatch):
    have = {"digits"}
    monkeypatch.setattr(pldp, "known", lambda name: SimpleNamespace(available=lambda: name in have, page=f"{name}.org"))
    name, note = pldp.at_hand(("emnist-byclass", "mnist", "digits"), download=False)
    assert name == "digits" and "emnist-byclass.org" in note and "mnist.org" in note
    have.clear()
    with pytest.raises(Missing, match=r"digits\.org"):
        pldp.at_hand(("mnist", "digits"), download=False)
    have.add("mnist")
    monkeypatch.setattr(pldp, "load", lambda name: (_ for _ in ()).throw(Missing(f"{name} is offline.")))
    assert pldp.at_hand(("emnist-byclass", "mnist"), download=True) == ("mnist", "emnist-byclass is offline. ")


def test_a_small_figure_has_all_its_parts():
    pytest.importorskip("torch")
    problem = pldp.Deep("digits", model="mlp", widths=(8,), clients=4, samples=400)
    algorithm = pldp.PldpFl(batch=100, draws=2, local_steps=1)  # whole batches: instant accounting
    figure = pldp.drawn("pldp/3", "small", pldp.Trial(problem, algorithm, 3, 2, 1, "A note. "), None)
    metrics = json.loads(json.dumps(figure.metrics()))
    assert set(metrics["series"]) == {f"{s}: {what}" for s in pldp.SAMPLINGS for what in ("accuracy", "loss")}
    assert all(len(line["x"]) == len(line["y"]) == 4 for line in metrics["series"].values())
    assert len(metrics["claims"]) == 6 and metrics["note"].startswith("A note. digits")
    by = {claim["claim"].split(":")[0]: claim for claim in metrics["claims"]}
    assert by["privacy guarantees"]["holds"] and by["theorem 3"]["holds"]
    assert "in 0 of 6 runs" in by["privacy guarantees"]["measured"]
