"""Individual accounting as a part: nobody above its budget, more rounds for it, nothing of it published."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archipel import Federation
from archipel.algorithms.fedavg import FedAvg
from archipel.errors import BadInput
from archipel.node import row
from archipel.parts.mix.mean import Mean
from archipel.parts.protect import individual
from archipel.parts.protect.individual import Individual
from archipel.parts.protect.mix import AtMix
from archipel.parts.share.whole import Whole
from archipel.privacy.account import accounts
from archipel.privacy.accounting import record
from archipel.privacy.policy import Privacy
from archipel.privacy.releases import Gaussian
from archipel.problems.linear import Linear
from archipel.simulate.engine import engine_for
from archipel.testing import check_algorithm

EPSILON, DELTA, PLANNED = 2.0, 1e-5, 40


def federation(protect, rounds=2 * PLANNED, clients=12, clip=0.05, **policy):
    """Clients whose changes are of different lengths: a clip that the longest reach."""
    problem = Linear(clients=clients, size=4, samples=30)
    private = Privacy(
        epsilon=EPSILON, delta=DELTA, clip=clip, unit="client", relation="add-remove", releases=PLANNED, **policy
    )
    algorithm = FedAvg(step=0.01, epochs=1, protect=protect, share=Whole(change=True), mix=Mean(0))
    return Federation(problem, algorithm, privacy=private, rounds=rounds, every=rounds, engine="plain")


def played(made):
    """What each client said in each round, as mu of a Gaussian release, from the wire."""
    instance = made.instance()
    engine, said = engine_for(instance, "plain"), []
    account = instance.plan.tables["client"].protect
    turn = next(i for i, turn in enumerate(instance.plan.turns) if turn.sender == "client")
    for n in range(made.rounds):
        engine.advance(n, n + 1)
        words = engine.rounds.mails[turn].words.values
        said.append(np.linalg.norm(words.astype(float), axis=1) / account.noise[:, 0])
    return instance, np.array(said)


def test_nobody_is_above_its_budget_by_an_exact_accountant_and_most_are_in_more_rounds():
    instance, said = played(federation(Individual()))
    account = instance.plan.tables["client"].protect
    for own in said.T:
        assert record(*[Gaussian(float(mu)) for mu in own if mu > 0]).epsilon(DELTA).epsilon <= EPSILON * (1 + 1e-9)
    assert account.spent[:, 0] == pytest.approx(np.minimum((said**2 / 2).sum(0), account.limit[:, 0]), rel=1e-6)
    assert (account.spent <= account.limit).all()
    assert np.median((said > 0).sum(0)) >= 1.5 * PLANNED  # rounds in which a client says something
    worst = federation(AtMix(), rounds=PLANNED).instance()  # the same noise; its budget is spent after these
    assert worst.plan.tables["server"].protect.noise[0, 0] == pytest.approx(account.noise[0, 0], rel=0.02)


@given(st.lists(st.floats(0, 3), min_size=1, max_size=50), st.floats(0.01, 2), st.floats(0.1, 10))
def test_nobody_pays_more_than_its_budget_whatever_it_says(norms, limit, scale):
    account = row(accounts(np.array([scale]), np.array([limit])), 0)
    me = SimpleNamespace(model=np.zeros(3), before=np.zeros(3), protect=account)
    settings, said = SimpleNamespace(protect=SimpleNamespace(clip=1.0)), []
    for norm in [*norms, np.inf, np.nan]:
        me.model[:] = np.array([0.6, 0.0, 0.8]) * norm if norm < np.inf else norm
        assert individual.shorten(me, settings, None)
        said.append(np.linalg.norm(me.model))
    assert said[-2:] == [0.0, 0.0]
    assert all(one <= min(norm, 1.0) * (1 + 1e-12) for one, norm in zip(said, norms))
    paid = record(*[Gaussian(one / scale) for one in said]).rho()
    assert paid <= limit * (1 + 1e-9) and account.spent[0] == pytest.approx(min(paid, limit), rel=1e-9, abs=1e-12)
    if account.spent[0] < limit * (1 - 1e-9):  # nobody is shortened before its time
        assert said[:-2] == pytest.approx([min(norm, 1.0) for norm in norms])


def test_payments_are_not_published():
    made = federation(Individual(), rounds=5)
    result = made.run()
    rows = result.ledger()["seeds"][0]["nodes"]
    assert len(rows) == 12 and len({row["spent"]["rho"] for row in rows}) == 1
    assert rows[0]["spent"]["epsilon"] == pytest.approx(EPSILON, rel=1e-6)


def test_who_has_spent_its_budget_says_that_nothing_changed():
    instance, said = played(federation(Individual(), clip=0.02))
    out = instance.plan.tables["client"].protect.spent >= instance.plan.tables["client"].protect.limit * (1 - 1e-9)
    assert out.any() and (said[-1][out[:, 0]] < 1e-4).all()


def test_it_is_the_same_when_compiled():
    check_algorithm(federation(Individual(), rounds=6, clients=4).with_(engine="auto"))


@pytest.mark.parametrize("change", [{"mechanism": "laplace"}, {"schedule": "geometric", "zeta": 0.9}])
def test_it_is_refused_where_it_does_not_hold(change):
    with pytest.raises(BadInput, match="where clients pay for themselves"):
        federation(Individual(), **change).instance()
