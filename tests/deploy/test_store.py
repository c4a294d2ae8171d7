"""Checkpoints are whole or not there, wherever a crash falls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archipel.deploy import store
from archipel.deploy.store import Halted, Store, Torn, packed, unpacked
from archipel.disk import Folder, LockedFile
from archipel.errors import BadInput


def closed(kept):
    kept.close()
    kept.disk.close()


class Crash(BaseException):
    """The machine stops here."""


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.one_of(st.integers(), st.binary(max_size=40), st.text(max_size=9), st.lists(st.integers(), max_size=4)),
        max_size=6,
    )
)
@settings(max_examples=100, deadline=None)
def test_records_there_and_back(record):
    assert unpacked(packed(record)) == record


def test_arrays_keep_type_shape_and_bits():
    for array in (np.arange(6, dtype=">f4").reshape(2, 3), np.array([np.nan, -0.0]), np.zeros((0, 3), np.int8)):
        back = unpacked(packed({"a": array}))["a"]
        assert back.dtype == array.dtype and back.shape == array.shape and back.tobytes() == array.tobytes()
        assert back.flags.writeable


def test_the_newest_whole_checkpoint_is_loaded(tmp_path):
    for n in range(5):
        disk = Store(Folder(tmp_path))
        before = disk.load()
        assert (before or {"n": -1})["n"] == n - 1
        disk.save({"n": n})
        closed(disk)


@pytest.mark.parametrize("keep", [0, 1, 10, 40, 60, 70])
def test_a_crash_at_any_point_of_a_write_leaves_the_checkpoint_before(tmp_path, monkeypatch, keep):
    """The write is cut after `keep` bytes; what lies behind them is of the write before the last."""
    disk = Store(Folder(tmp_path))
    for n in range(3):
        disk.save({"n": n, "model": np.full(9, n)})

    write = LockedFile.write

    def cut(file, data, at):
        write(file, data[:keep], at)
        raise Crash

    monkeypatch.setattr(LockedFile, "write", cut)
    with pytest.raises(Crash):
        disk.save({"n": 3, "model": np.full(9, 3)})
    monkeypatch.undo()
    closed(disk)
    again = Store(Folder(tmp_path))
    found = again.load()
    assert found["n"] == 2 and (found["model"] == 2).all()
    again.save({"n": 4})
    assert again.load()["n"] == 4
    closed(again)


def test_a_first_write_that_was_cut_is_no_checkpoint(tmp_path, monkeypatch):
    disk = Store(Folder(tmp_path))
    write = LockedFile.write
    monkeypatch.setattr(LockedFile, "write", lambda file, data, at: write(file, data[:30], at))
    disk.save({"n": 0})
    closed(disk)
    again = Store(Folder(tmp_path))
    assert again.load() is None
    closed(again)


def test_damage_in_both_files_is_said_and_not_guessed(tmp_path):
    disk = Store(Folder(tmp_path))
    disk.save({"n": 0})
    disk.save({"n": 1})
    closed(disk)
    for name in store.FILES:
        content = bytearray((tmp_path / name).read_bytes())
        content[-1] ^= 1
        (tmp_path / name).write_bytes(content)
    with pytest.raises(Torn, match=r"damaged.*keep ledger\.journal"):
        Store(Folder(tmp_path)).load()


def test_a_full_disk_is_one_sentence_and_no_torn_checkpoint(tmp_path, monkeypatch):
    disk = Store(Folder(tmp_path))
    disk.save({"n": 0})

    write = LockedFile.write

    def full(file, data, at):
        write(file, data[:20], at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LockedFile, "write", full)
    with pytest.raises(Halted, match="No space left on device"):
        disk.save({"n": 1})
    monkeypatch.undo()
    assert disk.load()["n"] == 0
    disk.save({"n": 2})
    assert disk.load()["n"] == 2
    closed(disk)


def test_one_folder_serves_one_node(tmp_path):
    disk = Store(Folder(tmp_path))
    with pytest.raises(BadInput, match="no other node"):
        Store(Folder(tmp_path))
    closed(disk)
    closed(Store(Folder(tmp_path)))


def test_what_is_large_is_written_once_and_its_files_are_used_again(tmp_path):
    """A model and letters beside the checkpoint: only what is new is written, and no more files than are needed."""
    folder = Folder(tmp_path)
    store, written = Store(folder, True, 1000), []
    write = store.write_blob
    store.write_blob = lambda file, data: (written.append(len(data)), write(file, data))
    model, letter = np.arange(500.0), bytes(range(256)) * 10
    for n in range(12):
        if n % 4 == 0:
            model += 1.0
        letters = [letter] * (n % 3) + [b"small"]
        store.save({"round": n, "me.model": model, "post.bodies": letters})
    assert written.count(model.nbytes) == 3 and written.count(len(letter)) == 4, "equal letters are kept once"
    assert len(list(tmp_path.glob("kept.*"))) <= 4
    store.close()
    record = Store(folder, True, 1000).load()
    assert record["round"] == 11 and record["post.bodies"] == letters
    np.testing.assert_array_equal(record["me.model"], model)


def test_a_damaged_file_beside_the_checkpoint_is_said(tmp_path):
    folder = Folder(tmp_path)
    store = Store(folder, True, 100)
    for _ in range(2):
        store.save({"model": np.ones(50)})
    store.close()
    path = next(tmp_path.glob("kept.*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(Torn, match="both checkpoints are damaged"):
        Store(folder, True, 100).load()
