"""Numba's traps, as `archipel.simulate.compile` numbers them, each with what avoids it."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core.runtime import _nrt_python, rtsys

from archipel import Federation, Linear, OnlineFed, Synthetic
from archipel.node import kernel
from archipel.parts.learn import online, solve
from archipel.simulate import compile as compiling
from archipel.simulate import engine
from archipel.simulate.records import Record

PROBLEM = Linear(clients=6, size=3, samples=10)

PLAY = """
import sys
from archipel import Federation, Linear, OnlineFed
federation = Federation(Linear(clients=6, size=3, samples=10), OnlineFed(step=0.1), rounds=4, engine=sys.argv[1])
engine = federation.engine_of(federation.instance())
engine.advance(0, 4)
stats = engine.kernel.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def hits_and_misses(folder, name, keeps_byte_code):
    """Of a process that runs the package in a folder."""
    here = {"ARCHIPEL_CACHE": str(folder / "cache"), "PYTHONPATH": str(folder)}
    run = subprocess.run(
        [sys.executable, "-c", PLAY, name],
        env={**os.environ, **here, "PYTHONDONTWRITEBYTECODE": "" if keeps_byte_code else "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return tuple(map(int, run.stdout.split()))


def test_1_kernels_hit_the_cache_in_a_new_process_however_many_threads_it_has(tmp_path):
    """And whether or not Python has read the byte code of their files, or made it."""
    shutil.copytree(compiling.PACKAGE, tmp_path / "archipel", ignore=shutil.ignore_patterns("__pycache__"))
    assert hits_and_misses(tmp_path, "serial", keeps_byte_code=False) == (0, 1)
    assert hits_and_misses(tmp_path, "serial", keeps_byte_code=True) == (1, 0)
    assert (tmp_path / "archipel" / "__pycache__").exists()
    assert hits_and_misses(tmp_path, "parallel", keeps_byte_code=True) == (1, 0)


def test_1_a_kernel_that_a_crash_has_torn_is_made_anew(monkeypatch, tmp_path):
    monkeypatch.setattr(compiling.numba.config, "CACHE_DIR", str(tmp_path))

    def hits_and_misses_here():
        driver = compiling.build.__wrapped__(_calls_dot)
        assert driver(np.full(3, 2.0), np.ones(3)) == 6.0
        return sum(driver.stats.cache_hits.values()), sum(driver.stats.cache_misses.values())

    assert [hits_and_misses_here(), hits_and_misses_here()] == [(0, 1), (1, 0)]
    for ending in ("nbi", "nbc"):
        (torn,) = tmp_path.rglob(f"*.{ending}")
        torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
        assert [hits_and_misses_here(), hits_and_misses_here()] == [(0, 1), (1, 0)]


def test_3_functions_that_are_only_inlined_are_not_made_machine_code_of(monkeypatch, tmp_path):
    finished = []
    monkeypatch.setattr(compiling.numba.config, "CACHE_DIR", str(tmp_path))  # else a second run would find it compiled
    whole = compiling.JITCodeLibrary.finalize
    monkeypatch.setattr(compiling.JITCodeLibrary, "finalize", lambda self: (finished.append(self.name), whole(self)))
    compiling.build.__wrapped__(_calls_dot)(np.ones(3), np.ones(3))
    assert "_calls_dot" in finished and not any("dot_loop" in name for name in finished)


def _calls_dot(a, b):
    return compiling.node.dot(a, b)


class Pair(NamedTuple):
    first: np.ndarray
    inner: "Single"


class Single(NamedTuple):
    only: np.ndarray


def _clears_a_row(table):
    compiling.node.clear(compiling.node.row(table, 1))


def test_7_records_hold_records_also_of_one_type():
    table = Pair(np.ones((2, 3)), Single(np.ones((2, 4))))
    compiling.build(_clears_a_row)(Record(table))
    assert table.first.sum() == 3 and table.inner.only.sum() == 4


def _solves(out, basis, rows, y, pull):
    solve.logistic(out, basis, rows, y, pull, 0.3)


def test_3_those_of_ours_that_make_arrays_are_compiled_too():
    draw = np.random.default_rng(5)
    basis, rows, y = np.linalg.qr(draw.normal(size=(3, 3)))[0], draw.normal(size=(6, 3)), np.sign(draw.normal(size=6))
    plain, fast, pull = np.zeros(3), np.zeros(3), draw.normal(size=3)
    _solves(plain, basis, rows, y, pull)
    compiling.build(_solves)(fast, basis, rows, y, pull)
    assert fast == pytest.approx(plain, abs=1e-12) and np.abs(plain).max() > 0.01


class Mixed(NamedTuple):
    table: np.ndarray
    turned: np.ndarray
    inner: Single
    rate: np.float32
    count: int
    on: bool


def _reads(mixed, out):
    for k in range(2):
        one = compiling.node.row(mixed.inner, k)
        for j in range(one.only.shape[0]):
            out[k] += one.only[j] * mixed.rate + mixed.count
        out[k] += mixed.table[k, 1] + mixed.turned[k, 2] if mixed.on else 0.0


def test_7_fields_of_any_kind_are_read_where_they_are():
    inner = Single(np.arange(8.0).reshape(2, 4))
    turned = np.arange(6.0).reshape(3, 2).T
    mixed, out, plain = Mixed(np.arange(4.0).reshape(2, 2), turned, inner, np.float32(0.5), 3, True), *np.zeros((2, 2))
    compiling.build(_reads)(Record(mixed), out)
    _reads(mixed, plain)
    assert out.tolist() == plain.tolist()


def _leaves_its_table(table):
    return compiling.node.row(table, 2).first[0]


def test_7_a_row_beyond_its_table_is_an_error_with_bounds_checked():
    assert os.environ.get("ARCHIPEL_BOUNDSCHECK")
    with pytest.raises(IndexError):
        compiling.build(_leaves_its_table)(Record(Pair(np.ones((2, 3)), Single(np.ones((2, 4))))))


def _second_largest(values):
    copy = np.sort(values + np.zeros(values.shape[0]))
    return copy[-2]


def _calls_a_users_function(values, times):
    total = 0.0
    for _ in range(times):
        total += _second_largest(values)
    return total


def test_3_a_users_function_may_make_arrays_and_they_are_freed():
    kernel(_second_largest)
    values = np.arange(10_000.0)
    play = compiling.build(_calls_a_users_function)
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    assert play(values, 100) == 100 * 9998.0
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free > 0


def test_2_an_edited_source_has_another_cache(tmp_path, monkeypatch):
    before = compiling.stamp()
    edited = tmp_path / "mine.py"
    edited.write_text("x = 1\n")
    files = compiling.sources()
    monkeypatch.setattr(compiling, "sources", lambda: [*files, edited])
    first = compiling.stamp()
    edited.write_text("x = 2\n")
    assert len({before, first, compiling.stamp()}) == 3


def test_2_a_process_that_is_older_than_an_edit_keeps_its_kernels_to_itself(tmp_path, monkeypatch):
    """It may have loaded what was there before: another process must not find that under the new hash."""
    edited = tmp_path / "mine.py"
    edited.write_text("x = 1\n")
    monkeypatch.setattr(compiling, "sources", lambda: [edited])
    stamps = []
    for loaded in (edited.stat().st_mtime + 1, edited.stat().st_mtime + 2, 1.0, 2.0):
        monkeypatch.setattr(compiling, "LOADED", loaded)
        stamps.append(compiling.stamp())
    assert stamps[0] == stamps[1] and len(set(stamps)) == 3


def test_2_a_user_s_own_node_functions_count_as_sources():
    kernel(hits_and_misses)  # any function of this file
    try:
        assert any(path.name == "test_traps.py" for path in compiling.sources())
    finally:
        compiling.node.KERNELS.remove(hits_and_misses)


def test_5_float32_stays_float32():
    federation = Federation(PROBLEM, OnlineFed(step=0.1), rounds=10)
    assert type(federation.instance().plan.settings.learn.step) is np.float32
    slow, quick = (federation.with_(engine=name).run().models[0]["server"] for name in ("plain", "serial"))
    assert slow.dtype == quick.dtype == np.float32
    np.testing.assert_allclose(slow, quick, rtol=1e-5)


def broken_act(me, data, said, settings, moment):
    return me.modell  # no such field


@dataclass(frozen=True)
class Broken(OnlineFed):
    def plan(self, setup):
        plan = super().plan(setup)
        return plan._replace(turns=(plan.turns[0], plan.turns[1]._replace(act=broken_act)))


def test_6_an_error_names_the_node_and_the_round_before_anything_is_compiled():
    with pytest.raises(AttributeError) as problem:
        Federation(PROBLEM, Broken(step=0.1), rounds=3, engine="serial").run()
    assert problem.value.__notes__ == ["in round 0, at client 0"]


def test_6_bounds_are_checked_in_tests():
    assert os.environ.get("ARCHIPEL_BOUNDSCHECK")
    beyond = compiling.build(_reads_beyond)
    with pytest.raises(IndexError):
        beyond(np.zeros(3))


def _reads_beyond(array):
    return array[array.shape[0] + 1]


def _writes_to_its_row(me):
    me.first[0] = 1.0


def _writes_beyond(array):
    array[array.shape[0]] = 1.0


def _calls_with_a_row_beyond(table):
    _writes_to_its_row(compiling.node.row(table, 2))


def _calls_what_writes_beyond(table):
    _writes_beyond(table.first[0])


@pytest.mark.parametrize("driver", [_calls_with_a_row_beyond, _calls_what_writes_beyond])
def test_6_bounds_are_checked_in_node_functions_too(driver):
    """They were not, for as long as only the driver was asked to: a callee has options of its own."""
    kernel(_writes_to_its_row), kernel(_writes_beyond)
    with pytest.raises(IndexError):
        compiling.build(driver)(Record(Pair(np.ones((2, 3)), Single(np.ones((2, 4))))))


def test_6_bounds_are_checked_in_verbs_too():
    with pytest.raises(IndexError):
        compiling.build(_assigns_beyond)(np.ones(3), np.ones(2))


def _assigns_beyond(to, value):
    compiling.node.assign(to, value)


def test_the_number_of_threads_changes_no_bit():
    problem = Synthetic(clients=100, features=12, test=10, horizon=20, samples=(10, 20))
    federation = Federation(problem, OnlineFed(step=0.2), rounds=20)
    one, two = (federation.with_(engine=name).run().models[0] for name in ("serial", "parallel"))
    assert np.array_equal(one["clients"], two["clients"]) and np.array_equal(one["server"], two["server"])


def test_seeds_side_by_side_have_one_thread_each(monkeypatch):
    monkeypatch.setattr(engine, "is_large", lambda instance: True)
    instance = Federation(PROBLEM, OnlineFed(step=0.1)).instance()
    assert engine.engine_for(instance, side_by_side=True).threads == 1
    assert engine.engine_for(instance, side_by_side=False).threads > 1


def test_seeds_side_by_side_are_the_seeds_one_by_one():
    federation = Federation(PROBLEM, OnlineFed(step=0.1), rounds=10)
    together = federation.run(seeds=3).models
    for i, models in enumerate(together):
        alone = federation.with_(seed=federation.seed + i).run().models[0]
        assert np.array_equal(models["server"], alone["server"])


def test_9_a_nan_stays_a_nan():
    instance = Federation(PROBLEM, OnlineFed(step=0.1), rounds=10, engine="serial").instance()
    instance.task.source.y[0] = np.nan
    player = engine.engine_for(instance, "serial")
    player.advance(0, 10)
    assert np.isnan(instance.plan.tables["server"].model).all()


def test_10_a_second_run_compiles_nothing():
    federation = Federation(PROBLEM, OnlineFed(step=0.1), rounds=5, engine="serial")
    player = federation.engine_of(federation.instance())
    player.advance(0, 2)
    player.advance(2, 5)
    assert len(player.kernel.signatures) == 1
    assert type(online.descent).__name__ == "function"  # still plain Python


def test_kernels_that_were_used_today_are_kept_however_many_versions_there_are(tmp_path, monkeypatch):
    """Of those that nobody used for a day only some: the folder does not grow for ever."""
    monkeypatch.setenv("ARCHIPEL_CACHE", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)  # as it was, afterwards
    now = time.time()
    for name, age in [(f"today-{k}", 3600 * k) for k in range(12)] + [(f"before-{k}", 90_000 + k) for k in range(12)]:
        (tmp_path / "kernels" / name).mkdir(parents=True)
        os.utime(tmp_path / "kernels" / name, (now - age, now - age))
    own = compiling.prepare_cache()
    assert own.is_dir()
    assert {path.name for path in own.parent.iterdir()} == {own.name, *(f"today-{k}" for k in range(12))}
