"""Private mirror descent among peers, for networks: the dissertation's chapter 5, and its section 5.5.

Peer u holds y_u and a weight w_u, at first 1. Every round it takes one batch, steps from y_u by (5.12), says
the result to those it trusts, and mixes what it heard. Two things are parts:

*Noise.* `published` is that of section 5.5: Laplace(1 / epsilon) on the mean gradient of a batch, as if one
record moved one component, by 1 at most. `laplace` and `gaussian` are sound: batches drawn in secret, each example's
gradient clipped (in L1, or L2), noise on their sum for what one record moves it by, as much as all rounds together
need to stay within (epsilon, delta). A fixed data set is used again and again: a round's epsilon is not the run's.

*Mixing.* `push-sum` reaches the right point on any sequence of directed graphs; `plain` is (5.13), whose rows do not
sum to one where senders' weights do.

With everyone heard by everyone and equal shares this is FedAvg with one local step: the server is an average.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.algorithms.mirror import MapSettings, euclidean, mirror_step
from archipel.errors import BadInput, did_you_mean
from archipel.generators import add_gaussian, add_laplace, poisson_batch, shuffled_batches
from archipel.node import add_scaled
from archipel.privacy.accountant import Paid
from archipel.privacy.accounting import RDP, check_delta, record, zcdp_epsilon
from archipel.privacy.bounding import clip_l2
from archipel.privacy.ledger import ASSUMED, ENFORCED, Assumption, Ledger, Terms, ledgers_json
from archipel.privacy.personal import (
    PersonalBudget,
    PersonalLedgers,
    affordable_epsilon,
    affordable_mu,
    release_of,
    sampled_laplace,
)
from archipel.privacy.releases import Release, Zcdp
from archipel.problems.models.learners import check_finite, learner_of, names_of, sizes_of
from archipel.regions import anywhere, ball
from archipel.turns import Plan, Setup, Turn

SENSITIVITY = 1.0  # what the dissertation takes a record to move a gradient by: one component, by one


class Settings(NamedTuple):
    learner: Any
    map: MapSettings
    step: float  # eta of the first round
    fall: float  # eta_t = step / t^fall
    clip: float  # C
    batch: int
    samples: Any  # n_u
    slope: Callable[..., None]  # the gradient, with its noise
    scales: Any  # of the noise, a number a peer
    releases: Sequence[Release | None]  # what a round costs each
    ledgers: list[Ledger]


class Peer(NamedTuple):
    model: Any  # y_u
    weight: Any  # w_u
    stopped: Any  # how often it kept silent, its budget spent


class Word(NamedTuple):
    values: Any
    weight: Any


class Inbox(NamedTuple):
    values: Any
    weight: Any


# --- gradients with noise -----------------------------------------------------------------------------------


def exact_slope(out: Any, model: Any, data: Any, settings: Settings, moment: Any) -> None:
    """The mean gradient of a batch: nobody is protected."""
    rows = shuffled_batches(len(data.y), settings.batch, moment.key, 0)[0]
    settings.learner.gradient(out, model, data, rows)


def published_slope(out: Any, model: Any, data: Any, settings: Settings, moment: Any) -> None:
    """Section 5.5: the mean gradient, of norm L at most (assumption 2), and Laplace noise of scale 1 / epsilon."""
    exact_slope(out, model, data, settings, moment)
    clip_l2(out, settings.clip)
    add_laplace(out, float(settings.scales[moment.node]), moment.key, 0)


def laplace_slope(out: Any, model: Any, data: Any, settings: Settings, moment: Any) -> None:
    """Sound: one record moves the sum by C in L1."""
    clipped_batch(out, model, data, settings, moment, 1)
    add_laplace(out, float(settings.scales[moment.node]), moment.key, 0)
    out *= out.dtype.type(1 / settings.batch)


def gaussian_slope(out: Any, model: Any, data: Any, settings: Settings, moment: Any) -> None:
    """Sound: one record moves the sum by C in L2."""
    clipped_batch(out, model, data, settings, moment, 2)
    add_gaussian(out, float(settings.scales[moment.node]), moment.key, 0)
    out *= out.dtype.type(1 / settings.batch)


def clipped_batch(out: Any, model: Any, data: Any, settings: Settings, moment: Any, norm: int) -> None:
    """The sum of clipped gradients over a batch that is drawn in secret, each record by itself."""
    samples = int(settings.samples[moment.node])
    rows = poisson_batch(samples, settings.batch / samples, moment.key, 0)
    if len(rows):
        settings.learner.clipped_sum(out, model, data, rows, settings.clip, norm)


SLOPES: dict[str, Callable[..., None]] = {
    "none": exact_slope,
    "published": published_slope,
    "laplace": laplace_slope,
    "gaussian": gaussian_slope,
}


# --- a peer -------------------------------------------------------------------------------------------------


def act(me: Any, data: Any, said: Any, settings: Settings, moment: Any) -> bool:
    """(5.12), charged before anything is computed: a mirror step of eta_t / w_u from y_u."""
    if not moment.present:
        return False
    release, ledger = settings.releases[moment.node], settings.ledgers[moment.node]
    if release is not None:
        if me.stopped[0] > 0 or not ledger.affords(release):
            me.stopped[0] += 1
            return False
        ledger.charge(moment.round, release)
    slope, step = np.zeros_like(me.model), settings.step / (moment.round + 1) ** settings.fall
    settings.slope(slope, me.model, data, settings, moment)
    mirror_step(me.model, me.model, slope, me.model.dtype.type(step / me.weight[0]), settings.map)
    check_finite(me.model, settings.step)
    said.weight[0] = me.weight[0]
    said.values[:] = me.model * me.model.dtype.type(me.weight[0])
    return True


def hear(inbox: Any, said: Any, settings: Settings, edge: Any) -> None:
    """W_uv of what v said."""
    add_scaled(inbox.values, inbox.values.dtype.type(edge.weight), said.values)
    inbox.weight[0] += edge.weight * said.weight[0]


def push_sum(me: Any, inbox: Any, settings: Settings, moment: Any) -> None:
    """w_u' = sum_v W_uv w_v and y_u' = sum_v W_uv w_v z_v / w_u', with what a peer keeps for itself."""
    own = moment.kept * me.weight[0]
    me.weight[0] = own + inbox.weight[0]
    me.model[:] *= me.model.dtype.type(own / me.weight[0])
    add_scaled(me.model, me.model.dtype.type(1 / me.weight[0]), inbox.values)


def plain(me: Any, inbox: Any, settings: Settings, moment: Any) -> None:
    """(5.13): y_u = W_uu x_u + sum_v W_uv x_v."""
    me.model[:] *= me.model.dtype.type(moment.kept)
    me.model[:] += inbox.values


MIXINGS: dict[str, Callable[..., None]] = {"push-sum": push_sum, "plain": plain}


# --- the description ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MirrorDeep:
    """Peers train a network by private mirror descent and push-sum, one batch a round.

    `noise` is gaussian, laplace, published (section 5.5) or none. `epsilon` and `delta` are for one record and
    the whole run; published noise takes epsilon as the dissertation does, and its ledger counts what that really
    costs. The step of round t is `step` / t^`fall`; `radius` confines models to a ball, 0 does not.
    """

    topologies: ClassVar = ("digraph",)
    precision: ClassVar = "float32"
    data_kind: ClassVar = "deep"

    noise: str = "gaussian"
    mixing: str = "push-sum"
    epsilon: float = 1.0
    delta: float = 1e-5
    clip: float = 1.0
    step: float = 0.1
    fall: float = 0.0
    batch: int = 128
    radius: float = 0.0

    def settings(self, setup: Setup) -> Settings:
        """The numbers of a run, checked."""
        sizes, names = sizes_of(setup.task), names_of(setup.task)
        self.check_numbers(sizes, names)
        scales, releases = self.noises(sizes, setup.rounds)
        ledgers = [self.ledger(name) for name in names]
        for ledger, release in zip(ledgers, releases):
            if release is not None:
                ledger.affords(release, setup.rounds)  # it looks this far ahead at once, not step by step
        region = ball(setup.task.size, self.radius) if self.radius else anywhere(setup.task.size)
        return Settings(
            learner_of(setup.task, setup.dtype),
            euclidean(region),
            self.step,
            self.fall,
            self.clip,
            self.batch,
            sizes,
            SLOPES[self.noise],
            scales,
            releases,
            ledgers,
        )

    def check_numbers(self, sizes: Any, names: tuple[str, ...]) -> None:
        """Refuse what makes no sense, before anything runs."""
        for name, known in (("noise", SLOPES), ("mixing", MIXINGS)):
            if getattr(self, name) not in known:
                raise BadInput(f"algorithm.{name}", getattr(self, name), did_you_mean(getattr(self, name), known))
        for name in ("clip", "step", "epsilon"):
            if not 0 < getattr(self, name) < np.inf:
                raise BadInput(f"algorithm.{name}", getattr(self, name), "a positive number")
        for name in ("fall", "radius"):
            if not 0 <= getattr(self, name) < np.inf:
                raise BadInput(f"algorithm.{name}", getattr(self, name), "a number of 0 or more")
        check_delta(self.delta, "algorithm.delta")
        small = int(np.argmin(sizes))
        if not 1 <= self.batch <= sizes[small]:
            right = f"1 to {sizes[small]}, the samples of {names[small]}, who has fewest"
            raise BadInput("algorithm.batch", self.batch, right)

    def noises(self, sizes: Any, rounds: int) -> tuple[Any, Sequence[Release | None]]:
        """The scale of everyone's noise, and what a round costs each."""
        if self.noise == "none":
            return np.zeros(len(sizes)), [None] * len(sizes)
        if self.noise == "published":
            # the gradient has norm L at most, so a record moves it by 2 L in L2; Laplace noise on every component is
            # (2 L / scale)^2 / 2-zCDP, as each component's is (Bun, Steinke, proposition 1.4, composed)
            scale = SENSITIVITY / self.epsilon
            return np.full(len(sizes), scale), [Zcdp((2 * self.clip / scale) ** 2 / 2)] * len(sizes)
        rates = [float(self.batch / n) for n in sizes]
        if self.noise == "laplace":
            each = [affordable_epsilon(self.epsilon, self.delta, rounds, rate) for rate in rates]
            releases = [sampled_laplace(e, rate) for rate, e in zip(rates, each)]
        else:
            each = [affordable_mu(self.epsilon, self.delta, rounds, rate, "add-remove") for rate in rates]
            releases = [release_of(mu, rate, "add-remove") for rate, mu in zip(rates, each)]
        return self.clip / np.array(each), releases

    def ledger(self, name: str) -> Ledger:
        """An empty ledger of a peer, for one record; published noise has no budget that it keeps to."""
        if self.noise == "published":
            held = Assumption(f"the gradient of a batch has norm at most {self.clip:g}", ENFORCED)
            return Ledger(name, Terms("sample", "replace-one", (held,)))
        norm = "L1" if self.noise == "laplace" else "L2"
        bounds = (
            Assumption(f"each example's gradient has {norm} norm at most {self.clip:g}", ENFORCED),
            Assumption("the records of a batch are drawn in secret, each by itself", ENFORCED),
            Assumption("everyone's number of samples is public", ASSUMED),  # a batch's rate is its size over it
        )
        return Ledger(name, Terms("sample", "add-remove", bounds), PersonalBudget(self.epsilon, self.delta))

    def plan(self, setup: Setup) -> Plan:
        """Peers that all start from the same model, and their one turn."""
        if setup.privacy is not None:
            right = "none: mirror-deep has noise, epsilon, delta and clip of its own in [algorithm]"
            raise BadInput("privacy", "(a table)", right)
        settings, peers, size = self.settings(setup), setup.task.clients, setup.task.size
        start, one = settings.learner.start().astype(setup.dtype), np.zeros(1)
        empty = np.zeros(size, setup.dtype)
        return Plan(
            {"peer": Peer(np.tile(start, (peers, 1)), np.ones((peers, 1)), np.zeros((peers, 1)))},
            (Turn("peer", "peer", act, hear, MIXINGS[self.mixing], Word(empty, one), Inbox(empty, one)),),
            settings,
            {0: size},
            plain_only=True,
            measure=measured,
            accountant=self.accountant(settings.ledgers, setup.rounds),
        )

    def accountant(self, ledgers: list[Ledger], rounds: int) -> Any:
        """What everyone has paid, as a run reads it."""
        if self.noise == "none":
            return None
        if self.noise == "published":
            return Counted(ledgers, self.delta, rounds * (2 * self.clip * self.epsilon / SENSITIVITY) ** 2 / 2)
        return PersonalLedgers(ledgers, self.delta)

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned: everyone's y."""
        return {"clients": tables["peer"].model}

    def check(self, setup: Setup) -> dict[str, float]:
        """What the noise of a run is, and what it truly costs beside the dissertation's epsilon."""
        sizes = sizes_of(setup.task)
        self.check_numbers(sizes, names_of(setup.task))
        if self.noise == "none":
            return {}
        told = {"noise a component": float(self.noises(sizes, setup.rounds)[0].max())}
        if self.noise == "published":
            return told | true_cost(self, setup.task.size, int(sizes.min()), setup.rounds)
        told["noise a component"] /= self.batch
        return told | {"epsilon of the run": self.epsilon}


def true_cost(algorithm: MirrorDeep, size: int, samples: int, rounds: int) -> dict[str, float]:
    """What noise as published costs one record: a round by itself, and a run on a data set that is used again.

    A record moves the gradient by 2 L in L2, so by 2 L sqrt(size) in L1 at most. Over the run the least is the cost of
    a record which moves one component by 2 L whenever it is used: batches drawn in secret, or known. The most is a
    zCDP total over all rounds, which holds whatever the batches.
    """
    moved, rate = 2 * algorithm.clip * algorithm.epsilon / SENSITIVITY, algorithm.batch / samples
    pure = moved * float(np.sqrt(size))
    secret = record(sampled_laplace(moved, rate)) * rounds
    return {
        "epsilon as printed": algorithm.epsilon,
        "epsilon of a round, truly, at most": pure,
        "epsilon of the run, truly, at least": secret.epsilon(algorithm.delta).epsilon,
        "epsilon of the run, batches known, at least": moved * rounds * rate,
        "epsilon of the run, truly, at most": min(zcdp_epsilon(rounds * moved**2 / 2, algorithm.delta), rounds * pure),
    }


class Counted(NamedTuple):
    """Ledgers without a budget, as a run reads them: see `accountant.Accountant`."""

    ledgers: list[Ledger]
    delta: float
    planned: float  # the zCDP total when all rounds are over

    @property
    def terms(self) -> Terms:
        return self.ledgers[0].terms

    def paid(self, tables: Any = None) -> Paid:
        """What was paid so far."""
        return self.priced(np.array([ledger.rho() for ledger in self.ledgers]))

    def forecast(self) -> Paid:
        """What will have been paid when all rounds are over."""
        return self.priced(np.full(len(self.ledgers), self.planned))

    def priced(self, rho: Any) -> Paid:
        epsilon = np.array([zcdp_epsilon(float(one), self.delta) for one in rho])
        releases = np.array([len(ledger.charges) for ledger in self.ledgers])
        return Paid(rho, releases, epsilon, np.full(len(rho), RDP, object))

    def ledger(self, tables: Any, over_time: list[tuple[int, Paid]]) -> dict[str, Any]:
        """The whole of ledger.json."""
        return ledgers_json(self.ledgers, self.delta)


def measured(tables: dict[str, Any], round: int) -> dict[str, Any]:
    """How far apart the peers are, relative to their mean; everyone's weight; who kept silent."""
    peers = tables["peer"]
    middle = peers.model.mean(0, dtype=float)
    apart = np.linalg.norm(peers.model - middle, axis=1) / max(float(np.linalg.norm(middle)), 1e-300)
    return {"apart.node": apart, "weight.node": peers.weight[:, 0].copy(), "stopped.node": peers.stopped[:, 0].copy()}
