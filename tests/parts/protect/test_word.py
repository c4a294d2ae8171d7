"""Noise with the word: one release of all that was learned since others knew the model, and what ledgers say of it."""

import numpy as np
import pytest

from archipel.draws import PRIVACY, key_of, normal
from archipel.errors import BadInput
from archipel.federation import Federation

STREAM = {"kind": "synthetic", "clients": 5, "features": 8, "test": 10, "samples": [400], "horizon": 400}
SMALL = {"kind": "regression", "clients": 10, "samples": 10, "size": 4}


def federation(**tables):
    return Federation.from_table({"rounds": 30, "precision": "float64", **tables})


@pytest.mark.parametrize("engine", ["plain", "serial"])
def test_what_was_released_is_no_change_any_more(engine):
    """Who learns nothing says what it said or was told last, and new noise: nothing of it is clipped once more."""
    learn = {"kind": "pao-fed", "step": 1e-12, "portion": 2, "protect": {"kind": "at-word"}}
    given = federation(problem=STREAM, algorithm=learn, privacy={"noise": 1.0, "clip": 0.1}, engine=engine)
    instance = given.instance()
    played, client = given.engine_of(instance), instance.plan.tables["client"]
    for n in range(4):
        before, server = client.model[0].copy(), instance.plan.tables["server"].model[0].copy()
        played.advance(n, n + 1)
        noise = [normal(key_of(instance.seed, 0, n), PRIVACY, j) for j in range(8)]
        known = np.isclose(client.model[0], before + noise, atol=1e-9) | np.isclose(
            client.model[0], server + noise, atol=1e-9
        )
        assert known.all(), (n, client.model[0] - before, noise)
        assert client.protect.releases[0, 0] == n + 1


@pytest.mark.parametrize("portion", [2, 8])  # masses by parameter, and one for all
@pytest.mark.parametrize("topology", ["star", "peers", "digraph"])
def test_without_noise_or_bound_it_is_the_open_run(topology, portion):
    """Also for peers that learn while they are away: what they weigh by push-sum counts once."""
    links = {"kind": topology} | ({"mean_degree": 2.0} if topology != "star" else {})
    links |= {"shares": "random"} if topology == "digraph" else {}
    learn = {"kind": "pao-fed", "step": 0.3, "portion": portion}
    away = {"availability": [0.6]}
    found = []
    for protect in ({}, {"protect": {"kind": "at-word"}}):
        privacy = {"privacy": {"noise": 1e-13, "clip": 1e3}} if protect else {}
        given = federation(problem=STREAM, algorithm=learn | protect, topology=links, environment=away, **privacy)
        instance = given.with_(engine="plain").instance()
        given.with_(engine="plain").engine_of(instance).advance(0, 30)
        found.append(instance.plan.tables["client" if topology == "star" else "peer"].model.copy())
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-9)
    assert np.abs(found[0]).max() > 0.01


@pytest.mark.parametrize("kind", ["at-mix", "in-turn", "individual", "at-word"])
@pytest.mark.parametrize("enforce", [True, False])
def test_a_bound_that_nobody_keeps_is_not_called_enforced(kind, enforce):
    """Every sentence about a bound is true: of what is clipped, and of whether it is."""
    sample = kind == "at-word"
    privacy = {"epsilon": 2.0, "clip": 0.001, "enforce": enforce, "unit": "sample" if sample else "client"}
    privacy |= {} if sample else {"relation": "add-remove"}
    learn = {"kind": "fedavg", "step": 0.1, "protect": {"kind": kind}}
    given = federation(problem=SMALL, algorithm=learn, privacy=privacy).with_(engine="plain")
    instance = given.instance()
    terms = instance.plan.accountant.terms
    bounds = [held for held in terms.assumptions if "at most 0.001" in held.what]
    assert [held.how for held in bounds] == ["enforced" if enforce else "assumed"]
    assert "example" not in bounds[0].what and terms.how == bounds[0].how


@pytest.mark.parametrize("kind", ["at-sample", "at-gradient", "at-word", "at-mix", "individual", "summed"])
def test_bounds_that_nobody_would_hold_to_are_refused(kind):
    """What is clipped is a gradient or a change: features, targets and models stay as they are, whatever is said."""
    by_client = kind in ("at-mix", "individual", "summed")
    privacy = {"epsilon": 2.0, "clip": 0.1, "unit": "client" if by_client else "sample"}
    privacy |= {"relation": "add-remove"} if kind in ("at-mix", "individual") else {}
    own = "mirror-descent" if kind == "at-gradient" else "fedavg" if by_client else "online-fed"
    problem = SMALL if own == "fedavg" else STREAM
    given = {"problem": problem, "algorithm": {"kind": own, "protect": {"kind": kind}}}
    assert federation(**given, privacy=privacy).instance().plan.accountant.terms.how == "enforced"
    for name in ("features", "target", "radius"):
        with pytest.raises(BadInput) as caught:
            federation(**given, privacy=privacy | {"bounds": {name: 1e-3}}).instance()
        assert caught.value.key == f"privacy.bounds.{name}" and "privacy.clip" in caught.value.right
