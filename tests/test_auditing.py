"""The audit finds what a mechanism gives away, never more; and it catches mechanisms that cheat."""

from dataclasses import dataclass

import numpy as np
import pytest

from archipel import Delay, Environment, Federation, Linear, OnlineFed, PaoFed, Synthetic
from archipel.algorithms.deep import FedAvgDeep
from archipel.algorithms.online import OnlineFedSgd, PsoFed
from archipel.algorithms.zcdp_nfl import DpNfl, PAdmm, ZcdpGradNfl, ZcdpNfl
from archipel.auditing.twins import examine, judged, tiled, twin_of, watched
from archipel.environment import Attack
from archipel.errors import BadInput
from archipel.node import add_scaled, dot, leaves
from archipel.parts.protect.sample import bound
from archipel.parts.protect.word import AtWord
from archipel.privacy.account import pay, release_cost
from archipel.privacy.noise import disturb
from archipel.privacy.policy import Privacy, Range
from archipel.problems.deep import Deep
from archipel.problems.networked import Regression
from archipel.problems.own import Files
from archipel.simulate.laid import SHARED, rounds_of
from archipel.simulate.plain import PlainEngine, in_rows
from archipel.topology import Peers, Servers, Star

STREAM = Synthetic(clients=5, features=8, test=10)
FEW = {"releases": 2000, "rounds": 1, "engine": "plain"}


def online(algorithm=None, **table):
    return Federation(STREAM, algorithm or OnlineFed(), privacy=Privacy(epsilon=2.0, clip=1.0, **table), rounds=50)


def peers(objective="ridge", **table):
    return Federation(Regression(objective), ZcdpNfl(), Peers(), privacy=Privacy(clip=1.0, **table), rounds=50)


@dataclass(frozen=True)
class Cheating(OnlineFed):
    """Online-Fed with another way to learn."""

    cheat: str = "half noise"

    def plan(self, setup):
        plan = super().plan(setup)
        down, up = plan.turns
        return plan._replace(turns=(down, up._replace(act=CHEATS[self.cheat])))


def learned(me, data, settings, moment, scale):
    error = bound(data.target[0] - dot(me.model, data.features), data.features, settings)
    add_scaled(me.model, settings.learn.step * error, data.features)
    disturb(me.model, settings.protect.law, scale, moment.key)


def half_noise(me, data, said, settings, moment):
    pay(me.protect, release_cost(settings.protect.law, settings.protect.change, me.protect.noise[0]), 1)
    learned(me, data, settings, moment, me.protect.noise[0] / 2)
    said.values[:] = me.model
    return True


def forgotten_charge(me, data, said, settings, moment):
    learned(me, data, settings, moment, me.protect.noise[0])
    said.values[:] = me.model
    return True


def noise_on_what_is_said(me, data, said, settings, moment):
    """Charged once, but a sample stays in the model and is said again with new noise."""
    if moment.round == 0:
        learned(me, data, settings, moment, 0.0)
    said.values[:] = me.model
    disturb(said.values, settings.protect.law, me.protect.noise[0], moment.key)
    me.protect.spent[0] = release_cost(settings.protect.law, settings.protect.change, me.protect.noise[0])
    return True


def stubborn_take(me, said, settings, moment):
    """A client that does not take the server's model."""


CHEATS = {"half noise": half_noise, "forgotten charge": forgotten_charge}


def worst_of(described, releases=2000, rounds=1, environment=None):
    """The verdict on the worst case alone."""
    twins = [twin_of(described, True, which, rounds, environment) for which in (0, 1)]
    (a, claimed), (b, _) = (watched(twin, releases, 9 + which, "plain", None) for which, twin in enumerate(twins))
    return judged("worst case", twins[0], [a, b], claimed)


def test_an_honest_mechanism_is_not_refuted_and_nearly_all_of_it_is_found():
    worst, typical = examine(online(), **FEW)
    assert 1.0 < worst.found <= worst.claimed == pytest.approx(2.0, rel=1e-6)
    assert typical.found <= worst.found and worst.guarantee == "enforced"
    assert not worst.refuted and not typical.refuted


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_caught(cheat):
    worst = worst_of(online(Cheating(cheat=cheat)))
    assert worst.refuted
    assert worst.claimed == (0.0 if cheat == "forgotten charge" else pytest.approx(2.0, rel=1e-6))


def test_a_bound_that_is_not_enforced_is_caught_and_was_called_assumed():
    worst = worst_of(online(enforce=False))
    assert worst.refuted and worst.guarantee == "assumed"


def test_fresh_noise_on_an_old_sample_is_caught():
    """Why noise must enter with the sample: said in three rounds with fresh noise, it costs three times its zCDP."""

    @dataclass(frozen=True)
    class Retold(OnlineFed):
        def plan(self, setup):
            plan = super().plan(setup)
            down, up = plan.turns
            return plan._replace(turns=(down._replace(take=stubborn_take), up._replace(act=noise_on_what_is_said)))

    worst = worst_of(online(Retold()), rounds=3)
    assert worst.refuted and worst.claimed == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("described", [peers(epsilon=4.0), peers(epsilon=4.0, mechanism="laplace")])
def test_peers_are_audited_too(described):
    worst = worst_of(described, releases=1400)
    assert 1.0 < worst.found <= worst.claimed <= 4.0


def test_a_peer_that_cannot_pay_gives_nothing_away():
    worst = worst_of(peers(noise=1e-3, epsilon=0.1), releases=400)
    assert worst.found == worst.claimed == 0.0


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("described", [peers, lambda **t: online(**t)], ids=["zcdp-nfl", "online-fed"])
def test_of_a_one_round_release_it_finds_four_fifths_and_never_more_than_all(epsilon, described):
    made = described(epsilon=epsilon) if described is peers else Federation(
        STREAM, PaoFed(portion=4), privacy=Privacy(epsilon=epsilon, clip=1.0), rounds=50
    )  # fmt: skip
    worst, typical = examine(made, releases=200_000, rounds=1)
    assert 0.8 * epsilon <= worst.found <= worst.claimed == pytest.approx(epsilon, rel=1e-6)
    assert typical.found <= typical.claimed


ROUGH = Environment(availability=(0.5, 1.0), delay=Delay(delta=0.3, limit=3))


@pytest.mark.long
@pytest.mark.parametrize("unit", ["sample", "client"])
@pytest.mark.parametrize(
    "algorithm",
    [PaoFed(portion=4), PaoFed(portion=2, variant="U1"), PaoFed(portion=1), PsoFed(), OnlineFedSgd()],
    ids=["whole", "U1", "one parameter", "PSO-Fed", "Online-FedSGD"],
)
def test_the_audit_agrees_with_private_pao_fed(unit, algorithm):
    """Also in a rough world, where a client learns alone for rounds and is heard late."""
    privacy = Privacy(epsilon=1.0, clip=1.0, unit=unit)
    verdicts = examine(Federation(STREAM, algorithm, environment=ROUGH, privacy=privacy), releases=100_000, rounds=6)
    assert [v.pair for v in verdicts] == ["worst case", "typical", "worst case, in its environment"]
    for verdict in verdicts:
        assert verdict.found <= verdict.claimed <= 1.0 and verdict.guarantee == "enforced"
    assert verdicts[0].found > 0.2


@pytest.mark.long
@pytest.mark.parametrize("objective", ["ridge", "elastic-net", "least-absolute", "logistic"])
@pytest.mark.parametrize("algorithm", [ZcdpNfl(), DpNfl(), ZcdpGradNfl()], ids=["zcdp-nfl", "dp-nfl", "zcdp-grad-nfl"])
def test_the_audit_agrees_with_networked_learning(algorithm, objective):
    """Of three rounds it finds nearly all that the ledger counts, where the pull of a sample does not saturate."""
    described = Federation(Regression(objective), algorithm, Peers(), privacy=Privacy(epsilon=1.0, clip=1.0), rounds=50)
    worst, typical = examine(described, releases=100_000, rounds=3)
    assert worst.found <= worst.claimed and typical.found <= typical.claimed
    assert worst.found > (0.8 if objective in ("ridge", "least-absolute") else 0.5) * worst.claimed


def test_p_admm_is_audited_and_its_assumption_found_false():
    table = Privacy(epsilon=1.0, clip=1.0, enforce=False)
    described = Federation(Regression(), PAdmm(), Peers(), privacy=table, rounds=50)
    worst = worst_of(described, releases=400)
    assert worst.guarantee == "assumed" and worst.refuted


@dataclass(frozen=True)
class Shy(OnlineFed):
    """Steps as far as it likes while nobody looks: only an environment in which clients are away gives it away."""

    def plan(self, setup):
        plan = super().plan(setup)
        down, up = plan.turns
        return plan._replace(turns=(down._replace(take=stubborn_take), up._replace(act=shy)))


def shy(me, data, said, settings, moment):
    pay(me.protect, release_cost(settings.protect.law, settings.protect.change, me.protect.noise[0]), 1)
    further = (
        settings if moment.present else settings._replace(learn=settings.learn._replace(step=20 * settings.learn.step))
    )
    learned(me, data, further, moment, me.protect.noise[0] if moment.present else 0.0)
    said.values[:] = me.model
    return moment.present


def test_who_cheats_while_away_is_caught_in_its_environment():
    described = Federation(STREAM, Shy(), privacy=Privacy(epsilon=1.0, clip=1.0))
    for environment, caught in ((Environment(), False), (Environment(availability=0.6), True)):
        assert worst_of(described, 1000, 2, environment).refuted == caught


def test_an_audit_has_draws_of_its_own_for_every_seed():
    few = FEW | {"releases": 400}
    one, again, other = (examine(online(Cheating()).with_(seed=seed), **few)[0].found for seed in (1, 1, 2))
    assert one == again != other > 0


# --- how it is done -------------------------------------------------------------------------------------------------


def test_copies_of_an_instance_are_the_instance_again_and_again():
    """Without noise every copy does what one does."""
    for described in (peers(noise=0.0), Federation(STREAM, PaoFed(portion=2), privacy=Privacy(noise=0.0, clip=1.0))):
        instance = twin_of(described, True, 0, 4).instance()
        many = tiled(twin_of(described, True, 0, 4).instance(), 3)
        for played in (instance, many):
            PlainEngine(played).advance(0, 4)
        for role, table in instance.plan.tables.items():
            for one, all_ in zip(leaves(table), leaves(many.plan.tables[role])):
                assert np.allclose(np.concatenate([one] * 3), all_, rtol=1e-12, atol=1e-12)


@pytest.mark.long
def test_both_engines_see_the_same():
    twin = twin_of(peers(epsilon=1.0), True, 1, 2)
    plain, quick = (watched(twin, 40, 5, engine, None) for engine in ("plain", "compiled"))
    assert np.allclose(plain[0], quick[0], rtol=1e-10) and plain[1] == pytest.approx(quick[1])


def test_what_everyone_says_is_seen_on_a_star_of_every_copy(monkeypatch):
    """There are so many stars that each server could hear its clients before those of the next one act."""

    def as_compiled(many, step_by_step=False):
        engine = PlainEngine(many)
        engine.rounds = in_rows(rounds_of(many, 1, step_by_step), many.plan.turns)
        return engine

    monkeypatch.setattr("archipel.auditing.twins.compiled", as_compiled)
    described = Federation(Regression(), ZcdpNfl(), Star(), privacy=Privacy(epsilon=1.0, clip=1.0), rounds=5)
    twin = twin_of(described, True, 1, 2)
    plain, quick = (watched(twin, 2 * SHARED, 5, engine, None) for engine in ("plain", "compiled"))
    assert np.array_equal(plain[0], quick[0]) and plain[1] == quick[1] > 0


def test_in_an_audit_nobody_lies():
    """Who lies is known of a federation's clients, not of its copies': it was read beyond the array's end."""
    rough = Environment(availability=0.5, attack=Attack(0.3, "sign-flip"))
    private, data = Privacy(epsilon=2.0, clip=0.5), Linear(clients=10, size=5, samples=20)
    verdicts = examine(Federation(data, OnlineFed(), Star(), rough, private, rounds=3), 200, 1, "plain")
    assert len(verdicts) == 3 and not any(verdict.refuted for verdict in verdicts)


def test_of_different_budgets_the_largest_is_audited():
    twin = twin_of(peers(epsilon=Range(1.0, 3.0)), True, 0, 2)
    assert twin.privacy.epsilon == 3.0
    assert twin_of(peers(noise=(0.5,) * 49 + (0.2,)), True, 0, 2).privacy.noise == 0.2


def test_what_cannot_be_audited_is_refused():
    with pytest.raises(BadInput, match="no claim to audit"):
        examine(Federation(STREAM, OnlineFed()))
    with pytest.raises(BadInput, match="star or peers"):
        from archipel.algorithms.pgfl import Pgfl

        described = Federation.__new__(Federation)
        for name, part in (
            ("privacy", Privacy(noise=1.0)),
            ("algorithm", Pgfl()),
            ("topology", Servers()),
            ("environment", ROUGH),
        ):
            object.__setattr__(described, name, part)
        examine(described)


def test_an_audit_says_of_a_federation_what_its_ledger_says(tmp_path):
    """Files that are standardised by everyone's data: assumed, though the twin's are not."""
    for name in "abc":
        np.savez(tmp_path / name, x=np.random.default_rng(0).normal(size=(20, 3)), y=np.arange(20.0))
    files = Files(str(tmp_path))
    federation = Federation(files, OnlineFed(), privacy=Privacy(epsilon=2.0, clip=1.0), rounds=10)
    assert federation.instance().plan.accountant.terms.how == "assumed"
    assert {verdict.guarantee for verdict in examine(federation, **FEW)} == {"assumed"}


def test_pgfl_on_a_star_is_audited():
    """Servers find each copy's clients in their places: no index leaves its array."""
    from archipel.algorithms.pgfl import Pgfl
    from archipel.privacy.bounding import Bounds
    from archipel.problems.clustered import Related

    problem = Related(clients=6, tasks=2, size=5, samples=(20, 20), test=5)
    privacy = Privacy(epsilon=1.0, bounds=Bounds(1.0, 1.0, 1.0))
    described = Federation(problem, Pgfl(), Star(clusters=2), privacy=privacy, rounds=5)
    for verdict in examine(described, releases=400, rounds=2, engine="plain"):
        assert verdict.guarantee == "enforced" and not verdict.refuted


def test_of_a_network_an_audit_says_what_to_ask_for():
    described = Federation(Deep(), FedAvgDeep(protect=AtWord()), privacy=Privacy(epsilon=4.0, clip=1.0))
    with pytest.raises(BadInput, match="--one-run"):
        examine(described)
