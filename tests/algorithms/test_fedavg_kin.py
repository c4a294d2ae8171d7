"""FedProx, SCAFFOLD, FedAvgM, FedAdam and FedBuff, each against what is known of it."""

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest

from archipel import Delay, Environment, Federation, Linear
from archipel.algorithms.fedavg import FedAdam, FedAvg, FedAvgM, FedBuff, FedProx, Scaffold
from archipel.draws import SELECTED, key_of, uniform
from archipel.environment import available, chance_of_loss, delay
from archipel.errors import BadInput
from archipel.node import Moment
from archipel.parts.learn.epochs import Epochs
from archipel.parts.learn.online import OnlineStep
from archipel.parts.mix.buffered import Buffered
from archipel.parts.mix.mean import Mean
from archipel.parts.mix.optimiser import Momentum
from archipel.parts.mix.push_sum import PushSum
from archipel.parts.mix.robust import Median, TrimmedMean
from archipel.parts.share.portions import Portions
from archipel.parts.share.signs import Signs
from archipel.parts.share.whole import Whole
from archipel.privacy.policy import Privacy
from archipel.problems.clustered import Related
from archipel.problems.measured import UNCHANGED, measured_task
from archipel.problems.splits.shards import Shards, TrainTest, numbered, one
from archipel.problems.task import Problem
from archipel.registry import ALGORITHMS, kind_of
from archipel.testing import check_algorithm
from archipel.topology import Digraph, Peers, Servers, Star

CURVES = np.array([0.2, 0.5, 1.0, 1.6])
CENTRES = np.array([1.0, -2.0, 0.5, 3.0])
BEST = (CURVES * CENTRES).sum() / CURVES.sum()


@dataclass(frozen=True)
class Quadratics(Problem):
    """f_k(w) = a_k (w - b_k)^2 / 2: a client has one sample, x = sqrt(a / 2), y = x b."""

    spread: float = 1.0
    curves: tuple[float, ...] = tuple(CURVES)
    clients: int = 4

    def task(self, seed, rounds, dtype, data_kind):
        x = np.sqrt(np.array(self.curves) / 2)
        shards = Shards(x[:, None], x * CENTRES * self.spread, np.arange(5), numbered(4))
        data = TrainTest(shards, one(np.ones((1, 1)), np.zeros(1)), UNCHANGED, UNCHANGED)
        return measured_task(data, 0, 1.0, "squared", seed, rounds, dtype, data_kind)


def server_of(algorithm, problem=None, rounds=400, **parts):
    described = Federation(problem or Quadratics(), algorithm, rounds=rounds, every=rounds, engine="plain", **parts)
    return described.run().models[0]["server"]


def test_the_fixed_point_of_fedprox_in_closed_form():
    """K steps on f_k + mu/2 (w - w_t)^2 move w by g_k a_k (b_k - w), g = (1 - (1 - eta (a + mu))^K) / (a + mu)."""
    eta, steps = 0.3, 7
    for mu in (0.0, 0.1, 2.0):
        pull = (1 - (1 - eta * (CURVES + mu)) ** steps) / (CURVES + mu) * CURVES
        expected = (pull * CENTRES).sum() / pull.sum()
        found = server_of(FedProx(step=eta, epochs=steps, proximal=mu))
        assert found == pytest.approx([expected], abs=1e-9)
    gap = [abs(server_of(FedProx(step=eta, epochs=steps, proximal=mu))[0] - BEST) for mu in (0.0, 0.5, 2.0)]
    assert gap[0] > gap[1] > gap[2]  # a stronger pull, a smaller bias


def test_scaffold_does_not_care_how_clients_differ():
    """FedAvg's fixed point is off by its closed form, in proportion to the spread; SCAFFOLD's is the optimum."""
    eta, steps = 0.3, 7
    moved = 1 - (1 - eta * CURVES) ** steps
    for spread in (0.0, 1.0, 100.0):
        problem = Quadratics(spread)
        bias = spread * ((moved * CENTRES).sum() / moved.sum() - BEST)
        assert server_of(FedAvg(step=eta, epochs=steps), problem)[0] - spread * BEST == pytest.approx(bias, abs=1e-9)
        assert server_of(Scaffold(step=eta, epochs=steps), problem)[0] == pytest.approx(spread * BEST, abs=1e-8)


def test_scaffold_on_equal_curvatures_contracts_at_gradient_descent_s_rate():
    """With equal a every round contracts by (1 - eta a)^K, whatever the centres are: K steps of descent on the mean."""
    eta, steps, rounds = 0.1, 5, 6
    for spread in (0.0, 1.0, 100.0):
        found = server_of(Scaffold(step=eta, epochs=steps), Quadratics(spread, (0.8,) * 4), rounds=rounds)
        middle = spread * CENTRES.mean()
        assert found[0] - middle == pytest.approx((1 - eta * 0.8) ** (steps * rounds) * -middle, abs=1e-10)


def test_scaffold_is_algorithm_1_written_again():
    eta, steps, rounds, eta_g, chance = 0.2, 3, 15, 0.7, 0.6
    described = Federation(
        Quadratics(), Scaffold(step=eta, epochs=steps, server_step=eta_g, asked=chance), rounds=rounds, engine="plain"
    )
    x, c, own = 0.0, 0.0, np.zeros(4)
    for n in range(rounds):
        chosen = [k for k in range(4) if uniform(key_of(1, k, n), SELECTED) < chance]
        moves, shifts = [], []
        for k in chosen:
            y = x
            for _ in range(steps):
                y -= eta * (CURVES[k] * (y - CENTRES[k]) - own[k] + c)
            new = own[k] - c + (x - y) / (steps * eta)
            moves.append(y - x)
            shifts.append(new - own[k])
            own[k] = new
        if chosen:
            x += eta_g * np.mean(moves)
            c += np.sum(shifts) / 4
    assert len(chosen) > 0
    assert described.run().models[0]["server"][0] == pytest.approx(x, abs=1e-12)


@pytest.mark.parametrize("environment", [Environment(), Environment(availability=0.7, delay=Delay(delta=0.3, limit=2))])
def test_scaffold_among_peers_finds_the_optimum_too(environment):
    """Tracking is exact also if some are away and words are late: what is not heard stays with its sender."""
    described = Federation(
        Quadratics(10.0), Scaffold(step=0.1, epochs=3, limit=2), Peers(shape="ring"), environment, rounds=1500,
        every=1500, engine="plain",
    )  # fmt: skip
    instance = described.instance()
    described.engine_of(instance).advance(0, 1500)
    table = instance.plan.tables["peer"]
    tolerance = 1e-8 if environment == Environment() else 1e-3
    np.testing.assert_allclose(table.model[:, 0], 10 * BEST, atol=tolerance)
    if environment == Environment():
        assert abs(table.learn.control.sum()) < 1e-8
        plain = described.with_(algorithm=FedAvg(step=0.1, epochs=3)).run().models[0]["clients"]
        assert abs(plain.mean() - 10 * BEST) > 0.1


def test_scaffold_at_a_server_takes_late_words_and_refuses_lost_ones():
    """A word that counts late leaves c the mean of all c_k in the end; one that never does moves the fixed point."""
    late = Environment(availability=0.8, delay=Delay("fixed", rounds=2, limit=3))
    found = server_of(Scaffold(step=0.1, epochs=2, limit=2), rounds=1500, environment=late)
    assert found == pytest.approx([BEST], abs=1e-8)
    for limit, law in ((1, Delay("fixed", rounds=2, limit=3)), (3, Delay(delta=0.5, limit=3))):
        with pytest.raises(BadInput, match="would never count"):
            server_of(Scaffold(limit=limit), rounds=2, environment=Environment(delay=law))
    server_of(Scaffold(limit=10), rounds=2, environment=Environment(delay=Delay(delta=0.2, limit=10)))


def test_how_likely_words_never_count_in_a_recorded_schedule(tmp_path):
    plan = np.array([[0, -2, 1, 4], [-1, 0, -3, 2]], np.int16)  # one is lost, one too late, of six that are sent
    np.savez(tmp_path / "plan.npz", schedule=plan)
    recorded = Environment(replay=str(tmp_path / "plan.npz"))
    assert chance_of_loss(recorded.conditions(4, 1), 2) == pytest.approx(2 / 6)
    with pytest.raises(BadInput, match=r"environment\.replay"):
        Federation(Linear(4, 2, 5), Scaffold(limit=2), environment=recorded, rounds=2).instance()


# --- optimisers -----------------------------------------------------------------------------------------------------


def changes(eta, steps, w):
    """What clients would change, on average: all have one sample."""
    return ((1 - (1 - eta * CURVES) ** steps) * (CENTRES - w)).mean()


def test_fedavgm_is_momentum_written_by_hand():
    w, v = 0.0, 0.0
    for _ in range(30):
        v = 0.8 * v + changes(0.2, 3, w)
        w += 0.5 * v
    found = server_of(FedAvgM(step=0.2, epochs=3, momentum=0.8, server_step=0.5), rounds=30)
    assert found == pytest.approx([w], abs=1e-12)


def test_fedadam_is_adam_written_by_hand():
    w, m, v = 0.0, 0.0, 1e-2**2
    for _ in range(30):
        change = changes(0.2, 3, w)
        m = 0.9 * m + 0.1 * change
        v = 0.95 * v + 0.05 * change**2
        w += 0.3 * m / (math.sqrt(v) + 1e-2)
    found = server_of(FedAdam(step=0.2, epochs=3, server_step=0.3, second=0.95, floor=1e-2), rounds=30)
    assert found == pytest.approx([w], abs=1e-12)


def test_an_optimiser_waits_while_nobody_is_heard():
    """Everyone is away in every third round: the server's model, its momentum and its moments stay as they are."""
    third = Environment(availability=[[1.0], [0.0], [1.0]])
    w, v, adam, m, s = 0.0, 0.0, 0.0, 0.0, 1e-2**2
    for n in range(20):
        if n % 3 != 1:
            v = 0.8 * v + changes(0.2, 3, w)
            w += 0.5 * v
            change = changes(0.2, 3, adam)
            m, s = 0.9 * m + 0.1 * change, 0.99 * s + 0.01 * change**2
            adam += 0.3 * m / (math.sqrt(s) + 1e-2)
    by_momentum = FedAvgM(step=0.2, epochs=3, momentum=0.8, server_step=0.5)
    by_adam = FedAdam(step=0.2, epochs=3, server_step=0.3, floor=1e-2)
    assert server_of(by_momentum, rounds=20, environment=third) == pytest.approx([w], abs=1e-12)
    assert server_of(by_adam, rounds=20, environment=third) == pytest.approx([adam], abs=1e-12)


def test_an_optimiser_goes_on_when_the_mean_change_is_zero():
    """Between 0.5 and 1 two clients say up and two say down: momentum fades, and moves the server until it has."""
    w, v, still = 0.0, 0.0, 0
    for _ in range(20):
        change = 0.1 * np.sign(CENTRES - w).mean()
        still += change == 0 and abs(v) > 1e-6
        v = 0.6 * v + change
        w += v
    assert still > 5
    signs = FedAvgM(step=1e-3, share=Signs(0.1), mix=Momentum(momentum=0.6, over=Mean(0)))
    assert server_of(signs, rounds=20) == pytest.approx([w], abs=1e-12)


def test_an_optimiser_waits_while_a_buffer_fills():
    w, v, changed = 0.0, 0.0, 0.0
    for n in range(20):
        changed += changes(0.2, 1, w)
        if n % 2:  # four changes a round, and the buffer takes eight
            v = 0.8 * v + changed / 2
            w, changed = w + v, 0.0
    buffered = Momentum(momentum=0.8, over=Buffered(size=8, limit=0))
    assert server_of(FedAvgM(step=0.2, share=Whole(True), mix=buffered), rounds=20) == pytest.approx([w], abs=1e-12)


@pytest.mark.parametrize("over", [Median(), TrimmedMean(share=0.3), Mean(0)])
def test_no_momentum_over_a_mix_is_that_mix_among_servers_too(over):
    described = Federation(
        Linear(clients=8, size=3, samples=9), FedAvg(mix=over), Servers(servers=3, shape="ring"), rounds=8,
        engine="plain",
    )  # fmt: skip
    still = described.with_(algorithm=FedAvg(mix=Momentum(momentum=0.0, over=over)))
    one, two = described.run().models[0], still.run().models[0]
    np.testing.assert_allclose(two["servers"], one["servers"], atol=1e-13)


def test_no_momentum_and_a_whole_step_are_fedavg():
    plain = server_of(FedAvg(step=0.2, epochs=3), rounds=20)
    assert server_of(FedAvgM(step=0.2, epochs=3, momentum=0.0), rounds=20) == pytest.approx(plain, abs=1e-13)
    over = FedAvg(step=0.2, epochs=3, mix=Momentum(momentum=0.0, over=Mean()))
    assert server_of(over, rounds=20) == pytest.approx(plain, abs=1e-13)


def test_momentum_among_peers_is_slowmo_written_by_hand():
    described = Federation(
        Quadratics(), FedAvgM(step=0.1, momentum=0.5), Peers(shape="ring"), rounds=25, engine="plain"
    )
    w, v, mixing = np.zeros(4), np.zeros(4), np.zeros((4, 4))
    for k in range(4):  # a ring of four: Metropolis weights of 1/3
        mixing[k, [k, (k + 1) % 4, (k - 1) % 4]] = 1 / 3
    for _ in range(25):
        v = 0.5 * v + mixing @ (w - 0.1 * CURVES * (w - CENTRES)) - w
        w = w + v
    np.testing.assert_allclose(described.run().models[0]["clients"][:, 0], w, atol=1e-12)


# --- FedBuff --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 7])
def test_fedbuff_is_the_paper_s_rule_by_a_slow_loop(size):
    """Changes with their staleness, counted in moves of the server since the client's download, arrive one by one."""
    rough = Environment(availability=0.6, delay=Delay(delta=0.6, limit=4))
    algorithm = FedBuff(step=0.1, epochs=2, buffer=size, server_step=0.8, limit=4)
    described = Federation(Quadratics(), algorithm, environment=rough, rounds=60, engine="plain")
    conditions = described.instance().conditions
    w, moves, flying, buffer, stale = 0.0, 0, [], [], []
    for n in range(60):
        for k in range(4):
            moment = Moment(k, n, key_of(1, k, n), -1, 1, True, 1.0)
            late = delay(conditions, moment) if available(conditions, moment) else -1
            if 0 <= late <= 4:
                flying.append((n + late, moves, (1 - (1 - 0.1 * CURVES[k]) ** 2) * (CENTRES[k] - w)))
        for _, then, change in (word for word in flying if word[0] == n):
            stale.append(moves - then)
            buffer.append(change / math.sqrt(1 + moves - then))
        if len(buffer) >= size:
            w += 0.8 * sum(buffer) / len(buffer)
            buffer, moves = [], moves + 1
    assert max(stale) > (1 if size < 7 else 0)
    assert described.run().models[0]["server"] == pytest.approx([w], abs=1e-12)


# --- pairs, privacy, lateness ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        (Scaffold(mix=Mean()), "parts that read the control"),
        (Scaffold(learn=Epochs()), "one that keeps the control"),
        (FedBuff(share=Whole()), "one that says changes"),
        (FedAvg(mix=Momentum(over=PushSum())), "undo the mass"),
        (FedAvg(mix=Momentum(over=PushSum()), share=Portions(1)), "undo the mass"),
    ],
)
def test_parts_that_come_in_pairs_say_so(algorithm, sentence):
    with pytest.raises(BadInput, match=sentence):
        Federation(Quadratics(), algorithm, Peers() if "mass" in sentence else Star(), rounds=2).run()


@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold(), FedBuff(buffer=2), FedAdam()])
def test_a_whole_round_is_one_release(algorithm):
    """Privacy at the word: with 5 rounds a client pays 5 times, and what it says is bounded."""
    privacy = Privacy(noise=3.0, clip=0.5, unit="client")
    result = Federation(Quadratics(), algorithm, privacy=privacy, rounds=5, engine="plain").run()
    rho = 5 * (2 * 0.5) ** 2 / (2 * 3.0**2)
    assert [node["spent"]["rho"] for node in result.ledgers[0]["nodes"]] == pytest.approx([rho] * 4)


def test_with_a_learn_part_that_keeps_nothing_of_before_nothing_is_told_of():
    """Clients' models are then judged by themselves; what was told had no numbers in it."""
    related = Related(clients=4, tasks=2, size=3, samples=(4, 4), test=6)
    result = Federation(related, FedProx(learn=OnlineStep(0.05), mix=Mean(0)), rounds=3, engine="plain").run()
    assert "told" not in result.models[0]
    assert "told" in Federation(related, FedProx(), rounds=3, engine="plain").run().models[0]


def test_that_late_messages_do_not_count_is_said_before_the_run():
    late = Environment(delay=Delay(delta=0.5, limit=3))
    with pytest.warns(UserWarning, match="counts none that is"):
        Federation(Quadratics(), FedAvg(), environment=late, rounds=2, engine="plain").run()
    on_time = Federation(Quadratics(), FedAvg(), rounds=20, engine="plain")
    for algorithm in (FedAvg(limit=3), FedBuff()):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            on_time.with_(algorithm=algorithm, environment=late).run()
            on_time.run()


KINDS = ["fedavg", "fedprox", "scaffold", "fedavgm", "fedadam", "fedbuff", "sign-sgd"]
TOPOLOGIES = [Star(), Servers(servers=3, shape="ring"), Peers(shape="ring"), Digraph()]
ROUGH = Environment(availability=(0.6, 0.9, 1.0), stride=2, delay=Delay(delta=0.5, limit=3))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=kind_of)
@pytest.mark.parametrize("privacy", [None, Privacy(noise=0.1, clip=0.5, unit="client")], ids=["open", "private"])
def test_engines_agree(kind, topology, privacy):
    algorithm = ALGORITHMS[kind](**({"limit": 3} if kind != "sign-sgd" else {}))
    problem = Linear(clients=9, size=5, samples=12, loss="logistic")
    if kind_of(topology) in algorithm.refuses:
        with pytest.raises(BadInput, match=algorithm.refuses[kind_of(topology)]):
            Federation(problem, algorithm, topology, rounds=2)
        return
    rough = replace(ROUGH, delay=Delay("fixed", rounds=2)) if kind == "scaffold" else ROUGH  # it loses none
    check_algorithm(Federation(problem, algorithm, topology, rough, privacy, rounds=8), parallel=True)
