"""Private online mirror descent: against closed forms, its ledger at both levels, its meters, what it refuses."""

import json
from dataclasses import replace

import numpy as np
import pytest

from archipel import Environment, Federation
from archipel.algorithms.dp_fedavg import DpFedAvg
from archipel.algorithms.mirror import (
    DualAveraging,
    LagrangianDescent,
    MirrorDescent,
    OnlineGradientDescent,
    OnlinePushSum,
    PublishedMirrorDescent,
    SaddleMirrorDescent,
)
from archipel.auditing import examine
from archipel.draws import key_of
from archipel.environment import Delay, Failure
from archipel.errors import BadInput
from archipel.node import Moment
from archipel.parts.learn.constraints import Budget, window_budget
from archipel.parts.learn.mirror import MirrorStep
from archipel.parts.learn.online import OnlineStep
from archipel.parts.learn.regret import Record, excess, minima_of
from archipel.parts.learn.replay import Replay
from archipel.parts.share.whole import Whole
from archipel.privacy.policy import Privacy
from archipel.problems.drifting import Drifting, GrowingMean
from archipel.problems.losses.online import ONLINE_LOSSES, loss_gradient, loss_value
from archipel.problems.regions import anywhere, ball, box, project, projected, simplex
from archipel.simulate.plain import PlainEngine
from archipel.testing import check_algorithm
from archipel.theory.comparators import best
from archipel.topology import Digraph, Star, matrix
from reference import regret
from reference.losses import DistanceLosses, LinearLosses, LogisticLosses

SMALL = Drifting(clients=5, size=3)
UNBALANCED = Digraph(shares="random", mean_degree=2.0)
LAPLACE = Privacy(mechanism="laplace", epsilon=1.0, clip=1.5)


def played(federation, rounds=None):
    """The instance after all rounds, and all models that were played."""
    instance = federation.instance()
    engine, models = PlainEngine(instance), []
    for n in range(rounds or federation.rounds):
        models.append(instance.plan.tables[instance.data_role].model.copy())
        engine.advance(n, n + 1)
    return instance, np.array(models)


# --- the stream -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [*(replace(SMALL, loss=loss, drift=0.5) for loss in ONLINE_LOSSES), GrowingMean()])
def test_meters_draw_the_stream_that_nodes_see(problem):
    task = problem.task(3, 20, np.float64, "stream")
    features, targets = task.oracle.past(4, 9)
    for n in range(4, 9):
        for k in range(task.clients):
            _, seen = task.observe(task.source, task.sample, Moment(k, n, key_of(3, k, n), -1, 1, True, 1.0))
            np.testing.assert_allclose(seen.features, features[n - 4, k], rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(seen.target[0], targets[n - 4, k], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", ONLINE_LOSSES)
def test_gradients_are_those_of_the_losses(loss):
    task = replace(SMALL, loss=loss).task(1, 5, np.float64, "stream")
    _, seen = task.observe(task.source, task.sample, Moment(2, 3, key_of(1, 2, 3), -1, 1, True, 1.0))
    x, slope, step = np.array([0.3, -0.2, 0.7]), np.empty(3), 1e-6
    loss_gradient(slope, task.loss, x, seen)
    for j, unit in enumerate(np.eye(3)):
        up, down = (loss_value(task.loss, x + sign * step * unit, seen) for sign in (1, -1))
        assert (up - down) / (2 * step) == pytest.approx(slope[j], abs=1e-6)


@pytest.mark.parametrize("space", ["ball", "simplex"])
def test_what_is_best_drifts_as_far_as_was_asked(space):
    path = replace(SMALL, space=space, drift=0.5, speed=0.3).path(1, 40_000)
    lengths = regret.path_length(path, [10_000, 40_000])
    assert lengths[1] / lengths[0] == pytest.approx(2.0, rel=0.02)
    if space == "simplex":
        assert (path > 0).all() and np.allclose(path.sum(1), 1)


def test_expected_losses_are_means_of_what_is_drawn():
    """What `behind` counts: F_t(x) - F_t(x*), by the mean over many rounds of a stream that stands still."""
    for loss in ("linear", "distance", "squared"):
        problem = replace(SMALL, loss=loss, clients=20)
        task = problem.task(5, 4000, np.float64, "stream")
        features, targets = task.oracle.past(0, 4000)
        record = Record(lambda a, b, x=features, y=targets: (x[a:b], y[a:b]), task.loss, 0.0, 20, 3)
        total, region = record.until(4000), ball(3)
        minimum = minima_of(task.loss, 0.0, task.oracle.centres, region)[0]
        other = np.array([0.1, 0.2, -0.3])
        measured = (total.value(other) - total.value(minimum)) / 80_000
        assert excess(task.loss, 0.0, other, minimum, task.oracle.centres[0]) == pytest.approx(
            measured, rel=0.05, abs=0.005
        )


# --- steps ------------------------------------------------------------------------------------------------------------


def test_online_push_sum_written_out():
    """Subgradient-push on weighted sums: total' = W (total - step gradient), model = total / weight."""
    instance, models = played(Federation(SMALL, OnlinePushSum(), UNBALANCED, rounds=30))
    features, _ = instance.task.oracle.past(0, 30)
    graph, total, weight = matrix(instance.graph.links()), np.zeros((5, 3)), np.ones(5)
    for n in range(30):
        model = total / weight[:, None]
        np.testing.assert_allclose(models[n], model, atol=1e-12)
        total, weight = graph @ (total - 0.5 / np.sqrt(n + 1) * (model - features[n])), graph @ weight


@pytest.mark.parametrize("sums", ["sender", "receiver"])
def test_plain_mixing_written_out(sums):
    """(5.13) with a sender's weights, chapter 2's step 11 with a receiver's: rows of W times what was learned."""
    graph = replace(UNBALANCED, sums_to_one=sums)
    instance, models = played(Federation(SMALL, OnlineGradientDescent(step=0.5), graph, rounds=20))
    features, _ = instance.task.oracle.past(0, 20)
    model = np.zeros((5, 3))
    for n in range(20):
        np.testing.assert_allclose(models[n], model, atol=1e-12)
        model = matrix(instance.graph.links()) @ projected(
            model - 0.5 / np.sqrt(n + 1) * (model - features[n]), ball(3)
        )


def test_weights_add_up_whoever_is_away_or_opts_out():
    graph = Digraph(phases=6, fade=0.2, opt_out=0.3, window=6, mean_degree=3.0)
    instance, models = played(Federation(SMALL, MirrorDescent(), graph, Environment(availability=0.6), rounds=60))
    weight = instance.plan.tables["peer"].mix.weight
    assert weight.sum() == pytest.approx(5) and (weight > 0).all() and np.isfinite(models).all()


@pytest.mark.parametrize("kind", [MirrorDescent, DualAveraging])
@pytest.mark.parametrize("limit", [0, 6])
def test_no_weight_is_lost_where_messages_are_late_and_receivers_away(kind, limit):
    """What will not count stays with its sender; what comes while one is away waits. So it costs little."""
    rough = Environment(availability=0.8, delay=Delay(delta=0.1, limit=4))
    late, calm = (
        Federation(replace(SMALL, clients=8), kind(limit=limit), Digraph("complete"), conditions, rounds=400)
        for conditions in (rough, Environment())
    )
    weight = played(late)[0].plan.tables["peer"].mix.weight
    assert weight.sum() == pytest.approx(8) if limit == 0 else 6.5 < weight.sum() <= 8
    lost = [each.with_(every=400, engine="plain").run().final("regret.dynamic") for each in (late, calm)]
    assert lost[0] < 2 * lost[1] + 1


def test_entropy_stays_a_number_whatever_the_step():
    """A component that has become zero does not decide how far the others are scaled."""
    algorithm = MirrorDescent(region="simplex", map="entropy", step=1.0)
    privacy = replace(LAPLACE, epsilon=0.001)
    for problem in (replace(SMALL, loss="linear", space="simplex"), replace(SMALL, space="simplex")):
        _, models = played(Federation(problem, algorithm, Digraph("complete"), privacy=privacy, rounds=300))
        np.testing.assert_allclose(models.sum(-1), 1, atol=1e-9)
        assert (models >= 0).all()


@pytest.mark.parametrize("region", [ball(4), box(-np.ones(4), np.full(4, 0.3)), simplex(4, 2.0, 0.1), anywhere(4)])
def test_many_projections_are_one_by_one(region):
    points, out = np.random.default_rng(1).normal(size=(50, 4)) * 2, np.empty(4)
    for point, found in zip(points, projected(points, region)):
        project(out, point, region)
        np.testing.assert_allclose(found, out, atol=1e-12)


# --- meters -----------------------------------------------------------------------------------------------------------


def test_regret_in_results_is_that_of_the_recorded_losses():
    problem = replace(SMALL, drift=0.5)
    federation = Federation(problem, MirrorDescent(), UNBALANCED, rounds=60, every=20, engine="plain")
    result, (instance, models) = federation.run(), played(federation)
    marks, (features, _) = [20, 40, 60], instance.task.oracle.past(0, 60)
    losses = DistanceLosses(features)
    static = regret.static_regret(
        regret.own_losses(losses, models), regret.static_comparator(losses, ball(3), marks), marks
    )
    np.testing.assert_allclose([v for _, v in result.curve("regret.static")], static / 5, atol=1e-9)
    path = instance.task.oracle.centres
    smooth = DistanceLosses(path[:, None])
    dynamic = regret.dynamic_regret(regret.network_losses(smooth, models), smooth, path, marks)
    np.testing.assert_allclose([v for _, v in result.curve("regret.dynamic")], dynamic, atol=1e-9)
    np.testing.assert_allclose([v for _, v in result.curve("path")], regret.path_length(path, marks), atol=1e-9)
    fixed = dynamic + [smooth.values(path)[:m].sum() - smooth.total(0, m).value(path[:m].mean(0)) for m in marks]
    np.testing.assert_allclose([v for _, v in result.curve("regret.network")], fixed, atol=1e-9)


def test_regret_of_logistic_losses_with_a_ridge():
    federation = Federation(
        GrowingMean(), MirrorDescent(region="simplex", map="entropy"), Digraph("complete"), rounds=30
    )
    result, (instance, models) = federation.with_(engine="plain", every=30).run(), played(federation)
    losses = LogisticLosses(*instance.task.oracle.past(0, 30), 0.1)
    total = losses.total(0, 30)
    expected = (losses.values(models).sum() - total.value(best(total, simplex(5)))) / 3
    assert result.final("regret.static") == pytest.approx(expected, abs=1e-8)


def test_budgets_that_come_in_turn_are_the_benchmarks_of_4_6():
    """Against the windows of `theory.regret`: K = 1 keeps to the poorest round, K = 3 to the mean."""
    budgets, weights, rounds = np.array([0.3, -0.1, 0.1]), np.array([1.0, 0.5, 0.0]), 12
    assert window_budget(budgets, 10**18) == pytest.approx(0.1)
    for length in (1, 2, 3, 4):
        slopes = np.tile(weights, (rounds, 1, 1))
        allowed = regret.windows(slopes, np.resize(budgets, rounds)[:, None], length)
        ours = window_budget(budgets, length)
        assert min(allowed.budgets / (allowed.slopes[:, 0])) == pytest.approx(ours)
    algorithm = SaddleMirrorDescent(constraint=Budget("linear", (1.0, 0.5, 0.0), (0.3, -0.1, 0.1), window=2))
    federation = Federation(SMALL, algorithm, UNBALANCED, rounds=rounds, every=rounds, engine="plain")
    result, (instance, models) = federation.run(), played(federation)
    losses = DistanceLosses(instance.task.oracle.past(0, rounds)[0])
    limits = slopes, np.resize(budgets, rounds)[:, None]
    comparator = regret.k_benchmark_comparator(losses, ball(3), [rounds], limits, 2)
    expected = regret.static_regret(regret.own_losses(losses, models), comparator, [rounds])[0] / 5
    assert result.final("regret.budget") == pytest.approx(expected, abs=1e-5)
    used = models @ weights - np.resize(budgets, rounds)[:, None]
    assert result.final("violation") == pytest.approx(regret.average_violation(used, [rounds])[0])


def test_regret_is_silent_about_rounds_that_broken_clients_did_not_play():
    failing = Environment(failure=Failure(share=0.4, start=10))
    federation = Federation(SMALL, MirrorDescent(), Digraph("complete"), failing, rounds=40, every=20, engine="plain")
    assert "regret.static" not in federation.run().metrics()


def test_what_plain_mirror_descent_measures_of_a_private_cost():
    """features @ model - budget, of every sample: as the others do, without steering by it."""
    algorithm = MirrorDescent(constraint=Budget("sample", budget=-5.0))
    federation = Federation(replace(SMALL, loss="linear"), algorithm, UNBALANCED, rounds=20, every=20, engine="plain")
    result, (instance, models) = federation.run(), played(federation)
    used = np.sum(instance.task.oracle.past(0, 20)[0] * models, -1) + 5.0
    assert result.final("violation") == pytest.approx(used.mean())


@pytest.mark.parametrize("kind", [SaddleMirrorDescent, LagrangianDescent])
def test_a_budget_that_binds_is_kept_in_the_end(kind):
    free, kept = (
        Federation(SMALL, algorithm, UNBALANCED, rounds=400, every=400, engine="plain").run()
        for algorithm in (
            MirrorDescent(constraint=Budget("energy", 1.0, 0.1)),
            kind(constraint=Budget("energy", 1.0, 0.1)),
        )
    )
    assert free.final("violation") > 0.15 and kept.final("violation") < 0.5 * free.final("violation")
    assert "regret.budget" in kept.metrics()


def test_the_saddle_point_written_out():
    """Chapter 3's multiplier, with a leak and a step that fit what was seen, on a complete graph: all are alike."""
    problem, budget = replace(SMALL, lean=0.0, noise=0.0), -0.3
    cost = np.round(problem.path(1, 1)[0], 3)  # what is best uses most
    algorithm = SaddleMirrorDescent(radius=3.0, constraint=Budget("linear", tuple(cost), budget))
    instance, models = played(Federation(problem, algorithm, Digraph("complete"), rounds=40))
    point, settings = instance.task.oracle.past(0, 1)[0][0, 0], instance.plan.settings.learn.steps
    model, multiplier, swings = np.zeros(3), 0.0, (3 * np.linalg.norm(cost) + 0.3) ** 2
    for n in range(40):
        np.testing.assert_allclose(models[n], np.tile(model, (5, 1)), atol=1e-10)
        step, used = settings.width / settings.length / np.sqrt(n + 1), cost @ model - budget
        moved = projected((model - step * (model - point + multiplier * cost))[None], ball(3, 3.0))[0]
        swings += used**2
        multiplier = max(0.0, multiplier + (used - step * cost @ cost * multiplier) / np.sqrt(swings))
        model = moved
    assert multiplier > 0.1


@pytest.mark.parametrize("radius", [1.0, 5.0])
def test_a_region_far_larger_than_the_budget_does_not_delay_the_multiplier(radius):
    algorithm = SaddleMirrorDescent(radius=radius, gradient=2.0, constraint=Budget("energy", 1.0, 0.05))
    federation = Federation(SMALL, algorithm, UNBALANCED, rounds=1000, every=100, engine="plain")
    violation = dict(federation.run().curve("violation"))
    assert max(violation[1000], 0) < 10**-0.2 * violation[100]


def test_the_report_shows_regret_and_both_levels(tmp_path):
    federation = Federation(SMALL, MirrorDescent(), UNBALANCED, privacy=LAPLACE, rounds=40, every=10, engine="plain")
    federation.run().save(tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert all(name in text for name in ("regret.static", "regret.dynamic", "epsilon.event", "epsilon.client"))
    levels = json.loads((tmp_path / "ledger.json").read_text())["seeds"][0]["levels"]
    assert levels["event"]["epsilon"] == pytest.approx(1.0) and 1 < levels["client"]["epsilon"] <= 40


# --- privacy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("unit", ["sample", "client"])
def test_both_levels_by_hand(mechanism, unit):
    """A sample pays for one release, a client for all of them; noise is calibrated to 2 C."""
    privacy = Privacy(mechanism=mechanism, noise=6.0, clip=1.5, unit=unit)
    instance, _ = played(Federation(SMALL, MirrorDescent(), UNBALANCED, privacy=privacy, rounds=25))
    event, client = instance.plan.accountant.levels(instance.plan.tables).values()
    one = (2 * 1.5 / 6.0) ** 2 / 2
    np.testing.assert_allclose(event.rho, one)
    np.testing.assert_allclose(client.rho, 25 * one)
    if mechanism == "laplace":
        np.testing.assert_allclose(event.epsilon, 0.5)
    assert (
        instance.plan.accountant.paid(instance.plan.tables).rho == (event if unit == "sample" else client).rho
    ).all()
    outlook = instance.plan.accountant.outlook()["levels"]
    assert outlook["event"]["rho"] == pytest.approx(one) and outlook["client"]["rho"] == pytest.approx(25 * one)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.01), (0.001, 1e-5), (3.0, 1e-5)])
def test_one_laplace_release_is_calibrated_as_it_is_priced(epsilon, delta):
    privacy = Privacy(mechanism="laplace", epsilon=epsilon, delta=delta, clip=1.0)
    instance = Federation(SMALL, MirrorDescent(), UNBALANCED, privacy=privacy, rounds=5).instance()
    assert instance.plan.accountant.outlook()["worst"]["epsilon"] == pytest.approx(epsilon, rel=1e-6)
    assert instance.plan.accountant.outlook()["worst"]["epsilon"] <= epsilon


def test_the_twin_of_an_audit_keeps_a_budget_that_can_be_kept():
    algorithm = SaddleMirrorDescent(
        region="simplex", map="entropy", constraint=Budget("packets", (0.0, 1.0, 1.0, 1.0, 1.0), 0.2)
    )
    twin = algorithm.for_size(4)
    twin.constraint.check(twin.mapped(4))


@pytest.mark.parametrize("kind", [MirrorDescent, DualAveraging])
def test_who_has_spent_its_budget_learns_nothing_more_from_its_data(kind):
    """Then its stream may be anything, and the models are the same; it is not charged either."""

    def table(noise, spread):
        privacy = Privacy(epsilon=3.0, noise=noise, clip=1.0, unit="client")
        federation = Federation(replace(SMALL, noise=spread), kind(), UNBALANCED, privacy=privacy, rounds=3)
        return played(federation)[0].plan.tables["peer"]

    assert not np.allclose(table(20.0, 0.3).model, table(20.0, 0.9).model)
    first, second = (table(1e-3, spread) for spread in (0.3, 0.9))  # too little noise: not even one release is covered
    assert (
        np.array_equal(first.model, second.model)
        and (first.protect.releases == 0).all()
        and (first.protect.spent == 0).all()
    )


@pytest.mark.parametrize("enforce", [True, False])
def test_a_private_cost_is_noised_even_where_no_bound_is_enforced(enforce):
    privacy = Privacy(mechanism="laplace", epsilon=1.0, clip=1.0, enforce=enforce)
    algorithm = SaddleMirrorDescent(constraint=Budget("sample", budget=0.1))
    instance, _ = played(Federation(replace(SMALL, loss="linear"), algorithm, UNBALANCED, privacy=privacy, rounds=1))
    noise = instance.plan.tables["peer"].learn.pressed.slope - instance.task.oracle.past(0, 1)[0][0]
    assert np.abs(noise).mean() > 1  # of scale 6
    assert any("cost is clipped" in held.what for held in instance.plan.accountant.terms.assumptions)


def test_a_private_cost_never_reaches_multiplier_or_model_without_noise():
    """A cost that is in the sample: with the noise the same, two samples differ by what is clipped, and no more."""
    algorithm = SaddleMirrorDescent(constraint=Budget("sample", budget=-1000.0, clip=0.5, reach=0.4))
    privacy = Privacy(mechanism="laplace", noise=1e-9, clip=1.0, enforce=True)
    far = replace(SMALL, loss="linear", noise=1000.0)
    instance, _ = played(Federation(far, algorithm, UNBALANCED, privacy=privacy, rounds=1))
    table = instance.plan.tables["peer"]
    assert np.abs(table.learn.pressed.slope).sum(1) == pytest.approx(np.full(5, 0.5), rel=1e-6)
    np.testing.assert_allclose(table.learn.pressed.multiplier, np.sqrt(0.5), rtol=1e-6)  # 0.4 / sqrt(0.4^2 + 0.4^2)


AUDITED = {
    "mirror descent": (replace(SMALL, loss="linear"), MirrorDescent(), Digraph()),
    "dual averaging": (replace(SMALL, loss="linear"), DualAveraging(), Digraph()),
    "a private cost": (replace(SMALL, loss="linear"), LagrangianDescent(constraint=Budget("sample")), Digraph()),
    "DP-FedAvg": (replace(SMALL, loss="squared"), DpFedAvg(), Star()),
}


def test_the_audit_finds_most_of_what_the_ledger_says():
    described = Federation(*AUDITED["mirror descent"], privacy=replace(LAPLACE, epsilon=2.0), rounds=50)
    worst, typical = examine(described, releases=1000, rounds=1, engine="plain")
    assert 1.0 < worst.found <= worst.claimed == pytest.approx(2.0, rel=1e-6) and not typical.refuted
    assert worst.guarantee == "enforced"


@pytest.mark.long
@pytest.mark.parametrize("unit", ["sample", "client"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", AUDITED)
def test_the_audit_finds_no_more_than_the_ledger_says(name, mechanism, unit):
    privacy = Privacy(mechanism=mechanism, epsilon=2.0, clip=1.0, unit=unit)
    for verdict in examine(Federation(*AUDITED[name], privacy=privacy, rounds=50), releases=100_000, rounds=3):
        print(name, mechanism, unit, verdict)
        assert verdict.found <= verdict.claimed <= 2.0 * (1 + 1e-6) and verdict.guarantee == "enforced"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "topology", "privacy", "what"),
    [
        (lambda: MirrorDescent(region="cube"), UNBALANCED, None, "algorithm.region"),
        (lambda: MirrorDescent(map="entropy"), UNBALANCED, None, "simplex"),
        (lambda: MirrorDescent(region="anywhere"), UNBALANCED, None, "step of your own"),
        (lambda: MirrorDescent(step=-1.0), UNBALANCED, None, "algorithm.step"),
        (lambda: MirrorDescent(region="box", low=(0.0, 0.0)), UNBALANCED, None, "algorithm.low"),
        (lambda: MirrorDescent(), replace(UNBALANCED, sums_to_one="receiver"), None, "sender"),
        (lambda: MirrorDescent(), UNBALANCED, Privacy(epsilon=1.0), "privacy.clip"),
        (lambda: MirrorDescent(), UNBALANCED, replace(LAPLACE, relation="add-remove"), "replace-one"),
        (lambda: SaddleMirrorDescent(constraint=None), UNBALANCED, None, "algorithm.constraint"),
        (
            lambda: SaddleMirrorDescent(constraint=Budget("linear", 1.0, -5.0)),
            UNBALANCED,
            None,
            "no point of the region",
        ),
        (lambda: LagrangianDescent(constraint=Budget("energy", 1.0, -0.1)), UNBALANCED, None, "no point of the region"),
        (lambda: LagrangianDescent(constraint=Budget("energy", (1.0, 1.0), 0.1)), UNBALANCED, None, "constraint.cost"),
        (lambda: LagrangianDescent(constraint=Budget("fuel")), UNBALANCED, None, "constraint.kind"),
        (lambda: SaddleMirrorDescent(region="anywhere", step=0.1), UNBALANCED, None, "a bounded one"),
        (lambda: PublishedMirrorDescent(algorithm=4), UNBALANCED, None, "algorithm.algorithm"),
        (lambda: PublishedMirrorDescent(start="printed"), UNBALANCED, None, "algorithm.start"),
        (lambda: PublishedMirrorDescent(), UNBALANCED, LAPLACE, "privacy"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(algorithm, topology, privacy, what):
    with pytest.raises(BadInput, match=what):
        Federation(SMALL, algorithm(), topology, privacy=privacy).instance()


@pytest.mark.parametrize("kind", [MirrorDescent, DualAveraging, PublishedMirrorDescent, DpFedAvg])
@pytest.mark.parametrize("learn", [OnlineStep(0.05), Replay(0.05)])
def test_learn_parts_without_a_region_are_refused(kind, learn):
    share = {"share": Whole()} if kind is DpFedAvg else {}
    with pytest.raises(BadInput, match="whose regret this kind measures"):
        Federation(Drifting(clients=4, size=3), kind(learn=learn, **share), Star(), rounds=3).run()


def test_regret_is_measured_in_the_region_of_the_learn_part():
    """A mirror step that is given as a part is the kind with its keys, meters and all."""
    described = Federation(Drifting(clients=4, size=3), MirrorDescent(radius=0.3, step=0.5), Star(), rounds=30)
    by_part = described.with_(algorithm=MirrorDescent(learn=MirrorStep(radius=0.3, step=0.5)))
    one, two = (federation.with_(engine="plain", every=30).run() for federation in (described, by_part))
    for metric in ("regret.static", "regret.network"):
        assert two.final(metric) == pytest.approx(one.final(metric), rel=1e-12)


def test_graphs_that_cannot_work_are_refused(tmp_path):
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target,weight\n0,1,0.5\n0,0,0.4\n1,0,0.5\n1,1,0.5\n")
    with pytest.raises(BadInput, match="sum to one"):
        Federation(replace(SMALL, clients=2), MirrorDescent(), Digraph(edges=str(edges))).instance()
    edges.write_text("source,target,weight\n0,1,0.5\n0,0,0.5\n1,1,1\n")
    with pytest.raises(BadInput, match="everyone reaches everyone"):
        Federation(replace(SMALL, clients=2), MirrorDescent(), Digraph(edges=str(edges))).instance()


def test_published_says_its_true_epsilon():
    setup = Federation(GrowingMean(), PublishedMirrorDescent(algorithm=1), Digraph("complete")).setup()
    assert PublishedMirrorDescent(algorithm=1).check(setup)["true_epsilon"] == pytest.approx(0.1 * 2 * 5**0.5)
    assert PublishedMirrorDescent().check(setup)["true_epsilon"] == np.inf


@pytest.mark.long
def test_what_is_published_keeps_what_every_algorithm_promises():
    graph = Digraph("complete", sums_to_one="receiver")
    check_algorithm(Federation(GrowingMean(), PublishedMirrorDescent(), graph, rounds=40))


def test_linear_losses_agree_with_the_record():
    """Sums of recorded losses are those of `theory.comparators`."""
    features = np.random.default_rng(1).normal(size=(7, 4, 3))
    record = Record(lambda a, b: (features[a:b], np.zeros((b - a, 4))), ONLINE_LOSSES["linear"], 0.0, 4, 3)
    x = np.array([0.2, -0.1, 0.5])
    assert record.until(3).value(x) == pytest.approx(LinearLosses(features).total(0, 3).value(x))
    assert record.until(7).value(x) == pytest.approx(LinearLosses(features).total(0, 7).value(x))
