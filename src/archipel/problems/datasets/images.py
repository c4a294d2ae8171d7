"""Pictures with labels: MNIST and its kin, in the formats that their owners publish."""

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

import numpy as np

from archipel.errors import BadInput, Missing, did_you_mean
from archipel.problems.datasets.catalogue import EMNIST_KINDS, find, known
from archipel.problems.datasets.npz import arrays_in

MERGED = digits + ascii_uppercase + "abdefghnqrt"  # letters whose two cases look alike are one
LETTERS = {
    "balanced": MERGED,
    "byclass": digits + ascii_uppercase + ascii_lowercase,
    "bymerge": MERGED,
    "letters": ascii_uppercase,
    "digits": digits,
}
CLOTHES = ("top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
ORGANS = (
    "bladder",
    "femur-left",
    "femur-right",
    "heart",
    "kidney-left",
    "kidney-right",
    "liver",
    "lung-left",
    "lung-right",
    "pancreas",
    "spleen",
)
DIGITS_HELD_OUT = 360  # the last fifth of scikit-learn's digits: people whose writing was not seen


@dataclass(frozen=True)
class Pooled:
    """Samples that nobody owns yet."""

    x: Any  # (samples, height, width), whole numbers from 0 to top
    y: Any  # (samples,), labels from 0
    names: tuple[str, ...]  # of the labels
    top: int = 255
    groups: Any = None  # who or where each sample is from, where that is known

    def flat(self, dtype: Any = np.float64, shrink: int = 1) -> Any:
        """A row of numbers from 0 to 1 for each picture, the means of squares of `shrink` pixels a side."""
        count, height, width = self.x.shape
        if shrink < 1 or height % shrink or width % shrink:
            raise BadInput("problem.shrink", shrink, f"a whole number that divides {height} and {width}")
        if shrink == 1:
            return self.x.reshape(count, -1).astype(dtype) / np.dtype(dtype).type(self.top)
        blocks = self.x.reshape(count, height // shrink, shrink, width // shrink, shrink)
        return (blocks.mean((2, 4)).reshape(count, -1) / self.top).astype(dtype)


@dataclass(frozen=True)
class Loaded:
    """A data set in its owner's parts."""

    train: Pooled
    test: Pooled
    validation: Pooled | None = None


def load(name: str) -> Loaded:
    """A set of pictures by its name in the register."""
    name = known(name).name
    if name not in LOADERS:
        raise BadInput("dataset", name, did_you_mean(name, LOADERS))
    return LOADERS[name]()


def mnist() -> Loaded:
    """MNIST as Keras ships it: x_train, y_train, x_test, y_test in one file."""
    path = find("mnist")
    arrays = arrays_in(path, "datasets.mnist")
    return Loaded(*(_part(arrays, path, "mnist", f"x_{s}", f"y_{s}", tuple(digits)) for s in ("train", "test")))


def organamnist() -> Loaded:
    """OrganAMNIST as MedMNIST ships it: train, val and test images, labels in a column."""
    path = find("organamnist")
    arrays = arrays_in(path, "datasets.organamnist")
    train, test, validation = (
        _part(arrays, path, "organamnist", f"{s}_images", f"{s}_labels", ORGANS) for s in ("train", "test", "val")
    )
    return Loaded(train, test, validation)


def fashion_mnist() -> Loaded:
    """Fashion-MNIST as Zalando ships it: idx files."""
    return Loaded(*(_idx_part("fashion-mnist", f"{s}-", CLOTHES) for s in ("train", "t10k")))


def emnist(kind: str) -> Loaded:
    """EMNIST as NIST ships it: idx files, with the pictures lying on their side; here they stand."""
    names = tuple(LETTERS[kind])
    parts = [_idx_part(f"emnist-{kind}", f"emnist-{kind}-{s}-", names) for s in ("train", "test")]
    return Loaded(*(Pooled(p.x.transpose(0, 2, 1), p.y, p.names) for p in parts))


def sklearn_digits() -> Loaded:
    """scikit-learn's digits, which need no download; its last fifth is kept for the test.

    Read from its file: importing scikit-learn itself takes longer than many a run.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise Missing("The digits come with scikit-learn: pip install scikit-learn.")
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    x, y = rows[:, :-1].reshape(-1, 8, 8).astype(np.uint8), rows[:, -1].astype(np.int64)
    cut = len(y) - DIGITS_HELD_OUT
    return Loaded(Pooled(x[:cut], y[:cut], tuple(digits), 16), Pooled(x[cut:], y[cut:], tuple(digits), 16))


LOADERS: dict[str, Callable[[], Loaded]] = {
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "organamnist": organamnist,
    "digits": sklearn_digits,
    **{f"emnist-{kind}": partial(emnist, kind) for kind in EMNIST_KINDS},
}


# --- the formats ------------------------------------------------------------------------------------------


def read_idx(path: Path, key: str) -> Any:
    """An array of bytes in the idx format, packed by gzip or not.

    Two zero bytes, the type (8: bytes), the number of dimensions, the dimensions (big-endian), the bytes.
    """
    raw = path.read_bytes()
    try:
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error):
        raise BadInput(key, path.name, "a gzip file that is whole") from None
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08" or len(raw) < 4 + 4 * raw[3]:
        raise BadInput(key, path.name, "an idx file of bytes")
    shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", raw[3], 4))
    body = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    if body.size != np.prod(shape, dtype=np.int64):
        raise BadInput(key, f"{path.name}, with {body.size} bytes", f"an idx file whole, of shape {shape}")
    return body.reshape(shape)


def _idx_part(name: str, prefix: str, names: tuple[str, ...]) -> Pooled:
    key = f"datasets.{name}"
    files = [find(name, f"{prefix}{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1")]
    images, labels = (read_idx(path, key) for path in files)
    if name == "emnist-letters":  # the only set whose labels count from one
        if labels.size and labels.min() < 1:
            raise BadInput(key, f"{files[1].name} with a label 0", f"labels from 1 to {len(names)}")
        labels = labels - 1
    return _checked(images, labels, files[0].name, key, names)


def _part(arrays: dict[str, Any], path: Path, name: str, images: str, labels: str, names: tuple[str, ...]) -> Pooled:
    key = f"datasets.{name}"
    for wanted in (images, labels):
        if wanted not in arrays:
            raise BadInput(key, f"{path.name} with {', '.join(arrays)}", f'an array "{wanted}" in it')
    marks = arrays[labels]
    marks = marks[:, 0] if marks.ndim == 2 and marks.shape[1] == 1 else marks
    return _checked(arrays[images], marks, f"{path.name}, {images}", key, names)


def _checked(images: Any, labels: Any, what: str, key: str, names: tuple[str, ...]) -> Pooled:
    """Grey pictures of bytes, a label each, every label with a name."""
    if images.ndim != 3 or images.dtype != np.uint8:
        raise BadInput(key, f"{what}, {images.dtype} of shape {images.shape}", "grey pictures of bytes")
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
        right = f"a label for each of {len(images)} pictures"
        raise BadInput(key, f"{what}, labels {labels.dtype} of shape {labels.shape}", right)
    if len(images) == 0:
        raise BadInput(key, what, "at least one picture")
    if labels.min() < 0 or labels.max() >= len(names):
        right = f"labels from 0 to {len(names) - 1}"
        raise BadInput(key, f"{what}, with labels from {labels.min()} to {labels.max()}", right)
    return Pooled(images, labels.astype(np.int64), names)
