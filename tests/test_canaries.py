"""Audits in one run: they find what a federation gives away, never more, and catch one that cheats."""

import json
from dataclasses import replace

import numpy as np
import pytest

from archipel import Federation, OnlineFed, Synthetic
from archipel.algorithms.deep import DpFedAvgDeep, MirrorDeep
from archipel.algorithms.pldp_fl import PldpFl
from archipel.auditing.canaries import Planted, both, examine_once
from archipel.errors import BadInput
from archipel.parts.protect import batch, mix, personal
from archipel.problems.deep import Deep
from archipel.problems.linear import Linear
from archipel.topology import Digraph

LINEAR = Linear(clients=4, size=800, samples=120, test=20)  # more parameters than canaries: they stay apart
PLDP = PldpFl(budgets=(4.0, 4.0), batch=120, step=0.01, sampling="uniform", pretrain=6, local_steps=2, draws=2)
DEEP_AVERAGE = DpFedAvgDeep(epsilon=4.0, asked=0.5, step=0.01, batch=20)
MIRROR = MirrorDeep(epsilon=4.0, batch=100, step=0.01)


def federation(algorithm, seed=0, **changes):
    topology = {"topology": Digraph(shape="complete")} if isinstance(algorithm, MirrorDeep) else {}
    return Federation(LINEAR, algorithm, rounds=6, every=6, seed=seed, **topology, **changes)


@pytest.mark.parametrize("algorithm", [PLDP, DEEP_AVERAGE, MIRROR, replace(PLDP, relation="replace-one")])
def test_honest_federations_are_believed_and_something_is_found(algorithm):
    found = [examine_once(federation(algorithm, seed), 400, 0.95) for seed in range(2)]
    assert not any(verdict.refuted for verdict in found), found
    assert all(2 < verdict.claimed <= 4.0 for verdict in found) and max(verdict.found for verdict in found) > 0.3


@pytest.mark.parametrize("algorithm", [PLDP, DEEP_AVERAGE, MIRROR])
def test_noise_left_out_is_caught(algorithm, monkeypatch):
    """A tenth of the noise that the ledger is charged for, at epsilon 1."""
    lower = {"budgets": (1.0, 1.0)} if isinstance(algorithm, PldpFl) else {"epsilon": 1.0}
    for module in (personal, mix, batch):
        true = module.add_gaussian
        monkeypatch.setattr(module, "add_gaussian", lambda a, s, *rest, true=true: true(a, s / 10, *rest))
    verdict = examine_once(federation(replace(algorithm, **lower)), 400)
    assert verdict.refuted and verdict.confidence == 0.999


def test_canaries_are_in_the_data_or_not_by_the_toss():
    task = LINEAR.task(0, 5, np.float64, "deep")
    for replaced in (False, True):
        planted = Planted(LINEAR, 10, replaced, (True, False) * 5)
        found, (x, _) = planted.task(0, 5, np.float64, "deep"), both(task.source, 10, 0)
        rows = {row.tobytes() for row in found.source.x}
        assert [one.tobytes() in rows for one in x[:10]] == [True, False] * 5
        assert [one.tobytes() in rows for one in x[10:]] == [False, replaced] * 5
        assert len(found.source.x) == len(task.source.x) + (10 if replaced else 5) == found.source.starts[-1]
        assert all(own.tobytes() in rows for own in task.source.x)


def test_other_kinds_say_why():
    with pytest.raises(BadInput, match="the others are audited by their twin"):
        examine_once(Federation(Synthetic(clients=3), OnlineFed(), rounds=5))


@pytest.mark.long
@pytest.mark.parametrize("algorithm", [
    PldpFl(budgets=(4.0, 4.0), batch=128, step=0.2, sampling="uniform", pretrain=10),
    DpFedAvgDeep(epsilon=4.0, asked=0.5, step=0.5, local_steps=3),
])  # fmt: skip
def test_at_epsilon_four_a_thousand_canaries_show_more_than_one_on_digits(algorithm):
    pytest.importorskip("torch")
    digits = Deep(model="mlp", widths=(32,), activation="tanh", center=0.3, spread=0.4, clients=6)
    found = [examine_once(Federation(digits, algorithm, rounds=10, every=10, seed=s), 1000, 0.95) for s in range(3)]
    assert np.median([verdict.found for verdict in found]) > 1.0
    assert not any(verdict.refuted for verdict in found)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "federation.toml").write_text(federation(DEEP_AVERAGE).to_toml())
    return tmp_path


def test_the_command(archipel):
    told = archipel("audit", "federation.toml", "--one-run", "--canaries", "200", "--json")
    assert told.status == 0, told.err
    verdict = json.loads(told.out)[0]
    assert verdict["claimed"] <= 4.0 and not verdict["refuted"] and "one run" in verdict["test"]
