"""Deliberate leaks: each must be caught, by the test that is nearest to it or by an audit.

A mutant replaces one function wherever it was imported; a catcher is a test of this folder, or an audit, which must
then fail. Unchanged, every catcher passes.

Kernels that a cached factory has closed over are out of reach: replaced is the factory, or what `make` hands to it.
"""

import importlib.util
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings

from archipel import Federation, OnlineFed, Synthetic
from archipel.algorithms.deep import DpFedAvgDeep, MirrorDeep
from archipel.algorithms.mirror import SaddleMirrorDescent
from archipel.algorithms.pgfl import Pgfl
from archipel.algorithms.pldp_fl import PldpFl
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.auditing.canaries import examine_once
from archipel.auditing.twins import examined
from archipel.draws import key_of
from archipel.node import Moment, row
from archipel.parts.learn.constraints import Budget
from archipel.parts.protect.told import tell_openly
from archipel.privacy.bounding import Bounds
from archipel.privacy.policy import Privacy
from archipel.privacy.releases import Laplace, Sampled
from archipel.problems.clustered import Related
from archipel.problems.drifting import Drifting
from archipel.problems.linear import Linear
from archipel.problems.networked import Regression
from archipel.problems.stored import Seen
from archipel.topology import Digraph, Peers

HERE = Path(__file__).parent


settings.register_profile("caught", settings.get_profile("same"), phases=[Phase.explicit, Phase.generate])


def module_of(name):
    """A test module of this folder, or of the parts', loaded once; of what fails no smaller example is looked for."""
    known = f"mutants_{name}"
    if known not in sys.modules:
        path = HERE / f"test_{name}.py"
        path = path if path.exists() else HERE.parent / "parts" / "protect" / path.name
        spec = importlib.util.spec_from_file_location(known, path)
        sys.modules[known] = importlib.util.module_from_spec(spec)
        settings.load_profile("caught")
        try:
            spec.loader.exec_module(sys.modules[known])
        finally:
            settings.load_profile("same")
    return sys.modules[known]


def suite(module, test, *arguments):
    """A test as a catcher."""
    return partial(getattr(module_of(module), test), *arguments)


@contextmanager
def leaking(module, name, make):
    """Replace a function or a method wherever it is, also where it comes to be while the leak is there."""
    owner = importlib.import_module(module)
    for part in name.split(".")[:-1]:
        owner = getattr(owner, part)
    name = name.split(".")[-1]
    true = owner.__dict__[name]
    new = make(true)
    forget()
    swap(owner, name, true, new)
    try:
        yield
    finally:
        swap(owner, name, new, true)
        forget()


def swap(owner, name, old, new):
    if isinstance(owner, type):
        setattr(owner, name, new)
        return
    for loaded in list(sys.modules.values()):
        if loaded.__class__ is type(sys) and loaded.__dict__.get(name) is old:
            setattr(loaded, name, new)


def forget():
    """What accountants have remembered: with a leak it is wrong, and without one it would hide the leak."""
    for name, loaded in list(sys.modules.items()):
        if name.startswith("archipel.privacy"):
            for found in list(vars(loaded).values()):
                if hasattr(found, "cache_clear"):
                    found.cache_clear()


# --- audits as catchers -----------------------------------------------------------------------------------------------

SMALL = {"releases": 1000, "engine": "plain"}
STREAM = Federation(Synthetic(clients=5, features=8, test=10), OnlineFed(), privacy=Privacy(epsilon=8.0, clip=1.0))
PEERS = Federation(Regression(), ZcdpNfl(), Peers(), privacy=Privacy(epsilon=8.0, clip=1.0), rounds=50)
BOUNDS = {"features": 1.0, "target": 1.0, "radius": 1.0}
LINEAR = Linear(clients=4, size=600, samples=120, test=20)


def honest(verdicts):
    """What an audit says of a federation that keeps its promise; the first pair that refutes it is enough."""
    for verdict in verdicts:
        assert not verdict.refuted, verdict


def stream(rounds=2):
    honest(examined(STREAM, rounds=rounds, **SMALL))


def peers(rounds=2):
    honest(examined(PEERS, rounds=rounds, **SMALL))


def personalised():
    private = Privacy(epsilon=1.0, bounds=Bounds(**BOUNDS))
    problem = Related(clients=6, tasks=2, size=5, samples=(20, 20))
    honest(examined(Federation(problem, Pgfl(), privacy=private, rounds=10), rounds=2, releases=500, engine="plain"))


BUDGET_OF = Federation(
    Drifting(clients=4, size=4, loss="linear", space="simplex"),
    SaddleMirrorDescent(region="simplex", constraint=Budget(kind="sample", budget=0.1, clip=1.0, reach=1.0)),
    Digraph(shape="complete"), privacy=Privacy(epsilon=8.0, clip=1.0), rounds=20,
)  # fmt: skip


def budgeted():
    honest(examined(BUDGET_OF, rounds=2, **SMALL))


def three_parts():
    """Gradient, cost and value of one sample: what their noises leave of it costs no more than the release paid."""
    instance = BUDGET_OF.instance()
    (turn,), settings = instance.plan.turns, instance.plan.settings
    me, budget = row(instance.plan.tables["peer"], 0), settings.learn.budget
    start, pressed, parts = me.model.copy(), me.learn.pressed, []
    for n in range(1500):
        me.model[:], me.protect.spent[0], pressed.multiplier[0] = start, 0.0, 0.0
        now = Moment(0, 0, key_of(3, 0, n), -1, 1, True, 0.0)
        assert turn.act(me, Seen(np.zeros(4), np.zeros(1)), turn.word, settings, now)
        parts.append([me.learn.gradient.std(), pressed.slope.std(), pressed.noised[0] + budget.budgets[0]])
    noises = np.sqrt(np.mean(np.square(parts), 0)) * np.sqrt([4 / 3, 4 / 3, 1.0])  # of four values about their mean
    cost = ((2 * np.array([settings.learn.clip, budget.clip, budget.reach]) / noises) ** 2).sum()
    assert cost <= 1.1 * (settings.protect.change / float(me.protect.noise[0])) ** 2


def once(algorithm):
    topology = {"topology": Digraph(shape="complete")} if isinstance(algorithm, MirrorDeep) else {}
    honest([examine_once(Federation(LINEAR, algorithm, rounds=6, every=6, **topology), 400)])


MIRROR = MirrorDeep(epsilon=1.0, batch=100, step=0.01)
SPARSE = MirrorDeep(epsilon=1.0, batch=10, step=0.01)
PLDP = PldpFl(budgets=(1.0, 1.0), batch=120, step=0.01, sampling="uniform", pretrain=6, local_steps=2, draws=2)
CENTRAL = DpFedAvgDeep(epsilon=1.0, asked=0.5, step=0.01, batch=20)

# --- the mutants ------------------------------------------------------------------------------------------------------


def scaled(at, factor):
    """A function whose argument `at` is multiplied."""

    def make(true):
        def mutant(*arguments, **named):
            arguments = list(arguments)
            arguments[at] = arguments[at] * factor
            return true(*arguments, **named)

        return mutant

    return make


def returned(change):
    """A function whose result is changed."""
    return lambda true: lambda *a, **k: change(true(*a, **k))


def replaced(new):
    return lambda true: new


def nothing(true):
    return lambda *a, **k: None


def first_value_only(true):
    return lambda values, *rest: true(values[:1], *rest)


def same_key(true):
    return lambda values, law, scale, key: true(values, law, scale, 7)


def unpaid(true):
    def pay(account, cost, *rest):
        return True

    return pay


def unlimited(true):
    def pay(account, cost, *rest):
        account.spent[0] += cost
        account.releases[0] += 1
        return True

    return pay


def silent_after(true):
    """Noise in the first three rounds alone."""

    def tell(me, scale, settings, moment):
        (true if moment.round < 3 else tell_openly)(me, scale, settings, moment)

    return tell


def mean_samples(true):
    """zCDP-NFL: the mean number of samples in the sensitivity in place of a client's own."""
    return lambda policy, setup, reaches, sizes, *rest: true(
        policy, setup, reaches, np.full(len(sizes), sizes.mean()), *rest
    )


def leaky_dual(true):
    """PGFL: the dual moves by the model before its noise."""

    def follow(me, told, settings):
        true(me, told, settings)
        me.mix.dual[:] += 1e3 * me.model

    return follow


def bare_value(true):
    """The constraint's value goes into the multiplier as it is."""

    def pushing(*kinds):
        def push(me, value, data, scale, settings, moment):
            true(*kinds)(me, value, data, scale, settings, moment)
            reach = settings.learn.budget.reach
            return float(np.clip(value, -reach, reach))

        return push

    return pushing


def forgotten_parts(true):
    """The cost and the value have noise as if they were released alone."""
    return lambda *kinds: (
        lambda me, value, data, scale, settings, moment: true(*kinds)(
            me, value, data, scale / settings.learn.spread, settings, moment
        )
    )


def everyone(samples, rate, key, index):
    return np.arange(samples)


NOISE, ACCOUNT = "archipel.privacy.noise", "archipel.privacy.account"
TOLD, CONSTRAINTS = "archipel.parts.protect.told", "archipel.parts.learn.constraints"
CORRELATED, SECAGG = "archipel.privacy.correlated", "archipel.privacy.secure_aggregation"
CODING = "archipel.privacy.coding"
PRIVATE, GAUSS, LEDGER = "archipel.parts.protect.individual", "archipel.privacy.gaussian", "archipel.privacy.ledger"
DISCRETE, GENERATORS = "archipel.privacy.discrete", "archipel.generators"
EXCESS = "archipel.privacy.excess"

ACCOUNTS = suite("account", "test_an_account_never_holds_more_than_its_limit")
LEDGERS = suite("account", "test_an_account_and_a_ledger_agree")
COSTS = suite("account", "test_costs_are_the_accountants", 2, 1.0, 0.3)
BUDGET = suite("ledger", "test_a_budget_is_never_overspent")
EPSILON = suite("gaussian", "test_epsilon_is_never_below_the_analytic_value_and_hardly_above", 0.3, 1e-5)
FIFTY = partial(suite("against_dp_accounting", "test_fifty_histories"), 0)
DENSE = suite("correlated", "test_sensitivity_and_deviation_are_those_of_the_dense_matrices", "buffers", 50)
KERNEL = suite("correlated", "test_the_kernel_solves_with_the_matrix", "buffers", 37)
SUMS = suite("correlated", "test_noise_in_sums_has_the_deviation_that_is_said", "buffers")
OWN = suite("individual", "test_nobody_pays_more_than_its_budget_whatever_it_says")
MASKED = suite("secure_aggregation", "test_masked_numbers_look_like_noise_whatever_they_hide", 24)
EXACT = suite("secure_aggregation", "test_it_is_exact_with_a_third_dropping_at_any_point")
LIES = suite("secure_aggregation", "test_a_server_that_lies_gets_nothing")
NOISE_OF_ONE = suite("summed", "test_at_epsilon_one_a_hundred_clients_have_the_noise_of_one")
FEWER = suite("summed", "test_with_fewer_words_more_of_the_noise_stays")
PAID = suite("summed", "test_the_ledger_is_a_gaussians_and_rounding_is_in_it")
PAIRS = suite("secure_aggregation", "test_every_pair_and_every_round_has_pads_of_its_own")
COLLUDE = suite("secure_aggregation", "test_a_server_that_shows_different_lists_learns_nothing_of_one_client", 6)

MUTANTS = {
    "no noise on updates": (NOISE, "disturb", nothing, stream),
    "half of the noise on updates": (NOISE, "disturb", scaled(2, 0.5), stream),
    "noise on the first value only": (NOISE, "disturb", first_value_only, stream),
    "the same noise in every run": (NOISE, "disturb", same_key, stream),
    "no noise on what peers say": (NOISE, "disturb", nothing, peers),
    "half of the noise on what peers say": (NOISE, "disturb", scaled(2, 0.5), peers),
    "noise left out from round 3 on": (TOLD, "tell", silent_after, partial(peers, 5)),
    "the mean number of samples": (TOLD, "priced", mean_samples, peers),
    "peers do not bound gradients": (
        "archipel.parts.learn.bounded", "bounded_factor", returned(lambda f: 30 * f), peers),
    "updates are not clipped": (
        "archipel.parts.protect.sample", "bound", replaced(lambda slope, *rest: slope), stream),
    "PGFL's dual has the model before noise": (
        "archipel.parts.learn.clustered", "follow", leaky_dual, personalised),
    "nothing is sampled, amplification claimed": (
        GENERATORS, "poisson_batch", replaced(everyone), partial(once, SPARSE)),
    "a tenth of PLDP-FL's noise": (GENERATORS, "add_gaussian", scaled(1, 0.1), partial(once, PLDP)),
    "a tenth of a server's noise": (GENERATORS, "add_gaussian", scaled(1, 0.1), partial(once, CENTRAL)),
    "a tenth of mirror-deep's noise": (GENERATORS, "add_gaussian", scaled(1, 0.1), partial(once, MIRROR)),
    "a constraint's value is not noised": (CONSTRAINTS, "pushing", bare_value, budgeted),
    "a constraint's sensitivity is forgotten": (CONSTRAINTS, "pushing", forgotten_parts, three_parts),
    "an account forgets its costs": (ACCOUNT, "pay", unpaid, ACCOUNTS),
    "an account has no limit": (ACCOUNT, "pay", unlimited, ACCOUNTS),
    "releases cost half": (ACCOUNT, "release_cost", returned(lambda cost: cost / 2), LEDGERS),
    "Laplace noise costs a tenth": (ACCOUNT, "release_cost", returned(lambda cost: cost / 10), COSTS),
    "a ledger enters nothing": (LEDGER, "Ledger._enter", nothing, BUDGET),
    "a ledger affords everything": (LEDGER, "Ledger.affords", replaced(lambda *a, **k: True), BUDGET),
    "epsilon a tenth too small": (GAUSS, "epsilon_of", returned(lambda e: e * 0.9), EPSILON),
    "sampled twice as rarely as it is": (
        "archipel.privacy.loss_distribution", "_single",
        lambda true: lambda plds, r, i: true(plds, Sampled(r.rate / 2, r.release) if isinstance(r, Sampled) else r, i),
        FIFTY),
    "Laplace as half of itself": (
        "archipel.privacy.loss_distribution", "_single",
        lambda true: lambda plds, r, i: true(plds, Laplace(r.epsilon / 2) if isinstance(r, Laplace) else r, i), FIFTY),
    "correlated: C has no sensitivity": (CORRELATED, "sensitivity", replaced(lambda *a: 1.0), DENSE),
    "correlated: nothing is remembered": (CORRELATED, "remember", nothing, KERNEL),
    "correlated: no fresh noise": (NOISE, "disturb", nothing, SUMS),
    "correlated: deviations too small": (CORRELATED, "deviations", returned(lambda d: d / 2), DENSE),
    "individual: nothing is spent": (
        PRIVATE, "shorten", lambda true: lambda me, *rest: true(me, *rest) and me.protect.spent.fill(0.0) is None, OWN),
    "individual: a change is paid for as half of it": (
        PRIVATE, "change_norm", lambda true: lambda model, before: true(model, before) / 2, OWN),
    "masks are zeros": (SECAGG, "expanded", replaced(lambda key, n, count, p: np.zeros(count, np.uint64)), MASKED),
    "masks repeat": (SECAGG, "expanded", lambda true: lambda k, n, c, p: np.resize(true(k, n, 16, p), c), MASKED),
    "all rounds have the same masks": (SECAGG, "expanded", lambda true: lambda k, n, c, p: true(k, 0, c, p), PAIRS),
    "all pairs have the same pads": (SECAGG, "agreed", replaced(lambda *a: [bytes(32)] * (len(a) - 2)), PAIRS),
    "a client answers for two lists": (
        SECAGG, "Masker.answer",
        lambda true: lambda self, listed, n: setattr(self, "answered", -1) or true(self, listed, n), LIES),
    "a client answers for a list of one": (
        SECAGG, "Masker.answer",
        lambda true: lambda self, listed, n: true(self, [*listed, *range(self.code.clients)], n), LIES),
    "one more may collude than is safe": (
        CODING, "code_of", returned(lambda c: c._replace(secret=c.secret - 1)), COLLUDE),
    "corrections are not padded": (
        CODING, "masked", lambda true: lambda code, values, pads: (
            true(code, values, pads)[0], true(code, values, pads)[1] * np.uint64(0)), MASKED),
    "a share of the noise too few": (DISCRETE, "disturb_integers", scaled(1, 0.8), NOISE_OF_ONE),
    "rounding is not in the sensitivity": (
        DISCRETE, "grid", returned(lambda g: g._replace(sensitivity=g.sensitivity * 0.9)),
        suite("discrete", "test_nothing_wraps_and_rounding_is_in_the_sensitivity")),
    "noise as if nobody dropped": (CODING, "code_of", returned(lambda c: c._replace(needed=c.clients)), FEWER),
    "excess: as if no server lied": (
        EXCESS, "kept_of", lambda true: lambda sizes, clients, known, lying=True: true(sizes, clients, known, False),
        suite("excess", "test_the_noise_of_a_sum_suffices_whatever_lists_a_server_shows", 6, 4, 1)),
    "excess: a client's own noise counts": (
        EXCESS, "kept_of", lambda true: lambda sizes, clients, known, lying=True: true(sizes, clients, 0, lying), PAID),
    "excess: seeds of what stays are told": (
        EXCESS, "later", lambda true: lambda seed, steps: true(seed, min(steps, 1)),
        suite("excess", "test_a_told_seed_gives_all_later_parts", bytes(range(32)))),
    "in turn: a round is for itself": (
        "archipel.parts.protect.in_turn", "InTurn.strain", replaced(lambda self, setup: 1.0),
        suite("in_turn", "test_a_client_pays_for_the_worst_rounds_and_changes", 10, 3, 3)),
    "in turn: twice as often": (
        "archipel.parts.protect.in_turn", "InTurn.spacing", returned(lambda every: 2 * every),
        suite("in_turn", "test_a_client_pays_for_the_worst_rounds_and_changes", 10, 3, 3)),
    "a sum costs half": (ACCOUNT, "release_cost", returned(lambda cost: cost / 2), PAID),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_the_leak_is_caught(name):
    module, function, make, catcher = MUTANTS[name]
    with leaking(module, function, make), pytest.raises(BaseException) as caught:
        catcher()
    assert isinstance(caught.value, (AssertionError, pytest.fail.Exception, RuntimeError, BaseExceptionGroup)), caught


HONEST = list({id(catcher): catcher for *_, catcher in MUTANTS.values()}.values())


def runs_by_itself(catcher):
    """Whether it is a test of its own."""
    return getattr(catcher, "func", catcher).__module__.startswith("mutants_")


@pytest.mark.parametrize(
    "which",
    [pytest.param(n, marks=pytest.mark.long) if runs_by_itself(one) else n for n, one in enumerate(HONEST)],
)
def test_without_a_leak_nothing_is(which):
    HONEST[which]()
