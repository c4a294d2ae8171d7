"""The public data sets that figures and examples use: what they are, whose they are, and where to find them.

A set is looked for in $ARCHIPEL_DATA, then in the user's cache. Where the owner's file can be used as it is,
it is then downloaded and checked by hash; where it cannot, our file is made of the owner's archive once the
user has put that into one of these folders. With none of these, one sentence says where to get it.
"""

import hashlib
import importlib.util
import logging
import os
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from archipel.errors import BadInput, Missing, did_you_mean

log = logging.getLogger(__name__)
CHUNK = 1 << 16
SILENCE = 20.0  # seconds without a byte after which a server is given up


@dataclass(frozen=True)
class File:
    """A file of a data set, and how it comes here."""

    name: str
    url: str = ""  # of the owner; none: it cannot be used as it is
    digest: str = ""  # "sha256:..." or "md5:...", as the owner has it
    member: str = ""  # the url is a zip archive, and this the file's path in it
    megabytes: int = 64  # a download beyond is cut off
    seconds: float = 120.0  # and one that takes longer


@dataclass(frozen=True)
class DataSet:
    """What a data set is, whose it is, and its files."""

    name: str
    description: str
    licence: str
    citation: str
    page: str  # where a person gets it
    files: tuple[File, ...] = ()
    folders: tuple[str, ...] = ("",)  # where in a data folder its files may lie; the first is ours
    archives: tuple[str, ...] = ()  # patterns of the owner's archives that it can be made of
    package: str = ""  # the Python package that brings it along

    def available(self) -> bool:
        """Is it on this machine? Looks, and downloads nothing."""
        if self.package:
            return importlib.util.find_spec(self.package) is not None
        return all(locate(self, file) or archive_of(self) for file in self.files)


def find(name: str, part: str = "") -> Path:
    """The file of a data set (of several, the one named `part`), from wherever it can be had."""
    data = known(name)
    if data.package:
        raise BadInput("dataset", name, f"a data set in a file; this one comes with {data.package}")
    file = next((f for f in data.files if f.name == part), None) if part else data.files[0]
    if file is None:
        raise BadInput("dataset", f"{name}, {part}", did_you_mean(part, [f.name for f in data.files]))
    path = locate(data, file)
    if path is None and archive_of(data):
        path = converted(data, file)
    if path is None and file.url:
        path = fetch(data, file)
    if path is None:
        raise Missing(where_to_get(data, file))
    return path


def known(name: str) -> DataSet:
    """The data set of this name."""
    name = ALIASES.get(name, name)
    if name not in DATASETS:
        raise BadInput("dataset", name, did_you_mean(name, DATASETS))
    return DATASETS[name]


# --- on this machine --------------------------------------------------------------------------------------


def cache() -> Path:
    """The user's own folder for what was downloaded."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "archipel"


PACKAGED = Path("/usr/share/datasets")  # where Debian's packages of data sets put them (dataset-fashion-mnist)


def data_folders() -> list[Path]:
    """Where data sets are looked for, the first first."""
    given = os.environ.get("ARCHIPEL_DATA")
    if not given:
        return [cache(), PACKAGED]
    if not Path(given).is_dir():
        raise BadInput("ARCHIPEL_DATA", given, "a folder that exists")
    return [Path(given), cache(), PACKAGED]


def locate(data: DataSet, file: File) -> Path | None:
    """The file on this machine, packed or not, or nothing."""
    names = (file.name, file.name.removesuffix(".gz"))
    places = (top / folder / name for top in data_folders() for folder in data.folders for name in names)
    return next((place for place in places if place.is_file()), None)


def archive_of(data: DataSet) -> Path | None:
    """The owner's archive, if the user has put it into a data folder."""
    found = (path for top in data_folders() for pattern in data.archives for path in sorted(top.glob(pattern)))
    return next(found, None)


def where_to_get(data: DataSet, file: File, why: str = "") -> str:
    """One sentence for who wants a set that is not here."""
    wanted = f"{data.archives[0]} (it is converted at first use)" if data.archives else file.name
    tops = data_folders()
    target = tops[0] / data.folders[0]
    reason = f" and could not be downloaded ({why})" if why else ""
    advice = f"get {wanted} from {data.page} into {target}"
    return f"The data set {data.name} is not on this machine{reason}: {advice}."


# --- from its owner ---------------------------------------------------------------------------------------


def converted(data: DataSet, file: File) -> Path:
    """Our file, made of the owner's archive, in the cache."""
    from archipel.problems.datasets.convert import CONVERTERS

    archive = archive_of(data)
    assert archive is not None
    target = cache() / data.folders[0] / file.name
    log.warning("making %s of %s, once", file.name, archive.name)
    try:
        with replacing(target) as out:
            CONVERTERS[data.name](archive, out)
    except BadInput:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise BadInput(f"datasets.{data.name}", f"{archive.name}: {error}", "the owner's archive, whole") from None
    return target


def fetch(data: DataSet, file: File) -> Path:
    """The owner's file, downloaded into the cache."""
    from http.client import HTTPException

    target = cache() / data.folders[0] / file.name
    try:
        if not file.member:
            download(file, target)
            return target
        archive = cache() / f"{Path(data.folders[0]).name}.zip"
        if not archive.is_file():
            download(file, archive)
        with zipfile.ZipFile(archive) as zipped, zipped.open(file.member) as source, replacing(target) as out:
            for chunk in iter(lambda: source.read(CHUNK), b""):
                out.write(chunk)
        return target
    except (OSError, HTTPException, zipfile.BadZipFile, KeyError) as error:
        reason = getattr(error, "reason", None) or error
        raise Missing(where_to_get(data, file, str(reason) or type(error).__name__)) from None


def download(file: File, target: Path) -> None:
    """Get a file whole and right, or not at all; bounded in time and in size."""
    import urllib.request  # 20 ms that nobody pays who has the data

    log.warning("downloading %s, once", file.url)
    request = urllib.request.Request(file.url, headers={"User-Agent": "archipel"})
    end = time.monotonic() + file.seconds
    method, _, wanted = file.digest.partition(":")
    seen, size = hashlib.new(method, usedforsecurity=False), 0
    with urllib.request.urlopen(request, timeout=min(SILENCE, file.seconds)) as source, replacing(target) as out:
        for chunk in iter(lambda: source.read1(CHUNK), b""):
            size += len(chunk)
            if time.monotonic() > end:
                raise TimeoutError(f"it took more than {file.seconds:g} s")
            if size > file.megabytes * 10**6:
                raise OSError(f"it is larger than {file.megabytes} MB")
            seen.update(chunk)
            out.write(chunk)
        if seen.hexdigest() != wanted:
            raise OSError(f"what came has another {method} than the owner's file")


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete; several may make it at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
    except BaseException:
        os.unlink(name)
        raise
    os.replace(name, target)


# --- the register -----------------------------------------------------------------------------------------

FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
EMNIST_ZIP = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
EMNIST_SHA = "sha256:fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"
EMNIST_KINDS = {
    "balanced": "131,600 characters of 47 kinds, all equally many",
    "byclass": "814,255 characters of 62 kinds",
    "bymerge": "814,255 characters of 47 kinds",
    "letters": "145,600 letters of 26 kinds",
    "digits": "280,000 digits",
}


def emnist(kind: str, what: str) -> DataSet:
    """One of EMNIST's sets: all lie in one archive of 560 MB."""
    names = [f"emnist-{kind}-{s}-{a}-ubyte.gz" for s in ("train", "test") for a in ("images-idx3", "labels-idx1")]
    return DataSet(
        f"emnist-{kind}",
        f"EMNIST {kind}: {what}, 28 x 28",
        "not stated by NIST (made of NIST Special Database 19)",
        "Cohen, Afshar, Tapson, van Schaik: EMNIST, IJCNN 2017",
        "https://www.nist.gov/itl/products-and-services/emnist-dataset",
        tuple(File(name, EMNIST_ZIP, EMNIST_SHA, f"gzip/{name}", 700, 1200.0) for name in names),
        folders=("emnist", "", "gzip", "emnist/gzip"),
    )


DATASETS: dict[str, DataSet] = {
    data.name: data
    for data in (
        DataSet(
            "calcofi",
            "119,974 samples of sea water, 66 stations off California, 2003 to 2020",
            "CC BY 4.0; acknowledge CalCOFI",
            "CalCOFI bottle database, California Cooperative Oceanic Fisheries Investigations",
            "https://calcofi.org/data/oceanographic-data/bottle-database/",
            (File("calcofi.npz"),),
            archives=("CalCOFI_Database*csv*.zip",),
        ),
        DataSet(
            "beijing-air",
            "382,168 hours of air quality and weather at 12 stations, 2013 to 2017",
            "CC BY 4.0",
            "Zhang et al.: Cautionary tales on air-quality improvement in Beijing, Proc. R. Soc. A 473, 2017",
            "https://archive.ics.uci.edu/dataset/501/beijing+multi+site+air+quality+data",
            (File("beijing_air.npz"),),
            archives=("beijing+multi+site+air+quality+data.zip", "PRSA2017_Data*.zip"),
        ),
        DataSet(
            "mnist",
            "70,000 handwritten digits, 28 x 28",
            "CC BY-SA 3.0",
            "LeCun, Bottou, Bengio, Haffner: Gradient-based learning, Proc. IEEE 86 (1998)",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
            (
                File(
                    "mnist.npz",
                    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
                    "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
                ),
            ),
        ),
        DataSet(
            "fashion-mnist",
            "70,000 pictures of clothes of 10 kinds, 28 x 28",
            "MIT",
            "Xiao, Rasul, Vollgraf: Fashion-MNIST, arXiv:1708.07747 (2017)",
            "https://github.com/zalandoresearch/fashion-mnist",
            tuple(
                File(name, FASHION + name, f"sha256:{digest}")
                for name, digest in {
                    "train-images-idx3-ubyte.gz": ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
                    "train-labels-idx1-ubyte.gz": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
                    "t10k-images-idx3-ubyte.gz": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
                    "t10k-labels-idx1-ubyte.gz": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
                }.items()
            ),
            folders=("fashion-mnist", "FashionMNIST/raw"),  # their names are those of MNIST's own files
        ),
        *(emnist(kind, what) for kind, what in EMNIST_KINDS.items()),
        DataSet(
            "organamnist",
            "58,830 slices of CT scans of 11 organs, 28 x 28",
            "CC BY 4.0",
            "Yang et al.: MedMNIST v2, Scientific Data 10, 41 (2023)",
            "https://zenodo.org/records/10519652",
            (
                File(
                    "organamnist.npz",
                    "https://zenodo.org/records/10519652/files/organamnist.npz?download=1",
                    "md5:68e3f8846a6bd62f0c9bf841c0d9eacc",
                ),
            ),
        ),
        DataSet(
            "digits",
            "1,797 handwritten digits, 8 x 8; comes with scikit-learn",
            "CC BY 4.0",
            "Alpaydin, Kaynak: Optical recognition of handwritten digits, UCI (1998)",
            "https://scikit-learn.org",
            package="sklearn",
        ),
    )
}
ALIASES = {"emnist": "emnist-byclass", "beijing": "beijing-air"}  # PLDP-FL's EMNIST is nearly all of it
