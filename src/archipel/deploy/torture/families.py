"""Small federations of every family and topology, to be tortured where a user gives none."""

from typing import Any

from archipel.algorithms.mirror import DualAveraging, MirrorDescent
from archipel.algorithms.online import OnlineFed, PaoFed
from archipel.algorithms.pgfl import Pgfl
from archipel.algorithms.pldp_fl import PldpFl
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.federation import Federation
from archipel.privacy.policy import Privacy
from archipel.problems.clustered import Related
from archipel.problems.linear import Linear
from archipel.problems.networked import Regression
from archipel.problems.synthetic import Synthetic
from archipel.topology import Digraph, Peers, Servers

ROUNDS = 30


def families() -> dict[str, Any]:
    """A federation for each."""
    stream = Synthetic(clients=4, features=12, test=5, horizon=ROUNDS, samples=(ROUNDS,))
    private = Privacy(epsilon=4.0, clip=1.0)
    unspent = Privacy(noise=2.0, clip=1.0)  # peers who have spent a budget pass on what they heard, and pay for nothing
    related = Related(clients=6, tasks=2, size=4, samples=(2, 6), test=5)
    ring = Servers(servers=3, shape="ring", clusters=2)
    stored = Linear(clients=3, size=4, samples=20, test=5)
    return {
        "star": Federation(stream, PaoFed(step=0.2, limit=4), rounds=ROUNDS),
        "private star": Federation(stream, PaoFed(step=0.2, limit=4), privacy=private, rounds=ROUNDS),
        "sampled star": Federation(stream, OnlineFed(step=0.2, asked=0.5, limit=4), rounds=ROUNDS),
        "peers": Federation(Regression(clients=4), ZcdpNfl(), Peers(shape="ring"), rounds=ROUNDS),
        "private peers": Federation(
            Regression(clients=4), ZcdpNfl(), Peers(shape="ring"), privacy=private, rounds=ROUNDS
        ),
        "servers": Federation(related, Pgfl(some=2, tau=0.3), ring, rounds=ROUNDS // 2),
        "digraph": Federation(stream, MirrorDescent(limit=3), Digraph(phases=4, fade=0.2, window=8), rounds=ROUNDS),
        "private digraph": Federation(stream, MirrorDescent(limit=3), Digraph(), privacy=unspent, rounds=ROUNDS),
        "dual averaging": Federation(stream, DualAveraging(limit=3), Digraph(), privacy=unspent, rounds=ROUNDS),
        "own budgets": Federation(stored, PldpFl(batch=20, draws=2, step=0.05), rounds=ROUNDS // 2),
    }
