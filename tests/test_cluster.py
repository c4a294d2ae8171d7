"""On a cluster as on one machine: the same rows and models, and a worker that dies is not missed."""

import os
import signal
import sys

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")

from archipel import Delay, Environment, Federation, Linear, OnlineFed, PaoFed, Synthetic  # noqa: E402
from archipel.cluster import Shard, ShardedEngine, connected, player_on  # noqa: E402
from archipel.errors import BadInput, Diverged, Missing  # noqa: E402
from archipel.simulate import blocks  # noqa: E402
from archipel.simulate.checkpoint import Keep  # noqa: E402
from archipel.simulate.run import run  # noqa: E402

LATE = Environment(availability=(0.9, 0.5, 0.3), delay=Delay(delta=0.4, limit=3))
STAR = Federation(
    Synthetic(clients=83, features=12), PaoFed(portion=3), environment=LATE, rounds=24, every=8, engine="serial"
)
SMALL = Federation(Linear(clients=6, size=4), OnlineFed(step=0.05), rounds=12, every=4)


@pytest.fixture(scope="module")
def cluster():
    """Four workers in this process."""
    with (
        distributed.LocalCluster(
            n_workers=4, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as workers,
        distributed.Client(workers) as client,
    ):
        yield workers, client


def same(ours, theirs):
    assert ours.rows == theirs.rows
    for a, b in zip(ours.models, theirs.models, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert np.array_equal(a[name], b[name]), name


def test_seeds_are_jobs(cluster):
    same(SMALL.run(3), run(SMALL, 3, play=player_on(cluster[1])))


def test_a_job_that_fails_says_so_here(cluster):
    with pytest.raises(Diverged, match=r"smaller algorithm\.step"):
        run(SMALL.with_(algorithm=OnlineFed(step=40.0, force=True), rounds=400, every=400), play=player_on(cluster[1]))


def test_a_refusal_comes_whole_from_another_process():
    import pickle

    found = pickle.loads(pickle.dumps(BadInput("algorithm.step", 3, "less")))
    assert str(found) == str(BadInput("algorithm.step", 3, "less")) and found.key == "algorithm.step"


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_shards_have_the_bits_of_one_process(workers, cluster, monkeypatch):
    """However many there are; and none has the data of others' clients."""
    client, play_all, begin = cluster[1], ShardedEngine.play_all, Shard.begin
    known = dict(sorted(client.scheduler_info()["workers"].items())[:workers])
    monkeypatch.setattr(client, "scheduler_info", lambda: {"workers": known})
    monkeypatch.setattr(blocks, "LARGE", 20)
    played, shards = [], {}
    monkeypatch.setattr(ShardedEngine, "play_all", lambda self, n: played.append(len(self.shards)) or play_all(self, n))
    monkeypatch.setattr(Shard, "begin", lambda self, *given: shards.update({self.first: self}) or begin(self, *given))
    found = run(STAR, play=player_on(client))
    assert played == [workers] * 24
    same(STAR.run(), found)
    laws = [np.flatnonzero(shard.instance.task.source.law[:, 0]) for _, shard in sorted(shards.items())]
    assert len(laws) == workers and np.array_equal(np.concatenate(laws), np.arange(83))


def test_a_sharded_run_goes_on_from_a_checkpoint(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(blocks, "LARGE", 20)
    run(STAR.with_(rounds=16), keep=Keep(tmp_path), play=player_on(cluster[1]))
    found = run(STAR, keep=Keep(tmp_path, resume=True), play=player_on(cluster[1]))
    same(STAR.run(), found)


def test_a_sharded_run_starts_from_weights(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(blocks, "LARGE", 20)
    STAR.run().save(tmp_path)
    start = tmp_path / "model.npz"
    found = run(STAR, keep=Keep(start=start), play=player_on(cluster[1]))
    same(STAR.run(keep=Keep(start=start)), found)
    assert found.rows != STAR.run().rows


def test_without_dask_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(Missing, match=r"archipel\[cluster\]"), connected("dask"):
        pass


@pytest.mark.parametrize("where", ["spark", "tcp://127.0.0.1:1"])
def test_an_address_that_is_none_is_refused(where, monkeypatch):
    monkeypatch.setattr("archipel.cluster.WAITED", 1)
    with pytest.raises(BadInput, match="--on"), connected(where):
        pass


@pytest.mark.long
@pytest.mark.parametrize(("brought", "since"), [(0.0, 8), (600.0, 0)])
def test_a_worker_that_is_killed_is_not_missed(brought, since, monkeypatch):
    """Processes of their own; one of them dies in the second stretch of rounds, and what it did is done again."""
    monkeypatch.setattr(blocks, "LARGE", 20)
    monkeypatch.setattr("archipel.cluster.BROUGHT", brought)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    play_all, dead = ShardedEngine.play_all, []
    with distributed.LocalCluster(**options) as workers, distributed.Client(workers) as client:

        def playing(self, n):
            if n == 11 and not dead:
                dead.append(client.submit(os.getpid, workers=[self.workers[0][2]]).result())
                os.kill(dead[0], signal.SIGKILL)
            play_all(self, n)

        monkeypatch.setattr(ShardedEngine, "play_all", playing)
        with pytest.warns(UserWarning, match=f"go on from round {since} "):
            found = run(STAR, play=player_on(client))
    assert dead
    same(STAR.run(), found)
