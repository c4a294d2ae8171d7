"""P-ADMM: networked ADMM that solves every local problem exactly, for smooth objectives.

Ding et al., 2019, as the thesis compares with it in 3.4.3: zCDP-NFL without the first-order approximation and its
time-varying step. The minimiser of a squared loss has no bound that clipping could enforce: what it costs in
privacy rests on bounds that are assumed.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.algorithms.fitting import Fit
from archipel.algorithms.zcdp_nfl import ZcdpNfl, degrees_of, say
from archipel.errors import BadInput
from archipel.node import kernel, matvec
from archipel.privacy.policy import Privacy
from archipel.problems.losses.supervised import SQUARED
from archipel.turns import Plan, Setup


class Peer(NamedTuple):
    """A peer of zCDP-NFL that keeps its local problem solved."""

    model: Any
    told: Any
    dual: Any
    around: Any
    heard: Any
    gradient: Any
    change: Any
    noise: Any
    silent: Any
    spent: Any
    limit: Any
    releases: Any
    inverse: Any  # of 2 X^T X / D + (2 lambda / K + 2 rho |N|) I
    pulled: Any  # 2 X^T y / D


@kernel
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """The primal step of (3.4), exactly."""
    if not moment.present:
        return False
    pull, agreed = settings.penalty, 2.0 * moment.degree - me.heard[0]
    for j in range(me.model.shape[0]):
        me.gradient[j] = me.pulled[j] + pull * (agreed * me.told[j] + me.around[j]) - me.dual[j]
    matvec(me.model, me.inverse, me.gradient)
    return say(me, said, me.change[0] / (2.0 * pull * moment.degree + 2.0 * settings.l2), settings, moment)


@dataclass(frozen=True)
class PAdmm(ZcdpNfl):
    """Networked ADMM with exact local solutions of ridge regression, noised; its privacy is assumed, not enforced."""

    play: ClassVar = staticmethod(act)

    proximal: bool = False  # nor are step and decay used: there is no first-order approximation

    def plan(self, setup: Setup) -> Plan:
        """The plan of zCDP-NFL, with every local problem solved beforehand."""
        if setup.task.loss != SQUARED or setup.task.regulariser[0] > 0:
            raise BadInput("problem.objective", "nonsmooth", "ridge: p-admm solves squared losses without an l1 part")
        plan = super().plan(setup)
        inverses, pulled = solved(setup, plan.settings.penalty)
        return plan._replace(tables={"peer": Peer(*plan.tables["peer"], inverses, pulled)})  # type: ignore[call-arg]

    def policy(self, setup: Setup) -> Privacy | None:
        """Refuse to call enforced what is not."""
        policy = setup.privacy
        if policy is not None and policy.enforce and policy.protects:
            right = "false: the exact minimiser of a squared loss has no enforceable bound, p-admm only assumes one"
            raise BadInput("privacy.enforce", policy.enforce, right)
        return policy

    def weights(self, setup: Setup, fit: Fit) -> Any:
        """(peers, rounds): the strong convexity of the local problem, 2 rho |N_k| + 2 lambda / K."""
        convexity = 2 * fit.penalty * degrees_of(setup.graph) + 2 * setup.task.regulariser[1] / setup.task.clients
        return np.broadcast_to(convexity[:, None], (setup.task.clients, setup.rounds))

    def check(self, setup: Setup) -> dict[str, float]:
        """What was chosen."""
        return {"penalty": self.fit(setup).penalty}


def solved(setup: Setup, penalty: float) -> tuple[Any, Any]:
    """Every local problem's inverse and right-hand side."""
    source, clients, size = setup.task.source, setup.task.clients, setup.task.size
    inverses, pulled = np.zeros((clients, size, size)), np.zeros((clients, size))
    for k, degree in enumerate(degrees_of(setup.graph)):
        x, y = (part[source.starts[k] : source.starts[k + 1]] for part in (source.x, source.y))
        ridge = 2 * setup.task.regulariser[1] / clients + 2 * penalty * degree
        inverses[k] = np.linalg.inv(2 * x.T @ x / len(y) + ridge * np.eye(size))
        pulled[k] = 2 * x.T @ y / len(y)
    return inverses, pulled
