"""The conditions: laws of availability and delay, failures, and schedules that are recorded and played again."""

from datetime import date

import numpy as np
import pytest

from archipel import Delay, Environment, Federation, PaoFed, Synthetic
from archipel.draws import key_of
from archipel.environment import ABSENT, BROKEN, LOST, Failure, available, delay, schedule, works
from archipel.errors import BadInput
from archipel.node import Moment

STREAM = Synthetic(clients=8, features=10, test=5, horizon=40, samples=(40,))


def moments(count, node=0):
    return [Moment(node, n, key_of(5, node, n), -1, 1, True, 1.0) for n in range(count)]


def delays(law, count=20_000):
    conditions = Environment(delay=law).conditions(1, 1)
    return np.array([delay(conditions, moment) for moment in moments(count)])


def test_geometric_delays():
    late = delays(Delay(delta=0.4, limit=3))
    for age in range(4):
        chance = 0.4**age
        assert abs(np.mean((late >= age) | (late == LOST)) - chance) < 4 * np.sqrt(chance / 20_000)
    assert set(np.unique(late)) == {LOST, 0, 1, 2, 3}


def test_the_article_s_stepped_delays():
    late = delays(Delay(kind="stepped", delta=0.4, limit=60))
    assert set(np.unique(late)) <= {LOST, *range(0, 61, 10)}
    for i in range(4):
        chance = 0.4**i
        assert abs(np.mean((late >= 10 * i) | (late == LOST)) - chance) < 4 * np.sqrt(chance / 20_000)


def test_fixed_delays_and_delays_from_a_file(tmp_path):
    assert set(delays(Delay(kind="fixed", rounds=2, limit=5), 50)) == {2}
    file = tmp_path / "law.csv"
    file.write_text("delay,probability\n0,0.5\n4,0.5\n")
    late = delays(Delay(kind="file", file=str(file), limit=6))
    assert set(np.unique(late)) == {0, 4}
    assert abs(np.mean(late == 4) - 0.5) < 0.02


def test_availability_per_group_and_changing_with_time():
    conditions = Environment(availability=((0.0, 1.0), (1.0, 0.0)), stride=2, phase=10).conditions(4, 1)
    seen = [
        [available(conditions, Moment(k, n, key_of(1, k, n), -1, 1, True, 1.0)) for k in range(4)] for n in range(20)
    ]
    assert all(row == [False, False, True, True] for row in seen[:10])
    assert all(row == [True, True, False, False] for row in seen[10:])
    conditions = Environment(availability=0.3).conditions(1, 1)
    assert abs(np.mean([available(conditions, m) for m in moments(20_000)]) - 0.3) < 0.015


def test_clients_that_malfunction_do_not_learn_and_come_back():
    broken = Environment(failure=Failure(share=1.0, start=10, until=20))
    conditions = broken.conditions(3, 1)
    working = [works(conditions, moment) for moment in moments(30)]
    assert working == [True] * 10 + [False] * 10 + [True] * 10
    federation = Federation(STREAM, PaoFed(), environment=broken, rounds=40, every=10, engine="serial")
    updates = dict(federation.run().curve("updates"))
    assert updates[10] == updates[20] < updates[30]


def test_failing_for_good():
    conditions = Environment(failure=Failure(share=0.5, start=3)).conditions(1000, 1)
    failed = [not works(conditions, Moment(k, 10**9, 0, -1, 1, True, 1.0)) for k in range(1000)]
    assert 400 < sum(failed) < 600


def test_a_recorded_schedule_plays_again(tmp_path):
    rough = Environment(availability=0.5, delay=Delay(delta=0.5, limit=3), failure=Failure(share=0.3, start=5, until=9))
    federation = Federation(STREAM, PaoFed(limit=3), environment=rough, rounds=40, engine="serial")
    plan = schedule(federation.instance().conditions, 40, federation.seed)
    assert {ABSENT, BROKEN, 0, 1} <= set(np.unique(plan))
    np.savez(tmp_path / "schedule.npz", schedule=plan)
    again = federation.with_(environment=Environment(replay=str(tmp_path / "schedule.npz")))
    assert np.array_equal(federation.run().models[0]["server"], again.run().models[0]["server"])


def test_a_torn_schedule_is_refused(tmp_path):
    whole, torn = tmp_path / "schedule.npz", tmp_path / "torn.npz"
    np.savez_compressed(whole, schedule=np.zeros((40, 8), np.int16))
    content = whole.read_bytes()
    np.save(tmp_path / "array.npy", np.zeros((40, 8), np.int16))
    for wrong in (content[:60], content[:-30], b"", (tmp_path / "array.npy").read_bytes()):
        torn.write_bytes(wrong)
        with pytest.raises(BadInput, match=r"environment\.replay.*--record"):
            Environment(replay=str(torn)).conditions(8, 1)


def test_all_algorithms_of_a_comparison_meet_one_schedule():
    from archipel import OnlineFed

    rough = Environment(availability=(0.5, 0.1), delay=Delay(delta=0.5, limit=3))
    runs = [
        Federation(STREAM, a, environment=rough, rounds=40, engine="serial").run()
        for a in (PaoFed(autonomous=False), OnlineFed())
    ]
    assert runs[0].final("updates") == runs[1].final("updates")
    messages = [
        runs[0].final("parameters.client-server") / 4,
        runs[1].final("parameters.client-server") / 10,
    ]
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        (lambda: Environment(availability=1.5), "environment.availability"),
        (lambda: Environment(availability=(0.5, float("nan"))), "environment.availability"),
        *(
            (lambda wrong=wrong: Environment(availability=wrong), "environment.availability")
            for wrong in ("high", ("a",), ((1.0,), (1.0, 0.5)), {}, (), date(1979, 5, 27), True, 10**20, (((1.0,),),))
        ),
        (lambda: Environment(groups=(0, 1)), "environment.groups"),
        (lambda: Environment(stride=10**20), "environment.stride"),
        (lambda: Environment(phase=10**20), "environment.phase"),
        (lambda: Environment(delay=Delay(delta=1.0)), "environment.delay.delta"),
        (lambda: Environment(delay=Delay(kind="odd")), "environment.delay.kind"),
        (lambda: Environment(delay=Delay(kind="file", file="nowhere.csv")), "environment.delay.file"),
        (lambda: Environment(failure=Failure(share=2.0)), "environment.failure.share"),
        (lambda: Environment(failure=Failure(share=0.5, start=10**20)), "environment.failure.start"),
        (lambda: Environment(failure=Failure(share=0.5, until=10**20)), "environment.failure.until"),
        (lambda: Environment(failure=Failure(share=0.5, start=9, until=3)), "environment.failure.until"),
        (lambda: Environment(replay="nowhere.npz"), "environment.replay"),
        (lambda: Environment(phase=0), "environment.phase"),
    ],
)
def test_bad_conditions_is_refused(environment, key):
    with pytest.raises(BadInput) as problem:
        environment().conditions(8, 1)
    assert problem.value.key == key
