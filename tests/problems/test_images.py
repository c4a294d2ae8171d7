"""The owners' formats, on small files of the same form, and the real sets where they are."""

import gzip
import struct

import numpy as np
import pytest

from archipel.errors import BadInput
from archipel.problems.datasets import images
from archipel.problems.datasets.catalogue import DATASETS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ARCHIPEL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def idx(array):
    """The bytes of an idx file, written by the format's description."""
    head = bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">I", n) for n in array.shape)
    return head + array.astype(np.uint8).tobytes()


def pictures(count, labels, seed=0):
    draw = np.random.default_rng(seed)
    return draw.integers(0, 256, (count, 28, 28)).astype(np.uint8), np.resize(labels, count).astype(np.uint8)


def put_emnist(folder, kind, labels, pack=gzip.compress, ending=".gz"):
    made = {}
    folder.mkdir(exist_ok=True)
    for part, count in (("train", 7), ("test", 4)):
        x, y = made[part] = pictures(count, labels, count)
        (folder / f"emnist-{kind}-{part}-images-idx3-ubyte{ending}").write_bytes(pack(idx(x)))
        (folder / f"emnist-{kind}-{part}-labels-idx1-ubyte{ending}").write_bytes(pack(idx(y)))
    return made


@pytest.mark.parametrize("kind, classes", [("balanced", 47), ("byclass", 62), ("bymerge", 47), ("digits", 10)])
def test_emnist_pictures_stand_upright(folder, kind, classes):
    made = put_emnist(folder, kind, [0, classes - 1])
    assert DATASETS[f"emnist-{kind}"].available()
    loaded = images.load(f"emnist-{kind}")
    for part, (x, y) in (("train", made["train"]), ("test", made["test"])):
        got = getattr(loaded, part)
        np.testing.assert_array_equal(got.x, x.swapaxes(1, 2))
        np.testing.assert_array_equal(got.y, y)
        assert len(got.names) == classes == len(set(got.names))


def test_emnist_letters_count_from_zero_here(folder):
    made = put_emnist(folder / "emnist", "letters", [1, 26])
    loaded = images.load("emnist-letters")
    np.testing.assert_array_equal(loaded.train.y, made["train"][1].astype(int) - 1)
    assert loaded.train.names[0] == "A" and loaded.train.names[25] == "Z"
    put_emnist(folder / "emnist", "letters", [0, 26])
    with pytest.raises(BadInput, match="labels from 1 to 26"):
        images.load("emnist-letters")


def test_idx_files_may_be_unpacked_and_emnist_means_all_of_it(folder):
    put_emnist(folder, "byclass", [0, 61], bytes, "")
    assert images.load("emnist").train.names[61] == "z"


def test_fashion_mnist_lies_in_its_own_folder(folder):
    x, y = pictures(6, range(10))
    (folder / "fashion-mnist").mkdir()
    for part in ("train", "t10k"):
        (folder / f"fashion-mnist/{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(x)))
        (folder / f"fashion-mnist/{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(y)))
    loaded = images.load("fashion-mnist")
    np.testing.assert_array_equal(loaded.test.x, x)
    assert loaded.test.names[int(loaded.test.y[5])] == "sandal"


def put_organs(folder, **changes):
    arrays = {}
    for part, count in (("train", 9), ("val", 5), ("test", 7)):
        x, y = pictures(count, range(11), count)
        arrays |= {f"{part}_images": x, f"{part}_labels": y[:, None]}
    np.savez(folder / "organamnist.npz", **{k: v for k, v in (arrays | changes).items() if v is not None})
    return arrays


def test_organamnist_has_a_validation_set_and_labels_in_a_column(folder):
    arrays = put_organs(folder)
    loaded = images.load("organamnist")
    for part, got in (("train", loaded.train), ("val", loaded.validation), ("test", loaded.test)):
        np.testing.assert_array_equal(got.x, arrays[f"{part}_images"])
        np.testing.assert_array_equal(got.y, arrays[f"{part}_labels"][:, 0])
    assert loaded.train.names[7] == "lung-left" and len(loaded.train.names) == 11


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"val_labels": None}, 'an array "val_labels"'),
        ({"test_labels": np.full((7, 1), 11, np.uint8)}, "labels from 0 to 10"),
        ({"test_labels": np.zeros((6, 1), np.uint8)}, "a label for each of 7"),
        ({"test_labels": np.zeros((7, 1))}, "a label for each of 7"),
        ({"train_images": np.zeros((9, 28, 28))}, "grey pictures of bytes"),
        ({"train_images": np.zeros((9, 28, 28, 3), np.uint8)}, "grey pictures of bytes"),
        (
            {"val_images": np.zeros((0, 28, 28), np.uint8), "val_labels": np.zeros((0, 1), np.uint8)},
            "at least one",
        ),
    ],
)
def test_a_file_that_is_not_as_published_is_refused(folder, changes, words):
    put_organs(folder, **changes)
    with pytest.raises(BadInput) as error:
        images.load("organamnist")
    assert words in str(error.value) and "datasets.organamnist" in str(error.value)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "an idx file"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00\x00\x00\x00", "an idx file of bytes"),
        (b"\x00\x00\x08\x03\x00", "an idx file"),
        (idx(np.zeros((2, 3)))[:-1], "whole, of shape (2, 3)"),
        (idx(np.zeros((2, 3))) + b"\x00", "whole, of shape (2, 3)"),
        (gzip.compress(idx(np.zeros((2, 3))))[:-4], "gzip file that is whole"),
        (b"\x1f\x8b and nothing", "gzip file that is whole"),
    ],
    ids=["empty", "floats", "torn head", "too short", "too long", "torn gzip", "not gzip"],
)
def test_a_torn_idx_file_is_refused(tmp_path, content, words):
    path = tmp_path / "some-idx"
    path.write_bytes(content)
    with pytest.raises(BadInput) as error:
        images.read_idx(path, "datasets.some")
    assert words in str(error.value)


def test_mnist_in_the_format_of_keras(folder):
    x, y = pictures(12, range(10))
    np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x[:3], y_test=y[:3])
    loaded = images.load("mnist")
    np.testing.assert_array_equal(loaded.train.x, x)
    assert loaded.train.y.dtype == np.int64 and len(loaded.test.y) == 3


def test_flat_pictures_lie_between_nought_and_one(folder):
    x, y = pictures(3, range(10))
    pool = images.Pooled(x, y, tuple("0123456789"))
    np.testing.assert_allclose(pool.flat(), x.reshape(3, -1) / 255)
    assert pool.flat(np.float32).dtype == np.float32
    small = pool.flat(shrink=4)
    assert small.shape == (3, 49)
    assert small[1, 8] == pytest.approx(x[1, 4:8, 4:8].mean() / 255)
    with pytest.raises(BadInput, match=r"problem\.shrink"):
        pool.flat(shrink=3)


def test_the_digits_need_no_download():
    theirs = pytest.importorskip("sklearn.datasets").load_digits()
    loaded = images.load("digits")
    np.testing.assert_array_equal(np.concatenate([loaded.train.x, loaded.test.x]), theirs.images)
    np.testing.assert_array_equal(np.concatenate([loaded.train.y, loaded.test.y]), theirs.target)
    assert loaded.train.x.shape == (1437, 8, 8) and loaded.test.x.shape == (360, 8, 8)
    assert loaded.train.flat().max() == 1.0
    assert set(loaded.test.y) == set(range(10))


def test_tables_are_no_pictures():
    with pytest.raises(BadInput, match="dataset"):
        images.load("calcofi")


@pytest.mark.skipif(not DATASETS["mnist"].available(), reason="MNIST is not on this machine")
def test_the_real_mnist_has_its_known_counts():
    loaded = images.load("mnist")
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]  # as everyone finds them
    np.testing.assert_array_equal(np.bincount(loaded.train.y), counts)
    assert loaded.train.x.shape == (60000, 28, 28) and loaded.test.x.shape == (10000, 28, 28)
    assert loaded.train.x.mean() / 255 == pytest.approx(0.1307, abs=1e-4)
