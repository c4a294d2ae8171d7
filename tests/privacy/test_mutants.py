"""Deliberate leaks: each must be caught, by the test that is nearest to it or by an audit.

A mutant replaces one function wherever it was imported; a catcher is a test of this folder, or an audit, which must
then fail. Unchanged, every catcher passes.
"""

import importlib.util
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from archipel import Federation, OnlineFed, Synthetic
from archipel.algorithms import mirror_nodes
from archipel.algorithms.fedavg_deep import DpFedAvgDeep
from archipel.algorithms.mirror_deep import MirrorDeep
from archipel.algorithms.mirror_descent import Budget, SaddleMirrorDescent
from archipel.algorithms.pgfl import Pgfl
from archipel.algorithms.pldp_fl import PldpFl
from archipel.algorithms.zcdp_nfl import ZcdpNfl
from archipel.auditing import examine
from archipel.canaries import examine_once
from archipel.draws import key_of
from archipel.node import Moment, row
from archipel.privacy.policy import Privacy
from archipel.privacy.releases import Laplace, Sampled
from archipel.problems.clustered import Related
from archipel.problems.drifting import Drifting, Seen
from archipel.problems.linear import Linear
from archipel.problems.networked import Regression
from archipel.topology import Digraph, Peers

HERE = Path(__file__).parent


def module_of(name):
    """A test module of this folder, loaded once."""
    known = f"mutants_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, HERE / f"test_{name}.py")
        sys.modules[known] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[known])
    return sys.modules[known]


def suite(module, test, *arguments):
    """A test as a catcher."""
    return partial(getattr(module_of(module), test), *arguments)


def everywhere(monkeypatch, module, name, make):
    """Replace a function or a method wherever it is."""
    owner = sys.modules[module]
    for part in name.split(".")[:-1]:
        owner = getattr(owner, part)
    name = name.split(".")[-1]
    true = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    new = make(true)
    if isinstance(owner, type):
        monkeypatch.setattr(owner, name, new)
        return
    for loaded in list(sys.modules.values()):
        if loaded.__class__ is type(sys) and loaded.__dict__.get(name) is true:
            monkeypatch.setattr(loaded, name, new)


# --- audits as catchers -----------------------------------------------------------------------------------------------

SMALL = {"releases": 1000, "engine": "plain"}
STREAM = Federation(Synthetic(clients=5, features=8, test=10), OnlineFed(), privacy=Privacy(epsilon=8.0, clip=1.0))
PEERS = Federation(Regression(), ZcdpNfl(), Peers(), privacy=Privacy(epsilon=8.0, clip=1.0), rounds=50)
BOUNDS = {"features": 1.0, "target": 1.0, "radius": 1.0}
LINEAR = Linear(clients=4, size=600, samples=120, test=20)


def honest(verdicts):
    """What an audit says of a federation that keeps its promise."""
    assert not any(verdict.refuted for verdict in verdicts), verdicts


def stream(rounds=2):
    honest(examine(STREAM, rounds=rounds, **SMALL))


def peers(rounds=2):
    honest(examine(PEERS, rounds=rounds, **SMALL))


def personalised():
    from archipel.privacy.bounding import Bounds

    private = Privacy(epsilon=1.0, bounds=Bounds(**BOUNDS))
    problem = Related(clients=6, tasks=2, size=5, samples=(20, 20))
    honest(examine(Federation(problem, Pgfl(), privacy=private, rounds=10), rounds=2, releases=500, engine="plain"))


BUDGET_OF = Federation(
    Drifting(clients=4, size=4, loss="linear", space="simplex"),
    SaddleMirrorDescent(region="simplex", constraint=Budget(kind="sample", budget=0.1, clip=1.0, reach=1.0)),
    Digraph(shape="complete"), privacy=Privacy(epsilon=8.0, clip=1.0), rounds=20,
)  # fmt: skip


def budgeted():
    honest(examine(BUDGET_OF, rounds=2, **SMALL))


def three_parts():
    """Gradient, cost and value of one sample: what their noises leave of it costs no more than the release paid."""
    instance = BUDGET_OF.instance()
    me, settings = row(instance.plan.tables["peer"], 0), instance.plan.settings
    scale, parts = float(me.noise[0]), []
    for n in range(1500):
        now = Moment(0, 0, key_of(3, 0, n), -1, 1, True, 0.0)
        me.spent[0], zero = 0.0, Seen(np.zeros(4), np.zeros(1))
        mirror_nodes.look(me, zero, settings, now)
        gradient = me.gradient.copy()
        value = mirror_nodes.constrain(me, 0.0, zero, scale, settings, now)
        parts.append([gradient.std(), me.slope.std(), abs(value)])
    noises = np.sqrt(np.mean(np.square(parts), 0)) * np.sqrt([4 / 3, 4 / 3, 1.0])  # of four values about their mean
    cost = ((2 * np.array([settings.clip, settings.cost, settings.reach]) / noises) ** 2).sum()
    assert cost <= 1.1 * (settings.change / scale) ** 2


def once(algorithm):
    topology = {"topology": Digraph(shape="complete")} if isinstance(algorithm, MirrorDeep) else {}
    honest([examine_once(Federation(LINEAR, algorithm, rounds=6, every=6, **topology), 400)])


MIRROR = MirrorDeep(epsilon=1.0, batch=100, step=0.01)
SPARSE = MirrorDeep(epsilon=1.0, batch=20, step=0.01)
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
    """Noise in the first three rounds alone: `say` is what zCDP-NFL releases with."""
    import archipel.algorithms.zcdp_nfl as module

    def say(me, said, sensitivity, settings, moment):
        noise, module.disturb = module.disturb, module.disturb if moment.round < 3 else lambda *a: None
        try:
            return true(me, said, sensitivity, settings, moment)
        finally:
            module.disturb = noise

    return say


def mean_samples(true):
    """zCDP-NFL: the mean number of samples in the sensitivity in place of a client's own."""

    def priced(policy, setup, weights):
        starts = setup.task.source.starts
        even = np.round(np.linspace(0, starts[-1], len(starts))).astype(starts.dtype)
        source = setup.task.source._replace(starts=even)
        return true(policy, setup._replace(task=setup.task._replace(source=source)), weights)

    return priced


def leaky_dual(true):
    """PGFL: the dual moves by the model before its noise."""

    def release(me, *rest):
        done = true(me, *rest)
        if hasattr(me, "dual"):
            me.dual[:] = me.dual + 1e3 * me.model
        return done

    return release


def bare_value(true):
    """The constraint's value goes into the multiplier as it is."""

    def constrain(me, value, data, scale, settings, moment):
        true(me, value, data, scale, settings, moment)
        return float(np.clip(value, -settings.reach, settings.reach))

    return constrain


def forgotten_parts(true):
    """The cost and the value have noise as if they were released alone."""
    return lambda me, value, data, scale, settings, moment: true(
        me, value, data, scale / settings.spread, settings, moment
    )


def everyone(samples, rate, key, index):
    return np.arange(samples)


NOISE, ACCOUNT, BOUNDING = "archipel.privacy.noise", "archipel.privacy.account", "archipel.privacy.bounding"
CORRELATED, SECAGG = "archipel.privacy.correlated", "archipel.privacy.secure_aggregation"
PRIVATE, GAUSS, LEDGER = "archipel.privacy.individual", "archipel.privacy.gaussian", "archipel.privacy.ledger"
DISCRETE, GENERATORS = "archipel.privacy.discrete", "archipel.generators"

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
MASKED = suite("secure_aggregation", "test_masked_numbers_look_like_noise_whatever_they_hide")
EXACT = suite("secure_aggregation", "test_it_is_exact_with_a_third_dropping_at_any_point")
LIES = suite("secure_aggregation", "test_a_server_that_lies_about_who_is_left_gets_nothing")
NOISE_OF_ONE = suite("discrete", "test_at_epsilon_one_a_hundred_clients_have_the_noise_of_one")
PAIRS = suite("secure_aggregation", "test_every_pair_has_a_mask_of_its_own")
SHAMIR = suite("secure_aggregation", "test_any_threshold_of_shares_is_the_secret")

MUTANTS = {
    "no noise on updates": (NOISE, "disturb", nothing, stream),
    "half of the noise on updates": (NOISE, "disturb", scaled(2, 0.5), stream),
    "noise on the first value only": (NOISE, "disturb", first_value_only, stream),
    "the same noise in every run": (NOISE, "disturb", same_key, stream),
    "no noise on what peers say": (NOISE, "disturb", nothing, peers),
    "half of the noise on what peers say": (NOISE, "disturb", scaled(2, 0.5), peers),
    "noise left out from round 3 on": ("archipel.algorithms.zcdp_nfl", "say", silent_after, partial(peers, 5)),
    "the mean number of samples": ("archipel.algorithms.zcdp_nfl", "priced", mean_samples, peers),
    "peers do not bound gradients": (
        "archipel.algorithms.bounded", "example_factor", returned(lambda f: 30 * f), peers),
    "updates are not clipped": ("archipel.algorithms.noised", "clipped", replaced(lambda error, *rest: error), stream),
    "PGFL's dual has the model before noise": ("archipel.algorithms.pgfl_nodes", "release", leaky_dual, personalised),
    "nothing is sampled, amplification claimed": (
        GENERATORS, "poisson_batch", replaced(everyone), partial(once, SPARSE)),
    "a tenth of PLDP-FL's noise": (GENERATORS, "add_gaussian", scaled(1, 0.1), partial(once, PLDP)),
    "a tenth of a server's noise": (GENERATORS, "add_gaussian", scaled(1, 0.1), partial(once, CENTRAL)),
    "a tenth of mirror-deep's noise": (GENERATORS, "add_gaussian", scaled(1, 0.1), partial(once, MIRROR)),
    "a constraint's value is not noised": ("archipel.algorithms.mirror_nodes", "constrain", bare_value, budgeted),
    "a constraint's sensitivity is forgotten": (
        "archipel.algorithms.mirror_nodes", "constrain", forgotten_parts, three_parts),
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
        PRIVATE, "own_factor", replaced(lambda f, i, norm, clip, scale: min(1.0, clip / norm) if norm else 0.0), OWN),
    "individual: a budget of twice as much": (PRIVATE, "own_factor", scaled(4, 2.0), OWN),
    "masks are zeros": (SECAGG, "expanded", replaced(lambda seed, size, dtype: np.zeros(size, dtype)), MASKED),
    "masks repeat": (SECAGG, "expanded", lambda true: lambda s, n, d: np.resize(true(s, 16, d), n), MASKED),
    "pairwise masks are all the same": (SECAGG, "agreed", replaced(lambda *a: bytes(32)), PAIRS),
    "a client signs two lists": (
        SECAGG, "Client.fix", replaced(lambda self, s: setattr(self, "survivors", frozenset(s))), LIES),
    "signatures are not looked at": (SECAGG, "signed_by", replaced(lambda *a: True), LIES),
    "both seeds are given out": (
        SECAGG, "Client.rescue", replaced(lambda self, missing: {k: self.held[k][49:] for k in missing}), LIES),
    "a share is the secret": (
        "archipel.privacy.shamir", "shares_of",
        replaced(lambda secret, holders, threshold, entropy: dict.fromkeys(holders, b"\x00" + secret)), SHAMIR),
    "a share of the noise too few": (DISCRETE, "disturb_integers", scaled(1, 0.8), NOISE_OF_ONE),
    "rounding is not in the sensitivity": (
        DISCRETE, "grid", returned(lambda g: g._replace(sensitivity=g.sensitivity * 0.9)),
        suite("discrete", "test_nothing_wraps_and_rounding_is_in_the_sensitivity")),
    "the sum costs as if all noise were one client's": (DISCRETE, "sum_cost", returned(lambda c: c / 2), NOISE_OF_ONE),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_the_leak_is_caught(name, monkeypatch):
    module, function, make, catcher = MUTANTS[name]
    everywhere(monkeypatch, module, function, make)
    with pytest.raises(BaseException) as caught:
        catcher()
    assert isinstance(caught.value, (AssertionError, pytest.fail.Exception, RuntimeError, BaseExceptionGroup)), caught


HONEST = {id(getattr(catcher, "func", catcher)): catcher for *_, catcher in MUTANTS.values()}


@pytest.mark.parametrize("which", range(len(HONEST)))
def test_without_a_leak_nothing_is(which):
    list(HONEST.values())[which]()
