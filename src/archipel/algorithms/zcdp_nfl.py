"""zCDP-NFL: peers learn together by noised ADMM, smooth or not.

Gauthier, thesis, chapter 3 and appendix P2; equation numbers are the thesis'. A peer takes the primal step (3.8) in
closed form, says it noised, (3.9), and moves its dual by what it hears, (3.10):

    (1/eta + 2 rho |N|) w = w~/eta + rho sum_l (w~ + w~_l) - dual - gradient of loss / D + lambda R / K, at w~

Everything but the data's gradient is known from what was said, so that (3.12) bounds what one sample can change.
Beside it the conventional subgradient method with the same noise, zCDP-grad-NFL (Nedic, Ozdaglar, 2009), and
(epsilon, delta)-DP-NFL, which differs in how its noise is found.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.algorithms.bounded import bounded_gradient
from archipel.algorithms.fitting import (
    Fit,
    fitted,
    fitted_blindly,
    fitted_subgradient,
    fitted_subgradient_blindly,
)
from archipel.errors import BadInput
from archipel.node import add_scaled, kernel
from archipel.privacy.accountant import Accountant, pay, release_cost, spend_all
from archipel.privacy.bounding import project_ball
from archipel.privacy.noise import NONE, disturb
from archipel.privacy.policy import Guard, Noise, Privacy, release_costs
from archipel.problems.losses.supervised import LOSSES, SQUARED
from archipel.theory import zcdp_nfl as theory
from archipel.topology.connectivity import DENSE
from archipel.turns import Plan, Setup, Turn


class Settings(NamedTuple):
    penalty: Any  # rho
    step: Any  # eta(n) = step / n^decay
    decay: Any
    loss: Any
    l1: Any  # lambda_1 / K
    l2: Any  # lambda_2 / K
    proximal: Any  # 1: the l1 part as a soft threshold; 0: as a subgradient, as published
    mixing: Any  # weight of a neighbour in the subgradient method
    clip: Any
    order: Any
    features: Any
    target: Any
    radius: Any
    private: Any  # 1: pay before saying anything
    law: Any
    shape: Any  # of the noise over the rounds


class Peer(NamedTuple):
    model: Any  # w_k
    told: Any  # w~_k: what the others know of it
    dual: Any  # gamma_k
    around: Any  # sum of the neighbours' w~ that it heard
    heard: Any  # how many
    gradient: Any
    change: Any  # how far replacing one unit moves the mean gradient: 2 c1 / D_k for a sample, 2 c1 for a client
    noise: Any  # its scale at first
    silent: Any  # 1: said nothing this round
    spent: Any
    limit: Any
    releases: Any


class Word(NamedTuple):
    values: Any


class Inbox(NamedTuple):
    total: Any
    heard: Any


@kernel
def inertia_of(settings: Any, moment: Any) -> Any:
    """1 / eta(n)."""
    return float(moment.round + 1) ** settings.decay / settings.step


@kernel
def slope_of_rest(me: Any, j: Any, settings: Any) -> Any:
    """The gradient's j-th part at w~: the data's, and the regulariser's; of the l1 part a subgradient, or nothing."""
    found = me.gradient[j] + 2.0 * settings.l2 * me.told[j]
    if settings.proximal == 0 and me.told[j] != 0.0:
        found += math.copysign(settings.l1, me.told[j])
    return found


@kernel
def soft(value: Any, threshold: Any) -> Any:
    """The proximal step of the l1 norm."""
    return math.copysign(max(abs(value) - threshold, 0.0), value)


@kernel
def act(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """The primal step, (3.8). A neighbour that was not heard counts as one that agrees: (3.12) stays as it is."""
    if not moment.present:
        return False
    inertia, pull = inertia_of(settings, moment), settings.penalty
    weight = inertia + 2.0 * pull * moment.degree
    bounded_gradient(me.gradient, me.told, data, settings)
    agreed = 2.0 * moment.degree - me.heard[0]
    for j in range(me.model.shape[0]):
        drawn = inertia * me.told[j] + pull * (agreed * me.told[j] + me.around[j])
        value = (drawn - me.dual[j] - slope_of_rest(me, j, settings)) / weight
        me.model[j] = soft(value, settings.l1 / weight) if settings.proximal == 1 else value
    return say(me, said, me.change[0] / weight, settings, moment)


@kernel
def act_by_subgradient(me: Any, data: Any, said: Any, settings: Any, moment: Any) -> Any:
    """zCDP-grad-NFL: mix with the neighbours, then step along a subgradient."""
    if not moment.present:
        return False
    inertia = inertia_of(settings, moment)
    bounded_gradient(me.gradient, me.told, data, settings)
    for j in range(me.model.shape[0]):
        mixed = me.told[j] + settings.mixing * (me.around[j] - me.heard[0] * me.told[j])
        value = mixed - slope_of_rest(me, j, settings) / inertia
        me.model[j] = soft(value, settings.l1 / inertia) if settings.proximal == 1 else value
    return say(me, said, me.change[0] / inertia, settings, moment)


@kernel
def say(me: Any, said: Any, sensitivity: Any, settings: Any, moment: Any) -> Any:
    """(3.9), paid before it is said. A peer that cannot pay falls silent; its own model goes on learning."""
    me.silent[0] = 1.0
    scale = 0.0
    if settings.private == 1:
        if moment.round >= settings.shape.shape[0] or settings.shape[moment.round] < 0.0:
            return False
        scale = me.noise[0] * settings.shape[moment.round]
        if not pay(me, release_cost(settings.law, sensitivity, scale)):
            return False
    me.silent[0] = 0.0
    said.values[:] = me.model
    disturb(said.values, settings.law, scale, moment.key)
    project_ball(said.values, settings.radius)
    me.told[:] = said.values
    return True


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    add_scaled(inbox.total, 1.0, said.values)
    inbox.heard[0] += 1.0


@kernel
def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
    """The dual step, (3.10), over links that spoke both ways: so the sum of all duals stays zero."""
    if me.silent[0] == 0.0:
        for j in range(me.dual.shape[0]):
            me.dual[j] += settings.penalty * (inbox.heard[0] * me.told[j] - inbox.total[j])
    me.around[:] = inbox.total
    me.heard[0] = inbox.heard[0]


# --- the descriptions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ZcdpNfl:
    """Networked ADMM with first-order steps and Gaussian noise: nonsmooth losses and regularisers, no server.

    `step` / n^`decay` is eta(n), `penalty` is rho. Where they are not given they fit loss, data and graph (a run
    prints them); with noise they fit what is public: loss, graph and rounds. `proximal` takes the l1 part as a soft
    threshold, which also finds solutions with zeros in them; false is the subgradient, as published.
    """

    topologies: ClassVar = ("peers",)
    precision: ClassVar = "float64"
    data_kind: ClassVar = "stored"
    no_delays: ClassVar = True
    rate: ClassVar = theory.RATE
    play: ClassVar = staticmethod(act)
    fitting: ClassVar = staticmethod(fitted)
    fitting_blindly: ClassVar = staticmethod(fitted_blindly)

    penalty: float | None = None
    step: float | None = None
    decay: float | None = None
    proximal: bool = True

    def plan(self, setup: Setup) -> Plan:
        """Peers, all at zero, and their one turn."""
        fit, policy = self.fit(setup), self.policy(setup)
        guard = policy.guard() if policy else Guard()
        noise, change, accountant = priced(policy, setup, self.weights(setup, fit))
        l1, l2 = (share / setup.task.clients for share in setup.task.regulariser)
        mixing = 1.0 / (1.0 + float(degrees_of(setup.graph).max(initial=0)))
        settings = Settings(
            *fit, int(setup.task.loss), l1, l2, int(self.proximal), mixing, *guard, int(policy is not None),
            noise.law, noise.shape,
        )  # fmt: skip
        size, real = setup.task.size, setup.dtype
        empty = Word(np.zeros(size, real))
        turn = Turn("peer", "peer", self.play, hear, merge, empty, Inbox(np.zeros(size, real), np.zeros(1)))
        tables = {"peer": peers(setup.task.clients, size, real, change, noise)}
        return Plan(tables, (turn,), settings, {0: size}, accountant=accountant)

    def fit(self, setup: Setup) -> Fit:
        """rho and eta(n), checked."""
        given = {name: getattr(self, name) for name in Fit._fields if getattr(self, name) is not None}
        if len(given) < len(Fit._fields):
            policy = self.policy(setup)
            hidden = policy is not None and policy.protects
            given = (self.fitting_blindly if hidden else self.fitting)(setup)._asdict() | given
        fit = Fit(**{name: float(value) for name, value in given.items()})
        for name in ("penalty", "step"):
            if not 0 < getattr(fit, name) < np.inf:
                raise BadInput(f"algorithm.{name}", getattr(fit, name), "a positive number")
        if not 0 <= fit.decay <= 1:
            raise BadInput("algorithm.decay", fit.decay, "an exponent from 0 to 1")
        return fit

    def policy(self, setup: Setup) -> Privacy | None:
        """The [privacy] table, as this algorithm reads it."""
        return setup.privacy

    def weights(self, setup: Setup, fit: Fit) -> Any:
        """(peers, rounds): what the data's gradient is divided by, 2 rho |N_k| + 1 / eta(n)."""
        return inertias(fit, setup.rounds) + 2 * fit.penalty * degrees_of(setup.graph)[:, None]

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned: every peer's own model, which it does not share as it is."""
        return {"clients": tables["peer"].model}

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
        if 1 < setup.task.clients <= DENSE:
            graph = theory.spectrum(adjacency(setup.graph))
            found["noise_factor"] = theory.noise_factor(graph, fit.penalty, setup.task.size)
        if policy is not None and policy.protects:
            weights = self.weights(setup, fit)
            noise, change, _ = priced(policy, setup, weights)
            found["sensitivity"] = float((change / weights[:, 0]).max())
            found["noise"] = float(noise.first.max())
            if policy.zeta < 1 and "noise_factor" in found:
                first = noise.first[:, 0] ** 2
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

    play: ClassVar = staticmethod(act_by_subgradient)
    fitting: ClassVar = staticmethod(fitted_subgradient)
    fitting_blindly: ClassVar = staticmethod(fitted_subgradient_blindly)

    proximal: bool = False

    def weights(self, setup: Setup, fit: Fit) -> Any:
        """(peers, rounds): 1 / eta(n)."""
        return np.broadcast_to(inertias(fit, setup.rounds), (setup.task.clients, setup.rounds))

    def check(self, setup: Setup) -> dict[str, float]:
        """What was chosen."""
        fit = self.fit(setup)
        return {"step": fit.step, "decay": fit.decay}


# --- parts ----------------------------------------------------------------------------------------------------------


def inertias(fit: Fit, rounds: int) -> Any:
    """1 / eta(n)."""
    return np.arange(1, rounds + 1) ** fit.decay / fit.step


def degrees_of(graph: Any) -> Any:
    """|N_k|."""
    return np.diff(graph.links().starts)


def adjacency(graph: Any) -> Any:
    """The graph as a symmetric 0-1 matrix."""
    links = graph.links()
    matrix = np.zeros((graph.clients, graph.clients))
    matrix[np.repeat(np.arange(graph.clients), np.diff(links.starts)), links.senders] = 1
    return matrix


def step_bound(setup: Setup, penalty: float) -> float:
    """The largest constant step for which 1/eta + rho min eig(D + A) stays above half the largest curvature.

    The condition of linearised ADMM (Ling, Shi, Wu, Ribeiro, IEEE Trans. Signal Processing, 2015).
    """
    least = 0.0
    if setup.task.clients <= DENSE:
        matrix = adjacency(setup.graph)
        least = float(np.linalg.eigvalsh(np.diag(matrix.sum(1)) + matrix)[0])
    curvature = max(2 * float(np.linalg.norm(x, 2)) ** 2 / len(x) for x in setup.task.inputs(10**9) if len(x))
    needed = curvature / 2 + setup.task.regulariser[1] / setup.task.clients - penalty * max(least, 0.0)
    return 1 / needed if needed > 0 else math.inf


def priced(policy: Privacy | None, setup: Setup, weights: Any) -> tuple[Noise, Any, Accountant | None]:
    """The noise, how far one unit moves the mean gradient, the accountant; `weights` divide the gradient, per round."""
    clients, rounds = setup.task.clients, setup.rounds
    if policy is None:
        free = np.full((clients, 1), np.inf)
        return Noise(NONE, np.zeros((clients, 1)), np.ones(1), free, True), np.zeros(clients), None
    if policy.relation != "replace-one":
        right = '"replace-one": the mean gradient is over as many samples in both data sets'
        raise BadInput("privacy.relation", policy.relation, right)
    names = {code: name for name, code in LOSSES.items()}
    bound = policy.gradient_bound(names[setup.task.loss], setup.task.size)
    sizes = np.diff(setup.task.source.starts)
    change = 2 * bound / (sizes if policy.unit == "sample" else np.ones(clients))
    noise = policy.noise_of(change[:, None] / weights, clients, rounds, setup.seed)
    costs = release_costs(noise.law, change[:, None] / weights, noise.first * noise.shape)
    planned, count = spend_all(costs[:, noise.shape >= 0], noise.limit)
    accountant = Accountant(policy, policy.terms(), setup.seed, setup.task.names, planned, count, noise.alike, "peer")
    return noise, change, accountant


def peers(clients: int, size: int, real: Any, change: Any, noise: Noise) -> Peer:
    """All peers' rows, empty."""
    model, told, dual, around, gradient = (np.zeros((clients, size), real) for _ in range(5))
    heard, silent, spent, releases = (np.zeros((clients, 1)) for _ in range(4))
    moved, first, limit = change[:, None].astype(float), noise.first.copy(), noise.limit.copy()
    return Peer(model, told, dual, around, heard, gradient, moved, first, silent, spent, limit, releases)
