"""Noise that cancels in the sum of gradients: what it buys, what it costs (dense matrices), what the audit says."""

import numpy as np
import pytest
from scipy.linalg import toeplitz

from archipel import Federation, SignSgd, Synthetic
from archipel.algorithms.mirror import DualAveraging, MirrorDescent, SaddleMirrorDescent
from archipel.algorithms.online import OnlineFedSgd, PaoFed
from archipel.auditing import examine
from archipel.errors import BadInput
from archipel.parts.protect.correlated import Correlated
from archipel.privacy import correlated as correlation
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


def dense(rounds, form):
    """C, from what the settings of a node say."""
    weight, decay = strategy(rounds, form).settings[1:]
    if form == "tree":  # in round t the node is drawn that ends with it: the last t & -t rounds
        return np.array([[t - (t & -t) < u <= t for u in range(1, rounds + 1)] for t in range(1, rounds + 1)], float)
    if form == "banded":
        return np.tril(toeplitz(np.concatenate([[1.0], weight, np.zeros(rounds)])[:rounds]))
    return np.tril(toeplitz([1.0] + [float(weight @ decay**k) for k in range(rounds - 1)]))


# --- at a sample's step: PAO-Fed and its kin --------------------------------------------------------------------------


def streamed(kind=PaoFed, clients=3, rounds=12, form="buffers", own=(), **policy):
    """Every client has a sample in every round."""
    problem = Synthetic(clients=clients, samples=(rounds,), horizon=rounds, features=12, test=20)
    algorithm = kind(**{"step": 0.2} | dict(own), protect=Correlated(form) if form else None)
    private = Privacy(**{"epsilon": 4.0, "clip": 1.0} | policy)
    return Federation(problem, algorithm, privacy=private, rounds=rounds, every=rounds, engine="plain")


@pytest.mark.parametrize("form", ["buffers", "banded"])
def test_a_model_has_the_noise_of_the_matrices(form, monkeypatch):
    """One client that hardly learns: its model is A C^-1 z, with the draws written down; and each sample pays for C."""
    drawn = []

    def draw(values, law, scale, key):
        drawn.append(scale * np.random.default_rng(len(drawn)).normal(size=len(values)))
        values += drawn[-1].astype(values.dtype)

    monkeypatch.setattr(correlation, "disturb", draw)
    made = streamed(OnlineFedSgd, 1, form=form, epsilon=None, noise=3.0, clip=1e-9)
    instance = made.instance()
    PlainEngine(instance).advance(0, 12)
    C, account = dense(12, form), instance.plan.tables["client"].protect
    model = np.ones(12) @ np.linalg.solve(C, np.array(drawn))
    assert np.allclose(instance.plan.tables["server"].model[0], model, atol=1e-5) and len(drawn) == 12
    moved = 2 * 0.2 * 1e-9 * np.linalg.norm(C, axis=0).max() / account.noise[0, 0]
    assert account.spent[0, 0] == pytest.approx(moved**2 / 2)


@pytest.mark.long
def test_audits_of_samples_agree_with_the_ledger():
    check_algorithm(streamed().with_(engine="auto"))
    verdict = examine(streamed(rounds=4, clients=2).with_(engine="auto"), releases=20_000, rounds=4)[0]
    assert 0.4 < verdict.found <= verdict.claimed <= 4.0


@pytest.mark.long
@pytest.mark.parametrize(("kind", "gain"), [(OnlineFedSgd, 0.7), (PaoFed, 0.85)])
def test_the_error_at_the_best_step_is_smaller(kind, gain):
    """Epsilon 4, 100 clients, 1,000 rounds of the article's stream, two seeds."""

    def error(form, step):
        algorithm = kind(step=step, protect=Correlated(form) if form else None)
        private = Privacy(epsilon=4.0, clip=1.0)
        return (
            Federation(Synthetic(clients=100), algorithm, privacy=private, rounds=1000, every=1000).run(2).final("mse")
        )

    alone, together = (min(error(form, step) for step in (0.4, 0.2, 0.1, 0.05)) for form in ("", "buffers"))
    assert together < gain * alone


def test_signs_are_not_summed():
    with pytest.raises(BadInput, match="drawn anew"):
        streamed(SignSgd, own={"step": 0.01}).instance()


# --- at the gradient --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_pays_once_and_a_client_for_what_stands_together(form):
    """Against dense matrices: a sample moves C x by a column, a client by the sum of all of them."""
    rounds = 30
    instance = correlated(rounds, form, clients=3).instance()
    PlainEngine(instance).advance(0, rounds)
    account = instance.plan.tables["peer"].protect
    C = dense(rounds, form)
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
