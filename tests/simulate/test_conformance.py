"""The table every algorithm passes. A new algorithm adds a row."""

from dataclasses import replace

import numpy as np
import pytest

from archipel import Delay, Environment, Federation, Linear, OnlineFed, PaoFed, SignSgd, Synthetic
from archipel.algorithms.dp_fedavg import DpFedAvg
from archipel.algorithms.mirror import DualAveraging, LagrangianDescent, MirrorDescent, SaddleMirrorDescent
from archipel.algorithms.online import OnlineFedSgd, PsoFed
from archipel.algorithms.zcdp_nfl import PAdmm, ZcdpGradNfl, ZcdpNfl
from archipel.node import leaves, named_leaves
from archipel.parts.learn.constraints import Budget
from archipel.privacy.policy import Privacy
from archipel.problems.drifting import Drifting
from archipel.problems.networked import Regression
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_algorithm
from archipel.topology import Digraph, Peers
from reference.engine import ReferenceEngine

STREAM = Synthetic(clients=20, features=24, test=30, horizon=60, samples=(15, 30, 45, 60))
ROUGH = Environment(availability=(0.6, 0.3, 0.1, 1.0), stride=2, delay=Delay(delta=0.5, limit=4))

NETWORK = Regression("elastic-net", clients=9, samples=6, size=4, test=10, reference=False)
AWAY = Environment(availability=0.7)
BUDGET = Privacy(epsilon=2.0, noise=0.3, clip=0.2, unit="client")
LAPLACE = Privacy(epsilon=8.0, mechanism="laplace", clip=0.2, schedule="geometric", zeta=0.95)
DRIFTING = Drifting(clients=8, size=4, loss="logistic", space="simplex", drift=0.5)
ENTROPY = MirrorDescent(region="simplex", map="entropy", floor=0.01, path=0.1, drift=0.5)
CHANGING = Digraph(phases=4, fade=0.2, opt_out=0.1, window=4, mean_degree=4.0)

TABLE = {
    "pao-fed-c2": Federation(STREAM, PaoFed(limit=4), environment=ROUGH, rounds=60),
    "pao-fed-u1-random": Federation(
        STREAM, PaoFed(variant="U1", order="random", limit=4), environment=ROUGH, rounds=60
    ),
    "pao-fed-full-download": Federation(STREAM, PaoFed(download="full", ignore=5), environment=ROUGH, rounds=40),
    "pso-fed": Federation(STREAM, PaoFed(asked=0.4, portion=7, autonomous=False), environment=ROUGH, rounds=40),
    "pao-fed-float64": Federation(STREAM, PaoFed(limit=4), environment=ROUGH, rounds=60, precision="float64"),
    "online-fed": Federation(STREAM, OnlineFed(asked=0.5, limit=4), environment=ROUGH, rounds=60),
    "pso-fed-default": Federation(STREAM, PsoFed(), environment=ROUGH, rounds=40),
    "online-fedsgd": Federation(STREAM, OnlineFedSgd(), environment=ROUGH, rounds=40),
    "online-fed-linear": Federation(Linear(clients=9, size=5, samples=30), OnlineFed(step=0.05), rounds=40),
    "sign-sgd": Federation(STREAM, SignSgd(), environment=ROUGH, rounds=40),
    "stochastic-sign-sgd": Federation(STREAM, SignSgd(bound=0.4, vote="mean"), environment=ROUGH, rounds=40),
    "private-pao-fed": Federation(STREAM, PaoFed(limit=4), environment=ROUGH, rounds=40, privacy=BUDGET),
    "private-online-fed": Federation(STREAM, OnlineFed(limit=4), environment=ROUGH, rounds=40, privacy=LAPLACE),
    "zcdp-nfl": Federation(NETWORK, ZcdpNfl(), Peers(shape="ring"), rounds=40),
    "private-zcdp-nfl": Federation(NETWORK, ZcdpNfl(), Peers(shape="ring"), AWAY, BUDGET, rounds=40),
    "laplace-zcdp-nfl": Federation(NETWORK, ZcdpNfl(), Peers(shape="ring"), AWAY, LAPLACE, rounds=40),
    "zcdp-grad-nfl": Federation(NETWORK, ZcdpGradNfl(), Peers(shape="grid"), privacy=BUDGET, rounds=40),
    "p-admm": Federation(replace(NETWORK, objective="ridge"), PAdmm(), Peers(shape="ring"), AWAY, rounds=40),
    "mirror-descent": Federation(DRIFTING, ENTROPY, CHANGING, AWAY, LAPLACE, rounds=40),
    "mirror-descent-late": Federation(DRIFTING, MirrorDescent(limit=4), CHANGING, ROUGH, BUDGET, rounds=40),
    "dual-averaging": Federation(
        DRIFTING, DualAveraging(region="simplex", map="entropy", floor=0.01), CHANGING, AWAY, LAPLACE, rounds=40
    ),
    "saddle-mirror-descent": Federation(
        DRIFTING, SaddleMirrorDescent(constraint=Budget("energy", 1.0, (0.1, 0.3))), CHANGING, AWAY, rounds=40
    ),
    "lagrangian-descent": Federation(
        DRIFTING, LagrangianDescent(constraint=Budget("sample")), CHANGING, AWAY, LAPLACE, rounds=40
    ),
    "dp-fedavg": Federation(DRIFTING, DpFedAvg(asked=0.7), environment=AWAY, privacy=BUDGET, rounds=40),
}


@pytest.mark.parametrize("name", TABLE)
def test_turns_mean_what_the_reference_says(name):
    federation = TABLE[name]
    ours, theirs = federation.instance(), federation.instance()
    plain, slow = PlainEngine(ours), ReferenceEngine(theirs)
    for engine in (plain, slow):
        engine.advance(0, 15)
    for role, table in ours.plan.tables.items():
        for (field, mine), other in zip(named_leaves(table), leaves(theirs.plan.tables[role])):
            assert np.array_equal(mine, other, equal_nan=True), (role, field)
    assert plain.messages == slow.messages and plain.updates == slow.updates


@pytest.mark.parametrize("name", TABLE)
def test_conformance(name):
    check_algorithm(TABLE[name])


@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_threads_change_nothing(name):
    check_algorithm(TABLE[name], parallel=True)
