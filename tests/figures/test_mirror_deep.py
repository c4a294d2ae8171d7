"""The dissertation's deep figures: their claims, and a small one from end to end."""

import json

import numpy as np
import pytest

from archipel.figures import mirror_deep
from archipel.figures.mirror_deep import AVERAGE, CLIENTS, EXACT, GAUSSIAN, LAPLACE, PUBLISHED, Course


def courses_of(**finals):
    names = {"published": PUBLISHED, "exact": EXACT, "gaussian": GAUSSIAN, "laplace": LAPLACE}
    names |= {"average": AVERAGE, "clients": CLIENTS}
    return {names[k]: Course([0.0, 1.0], np.array([[0.1, v] for v in values]), 0.1) for k, values in finals.items()}


def test_claims_need_more_than_chance():
    courses = courses_of(
        published=[0.93, 0.94, 0.95], exact=[0.95] * 3, clients=[0.9, 0.91, 0.92], average=[0.93, 0.92, 0.96]
    )
    assert mirror_deep.accuracy_claim(courses, 0.9328).holds
    assert not mirror_deep.accuracy_claim(courses, 0.96).holds
    assert mirror_deep.better_claim(courses, PUBLISHED, (CLIENTS,), "").holds
    assert not mirror_deep.better_claim(courses, PUBLISHED, (CLIENTS, AVERAGE), "").holds
    paid = courses_of(laplace=[0.1], gaussian=[0.1], average=[0.1])
    assert mirror_deep.ledger_claim(paid, 0.1).holds and not mirror_deep.ledger_claim(paid, 0.0999).holds


def test_a_small_figure_has_all_its_parts(monkeypatch):
    pytest.importorskip("torch")
    problem = mirror_deep.Deep("digits", model="mlp", widths=(8,), clients=6, samples=600)
    small = mirror_deep.Trial(problem, 100, 3, 2, 1, "A note. ")  # whole batches: quick accounting
    monkeypatch.setattr(mirror_deep, "trial_of", lambda quick: small)
    figure = mirror_deep.figure_5_1(True, None)
    metrics = json.loads(json.dumps(figure.metrics()))
    assert len(metrics["series"]) == 7 and all(len(line["y"]) == 4 for line in metrics["series"].values())
    assert metrics["note"].startswith("A note. digits")
    by = {claim["claim"][:22]: claim for claim in metrics["claims"]}
    assert len(by) == 5
    assert not by['as published it "prese']["holds"]  # three uses of a record, each moving a gradient by 2
    assert "0.6 where they are known" in by['as published it "prese']["measured"]
    assert by["ours: with sound noise"]["holds"]
    numbers = metrics["numbers"]
    assert numbers[PUBLISHED]["epsilon"] > 0.1 >= numbers[GAUSSIAN]["epsilon"] > 0.09
    assert numbers["without noise"]["epsilon"] is None  # infinite
