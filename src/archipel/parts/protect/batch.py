"""Noise on the gradient of a batch: each example clipped, batches drawn in secret, one release a round.

A fixed data set is used again and again, so a record pays in every round; that nobody knows whether it was in the batch
makes each release cheaper. The noise is what all rounds together need to stay within (epsilon, delta).

`published` is section 5.5 of the dissertation: Laplace(1 / epsilon) on the mean gradient, as if one record moved one
component, by 1 at most. It has no budget; what it really costs is counted.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.generators import add_gaussian, add_laplace, poisson_batch
from archipel.parts import Protect, ProtectPiece
from archipel.parts.learn.deep import GradientStep, batch_gradient
from archipel.parts.protect.openly import always, any_sum, as_it_is, no_noise, refuse_table
from archipel.parts.protect.sample import Private, pay
from archipel.privacy.accounting import check_delta
from archipel.privacy.alike import AlikeAccountant, counted
from archipel.privacy.bounding import clip_l2
from archipel.privacy.ledger import ASSUMED, ENFORCED, Assumption, Terms
from archipel.privacy.noise import GAUSSIAN, LAPLACE
from archipel.privacy.personal import affordable_epsilon, affordable_mu, release_of, sampled_laplace
from archipel.privacy.releases import Release, Zcdp
from archipel.problems.models.learners import Asking, ClippedSum, names_of, sizes_of
from archipel.turns import Setup

SENSITIVITY = 1.0  # what the dissertation takes a record to move a gradient by: one component, by one
SECRET = Assumption("the records of a batch are drawn in secret, each by itself", ENFORCED)
PUBLIC = Assumption("everyone's number of samples is public", ASSUMED)  # a batch's rate is its size over it


def clipped_batch(out: Any, model: Any, data: Any, settings: Any, moment: Any, index: int) -> Asking:
    """The sum of clipped gradients over a batch that is drawn in secret; returns how large the batch is expected."""
    s, p = settings.learn, settings.protect
    samples = int(s.samples[moment.node])
    rows = poisson_batch(samples, s.batch / samples, moment.key, index)
    if len(rows):
        yield ClippedSum(out, model, data, rows, p.clip, p.order)
    return float(s.batch)


def noised(out: Any, model: Any, data: Any, scale: Any, settings: Any, moment: Any, index: int = 0) -> Asking:
    """One record moves the sum by C, in L2 for Gaussian and in L1 for Laplace noise."""
    divisor = yield from clipped_batch(out, model, data, settings, moment, index)
    add = add_gaussian if settings.protect.law == GAUSSIAN else add_laplace
    add(out, float(scale), moment.key, index)
    return divisor


def published(out: Any, model: Any, data: Any, scale: Any, settings: Any, moment: Any, index: int = 0) -> Asking:
    """Section 5.5: the mean gradient, of norm L at most (assumption 2), and Laplace noise of scale 1 / epsilon."""
    divisor = yield from batch_gradient(out, model, data, scale, settings, moment, index)
    clip_l2(out, settings.protect.clip)
    add_laplace(out, float(scale), moment.key, index)
    return divisor


GRADIENTS = {"gaussian": noised, "laplace": noised, "published": published}


@dataclass(frozen=True)
class AtBatch(Protect, Checked):
    """Each example's gradient is clipped to `clip`, and noise is added to their sum over a secret batch.

    `epsilon` and `delta` are for one record and the whole run. It comes with the learn part `gradient-step`.
    """

    where: ClassVar[str] = "sample"
    noise: str = key("gaussian", "its law, or as published", choices=tuple(GRADIENTS))
    epsilon: float = key(1.0, "what a record may pay over the run", at_least=1e-6)
    delta: float = key(1e-5, "the chance that it pays more", above=0, below=1)
    clip: float = key(1.0, "of an example's gradient", above=0, symbol="C")

    def scales(self, setup: Setup, batch: int) -> tuple[Any, tuple[Release, ...]]:
        """The scale of everyone's noise, and what a round costs each."""
        sizes, rounds = sizes_of(setup.task), setup.rounds
        if self.noise == "published":
            # the gradient has norm L at most, so a record moves it by 2 L in L2; Laplace noise on every component is
            # (2 L / scale)^2 / 2-zCDP, as each component's is (Bun, Steinke, proposition 1.4, composed)
            scale = SENSITIVITY / self.epsilon
            return np.full(len(sizes), scale), (Zcdp((2 * self.clip / scale) ** 2 / 2),) * len(sizes)
        rates = [float(batch / n) for n in sizes]
        releases: list[Release]
        if self.noise == "laplace":
            each = [affordable_epsilon(self.epsilon, self.delta, rounds, rate) for rate in rates]
            releases = [sampled_laplace(e, rate) for rate, e in zip(rates, each)]
        else:
            each = [affordable_mu(self.epsilon, self.delta, rounds, rate, "add-remove") for rate in rates]
            releases = [release_of(mu, rate, "add-remove") for rate, mu in zip(rates, each)]
        return self.clip / np.array(each), tuple(releases)

    def terms(self) -> Terms:
        if self.noise == "published":
            held = Assumption(f"the gradient of a batch has norm at most {self.clip:g}", ENFORCED)
            return Terms("sample", "replace-one", (held,))
        norm = "L1" if self.noise == "laplace" else "L2"
        bound = Assumption(f"each example's gradient has {norm} norm at most {self.clip:g}", ENFORCED)
        return Terms("sample", "add-remove", (bound, SECRET, PUBLIC))

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        if not isinstance(learn, GradientStep):
            right = "another, or the learn part gradient-step: it pays for one"
            raise BadInput("algorithm.protect.kind", "at-batch", right)
        refuse_table(setup, "at-batch")
        check_delta(self.delta, "algorithm.delta")
        scales, releases = self.scales(setup, learn.batch)
        free, rounds = self.noise == "published", setup.rounds
        # Laplace noise as published is priced in zCDP by L2, as Gaussian noise of that scale would be
        law = LAPLACE if self.noise == "laplace" else GAUSSIAN
        change, order = (2 if free else 1) * self.clip, 1 if self.noise == "laplace" else 2
        settings = Private(law, np.ones(rounds), 0, float(change), float(self.clip), order)
        role = "client" if setup.graph.servers else "peer"
        accountant = AlikeAccountant(
            releases, self.terms(), self.delta, names_of(setup.task), rounds, role, None if free else self.epsilon
        )
        state = counted(scales, releases, rounds, not free)
        return ProtectPiece(
            pay, as_it_is, no_noise, always, any_sum, state, settings, accountant, gradient=GRADIENTS[self.noise]
        )
