"""Many clients' networks in one call: the same as one by one, and one by one where that is the better way.

Large ones go on threads, and no bit depends on how many there are.
"""

import platform
import subprocess
import sys
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from archipel import Federation  # noqa: E402
from archipel.algorithms.deep import FedAvgDeep, MirrorDeep  # noqa: E402
from archipel.algorithms.pldp_fl import PldpFl  # noqa: E402
from archipel.errors import BadInput  # noqa: E402
from archipel.problems.deep import Deep, cross_entropy, squared  # noqa: E402
from archipel.problems.models import side_by_side  # noqa: E402
from archipel.problems.models.learners import ClippedSum, Descend, Gradient, answered_together  # noqa: E402
from archipel.problems.models.networks import Network, Units, cnn, mlp  # noqa: E402
from archipel.problems.stored import Shard  # noqa: E402
from archipel.simulate import engine as engines  # noqa: E402
from archipel.topology import Peers  # noqa: E402

CLIENTS, SAMPLES = 7, 20


class Normed(nn.Module):
    """Parameters outside of linear layers, and the square of one: `by_layers` does not take it."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 6), nn.LayerNorm(6), nn.Linear(6, 10)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x.flatten(1)))))


class Choosing(nn.Module):
    """It looks at its answers: nothing that can be mapped over."""

    def __init__(self):
        super().__init__()
        self.only = nn.Linear(64, 10)

    def forward(self, x):
        out = self.only(x.flatten(1))
        return out if float(out.sum()) > 0 else 2 * out


MODULES = {
    "mlp": lambda: mlp((1, 8, 8), 10, (12,)),
    "cnn": lambda: cnn((1, 8, 8), 10, (2, 3, 4)),
    "normed": Normed,
}


def clients_of(module, dtype=np.float64, loss=cross_entropy):
    """A network, everyone's data and a model of its own."""
    torch.manual_seed(0)
    x = torch.randint(0, 255, (CLIENTS * SAMPLES, 1, 8, 8), dtype=torch.uint8)
    y = torch.randint(0, 10, (CLIENTS * SAMPLES,))
    network = Network(module(), loss, x, Units(255.0), dtype)
    shards = [Shard(x[k * SAMPLES : (k + 1) * SAMPLES], y[k * SAMPLES : (k + 1) * SAMPLES]) for k in range(CLIENTS)]
    models = network.start() + 0.1 * np.random.default_rng(1).standard_normal((CLIENTS, network.size)).astype(dtype)
    return network, shards, models


@pytest.mark.parametrize("module", MODULES)
def test_arithmetic_is_counted_as_pytorch_counts_it(module):
    network, _, _ = clients_of(MODULES[module])
    sample = network.scaled(network.sample)
    stack = side_by_side.Stack(network, sample)
    assert stack.work == stack.by_counter(sample) > 100


def asks_of(kind, shards, models, out):
    rng = np.random.default_rng(2)
    rows = [rng.permutation(SAMPLES)[: 9 if kind in ("descend", "gradient") else 5 + k] for k in range(len(shards))]
    make = {
        "descend": lambda k: Descend(models[k], shards[k], rows[k], 0.3),
        "gradient": lambda k: Gradient(out[k], models[k], shards[k], rows[k]),
        "clipped": lambda k: ClippedSum(out[k], models[k], shards[k], rows[k], 0.7),
        "clipped-l1": lambda k: ClippedSum(out[k], models[k], shards[k], rows[k], 3.0, 1),
    }
    return [make[kind](k) for k in range(len(shards))]


@pytest.mark.parametrize(("dtype", "near"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize("kind", ["descend", "gradient", "clipped", "clipped-l1"])
@pytest.mark.parametrize("module", MODULES)
def test_answers_are_those_of_one_by_one(module, kind, dtype, near, monkeypatch):
    network, shards, models = clients_of(MODULES[module], dtype)
    monkeypatch.setattr(side_by_side, "CACHED", 3 * network.size)  # in three goes
    both = [(models.copy(), np.zeros_like(models)) for _ in range(2)]
    assert network.together(asks_of(kind, shards, *both[0]))
    for ask in asks_of(kind, shards, *both[1]):
        ask.alone(network)
    which = 0 if kind == "descend" else 1
    assert both[0][which] == pytest.approx(both[1][which], abs=near)
    assert np.abs(both[0][which] - models * (which == 0)).max() > 1e-3


def test_samples_that_lie_apart_are_gathered_too():
    network, shards, models = clients_of(MODULES["mlp"])
    apart, out = [Shard(s.x.clone(), s.y.clone()) for s in shards], [np.zeros_like(models) for _ in range(2)]
    assert network.together(asks_of("gradient", shards, models, out[0]))
    assert network.together(asks_of("gradient", apart, models, out[1]))
    assert np.array_equal(*out)


def test_squared_losses_go_together():
    network, shards, models = clients_of(lambda: mlp((1, 8, 8), 1, (5,)), loss=squared)
    out = [np.zeros_like(models) for _ in range(2)]
    assert network.together(asks_of("clipped", shards, models, out[0]))
    for ask in asks_of("clipped", shards, models, out[1]):
        ask.alone(network)
    assert out[0] == pytest.approx(out[1], abs=1e-12)


@pytest.mark.parametrize("module", [lambda: mlp((1, 8, 8), 10, (800,)), Choosing])
def test_large_networks_and_what_cannot_be_mapped_over_go_one_by_one(module):
    network, shards, models = clients_of(module)
    before = models.copy()
    assert not network.together(asks_of("descend", shards, models, None))
    assert np.array_equal(models, before)


def test_who_asks_something_else_is_answered_too():
    """Two groups, one of which is one client; each step's askers are answered before anyone's next."""
    network, shards, models = clients_of(MODULES["mlp"])
    alone = models.copy()

    def steps(k, of):
        for i in range(1 + k % 3):
            yield Descend(of[k], shards[k], np.arange(4 + (k == 2) + i), 0.2)
        return k

    assert answered_together([(k, steps(k, models)) for k in range(CLIENTS)], network) == list(range(CLIENTS))
    for k in range(CLIENTS):
        for ask in steps(k, alone):
            ask.alone(network)
    assert models == pytest.approx(alone, abs=1e-12)


# --- whole runs -----------------------------------------------------------------------------------------------------

ALGORITHMS = {
    "fedavg": FedAvgDeep(0.2, 8, epochs=2),
    "mirror": MirrorDeep("gaussian", batch=8, step=0.1),
    "mirror-published": MirrorDeep("published", batch=8, step=0.1),
    "pldp": PldpFl(batch=8, local_steps=2, draws=4, step=0.1),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_side_by_side_is_the_run_one_by_one(name, monkeypatch):
    problem = Deep(model="mlp", widths=(8,), clients=6, samples=240, split="uneven", power=0.4)
    federation = Federation(problem, ALGORITHMS[name], rounds=3, precision="float64")
    if name.startswith("mirror"):
        federation = federation.with_(topology=Peers(shape="ring"))
    answered = []
    answer = side_by_side.Stack.answer
    monkeypatch.setattr(
        side_by_side.Stack, "answer", lambda self, asks: answered.append(len(asks)) or answer(self, asks)
    )
    found = {}
    for engine in ("plain", "auto"):
        instance = federation.with_(engine=engine).instance(1)
        player = federation.with_(engine=engine).engine_of(instance)
        player.advance(0, 3)
        models = [table.model for table in instance.plan.tables.values()]
        found[engine] = (models, player.messages, player.updates, len(answered))
    assert found["plain"][3] == 0 and found["auto"][3] > 0 and max(answered) > 1
    assert found["plain"][1:3] == found["auto"][1:3]
    for a, b in zip(found["plain"][0], found["auto"][0]):
        assert a == pytest.approx(b, abs=1e-10)


@pytest.mark.parametrize("engine", ["plain", "auto", "parallel"])
def test_who_fails_is_named(engine, monkeypatch):
    monkeypatch.setattr(side_by_side, "MOST_SIZE", 0 if engine == "parallel" else side_by_side.MOST_SIZE)
    problem = Deep(model="mlp", widths=(8,), clients=6, samples=240)
    federation = Federation(problem, FedAvgDeep(0.2, 8), rounds=3, engine=engine)
    instance = federation.instance(1)
    player = federation.engine_of(instance)
    starts = instance.task.source.starts
    instance.task.learner.units = Units(1.0)
    instance.task.source.x.data = instance.task.source.x.float()
    instance.task.source.x[starts[4] : starts[5]] = float("inf")
    with pytest.raises(BadInput) as problem:
        player.advance(0, 1)
    assert problem.value.__notes__ == ["in round 0, at client 4"]


# --- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_threads_change_no_bit_of_a_run(name, monkeypatch):
    monkeypatch.setattr(side_by_side, "MOST_SIZE", 0)  # every network is a large one
    problem = Deep(model="mlp", widths=(8,), clients=6, samples=240, split="uneven", power=0.4)
    federation = Federation(problem, ALGORITHMS[name], rounds=3)
    if name.startswith("mirror"):
        federation = federation.with_(topology=Peers(shape="ring"))
    makers, twin = [], Network.twin
    monkeypatch.setattr(Network, "twin", lambda self: makers.append(self) or twin(self))
    found = {}
    for way in ("serial", "parallel"):
        instance = federation.with_(engine=way).instance(1)
        federation.with_(engine=way).engine_of(instance).advance(0, 3)
        found[way] = [table.model for table in instance.plan.tables.values()]
        assert bool(makers) == (way == "parallel")
    assert all(np.array_equal(a, b) for a, b in zip(found["serial"], found["parallel"], strict=True))
    assert not np.array_equal(found["serial"][0], federation.instance(1).plan.tables.popitem()[1].model)


def answers_on(threads, network, kind, shards, models):
    """What everyone has after three asks of a kind, one after the other or on threads."""
    of, out = models.copy(), np.zeros_like(models)

    def steps(k):
        for _ in range(3):
            ask = asks_of(kind, shards, of, out)[k]
            yield ask
            of[k] -= 0 if kind == "descend" else 0.1 * out[k]

    answered_together([(k, steps(k)) for k in range(CLIENTS)], network, threads)
    return of


@pytest.mark.parametrize("kind", ["descend", "gradient", "clipped", "clipped-l1"])
@pytest.mark.parametrize("module", [*MODULES.values(), Choosing])
def test_threads_change_no_bit_of_what_is_answered(module, kind, monkeypatch):
    monkeypatch.setattr(side_by_side, "MOST_SIZE", 0)
    network, shards, models = clients_of(module, np.float32)
    one, three = (answers_on(threads, network, kind, shards, models) for threads in (1, 3))
    assert np.array_equal(one, three) and np.abs(one - models).max() > 1e-3
    assert len(network.twins(3)) == 3


class Drawing(Normed):
    """It draws whatever the mode is, from the generator that all threads share."""

    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5, training=True))


class SeldomSeen(Normed):
    """It draws, and its answers do not show it."""

    def forward(self, x):
        torch.rand(1)
        return super().forward(x)


class Counting(Normed):
    """It remembers how often it was asked."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 + 1 / self.calls)


class Bound(Normed):
    """A copy of it would look at the parameters of the first one."""

    def __init__(self):
        super().__init__()
        self.scaled = lambda x: x * self.norm.weight.detach().mean()

    def forward(self, x):
        return self.scaled(super().forward(x))


class Locked(Normed):
    """It cannot be copied."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


@pytest.mark.parametrize("module", [Drawing, SeldomSeen, Counting, Bound, Locked])
def test_what_cannot_be_copied_or_draws_or_remembers_stays_on_one_thread(module, monkeypatch):
    monkeypatch.setattr(side_by_side, "MOST_SIZE", 0)
    found = []
    for threads in (1, 3):
        network, shards, models = clients_of(module)
        assert not network.twins(3)
        if module is not Counting:  # it was asked once more
            torch.manual_seed(5)
            found.append(answers_on(threads, network, "descend", shards, models))
    assert not found or np.array_equal(*found)


class Meeting:
    """A learner whose answers wait until two are at it."""

    def __init__(self, barrier):
        self.barrier, self.busy = barrier, 0

    def together(self, asks):
        return False

    def twins(self, count):
        return [Meeting(self.barrier) for _ in range(count)]

    def descend(self, model, data, rows, step):
        self.busy += 1
        self.barrier.wait(600)
        assert self.busy == 1
        self.busy -= 1


def test_two_learners_answer_at_a_time_and_askers_one_at_a_time():
    inside = threading.Lock()

    def asking(k):
        for _ in range(5):
            assert inside.acquire(blocking=False)
            sum(range(300_000))  # longer than Python lets one thread go on
            inside.release()
            yield Descend(None, None, [0], 0.1)
        return k

    askings = [(k, asking(k)) for k in range(6)]
    assert answered_together(askings, Meeting(threading.Barrier(2)), threads=2) == list(range(6))


def test_one_large_run_has_a_thread_a_core_and_seeds_side_by_side_one(monkeypatch):
    monkeypatch.setattr(engines, "LARGE", 1)
    monkeypatch.setenv("ARCHIPEL_THREADS", "3")
    federation = Federation(Deep(model="mlp", widths=(8,), clients=6, samples=240), FedAvgDeep(0.2, 8))
    instance = federation.instance(1)
    names = ("auto", "serial", "plain", "parallel")
    assert [engines.engine_for(instance, name).threads for name in names] == [3, 1, 1, 3]
    assert engines.engine_for(instance, side_by_side=True).threads == 1
    monkeypatch.setenv("ARCHIPEL_THREADS", "1")
    assert engines.engine_for(instance).threads == 1


STEPS = """
import resource
import numpy as np
from archipel import Federation
from archipel.algorithms.deep import FedAvgDeep
from archipel.problems.deep import Deep

x, y = np.zeros((200, 1, 28, 28), np.uint8), np.arange(200) % 10
np.savez("pictures.npz", x=x, y=y, x_test=x[:1], y_test=y[:1])
problem = Deep(data="pictures.npz", model="cnn", widths=(32, 64, 128), clients=2)
federation = Federation(problem, FedAvgDeep(0.01, 50), rounds=6, engine="parallel")
engine = federation.engine_of(federation.instance(1))
taken = [0]
for n in range(6):
    engine.advance(n, n + 1)
    taken.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(np.diff(taken).min())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library frees in another way")
def test_steps_on_threads_use_again_what_steps_before_them_freed(tmp_path):
    """In a process of its own: what is kept depends on all that was ever freed in one. A new thread begins anew."""
    done = subprocess.run([sys.executable, "-c", STEPS], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2_500  # pages of the best round: less than one step uses, and it has four
