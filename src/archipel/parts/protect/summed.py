"""Noise that is summed: central noise, and no server that is trusted.

A client clips what it changed, rounds it to integers, and adds its share of the noise, a discrete Gaussian. Where words
leave a machine they are masked (`privacy.secure_aggregation`), so that nobody sees but their sum, in which the shares
have the noise of one. Modulo a prime masks cancel to the bit: a simulation leaves them out.

So many may drop that `needed` are left, whose shares suffice; with fewer a sum is given up. A client pays when it
speaks, for a sum with that least noise. Kairouz, Liu, Steinke, ICML 2021. What of the noise is there only for those who
may drop is taken off again once it is known who did (`privacy.excess`): a simulation adds what stays.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from archipel.describe import Checked, key
from archipel.draws import u64
from archipel.errors import BadInput
from archipel.generators import add_discrete
from archipel.node import add_scaled, exact, fast, fill, kernel
from archipel.parts import MixPiece, Protect, ProtectPiece
from archipel.parts.protect.openly import any_sum, as_it_is, check_bounds, check_relation, free, no_noise, table_of
from archipel.parts.protect.sample import accountant_of
from archipel.privacy.account import accounts, scale_of
from archipel.privacy.coding import PRIMES, Code, centred, code_of
from archipel.privacy.discrete import CLOSE, COVER, LEAST, TAILS, closeness, disturb_integers, grid
from archipel.privacy.excess import Excess, kept_of, sizes_of
from archipel.privacy.gaussian import epsilon_of
from archipel.privacy.ledger import ENFORCED, Assumption, Terms
from archipel.privacy.noise import release_key
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
    share: Any  # steps that a share of noise has at least, for one of the sum's noise
    below: Any  # (levels,): further noise stays in sums of fewer words than this
    excess: Any  # (levels,): its deviation, in steps, where `shape` is 1


class Integers(NamedTuple):
    """A word: integers modulo a prime, and what decides its further noise."""

    values: Any
    seed: Any


class Total(NamedTuple):
    """The sum of words, what decides their further noise (0: it is in the sum), and what a mix makes of it."""

    total: Any
    heard: Any
    seeds: Any
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


@fast(quantise)
@exact
def quantise_loop(out: Any, model: Any, before: Any, clip: Any, step: Any) -> None:
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
        said.seed[0] = release_key(moment.key, 1)

    return write


@kernel
def hear(inbox: Any, said: Any, settings: Any, edge: Any) -> None:
    add_scaled(inbox.total, 1, said.values)
    inbox.heard[0] += 1
    inbox.seeds[edge.place] = said.seed[0]


@cache
def merging(finish: Any, disturb: Any) -> Any:
    @kernel
    def keep(inbox: Any, terms: Any, shape: Any) -> None:
        """The further noise that stays in a sum of so many words."""
        for i in range(inbox.seeds.shape[0]):
            key, k = u64(inbox.seeds[i]), 0
            while key != 0 and k < terms.below.shape[0] and inbox.heard[0] < terms.below[k]:
                disturb(inbox.total, terms.excess[k] * shape, key)
                key = release_key(key, 1)
                k += 1

    @kernel
    def merge(me: Any, inbox: Any, settings: Any, moment: Any) -> None:
        """A sum of too few words, with too little noise, is not used; nor would its masks come off."""
        terms = settings.protect
        if inbox.heard[0] >= terms.needed:
            keep(inbox, terms, terms.shape[moment.round])
            unwrap(inbox.into.total, inbox.total, terms.prime, terms.step)
            fill(inbox.into.count, inbox.heard[0])
            finish(me, inbox.into, settings, moment)

    return merge


def covered(change: float, first: float, shape: Any, setup: Setup, policy: Any) -> float:
    """By how much, in epsilon, a run with `COVER` times the noise loses less than one without."""
    scales = first * np.resize(shape, setup.rounds)
    mu = math.sqrt(sum((change / scales[scales > 0]) ** 2))
    return float(epsilon_of(mu, policy.delta) - epsilon_of(mu / COVER, policy.delta))


@dataclass(frozen=True)
class Summed(Protect, Checked):
    """A client's change is clipped, rounded, noised with its share and masked: a server sees the sum, nobody a part.

    The more may drop, the more noise each adds; what turns out not to be needed is taken off the sum again.
    """

    where: ClassVar[str] = "sum"
    dropping: float = key(0.34, "share of the clients that may drop; with fewer left a sum is given up", at_least=0,
                          below=1)  # fmt: skip
    colluding: float = key(0.4, "share of the clients that may tell the server all they know", at_least=0, below=1)
    known: float = key(0.0, "share of the clients whose own noise is not counted, as they may tell it: the others' "
                       "suffices (of one client's in any case)", at_least=0, below=1)  # fmt: skip
    lying: bool = key(
        True, "whether the noise suffices too if a server shows clients different lists of who is in a sum"
    )
    levels: int = key(8, "parts of the noise that are taken off again where fewer drop than may; 0: all of it stays",
                      at_least=0, at_most=64)  # fmt: skip
    bits: int = key(24, "of each number of a word: 16, 24 or 32", at_least=16, at_most=32, unit="bits")

    def make(self, setup: Setup, learn: Any) -> ProtectPiece:
        policy, size = table_of(setup), setup.task.size
        self.check(setup, policy)
        clients = setup.task.clients // setup.graph.servers  # of one server
        code = code_of(clients, self.dropping, self.colluding, size, self.bits)
        if code.packed < 1:
            right = f"less: of {clients} clients {code.needed} would be left, and {code.secret} of them could collude"
            raise BadInput("algorithm.protect.colluding", self.colluding, right)
        known = max(1, int(self.known * clients + 1e-9))
        if known >= code.needed:
            right = f"less: of {clients} clients {code.needed} would be left, and the noise of {known} is not counted"
            raise BadInput("algorithm.protect.known", self.known, right)
        drawn, made, change, sizes, kept = self.fitted(setup, policy, code, known)
        longest = clients * made.sensitivity + math.sqrt(clients) * made.deviation * (math.sqrt(size) + TAILS)
        clipped = f"what a client changes in a round has L2 norm at most {policy.clip:g}"
        seen = (
            f"nobody sees a word, but sums of {code.needed} words and more, in which the noise of all but any {known} "
            f"of them suffices{'' if self.lying else ', if the server shows everyone the same list of who is in it'}"
        )
        terms = Terms(policy.unit, policy.relation, (Assumption(clipped, ENFORCED), Assumption(seen, ENFORCED)))
        unit = 1 / made.step if policy.protects else 0.0
        below, excess = sizes[:-1], np.sqrt(np.diff(kept)) * unit * drawn.first.max(initial=0.0)
        settings = Summing(
            drawn.law, drawn.shape, 0, change, float(policy.clip), made.step, made.prime, code.needed,
            math.sqrt(kept[0]) * unit, below, excess,
        )  # fmt: skip
        word = Integers(np.zeros(size, np.int64), np.zeros(1, np.uint64))
        disturb = add_discrete if learn.data_kind == "deep" else disturb_integers

        def summed(mix: MixPiece) -> MixPiece:
            total, heard, seeds = np.zeros(size, np.int64), np.zeros(1, np.int64), np.zeros(clients, np.uint64)
            inbox, finish = Total(total, heard, seeds, mix.inbox), merging(mix.finish, disturb)
            return mix._replace(hear=hear, finish=finish, inbox=inbox, write=writing(disturb), word=word, adds=True)

        taken_off = Excess(below, excess, drawn.shape, disturb) if policy.protects and len(below) else None
        return ProtectPiece(
            free, as_it_is, no_noise, pay, any_sum, accounts(drawn.first, drawn.limit), settings,
            accountant_of(setup, drawn, change, terms, False), before=True, summed=summed,
            masks=code._replace(longest=longest, excess=taken_off),
        )  # fmt: skip

    def fitted(self, setup: Setup, policy: Any, code: Code, known: int) -> tuple[Any, Any, float, Any, Any]:
        """The noise of a sum, the grid, how far a client moves a sum on it; sizes of sums and what stays in them."""
        clip, size, everyone = float(policy.clip), setup.task.size, setup.task.clients
        sizes = sizes_of(code.clients, code.needed, known, self.levels, self.lying)
        kept = kept_of(sizes, code.clients, known, self.lying)
        change, moved = 0.0, COVER * 2 * clip
        for _ in range(60):  # rounding moves a word by some steps, and the step follows the noise
            change = moved * (1 + 1e-9)
            drawn = policy.noise_of([[change]], everyone, setup.rounds, setup.seed, False)
            factors = drawn.shape[drawn.shape > 0]
            first = float(drawn.first.max()) if policy.protects else 0.0
            share = first * factors.max(initial=0.0) * math.sqrt(kept[-1])
            made = grid(clip, size, code.clients, share, self.bits)
            moved = COVER * (2 * clip + math.sqrt(size) * made.step)
            if moved <= change:
                break
        if np.ptp(drawn.first) > 0:
            raise BadInput("privacy.epsilon", "one for each client", "one for all: they share the noise of a sum")
        sum_noise = first * factors.min(initial=1.0) / made.step
        parts = np.diff(kept, prepend=0.0)
        while len(parts) > 1 and 0 < sum_noise * math.sqrt(parts.min()) < LEAST:  # of fewer levels each has more
            sizes = sizes_of(code.clients, code.needed, known, len(sizes) - 2, self.lying)
            kept = kept_of(sizes, code.clients, known, self.lying)
            parts = np.diff(kept, prepend=0.0)
        least = sum_noise * math.sqrt(parts.min())
        far = closeness(sum_noise**2, least, code.clients * len(parts), size) if first > 0 else 0.0
        if moved > change or far * setup.rounds > min(CLOSE, covered(change, first, drawn.shape, setup, policy)):
            right = f"more: with {self.bits} bits the noise of a sum is not close enough to a Gaussian's"
            raise BadInput("algorithm.protect.bits", self.bits, right)
        return drawn, made, change, sizes, kept

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
        check_relation(policy, "that a client is in a sum is not hidden")
        if policy.mechanism != "gaussian":
            raise BadInput("privacy.mechanism", policy.mechanism, '"gaussian": shares of other noise do not add up')
        check_bounds(policy, "what a client changes")
        if not policy.clip < np.inf:
            raise BadInput("privacy.clip", policy.clip, "a finite bound on what a client changes: integers have ends")
