"""Noise that cancels in the sum of gradients: what it buys, what it costs (dense matrices), what the audit says."""

import numpy as np
import pytest
from scipy.linalg import toeplitz

from archipel import Federation
from archipel.algorithms.mirror import DualAveraging, MirrorDescent, SaddleMirrorDescent
from archipel.auditing import examine
from archipel.errors import BadInput
from archipel.parts.protect.correlated import Correlated
from archipel.privacy.correlated import strategy
from archipel.privacy.policy import Privacy
from archipel.problems.drifting import Drifting
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_algorithm
from archipel.topology import Digraph

FORMS = ["buffers", "banded", "tree"]


def correlated(rounds, form="buffers", clients=20, **own):
    problem, private = Drifting(clients=clients, size=10, test=50), Privacy(epsilon=1.0, clip=1.0)
    algorithm = DualAveraging(correlation=form, **own)
    return Federation(problem, algorithm, Digraph(shape="complete"), privacy=private, rounds=rounds, every=rounds)


@pytest.mark.parametrize("rounds", [500, pytest.param(2000, marks=pytest.mark.long)])
def test_it_more_than_halves_the_regret_at_epsilon_one(rounds):
    """20 peers, 10 parameters, the step that fits each; theory: deviations of about log(T) in place of sqrt(T)."""
    alone, together = (correlated(rounds, form).run(3).final("regret.static") for form in ("", "buffers"))
    assert together < 0.5 * alone


@pytest.mark.parametrize("form", FORMS)
def test_it_is_the_same_when_compiled(form):
    check_algorithm(correlated(12, form, clients=3))


def test_mirror_steps_take_it_too():
    federation = correlated(12, clients=3).with_(algorithm=MirrorDescent(protect=Correlated("buffers")))
    check_algorithm(federation)


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_pays_once_and_a_client_for_what_stands_together(form):
    """Against dense matrices: a sample moves C x by a column, a client by the sum of all of them."""
    rounds = 30
    instance = correlated(rounds, form, clients=3).instance()
    PlainEngine(instance).advance(0, rounds)
    account, way = instance.plan.tables["peer"].protect, strategy(rounds, form)
    weight = way.settings.weight
    if form == "tree":  # in round t the node is drawn that ends with it: the last t & -t rounds
        C = np.array([[t - (t & -t) < u <= t for u in range(1, rounds + 1)] for t in range(1, rounds + 1)], float)
    elif form == "banded":
        C = np.tril(toeplitz(np.concatenate([[1.0], weight, np.zeros(rounds)])[:rounds]))
    else:
        C = np.tril(toeplitz([1.0] + [float(weight @ way.settings.decay**k) for k in range(rounds - 1)]))
    each = 0.5 * (2.0 / account.noise[:, 0]) ** 2
    assert account.spent[:, 0] == pytest.approx(each * np.linalg.norm(C, axis=0).max() ** 2)
    assert account.summed[:, 0] == pytest.approx(each * np.linalg.norm(C @ np.ones(rounds)) ** 2)
    assert instance.plan.accountant.paid(instance.plan.tables).epsilon.max() <= 1.0 + 1e-9


@pytest.mark.parametrize("form", ["buffers", "tree"])
def test_the_audit_agrees_with_the_ledger(form):
    verdict = examine(correlated(8, form), releases=20_000, rounds=8)[0]
    assert 0.4 < verdict.found <= verdict.claimed <= 1.0


def test_it_is_refused_where_it_does_not_hold():
    for change in ({"mechanism": "laplace"}, {"unit": "client"}, {"schedule": "geometric", "zeta": 0.9}):
        federation = correlated(5).with_(privacy=Privacy(epsilon=1.0, clip=1.0, **change))
        with pytest.raises(BadInput, match="where noise is correlated"):
            federation.instance()
    with pytest.raises(BadInput, match="drawn anew"):
        correlated(5).with_(algorithm=SaddleMirrorDescent(protect=Correlated())).instance()
