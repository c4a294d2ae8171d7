"""Noise that is summed: central noise, and no server that is trusted.

A client clips what it changed, rounds it to integers, and adds its share of the noise, a discrete Gaussian. Where words
leave a machine they are masked (`privacy.secure_aggregation`), so that nobody sees but their sum, in which the shares
have the noise of one. Modulo a prime masks cancel to the bit: a simulation leaves them out.

So many may drop that `needed` are left, whose shares suffice; with fewer a sum is given up. A client pays when it
speaks, for a sum with that least noise. Kairouz, Liu, Steinke, ICML 2021.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.errors import BadInput
from archipel.generators import add_discrete
from archipel.node import add_scaled, exact, fast, fill, kernel
from archipel.parts import MixPiece, ProtectPiece
from archipel.parts.protect.openly import any_sum, as_it_is, free, no_noise, table_of
from archipel.parts.protect.sample import accountant_of
from archipel.privacy.account import accounts, scale_of
from archipel.privacy.coding import PRIMES, centred, code_of
from archipel.privacy.discrete import CLOSE, COVER, TAILS, closeness, disturb_integers, grid
from archipel.privacy.ledger import ENFORCED, Assumption, Terms
from archipel.turns import Setup


class Summing(NamedTuple):
    law: Any
    shape: Any
    per_sample: Any
    change: Any  # how far one client moves the sum, rounding included
    clip: Any
    step: Any  # of the grid
    prime: Any
    needed: Any  # words, for a sum
    share: Any  # steps that a share of noise has, for one of the sum's noise


class Integers(NamedTuple):
    """A word: integers modulo a prime."""

    values: Any


class Total(NamedTuple):
    """The sum of words, and what a mix makes of it."""

    total: Any
    heard: Any
    into: Any


@kernel
def pay(me: Any, settings: Any, moment: Any) -> Any:
    """Before anything leaves."""
    if not moment.present:
        return True
    return scale_of(me.protect, settings.protect, settings.protect.change, moment) >= 0.0


def quantise(out: Any, model: Any, before: Any, clip: Any, step: Any) -> None:
    """The change, clipped, in steps, to the nearest; one that has no norm is none."""
    change = (model - before).astype(float)
    norm = math.sqrt(change @ change)
    if not norm < np.inf:
        out[:] = 0
        return
    change *= (1.0 if norm <= clip else clip / norm * (1.0 - 1e-12)) / step
    out[:] = np.floor(change + 0.5)


@exact
def quantise_exactly(out: Any, model: Any, before: Any, clip: Any, step: Any) -> None:
    total = 0.0
    for j in range(model.shape[0]):
        gap = float(model[j] - before[j])
        total += gap * gap
    norm = math.sqrt(total)
    factor = 0.0
    if norm < np.inf:
        factor = (1.0 if norm <= clip else clip / norm * (1.0 - 1e-12)) / step
    for j in range(model.shape[0]):
        out[j] = math.floor(float(model[j] - before[j]) * factor + 0.5) if factor > 0.0 else 0


@fast(quantise)
def quantise_loop(out: Any, model: Any, before: Any, clip: Any, step: Any) -> None:
    quantise_exactly(out, model, before, clip, step)


def wrap(values: Any, prime: Any) -> None:
    """values modulo the prime, in place."""
    values %= prime


@fast(wrap)
def wrap_loop(values: Any, prime: Any) -> None:
    for j in range(values.shape[0]):
        values[j] = values[j] % prime


def unwrap(out: Any, total: Any, prime: Any, step: Any) -> None:
    """A sum as numbers again: what is above the middle is negative."""
    out[:] = centred(total % prime, prime) * step


@fast(unwrap)
def unwrap_loop(out: Any, total: Any, prime: Any, step: Any) -> None:
    for j in range(out.shape[0]):
        rest = total[j] % prime
        out[j] = step * (rest - prime if rest > prime // 2 else rest)


@cache
def writing(disturb: Any) -> Any:
    @kernel
    def write(said: Any, me: Any, settings: Any, moment: Any) -> None:
        """Bound, round, noise: what has been paid for."""
        terms = settings.protect
        quantise(said.values, me.model, me.before, terms.clip, terms.step)
        disturb(said.values, terms.share * me.protect.noise[0] * terms.shape[moment.round], moment.key)
        wrap(said.values, terms.prime)

    return write


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    add_scaled(inbox.total, 1, said.values)
    inbox.heard[0] += 1


@cache
def merging(finish: Any) -> Any:
    @kernel
    def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """A sum of too few words, with too little noise, is not used; nor would its masks come off."""
        terms = settings.protect
        if inbox.heard[0] >= terms.needed:
            unwrap(inbox.into.total, inbox.total, terms.prime, terms.step)
            fill(inbox.into.count, inbox.heard[0])
            finish(me, inbox.into, settings, moment)

    return merge


@dataclass(frozen=True)
class Summed(Checked):
    """A client's change is clipped, rounded, noised with its share and masked: a server sees the sum, nobody a part.

    The more may drop, the more noise each adds: a sum of all has 1 / sqrt(1 - `dropping`) of what is needed.
    """

    section: ClassVar[str] = "algorithm.protect"
    where: ClassVar[str] = "sum"
    dropping: float = key(0.34, "share of the clients that may drop; with fewer left a sum is given up", at_least=0,
                          below=1)  # fmt: skip
    colluding: float = key(0.4, "share of the clients that may tell the server all they know", at_least=0, below=1)
    bits: int = key(24, "of each number of a word: 16, 24 or 32", at_least=16, at_most=32, unit="bits")

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        policy, size = table_of(setup), setup.task.size
        self.check(setup, policy)
        clients = setup.task.clients // setup.graph.servers  # of one server
        code = code_of(clients, self.dropping, self.colluding, size, self.bits)
        if code.packed < 1:
            right = f"less: of {clients} clients {code.needed} would be left, and {code.secret} of them could collude"
            raise BadInput("algorithm.protect.colluding", self.colluding, right)
        drawn, made, change = self.fitted(setup, policy, code.needed)
        longest = clients * made.sensitivity + math.sqrt(clients) * made.deviation * (math.sqrt(size) + TAILS)
        clipped = f"what a client changes in a round has L2 norm at most {policy.clip:g}"
        seen = f"nobody sees a word, but sums of {code.needed} words and more, each with its share of the noise"
        terms = Terms(policy.unit, policy.relation, (Assumption(clipped, ENFORCED), Assumption(seen, ENFORCED)))
        settings = Summing(
            drawn.law, drawn.shape, 0, change, float(policy.clip), made.step, made.prime, code.needed,
            1 / (math.sqrt(code.needed) * made.step) if policy.protects else 0.0,
        )  # fmt: skip
        word = Integers(np.zeros(size, np.int64))
        write = writing(add_discrete if learn.data_kind == "deep" else disturb_integers)

        def summed(mix: MixPiece) -> MixPiece:
            inbox = Total(np.zeros(size, np.int64), np.zeros(1, np.int64), mix.inbox)
            return mix._replace(hear=hear, finish=merging(mix.finish), inbox=inbox, write=write, word=word, adds=True)

        return ProtectPiece(
            free, as_it_is, no_noise, pay, any_sum, accounts(drawn.first, drawn.limit), settings,
            accountant_of(setup, drawn, change, terms, False), before=True, summed=summed,
            masks=code._replace(longest=longest),
        )  # fmt: skip

    def fitted(self, setup: Setup, policy: Any, needed: int) -> tuple[Any, Any, float]:
        """The noise of a sum, the grid, and how far a client moves a sum on it."""
        clip, size, everyone = float(policy.clip), setup.task.size, setup.task.clients
        clients = everyone // setup.graph.servers
        change, moved = 0.0, COVER * 2 * clip
        for _ in range(60):  # rounding moves a word by some steps, and the step follows the noise
            change = moved * (1 + 1e-9)
            drawn = policy.noise_of([[change]], everyone, setup.rounds, setup.seed, False)
            factors = drawn.shape[drawn.shape > 0]
            first = float(drawn.first.max()) if policy.protects else 0.0
            made = grid(clip, size, clients, first * factors.max(initial=0.0) / math.sqrt(needed), self.bits)
            moved = COVER * (2 * clip + math.sqrt(size) * made.step)
            if moved <= change:
                break
        if np.ptp(drawn.first) > 0:
            raise BadInput("privacy.epsilon", "one for each client", "one for all: they share the noise of a sum")
        least = first * factors.min(initial=1.0) / math.sqrt(needed) / made.step
        if moved > change or (first > 0 and closeness(least, needed, size) * setup.rounds > CLOSE):
            right = f"more: with {self.bits} bits the noise of a sum is not close enough to a Gaussian's"
            raise BadInput("algorithm.protect.bits", self.bits, right)
        return drawn, made, change

    def check(self, setup: Setup, policy: Any) -> None:
        """Refuse what is not summed at a server, or not with this noise."""
        if not setup.graph.servers:
            raise BadInput("algorithm.protect.kind", "summed", "another: among peers nobody sums")
        members = np.bincount(setup.graph.server, minlength=setup.graph.servers)
        if np.ptp(members) > 0:
            right = f"a number that {setup.graph.servers} servers share equally: masks are made for so many at each"
            raise BadInput("problem.clients", setup.task.clients, right)
        if members[0] < 2:
            raise BadInput("problem.clients", setup.task.clients, "two or more a server: a sum of one hides nothing")
        if self.bits not in PRIMES:
            raise BadInput("algorithm.protect.bits", self.bits, "16, 24 or 32")
        if policy.relation != "replace-one":
            right = '"replace-one": that a client is in a sum is not hidden'
            raise BadInput("privacy.relation", policy.relation, right)
        if policy.mechanism != "gaussian":
            raise BadInput("privacy.mechanism", policy.mechanism, '"gaussian": shares of other noise do not add up')
        if not policy.clip < np.inf:
            raise BadInput("privacy.clip", policy.clip, "a finite bound on what a client changes: integers have ends")
