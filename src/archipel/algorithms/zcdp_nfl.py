"""zCDP-NFL: nodes learn together by noised ADMM, smooth or not; and what the thesis compares it with.

Gauthier, thesis, chapter 3 and appendix P2; equation numbers are the thesis'. A node takes the primal step (3.8) in
closed form, says it noised, (3.9), and moves its dual by what it hears, (3.10). Beside it the conventional subgradient
method with the same noise, zCDP-grad-NFL (Nedic, Ozdaglar, 2009); (epsilon, delta)-DP-NFL, which differs in how its
noise is found; and P-ADMM (Ding et al., 2019), which solves every local problem exactly.

On a star, and on a graph of servers, servers are nodes of the same ADMM without data, see `parts.mix.dual`.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import key
from archipel.errors import BadInput
from archipel.node import table_of
from archipel.parts.admm import Admm, Stepping, consensus_plan
from archipel.parts.learn import primal
from archipel.parts.learn.bounded import mean_gradient_of
from archipel.parts.learn.fitting import Fit, fitted, fitted_blindly, fitted_subgradient, fitted_subgradient_blindly
from archipel.parts.learn.solve import factors, guard_of, solver_of, solving_state
from archipel.parts.mix.dual import adjacency, degrees_of, mix_only
from archipel.parts.protect.told import Priced, priced, tell, tell_openly, teller
from archipel.privacy.policy import Guard, Privacy
from archipel.problems.losses.supervised import SQUARED
from archipel.problems.models.learners import sizes_of
from archipel.theory import zcdp_nfl as theory
from archipel.topology.connectivity import DENSE
from archipel.turns import Plan, Setup


class Weights(NamedTuple):
    """What gradients are divided by: a node's part, and a round's."""

    own: Any
    in_round: Any

    def of(self, part: slice) -> Any:
        """Of some nodes, in all rounds."""
        return self.own[part, None] + self.in_round


@dataclass(frozen=True)
class ZcdpNfl(Admm):
    """Networked ADMM with first-order steps and Gaussian noise: nonsmooth losses and regularisers.

    `step` / n^`decay` is eta(n), `penalty` is rho. Where they are not given they fit loss, data and graph (a run
    prints them); with noise, or where nobody sees everyone's data, they fit what is public: loss, graph and rounds.
    """

    rate: ClassVar = theory.RATE
    fitting: ClassVar = staticmethod(fitted)
    fitting_blindly: ClassVar = staticmethod(fitted_blindly)

    penalty: float | None = key(None, "how hard neighbours pull; none given: what fits", above=0, symbol="rho")
    step: float | None = key(None, "the step in the first round; none given: what fits", above=0, symbol="eta")
    decay: float | None = key(None, "the exponent with which steps fall", at_least=0, at_most=1, noun="an exponent")
    proximal: bool = key(True, "the l1 part as a soft threshold, which finds zeros; false: a subgradient, as published")

    def laid(self, setup: Setup) -> Plan:
        """Everyone at zero, and the turns of the topology."""
        fit = self.fit(setup)
        return consensus_plan(setup, self.stepping(setup, fit), self.priced(setup, fit), fit.penalty)

    def stepping(self, setup: Setup, fit: Fit) -> Stepping:
        """(3.8)."""
        policy = self.policy(setup)
        guard = policy.guard() if policy else Guard()
        l1, l2 = (share / setup.task.clients for share in setup.task.regulariser)
        state = primal.Gradient(table_of((setup.task.clients, setup.task.size), setup.dtype))
        step = primal.first_order(mean_gradient_of(setup.task.loss, guard), self.proximal)
        settings = primal.FirstOrder(fit.step, fit.decay, l1, l2, guard)
        return Stepping(step, primal.reach_of_first_order, teller(policy, guard), state, settings)

    def priced(self, setup: Setup, fit: Fit) -> Priced:
        """Noise and accounts."""
        weights = self.weights(setup, fit)
        return priced(self.policy(setup), setup, lambda part: 1.0 / weights.of(part), sizes_of(setup.task))

    def fit(self, setup: Setup) -> Fit:
        """rho and eta(n)."""
        given = {name: getattr(self, name) for name in Fit._fields if getattr(self, name) is not None}
        if len(given) < len(Fit._fields):
            policy = self.policy(setup)
            hidden = setup.task.local_only or (policy is not None and policy.protects)
            given = (self.fitting_blindly if hidden else self.fitting)(setup)._asdict() | given
        return Fit(**{name: float(value) for name, value in given.items()})

    def policy(self, setup: Setup) -> Privacy | None:
        """The [privacy] table, as this algorithm reads it."""
        return setup.privacy

    def weights(self, setup: Setup, fit: Fit) -> Weights:
        """What the data's gradient is divided by, 2 rho |N_k| + 1 / eta(n)."""
        return Weights(2 * fit.penalty * degrees_of(setup.graph), primal.inertias(fit, setup.rounds))

    def check(self, setup: Setup) -> dict[str, float]:
        """What was chosen, the largest stable step for a squared loss, and what the theory says of the noise."""
        fit = self.fit(setup)
        found = {"penalty": fit.penalty, "step": fit.step, "decay": fit.decay, "order_of_rate": self.rate.order}
        if setup.task.loss == SQUARED:
            found["step_bound"] = step_bound(setup, fit.penalty)
            if fit.decay == 0 and fit.step > found["step_bound"]:
                right = f"at most {found['step_bound']:.4g}, beyond which it may diverge, or a decay above 0"
                raise BadInput("algorithm.step", fit.step, right)
        return found | self.check_noise(setup, fit)

    def check_noise(self, setup: Setup, fit: Fit) -> dict[str, float]:
        """(3.12) at its largest, and of (3.21) what can be computed: alpha_xi, and for zeta < 1 the noise term."""
        found, policy = {}, self.policy(setup)
        if 1 < setup.task.clients + setup.graph.servers <= DENSE:
            graph = theory.spectrum(adjacency(setup.graph))
            found["noise_factor"] = theory.noise_factor(graph, fit.penalty, setup.task.size)
        if policy is not None and policy.protects:
            made = self.priced(setup, fit)
            weights = self.weights(setup, fit)
            found["sensitivity"] = float((made.state.change[:, 0] / (weights.own + weights.in_round[0])).max())
            found["noise"] = float(made.noise.first.max())
            if policy.zeta < 1 and "noise_factor" in found:
                first = made.noise.first[:, 0] ** 2
                found["noise_term"] = theory.noise_term(found["noise_factor"], first, policy.zeta, setup.rounds)
        return found


@dataclass(frozen=True)
class DpNfl(ZcdpNfl):
    """(epsilon, delta)-DP-NFL: zCDP-NFL whose noise follows (epsilon, delta) rules in every round, summed up."""

    def policy(self, setup: Setup) -> Privacy | None:
        """The table with the rule that finds the noise, where it is not given."""
        policy = setup.privacy
        if policy is None or not policy.has_target:
            return policy
        if policy.epsilon is None or policy.mechanism != "gaussian":
            right = 'an epsilon and Gaussian noise, which is what the rule of dp-nfl is about, or kind = "zcdp-nfl"'
            raise BadInput("privacy.epsilon", "(missing)" if policy.epsilon is None else policy.epsilon, right)
        return replace(policy, calibration="per-round")


@dataclass(frozen=True)
class ZcdpGradNfl(ZcdpNfl):
    """The conventional networked subgradient method with the same noise, to compare."""

    fitting: ClassVar = staticmethod(fitted_subgradient)
    fitting_blindly: ClassVar = staticmethod(fitted_subgradient_blindly)

    proximal: bool = key(False, "the l1 part as a soft threshold; false: as a subgradient")

    def stepping(self, setup: Setup, fit: Fit) -> Stepping:
        """Mix, and step."""
        own = super().stepping(setup, fit)
        step = primal.subgradient(mean_gradient_of(setup.task.loss, own.settings.guard), self.proximal)
        return own._replace(step=step, reach=primal.reach_of_subgradient, at_servers=mix_only)

    def weights(self, setup: Setup, fit: Fit) -> Weights:
        """1 / eta(n)."""
        return Weights(np.zeros(setup.task.clients), primal.inertias(fit, setup.rounds))

    def check(self, setup: Setup) -> dict[str, float]:
        """What was chosen."""
        fit = self.fit(setup)
        return {"step": fit.step, "decay": fit.decay}


@dataclass(frozen=True)
class PAdmm(ZcdpNfl):
    """Networked ADMM with exact local solutions of ridge regression, noised. Private with `bounds`, see `learn.solve`:
    features, target and model are bounded, as a minimiser's gradients cannot be clipped.
    """

    proximal: bool = key(False, "not used, nor are step and decay: there is no first-order approximation")

    def stepping(self, setup: Setup, fit: Fit) -> Stepping:
        """The primal step of (3.4), exactly."""
        if setup.task.loss != SQUARED or setup.task.regulariser[0] > 0:
            raise BadInput("problem.objective", "nonsmooth", "ridge: p-admm solves squared losses without an l1 part")
        return exact_stepping(setup, 2 * setup.task.regulariser[1] / setup.task.clients)

    def weights(self, setup: Setup, fit: Fit) -> Weights:
        """The strong convexity of the local problem, 2 rho |N_k| + 2 lambda / K."""
        convexity = 2 * fit.penalty * degrees_of(setup.graph) + 2 * setup.task.regulariser[1] / setup.task.clients
        return Weights(convexity, np.zeros(1))

    def check(self, setup: Setup) -> dict[str, float]:
        """What was chosen."""
        return {"penalty": self.fit(setup).penalty}


def exact_stepping(setup: Setup, shrinkage: Any, train: Any = None, alone: bool = False) -> Stepping:
    """Exact steps of ridge regression, in a ball if privacy has to rest on one."""
    guard = guard_of(setup)
    data, change = factors(setup.task, guard.features, guard.target, train)
    step, said = primal.exactly(solver_of(SQUARED, guard.radius)), tell_openly if setup.privacy is None else tell
    state, settings = solving_state(data, shrinkage), primal.Exact(change, guard.radius)
    return Stepping(step, primal.reach_of_exact, said, state, settings, alone)


def step_bound(setup: Setup, penalty: float) -> float:
    """The largest constant step for which 1/eta + rho min eig(D + A) stays above half the largest curvature.

    The condition of linearised ADMM (Ling, Shi, Wu, Ribeiro, IEEE Trans. Signal Processing, 2015). With servers the
    graph may have two sides, and its least eigenvalue is 0.
    """
    least = 0.0
    if setup.task.clients <= DENSE and not setup.graph.servers:
        matrix = adjacency(setup.graph)
        least = float(np.linalg.eigvalsh(np.diag(matrix.sum(1)) + matrix)[0])
    seen = (x for x in setup.task.inputs(10**9) if len(x))
    curvature = max((2 * float(np.linalg.norm(x, 2)) ** 2 / len(x) for x in seen), default=0.0)
    needed = curvature / 2 + setup.task.regulariser[1] / setup.task.clients - penalty * max(least, 0.0)
    return 1 / needed if needed > 0 else math.inf
